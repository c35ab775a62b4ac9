"""The history of a run for a verb: all of its steps read, and the causes of earlier ends looked for."""

from __future__ import annotations

from contextlib import suppress

from msgspec import structs

from rltui.errors import RltuiError
from rltui.service.context import Context
from rltui.service.failures import DIED, failure_of
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import AttemptHistory, EndSnapshot, RunHistory, RunSummary

MOST_LOOKED_AT = 8
"""Attempts whose logs are searched for a cause in one go, the newest first; what is found is kept beside them."""


def read_history(context: Context, run: RunSummary, watcher: RunWatcher | None = None) -> RunHistory:
    """Where the time of ``run`` went.

    Args:
        context: The run's cluster.
        run: The run.
        watcher: One that the caller has of it; None: it needs none.
    """
    watcher = watcher or RunWatcher(context.cluster.client, run.path)
    history = watcher.whole().history
    nameless = [one for one in history.attempts if one.outcome in DIED and one.cause == one.outcome]
    if not nameless or run.through or run.archived is not None:  # its logs are in a file: an empty word would stay
        return history
    for one in nameless[: -MOST_LOOKED_AT - 1 : -1]:
        with suppress(RltuiError):  # the outcome is a cause too
            failure_of(context, _at(run, one))
    return watcher.whole().history


def _at(run: RunSummary, one: AttemptHistory) -> RunSummary:
    """``run`` as if it were at that attempt."""
    if one.number == run.attempt:
        return run
    end = EndSnapshot(outcome=one.outcome, exit_code=one.exit_code, reason=one.reason, at=one.ended_at or 0.0)
    state = "lost" if one.outcome == "lost" else "failed"
    return structs.replace(run, attempt=one.number, state=state, end=end, job=None)
