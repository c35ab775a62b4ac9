"""Curves from characters: braille (2 × 4 dots a cell), block and ASCII fall-backs, and sparklines. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rltui.tui.glyphs import Glyphs

_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
"""Bits of a braille cell's two columns, lowest dot first (Unicode chapter 21.1: U+2800 plus dots 1 to 8)."""

_EMPTY = 0x2800

LEAST, MOST = 1e-300, 1e300
"""Sizes of values that are drawn as 0 below, and as this from here on."""


def resample(values: Sequence[float], columns: int) -> list[float]:
    """``values`` spread over ``columns``: the mean where several meet, the one before where none falls; NaN is a gap.

    Args:
        values: Points at equal distance, oldest first; may hold NaN.
        columns: Columns to fill.

    Returns:
        ``columns`` values, all NaN where there is nothing to show.
    """
    count = len(values)
    if count == 0 or columns <= 0:
        return [math.nan] * max(0, columns)
    result = []
    for column in range(columns):
        first = column * count // columns
        last = max(first + 1, (column + 1) * count // columns)
        bucket = values[first:last]
        total = sum(bucket)
        if not math.isfinite(total):  # gaps are rare, and looking for one value by value is what costs
            bucket = [value for value in bucket if math.isfinite(value)]
            total = sum(bucket)
        result.append(total / len(bucket) if bucket else math.nan)
    return result


def bounds(values: Sequence[float]) -> tuple[float, float]:
    """Limits of an axis for ``values``: round numbers, and zero where it is near."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0.0, 1.0
    # so far from the ends of what a float holds that no span and no step below is infinite, or nothing
    low, high = (0.0 if abs(end) < LEAST else max(-MOST, min(MOST, end)) for end in (min(finite), max(finite)))
    if low >= 0 and low < 0.5 * high:
        low = 0.0
    if high == low:
        return (min(0.0, 2 * low), max(0.0, 2 * high)) if low else (0.0, 1.0)
    step = _nice_step((high - low) / 4)
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _nice_step(rough: float) -> float:
    magnitude = 10.0 ** math.floor(math.log10(rough))
    for factor in (1.0, 2.0, 2.5, 5.0):
        if rough <= factor * magnitude * 1.0000001:
            return factor * magnitude
    return 10.0 * magnitude


def _levels(values: Sequence[float], columns: int, dots: int, low: float, high: float) -> list[int]:
    """Height of each column in dots, 1 to ``dots``; 0 where there is nothing."""
    span = (high - low) or 1.0
    result = []
    for value in resample(values, columns):
        if math.isfinite(value):
            share = (value - low) / span
            result.append(1 + round(share * (dots - 1)) if 0.0 <= share <= 1.0 else 1 if share < 0.0 else dots)
        else:
            result.append(0)
    return result


def rows_of(values: Sequence[float], height: int, low: float, high: float) -> list[int | None]:
    """The row, 0 at the top, that each value is in; None where there is no number."""
    levels = _levels(values, len(values), height, low, high)
    return [height - level if level else None for level in levels]


def area(values: Sequence[float], width: int, height: int, low: float, high: float, glyphs: Glyphs) -> list[str]:
    """A filled curve of ``values``.

    Args:
        values: Points at equal distance, oldest first; NaN leaves a gap.
        width: Cells of a row.
        height: Rows.
        low: Value at the bottom.
        high: Value at the top.
        glyphs: ASCII glyphs make a coarser curve of blocks.

    Returns:
        ``height`` strings of ``width`` cells, top row first.
    """
    if width <= 0 or height <= 0:
        return []
    if glyphs.ascii_only:
        return _blocks(values, width, height, low, high, glyphs)
    levels = _levels(values, width * 2, height * 4, low, high)
    rows = []
    for row in range(height):
        base = (height - 1 - row) * 4
        cells = []
        for column in range(0, width * 2, 2):
            bits = _bits(_LEFT, levels[column] - base) | _bits(_RIGHT, levels[column + 1] - base)
            cells.append(chr(_EMPTY | bits) if bits else " ")
        rows.append("".join(cells))
    return rows


def _bits(column: tuple[int, ...], level: int) -> int:
    bits = 0
    for dot in column[: max(0, level)]:
        bits |= dot
    return bits


def _blocks(values: Sequence[float], width: int, height: int, low: float, high: float, glyphs: Glyphs) -> list[str]:
    steps = len(glyphs.blocks)
    levels = _levels(values, width, height * steps, low, high)
    rows = []
    for row in range(height):
        base = (height - 1 - row) * steps
        rows.append("".join(" " if lv <= base else glyphs.blocks[min(lv - base, steps) - 1] for lv in levels))
    return rows


def sparkline(values: Sequence[float], width: int, glyphs: Glyphs, low: float = 0.0, high: float | None = None) -> str:
    """A curve of one row and ``width`` cells; an empty history is a row of dots.

    Args:
        values: Points at equal distance, oldest first.
        width: Cells.
        glyphs: The alphabet.
        low: Value of the lowest block.
        high: Value of the highest block; None takes the largest value.
    """
    if not any(math.isfinite(value) for value in values):
        return glyphs.free * width
    top = max((value for value in values if math.isfinite(value)), default=1.0) if high is None else high
    levels = _levels(values, width, len(glyphs.blocks), low, top)
    return "".join(glyphs.blocks[level - 1] if level else " " for level in levels)


def bar(share: float, width: int, glyphs: Glyphs) -> tuple[str, str]:
    """A horizontal bar of ``width`` cells as its full and its empty part."""
    if not math.isfinite(share):
        share = 0.0
    full = round(min(1.0, max(0.0, share)) * width)
    return glyphs.bar_full * full, glyphs.bar_empty * (width - full)
