"""The failure word of an attempt, found once and kept beside the attempt for everybody who lists runs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence

from msgspec import structs

from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.snapshots import RunSummary

DIED = frozenset({"failed", "lost"})
"""States of runs whose logs may say why."""

BUDGET_S = 2.0
"""How long a list in the shell may take to read logs and GPUs; what is left is found by the next one."""


def failure_of(context: Context, run: RunSummary) -> str:
    """The word for what ended ``run``, diagnosed now and written beside the attempt; empty where no cause is known."""
    from rltui.service import why

    word = why.failure_of(context, run)
    if run.owner:
        return word
    note = json.dumps({"schema": rundir.SCHEMA, "word": word}).encode()
    with contextlib.suppress(ClusterError):  # a directory that cannot be written costs only the next reading
        context.cluster.client.put(f"{attempt_path(run)}/{rundir.FAILURE}", note)
    return word


def lacks_word(run: RunSummary) -> bool:
    """Whether ``run`` died and nobody has looked for its word yet; one of a cluster that is away cannot be read."""
    return run.state in DIED and not run.failure_known and not run.as_of and run.archived is None


def with_failures(runs: Sequence[RunSummary], context_of: Callable[[str], Context]) -> list[RunSummary]:
    """``runs`` with their words; logs and GPUs are looked at, newest run first, as far as ``BUDGET_S`` reaches."""
    deadline = time.monotonic() + BUDGET_S
    return [_with_failure(run, context_of, deadline) for run in runs]


def _with_failure(run: RunSummary, context_of: Callable[[str], Context], deadline: float) -> RunSummary:
    if run.state == "running" and not run.as_of:
        from rltui.service.symptoms import symptom_word

        has_time = time.monotonic() < deadline
        with contextlib.suppress(ClusterError):
            return structs.replace(run, symptom=symptom_word(run, context_of(run.reader).reader, with_gpus=has_time))
    if run.failure or not lacks_word(run) or time.monotonic() > deadline:
        return run
    with contextlib.suppress(RltuiError):
        return structs.replace(run, failure=failure_of(context_of(run.reader), run), failure_known=True)
    return run
