"""A log, or a piece of one: scroll, follow, search, pan. It shows text and nothing else, whatever was printed."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from typing_extensions import override

from rltui.tui import formats
from rltui.tui.messages import LogEdge
from rltui.tui.spans import Line, Role, Span, clean, clip, line, rule
from rltui.tui.views.parts import log_role
from rltui.tui.widgets.list_pane import ListPane
from rltui.watch.attempt_logs import FIRST_BYTES, MAX_LINES
from rltui.watch.log_folds import fold
from rltui.watch.log_search import LogQuery
from rltui.watch.snapshots import ALL_LOGS, LogPart, LogSnapshot, RunSnapshot


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


NOTHING = LogQuery("")
"""No search."""


class LogPane(ListPane):
    """The tail of a log of the open run, or the piece of one that evidence is in."""

    has_cursor = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.lines: tuple[str, ...] = ()
        self.part: LogPart | None = None
        self.following = True
        self.is_raw = False
        """Whether what says the same is shown as often as it was printed, as it always is where something is sought."""
        self._all: tuple[str, ...] = ()  # the lines before what says the same was put together
        self._firsts: Sequence[int] = ()  # of each shown line, the first of these that it stands for
        self._name = ""
        self._is_live = True
        self._expected = ""
        self._tail: LogSnapshot | None = None
        self._is_tail = False
        self.sought = NOTHING
        self._sought_from = (0, True)  # where the view stood, and whether it followed, before a search was typed
        self.note = ""
        """What is known of hits beyond these lines."""
        self.hit: int | None = None
        self._hits: list[int] = []
        self._reveal = False  # the hit is brought into sight when the pane is drawn: only then its height is known

    def show(self, snapshot: RunSnapshot) -> None:
        """Take the newest tail; a view that does not follow stays at its lines, and a piece stays as it is."""
        was_live, self._is_live = self._is_live, snapshot.summary.is_live
        self._tail = snapshot.log
        if self.part is not None:
            return
        before = self._all
        if before is snapshot.log.lines and (self._name, was_live) == (snapshot.log.name, self._is_live):
            return
        if self._name != snapshot.log.name:
            self._name, before, self.following = snapshot.log.name, (), True
        self._is_tail = is_tail(snapshot.log.lines, snapshot.log.offset)
        self._put(snapshot.log.lines, dropped(before, snapshot.log.lines))
        self.repaint()

    def _put(self, lines: tuple[str, ...], gone: int = 0) -> None:
        """Show ``lines``, of which ``gone`` that stood before the first are no longer there; the view stays."""
        top = self._first_of(self.top) - gone
        hit = None if self.hit is None else self._first_of(self.hit) - gone
        self._all = lines
        if self.is_raw or self.sought.pattern or (self.part is not None and self.part.line):
            self.lines, self._firsts = lines, range(len(lines))
        else:
            folds = fold(lines)
            self.lines, self._firsts = tuple(one.shown for one in folds), [one.first for one in folds]
        self.top = max(0, self._shown_as(top))
        self.hit = None if hit is None or hit < 0 else self._shown_as(hit)
        self._hits = hits(self.lines, self.sought) if not self.sought.is_limited else []

    def _first_of(self, index: int) -> int:
        return self._firsts[index] if 0 <= index < len(self._firsts) else index

    def _shown_as(self, index: int) -> int:
        """The shown line that a line is part of."""
        return bisect_right(self._firsts, index) - 1

    def do_fold(self) -> None:
        """Show what says the same as one line, or as often as it was printed."""
        self.is_raw = not self.is_raw
        self._put(self._all)
        self.repaint()

    def expect(self, name: str, line: int = 0) -> None:
        """Say that a piece is being read."""
        self._expected = f"reading {self._name_of(name)}{f':{line}' if line else ''} {self.glyphs.ellipsis}"
        self.repaint()

    def expect_nothing(self) -> None:
        """What was being read will not come."""
        self._expected = ""
        self.repaint()

    def show_part(self, part: LogPart, query: LogQuery = NOTHING) -> None:
        """Show a piece of a log, with the line that was asked for in its middle; it may be a hit of a search."""
        self.part, self._expected, self.sought = part, "", query
        self.hit, self.following, self.panned = None, False, 0
        self._put(part.lines)
        self.hit = min(max(0, part.line - part.first_line), len(part.lines) - 1) if part.lines else None
        self.top, self._reveal = 0, True
        self.repaint()

    def show_piece(self, part: LogPart, step: int, found: frozenset[tuple[str, int]] = frozenset()) -> None:
        """Show a piece of the stream: on from the first (-1) or last (1) line that was shown, or (0) around a hit.

        Args:
            part: The piece.
            step: Where one goes.
            found: Log and offset of what a search has found.
        """
        from_tail, shown = self.part is None, self._all
        self.part, self._expected, self.hit, self.following = part, "", None, False
        self._put(part.lines)
        self._hits = [index for index, place in enumerate(part.places) if place in found]
        here = part.here
        if from_tail and step < 0 and shown:
            here = next((row for row in range(len(part.lines) - 1, -1, -1) if part.lines[row] == shown[0]), here)
        row = self._shown_as(here)
        self.top = max(0, row - self.room // 2 if step < 0 else row - self.room + 1 + self.room // 2)
        if not step:
            self.hit, self._reveal = (row if part.lines else None), True
        self.repaint()

    def leave_part(self) -> None:
        """Go back from a part within the log to its tail, and follow it."""
        self._expected = ""
        if self.part is not None:
            self.part, self.hit, self.following = None, None, True
            self._put(self._tail.lines if self._tail is not None else ())
        self.repaint()

    def build(self) -> Sequence[Line]:
        """The end where the log is followed, else the lines that were there."""
        if self.following:
            self.top = max(0, len(self.lines) - self.room)
        elif self._reveal and self.hit is not None and not self.top <= self.hit < self.top + self.room:
            self.top = max(0, self.hit - self.room // 2)
        self._reveal = False
        return super().build()

    def do_follow(self) -> None:
        """Stay at the end, or stop doing so; from a piece, back to the tail."""
        if self.part is not None:
            self.leave_part()
            return
        self.following = not self.following
        self.repaint()

    def go_to(self, index: int) -> None:
        """Going up leaves the end; going to the end follows again."""
        end = max(0, len(self.lines) - self.room)
        self.following = index >= end and self.part is None
        super().go_to(index)
        self.repaint()

    def move(self, rows: int) -> None:
        """Scroll; at the first line of a piece, or the last, on beyond it."""
        before = self.top
        super().move(rows)
        can_go_on = self._is_tail or self._name == ALL_LOGS if self.part is None else bool(self.part.top)
        if before == self.top and can_go_on and not self._expected and (rows < 0 or self.part is not None):
            self.post_message(LogEdge(-1 if rows < 0 else 1))

    def search(self, query: LogQuery) -> int:
        """Mark what a search means and show the last such line, or where it was begun; the number found comes back."""
        if not self.sought.pattern:
            self._sought_from = (self.top, self.following)
        self.sought, self.note = query, ""
        self.hit = None
        self._put(self._all)
        if not self.step(-1, from_line=len(self.lines)) and query.pattern:
            self.top, self.following = self._sought_from
        self.repaint()
        return len(self._hits)

    @property
    def is_piece(self) -> bool:
        """Whether the log has more lines than these."""
        return self._is_tail or self.part is not None or self.sought.is_limited or self._name == ALL_LOGS

    def step(self, step: int, from_line: int | None = None, around: bool = True) -> bool:
        """Go to the next hit (1) or the one before (-1); whether there is one."""
        at = from_line if from_line is not None else self.hit if self.hit is not None else self.top
        found = next_hit(self._hits, at, step, around)
        if found is not None:
            self.hit = found
            self.following = False
            self._reveal = True
            self.repaint()
        return found is not None

    def tell(self, note: str) -> None:
        """Say in the head what is known of hits beyond these lines."""
        self.note = note
        self.repaint()

    @property
    def line_to_copy(self) -> str:
        """The line of the hit, or the last one that can be seen."""
        index = self.hit if self.hit is not None else min(len(self.lines), self.top + self.room) - 1
        return self.lines[index] if 0 <= index < len(self.lines) else ""

    def head(self) -> Sequence[Line]:
        """The rule: which log, what is searched, and whether the end is followed."""
        glyphs = self.glyphs
        left: list[Span] = [(self._title(), "title")]
        if self.sought.pattern:
            words = self.sought.text
            left += [(f" {glyphs.dot} ", "dim"), (clip(words, 24), "match")]
            where = f"here, {self.note}" if self.note else f"line{'s' * (len(self._hits) != 1)}"
            left.append((f" {len(self._hits)} {where}", "dim"))
            if not self._hits and self.is_piece and not self.note:
                left.append((" in this part", "attention"))
        last = min(len(self.lines), self.top + self.room)
        where = f"{last}/{len(self.lines)}"
        if self._is_tail and self.part is None and self._tail is not None:
            where += f" {glyphs.dot} end of {formats.size(self._tail.offset) if self._tail.offset else 'the logs'}"
        right: tuple[Span, ...] = ((f"{where}  ", "dim"), ("follow", "ok") if self.following else ("F follows", "dim"))
        if self.part is not None:
            right = (("F back to the end", "dim"),)
        if self._expected:
            right = ((self._expected, "waiting"),)
        return [rule(left, right, self.size.width, glyphs)]

    def _title(self) -> str:
        if self.part is None:
            return self._name_of(self._name or "")
        return f"{self.part.name}:{self.part.line}" if self.part.line else f"{self._name_of(self.part.name)}, a part"

    @staticmethod
    def _name_of(name: str) -> str:
        return "all logs" if name == ALL_LOGS else name or "log"

    @property
    def room(self) -> int:
        """Rows that can be seen at once."""
        return max(1, self.size.height - 1)

    @override
    def count(self) -> int:
        return len(self.lines)

    def row(self, index: int) -> Line:
        """One line of the log."""
        text = self.lines[index]
        here = self.glyphs.cursor if index == self.hit else " "
        number = f"{self.part.first_line + index:>7} " if self.part is not None and self.part.line else ""
        shown = text[self.panned :] if self.panned else text
        room = self.size.width - 1 - len(number)
        return line(
            (here, "accent"),
            (number, "dim"),
            *marked(shown, self.sought.words, log_role(text), room, self.glyphs.ellipsis),
            selected=self.part is not None and index == self.hit,
        )

    def empty(self) -> Sequence[Line]:
        """What an empty log says."""
        nothing = "nothing has been printed yet" if self._is_live else "nothing was printed"
        return [line((f" {nothing if self.part is None else 'there is no such line'}", "dim"))]
