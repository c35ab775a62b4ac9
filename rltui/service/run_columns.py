"""The list of runs in cockpit and shell: its columns, by the words that choose them, and runs that share one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from rltui.errors import UsageError
from rltui.layout.scalars import CPU
from rltui.paths import keep, kept_text
from rltui.watch.pending import span_words, waiting_job

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSummary


KEPT_IN = "columns"
"""File of the state directory with the words of the columns that were chosen last."""
GPUS = "gpu%"
"""The column for which the samples of live runs are read."""
MISSING = "–"


class RunColumn(Struct, frozen=True):
    """One column.

    Attributes:
        title: Its head.
        about: What it shows, in a few words.
        right: Whether it is aligned at its right edge.
        text: Takes the run and the time now; None where cockpit and shell write it in their own ways.
    """

    title: str
    about: str
    right: bool = False
    text: Callable[[RunSummary, float], str] | None = None


def _expected(run: RunSummary, now: float) -> str:
    job = waiting_job(run)
    if job is None or not job.expected_start_at:
        return MISSING
    left_s = job.expected_start_at - now
    return f"~{span_words(left_s)}" if left_s >= 60 else "now"


def _gpu_load(run: RunSummary, _: float) -> str:
    return MISSING if run.gpu_percent is None else f"{run.gpu_percent:.0f}%"


def size_of(run: RunSummary, times: str = "×") -> str:
    """Nodes times GPUs of each, ``2×4``; ``1×8+2×4`` where nodes differ."""
    kinds = run.kinds or ((run.nodes, run.gpus_per_node),)
    return "+".join(f"{nodes}{times}{gpus}" for nodes, gpus in kinds)


def shape_of(run: RunSummary, times: str = "×") -> str:
    """The same in a table, ``2×4c`` where each "GPU" is a CPU core."""
    return size_of(run, times) + ("c" if run.gpu == CPU else "")


def place_of(run: RunSummary) -> str:
    """The cluster of a run, with the colleague whose run it is."""
    return f"{run.owner}@{run.cluster}" if run.owner else run.cluster


COLUMNS: dict[str, RunColumn] = {
    "algo": RunColumn("ALGO", "algorithm", text=lambda run, _: run.algorithm.upper()),
    "shape": RunColumn("N×G", "nodes × GPUs of each; 1×3c: CPU cores"),
    "cluster": RunColumn("CLUSTER", "where it is", text=lambda run, _: place_of(run)),
    "step": RunColumn("STEP", "steps done, of how many", right=True),
    "tok/s": RunColumn("TOK/S", "tokens a second", right=True),
    "trend": RunColumn("10 MIN", "tokens a second of the last minutes, as a curve"),
    "reward": RunColumn("REWARD", "last reward", right=True),
    "age": RunColumn("AGE", "since when it is there", right=True),
    "started": RunColumn("STARTED", "day and hour of its launch"),
    "ended": RunColumn("ENDED", "day and hour of its end"),
    "attempts": RunColumn("ATT", "attempts so far", True, lambda run, _: str(max(run.attempt, run.last_attempt))),
    "nodes": RunColumn("NODES", "number of nodes", True, lambda run, _: str(run.nodes)),
    GPUS: RunColumn("GPU%", "load of its GPUs now, of the first nodes where there are many", True, _gpu_load),
    "verdict": RunColumn("VERDICT", "what a live run suffers from", text=lambda run, _: run.symptom or MISSING),
    "cause": RunColumn("CAUSE", "why it died, in a word", text=lambda run, _: run.failure or MISSING),
    "expected": RunColumn("STARTS", "when the scheduler expects to start it", True, _expected),
}
"""Word → column, in the order in which they are offered."""

DEFAULTS = ("algo", "shape", "cluster", "step", "tok/s", "trend", "reward", "age")
"""What the cockpit shows where nobody has chosen; which of them, its width decides."""


def kept_columns() -> tuple[str, ...]:
    """The columns that were chosen last, in their order; empty: nobody has chosen."""
    return tuple(word for word in kept_text(KEPT_IN).split() if word in COLUMNS)


def keep_columns(words: Sequence[str]) -> str:
    """Keep a choice; what comes back is why it could not be kept."""
    return keep(KEPT_IN, " ".join(words))


def read_columns(text: str, beside: Sequence[str] = ()) -> tuple[str, ...]:
    """The columns in ``text``, which has commas between them.

    Args:
        text: As typed behind ``--columns``.
        beside: Words that are columns there too.

    Raises:
        UsageError: One is none.
    """
    words = tuple(dict.fromkeys(word.strip().lower() for word in text.split(",") if word.strip()))
    known = (*COLUMNS, *beside)
    wrong = next((word for word in words if word not in known), None)
    if wrong is not None or not words:
        said = f"--columns: {wrong[:40]!r} is no column." if wrong else "--columns names none."
        raise UsageError(said, f"There are {', '.join(known)}.")
    return words


LEAST = 3
"""Fewer runs than this are a line each."""

DONE = {"finished": "done"}
"""States that are said with another word of several runs."""


class Fold(NamedTuple):
    """Runs that belong together, such as a sweep's, shown as one line until it is opened."""

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
        """How many of its runs are in which state: ``5 done, 3 running``."""
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
