"""One table of keys: what a key does, the footer, the help and the reasons why a key is off all come from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rltui.watch.snapshots import LIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.tui.glyphs import Glyphs

Scope = Literal["everywhere", "list", "runs", "run", "launch", "confirm", "help"]

STACKS: dict[Scope, tuple[Scope, ...]] = {
    "runs": ("runs", "list", "everywhere"),
    "run": ("run", "list", "everywhere"),
    "launch": ("launch", "list", "everywhere"),
    "confirm": ("confirm",),
    "help": ("help", "list"),
}
"""Scopes whose keys work on each screen, its own first."""

SCOPE_TITLES: dict[Scope, str] = {
    "everywhere": "everywhere",
    "list": "moving",
    "runs": "runs",
    "run": "one run",
    "launch": "launch",
    "confirm": "confirm",
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
    review: Literal["none", "pending", "errors", "ready"] = "none"
    has_overrides: bool = False
    has_fix: bool = False


def _always(_: KeyContext) -> str:
    return ""


def _needs_run(context: KeyContext) -> str:
    return "" if context.run_state else "no run is selected"


def _may_change(context: KeyContext) -> str:
    return "this cockpit is read-only" if context.readonly else ""


def _can_cancel(context: KeyContext) -> str:
    ended = "" if context.run_state in LIVE_STATES else f"nothing to cancel: the run is {context.run_state} already"
    return _may_change(context) or _needs_run(context) or ended


def _can_resubmit(context: KeyContext) -> str:
    alive = "the run is still alive: cancel it first" if context.run_state in LIVE_STATES else ""
    return _may_change(context) or _needs_run(context) or alive


def _can_launch(context: KeyContext) -> str:
    reasons = {
        "none": "no preset is selected",
        "pending": "still checking: wait for the findings",
        "errors": "errors stand in the way: see the findings",
        "ready": "",
    }
    return _may_change(context) or reasons[context.review]


def _needs_overrides(context: KeyContext) -> str:
    return "" if context.has_overrides else "there is no override yet: s sets one"


def _needs_fix(context: KeyContext) -> str:
    return "" if context.has_fix else "no finding comes with a fix"


def _in_log(context: KeyContext) -> str:
    return "" if context.tab == "logs" else "this key is for the log: 5 opens it"


def _needs_search(context: KeyContext) -> str:
    return "" if context.searching else "nothing is searched: / starts a search of the log"


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
    off: Callable[[KeyContext], str] = _always
    quiet: bool = False


KEYS: tuple[Key, ...] = (
    Key("open", ("enter",), "open", "Open the selected run.", "runs", 1, _needs_run),
    Key(
        "launch", ("n",), "launch", "Choose a preset, look at what it would do, and launch it.", "runs", 2, _may_change
    ),
    Key("cancel", ("c",), "cancel", "Cancel the selected run, after a preview.", "runs", 3, _can_cancel),
    Key("resubmit", ("r",), "resubmit", "Start a new attempt from the newest checkpoint.", "runs", 4, _can_resubmit),
    Key(
        "filter",
        ("/",),
        "filter",
        "Show only runs with these words; state: algo: cluster: name a field.",
        "runs",
        5,
    ),
    Key("copy", ("y",), "copy", "Copy the id of the selected run.", "runs", 0, _needs_run),
    Key("tab_overview", ("1",), "overview", "Everything at once.", "run"),
    Key("tab_hosts", ("2",), "hosts", "CPU, memory, GPUs and processes of every node.", "run"),
    Key("tab_actors", ("3",), "actors", "Ray actors: state, node, process, restarts.", "run"),
    Key("tab_metrics", ("4",), "metrics", "Every series as a chart.", "run"),
    Key("tab_logs", ("5",), "logs", "The log: scroll, follow, search.", "run"),
    Key("tab_events", ("6",), "events", "What happened to the attempt, and when.", "run"),
    Key("next_tab", ("]", "right", "l", "tab"), "next tab", "Go to the next tab.", "run", 1),
    Key("previous_tab", ("[", "left", "h", "shift+tab"), "tab before", "Go to the tab before.", "run"),
    Key("cancel", ("c",), "cancel", "Cancel this run, after a preview.", "run", 2, _can_cancel),
    Key("resubmit", ("r",), "resubmit", "Start a new attempt from the newest checkpoint.", "run", 3, _can_resubmit),
    Key("search", ("/",), "search", "Search the log.", "run", 4),
    Key("follow", ("f",), "follow", "Stay at the end of the log.", "run", 5, _in_log, quiet=True),
    Key("next_hit", ("n",), "next hit", "Go to the next hit of the search.", "run", 0, _needs_search),
    Key("previous_hit", ("N",), "hit before", "Go to the hit before.", "run", 0, _needs_search),
    Key("pan_left", ("<",), "pan left", "Move long log lines to the left.", "run", 0, _in_log),
    Key("pan_right", (">",), "pan right", "Move long log lines to the right.", "run", 0, _in_log),
    Key("copy", ("y",), "copy", "Copy the run's id; in the log, the line of the hit or the last one shown.", "run"),
    Key("submit", ("enter",), "launch", "Launch what is shown, then open the run.", "launch", 1, _can_launch),
    Key("set", ("s",), "set", "Set a value: key.path=value.", "launch", 2),
    Key("edit", ("e",), "edit", "Edit the newest override.", "launch", 4, _needs_overrides, quiet=True),
    Key("drop", ("d",), "drop", "Drop the newest override.", "launch", 5, _needs_overrides, quiet=True),
    Key("fix", ("f",), "fix", "Apply the fix of the first finding that has one.", "launch", 3, _needs_fix, quiet=True),
    Key("filter", ("/",), "filter", "Show only presets with these words.", "launch", 6),
    Key("copy", ("y",), "copy", "Copy the commands.", "launch"),
    Key("yes", ("y",), "do it", "Do what is shown.", "confirm", 1),
    Key("no", ("n", "escape", "q", "enter"), "no", "Leave everything as it is.", "confirm", 2),
    Key("close", ("escape", "q", "?", "enter"), "close", "Close the help.", "help", 1),
    Key("down", ("j", "down"), "down", "Down.", "list"),
    Key("up", ("k", "up"), "up", "Up.", "list"),
    Key("page_down", ("ctrl+d", "pagedown"), "page down", "A page down.", "list"),
    Key("page_up", ("ctrl+u", "pageup"), "page up", "A page up.", "list"),
    Key("first", ("g", "home"), "first", "To the first line.", "list"),
    Key("last", ("G", "end"), "last", "To the last line.", "list"),
    Key("pause", ("p",), "pause", "Stop and start drawing; data are collected all the while.", "everywhere", 7),
    Key(
        "command",
        (":",),
        "command",
        "Type a command: launch, open, cancel, resubmit, theme, quit.",
        "everywhere",
        8,
    ),
    Key("help", ("?",), "help", "This page.", "everywhere", 9),
    Key("back", ("q",), "back", "Back; on the list of runs, quit. Runs go on.", "everywhere", 10),
    Key("escape", ("escape",), "clear", "Clear a filter or a search, or go back.", "everywhere"),
)
"""All keys. ``ctrl+c`` twice within two seconds quits from anywhere; it is the application's own."""

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


def keys_of(screen: Scope) -> list[Key]:
    """Keys that work on a screen, its own first."""
    return [key for scope in STACKS[screen] for key in KEYS if key.scope == scope]


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
