"""Starts and changes of a run that were cut off in the middle: what was to follow, so that somebody can do it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.runs.submission import NEVER_SENT

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

ACTION = "replace"
"""What the journal calls it: an intent, which counts until a newer attempt is there."""


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
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(self.at))
        change = " ".join([*self.overrides, *(f"--exclude {node}" for node in self.exclude)])
        return f"ended at {when} to go on with {change or 'the same layout'}, and no new attempt was made"


def unfinished_words(context: Context, run: RunSummary) -> str:
    """What is said of ``run`` where a change of it was interrupted; empty otherwise."""
    left = interrupted(context, run)
    return f"{run.run_id} was {left.in_words()}; rltui fix {run.run_id} goes on." if left is not None else ""


def note_replacement(context: Context, run: RunSummary, overrides: Sequence[str], exclude: Sequence[str]) -> None:
    """Write down what is to follow the end of ``run``'s attempt, before that is ended.

    Raises:
        RltuiError: The journal cannot be written; nothing may be ended then.
    """
    context.journal.write(
        ACTION, "intent", run=run.run_id, attempt=run.attempt, cluster=context.name,
        overrides=list(overrides), exclude=list(exclude),
    )  # fmt: skip


def interrupted(context: Context, run: RunSummary) -> Interrupted | None:
    """What was to follow ``run``'s attempt, or become of it; None where nothing was, or another attempt came."""
    if (run.state == "unknown" and run.submission) or (run.end is not None and run.end.reason == NEVER_SENT):
        return Interrupted(lost_attempt=run.attempt)
    if run.is_live or run.state == "finished" or run.last_attempt > run.attempt:
        return None
    about = {"action": ACTION, "run": run.run_id, "attempt": run.attempt, "cluster": context.name}
    for entry in reversed(context.journal.entries()):
        if all(entry.get(key) == value for key, value in about.items()):
            return Interrupted(
                at=float(entry["time"]),
                overrides=tuple(map(str, entry.get("overrides", ()))),
                exclude=tuple(map(str, entry.get("exclude", ()))),
            )
    return None
