"""Keeps the picture of a user's jobs: one squeue for all of them, sacct only for those that vanished from it."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rltui.cluster.jobs import JobsSnapshot
from rltui.cluster.slurm.ids import base_id
from rltui.cluster.slurm.queries import by_id, is_same_job, placed, waiting_among
from rltui.errors import ClusterError
from rltui.threads import backed_off_s

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobSnapshot
    from rltui.cluster.slurm.client import SlurmClient
    from rltui.cluster.slurm.queries import Place


ACTIVE_S = 30.0
"""Between two looks while somebody is watching and a job is alive: 4 RPCs a minute."""
UNWATCHED_S = 60.0
IDLE_S = 120.0
AFTER_CHANGE_S = 10.0
CHANGE_WINDOW_S = 120.0
"""How long after a submission or cancellation its effect is looked for more often."""
LONGEST_S = 300.0

PLACES_S = 180.0
"""Between two looks at everybody's pending jobs; the look after one comes half as late again, for 6 RPCs a minute."""

ACCOUNTING_FIRST_S = 40.0
ACCOUNTING_STEP_S = 10.0
ACCOUNTING_LONGEST_S = 180.0
ACCOUNTING_TRIES = 12
"""After as many, half an hour, a job that nobody knows is given up: its end marker is the only word left."""


class Needs(Struct, frozen=True, kw_only=True):
    """What decides when the next look is due."""

    is_watched: bool = True
    """Whether a screen shows jobs."""
    is_active: bool = True
    """Whether a job that somebody asked for is alive or its fate unknown."""
    changed_ago_s: float | None = None
    """Seconds since the last submission, cancellation or other change; None: there was none."""
    failures: int = 0
    """Looks in a row that failed."""
    asked_for_places: bool = False
    """Whether the last look also asked for everybody's pending jobs."""


def next_look_s(needs: Needs, chance: float) -> float:
    """Seconds until Slurm is asked again.

    Args:
        needs: What is the case.
        chance: A random number in [0, 1): many users' rltui must not ask in step. It only ever adds, up to a fifth.
    """
    if not needs.is_active:
        delay = IDLE_S
    elif needs.is_watched:
        delay = ACTIVE_S * (1.5 if needs.asked_for_places else 1.0)
    else:
        delay = UNWATCHED_S
    if needs.failures:
        delay = backed_off_s(delay, needs.failures, LONGEST_S)
    elif needs.changed_ago_s is not None and 0 <= needs.changed_ago_s <= CHANGE_WINDOW_S:
        delay = AFTER_CHANGE_S
    return delay * (1 + 0.2 * chance)


def accounting_delay_s(tries: int) -> float:
    """Seconds until the accounting is asked again for a vanished job, after ``tries``: 40, 50, 60 … 180; then never."""
    if tries >= ACCOUNTING_TRIES:
        return math.inf
    return min(ACCOUNTING_LONGEST_S, ACCOUNTING_FIRST_S + ACCOUNTING_STEP_S * max(0, tries - 1))


SOON_S = 2.0
FORGET_S = 900.0
"""A job that nobody has asked for so long is looked for no more."""
LONGEST_AGO_S = 30 * 86400.0
"""How far back the accounting is asked for a job whose submission nobody here remembers."""


class _Search(Struct):
    """A job that is wanted but not in the queue and whose end nobody has told of, or who cancelled it."""

    tries: int = 0
    next_at: float = 0.0


class JobPoller:
    """What Slurm says of the user's jobs, asked no more often than ``polling`` allows, for any number of threads.

    A job is shown as ended only on the word of squeue or sacct. One that was known and that both do not tell of any
    more is ``unknown``: whoever has its end marker knows better.

    Args:
        client: The cluster's client.
        clock: Epoch seconds, the client's clock.
        chance: Random numbers in [0, 1).
    """

    def __init__(
        self,
        client: SlurmClient,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._client = client
        self._clock = clock
        self._chance = chance
        self._looking = threading.Lock()
        self._known: dict[str, JobSnapshot] = {}
        self._wanted: dict[str, float] = {}
        self._searches: dict[str, _Search] = {}
        self._places: dict[str, Place] = {}
        self._places_at = -math.inf
        self._changed_at: float | None = None
        self._asked_at = 0.0
        self._due = 0.0
        self._failures = 0
        self._said = JobsSnapshot()
        self.is_watched = True
        """Whether a screen shows jobs; where none does, Slurm is asked less."""

    def rpcs_per_minute(self) -> int:
        """Calls to slurmctld in the last minute, all that went through the same client."""
        return self._client.runner.rpcs_per_minute()

    def changed(self) -> None:
        """Note that a job was submitted, cancelled or changed: the next look comes soon, and then more often."""
        self._changed_at = self._clock()
        if not self._failures:
            self._due = min(self._due, self._changed_at + SOON_S)

    def jobs(self, job_ids: Sequence[str]) -> JobsSnapshot:
        """What is known of these jobs.

        Asks Slurm first where that is due; a second thread that comes meanwhile is given the last picture at once.
        """
        now = self._clock()
        for one in job_ids:
            self._wanted[one] = now
        # a clock that was set back must not stop the looks for hours
        is_due = now >= self._due or now < self._asked_at
        if is_due and self._looking.acquire(blocking=False):
            try:
                self._look(now)
            finally:
                self._looking.release()
        found = ((one, self._known.get(one)) for one in job_ids)
        return replace(self._said, jobs={one: job for one, job in found if job is not None})

    def _look(self, now: float) -> None:
        self._asked_at = now
        wanted = [one for one, asked_at in tuple(self._wanted.items()) if now - asked_at < FORGET_S]
        asked_for_places = False
        try:
            self._take_queue(wanted, now)
            asked_for_places = self._take_places(wanted, now)
            self._failures, self._said = 0, JobsSnapshot(taken_at=now)
        except ClusterError as error:
            self._failures += 1
            self._said = replace(self._said, problem=error.message)
        needs = Needs(
            is_watched=self.is_watched,
            is_active=any(self._is_open(one) for one in wanted),
            changed_ago_s=None if self._changed_at is None else now - self._changed_at,
            failures=self._failures,
            asked_for_places=asked_for_places,
        )
        # asking may have taken long: the pause is counted from its end
        self._due = self._clock() + next_look_s(needs, self._chance())

    def _is_open(self, job_id: str) -> bool:
        """Whether a job may still change, or may still be found."""
        known = self._known.get(job_id)
        if known is not None and known.has_ended:
            return False
        return job_id not in self._searches or math.isfinite(self._searches[job_id].next_at)

    def _runs(self, job_id: str) -> bool:
        known = self._known.get(job_id)
        return known is not None and known.state == "running"

    def _lacks_who(self, job_id: str) -> bool:
        """Whether only the accounting can tell by whom a job was cancelled: the queue names nobody."""
        known = self._known.get(job_id)
        return known is not None and known.state == "cancelled" and not known.cancelled_by

    def _take_queue(self, wanted: Sequence[str], now: float) -> None:
        found = by_id([job for _, job in self._client.queue()])
        if missing := [one for one in wanted if one not in found and self._runs(one)]:
            # a controller under load has left a job that ran out of its list; asked for by its id, it is there
            found |= by_id([job for _, job in self._client.queue(missing)])
        found |= waiting_among(found, wanted)
        for job_id, job in found.items():
            known = self._known.get(job_id)
            if known is None or is_same_job(known, job):
                who = known.cancelled_by if known is not None and job.state == "cancelled" else ""
                self._known[job_id] = replace(placed(job, self._places.get(job_id)), cancelled_by=who)
                if not self._lacks_who(job_id):
                    self._searches.pop(job_id, None)
        gone = [one for one in wanted if self._lacks_who(one) or (one not in found and self._is_open(one))]
        due = [one for one in gone if now >= self._searches.setdefault(one, _Search()).next_at]
        if due:
            self._take_accounting(due, now)

    def _take_accounting(self, job_ids: Sequence[str], now: float) -> None:
        known = [self._known[one].submitted_at for one in job_ids if one in self._known]
        since = min(known) if len(known) == len(job_ids) else now - LONGEST_AGO_S
        answers: dict[str, JobSnapshot] = {}
        # it may be absent or away; what the queue said stands without it
        with contextlib.suppress(ClusterError):
            arrays = {base_id(one) for one in job_ids if "_" in one}  # of tasks that ended before they began
            answers = by_id([job for _, job in self._client.accounting(since, [*job_ids, *sorted(arrays)])])
            answers |= waiting_among(answers, job_ids)
        for one in job_ids:
            search = self._searches[one]
            search.tries += 1
            search.next_at = now + accounting_delay_s(search.tries)
            self._settle(one, answers.get(one))

    def _settle(self, job_id: str, found: JobSnapshot | None) -> None:
        known = self._known.get(job_id)
        if found is not None and found.has_ended and (known is None or is_same_job(known, found)):
            self._known[job_id] = found
            del self._searches[job_id]
        elif known is not None and not known.has_ended:
            # it does not run, for the queue has it no more, and nobody says that it ended
            self._known[job_id] = placed(replace(known, state="unknown", reason=""), None)

    def _take_places(self, wanted: Sequence[str], now: float) -> bool:
        """Look at the places in the queue where that is due and somebody cares; returns whether it was asked."""
        waiting = [job for one in wanted if (job := self._known.get(one)) is not None and job.state == "pending"]
        if not waiting or not self.is_watched or 0 <= now - self._places_at < PLACES_S:
            return False
        self._places_at = now
        # what the queue said of the jobs themselves stands without it
        with contextlib.suppress(ClusterError):
            self._places = self._client.pending([job.partition for job in waiting])
        for job in waiting:
            self._known[job.job_id] = placed(job, self._places.get(job.job_id))
        return True
