"""Runs that belong together, as one line of the list: those of a sweep, and those of one array of Slurm jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSummary

LEAST = 3
"""Fewer runs than this are a line each."""

DONE = {"finished": "done"}
"""States that are said with another word of several runs."""


class Fold(NamedTuple):
    """Runs that belong together."""

    key: str
    """What they have in common, and nothing else has."""
    name: str
    runs: tuple[RunSummary, ...]
    """In the order of the list."""

    @property
    def counts(self) -> dict[str, int]:
        """State → how many are in it, the most frequent first."""
        return dict(Counter(run.state for run in self.runs).most_common())

    @property
    def words(self) -> str:
        """``5 done, 3 running``."""
        return ", ".join(f"{number} {DONE.get(state, state)}" for state, number in self.counts.items())


def fold_key(run: RunSummary) -> str:
    """What a run has in common with others of its sweep or array; empty where it is by itself."""
    base, underscore, _ = run.job_id.partition("_")
    together = run.sweep or (f"array {base}" if underscore else "")
    return f"{run.owner}{run.cluster}/{together}" if together else ""


def folded(runs: Sequence[RunSummary]) -> list[RunSummary | Fold]:
    """``runs`` with each three or more that belong together as one, where the first of them stands."""
    keys = [fold_key(run) if run.sweep or "_" in run.job_id else "" for run in runs]
    if not any(keys):
        return list(runs)
    together: dict[str, list[RunSummary]] = {}
    for key, run in zip(keys, runs, strict=True):
        if key:
            together.setdefault(key, []).append(run)
    lines: list[RunSummary | Fold] = []
    for key, run in zip(keys, runs, strict=True):
        found = together.get(key, [])
        if len(found) < LEAST:
            lines.append(run)
        elif run is found[0]:
            lines.append(Fold(key, _name(run, key), tuple(found)))
    return lines


def _name(run: RunSummary, key: str) -> str:
    """The sweep's name without the digits that make it one of its own, or the array's."""
    return run.sweep.rpartition("-")[0] or run.sweep if run.sweep else f"{run.name} {key.rpartition('/')[2]}"
