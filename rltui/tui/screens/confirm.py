"""The confirmation of an action: what it would do, to which run, by which commands. The default is No."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partialmethod
from operator import attrgetter
from typing import ClassVar, Literal

from textual.containers import Container
from typing_extensions import override

from rltui.service.cockpit import ActionPreview, Ask
from rltui.tui.glyphs import Glyphs
from rltui.tui.keys import Key, KeyContext, KeyTable, dialog_keys, needs, what_is_wrong
from rltui.tui.screens.keyed import BoxScreen, KeyedScreen
from rltui.tui.spans import BLANK, Line, Role, Span, line, rule, wrapped
from rltui.tui.views.launch import finding_lines
from rltui.tui.widgets.list_pane import TextPane
from rltui.tui.widgets.pane import Pane

MAX_WIDTH = 92

Answer = Literal["yes", "no", "edit"]


class _Text(TextPane):
    """What would happen; scrolls where it is longer than the terminal."""

    def __init__(self, preview: ActionPreview) -> None:
        super().__init__(id="confirm-text")
        self._preview = preview
        self.scrolled: Callable[[], None] = lambda: None

    @override
    def make(self, width: int) -> Sequence[Line]:
        return confirm_lines(self._preview, width, self.glyphs)

    def go_to(self, index: int) -> None:
        """Scroll, and tell whoever counts what is left."""
        super().go_to(index)
        self.scrolled()


class _Buttons(Pane):
    """The answers, always in sight."""

    def __init__(self, problem: str, can_edit: bool, text: _Text) -> None:
        super().__init__(id="confirm-buttons")
        self._problem, self._can_edit, self._text = problem, can_edit, text

    def build(self) -> Sequence[Line]:
        return [buttons(self._problem, self._can_edit, self._text.below, self.size.width, self.glyphs)]


_can_edit = needs(attrgetter("can_edit"), "there is nothing to edit in it")

KEYS = dialog_keys(
    "confirm",
    Key("yes", ("y",), "do it", "Do what is shown.", 1, what_is_wrong),
    Key("no", ("n", "escape", "q", "enter"), "no", "Leave everything as it is.", 2),
    Key("edit", ("e",), "edit", "Edit the changes first.", 3, _can_edit, quiet=True),
)


class ConfirmScreen(BoxScreen[Answer], inherit_bindings=False):
    """Asks before an action. Its target is that of the preview, whatever happens to the list behind it."""

    KEYS: ClassVar[KeyTable] = KEYS

    pane: _Text

    def __init__(self, ask: Ask, preview: ActionPreview) -> None:
        super().__init__()
        self.preview = preview
        self._problem = why_not(ask, preview)
        self._can_edit = ask.action not in ("cancel", "auto", "signal") and not ask.others
        self.pane = _Text(preview)
        self._buttons = _Buttons(self._problem, self._can_edit, self.pane)
        self.pane.scrolled = self._buttons.repaint
        self.box = Container(self.pane, self._buttons, id="confirm")

    @override
    def fit(self) -> None:
        width = min(MAX_WIDTH, self.app.size.width - 2)
        self.box.styles.width = width
        self.box.styles.height = min(self.app.size.height, len(self.pane.make(width - 4)) + 6)
        self.call_after_refresh(self._buttons.repaint)

    @override
    def key_context(self) -> KeyContext:
        return KeyContext(problem=self._problem, can_edit=self._can_edit)

    do_yes = partialmethod(KeyedScreen.dismiss, "yes")
    do_no = partialmethod(KeyedScreen.dismiss, "no")
    do_edit = partialmethod(KeyedScreen.dismiss, "edit")


def confirm_lines(preview: ActionPreview, width: int, glyphs: Glyphs) -> list[Line]:
    """The text of the confirmation."""
    lines = [*wrapped(preview.title, width, " ", "title"), BLANK]
    for sentence in preview.consequences:
        lines += wrapped(sentence, width, f" {glyphs.dot} ", "text")
    if preview.diff:
        lines += [BLANK, rule([("what changes", "dim")], [], width, glyphs), *_diff(preview.diff, width)]
    if preview.findings:
        lines += [BLANK, rule([("what a check says", "dim")], [], width, glyphs)]
        lines += finding_lines(preview.findings, width, glyphs)
    if preview.commands:
        lines += [BLANK, rule([("what will run", "dim")], [], width, glyphs)]
        for command in preview.commands:
            lines += wrapped(command, width, "   ", "accent")
    return lines


def _diff(rows: Sequence[str], width: int) -> list[Line]:
    lines: list[Line] = []
    for row in rows:
        role: Role = "ok" if row.startswith("+") else "bad" if row.startswith("-") else "text"
        lines += wrapped(row[1:].lstrip(), width, "", role, mark=(f"   {row[:1]} ", role))
    return lines


def why_not(ask: Ask, preview: ActionPreview) -> str:
    """Why what is shown cannot be done; empty where it can."""
    if any(finding.severity == "error" for finding in preview.findings):
        return "errors stand in the way: e edits the changes"
    if ask.action == "lower_memory" and not preview.overrides:
        return "there is nothing to change that would help"
    return ""


def buttons(problem: str, can_edit: bool, below: int, width: int, glyphs: Glyphs) -> Line:
    """The answers; the default is No. Nobody is to answer without knowing that there are ``below`` lines more."""
    gap = " " * (4 if width >= 50 or not below else 1)
    more = f" {glyphs.down} {below} more" if width >= 50 else f"{glyphs.down}{below}"
    spans: list[Span] = [(f"{more}{gap[1:]}", "attention")] if below else []
    spans += [(" y ", "off" if problem else "key"), ("do it", "off" if problem else "text")]
    spans += [(f"{gap}n ", "key"), ("no", "text"), (" (default)", "dim")]
    if can_edit:
        spans += [(f"{gap}e ", "key"), ("edit", "text")]
    return line(*spans)
