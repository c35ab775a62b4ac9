"""The lines around every screen: header (where you are, how fresh it is), footer (which keys help), what tab offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rltui.tui import formats
from rltui.tui.spans import Line, cell_width, clip, cut, line, pad, width_of

if TYPE_CHECKING:
    from rltui.tui.glyphs import Glyphs
    from rltui.tui.keys import Hint
    from rltui.tui.refresh import Freshness
    from rltui.tui.spans import Span


class Health(NamedTuple):
    """What the header says about the data on the screen."""

    freshness: Freshness = "fresh"
    age_s: float = 0.0
    paused: bool = False
    readonly: bool = False
    problem: str = ""


def header(crumbs: Sequence[str], state: Sequence[Span], health: Health, width: int, glyphs: Glyphs) -> Line:
    """Identity on the left, state on the right; the age of the data once it is stale."""
    spans: list[Span] = [(" rltui", "title")]
    for crumb in crumbs:
        spans += [(f" {glyphs.crumb} ", "dim"), (crumb, "text")]
    right = [*state, *health_spans(health, glyphs), (" ", "text")]
    named = min(width_of(spans), width // 2) if crumbs else 8
    right = list(cut(right, max(0, width - named), glyphs.ellipsis))
    left = cut(spans, max(0, width - width_of(right) - 1), glyphs.ellipsis)
    return line(*left, (" " * (width - width_of(left) - width_of(right)), "text"), *right)


def health_spans(health: Health, glyphs: Glyphs) -> list[Span]:
    """Paused, read-only, and stale data with its age; nothing where all is well."""
    spans: list[Span] = []
    if health.readonly:
        spans.append(("  read-only", "dim"))
    if health.paused:
        spans.append((f"  {glyphs.paused} paused", "attention"))
    if health.problem:
        spans.append((f"  {glyphs.attention} {health.problem}", "attention"))
    if health.freshness == "late":
        spans.append((f"  {glyphs.attention} {formats.duration(health.age_s)} old", "attention"))
    elif health.freshness == "lost":
        spans.append((f"  {glyphs.failed} {formats.duration(health.age_s)} old", "bad"))
    return spans


def _hint_cells(hint: Hint) -> int:
    return cell_width(hint.key) + 1 + cell_width(hint.label) + 2


def footer(hints: Sequence[Hint], width: int) -> Line:
    """As many hints as fit, the most useful first, and those that stay; one that cannot act is struck out."""
    spans: list[Span] = []
    room = width - 1 - sum(_hint_cells(hint) for hint in hints if hint.stays)
    for hint in hints:
        if not hint.stays:
            room -= _hint_cells(hint)
            if room < 0:
                continue
        spans += [(f" {hint.key} ", "off" if hint.off else "key"), (f"{hint.label} ", "off" if hint.off else "dim")]
    return line(*cut(spans, width))


def choice_rows(choices: Sequence[str], chosen: int | None, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """What a word can become, on at most ``height`` rows: those around the chosen one where not all have room."""
    rows: list[list[Span]] = [[]]
    at = 0
    for index, choice in enumerate(choices):
        span: Span = (clip(choice, width - 2, glyphs.ellipsis), "match" if index == chosen else "text")
        if rows[-1] and width_of(rows[-1]) + 2 + cell_width(span[0]) > width:
            rows.append([])
        rows[-1] += [("  " if rows[-1] else " ", "text"), span]
        at = len(rows) - 1 if index == chosen else at
    first = at // height * height
    shown = [line(*row) for row in rows[first : first + height]]
    if first + height < len(rows):
        left = width - width_of(shown[-1].spans)
        shown[-1] = line(*shown[-1].spans, (pad(glyphs.ellipsis, left, right=True), "dim"))
    return shown
