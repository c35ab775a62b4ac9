"""The tab of settings: key, value, where it comes from, and what it was before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.layout.diff import setting_text
from rltui.tui.spans import Line, clip, clip_start, line, pad, rule, wrapped

if TYPE_CHECKING:
    from rltui.service.config import RunConfig, Setting
    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Span

WIDEST_VALUE = 400
ORIGIN_FROM = 60
"""Columns from which a row says where its setting comes from."""


def head(config: RunConfig | None, shown: int, filtered: str, changed_only: bool, width: int, glyphs: Glyphs) -> Line:
    """Of which attempt these are, how many are shown, and against what."""
    left: list[Span] = [("config", "title")]
    right: list[Span] = []
    if config is not None:
        left.append((f" attempt {config.attempt}", "dim"))
        right = [(f"{shown} of {len(config.settings)}", "dim")]
        if config.against:
            changes = sum(one.differs for one in config.settings)
            right.append((f"  {changes} differ from {config.against}", "attention" if changes else "dim"))
    if changed_only:
        left.append((f" {glyphs.dot} only what differs", "match"))
    if filtered:
        left += [(f" {glyphs.dot} ", "dim"), (clip(filtered, 24), "match")]
    return rule(left, right, width, glyphs)


def rows(config: RunConfig, settings: Sequence[Setting], width: int, glyphs: Glyphs) -> list[Line]:
    """Notes, then a row a setting; what differs has its former value below it."""
    made = [row for note in config.notes for row in wrapped(note, width, " ", "dim")]
    if not settings:
        return [*made, line((" no setting is like that", "dim"))]
    key_width = min(max(len(one.key) for one in settings), max(12, width * 2 // 5))
    for one in settings:
        made.append(_row(one, key_width, width, glyphs))
        if one.differs:
            before = f"{config.against}: {setting_text(one.before, WIDEST_VALUE)}"
            made.append(line((" " * 3, "dim"), (clip(before, width - 3, glyphs.ellipsis), "dim")))
    return made


def _row(one: Setting, key_width: int, width: int, glyphs: Glyphs) -> Line:
    origin_width = min(34, width // 3) if width >= ORIGIN_FROM else 0
    room = max(4, width - key_width - 4 - (origin_width + 2 if origin_width else 0))
    is_default = one.origin == "default"
    return line(
        (glyphs.attention if one.differs else " ", "attention"),
        (pad(clip_start(one.key, key_width, glyphs.ellipsis), key_width), "text" if one.differs else "accent"),
        ("  ", "dim"),
        (pad(setting_text(one.value, WIDEST_VALUE), room, ellipsis=glyphs.ellipsis), "dim" if is_default else "title"),
        ("  ", "dim"),
        (clip_start(one.origin, origin_width, glyphs.ellipsis) if origin_width else "", "dim"),
    )
