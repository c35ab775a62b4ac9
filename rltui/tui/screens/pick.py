"""Choosing from a list: a node to keep away from, a log to read, an action, a command."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from operator import attrgetter
from typing import ClassVar

from textual.containers import Container
from textual.events import Key
from typing_extensions import override

from rltui.tui import keys
from rltui.tui.picking import PickItem, fits
from rltui.tui.screens.keyed import BoxScreen, KeyedScreen
from rltui.tui.spans import Line, Span, cell_width, line, pad, rule
from rltui.tui.widgets.list_pane import ItemsPane
from rltui.watch.snapshots import RunIdentity

MAX_WIDTH = 84


class PickList(ItemsPane[PickItem]):
    """The items that one of is to be chosen, narrowed by what is typed."""

    def __init__(self, title: str, items: Sequence[PickItem], hint: str) -> None:
        super().__init__(id="pick-list")
        self.title, self.hint = title, hint
        self.all_items = tuple(items)
        self.items = self.all_items
        self.marked: set[str] = set()

    def show(self, items: Sequence[PickItem]) -> None:
        """Show these; the cursor stays on its line once it was moved."""
        if not (self.cursor or self.marked):
            self.items = ()
        self.put(items)

    @override
    def key_of(self, item: PickItem) -> str:
        return item.id

    def toggle(self) -> None:
        """Mark the line under the cursor, or take its mark away."""
        if self.selected is not None:
            self.marked ^= {self.selected.id}
            self.repaint()

    def head(self) -> Sequence[Line]:
        """The title, and what the keys do."""
        return [rule([(self.title, "title")], [(self.hint, "dim")], self.size.width, self.glyphs)]

    @override
    def row(self, index: int) -> Line:
        item, width = self.items[index], self.size.width
        here = self.is_selected(index)
        mark = self.glyphs.done if item.id in self.marked else " "
        size = min(max((cell_width(one.label) for one in self.items), default=8), max(8, width * 3 // 5))
        longest = max((cell_width(one.key) for one in self.items), default=0)
        spans: list[Span] = [
            (self.glyphs.cursor if here else " ", "accent"),
            (f"{mark} ", "ok"),
            (pad(item.key, longest + 1) if longest else "", "key"),
            (pad(item.label, size, ellipsis=self.glyphs.ellipsis), "off" if item.off else "text"),
            (f"  {item.off or item.detail}", "attention" if item.urgent and not item.off else "dim"),
        ]
        return line(*spans, selected=here)

    @override
    def empty(self) -> Sequence[Line]:
        return [line(("  nothing fits", "dim"))]


_can_mark = keys.needs(attrgetter("marking"), "one line is chosen here, with enter")

KEYS = keys.dialog_keys(
    "choosing from a list",
    keys.Key("choose", ("enter",), "choose", "Choose the line, or all that are marked.", 1),
    keys.Key("mark", ("space",), "mark", "Mark the line, or take its mark away.", 2, _can_mark, quiet=True),
    keys.Key("close", ("escape", "q"), "close", "Choose nothing.", 3),
)


class PickScreen(BoxScreen[tuple[str, ...]], inherit_bindings=False):
    """A list over the screen; what is chosen comes back as ids, none where it was closed."""

    KEYS: ClassVar[keys.KeyTable] = KEYS
    OPENS: ClassVar[str] = "choose"

    pane: PickList

    def __init__(self, title: str, items: Sequence[PickItem], *, marking: bool = False, hint: str = "") -> None:
        super().__init__()
        words = hint or ("space marks, enter takes" if marking else "enter takes, esc closes")
        self.pane = PickList(title, items, words)
        self._marking = marking
        self.box = Container(self.pane, id="pick")

    @override
    def fit(self) -> None:
        self.box.styles.width = min(MAX_WIDTH, self.app.size.width - 2)
        self.box.styles.height = min(self.app.size.height, len(self.pane.all_items) + 5)

    def key_context(self) -> keys.KeyContext:
        """Whether lines can be marked."""
        return keys.KeyContext(marking=self._marking)

    def takes(self, event: Key) -> bool:
        """Act on a key of the table, or choose the line that shows this key."""
        item = next((one for one in self.pane.items if one.key and one.key == event.character), None)
        if item is None:
            return super().takes(event)
        self.pane.cursor = self.pane.items.index(item)
        self.do_choose()
        return True

    def do_choose(self) -> None:
        """Choose what is marked, or the line under the cursor."""
        item = self.pane.selected
        if self.pane.marked:
            self.dismiss(tuple(one.id for one in self.pane.all_items if one.id in self.pane.marked))
        elif item is not None and item.off:
            self.cockpit.say(item.off, "warning")
        elif item is not None:
            self.dismiss((item.id,))

    def do_mark(self) -> None:
        """Mark the line, and go to the next."""
        self.pane.toggle()
        self.pane.move(1)

    do_close = partialmethod(KeyedScreen.dismiss, ())


_REPORT = keys.Key("report", ("y",), "report", "Copy what runs remember against the node, for the site's admins.", 2)
NODE_KEYS = keys.KeyTable((keys.KeyGroup("a node", (_REPORT,)), *KEYS.groups))


class NodesScreen(PickScreen, inherit_bindings=False):
    """The nodes of a run, to keep away from or to report."""

    KEYS: ClassVar[keys.KeyTable] = NODE_KEYS

    def __init__(self, run: RunIdentity, items: Sequence[PickItem]) -> None:
        title, hint = f"keep away from which node of {run.run_id}", "space marks, enter takes, y reports"
        super().__init__(title, items, marking=True, hint=hint)
        self._run = run

    def do_report(self) -> None:
        """Ask for the report on the node under the cursor; it is copied when it is there."""
        if self.pane.selected is not None:
            self.cockpit.controller.ask_node_report(self._run, self.pane.selected.id)


class PaletteScreen(PickScreen, inherit_bindings=False):
    """A list that narrows while one types."""

    def __init__(self, title: str, items: Sequence[PickItem]) -> None:
        super().__init__(title, items, hint="type to find, enter does it")
        self.typed = ""
        self._title = title

    def takes(self, event: Key) -> bool:
        """Letters are typed; all other keys move and choose."""
        if event.key == "backspace":
            self._narrow(self.typed[:-1])
        elif event.character is not None and event.character.isprintable():
            self._narrow(self.typed + event.character)
        else:
            return KeyedScreen.takes(self, event)
        return True

    def _narrow(self, words: str) -> None:
        self.typed = words
        self.pane.title = f"{self._title}: {words}" if words else self._title
        self.pane.show([item for item in self.pane.all_items if fits(f"{item.label} {item.detail}", words)])
