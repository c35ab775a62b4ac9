"""The only file of the cockpit that calls services: every call runs in a thread, every answer is a message.

Threads that call at the same time: one for the list of runs, one for the watched run, one for a run beside it or
for what takes longer to know of a launch, one for reviews and previews, one for what reads logs, one each for what
searches logs and samples, one for queues of clusters, one for actions, one a verb of the shell that only reads, one
for a cluster that needs somebody, one that tells people. A newer question replaces one that waits, of what is read
one of its kind; actions are all done, in order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from textual.message import Message

from rltui.errors import RltuiError, UsageError
from rltui.service.cockpit import ActionPreview, Ask, ClusterSummary
from rltui.service.run_events import Event, RunEvents
from rltui.service.shell import ShellCommand
from rltui.service.sweep_points import Sweep
from rltui.threads import Poller, RequestThread, timed
from rltui.tui import actions, messages
from rltui.tui.refresh import MAX_FAILURE_S, Attention, Source, refresh_interval_s
from rltui.tui.searches import Searches
from rltui.watch.samples import Sample

if TYPE_CHECKING:
    from rltui.cluster.prompts import PendingQuestion
    from rltui.service.live_cockpit import LiveCockpit
    from rltui.watch.snapshots import RunIdentity


def failure(error: Exception) -> tuple[str, str]:
    """What to tell of an error: its sentence and its next step."""
    if isinstance(error, RltuiError):
        return error.message, error.hint
    return f"{type(error).__name__}: {error}", "this is a fault of rltui itself; please report it"


class Controller:
    """Asks the services on behalf of the screens.

    Args:
        cockpit: The services.
        post: Hands a message to the application; callable from any thread.
    """

    def __init__(self, cockpit: LiveCockpit, post: Callable[[Message], object]) -> None:
        self._cockpit = cockpit
        self._post_message = post
        self._open = False
        self._log = ""
        self._with_gpus = False
        self._attention: Attention = "here"
        self._clusters: tuple[ClusterSummary, ...] = ()
        self._failures: dict[Source, int] = {"runs": 0, "peek": 0, "run": 0}
        self._stopped = False
        self._runs = Poller("rltui-runs", self._read_runs)
        self._run = Poller("rltui-run", self._read_run)
        self._questions = RequestThread("rltui-questions", newest_only=True)
        self._readings = RequestThread("rltui-readings", newest_only=True)
        self._besides = RequestThread("rltui-beside", newest_only=True)
        self._queues = RequestThread("rltui-queues", newest_only=True)
        self.searches = Searches(cockpit, self._post, self._answer)
        self._actions = RequestThread("rltui-actions", newest_only=False)
        self._doors = RequestThread("rltui-doors", newest_only=True)
        self._tellings = RequestThread("rltui-tellings", newest_only=False, may_be_left=True)
        self._events = RunEvents()
        self._connecting = ""
        self.periods: dict[Source, float] = {"runs": MAX_FAILURE_S, "peek": MAX_FAILURE_S, "run": MAX_FAILURE_S}
        """Seconds between the latest reads of each source, for judging the age of what is shown."""

    def start(self) -> None:
        """Begin to read runs, clusters and the open run, in threads of their own."""
        self._runs.start()
        self._run.start()

    def stop(self) -> None:
        """Read no more, and say no more. Runs go on, and so does an action under way."""
        self._stopped = True
        self.searches.end()
        self._runs.stop()
        self._run.stop()

    def watch_run(self, run: RunIdentity | None, is_open: bool) -> None:
        """Read this run from now on; an open one more often than one under the cursor. None: none."""
        if self._open != is_open and run is not None:
            self._run.hurry()
        self._open = is_open
        self._run.aim(run)

    def watch_log(self, name: str) -> None:
        """Read this log of the watched run from now on, as named in ``LogFile``; empty: its own output."""
        if name != self._log:
            self._log = name
            self._run.hurry()

    def attend(self, attention: Attention) -> None:
        """Somebody looks, or does not: read as often as that deserves, and at once when somebody is back."""
        before, self._attention = self._attention, attention
        if attention == "here" and before != "here":
            self.refresh()

    def refresh(self) -> None:
        """Read everything again at once."""
        self._runs.hurry()
        self._run.hurry()

    def want_gpus(self, on: bool) -> None:
        """Let the list tell how busy GPUs are from its next reading on, which begins at once, or no more."""
        if on != self._with_gpus:
            self._with_gpus = on
            self._runs.hurry()

    @property
    def acting(self) -> bool:
        """Whether an action is under way."""
        return self._actions.busy

    def ask_presets(self) -> None:
        """Ask for the presets: :class:`~rltui.tui.messages.PresetsFetched`."""
        self._read("list the presets", lambda: messages.PresetsFetched(self._cockpit.presets()))

    def ask_review(self, preset: str, overrides: tuple[str, ...], cluster: str, sweep: Sweep) -> None:
        """Ask what a launch would do: :class:`~rltui.tui.messages.ReviewFetched`."""
        call = self._cockpit.review
        self._ask(f"check {preset}", lambda: messages.ReviewFetched(call(preset, overrides, cluster, sweep)))

    def ask_outlook(self, preset: str, overrides: tuple[str, ...], cluster: str) -> None:
        """Ask what takes longer to know of a launch: :class:`~rltui.tui.messages.OutlookFetched`."""
        call, asked = self._cockpit.outlook, f"ask {cluster} of {preset}"
        self._on(self._besides, asked, lambda: messages.OutlookFetched(call(preset, overrides, cluster)))

    def ask_fields(self, preset: str, overrides: tuple[str, ...], run: RunIdentity | None = None) -> None:
        """Ask for a layout, or if ``preset`` is empty for that of a run, as a form: ``messages.FieldsRead``."""

        def read() -> messages.FieldsRead:
            path = preset if preset or run is None else self._cockpit.layout_file(run)
            return messages.FieldsRead(path, overrides, self._cockpit.fields(path, overrides))

        self._ask(f"read {run.run_id if run is not None else preset}", read)

    def ask_preview(self, ask: Ask) -> None:
        """Ask what an action would do: :class:`~rltui.tui.messages.PreviewFetched`."""
        self._ask(ask.words, lambda: messages.PreviewFetched(ask, actions.preview(self._cockpit, ask)))

    def ask_why(self, run: RunIdentity) -> None:
        """Ask why a run died or stands still: :class:`~rltui.tui.messages.WhyFetched`."""
        self._read(messages.why_phrase(run), lambda: messages.WhyFetched(self._cockpit.why(run)))

    def ask_log_part(self, run: RunIdentity, name: str, line: int, offset: int | None = None) -> None:
        """Ask for the piece of a log around a line: :class:`~rltui.tui.messages.LogPartFetched`."""
        self._read(
            f"read {name}", lambda: messages.LogPartFetched(run, self._cockpit.log_part(run, name, line, offset))
        )

    def ask_log_piece(self, run: RunIdentity, name: str, place: Mapping[str, int] | None, at: float | None) -> None:
        """Ask for a piece of a log, or of all, around a place: :class:`~rltui.tui.messages.LogPartFetched`."""
        read = self._cockpit.log_piece
        self._read("read the log", lambda: messages.LogPartFetched(run, read(run, name, place, at)))

    def ask_sample(self, run: RunIdentity, sample: Sample, evaluation: bool) -> None:
        """Ask for a sample in full: :class:`~rltui.tui.messages.SampleRead`."""
        self._read("read a sample", lambda: messages.SampleRead(run, self._cockpit.sample(run, sample, evaluation)))

    def ask_beside(self, run: RunIdentity, beside: RunIdentity) -> None:
        """Ask for a run to draw beside another: :class:`~rltui.tui.messages.BesideFetched`."""
        call = self._cockpit.beside
        self._on(self._besides, f"read {beside.run_id}", lambda: messages.BesideFetched(run, call(beside)))

    def ask_wandb(self, run: RunIdentity) -> None:
        """Ask where W&B has a run: :class:`~rltui.tui.messages.WandbFound`."""
        self._read("look for W&B", lambda: messages.WandbFound(run, self._cockpit.wandb(run)))

    def ask_config(self, run: RunIdentity) -> None:
        """Ask for all settings of a run: :class:`~rltui.tui.messages.ConfigRead`."""
        self._read(messages.READ_CONFIG, lambda: messages.ConfigRead(run, self._cockpit.config(run)))

    def ask_node_report(self, run: RunIdentity, node: str) -> None:
        """Ask what is remembered against a node: :class:`~rltui.tui.messages.NodeReportFetched`."""
        self._read(f"report {node}", lambda: messages.NodeReportFetched(self._cockpit.node_report(run, node)))

    def connect(self, cluster: str) -> None:
        """Let the user answer what a cluster asks: :class:`~rltui.tui.messages.Connected` tells what came of it.

        Nothing else ever asks: background reads are refused by the services instead.
        """
        from rltui.cluster.prompts import Door

        if self._connecting == cluster:
            return
        self._connecting = cluster
        door = Door(lambda pending: self._show(messages.QuestionAsked(cluster, pending), pending))

        def request() -> None:
            self._answer(
                f"connect to {cluster}", lambda: messages.Connected(cluster, self._cockpit.connect(cluster, door))
            )
            if self._connecting == cluster:  # not another one, which waits for its turn
                self._connecting = ""
            self.refresh()

        self._doors.ask(request)

    def _show(self, message: Message, pending: PendingQuestion) -> None:
        if self._stopped:
            pending.answer(None)
        self._post(message)

    def act(self, ask: Ask, preview: ActionPreview) -> None:
        """Carry out exactly what was previewed: :class:`~rltui.tui.messages.ActionDone`."""
        self._act(ask.words, lambda: messages.ActionDone(ask, actions.carry_out(self._cockpit, ask, preview)))

    def ask_node_shell(self, run: RunIdentity, node: str) -> None:
        """Ask for a shell where a run is: :class:`~rltui.tui.messages.NodeShellReady`."""
        ask = self._cockpit.node_shell
        self._ask(messages.shell_phrase(run), lambda: messages.NodeShellReady(run, ask(run, node)))

    def launch(self, preset: str, overrides: tuple[str, ...], cluster: str, sweep: Sweep, auto: bool) -> None:
        """Launch, in hands-off mode if ``auto``, or a sweep: :class:`~rltui.tui.messages.Launched`."""
        call, asked = self._cockpit.launch, messages.launch_phrase(preset)
        self._act(asked, lambda: messages.Launched(call(preset, overrides, cluster, sweep, auto)))

    def ask_jobs(self) -> None:
        """Ask for the jobs that are no runs: :class:`~rltui.tui.messages.JobsFetched`."""
        self._read(messages.LIST_JOBS, lambda: messages.JobsFetched(self._cockpit.open_jobs()))

    def ask_queue(self, cluster: str, again: bool = False) -> None:
        """Look at the queue of a cluster, if a look is due: :class:`~rltui.tui.messages.QueueFetched`."""
        call, asked = self._cockpit.queue, f"look at the queue of {cluster}"
        self._on(self._queues, asked, lambda: messages.QueueFetched(call(cluster, again=again)))

    def adopt(self, cluster: str, job_id: str) -> None:
        """Make a run of a job: :class:`~rltui.tui.messages.Adopted`."""
        self._act(f"adopt {job_id}", lambda: messages.Adopted(self._cockpit.adopt(cluster, job_id)))

    def shell(self, words: tuple[str, ...], columns: int, changes: bool) -> ShellCommand:
        """Run a verb of the shell: :class:`~rltui.tui.messages.ShellHeard` tells of what it prints, and of its end.

        One that changes something is an action: done in its turn, and never torn. Others wait for nothing.
        """
        command = ShellCommand(words, columns)

        def call() -> messages.ShellHeard:
            command.run(lambda: self._post(messages.ShellHeard(command)))
            return messages.ShellHeard(command)

        if changes:
            self._act(f"rltui {words[0]}", call)
        else:
            self._on(RequestThread("rltui-shell", newest_only=True), f"rltui {words[0]}", call)
        return command

    def tell(self, event: Event) -> None:
        """Tell people beside this terminal; what did not work is said: :class:`~rltui.tui.messages.NotTold`."""

        def request() -> None:
            try:
                problem = self._cockpit.tell(event)
            except Exception as error:  # noqa: BLE001 the edge of a thread: telling must not end the cockpit
                problem = failure(error)[0]
            if problem:
                self._post(messages.NotTold(f"{event.title}: {problem}"))

        self._tellings.ask(request)

    def _read(self, asked: str, call: Callable[[], Message]) -> None:
        self._on(self._readings, asked, call, kind=asked)

    def _ask(self, asked: str, call: Callable[[], Message]) -> None:
        self._on(self._questions, asked, call)

    def _on(self, thread: RequestThread, asked: str, call: Callable[[], Message], kind: str = "") -> None:
        thread.ask(lambda: self._answer(asked, call), kind)

    def _act(self, asked: str, call: Callable[[], Message]) -> None:
        def request() -> None:
            self._answer(asked, call)
            self.refresh()

        self._actions.ask(request)

    def _answer(self, asked: str, call: Callable[[], Message]) -> None:
        try:
            message = call()
        except Exception as error:  # noqa: BLE001 the edge of a thread: a fault must be shown, not end the thread
            message = messages.RequestFailed(asked, *failure(error))
        self._post(message)

    def _read_runs(self, _: object) -> float:
        took = timed()
        try:
            self._cockpit.want_gpus(on=self._with_gpus)
            snapshot, clusters = self._cockpit.runs(), self._cockpit.clusters()
            self._post(messages.RunsFetched(snapshot))
            for event in self._events.look(snapshot, time.monotonic()):
                self._post(messages.Happened(event, self._cockpit.terminal(event)))
        except Exception as error:  # noqa: BLE001 the edge of a thread: polling must go on
            return self._failed("runs", error, took())
        if clusters != self._clusters:
            self._clusters = clusters
            self._post(messages.ClustersFetched(clusters))
        return self._fetched("runs", any(run.is_live for run in snapshot.runs), took())

    def _read_run(self, run: RunIdentity | None) -> float | None:
        if run is None:
            return None
        took = timed()
        source: Source = "run" if self._open else "peek"
        try:
            snapshot = self._cockpit.watch(run, self._log)
        except Exception as error:  # noqa: BLE001 the edge of a thread: polling must go on
            return self._failed(source, error, took())
        self._post(messages.RunFetched(snapshot))
        return self._fetched(source, snapshot.summary.is_live, took(), len(snapshot.hosts))

    def _fetched(self, source: Source, live: bool, took_s: float, nodes: int = 0) -> float:
        self._failures[source] = 0
        pause_s = refresh_interval_s(source, live, 0, took_s, self._attention, nodes)
        self.periods[source] = pause_s + took_s
        return pause_s

    def _failed(self, source: Source, error: Exception, took_s: float) -> float:
        self._failures[source] += 1
        # the row under the cursor may be one of the list as last seen, whose run was taken away since
        is_gone = source == "peek" and isinstance(error, UsageError)
        if self._failures[source] == 1 and not is_gone:
            self._post(messages.FetchFailed(source, *failure(error)))
        return refresh_interval_s(source, True, self._failures[source], took_s, self._attention)

    def _post(self, message: Message) -> None:
        if self._stopped:
            return
        try:
            self._post_message(message)
        except RuntimeError:
            # The event loop can close between the question and the call; nobody is left to tell.
            if not self._stopped:
                raise
