"""How they say it: rltui's own supervisor and trainers."""

from __future__ import annotations

from rltui.diagnose.signs import signs

_WAS_FULL = r"host memory of (?P<node>[\w.-]+) was at \d+ % \(.{1,60}\) just before the end"

SIGNS = (
    *signs(
        "preflight_failed",
        ("is bad:", r"^preflight: node (?P<node>[\w.-]+) is bad: (?P<reason>.+)"),
        confidence=0.9,
    ),
    *signs(
        "cancelled_by_other",
        ("not by you", r"^the job was cancelled by user (?P<who>\S+), not by you"),
        confidence=0.9,
    ),
    *signs(
        "stage_stuck",
        ("are usual", r"^stage (?P<stage>[\w-]+) lasted (?P<lasted>\d+) s, \d+ are usual: (?P<missing>.+)"),
        confidence=0.75,
    ),
    *signs(
        "run_stalled",
        ("no new step for", r"^no new step for (?P<waited>\d+) s, a step takes (?P<median>\d+) s"),
        confidence=0.8,
    ),
    *signs("run_stalled", ("idle for", r"^all GPUs of .{1,300} idle for \d+ s$"), confidence=0.5),
    *signs("run_slowed", ("throughput fell to", r"^throughput fell to (?P<now>\d+) tokens/s from (?P<before>\d+)")),
    *signs(
        "weight_sync_slow", ("handing over weights takes", r"^handing over weights takes (?P<share>\d+) % of a step")
    ),
    *signs(
        "parity_growth",
        ("drift apart", r"^trainer and engine drift apart: .{1,40} differ by (?P<now>\S+), (?P<before>\S+) before"),
        confidence=0.8,
    ),
    *signs(
        "no_learning_signal",
        ("got the same reward for", r"^all samples of every prompt got the same reward for (?P<steps>\d+) steps"),
    ),
    *signs("host_oom_slurm", ("just before the end", _WAS_FULL), confidence=0.7),
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
        ("fits no others", r"was written by \d+ (?:learner|critic)s with ZeRO-\d and fits no others"),
        ("is marked complete", r"is marked complete, but .{1,80} is unreadable"),
        confidence=0.95,
    ),
)
