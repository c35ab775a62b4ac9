"""How a key becomes an action, on every screen alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual.events import Key
from textual.screen import Screen, ScreenResultType

from rltui.tui import keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.tui.app import CockpitApp
    from rltui.tui.keys import Scope
    from rltui.tui.widgets.list_pane import ListPane


class KeyedScreen(Screen[ScreenResultType], inherit_bindings=False):
    """A screen whose keys are those of the table.

    Keys are taken here and not by Textual's bindings: those are carried out by the application after a round through
    two queues, so that of keys typed fast the second could be taken by a screen or a prompt that the first one left.
    """

    SCOPE: ClassVar[Scope]
    AUTO_FOCUS: ClassVar[str | None] = ""

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
        key = keys.pressed(self.SCOPE, event.key, event.character)
        if key is not None:
            self.act(key.id)
        return key is not None

    def act(self, key_id: str) -> None:
        """Do what a key of the table stands for."""
        raise NotImplementedError


class DialogScreen(KeyedScreen[ScreenResultType], inherit_bindings=False):
    """A screen over another one, with one list that the moving keys move."""

    @property
    def pane(self) -> ListPane:
        """The list."""
        raise NotImplementedError

    def key_context(self) -> keys.KeyContext:
        """What decides which keys can act."""
        return keys.KeyContext()

    def act(self, key_id: str) -> None:
        """Do what a key of the table stands for, or say why it cannot be done."""
        reason = keys.find(self.SCOPE, key_id).off(self.key_context())
        if reason:
            cast("CockpitApp", self.app).say(reason, "warning")
            return
        do: Callable[[], None] = getattr(self, f"do_{key_id}")
        do()

    def do_down(self) -> None:
        """A line down."""
        self.pane.move(1)

    def do_up(self) -> None:
        """A line up."""
        self.pane.move(-1)

    def do_page_down(self) -> None:
        """A page down."""
        self.pane.page(1)

    def do_page_up(self) -> None:
        """A page up."""
        self.pane.page(-1)

    def do_first(self) -> None:
        """To the first line."""
        self.pane.go_to(0)

    def do_last(self) -> None:
        """To the last line."""
        self.pane.go_to_end()
