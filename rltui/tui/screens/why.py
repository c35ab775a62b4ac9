"""`!`: why a run died or stands still, with evidence to jump to and remedies to apply."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from rltui.tui import messages
from rltui.tui.keys import Key, KeyContext, KeyTable, key_table, may_change, needs
from rltui.tui.messages import Ask
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.views import stage
from rltui.tui.widgets.why_pane import WhyPane

if TYPE_CHECKING:
    from textual.widget import Widget

    from rltui.service.cockpit import WhyRemedy
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.screens.run import RunScreen
    from rltui.tui.spans import Span

END_FILE = "end.json"
"""What the attempt's end is quoted as: it is no log."""


_leads_somewhere = needs(attrgetter("can_open"), "this line leads nowhere")

KEYS = key_table(
    "why",
    Key("open", ("enter",), "open", "Evidence: go to that line in the log. A remedy: preview it.", 1, _leads_somewhere),
    Key("fix", ("f",), "fix", "Preview one fix for all causes.", 2, may_change),
    Key("again", ("r",), "look again", "Read the logs again.", 3),
    Key("copy", ("y",), "copy", "Copy the line under the cursor.", 4),
)


class WhyScreen(CockpitScreen, inherit_bindings=False):
    """The answer to `!`."""

    KEYS: ClassVar[KeyTable] = KEYS

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.pane = WhyPane(id="why")
        self._asked_of = ("", 0)

    def body(self) -> Sequence[Widget]:
        """The list."""
        return [self.pane]

    def on_mount(self) -> None:
        """Show what is known, and read the logs again."""
        super().on_mount()
        known = self.cockpit.pictures.why(self.run_id)
        if known is not None:
            self.pane.show(known)
        self._ask()

    def _ask(self) -> None:
        self._asked_of = self._run_is()
        self.cockpit.controller.ask_why(self.run_id)

    def _run_is(self) -> tuple[str, int]:
        """State and attempt: what is said of one is wrong of the next."""
        run = self.cockpit.pictures.summary(self.run_id)
        return (run.state, run.attempt) if run is not None else self._asked_of

    def receive(self, message: CockpitMessage) -> None:
        """Take the report of this run, or that there is none; ask again once the run has begun, ended or gone on."""
        if isinstance(message, messages.RunsFetched | messages.RunFetched) and self._run_is() != self._asked_of:
            self._ask()
        elif isinstance(message, messages.WhyFetched) and message.report.run_id == self.run_id:
            self.pane.show(message.report)
            self.tick()
        elif isinstance(message, messages.RequestFailed) and message.asked == messages.why_phrase(self.run_id):
            self.pane.fail(message.error)

    def crumbs(self) -> Sequence[str]:
        """Where you are."""
        return [self.run_id, "why"]

    def state_spans(self) -> Sequence[Span]:
        """State of the run."""
        run = self.cockpit.pictures.summary(self.run_id)
        return stage.state_spans(run, self.cockpit.glyphs) if run is not None else ()

    def mover(self) -> WhyPane:
        """The list."""
        return self.pane

    def key_context(self) -> KeyContext:
        """The line under the cursor decides."""
        row = self.pane.selected
        return KeyContext(readonly=self.cockpit.readonly, can_open=row is not None and row.leads)

    def moved(self) -> None:
        """The footer depends on the line."""
        self.tick()

    def on_line_opened(self) -> None:
        """A double click opens."""
        self.act("open")

    def do_open(self) -> None:
        """Go to the line in the log, or preview the remedy."""
        row = self.pane.selected
        if row is None:
            return
        if row.evidence is not None:
            self._open_evidence(*row.evidence)
        elif row.fix is not None:
            self._apply(row.fix)

    def _open_evidence(self, name: str, at: int) -> None:
        if name == END_FILE:
            self.cockpit.say("this is how the attempt ended, and all that it says")
        else:
            self._run_screen().open_evidence(name, at)

    def _run_screen(self) -> RunScreen:
        """The run's own screen instead of this one, or over it if it is not the one below."""
        from rltui.tui.screens.run import RunScreen

        below = self.app.screen_stack[-2] if len(self.app.screen_stack) > 1 else None
        if isinstance(below, RunScreen) and below.run_id == self.run_id:
            self.app.pop_screen()
            return below
        pictures = self.cockpit.pictures
        opened = RunScreen(self.run_id, pictures.summary(self.run_id), pictures.run(self.run_id))
        self.app.push_screen(opened)
        return opened

    def _apply(self, fix: WhyRemedy) -> None:
        if self.cockpit.readonly:
            self.cockpit.say("this cockpit is read-only", "warning")
            return
        action: messages.Action = "exclude" if fix.exclude and not fix.overrides else "edit"
        self.cockpit.ask(Ask(action, self.run_id, fix.overrides, fix.exclude))

    def do_fix(self) -> None:
        """Preview one fix for all causes."""
        self.cockpit.ask(Ask("fix", self.run_id))

    def do_again(self) -> None:
        """Read the logs again."""
        self.pane.fail("")
        self._ask()
        self.cockpit.say(f"reading the logs {self.cockpit.glyphs.ellipsis}")

    def do_copy(self) -> None:
        """Copy the line under the cursor."""
        row = self.pane.selected
        self.cockpit.copy(row.line.plain.strip() if row is not None else "", "line")
