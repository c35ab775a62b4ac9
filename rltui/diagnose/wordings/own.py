"""How they say it: rltui's own supervisor and trainers."""

from __future__ import annotations

from rltui.diagnose.signs import signs

SIGNS = (
    *signs(
        "disk_full",
        ("gib free", r"\((?P<path>/[^)]{1,300})\) has [\d.]+ GiB free, [\d.]+ (?:GiB )?are needed"),
        (
            "a checkpoint needs about",
            r"a checkpoint needs about [\d.]+ GiB and (?P<path>\S{1,300}) has [\d.]+ GiB free",
        ),
        confidence=0.95,
    ),
    *signs("env_import_broken", ("install the trainers extra", r"cannot import .{1,200}; install the trainers extra")),
    *signs("ray_pg_infeasible", ("bundles found no place", r"the \w+ bundles found no place within"), confidence=0.95),
    *signs("ray_head_unreachable", ("ray did not come up on", r"Ray did not come up on (?P<address>[\w.-]+)")),
    *signs(
        "ray_actor_died",
        ("ray died", r"Ray died \(exit code"),
        ("died while", r"\b(?:learner|engine|reference|critic|teacher|reward) \d+ died while \w+"),
        confidence=0.7,
    ),
    *signs(
        "ckpt_broken",
        ("fits no others", r"was written by \d+ learners with ZeRO-\d and fits no others"),
        ("is marked complete", r"is marked complete, but .{1,80} is unreadable"),
        confidence=0.95,
    ),
)
