"""Checking: a layout file and overrides in, a report out; what rests on a key that an import left open is no error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rltui.check import rules as _rules
from rltui.check.arithmetic import Arithmetic, lines, resolve
from rltui.check.findings import Finding
from rltui.check.rule import REGISTRY, Subject
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.load import LoadedLayout, load_layout, load_text
from rltui.placement.draw import draw
from rltui.placement.simulate import Placement, place

__all__ = ["REGISTRY", "Report", "check_file", "check_layout", "check_text", "worst_first"]

assert _rules  # importing the families registers their rules

_SEVERITIES = ("error", "warning", "note")

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

_MEMORY_ONLY = ("offload", "memory_utilization", "gradient_checkpointing", "zero_stage", "micro_batch")
"""Last words of keys that say how much memory a role takes, and nothing of who sits where."""


class Report(Struct, frozen=True, kw_only=True):
    """What a check has to say about one layout.

    Attributes:
        file: The layout as the user named it.
        findings: Worst first.
        framework: Whose launch script or configuration it was read as; empty for a layout.
        readable: False where the layout could not be loaded; the findings (code L001) say why.
        loaded: The layout, where it could be loaded.
    """

    file: str
    findings: tuple[Finding, ...] = ()
    framework: str = ""
    readable: bool = True
    loaded: LoadedLayout | None = None
    placement: Placement | None = None
    arithmetic: Arithmetic | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing stands in the way of a launch."""
        return self.readable and not any(finding.severity == "error" for finding in self.findings)

    @property
    def drawing(self) -> tuple[str, ...]:
        """The nodes × GPUs picture."""
        return draw(self.loaded.layout, self.placement) if self.loaded and self.placement else ()

    @property
    def arithmetic_lines(self) -> tuple[str, ...]:
        """How prompts become batches, and batches steps, in words; none where the layout could not be read."""
        return lines(self.loaded.layout) if self.loaded else ()


def check_file(path: Path, overrides: Sequence[str] = ()) -> Report:
    """Check the layout file at ``path``; never raises for what is wrong with the file."""
    try:
        loaded = load_layout(path, overrides)
    except LayoutError as error:
        return _unreadable(str(path), error.problems)
    return check_layout(loaded)


def check_text(text: str, name: str, overrides: Sequence[str] = ()) -> Report:
    """Check a layout given as ``text``."""
    try:
        loaded = load_text(text, name, overrides)
    except LayoutError as error:
        return _unreadable(name, error.problems)
    return check_layout(loaded)


def check_layout(loaded: LoadedLayout) -> Report:
    """Ask every rule about a loaded layout."""
    placement = place(loaded.layout)
    subject = Subject(loaded, placement)
    said = {word.partition("=")[0] for word in loaded.overrides}
    unsure = tuple(key for key in loaded.layout.unsure if key not in said)
    return Report(
        file=loaded.document.name,
        findings=worst_first(
            settled(finding, unsure) for rule in REGISTRY.values() for finding in rule.findings(subject)
        ),
        loaded=loaded,
        placement=placement,
        arithmetic=resolve(loaded.layout),
    )


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors, warnings and notes, each by their codes."""
    return tuple(sorted(findings, key=lambda finding: (_SEVERITIES.index(finding.severity), finding.code)))


def _unreadable(name: str, problems: Sequence[Problem]) -> Report:
    findings = tuple(
        Finding(
            code="L001",
            severity="error",
            message=f"{problem.message} ({problem.hint})" if problem.hint else problem.message,
            key=problem.key,
            file=problem.file or name,
            line=problem.line,
        )
        for problem in problems
    )
    return Report(file=name, findings=findings, readable=False)


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
