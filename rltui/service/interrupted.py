"""Starts and changes of a run that were cut off in the middle: what was to follow, so that somebody can do it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from rltui.runs.journal import NEVER_SENT, Journal
from rltui.service.recover import may_live
from rltui.watch.snapshots import RunsSnapshot, RunSummary

ACTION = "replace"
"""What the journal calls it: an intent, which counts until a newer attempt is there."""

BUSY_S = 300.0
"""After that a change is done or has failed: an attempt has three minutes to end, and its next one is submitted."""

WANTED_S = 3600.0
"""A change of a run that goes on, and that nobody has made again for so long, is not wanted any more."""


class Interrupted(Struct, frozen=True, kw_only=True):
    """A change that ended an attempt and never made its own, or an attempt of which no answer came back.

    Attributes:
        at: When the change began, epoch seconds.
        lost_attempt: The attempt that may never have been handed over, which holds all words itself; 0: none was made.
        overrides: Its ``key.path=value`` words.
        exclude: Nodes that it was to keep away from.
    """

    at: float = 0.0
    lost_attempt: int = 0
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def in_words(self) -> str:
        """What happened, in a sentence."""
        if self.lost_attempt:
            return (
                f"to start as attempt {self.lost_attempt}, and the rltui that submitted it ended in the middle of that"
            )
        return f"ended at {self.when} to go on with {self.change or 'the same layout'}, and no new attempt was made"

    @property
    def when(self) -> str:
        """When it began, this machine's time of day."""
        return time.strftime("%m-%d %H:%M:%S", time.localtime(self.at))

    @property
    def change(self) -> str:
        """The words of the new attempt, as ``rltui resubmit`` takes them."""
        return " ".join([*self.overrides, *(f"--exclude {node}" for node in self.exclude)])


class Replacements:
    """Changes of a cluster's runs that end an attempt and begin another.

    Args:
        journal: Where they are written down.
        cluster: Name of the cluster.
    """

    def __init__(self, journal: Journal, cluster: str) -> None:
        self._journal = journal
        self._cluster = cluster

    def note(self, run: RunSummary, overrides: Sequence[str], exclude: Sequence[str]) -> None:
        """Write down what is to follow the end of ``run``'s attempt, before that is ended.

        Raises:
            RltuiError: The journal cannot be written; nothing may be ended then.
        """
        self._journal.write(
            ACTION, "intent", run=run.run_id, attempt=run.attempt, cluster=self._cluster,
            overrides=list(overrides), exclude=list(exclude),
        )  # fmt: skip

    def interrupted(self, run: RunSummary) -> Interrupted | None:
        """What was to follow ``run``'s attempt, or become of it; None where nothing was, or another attempt came."""
        return _interrupted(run, self._intents().get((run.run_id, run.attempt)))

    def unfinished_words(self, run: RunSummary) -> str:
        """What is said of ``run`` where a change of it is under way, or was interrupted; empty otherwise."""
        said = _unfinished(run, self._intents().get((run.run_id, run.attempt)))
        return f"{run.run_id} {said}." if said else ""

    def explained(self, snapshot: RunsSnapshot) -> RunsSnapshot:
        """``snapshot`` with a sentence on every change that is under way, or was interrupted."""
        intents = self._intents()
        if not intents:
            return snapshot

        def with_words(run: RunSummary) -> RunSummary:
            entry = intents.get((run.run_id, run.attempt))
            return structs.replace(run, unfinished=_unfinished(run, entry)) if entry is not None else run

        return structs.replace(snapshot, runs=tuple(map(with_words, snapshot.runs)))

    def _intents(self) -> dict[tuple[str, int], dict[str, Any]]:
        """The newest change of each attempt that was to end it, by run and attempt."""
        return {
            (str(entry.get("run")), int(entry.get("attempt") or 0)): entry
            for entry in self._journal.entries()
            if entry.get("action") == ACTION and entry.get("cluster") == self._cluster
        }


def _unfinished(run: RunSummary, entry: Mapping[str, Any] | None) -> str:
    left = _interrupted(run, entry)
    if left is not None:
        return f"is half done (rltui fix {run.run_id} goes on): it was {left.in_words()}"
    if entry is None or not run.is_live or run.last_attempt > run.attempt:
        return ""
    age_s, pid, host = time.time() - entry["time"], int(entry["pid"]), str(entry["host"])
    meant = _of(entry)
    if age_s < BUSY_S and may_live(host, pid, str(entry["started"])):
        return f"is ended by rltui (pid {pid} on {host}), to go on with {meant.change or 'the same layout'}"
    if age_s > WANTED_S:
        return ""
    words = " ".join(filter(None, ("rltui resubmit", run.run_id, "--cancel", meant.change)))
    return (
        f"is half done ({words} goes on): it was to end at {meant.when} and go on with "
        f"{meant.change or 'the same layout'}, but the rltui (pid {pid} on {host}) that did that has left off"
    )


def _of(entry: Mapping[str, Any]) -> Interrupted:
    overrides, exclude = (tuple(map(str, entry.get(name, ()))) for name in ("overrides", "exclude"))
    return Interrupted(at=float(entry["time"]), overrides=overrides, exclude=exclude)


def _interrupted(run: RunSummary, entry: Mapping[str, Any] | None) -> Interrupted | None:
    if (run.state == "unknown" and run.submission) or (run.end is not None and run.end.reason == NEVER_SENT):
        return Interrupted(lost_attempt=run.attempt)
    if run.is_live or run.state == "finished" or run.last_attempt > run.attempt:
        return None
    return _of(entry) if entry is not None else None
