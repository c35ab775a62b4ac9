"""Keys: what one is, and what the table of them says of a screen. The table itself is ``key_table.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.tui.glyphs import Glyphs

Scope = Literal["everywhere", "list", "runs", "run", "act", "launch", "why", "clusters", "confirm", "pick", "help"]

STACKS: dict[Scope, tuple[Scope, ...]] = {
    "runs": ("runs", "act", "list", "everywhere"),
    "run": ("run", "act", "list", "everywhere"),
    "launch": ("launch", "list", "everywhere"),
    "why": ("why", "list", "everywhere"),
    "clusters": ("clusters", "list", "everywhere"),
    "confirm": ("confirm", "list"),
    "pick": ("pick", "list"),
    "help": ("help", "list"),
}
"""Scopes whose keys work on each screen, its own first."""

SCOPE_TITLES: dict[Scope, str] = {
    "everywhere": "everywhere",
    "list": "moving",
    "runs": "runs",
    "run": "one run",
    "act": "acting on a run, always previewed first",
    "launch": "launch",
    "why": "why",
    "clusters": "clusters",
    "confirm": "confirm",
    "pick": "choosing from a list",
    "help": "help",
}

MAX_HINTS = 9


class KeyContext(NamedTuple):
    """What decides whether a key can act."""

    readonly: bool = False
    run_state: str = ""
    """State of the run that is selected or open; empty where there is none."""
    tab: str = ""
    searching: bool = False
    """Whether a search of the log has hits."""
    can_open: bool = True
    """Whether the line under the cursor leads somewhere."""
    review: Literal["none", "pending", "errors", "ready"] = "none"
    has_overrides: bool = False
    has_fix: bool = False
    num_nodes: int = 0
    """Nodes of the run that are known by name."""
    num_clusters: int = 1
    needs_you: bool = False
    """Whether a cluster waits for somebody to answer it."""
    problem: str = ""
    """Why what is shown cannot be done; empty where it can."""
    can_edit: bool = False
    marking: bool = False
    """Whether lines of the list can be marked."""


def can_always(_: KeyContext) -> str:
    """The reason of a key that can always act: none."""
    return ""


@dataclass(frozen=True)
class Key:
    """One key.

    Attributes:
        id: The screen's method ``do_<id>`` is what it does.
        keys: Characters, or Textual's names of keys that type none; the first one is shown.
        label: One word for the footer.
        help: One sentence for the help page.
        scope: Where it works.
        hint: Place in the footer, 1 first; 0 keeps it out.
        off: Gives the reason why the key cannot act, or an empty string.
        quiet: Leave the key out of the footer while it is off, instead of striking it.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    scope: Scope
    hint: int = 0
    off: Callable[[KeyContext], str] = can_always
    quiet: bool = False


_SHOWN = {"escape": "esc", "pagedown": "pgdn", "pageup": "pgup", "left": "←", "right": "→"}


class Hint(NamedTuple):
    """One key of the footer."""

    key: str
    label: str
    off: bool


def shown(key: str, glyphs: Glyphs) -> str:
    """A key as people call it."""
    special = {"enter": glyphs.enter, "up": glyphs.up, "down": glyphs.down}
    return special.get(key) or _SHOWN.get(key, key)


def table() -> tuple[Key, ...]:
    """All keys."""
    from rltui.tui.key_table import KEYS

    return KEYS


def keys_of(screen: Scope) -> list[Key]:
    """Keys that work on a screen, its own first."""
    return [key for scope in STACKS[screen] for key in table() if key.scope == scope]


def find(screen: Scope, key_id: str) -> Key:
    """The key of a screen by id."""
    return next(key for key in keys_of(screen) if key.id == key_id)


def pressed(screen: Scope, name: str, character: str | None) -> Key | None:
    """The key of a screen by Textual's name for it, or by the character it types."""
    return next((key for key in keys_of(screen) if name in key.keys or character in key.keys), None)


def hints(screen: Scope, context: KeyContext, glyphs: Glyphs) -> list[Hint]:
    """Keys of the footer, the most useful first, at most ``MAX_HINTS``."""
    ranked = sorted((key for key in keys_of(screen) if key.hint), key=lambda key: key.hint)
    judged = [(key, bool(key.off(context))) for key in ranked]
    shown_keys = [(key, off) for key, off in judged if not (off and key.quiet)]
    return [Hint(shown(key.keys[0], glyphs), _label(screen, key), off) for key, off in shown_keys[:MAX_HINTS]]


def _label(screen: Scope, key: Key) -> str:
    return "quit" if screen == "runs" and key.id == "back" else key.label
