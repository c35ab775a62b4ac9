"""The tail of a log as it slides: what moved, what is found, what is highlighted. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.tui.spans import Role, Span, clean, clip
from rltui.watch.attempt_logs import FIRST_BYTES, MAX_LINES
from rltui.watch.log_search import LogQuery


def dropped(old: Sequence[str], new: Sequence[str]) -> int:
    """How many of the first lines of ``old`` are gone in ``new``, so that a view can stay where it is.

    Both are tails of the same log. Where nothing of the old tail is left, all of it is gone.
    """
    for shift in range(len(old)):
        kept = len(old) - shift
        if kept <= len(new) and old[shift] == new[0] and old[-1] == new[kept - 1] and old[shift:] == new[:kept]:
            return shift
    return len(old)


WHOLE_SHARE = 0.9
"""Share of a log's bytes that its lines make up where all of them were read: colour codes are not counted."""


def is_tail(lines: Sequence[str], end_bytes: int) -> bool:
    """Whether lines come before the first of ``lines``.

    Args:
        lines: What is known of a log, up to its end.
        end_bytes: Byte offset of its end; 0: unknown.
    """
    if len(lines) >= MAX_LINES:
        return True
    return end_bytes > FIRST_BYTES and sum(len(text) + 1 for text in lines) < WHOLE_SHARE * end_bytes


def hits(lines: Sequence[str], query: LogQuery) -> list[int]:
    """Indices of lines that a search means."""
    if not query.pattern:
        return []
    matches, anchors = re.compile(query.pattern).search, query.anchors or ("",)
    return [index for index, text in enumerate(lines) if any(anchor in text for anchor in anchors) and matches(text)]


def next_hit(found: Sequence[int], at: int, step: int, around: bool = True) -> int | None:
    """The hit after (``step`` 1) or before (-1) line ``at``; where none is, the one ``around`` the end, or None."""
    ordered = found if step > 0 else found[::-1]
    there = next((index for index in ordered if (index > at if step > 0 else index < at)), None)
    return ordered[0] if there is None and around and found else there


def marked(text: str, words: str, role: Role, width: int, ellipsis: str) -> tuple[Span, ...]:
    """``text`` cut to ``width`` cells, with the places where ``words`` occur marked."""
    text = clip(text, width, ellipsis)
    if not words:
        return ((text, role),)
    spans: list[Span] = []
    lowered, wanted, start = text.lower(), clean(words).lower(), 0
    while wanted and len(lowered) == len(text) and (at := lowered.find(wanted, start)) >= 0:
        spans += [(text[start:at], role), (text[at : at + len(wanted)], "match")]
        start = at + len(wanted)
    return (*(span for span in spans if span[0]), (text[start:], role))
