"""The cockpit's application: routes messages to screens and carries out what screens ask.

It never waits: services are called by the controller's threads, and whatever they say arrives as a message.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import App
from textual.binding import Binding, BindingType
from textual.filter import ANSIToTruecolor

from rltui.tui import messages, notices, theme
from rltui.tui.controller import Controller
from rltui.tui.glyphs import alphabet
from rltui.tui.notices import Notices
from rltui.tui.pictures import Pictures
from rltui.tui.places import screen_class
from rltui.tui.questions import Questions
from rltui.tui.refresh import TICK_S, attention
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.runs import RunsScreen
from rltui.tui.spans import clean

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.filter import LineFilter
    from textual.screen import Screen

    from rltui.service.cockpit import Ask
    from rltui.service.live_cockpit import LiveCockpit
    from rltui.tui import commands
    from rltui.tui.first_frame import FirstFrame
    from rltui.tui.host import Severity
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.refresh import Source
    from rltui.tui.views.bars import Health
    from rltui.watch.snapshots import RunIdentity

TWICE_WITHIN_S = 2.0
MAX_COPY_CHARS = 100_000


class CockpitApp(App[int], inherit_bindings=False):
    """The cockpit.

    Args:
        cockpit: The services.
        open_run: Run to open at once, by id or the beginning of one.
        readonly: Keys that change something explain themselves and do nothing.
        ascii_only: Draw with ASCII characters only.
        clock: Seconds that only grow, for ages; tests bring their own.
        wall_clock: Epoch seconds, for the age of what a cluster last said.
    """

    CSS_PATH = "app.tcss"
    TITLE = "rltui"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    NOTIFICATION_TIMEOUT = 6
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (70, "-normal"), (160, "-wide")]  # noqa: RUF012 declared by Textual
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", show=False, priority=True, system=True)]

    def __init__(
        self,
        cockpit: LiveCockpit,
        *,
        open_run: str | None = None,
        readonly: bool = False,
        ascii_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        no_colour = "NO_COLOR" in os.environ
        # With native colours Textual's filter for NO_COLOR takes all colour away; without, it would only make greys.
        super().__init__(ansi_color=True if no_colour else None)
        self.glyphs = alphabet(ascii_only)
        self.set_class(self.glyphs.ascii_only, "-ascii")
        self.readonly = readonly
        self.paused = False
        self.launch_cluster = ""
        self.controller = Controller(cockpit, self.post_message)
        self.pictures = Pictures(clock)
        self.first: FirstFrame | None = None
        self.questions = Questions(self)
        self.wall_clock = wall_clock
        self._clock = clock
        self._last_key_s = clock()
        self._open_at_start = open_run
        self._no_colour = no_colour
        self._notices = Notices(self, clock)
        self._interrupted_at = -math.inf

    def get_driver_class(self) -> type[Driver]:
        """Textual's, which sleeps where nobody types."""
        usual = super().get_driver_class()
        if usual.__name__ != "LinuxDriver":
            return usual
        from rltui.tui.driver import PatientDriver

        return PatientDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Only NO_COLOR's: to look in each line for colours that are not the theme's takes an eighth of a refresh."""
        return [one for one in super().get_line_filters() if not isinstance(one, ANSIToTruecolor)]

    def get_default_screen(self) -> Screen[None]:
        """The list of runs is home."""
        return RunsScreen()

    def on_load(self) -> None:
        """Choose the colours before the first frame."""
        theme.begin(self, self._no_colour)
        if self.first is not None:
            self.first.hand_over()

    def on_mount(self) -> None:
        """Begin to read once the first frame stands: what reads takes as long to import as that takes to draw."""
        self.call_after_refresh(self.controller.start)
        self.call_after_refresh(self._notices.tell_of_keys)
        self.set_timer(TICK_S, self._tick)

    def on_unmount(self) -> None:
        """Read no more. Runs go on, and nothing that was confirmed is left undone, also by a signal."""
        self.questions.settle()
        self.controller.stop()

    async def on_event(self, event: events.Event) -> None:
        """A key means that somebody is here."""
        if isinstance(event, events.Key):
            self._last_key_s = self._clock()
            self._attend()
        await super().on_event(event)

    def watch_app_focus(self) -> None:
        """The terminal has the focus, or another window has."""
        self._attend()

    def _attend(self) -> None:
        self.controller.attend(attention(self.app_focus, self._clock() - self._last_key_s))

    def _tick(self) -> None:
        self._attend()
        if (top := self.top) is not None:
            top.tick()
        self.set_timer(TICK_S if top is None else top.tick_s(), self._tick)

    def on_runs_fetched(self, message: messages.RunsFetched) -> None:
        """Keep and show all runs."""
        self.pictures.take_runs(message.snapshot)
        self._show(message)
        if self._open_at_start is not None:
            wanted, self._open_at_start = self._open_at_start, None
            self.obey(shlex.join(("open", wanted)))

    def on_run_fetched(self, message: messages.RunFetched) -> None:
        """Keep and show a run."""
        self.pictures.take_run(message.snapshot)
        self._show(message)

    def _show(self, message: CockpitMessage) -> None:
        """Hand a picture to the screen on top; one below would be drawn for nothing, and takes it when it comes up."""
        if not self.paused and self.top is not None:
            self.top.receive(message)

    def on_clusters_fetched(self, message: messages.ClustersFetched) -> None:
        """Keep and show the clusters."""
        self.pictures.clusters = message.clusters
        self.route(message)

    def on_question_asked(self, message: messages.QuestionAsked) -> None:
        """Show what a cluster asks on the way in; the user has pressed the key for it."""
        from rltui.tui.screens.door import DoorScreen

        self.push_screen(DoorScreen(message.cluster, message.pending.question), message.pending.answer)

    def on_why_fetched(self, message: messages.WhyFetched) -> None:
        """Keep and show a diagnosis."""
        self.pictures.take_why(message.report)
        self.route(message)

    def on_node_report_fetched(self, message: messages.NodeReportFetched) -> None:
        """Copy the report on a node, for a mail to the site's administrators."""
        self.copy(message.text, "report")

    @on(messages.ScreenMessage)
    def route(self, message: CockpitMessage) -> None:
        """Hand a message to every screen; each takes what concerns it."""
        for screen in self.screen_stack:
            if isinstance(screen, CockpitScreen):
                screen.receive(message)

    def on_fetch_failed(self, message: messages.FetchFailed) -> None:
        """Say that a source is away; the age in the header tells how long."""
        self.say(f"{message.error}\n{message.hint}".strip(), "error")

    def on_request_failed(self, message: messages.RequestFailed) -> None:
        """Say what did not work out."""
        self.questions.failed(message.asked)
        self.route(message)
        self.say(f"{message.asked}: {message.error}\n{message.hint}".strip(), "error")

    def on_preview_fetched(self, message: messages.PreviewFetched) -> None:
        """Ask whether to do what the preview shows."""
        self.questions.take(message)

    @on(messages.ActionDone)
    @on(messages.Connected)
    @on(messages.Adopted)
    def on_done(self, message: messages.ActionDone | messages.Connected | messages.Adopted) -> None:
        """Say what was done, or what came of connecting."""
        self.say(message.sentence)
        self.route(message)

    def on_launched(self, message: messages.Launched) -> None:
        """Open the run that was launched, or the list of several, if the launch screen still waits for it."""
        self.say(message.sentence)
        top = self.top
        is_awaited = top is not None and bool(top.launching)
        self.route(message)
        if top is not None and is_awaited:
            top.leave() if len(message.runs) > 1 else self.open_run(message.runs[0])

    def on_happened(self, message: messages.Happened) -> None:
        """Let the terminal tell who looks elsewhere, and tell people beside it."""
        event = message.event
        if self._driver is not None:
            self._driver.write(notices.signal(message.terminal, event.title, event.text))
        if not self.readonly:
            self.controller.tell(event)

    def on_not_told(self, message: messages.NotTold) -> None:
        """Say that somebody was not told."""
        self.say(message.sentence, "warning")

    # --- from place to place

    @property
    def top(self) -> CockpitScreen | None:
        """The screen on top; None under a dialog, and when an answer comes while the cockpit is being closed."""
        screen = self.screen_stack[-1] if self.screen_stack else None
        return screen if isinstance(screen, CockpitScreen) else None

    def open(self, place: str, *args: object) -> None:
        """Open a screen of the table of places, instead of one of the same kind that is on top."""
        kind = screen_class(place)
        if isinstance(self.screen, kind):
            self.pop_screen()
        self.push_screen(kind(*args))  # type: ignore[arg-type]

    def go_home(self) -> None:
        """Go back to the list of runs."""
        while self.top is not None and not isinstance(self.top, RunsScreen):
            self.pop_screen()

    def open_run(self, run: RunIdentity, tab: int = 0) -> None:
        """Open a run at a tab."""
        self.go_home()
        if isinstance(self.top, RunsScreen):
            self.top.table.choose(run)
        self.open("run", run, self.pictures.summary(run), self.pictures.run(run), tab)

    def obey(self, text: str) -> None:
        """Do what was typed behind ``:``."""
        from rltui.tui import verbs

        # what a dialog answers goes to whoever opened it, and the prompt, in whose name this is, is gone by then
        with self._context():
            verbs.obey(self, text)

    def complete(self, text: str) -> commands.Completion:
        """Complete what is typed behind ``:``."""
        from rltui.tui import verbs

        return verbs.complete(self, text)

    def ask(self, ask: Ask) -> None:
        """Ask what an action would do; its confirmation opens when that is known."""
        self.questions.ask(ask)

    def take_back(self) -> None:
        """Forget the fix that was confirmed a moment ago."""
        self.say(self.questions.take_back())

    def forget_question(self) -> None:
        """The user turned to something else than what was asked."""
        self.questions.forget()

    def health(self, source: Source, run: RunIdentity | None = None) -> Health:
        """How fresh the data of a source are."""
        return self.pictures.health(source, self.controller.periods, self.paused, self.readonly, run)

    def say(self, text: str, severity: Severity = "information") -> None:
        """Show a notification, once while it can be read; never as markup."""
        self._notices.say(text, severity)

    def hush(self) -> None:
        """Take the notifications away; what is said again is shown again."""
        self._notices.hush()

    def toggle_pause(self) -> None:
        """Stop drawing, or start again with the newest pictures."""
        self.paused = not self.paused
        if not self.paused and self.top is not None:
            self.top.catch_up()

    def copy(self, text: str, what: str) -> None:
        """Copy to the terminal's clipboard (OSC 52), and say what was copied."""
        text = "\n".join(clean(row) for row in text.splitlines())[:MAX_COPY_CHARS]
        if text:
            self.copy_to_clipboard(text)
            self.say(f"copied the {what}: {text.splitlines()[0][:60]}")

    # --- leaving

    def action_interrupt(self) -> None:
        """Quit where ctrl+c comes twice within a short time; the first one only says so."""
        now = self._clock()
        if now - self._interrupted_at < TWICE_WITHIN_S:
            self.leave()
        else:
            self._interrupted_at = now
            self.say("ctrl+c again within 2 s quits; runs go on", "warning")

    def leave(self) -> None:
        """Quit. Runs go on, and an action under way is finished."""
        self.questions.settle()
        live = self.pictures.num_live
        words = [f"{live} run{'s go' if live > 1 else ' goes'} on without the cockpit."] if live else []
        words += ["Finishing what was under way …"] if self.controller.acting else []
        self.exit(0, message=" ".join(words) or None)


def run_cockpit(
    cockpit: LiveCockpit,
    *,
    open_run: str | None = None,
    readonly: bool = False,
    ascii_only: bool = False,
    first: FirstFrame | None = None,
) -> int:
    """Run the cockpit in this terminal until the user leaves it; runs go on.

    Args:
        cockpit: The services.
        open_run: Run to open at once, by id or the beginning of one.
        readonly: Show everything, change nothing.
        ascii_only: Draw with ASCII characters only.
        first: What stands on the terminal already: the cockpit begins with the same picture.

    Returns:
        The exit code: 0 unless the cockpit itself failed.
    """
    app = CockpitApp(cockpit, open_run=open_run, readonly=readonly, ascii_only=ascii_only)
    if first is not None:
        app.first, app.pictures.runs = first, first.snapshot
    app.run()
    return app.return_code or 0
