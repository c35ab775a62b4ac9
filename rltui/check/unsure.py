"""Findings that rest on what a layout is not sure of: a note that says so, never an error.

A layout that was imported names in ``unsure`` what its script leaves open and what the other system does in a way for
which a layout has no word. What would be an error about such a key is then only a question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.check.findings import Finding

_BATCH = ("train.prompts_per_step", "train.samples_per_prompt", "train.optimizer_steps")
_RESTS_ON: dict[str, tuple[str, ...]] = {
    "M301": ("roles.learner", "roles.critic", "lengths", "hardware", *_BATCH),
    "M303": ("roles.rollout", "lengths", "hardware"),
    "M304": ("roles.rollout", "lengths", "hardware"),
    "M": ("roles", "lengths", "hardware", *_BATCH),
    "B": ("roles.learner.tensor_parallel", "lengths", *_BATCH),
    "E": ("roles.rollout", "lengths"),
    "P": ("roles", "pools", "hardware"),
}
"""Sections of a layout that a rule, or a family of rules by its letter, draws upon beside the key that it names."""


_MEMORY_ONLY = ("offload", "gradient_checkpointing", "zero_stage", "micro_batch")
"""Last words of keys that say how much memory a role takes, and nothing of who sits where."""


def settled(finding: Finding, unsure: Sequence[str]) -> Finding:
    """``finding``, or a note in its place where it is an error and rests on a key of ``unsure``."""
    if finding.severity != "error" or not unsure:
        return finding
    sections = _RESTS_ON.get(finding.code) or _RESTS_ON.get(finding.code[:1], ())
    told = [key for key in unsure if finding.code[:1] in "MB" or not key.endswith(_MEMORY_ONLY) or key == finding.key]
    open_ = [key for key in told if any(_overlap(key, part) for part in (finding.key, *sections) if part)]
    if not open_:
        return finding
    return replace(finding, severity="note", message=f"unknown, as {open_[0]} is: {finding.message}", fix=())


def _overlap(one: str, other: str) -> bool:
    """Whether one dotted key is the other, or a section that holds it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
