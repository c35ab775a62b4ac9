"""Every key of a layout as a form, for Launch and for resubmitting: what is set here are the same overrides."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, ClassVar

from typing_extensions import override

from rltui.layout.diff import setting_text
from rltui.layout.fields import Field, value_problem
from rltui.layout.presets import resolve
from rltui.service.cockpit import Ask
from rltui.tui import keys, messages
from rltui.tui.commands import with_override
from rltui.tui.keys import Key, KeyContext, KeyTable
from rltui.tui.messages import CockpitMessage
from rltui.tui.picking import fits
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import Line, Role, clip_start, line, pad, rule, wrapped
from rltui.tui.widgets.list_pane import ItemsPane
from rltui.watch.snapshots import RunIdentity

_needs_set = keys.needs(attrgetter("has_overrides"), "this key is as the file has it")
_needs_changes = keys.first_of(keys.what_is_wrong, keys.may_change)

KEYS = keys.key_table(
    "the keys of a layout",
    Key("edit", ("enter",), "edit", "Edit the value; the schema judges it as you type.", 1),
    Key("drop", ("d",), "take back", "Take back what was set.", 2, _needs_set),
    Key("filter", ("/",), "filter", "Show only keys with these words; set: those that are set.", 3),
    Key("copy", ("y",), "copy", "Copy all that is set, as words of a command."),
    Key(
        "resubmit",
        ("r",),
        "resubmit",
        "Of a run: preview its resubmission with what is set.",
        1,
        _needs_changes,
        quiet=True,
    ),
    back="back",
)


class FormScreen(CockpitScreen):
    """The keys of one layout.

    Args:
        preset: The layout, by name or path; of a run, nothing.
        overrides: What is set already.
        changed: Is told all that is set whenever that changes.
        run: The run that is to be resubmitted; None: a launch.
    """

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "edit"

    pane: FormPane

    def __init__(
        self,
        preset: str,
        overrides: tuple[str, ...],
        changed: Callable[[tuple[str, ...]], None] = lambda _: None,
        run: RunIdentity | None = None,
    ) -> None:
        super().__init__()
        self.pane = FormPane(id="form")
        self.overrides = overrides
        self._preset = preset
        self._changed = changed
        self._run = run
        self._key = self._shown = ""
        """The key whose value is being typed, and the value as it stood there first."""

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self._read()

    def _read(self) -> None:
        self.cockpit.controller.ask_fields(self._preset, self.overrides, self._run)

    def receive(self, message: CockpitMessage) -> None:
        """Take the keys as they are with what is set now."""
        if isinstance(message, messages.FieldsRead) and message.overrides == self.overrides:
            self._preset = message.preset  # of a run: the file in which its layout is here
            self.pane.show(message.fields)
            self.tick()

    @override
    def crumbs(self) -> Sequence[str]:
        return [self._run.run_id, "resubmit with"] if self._run is not None else ["launch", self._preset]

    def key_context(self) -> KeyContext:
        """Whether the key under the cursor is set, and whether there is a resubmission to preview."""
        one, is_run = self.pane.selected, self._run is not None
        problem = "" if is_run and self.overrides else "nothing is set yet" if is_run else "this is for a launch: q"
        is_set = one is not None and one.is_set
        return KeyContext(readonly=self.cockpit.readonly, has_overrides=is_set, problem=problem)

    def do_edit(self) -> None:
        """Open the prompt for another value of the selected key."""
        one = self.pane.selected
        if one is not None:
            self._key, self._shown = one.key, _as_typed(one.value)
            self.prompting.ask("value", one.key, self._shown, one.takes)

    def do_drop(self) -> None:
        """Take back what was set for the key under the cursor."""
        one = self.pane.selected
        if one is not None:
            kept = tuple(word for word in self.overrides if not _is_of(word, one.key))
            self._set(kept)

    def do_resubmit(self) -> None:
        """Go back, and preview the resubmission with what is set."""
        self.do_back()
        if self._run is not None:
            self.cockpit.ask(Ask("edit", self._run, self.overrides))

    def do_filter(self) -> None:
        """Open the prompt for words that a row has to have."""
        self.prompting.ask("filter", "/", self.pane.words, hint="words of key, value or meaning; set")

    def do_copy(self) -> None:
        """Copy the overrides as one types them in a shell."""
        self.cockpit.copy(shlex.join(self.overrides), "overrides")

    def do_escape(self) -> None:
        """Clear the filter, else go back."""
        if self.pane.words:
            self.narrow("")
        else:
            self.do_back()

    def typed(self, purpose: str, text: str) -> None:
        """Judge a value, too, while it is typed."""
        super().typed(purpose, text)
        if purpose == "value" and self.prompt is not None:
            self.pane.complain(self._problem(text))

    def answer(self, purpose: str, text: str) -> str:
        """Set the value; one that the schema refuses stays in the prompt."""
        if purpose != "value":
            return ""
        problem = self._problem(text)
        if not problem and text != self._shown:
            self.pane.complain("")
            self._set(with_override(self.overrides, f"{self._key}={text.strip()}"))
        return problem

    def left(self, purpose: str) -> None:
        """A value is left as it was, too."""
        self.pane.complain("")
        super().left(purpose)

    @override
    def narrow(self, words: str) -> None:
        self.pane.narrow(words)

    def _problem(self, text: str) -> str:
        return value_problem(resolve(self._preset), self.overrides, self._key, text.strip())

    def _set(self, overrides: tuple[str, ...]) -> None:
        self.overrides = overrides
        self._changed(overrides)
        self._read()


def _as_typed(value: Any) -> str:
    """A value as one would type it: all of it, one of several lines as quoted text on one."""
    if value in (None, "", []):
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) and "\n" in value else setting_text(value)


def _is_of(word: str, key: str) -> bool:
    """Whether an override sets a key, or the section or an item that it is in."""
    typed = word.partition("=")[0].strip()
    return typed == key or key.startswith(f"{typed}.") or typed.startswith(f"{key}[")


ABOUT_ROWS = 4
WIDEST_VALUE = 400


class FormPane(ItemsPane["Field"]):
    """All keys of a layout, one a row, with value and meaning."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.all_fields: tuple[Field, ...] = ()
        self.words = ""
        self.problem = ""
        """What is wrong with what is being typed."""

    def show(self, fields: Sequence[Field]) -> None:
        """Show these; the cursor stays on its key."""
        self.all_fields = tuple(fields)
        self.narrow(self.words)

    def narrow(self, words: str) -> None:
        """Show only keys with these words in name, value or meaning; ``set`` alone: those that are set."""
        self.words, is_set = words, words.lower().split() == ["set"]
        self.put([one for one in self.all_fields if (one.is_set if is_set else fits(_text_of(one), words))])

    @override
    def key_of(self, item: Field) -> str:
        return item.key

    def complain(self, problem: str) -> None:
        """Say what is wrong with what is being typed; empty: nothing."""
        self.problem = problem
        self.repaint()

    def head(self) -> Sequence[Line]:
        """How many keys there are, and what the one under the cursor means."""
        width = self.size.width
        changes = sum(one.is_set for one in self.all_fields)
        right = f"{len(self.items)} of {len(self.all_fields)}  {changes} set"
        lines = [rule([("keys", "title"), (f" {self.words}", "match")], [(right, "dim")], width, self.glyphs)]
        about = self._about(width)[:ABOUT_ROWS]
        return [*lines, *about, *[line(("", "dim"))] * (ABOUT_ROWS - len(about)), rule([], [], width, self.glyphs)]

    def _about(self, width: int) -> list[Line]:
        one = self.selected
        if one is None:
            return []
        if self.problem:
            return [line((f" {one.key}", "title")), *wrapped(self.problem, width, " ", "bad")]
        rows = [line((f" {one.key}", "title"), (f"  {one.takes}", "accent"))]
        rows += wrapped(one.about, width, " ", "text") if one.about else []
        was = f"  was {setting_text(one.before, 60)}" if one.is_set else ""
        return [*rows, line((f" {one.origin.rpartition('/')[2]}{was}", "dim"))]

    def row(self, index: int) -> Line:
        """One key with its value and where that comes from."""
        one, width = self.items[index], self.size.width
        key_width = min(max(len(each.key) for each in self.items), max(12, width * 2 // 5))
        origin_width = min(30, width // 3) if width >= 60 else 0
        room = max(4, width - key_width - origin_width - 8)
        mark = self.glyphs.attention if one.is_set else " "
        return line(
            (self.glyphs.cursor if self.is_selected(index) else " ", "accent"),
            (f"{mark} ", "attention"),
            (pad(clip_start(one.key, key_width, self.glyphs.ellipsis), key_width), "text" if one.is_set else "accent"),
            ("  ", "dim"),
            (pad(setting_text(one.value, WIDEST_VALUE), room, ellipsis=self.glyphs.ellipsis), _role(one)),
            ("  " if origin_width else "", "dim"),
            (clip_start(one.origin.rpartition("/")[2], origin_width, self.glyphs.ellipsis), "dim"),
            selected=self.is_selected(index),
        )

    def empty(self) -> Sequence[Line]:
        """What stands there until the keys were read, or where none fits."""
        return [line((" no key is like that" if self.all_fields else f" reading {self.glyphs.ellipsis}", "dim"))]


def _role(one: Field) -> Role:
    return "attention" if one.is_set else "dim" if one.origin == "default" else "title"


def _text_of(one: Field) -> str:
    return f"{one.key} {one.value} {one.about}".lower()
