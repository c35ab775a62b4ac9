"""Which rank gets which samples, and which of them share a packed row; lengths only, no tokens.

Every rank gets as many rows as the others, because each forward and backward pass of ZeRO is a collective, and about as
many tokens, because in each pass all ranks wait for the one that has the most. The same lengths always give the same
answer.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TypeAlias

FILLER = -1
"""In the place of a sample's number: a row that only fills up a rank's share."""

PackedRow: TypeAlias = "list[int]"
"""The numbers of the samples that stand in it; one, where samples are not packed."""


def share_out(lengths: Sequence[int], num_parts: int, pack_tokens: int = 0) -> list[list[PackedRow]]:
    """Rows of samples for each of ``num_parts`` ranks, as many for each, longest first.

    Args:
        lengths: Tokens of each sample, prompt and response.
        num_parts: Ranks.
        pack_tokens: Tokens of a packed row; 0: one sample a row. A longer sample gets a row of its own.
    """
    rows = packed_rows(lengths, pack_tokens, num_parts) if pack_tokens else [[number] for number in range(len(lengths))]
    tokens = [sum(lengths[number] for number in row) for row in rows]
    parts = [[rows[number] for number in part] for part in _deal(tokens, num_parts)]
    most = max(map(len, parts))
    return [part + [[FILLER]] * (most - len(part)) for part in parts]


def packed_rows(lengths: Sequence[int], pack_tokens: int, multiple_of: int = 1) -> list[PackedRow]:
    """Few rows of at most ``pack_tokens``, a multiple of ``multiple_of`` where there are samples enough.

    First fit with the longest first needs at most 22 % more rows than the best packing (Johnson 1973). Where the
    samples also fit that number of rows, rounded up, when each goes to the emptiest row, rows come out equally long.
    """
    tight = _first_fit(lengths, pack_tokens)
    wanted = min(len(lengths), -(-len(tight) // multiple_of) * multiple_of)
    level = _emptiest_first(lengths, wanted)
    fits = all(sum(lengths[number] for number in row) <= pack_tokens for row in level)
    return level if fits else tight


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda number: (-lengths[number], number))


def _deal(tokens: Sequence[int], num_parts: int) -> list[list[int]]:
    """Numbers of ``tokens`` in parts that differ by one at most: longest first, back and forth."""
    parts: list[list[int]] = [[] for _ in range(num_parts)]
    for turn, number in enumerate(_longest_first(tokens)):
        lap, place = divmod(turn, num_parts)
        parts[num_parts - 1 - place if lap % 2 else place].append(number)
    return parts


def _first_fit(lengths: Sequence[int], room: int) -> list[PackedRow]:
    rows: list[PackedRow] = []
    left: list[int] = []
    for number in _longest_first(lengths):
        place = next((row for row, free in enumerate(left) if lengths[number] <= free), len(rows))
        if place == len(rows):
            rows.append([])
            left.append(room)
        rows[place].append(number)
        left[place] -= lengths[number]
    return rows


def _emptiest_first(lengths: Sequence[int], num_rows: int) -> list[PackedRow]:
    rows: list[PackedRow] = [[] for _ in range(num_rows)]
    filled = [(0, row) for row in range(num_rows)]
    for number in _longest_first(lengths):
        tokens, row = filled[0]
        rows[row].append(number)
        heapq.heapreplace(filled, (tokens + lengths[number], row))
    return rows
