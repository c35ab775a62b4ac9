"""The tab of samples: its list, and one of them in full beside the other answers to its prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Role, Span, cell_width, clip, line, pad, rule, wrapped
from rltui.watch.sample_text import Kind, Piece, differences, pieces
from rltui.watch.samples import Sample, SampleGroup, SampleQuery, SamplesFound

MOST_SIBLINGS = 16
ALL_COLUMNS_FROM = 44
"""Cells from which a row has tokens and weights."""

SENTENCE_FROM = 60
"""Cells from which the rule says in words which samples these are."""

LOOKS: dict[Kind, Role] = {"text": "text", "special": "key", "new": "match", "gone": "off"}
MARKS: dict[Kind, tuple[str, str]] = {"new": ("{+", "+}"), "gone": ("[-", "-]")}
"""How wdiff marks words, for terminals without colour."""


def head(query: SampleQuery, found: SamplesFound | None, width: int, list_width: int, glyphs: Glyphs) -> list[Line]:
    """Which samples these are, how far the search is, and what the columns are."""
    what = "evaluations" if query.evaluation else "training"
    words = f" of {what}, {query.order} first" if width >= SENTENCE_FROM else f" {what[:5]} {query.order}"
    left: list[Span] = [("samples", "title"), (words, "dim")]
    if query.text:
        left += [(f" {glyphs.dot} ", "dim"), (clip(query.text, 24), "match")]
    right: list[Span] = [(f"searching {glyphs.ellipsis}", "waiting")]
    if found is not None and found.note:
        right = []
    elif found is not None:
        right = [(f"{len(found.samples)} out of {formats.size(found.read_bytes)}", "dim")]
        if found.share < 1.0:
            right = [(f"{len(found.samples)} in {100 * found.share:.0f} %", "waiting")]
        if found.unread:
            right = [(f"{found.unread} lines no samples  ", "attention"), *right]
    names = "  STEP  REWARD" + ("  TOKENS WEIGHTS" if list_width >= ALL_COLUMNS_FROM else "") + "  ANSWER"
    return [rule(left, right, width, glyphs), line((clip(names, width), "dim"))]


def row(sample: Sample, width: int, glyphs: Glyphs, *, selected: bool) -> Line:
    """One sample: its numbers and its first words."""
    columns: list[Span] = [
        (glyphs.cursor if selected else " ", "accent"),
        (pad(_whole(sample.step), 5, right=True), "dim"),
        (pad(number(sample.reward), 8, right=True), reward_role(sample.reward)),
    ]
    if width >= ALL_COLUMNS_FROM:
        columns.append((pad(_whole(sample.tokens), 8, right=True), "text"))
        columns.append((pad(_whole(sample.version), 8, right=True), "dim"))
    used = sum(cell_width(text) for text, _ in columns) + 2
    words = clip(" ".join(sample.answer.split()), max(0, width - used), glyphs.ellipsis)
    return line(*columns, ("  ", "dim"), (words, "text"), selected=selected)


def detail(group: SampleGroup, width: int, glyphs: Glyphs, *, differing: bool) -> list[Line]:
    """A sample in full: numbers, siblings, prompt, answer, and the right answer."""
    one, best = group.chosen, group.best
    rows = [rule([("step ", "title"), (_whole(one.step), "title")], [(_numbers(one, glyphs), "dim")], width, glyphs)]
    rows += _siblings(group, width, glyphs)
    rows += [line((" prompt", "accent")), *flow(pieces(one.prompt), width, glyphs)]
    if not differing or one.offset == best.offset:
        same = "  the best of its siblings" if differing and len(group.siblings) > 1 else ""
        rows += [line((" answer", "accent"), (same, "dim")), *flow(pieces(one.answer), width, glyphs)]
    else:
        told = f"  against the best sibling: {{+only here+}} [-only there-], reward {number(best.reward)}"
        rows += [line((" answer", "accent"), (clip(told, max(0, width - 8), glyphs.ellipsis), "dim"))]
        rows += flow(differences(best.answer, one.answer), width, glyphs)
    if one.right_answer:
        rows += [line((" right answer", "accent")), *flow(pieces(one.right_answer), width, glyphs)]
    return rows


def _numbers(one: Sample, glyphs: Glyphs) -> str:
    told = [f"reward {number(one.reward)}"]
    told += [f"{one.tokens} tokens"] if one.tokens is not None else []
    told += [f"weights v{one.version}"] if one.version is not None else []
    return f" {glyphs.dot} ".join([*told, *([one.finish_reason] if one.finish_reason else [])])


def _siblings(group: SampleGroup, width: int, glyphs: Glyphs) -> Iterator[Line]:
    count = len(group.siblings)
    if count < 2:
        return
    yield line((f" {count} answers to this prompt", "accent"), ("  ) the next  d differences", "dim"))
    for one in group.siblings[:MOST_SIBLINGS]:
        yield row(one, width, glyphs, selected=one.offset == group.chosen.offset)
    if count > MOST_SIBLINGS:
        yield line((f"   {count - MOST_SIBLINGS} more", "dim"))


def flow(parts: Sequence[Piece], width: int, glyphs: Glyphs) -> list[Line]:
    """Pieces of text on as many lines as they need, indented by two; words that are too long are broken."""
    rows: list[list[Span]] = [[]]
    room = left = max(4, width - 2)
    for text, kind in parts:
        before, after = MARKS.get(kind, ("", ""))
        for word in _words(f"{before}{text}{after}", room):
            if word == "\n":
                rows.append([])
                left = room
                continue
            if cell_width(word) > left:
                rows.append([])
                left = room
                word = word.lstrip(" ")
            rows[-1].append((word, LOOKS[kind]))
            left -= cell_width(word)
    return [line(("  ", "text"), *spans) if spans else BLANK for spans in rows] or [line(f"  {glyphs.dot}")]


def _words(text: str, room: int) -> Iterator[str]:
    """Words with the spaces before them, and line ends."""
    word = ""
    for char in text:
        if char == "\n":
            yield from (word, "\n") if word else ("\n",)
            word = ""
            continue
        if (char == " " and word.strip(" ")) or cell_width(word) + cell_width(char) > room:
            yield word
            word = ""
        word += char
    if word:
        yield word


def empty(note: str, width: int) -> list[Line]:
    """Why there are no samples."""
    return wrapped(note, width, " ", "dim")


def number(value: float | None) -> str:
    """A reward as people read it."""
    return formats.MISSING if value is None else "NaN" if math.isnan(value) else f"{value:.3g}"


def reward_role(value: float | None) -> Role:
    """Its look: what is no number is a fault, and no reward is told from some."""
    if value is None:
        return "dim"
    return "bad" if math.isnan(value) else "ok" if value > 0 else "attention" if value < 0 else "text"


def _whole(value: int | None) -> str:
    return formats.MISSING if value is None else str(value)
