"""Failure words of runs that died and symptoms of those that live: found once, and kept beside the attempt for all.

Neither reading logs nor weighing numbers may hold up a list: a screen has them looked for in the background.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

from msgspec import structs

from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.threads import RequestThread
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
    with suppress(ClusterError):  # a directory that cannot be written costs only the next reading
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
        with suppress(ClusterError):
            return structs.replace(run, symptom=symptom_word(run, context_of(run.reader).reader, with_gpus=has_time))
    if run.failure or not lacks_word(run) or time.monotonic() > deadline:
        return run
    with suppress(RltuiError):
        return structs.replace(run, failure=failure_of(context_of(run.reader), run), failure_known=True)
    return run


_Key: TypeAlias = "tuple[str, str, int]"

LASTS_S = 60.0
"""How long a symptom counts while no step comes."""

MOST_AT_ONCE = 24
"""Runs that died, newest first, whose logs are looked at; those of older ones are read when somebody asks why."""


class FailureWords:
    """Remembers the word of each attempt, and looks for those that it does not know yet.

    Args:
        diagnose: Gives the word of a run that died; may block, and is called in a thread of its own.
        symptom: Gives the word of a live run, which is asked for again after each step; called there too.
    """

    def __init__(self, diagnose: Callable[[RunSummary], str], symptom: Callable[[RunSummary], str]) -> None:
        self._diagnose, self._symptom = diagnose, symptom
        self._known: dict[_Key, str] = {}
        self._symptoms: dict[_Key, tuple[tuple[int | None, int], str]] = {}
        self._asked: set[_Key] = set()
        self._thread = RequestThread("failure words", newest_only=False, may_be_left=True)

    def fill(self, runs: Iterable[RunSummary]) -> tuple[RunSummary, ...]:
        """``runs``, newest first, with the words that are known; the others are looked for."""
        runs = tuple(runs)
        died = [run for run in runs if lacks_word(run)][:MOST_AT_ONCE]
        live = [run for run in runs if run.state == "running" and not run.as_of]
        news = [run for run in live if self._symptoms.get(_key(run), (None, ""))[0] != _moment(run)]
        self._look_for([*news, *(run for run in died if _key(run) not in self._known)])
        return tuple(self._filled(run) for run in runs)

    def _filled(self, run: RunSummary) -> RunSummary:
        if run.state == "running" and not run.symptom and not run.no_step_s:  # without steps, nothing is said of them
            return structs.replace(run, symptom=self._symptoms.get(_key(run), (None, ""))[1])
        word = self._known.get(_key(run), "") if run.state in DIED and not run.failure else ""
        return structs.replace(run, failure=word) if word else run

    def _look_for(self, runs: Iterable[RunSummary]) -> None:
        for run in runs:
            if _key(run) not in self._asked:
                self._asked.add(_key(run))
                self._thread.ask(partial(self._look, run))

    def _look(self, run: RunSummary) -> None:
        self._asked.discard(_key(run))
        with suppress(RltuiError):  # its cluster is away: it is asked for again with the next list
            if run.state == "running":
                self._symptoms[_key(run)] = _moment(run), _or_none(self._symptom, run)
            else:
                self._known[_key(run)] = _or_none(self._diagnose, run)


def _or_none(word: Callable[[RunSummary], str], run: RunSummary) -> str:
    try:
        return word(run)
    except RltuiError:
        raise
    except Exception:  # noqa: BLE001 the edge of a thread: a log that breaks the reading must not end it for all runs
        return ""


def _moment(run: RunSummary) -> tuple[int | None, int]:
    """What a symptom is of: a step, for a while, as one that stands still is another matter."""
    return run.stage.step, int(time.monotonic() // LASTS_S)


def _key(run: RunSummary) -> _Key:
    return *run.identity, run.attempt
