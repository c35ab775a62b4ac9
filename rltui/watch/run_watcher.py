"""Everything about one run, again and again, at the cost of what is new."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from rltui.cluster.relay_client import RelayClient
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import rundir
from rltui.watch.actors import ActorsReader
from rltui.watch.attempt_logs import AttemptLogs
from rltui.watch.endpoint import Throttle
from rltui.watch.events import EventsReader
from rltui.watch.history import StepTime, run_history
from rltui.watch.hosts import HostsReader
from rltui.watch.lines import follow
from rltui.watch.metrics import MetricsReader
from rltui.watch.notes import ActorsNote, NotesReader
from rltui.watch.owners import patterns_of
from rltui.watch.phases import PREFIX
from rltui.watch.run_facts import ATTEMPT_FILES, ENDPOINT_FILES, RUN_FILES, AttemptFacts, RunFacts, run_facts, summarise
from rltui.watch.runs import RATES, supervisors_alive, told_of, with_metrics
from rltui.watch.silence import LastMetrics
from rltui.watch.small_files import SmallFiles
from rltui.watch.snapshots import MetricsSnapshot, RunHistory, RunSnapshot, RunSummary, StatusSnapshot
from rltui.watch.status import read_status

HISTORY = 60
HISTORY_EVERY_S = 5.0
"""How often the history of a run that lives is made anew where no step has come."""


class AttemptSources:
    """The sources of one attempt; another attempt has others.

    Args:
        client: The relay of the cluster.
        path: The attempt's directory.
        clock: Monotonic seconds.
    """

    def __init__(self, client: RelayClient, path: str, clock: Callable[[], float]) -> None:
        self.hosts = HostsReader(client, path, clock)
        self.logs = AttemptLogs(client, path, clock)
        self.notes = NotesReader(client, path)
        self._asked = ActorsReader(client, clock)
        self._asked_status = StatusSnapshot()
        self._client = client
        self._clock = clock
        self._relay_host = ""
        # the servers of a colleague's run are not ours to ask: his file may name any address
        self._near = dict.fromkeys(("actors", "status"), not client.owner_of(path))
        self._actors_throttle = Throttle()
        self._status_throttle = Throttle()

    @property
    def actors(self) -> ActorsNote:
        """What Ray last said, or what was noted of it where it is out of reach."""
        return ActorsNote(self._asked.actors, self._asked.problem) if self._near["actors"] else self.notes.actors

    @property
    def status(self) -> StatusSnapshot:
        """The same of the trainer."""
        return self._asked_status if self._near["status"] else self.notes.status

    def ask_servers(self, attempt: AttemptFacts) -> None:
        """Ask the attempt's servers that are known and may be asked again; read what was noted of those elsewhere."""
        if not self._is_near(attempt):
            self.notes.read()
        now = self._clock()
        if attempt.dashboard is not None and self._near["actors"] and self._actors_throttle.is_due(now):
            self._asked.read(attempt.dashboard)
            self._actors_throttle.asked(self._clock(), bool(self._asked.problem))
        if attempt.status is not None and self._near["status"] and self._status_throttle.is_due(now):
            self._asked_status = read_status(self._client, attempt.status, self._asked_status)
            self._status_throttle.asked(self._clock(), bool(self._asked_status.problem))

    def read_last_notes(self, attempt: AttemptFacts) -> None:
        """Read what was noted last of servers that have ended."""
        if not self._is_near(attempt) and not self.notes.actors.at:
            self.notes.read()

    def _is_near(self, attempt: AttemptFacts) -> bool:
        """Whether the relay can ask all servers itself: they listen on the loopback of their own node."""
        for name, endpoint in (("actors", attempt.dashboard), ("status", attempt.status)):
            if endpoint is not None and endpoint.host:
                self._relay_host = self._relay_host or self._client.hello().host
                self._near[name] = endpoint.is_on(self._relay_host)
        return all(self._near.values())


class RunWatcher:
    """Watches one run; for one thread at a time.

    Args:
        client: The relay of the cluster.
        run_path: The run's directory.
        clock: Monotonic seconds.

    Attributes:
        newest: What the files of the attempt that the run is at said last.
    """

    def __init__(self, client: RelayClient, run_path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._path = run_path.rstrip("/")
        self._run_id = self._path.rpartition("/")[2]
        self._clock = clock
        endpoints = () if client.owner_of(run_path) else ENDPOINT_FILES
        names = [*RUN_FILES, *(f"attempts/*/{name}" for name in (*ATTEMPT_FILES, *endpoints))]
        self._files = SmallFiles(client, self._path, names)
        self._metrics = MetricsReader(self._path)
        self._events = EventsReader(self._path)
        self.newest = AttemptFacts(number=0)
        self._attempt = -1
        self._log = ""
        self._sources = self._open(0)
        self._last: RunSnapshot | None = None
        self._told: tuple[object, RunHistory] = (None, RunHistory())

    @property
    def step_times(self) -> Mapping[int, Mapping[int, StepTime]]:
        """When the steps that were read so far ended, by attempt and step."""
        return self._metrics.step_times.by_attempt

    def mean_seconds(self) -> dict[str, float]:
        """Seconds of a step that each ``time/…`` metric took, the means of all steps that were read so far."""
        return self._metrics.means(PREFIX)

    def whole(self, log: str = "") -> RunSnapshot:
        """A picture with all steps and events of all attempts, however long that takes to read.

        Args:
            log: As in ``snapshot``.

        Raises:
            ClusterError: The cluster was away from the start.
            RltuiError: There is no such run.
        """
        picture = self.snapshot(log)
        while (self._metrics.lines.behind or self._events.lines.behind) and not picture.problem:
            picture = self.snapshot(log)
        return picture

    def every_step(self) -> MetricsSnapshot:
        """The metrics of all steps of all attempts, for what is computed from them; those of pictures are thinned.

        Raises:
            ClusterError: The cluster was away from the start.
            RltuiError: There is no such run.
        """
        self.whole()
        return self._metrics.every_step()

    def snapshot(self, log: str = "") -> RunSnapshot:
        """A fresh picture of the run; a source that fails says so in its ``problem``.

        Args:
            log: Which of its logs is wanted, as in ``LogSnapshot``.

        Raises:
            ClusterError: The cluster was away from the start; later, the last picture is given with the ``problem``.
            RltuiError: There is no such run.
        """
        self._log = log
        try:
            self._last = self._take()
        except ClusterError as error:
            if self._last is None:
                raise
            self._last = msgspec.structs.replace(self._last, problem=error.message)
        return self._last

    def _take(self) -> RunSnapshot:
        facts, supervisor_alive = self._facts()
        summary = summarise(facts, self._path, supervisor_alive)
        self.newest = facts.newest
        if facts.newest.number != self._attempt:
            self._attempt = facts.newest.number
            self._sources = self._open(self._attempt)
        problem = self._read_files(facts.in_order) if facts.attempts else ""
        if summary.is_live:
            self._sources.ask_servers(facts.newest)
        else:
            self._sources.read_last_notes(facts.newest)
        return self._picture(facts, summary, problem)

    def _picture(self, facts: RunFacts, summary: RunSummary, problem: str) -> RunSnapshot:
        sources, metrics = self._sources, self._metrics.snapshot()
        patterns_of(summary.algorithm)  # reads the dialect in this thread, so that no screen waits for a file
        said = sources.actors
        # the servers of an attempt that ended are gone, and what they last said is not so any more, but for the dead
        dead = tuple(actor for actor in said.actors if actor.death_cause)
        actors = said.actors if summary.is_live else dead
        if self._last is not None and self._last.actors == actors:
            actors = self._last.actors  # what is shown of thousands is kept as long as they are the same object
        return RunSnapshot(
            summary=with_metrics(summary, _last_of(metrics)),
            hosts=sources.hosts.snapshots(),
            actors=actors,
            actors_problem=said.problem if summary.is_live else "",
            actors_noted_at=said.at if summary.is_live else 0.0,
            status=sources.status if summary.is_live else StatusSnapshot(),
            metrics=metrics,
            log=sources.logs.snapshot(),
            logs=sources.logs.files,
            events=self._events.snapshot(),
            history=self._history(facts, is_live=summary.is_live),
            taken_at=self._files.taken_at,
            problem=problem,
        )

    def _history(self, facts: RunFacts, *, is_live: bool) -> RunHistory:
        times, now = self._metrics.step_times, self._files.taken_at
        key = (times.count, facts, now // HISTORY_EVERY_S if is_live else None)
        if key != self._told[0]:
            self._told = (key, run_history(facts, times.by_attempt, now, is_live=is_live))
        return self._told[1]

    def _facts(self) -> tuple[RunFacts, bool | None]:
        facts = self._read_facts()
        [alive] = supervisors_alive(self._client, [facts])
        if alive is False:
            # a supervisor that ended between the two questions has said how by now
            asked, facts = facts, self._read_facts()
            alive = told_of(facts, asked, alive)
        return facts, alive

    def _read_facts(self) -> RunFacts:
        facts = run_facts(self._run_id, self._files.read())
        if facts is None:
            raise RltuiError(f"There is no run in {self._path}.", "`rltui ps` lists the runs.")
        return facts

    def _read_files(self, attempts: list[int]) -> str:
        """Read on in all files; returns what stands in the way, if anything does."""
        followers = [*self._metrics.lines.newest(self._client, attempts)]
        followers += self._events.lines.newest(self._client, attempts)
        followers += [*self._sources.hosts.followers(), *self._sources.logs.followers(self._log)]
        follow(self._client, followers)
        return next((follower.problem for follower in followers if follower.problem), "")

    def _open(self, attempt: int) -> AttemptSources:
        return AttemptSources(self._client, rundir.attempt_folder(self._path, attempt), self._clock)


def _last_of(metrics: MetricsSnapshot) -> LastMetrics:
    rates = next((metrics.series[name] for name in RATES if name in metrics.series), ())
    return LastMetrics(metrics.latest.get("reward"), tuple(rate for rate in rates if rate == rate)[-HISTORY:])
