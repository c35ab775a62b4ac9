"""How a key becomes an action, on every screen alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.events import Key
from textual.screen import Screen, ScreenResultType

from rltui.tui import keys

if TYPE_CHECKING:
    from rltui.tui.keys import Scope


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
