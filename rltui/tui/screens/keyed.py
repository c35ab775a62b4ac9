"""How a key becomes an action, on every screen alike."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod
from typing import ClassVar, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Key
from textual.screen import Screen, ScreenResultType

from rltui.tui import own_keys
from rltui.tui.host import Host
from rltui.tui.keys import KeyContext, KeyTable
from rltui.tui.widgets.list_pane import ListPane


class KeyedScreen(Screen[ScreenResultType], inherit_bindings=False):
    """A screen with a table of keys: each calls ``do_<id>`` of the list in sight, of the screen, or of a part of it.

    Keys are taken here and not by Textual's bindings: those are carried out by the application after a round through
    two queues, so that of keys typed fast the second could be taken by a screen or a prompt that the first one left.
    """

    KEYS: ClassVar[KeyTable]
    OPENS: ClassVar[str] = ""
    """Id of the key that a double click stands for; empty: it only selects."""

    parts: tuple[object, ...] = ()
    """What else knows what keys do: small objects, made by the screen."""

    AUTO_FOCUS: ClassVar[str | None] = ""

    pane: ListPane | None = None
    """The list that the keys are for, where it is always the same one."""

    def __init__(self) -> None:
        super().__init__()
        self.bound = own_keys.bound(type(self).__module__.rpartition(".")[2], self.KEYS)
        """The table with the user's own keys."""

    @property
    def cockpit(self) -> Host:
        """The application as screens know it."""
        return cast("Host", self.app)

    @property
    def on_top(self) -> bool:
        """Whether this is the screen that takes the keys; Textual's ``is_current`` counts screens below as well."""
        return self.app.screen is self

    def on_key(self, event: Key) -> None:
        """Do what the key stands for; a key that came too late goes to the screen that is there now."""
        if not self.on_top:
            event.stop()
            event.prevent_default()
            self.app.post_message(Key(event.key, event.character))
        elif self.takes(event):
            event.stop()
            event.prevent_default()

    def takes(self, event: Key) -> bool:
        """Act on a key of the table; whether it was one."""
        key = self.bound.pressed(event.key, event.character)
        if key is not None:
            self.act(key.id)
        return key is not None

    def act(self, key_id: str) -> None:
        """Do what a key of the table stands for, or say why it cannot be done."""
        self.cockpit.forget_question()
        reason = self.bound.find(key_id).off(self.key_context())
        if reason:
            self.cockpit.say(reason, "warning")
            return
        if key_id == "escape":
            self.cockpit.hush()
        name = f"do_{key_id}"
        doers = (self.mover(), self, *self.parts)
        do: Callable[[], None] = getattr(next(doer for doer in doers if hasattr(doer, name)), name)
        do()
        self.tick()

    def key_context(self) -> KeyContext:
        """What decides which keys can act."""
        return KeyContext(readonly=self.cockpit.readonly)

    def tick(self) -> None:
        """Bring up to date what depends on the time or on the last key."""

    def mover(self) -> ListPane | None:
        """The list that the moving keys move."""
        return self.pane

    def pager(self) -> ListPane | None:
        """The list that the page keys move."""
        return self.mover()

    def moved(self) -> None:
        """The cursor is on another row; what depends on it is painted in the same frame."""

    def on_cursor_moved(self) -> None:
        """The mouse has moved a cursor."""
        self.moved()

    def on_line_opened(self) -> None:
        """A line was clicked twice."""
        self.moved()
        if self.OPENS:
            self.act(self.OPENS)

    def _move_list(self, step: Callable[[ListPane], None], is_page: bool = False) -> None:
        pane = self.pager() if is_page else self.mover()
        if pane is None:
            return
        before = pane.cursor
        step(pane)
        if pane.cursor != before:
            self.moved()

    do_down = partialmethod(_move_list, lambda pane: pane.move(1))
    do_up = partialmethod(_move_list, lambda pane: pane.move(-1))
    do_first = partialmethod(_move_list, lambda pane: pane.go_to(0))
    do_last = partialmethod(_move_list, lambda pane: pane.go_to_end())
    do_page_down = partialmethod(_move_list, lambda pane: pane.page(1), is_page=True)
    do_page_up = partialmethod(_move_list, lambda pane: pane.page(-1), is_page=True)


class BoxScreen(KeyedScreen[ScreenResultType], inherit_bindings=False):
    """A dialog: a box over the screen, as large as what it shows."""

    box: Container

    def compose(self) -> ComposeResult:
        """Only the box."""
        yield self.box

    def on_mount(self) -> None:
        """Give the box its size."""
        self.fit()

    def on_resize(self) -> None:
        """Give the box its size in the new terminal."""
        self.fit()

    def fit(self) -> None:
        """Give the box the size that its lines take, as far as the terminal has it."""
