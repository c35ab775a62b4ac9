"""What a part finds: rows of verdict, figure and advice, written down as they come, so that a crash loses none."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rltui.onnode import rundir

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.schema import Layout
    from rltui.layout.selftest import Part

Verdict = Literal["ok", "failed", "skipped"]

FOLDER = "selftest"
"""Of an attempt: its parts' rows and runs."""


class SkippedError(Exception):
    """The part cannot be tried here; the text says why."""


@dataclass(frozen=True)
class Row:
    """One thing that was tried.

    Attributes:
        part: Name of its part.
        what: What it is of; empty: the part itself.
        verdict: Whether it works.
        figure: What was measured, in words; why it failed; or why it was not tried.
        remedy: What to do about a failure.
        measured: Numbers by name, with the unit at its end.
    """

    part: str
    what: str
    verdict: Verdict
    figure: str
    remedy: str = ""
    measured: dict[str, float] = field(default_factory=dict)


class Found:
    """What one part may look at, and where it says what it found.

    Args:
        attempt: The self-test's attempt.
        layout: Its layout.
        part: The part.

    Attributes:
        rows: So far.
    """

    def __init__(self, attempt: Path, layout: Layout, part: Part) -> None:
        self.attempt, self.layout, self.part = attempt, layout, part
        self.rows: list[Row] = []

    @property
    def on_cpu(self) -> bool:
        """Whether the slots are CPU processes."""
        return self.layout.hardware.on_cpu

    def size(self, cpu: int, card: int, thorough: int) -> int:
        """How large something is to be: here, on a card, and where there is time."""
        assert self.layout.selftest is not None
        return cpu if self.on_cpu else thorough if self.layout.selftest.thorough else card

    def ok(self, what: str, figure: str, **measured: float) -> None:
        """Note that ``what`` works, with its figure in words and what was measured."""
        self._add(what, "ok", figure, measured=measured)

    def failed(self, what: str, why: str, remedy: str = "", **measured: float) -> None:
        """It does not; without ``remedy`` the part's own stands."""
        self._add(what, "failed", why, remedy or self.part.remedy, measured)

    def skipped(self, what: str, why: str) -> None:
        """It cannot be tried here."""
        self._add(what, "skipped", why)

    def _add(
        self, what: str, verdict: Verdict, figure: str, remedy: str = "", measured: dict[str, float] | None = None
    ) -> None:
        self.rows.append(Row(self.part.name, what, verdict, figure[:500], remedy, measured or {}))
        rundir.write_json(rows_file(self.attempt, self.part.name), {"rows": [asdict(row) for row in self.rows]})


def rows_file(attempt: Path, part: str) -> str:
    """Where a part's rows are written down."""
    return str(attempt / FOLDER / f"{part}.json")


def read_rows(attempt: Path, part: str) -> list[Row]:
    """The rows that a part wrote down before its process ended."""
    found: Any = rundir.read_json(rows_file(attempt, part)) or {}
    return [Row(**row) for row in found.get("rows", ())]


def last_words(error: BaseException) -> str:
    """An error in a line; of one from another process, what went wrong there."""
    cause = getattr(error, "cause", None) or error
    said = str(cause).strip().splitlines() or [""]
    return f"{type(cause).__name__}: {said[0]}".rstrip(": ")


def rate(bytes_per_s: float) -> str:
    """``412 MB/s`` or ``3.35 TB/s``."""
    for unit, size in (("TB", 1e12), ("GB", 1e9)):
        if bytes_per_s >= size:
            return f"{bytes_per_s / size:.3g} {unit}/s"
    return f"{bytes_per_s / 1e6:.3g} MB/s"


def middle(values: list[float]) -> float:
    """Their median; 0 of none."""
    return statistics.median(values) if values else 0.0
