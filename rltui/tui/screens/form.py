"""Every key of a layout as a form, opened from Launch: what is set here are the same overrides."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rltui.layout.diff import setting_text
from rltui.layout.fields import value_problem
from rltui.layout.presets import resolve
from rltui.tui import keys, messages
from rltui.tui.overrides import with_override
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.widgets.form_pane import WIDEST_VALUE, FormPane

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.widget import Widget

    from rltui.tui.keys import KeyContext
    from rltui.tui.messages import CockpitMessage


def _needs_set(context: KeyContext) -> str:
    return "" if context.has_overrides else "this key is as the file has it"


KEYS = keys.KeyTable(
    (
        keys.KeyGroup(
            "the keys of a layout",
            (
                keys.Key("edit", ("enter",), "edit", "Edit the value; the schema judges it as you type.", 1),
                keys.Key("drop", ("d",), "take back", "Take back what was set.", 2, _needs_set),
                keys.Key("filter", ("/",), "filter", "Show only keys with these words; set: those that are set.", 3),
                keys.Key("copy", ("y",), "copy", "Copy all that is set, as words of a command."),
            ),
        ),
        keys.LIST,
        keys.EVERYWHERE,
    ),
    back="to launch",
)


class FormScreen(CockpitScreen):
    """The keys of one layout.

    Args:
        preset: The layout, by name or path.
        overrides: What is set already.
        changed: Is told all that is set whenever that changes.
    """

    KEYS: ClassVar[keys.KeyTable] = KEYS

    def __init__(self, preset: str, overrides: tuple[str, ...], changed: Callable[[tuple[str, ...]], None]) -> None:
        super().__init__()
        self.pane = FormPane(id="form")
        self.overrides = overrides
        self._preset = preset
        self._changed = changed
        self._key = ""
        """The key whose value is being typed."""

    def body(self) -> Sequence[Widget]:
        """The keys."""
        return [self.pane]

    def on_mount(self) -> None:
        """Ask for the keys."""
        super().on_mount()
        self._read()

    def _read(self) -> None:
        self.cockpit.controller.ask_fields(self._preset, self.overrides)

    def receive(self, message: CockpitMessage) -> None:
        """Take the keys as they are with what is set now."""
        if isinstance(message, messages.FieldsRead) and message.overrides == self.overrides:
            self.pane.show(message.fields)
            self.tick()

    def crumbs(self) -> Sequence[str]:
        """Where you are."""
        return ["launch", self._preset]

    def key_context(self) -> KeyContext:
        """Whether the key under the cursor is set."""
        one = self.pane.selected
        return keys.KeyContext(readonly=self.cockpit.readonly, has_overrides=one is not None and one.is_set)

    def mover(self) -> FormPane:
        """The keys."""
        return self.pane

    def moved(self) -> None:
        """Another key is under the cursor."""
        self.tick()

    def on_line_opened(self) -> None:
        """A double click edits."""
        self.do_edit()

    def do_edit(self) -> None:
        """Type another value."""
        one = self.pane.selected
        if one is not None:
            self._key = one.key
            text = "" if one.value in (None, "", []) else setting_text(one.value, WIDEST_VALUE)
            self.prompting.ask("value", one.key, text, one.takes)

    def do_drop(self) -> None:
        """Take back what was set for the key under the cursor."""
        one = self.pane.selected
        if one is not None:
            kept = tuple(word for word in self.overrides if not _is_of(word, one.key))
            self._set(kept)

    def do_filter(self) -> None:
        """Type a filter."""
        self.prompting.ask("filter", "/", self.pane.words, hint="words of key, value or meaning; set")

    def do_copy(self) -> None:
        """Copy what is set."""
        self.cockpit.copy(" ".join(self.overrides), "overrides")

    def do_escape(self) -> None:
        """Clear the filter, else go back."""
        if self.pane.words:
            self.pane.narrow("")
        else:
            self.do_back()

    def typed(self, purpose: str, text: str) -> None:
        """Filter, and judge a value, while typing."""
        if purpose == "filter":
            self.pane.narrow(text)
        elif self.prompt is not None:
            self.pane.complain(self._problem(text))

    def answer(self, purpose: str, text: str) -> str:
        """Set the value; one that the schema refuses stays in the prompt."""
        if purpose != "value":
            return ""
        problem = self._problem(text)
        if not problem:
            self.pane.complain("")
            self._set(with_override(self.overrides, f"{self._key}={text.strip()}"))
        return problem

    def left(self, purpose: str) -> None:
        """A value is left as it was; a filter is cleared."""
        self.pane.complain("")
        if purpose == "filter":
            self.pane.narrow("")

    def _problem(self, text: str) -> str:
        return value_problem(resolve(self._preset), self.overrides, self._key, text.strip())

    def _set(self, overrides: tuple[str, ...]) -> None:
        self.overrides = overrides
        self._changed(overrides)
        self._read()


def _is_of(word: str, key: str) -> bool:
    """Whether an override sets a key, or the section or an item that it is in."""
    typed = word.partition("=")[0].strip()
    return typed == key or key.startswith(f"{typed}.") or typed.startswith(f"{key}[")
