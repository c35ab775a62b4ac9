"""What happens to runs while somebody looks at them, found by comparing pictures: starts, ends, stalls."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from rltui.cluster.profile import EventKind
from rltui.onnode import rundir
from rltui.onnode.progress import FIRST_STEPS_S, LEAST_STEPS, patience_s
from rltui.watch.snapshots import RunsSnapshot, RunSummary

ENDED: tuple[str, ...] = ("finished", "failed", "cancelled", "lost")
TRAINING: tuple[str, ...] = ("training", "saving")

UNWATCHED_S = 180.0
"""A longer time between two looks (a machine that slept, a link that was away) counts for nothing."""


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened to an attempt, worth telling people."""

    kind: EventKind
    run: RunSummary
    text: str = ""

    @property
    def title(self) -> str:
        """The run and what happened, in a line."""
        return f"{self.run.run_id}: {self.run.state if self.kind == 'ended' else self.kind}"

    def message(self) -> dict[str, Any]:
        """The event as ``rltui.onnode.notify`` sends it to phones and chats."""
        where = f"attempt {self.run.attempt} on {self.run.cluster}"
        stage = self.run.stage
        step = "" if stage.step is None else f", step {stage.step}" + (f" of {stage.steps}" if stage.steps else "")
        text = "\n".join(filter(None, (self.text, where + step)))
        about = {"kind": self.kind, "cluster": self.run.cluster, "run": self.run.run_id}
        return {**about, "title": self.title, "text": text, "time_s": time.time()}


class _Progress:
    """Steps of one attempt as they were seen."""

    def __init__(self, step: int | None, now_s: float) -> None:
        self.step, self.since_s = step, now_s
        self.durations_s: list[float] = []
        self.is_told = False

    @property
    def usual_s(self) -> float:
        return sorted(self.durations_s)[len(self.durations_s) // 2] if self.durations_s else 0.0

    @property
    def patience_s(self) -> float:
        return patience_s(self.durations_s) if len(self.durations_s) >= LEAST_STEPS else FIRST_STEPS_S


class RunEvents:
    """Says of each picture of all runs what has happened since the one before."""

    def __init__(self) -> None:
        self._before: tuple[RunSummary, ...] = ()
        self._progress: dict[tuple[str, str, int], _Progress] = {}
        self._looked_s = 0.0

    def look(self, snapshot: RunsSnapshot, now_s: float) -> list[Event]:
        """What happened, oldest knowledge first.

        Args:
            snapshot: All runs; rows of a cluster that is away tell nothing and are
                remembered as they were; what colleagues' runs do is not told.
            now_s: Seconds that only grow.
        """
        after = tuple(run for run in snapshot.runs if not run.as_of and not run.owner)
        events = [*happened(self._before, after), *self._stalled(after, now_s)]
        seen = {run.identity for run in after}
        self._before = (*after, *(run for run in self._before if run.identity not in seen))
        self._looked_s = now_s
        return events

    def _stalled(self, runs: Iterable[RunSummary], now_s: float) -> list[Event]:
        unwatched_s = now_s - self._looked_s
        if unwatched_s > UNWATCHED_S:
            for progress in self._progress.values():
                progress.since_s += unwatched_s
        watched = {(*run.identity, run.attempt): run for run in runs if _is_stepping(run)}
        self._progress = {key: one for key, one in self._progress.items() if key in watched}
        return [event for key, run in watched.items() if (event := self._stall(key, run, now_s)) is not None]

    def _stall(self, key: tuple[str, str, int], run: RunSummary, now_s: float) -> Event | None:
        progress = self._progress.setdefault(key, _Progress(run.stage.step, now_s))
        silent_s = now_s - progress.since_s
        if run.stage.step != progress.step:
            progress.durations_s = [*progress.durations_s[-50:], silent_s]
            progress.step, progress.since_s = run.stage.step, now_s
        elif silent_s > progress.patience_s and not progress.is_told:
            progress.is_told = True  # a mark in the attempt says so too: it is told of one stall
            usual = f", usually {progress.usual_s:.1f} s" if progress.durations_s else ""
            return Event(kind="stalled", run=run, text=f"no step for {silent_s / 60:.0f} min{usual}")
        return None


def _is_stepping(run: RunSummary) -> bool:
    """Whether the next step is what it is at: starting, saving and evaluating take what they take."""
    return (
        run.state == "running" and run.stage.stage == "training" and not run.stage.detail.startswith(rundir.EVALUATING)
    )


def happened(before: Iterable[RunSummary], after: Iterable[RunSummary]) -> list[Event]:
    """Which runs began to train, or ended, between two pictures; one that was not there before tells nothing."""
    known = {run.identity: run for run in before}
    events = []
    for run in after:
        old = known.get(run.identity)
        if old is None:
            continue
        is_new = run.attempt != old.attempt
        if run.state in ENDED and (is_new or old.state not in ENDED):
            events.append(Event(kind="ended", run=run, text=run.end.reason if run.end else run.scheduler_says))
        elif run.stage.stage in TRAINING and run.is_live and (is_new or old.stage.stage not in TRAINING):
            events.append(Event(kind="started", run=run))
    return events
