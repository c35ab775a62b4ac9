"""`!`: why a run died or stands still, with evidence to jump to and remedies to apply."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rltui.service.cockpit import Action, Ask, WhyReport
from rltui.tui import messages
from rltui.tui.keys import Key, KeyContext, KeyTable, key_table, may_change, needs
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import Line, line, wrapped
from rltui.tui.views import stage
from rltui.tui.views import why as view
from rltui.tui.widgets.list_pane import MadePane

if TYPE_CHECKING:
    from rltui.diagnose.verdicts import Remedy
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.screens.run import RunScreen
    from rltui.tui.spans import Span
    from rltui.watch.snapshots import RunIdentity


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
    """Why a run died, or what is wrong with it, and what helps."""

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "open"

    pane: WhyPane

    def __init__(self, run: RunIdentity) -> None:
        super().__init__(run)
        self.identity: RunIdentity = run
        self.pane = WhyPane(id="why")
        self._asked_of = ("", 0)

    def on_mount(self) -> None:
        """Show what is known, and read the logs again."""
        super().on_mount()
        known = self.cockpit.pictures.why(self.identity)
        if known is not None:
            self.pane.show(known)
        self._ask()

    def _ask(self) -> None:
        self._asked_of = self._run_is()
        self.cockpit.controller.ask_why(self.identity)

    def _run_is(self) -> tuple[str, int]:
        """State and attempt: what is said of one is wrong of the next."""
        run = self.cockpit.pictures.summary(self.identity)
        return (run.state, run.attempt) if run is not None else self._asked_of

    def receive(self, message: CockpitMessage) -> None:
        """Take the report of this run, or that there is none; ask again once the run has begun, ended or gone on."""
        if isinstance(message, messages.RunsFetched | messages.RunFetched) and self._run_is() != self._asked_of:
            self._ask()
        elif isinstance(message, messages.WhyFetched) and message.report.run == self.identity:
            self.pane.show(message.report)
            self.tick()
        elif isinstance(message, messages.RequestFailed) and message.asked == messages.why_phrase(self.identity):
            self.pane.fail(message.error)

    @override
    def crumbs(self) -> Sequence[str]:
        return [self.identity.run_id, "why"]

    @override
    def state_spans(self) -> Sequence[Span]:
        run = self.cockpit.pictures.summary(self.identity)
        return stage.state_spans(run, self.cockpit.glyphs) if run is not None else ()

    def key_context(self) -> KeyContext:
        """The line under the cursor decides."""
        row = self.pane.selected
        return KeyContext(readonly=self.cockpit.readonly, can_open=row is not None and row.can_open)

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
            self._run_screen().logs.open_line(name, at)

    def _run_screen(self) -> RunScreen:
        """The run's own screen instead of this one, or over it if it is not the one below."""
        from rltui.tui.screens.run import RunScreen

        below = self.app.screen_stack[-2] if len(self.app.screen_stack) > 1 else None
        if isinstance(below, RunScreen) and below.identity == self.identity:
            self.app.pop_screen()
            return below
        pictures = self.cockpit.pictures
        opened = RunScreen(self.identity, pictures.summary(self.identity), pictures.run(self.identity))
        self.app.push_screen(opened)
        return opened

    def _apply(self, fix: Remedy) -> None:
        if self.cockpit.readonly:
            self.cockpit.say("this cockpit is read-only", "warning")
            return
        action: Action = "exclude" if fix.exclude and not fix.overrides else "edit"
        self.cockpit.ask(Ask(action, self.identity, fix.overrides, fix.exclude))

    def do_fix(self) -> None:
        """Preview one fix for all causes."""
        self.cockpit.ask(Ask("fix", self.identity))

    def do_again(self) -> None:
        """Read the logs anew: the run may have said more meanwhile."""
        self.pane.fail("")
        self._ask()
        self.cockpit.say(f"reading the logs {self.cockpit.glyphs.ellipsis}")

    def do_copy(self) -> None:
        """Copy the line under the cursor."""
        row = self.pane.selected
        self.cockpit.copy(row.line.plain.strip() if row is not None else "", "line")


class WhyPane(MadePane[view.WhyLine]):
    """A report, line by line."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._report: WhyReport | None = None
        self._problem = ""

    def show(self, report: WhyReport) -> None:
        """Show a report; the cursor stays where it was in one that says the same."""
        if report == self._report:
            return
        self._report = report
        self._made = (-1, ())
        rows = self.made
        self.cursor = next((index for index, row in enumerate(rows) if row.can_open), 0)
        self.top = 0
        self.repaint()

    def fail(self, problem: str) -> None:
        """Say why there is no report where there is none; empty while it is asked for again."""
        self._problem = problem
        self.repaint()

    @property
    def report(self) -> WhyReport | None:
        """The report that is shown; None until there is one."""
        return self._report

    @override
    def make(self, width: int) -> Sequence[view.WhyLine]:
        before = self.selected
        made = view.why_lines(self._report, width or 80, self.glyphs) if self._report is not None else ()
        if before is not None:  # another width breaks the lines elsewhere
            self.cursor = _place_of(before, made)
        return made

    @property
    def selected(self) -> view.WhyLine | None:
        """The line under the cursor."""
        lines = self._made[1]
        return lines[self.cursor] if self.cursor < len(lines) else None

    def move(self, rows: int) -> None:
        """To the next line on which the cursor rests; pages go to the nearest."""
        if abs(rows) > 1:
            self.go_to(self.cursor + rows)
            return
        stops = [index for index, row in enumerate(self.made) if row.stop]
        beyond = [index for index in stops if (index - self.cursor) * rows > 0]
        if beyond:
            super().go_to(min(beyond) if rows > 0 else max(beyond))

    def go_to(self, index: int) -> None:
        """To the line on which the cursor rests that is nearest."""
        stops = [number for number, row in enumerate(self.made) if row.stop]
        if stops:
            super().go_to(min(stops, key=lambda number: abs(number - index)))

    def build(self) -> Sequence[Line]:
        """From the top, where the first stop can be seen from there: what stands above it is its headline."""
        if self.cursor < self.size.height and self.cursor <= next(
            (index for index, row in enumerate(self.made) if row.can_open), 0
        ):
            self.top = 0
        return super().build()

    @override
    def row(self, index: int) -> Line:
        row = self.made[index].line
        if not self.is_selected(index):
            return row
        spans = row.spans
        if spans and spans[0][0].startswith(" "):
            spans = ((self.glyphs.cursor, "accent"), (spans[0][0][1:], spans[0][1]), *spans[1:])
        return Line(spans, selected=True)

    def empty(self) -> Sequence[Line]:
        """What stands there while the logs are read, or why they could not be."""
        if self._problem:
            return wrapped(f"{self._problem}  r tries again", self.size.width, " ", "attention")
        return [line((f" reading the logs {self.glyphs.ellipsis}", "dim"))]


def _place_of(before: view.WhyLine, lines: Sequence[view.WhyLine]) -> int:
    same = [
        index
        for index, row in enumerate(lines)
        if (row.finding, row.evidence, row.fix, row.stop) == (before.finding, before.evidence, before.fix, before.stop)
    ]
    return same[0] if same else 0
