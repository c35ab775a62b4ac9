"""Everything a screen can do, as lines to choose from: the palette and the menu of actions. Pure functions."""

from __future__ import annotations

from rltui.tui import keys
from rltui.tui.glyphs import Glyphs
from rltui.tui.keys import KeyContext, KeyGroup, KeyTable
from rltui.tui.picking import PickItem


def key_items(table: KeyTable, context: KeyContext, glyphs: Glyphs) -> list[PickItem]:
    """All keys of a screen but those that only move, with the reason where one cannot act."""
    return [
        _item(key, context, glyphs)
        for group in table.groups
        for key in group.keys
        if group.title != keys.LIST.title and key.id != "palette"
    ]


def action_items(group: KeyGroup, context: KeyContext, glyphs: Glyphs) -> list[PickItem]:
    """The keys of a group, without the one that opens their menu."""
    return [_item(key, context, glyphs) for key in group.keys if key.id != "actions"]


def _item(key: keys.Key, context: KeyContext, glyphs: Glyphs) -> PickItem:
    return PickItem(
        id=key.id,
        label=key.label,
        detail=key.help,
        off=key.off(context),
        key=keys.shown(key.keys[0], glyphs) if key.keys else "",
    )
