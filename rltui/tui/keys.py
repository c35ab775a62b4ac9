"""Keys: what one is, and the table of them that each screen brings: footer, help, palette and menu come from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from rltui.tui.glyphs import Glyphs
from rltui.tui.picking import PickItem

MAX_HINTS = 9
QUIT_HELP = "Quit from anywhere. Runs go on."


class KeyContext(NamedTuple):
    """What decides whether a key can act."""

    readonly: bool = False
    recorded: bool = False
    """Whether what is shown is a recording."""
    run_state: str = ""
    """State of the run that is selected or open; empty where there is none."""
    owner: str = ""
    """The colleague whose run that is: it is only read; empty: the user's own."""
    num_marked: int = 0
    """Runs of the list that are marked: an action is for all of them."""
    num_compared: int = 0
    """The same, with the baseline."""
    tab: str = ""
    searching: bool = False
    """Whether a search of the log has hits."""
    can_open: bool = True
    """Whether the line under the cursor leads somewhere."""
    review: Literal["none", "pending", "errors", "ready"] = "none"
    has_overrides: bool = False
    has_sweep: bool = False
    """Whether what would be launched is several runs."""
    has_fix: bool = False
    num_nodes: int = 0
    """Nodes of the run that are known by name."""
    num_clusters: int = 1
    needs_you: bool = False
    """Whether a cluster waits for somebody to answer it."""
    problem: str = ""
    """Why what is shown cannot be done; empty where it can."""
    can_edit: bool = False
    has_job: bool = False
    """Whether a job that is no run is under the cursor."""
    on_fold: bool = False
    """Whether several runs stand as one line under the cursor."""
    has_panels: bool = False
    """Whether plug-ins bring tabs."""
    marking: bool = False
    """Whether lines of the list can be marked."""


Off: TypeAlias = "Callable[[KeyContext], str]"
"""Gives the reason why a key cannot act, or an empty string."""


def can_always(_: KeyContext) -> str:
    """The reason of a key that can always act: none."""
    return ""


def what_is_wrong(context: KeyContext) -> str:
    """Off where what is shown cannot be done."""
    return context.problem


def needs(holds: Callable[[KeyContext], object], otherwise: str) -> Off:
    """Off for the reason ``otherwise`` where something does not hold."""
    return lambda context: "" if holds(context) else otherwise


def first_of(*reasons: Off) -> Off:
    """Off for the first of several reasons."""
    return lambda context: next(filter(None, (reason(context) for reason in reasons)), "")


@dataclass(frozen=True)
class Key:
    """One key.

    Attributes:
        id: The method ``do_<id>`` of the screen, or of one of its parts, is what it does.
        keys: Characters, or Textual's names of keys that type none; the first one is shown.
        label: One word for the footer.
        help: One sentence for the help page.
        hint: Place in the footer, 1 first; 0 keeps it out.
        off: Gives the reason why the key cannot act, or an empty string.
        quiet: Leave the key out of the footer while it is off, instead of striking it.
        stays: Keep it in the footer where others have no room.
    """

    id: str
    keys: tuple[str, ...]
    label: str
    help: str
    hint: int = 0
    off: Off = can_always
    quiet: bool = False
    stays: bool = False


class KeyGroup(NamedTuple):
    """Keys that belong together, with their title on the help page."""

    title: str
    keys: tuple[Key, ...]


_SHOWN = {"escape": "esc", "pagedown": "pgdn", "pageup": "pgup"}


class Hint(NamedTuple):
    """One key of the footer."""

    key: str
    label: str
    off: bool
    stays: bool = False


def shown(key: str, glyphs: Glyphs) -> str:
    """A key as people call it."""
    special = {"enter": glyphs.enter, "up": glyphs.up, "down": glyphs.down, "left": glyphs.left, "right": glyphs.right}
    return special.get(key) or _SHOWN.get(key, key)


@dataclass(frozen=True)
class KeyTable:
    """All keys of one screen.

    Attributes:
        groups: Its keys, its own first.
        back: What the footer calls going back.
    """

    groups: tuple[KeyGroup, ...]
    back: str = ""

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys of all groups, in the order of the help page."""
        return tuple(key for group in self.groups for key in group.keys)

    def group(self, title: str) -> KeyGroup:
        """A group by its title."""
        return next(group for group in self.groups if group.title == title)

    def find(self, key_id: str) -> Key:
        """The key whose id is ``key_id``."""
        return next(key for key in self.keys if key.id == key_id)

    def pressed(self, name: str, character: str | None) -> Key | None:
        """A key by Textual's name for it, or by the character it types."""
        return next((key for key in self.keys if name in key.keys or character in key.keys), None)

    def hints(self, context: KeyContext, glyphs: Glyphs) -> list[Hint]:
        """Keys of the footer, the most useful first, at most ``MAX_HINTS``."""
        ranked = sorted((key for key in self.keys if key.hint and key.keys), key=lambda key: key.hint)
        judged = [(key, bool(key.off(context))) for key in ranked]
        useful = [
            Hint(shown(key.keys[0], glyphs), self._label(key), off, key.stays)
            for key, off in judged
            if not (off and key.quiet)
        ]
        others = [hint for hint in useful if not hint.stays][: MAX_HINTS - sum(hint.stays for hint in useful)]
        return [hint for hint in useful if hint.stays or hint in others]

    def _label(self, key: Key) -> str:
        return self.back if self.back and key.id == "back" else key.label


def needs_run(context: KeyContext) -> str:
    """Off where no run is selected."""
    several = "several runs stand here: enter shows each, space marks all of them"
    return "" if context.run_state else several if context.on_fold else "no run is selected"


def needs_line(context: KeyContext) -> str:
    """Off where the list has nothing under the cursor."""
    return "" if context.on_fold else needs_run(context)


def needs_one_run(context: KeyContext) -> str:
    """Off where no run is selected, and where several are marked."""
    marked = f"it is for one run, and {context.num_marked} are marked: esc takes the marks away"
    return marked if context.num_marked else needs_run(context)


def may_change(context: KeyContext) -> str:
    """Off in a cockpit that only shows."""
    if context.recorded:
        return "this is a recording: it shows what was, and changes nothing"
    return "this cockpit is read-only" if context.readonly else ""


needs_marks = needs(
    lambda context: context.num_compared > 1, "mark two runs or more: space marks, B keeps one as the baseline"
)
needs_clusters = needs(lambda context: context.num_clusters > 1, "there is one cluster only: rltui setup adds another")
needs_job = first_of(may_change, needs(attrgetter("has_job"), "no job is selected"))
needs_question = needs(attrgetter("needs_you"), "no cluster waits for an answer")

LIST = KeyGroup(
    "moving",
    (
        Key("down", ("j", "down"), "down", "Down."),
        Key("up", ("k", "up"), "up", "Up."),
        Key("page_down", ("ctrl+d", "pagedown"), "page down", "A page down."),
        Key("page_up", ("ctrl+u", "pageup"), "page up", "A page up."),
        Key("first", ("g", "home"), "first", "To the first line."),
        Key("last", ("G", "end"), "last", "To the last line."),
    ),
)
"""Keys that move in a list."""

EVERYWHERE = KeyGroup(
    "everywhere",
    (
        Key("pause", ("p",), "pause", "Stop and start drawing; data are collected all the while.", 11),
        Key("command", (":",), "command", "Type a command; tab completes it.", 8),
        Key("take_back", ("z",), "take back", "Take back a fix within the 5 s before it is done."),
        Key("journal", ("@",), "journal", "What was done with runs from here, and what came of it."),
        Key("palette", ("ctrl+p",), "palette", "All that can be done here, by name."),
        Key("help", ("?",), "help", "This page.", 9, stays=True),
        Key("back", ("q",), "back", "Back; on the list of runs, quit. Runs go on.", 10, stays=True),
        Key("escape", ("escape",), "clear", "Clear a filter or a search, or go back."),
    ),
)
"""Keys of every screen that is no dialog. ``ctrl+c`` twice quits from anywhere; it is the application's own."""


def key_table(title: str, *keys: Key, shared: tuple[KeyGroup, ...] = (), back: str = "") -> KeyTable:
    """The keys of a screen: its own, those that it shares with some others, and those of all."""
    return KeyTable((KeyGroup(title, keys), *shared, LIST, EVERYWHERE), back)


def dialog_keys(title: str, *keys: Key) -> KeyTable:
    """The keys of a dialog with a list."""
    return KeyTable((KeyGroup(title, keys), LIST))


def key_items(table: KeyTable, context: KeyContext, glyphs: Glyphs) -> list[PickItem]:
    """All keys of a screen but those that only move, with the reason where one cannot act."""
    return [
        _item(key, context, glyphs)
        for group in table.groups
        for key in group.keys
        if group.title != LIST.title and key.id != "palette"
    ]


def action_items(group: KeyGroup, context: KeyContext, glyphs: Glyphs) -> list[PickItem]:
    """The keys of a group, without the one that opens their menu."""
    return [_item(key, context, glyphs) for key in group.keys if key.id != "actions"]


def _item(key: Key, context: KeyContext, glyphs: Glyphs) -> PickItem:
    return PickItem(
        id=key.id,
        label=key.label,
        detail=key.help,
        off=key.off(context),
        key=shown(key.keys[0], glyphs) if key.keys else "",
    )
