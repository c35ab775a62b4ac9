"""The only file of the cockpit that calls services: every call runs in a thread, every answer is a message.

Threads that call at the same time: one for the list of runs, one for the watched run, one for reviews and previews,
one for actions. A newer review replaces one that waits; actions are all done, in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.errors import RltuiError
from rltui.tui import messages
from rltui.tui.lanes import Lane, Poller, timed
from rltui.tui.refresh import MAX_FAILURE_S, refresh_interval_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message import Message

    from rltui.service.cockpit import Cockpit
    from rltui.tui.messages import Action
    from rltui.tui.refresh import Source


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

    def __init__(self, cockpit: Cockpit, post: Callable[[Message], object]) -> None:
        self._cockpit = cockpit
        self._post_message = post
        self._open = False
        self._failures: dict[Source, int] = {"runs": 0, "peek": 0, "run": 0}
        self._stopped = False
        self._runs = Poller("rltui-runs", self._read_runs)
        self._run = Poller("rltui-run", self._read_run, needs_target=True)
        self._questions = Lane("rltui-questions", newest_only=True)
        self._actions = Lane("rltui-actions", newest_only=False)
        self.periods: dict[Source, float] = {"runs": MAX_FAILURE_S, "peek": MAX_FAILURE_S, "run": MAX_FAILURE_S}
        """Seconds between the latest reads of each source, for judging the age of what is shown."""

    def start(self) -> None:
        """Begin to read."""
        self._runs.start()
        self._run.start()

    def stop(self) -> None:
        """Read no more, and say no more. Runs go on, and so does an action under way."""
        self._stopped = True
        self._runs.stop()
        self._run.stop()

    def watch_run(self, run_id: str, is_open: bool) -> None:
        """Read this run from now on; an open one more often than one under the cursor. Empty: none."""
        if self._open != is_open and run_id:
            self._run.hurry()
        self._open = is_open
        self._run.aim(run_id)

    def refresh(self) -> None:
        """Read everything again at once."""
        self._runs.hurry()
        self._run.hurry()

    @property
    def acting(self) -> bool:
        """Whether an action is under way."""
        return self._actions.busy

    def ask_presets(self) -> None:
        """Ask for the presets: :class:`~rltui.tui.messages.PresetsFetched`."""
        self._ask("list the presets", lambda: messages.PresetsFetched(self._cockpit.presets()))

    def ask_review(self, preset: str, overrides: tuple[str, ...]) -> None:
        """Ask what a launch would do: :class:`~rltui.tui.messages.ReviewFetched`."""
        self._ask(f"check {preset}", lambda: messages.ReviewFetched(self._cockpit.review(preset, overrides)))

    def ask_preview(self, action: Action, run_id: str) -> None:
        """Ask what an action would do: :class:`~rltui.tui.messages.PreviewFetched`."""
        preview = self._cockpit.preview_cancel if action == "cancel" else self._cockpit.preview_resubmit
        self._ask(f"{action} {run_id}", lambda: messages.PreviewFetched(action, preview(run_id)))

    def act(self, action: Action, run_id: str) -> None:
        """Carry out an action: :class:`~rltui.tui.messages.ActionDone`."""
        call = self._cockpit.cancel if action == "cancel" else self._cockpit.resubmit
        self._act(f"{action} {run_id}", lambda: messages.ActionDone(action, run_id, call(run_id)))

    def launch(self, preset: str, overrides: tuple[str, ...]) -> None:
        """Launch: :class:`~rltui.tui.messages.Launched`."""
        self._act(f"launch {preset}", lambda: messages.Launched(self._cockpit.launch(preset, overrides)))

    def _ask(self, asked: str, call: Callable[[], Message]) -> None:
        self._questions.ask(lambda: self._answer(asked, call))

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

    def _read_runs(self, _: str) -> float:
        took = timed()
        try:
            snapshot = self._cockpit.runs()
        except Exception as error:  # noqa: BLE001 the edge of a thread: polling must go on
            return self._failed("runs", "", error, took())
        self._post(messages.RunsFetched(snapshot))
        return self._fetched("runs", any(run.is_live for run in snapshot.runs), took())

    def _read_run(self, run_id: str) -> float:
        took = timed()
        source: Source = "run" if self._open else "peek"
        try:
            snapshot = self._cockpit.watch(run_id)
        except Exception as error:  # noqa: BLE001 the edge of a thread: polling must go on
            return self._failed(source, run_id, error, took())
        self._post(messages.RunFetched(snapshot))
        return self._fetched(source, snapshot.summary.is_live, took())

    def _fetched(self, source: Source, live: bool, took_s: float) -> float:
        self._failures[source] = 0
        pause_s = refresh_interval_s(source, live, 0, took_s)
        self.periods[source] = pause_s + took_s
        return pause_s

    def _failed(self, source: Source, run_id: str, error: Exception, took_s: float) -> float:
        self._failures[source] += 1
        if self._failures[source] == 1:
            self._post(messages.FetchFailed(source, run_id, *failure(error)))
        return refresh_interval_s(source, True, self._failures[source], took_s)

    def _post(self, message: Message) -> None:
        if self._stopped:
            return
        try:
            self._post_message(message)
        except RuntimeError:
            # The event loop can close between the question and the call; nobody is left to tell.
            if not self._stopped:
                raise
