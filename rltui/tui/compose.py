"""Panes from sections: how a column of sections shares its rows, and how columns stand side by side. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Span, fit, rule

EXTRA = 3
"""Rank from which a section is an extra."""


class Section(NamedTuple):
    """One part of a pane: a rule and a body.

    Attributes:
        left: Who it is (left end of the rule).
        right: How it stands (right end of the rule).
        body: Makes the lines for a width and a number of rows.
        least: Rows of the body below which the section is left out.
        wanted: Rows of the body that it can use.
        rank: Sections of a higher rank are left out first; from ``EXTRA`` on, a section is there only where all
            others have what they want.
        grows: Takes the rows that are left over.
        ruled: Whether the section has a rule of its own; columns of sections have not.
    """

    left: tuple[Span, ...]
    right: tuple[Span, ...]
    body: Callable[[int, int], Sequence[Line]]
    least: int
    wanted: int
    rank: int = 0
    grows: bool = False
    ruled: bool = True

    @property
    def rows_least(self) -> int:
        """Rows below which the section is left out, its rule included."""
        return self.least + self.ruled

    @property
    def rows_wanted(self) -> int:
        """Rows that the section can use, its rule included; 0 where it has nothing to show."""
        return self.wanted + self.ruled if self.wanted > 0 else 0


def share_rows(sections: Sequence[Section], height: int) -> list[int]:
    """Rows of each section, its rule included; 0 leaves it out.

    What must be there comes first, by rank; what is left goes to what is wanted, by rank; then to the extras, and
    the rest to what grows.
    """
    order = sorted(range(len(sections)), key=lambda index: sections[index].rank)
    rows = [0] * len(sections)
    left = _share(sections, [index for index in order if sections[index].rank < EXTRA], rows, height)
    left = _share(sections, [index for index in order if sections[index].rank >= EXTRA], rows, left)
    growing = next((index for index in order if rows[index] and sections[index].grows), None)
    if growing is not None:
        rows[growing] += left
    return rows


def _share(sections: Sequence[Section], order: Sequence[int], rows: list[int], left: int) -> int:
    for index in order:
        need = sections[index].rows_least
        if need <= left and sections[index].rows_wanted:
            rows[index] = need
            left -= need
    kept = [index for index in order if rows[index]]
    for rank in sorted({sections[index].rank for index in kept}):
        left = _fill(sections, [index for index in kept if sections[index].rank == rank], rows, left)
    return left


def _fill(sections: Sequence[Section], peers: Sequence[int], rows: list[int], left: int) -> int:
    """Give sections of one rank what they want, a row each in turn; what is left over comes back."""
    while left > 0:
        short = [index for index in peers if rows[index] < sections[index].rows_wanted]
        if not short:
            break
        for index in short[:left]:
            rows[index] += 1
        left -= len(short[:left])
    return left


def stack(sections: Sequence[Section], width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """Sections below each other, exactly ``height`` lines."""
    lines: list[Line] = []
    for section, rows in zip(sections, share_rows(sections, height), strict=True):
        if rows and section.ruled:
            lines.append(rule(section.left, section.right, width, glyphs))
        if rows:
            lines.extend(exactly(section.body(width, rows - section.ruled), rows - section.ruled))
    return exactly(lines, height)


def exactly(lines: Sequence[Line], height: int) -> list[Line]:
    """``lines`` cut or filled up with blank ones to ``height``."""
    kept = list(lines[: max(0, height)])
    return kept + [BLANK] * (height - len(kept))


def beside(columns: Sequence[tuple[Sequence[Line], int]], gap: int = 1) -> list[Line]:
    """Columns of (lines, width) side by side, as long as the longest."""
    height = max((len(lines) for lines, _ in columns), default=0)
    rows = []
    for index in range(height):
        spans: list[Span] = []
        for number, (lines, width) in enumerate(columns):
            if number:
                spans.append((" " * gap, "text"))
            spans.extend(fit(lines[index] if index < len(lines) else BLANK, width).spans)
        rows.append(Line(tuple(spans)))
    return rows


def abreast(columns: Sequence[Sequence[Section]], parts: Sequence[int], glyphs: Glyphs, rank: int = 0) -> Section:
    """Columns of sections as one section; ``parts`` are the shares of the width."""

    def body(width: int, height: int) -> list[Line]:
        shares = zip(columns, split(width, parts), strict=True)
        return beside([(stack(column, share, height, glyphs), share) for column, share in shares])

    least = max((min((s.rows_least for s in column if s.rows_wanted), default=0) for column in columns), default=0)
    wanted = max((sum(s.rows_wanted for s in column) for column in columns), default=0)
    return Section((), (), body, least, wanted, rank=rank, ruled=False)


def split(width: int, parts: Sequence[int], gap: int = 1) -> list[int]:
    """``width`` shared in proportion to ``parts``, less the gaps between them."""
    room = width - gap * (len(parts) - 1)
    shares = [room * part // sum(parts) for part in parts]
    shares[-1] += room - sum(shares)
    return shares
