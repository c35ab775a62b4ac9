"""One pass over a log of any size: finds the lines that may word any cause, and asks the rules.

Logs repeat themselves. So each block is first reduced to its words (everything but letters becomes a space), and lines
that differ only in numbers become equal; a line whose words were seen before costs one look into a table. Only lines
with a key word of some rule are cleaned and matched. Memory is bounded whatever the input: a window of the file, a
bounded table, and a bounded number of matches of each cause.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from rltui.diagnose.context import Context, LineBudget
from rltui.diagnose.index import rules_by_word
from rltui.diagnose.json_lines import CONTINUES, unwrapped
from rltui.diagnose.lines import FRAME_BEGINS, clean, learned_prefix, shared_head, shows_data
from rltui.diagnose.matches import Match, Matches
from rltui.diagnose.metrics_watch import MetricsWatch
from rltui.diagnose.progress import ALIVE, SERVES, serves, sign_of_life
from rltui.diagnose.verdicts import Evidence
from rltui.diagnose.wording import is_possible, read

if TYPE_CHECKING:
    from rltui.diagnose.index import Rule
    from rltui.diagnose.lines import Line
    from rltui.diagnose.sources import Source

BEHIND_BYTES = 1 << 16
"""What stays readable before a line: longer than any traceback."""

AHEAD_BYTES = 1 << 14
"""What has to be there after a line before it is looked at, unless the file ends."""

END_BYTES = 1 << 13
"""Of each source so much of its end is kept, for the case that nothing is found."""

STEP_BYTES = 1 << 20
PIECE_BYTES = 4096
OVERLAP_BYTES = 512
"""A longer line is looked at in pieces, as if each were a line."""

MOST_FINDS = 20_000
"""What was found so often in one log set is known, and its rules are asked no more."""

MOST_LINES_AROUND = 200_000
MOST_PREFIXES = 8
"""Prefixes that one source's lines may have beside those that are known."""

LINES_SAMPLED = 200
"""Lines of a block that are compared to find how all of them begin."""

_WORDS_OF_PLACES = frozenset((b"node", b"gpu", b"rank", b"worker", b"engine", b"stderr"))
"""Words that causes are known by and that nevertheless only say where a line is from, if all lines begin with them."""

CONTEXT_CHARACTERS = 80

MEMO_BYTES = 1 << 24

_WORDS_ONLY = bytes(
    ord(letter.lower()) if letter in string.ascii_letters else 10 if letter == "\n" else 32
    for letter in map(chr, range(256))
)
_GLUED_ESCAPE = re.compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z](?=[A-Za-z])")
_GLUED_WRITTEN_OUT = re.compile(rb"\[[0-9;]{1,16}m(?=[A-Za-z])")
_KINDS_OF_EXCEPTIONS = (b"error", b"exception")
_METRIC_WORDS = frozenset((b"loss", b"norm", b"gradnorm"))
_NOT_FINITE = frozenset((b"nan", b"inf", b"infinity"))


class LineKind(NamedTuple):
    """What lines with certain words may be: wordings of causes, a step's metrics, metrics with NaN among them.

    ``is_tried``: whether a line with these words was looked at, and rules that cannot match any were left out.
    """

    rules: tuple[Rule, ...]
    is_metric: bool
    has_nan: bool
    is_tried: bool = False


class Extent(NamedTuple):
    """Where a line (or a piece of one) is in the window, and its number.

    ``added``: how many of the lines up to this one are no lines of the file but further ones of a record.
    """

    start: int
    end: int
    number: int
    added: int


class Scanner:
    """Reads sources one after the other into one set of matches."""

    def __init__(self) -> None:
        self.matches = Matches()
        self.found: Counter[str] = Counter()
        """How often rules matched, by cause or state."""
        self.ends: list[bytes] = []
        """The end of each source."""
        self.last_lines: list[int] = []
        """The place of each source's last line among all lines."""
        self._memo: dict[bytes, LineKind | None] = {}
        self._memo_bytes = 0
        self._sources = 0

    def scan(self, source: Source) -> None:
        """Read ``source`` to its end."""
        pass_ = _Pass(source, self._sources, self)
        self._sources += 1
        for block in unwrapped(source.blocks) if source.has_records else source.blocks:
            for start in range(0, len(block), STEP_BYTES):
                pass_.add(block[start : start + STEP_BYTES])
        pass_.finish()
        self.matches.lines += pass_.lines
        self.last_lines.append(self.matches.lines)

    def may_ask(self, cause: str) -> bool:
        """Whether rules of ``cause`` are still worth their time."""
        return self.found[cause] < MOST_FINDS

    def kinds(self, words_of_lines: Iterable[bytes]) -> dict[bytes, LineKind | None]:
        """Return what the lines may be, by their words; holds at least the given ones."""
        words_of_lines = set(words_of_lines)
        fresh = words_of_lines.difference(self._memo)
        if not fresh:
            return self._memo
        if self._memo_bytes > MEMO_BYTES:
            self.forget()
            fresh = words_of_lines
        table = rules_by_word()
        keys = key_words_of_lines()
        for line in fresh:
            words = words_of(line)
            self._memo[line] = None if keys.isdisjoint(words) else _classify(words, table)
        self._memo_bytes += sum(map(len, fresh)) + 100 * len(fresh)
        return self._memo

    def forget(self) -> None:
        """Look at all lines anew, as they are read in another way."""
        self._memo, self._memo_bytes = {}, 0

    def narrow(self, words: bytes, kind: LineKind, lowered: str, text: str) -> None:
        """Remember which rules are possible for lines with these words, now that one of them was seen."""
        rules = tuple(rule for rule in kind.rules if is_possible(rule.wording, lowered, text))
        useful = rules or kind.is_metric
        self._memo[words] = kind._replace(rules=rules, is_tried=True) if useful else None


def words_of(line: bytes) -> list[bytes]:
    """Return the words of a line; the name of any exception (``blockingioerror``) counts as the word it ends in too."""
    words = line.split()
    if b"error" not in line and b"exception" not in line:
        return words
    return [*words, *(kind for kind in _KINDS_OF_EXCEPTIONS if any(word.endswith(kind) for word in words))]


@cache
def key_words_of_lines() -> frozenset[bytes]:
    """Return the words without which a line is nothing to anybody."""
    return frozenset(rules_by_word()) | _METRIC_WORDS


def _classify(words_of_line: list[bytes], table: dict[bytes, tuple[Rule, ...]]) -> LineKind | None:
    words = frozenset(words_of_line)
    keys = table.keys() & words
    is_metric = not _METRIC_WORDS.isdisjoint(words)
    if not keys and not is_metric:
        return None
    found = {id(rule): rule for key in sorted(keys) for rule in table[key]}
    rules = tuple(rule for rule in found.values() if rule.needed <= words)
    if not rules and not is_metric:
        return None
    return LineKind(rules, is_metric, is_metric and not _NOT_FINITE.isdisjoint(words))


class _Pass:
    """The reading of one source: a window that moves over it."""

    def __init__(self, log: Source, source: int, scanner: Scanner) -> None:
        self.log = log
        self.source = source
        self.scanner = scanner
        self.watch = MetricsWatch()
        self.budget = LineBudget(MOST_LINES_AROUND)
        self.learned: list[re.Pattern[str]] = []
        self.window = b""
        self.done = 0
        """Bytes of the window that were looked at."""
        self.lines = 0
        """Line ends before ``done``."""
        self.added = 0
        """How many lines before ``done`` are further ones of a record."""

    def add(self, block: bytes) -> None:
        """Take the next block, and look at what has enough text after it."""
        self.window += block
        if len(self.window) - self.done < STEP_BYTES:
            return
        limit = self.window.rfind(b"\n", self.done, len(self.window) - AHEAD_BYTES) + 1
        if limit <= self.done:  # a line longer than a step: taken as it comes
            limit = len(self.window) - AHEAD_BYTES
        self._look(limit, is_last=False)
        keep = max(0, limit - BEHIND_BYTES)
        self.window, self.done = self.window[keep:], limit - keep

    def finish(self) -> None:
        """Look at the lines that are left, and note the numbers of training that went bad."""
        if self.done < len(self.window):
            self._look(len(self.window), is_last=True)
        for lapse in self.watch.lapses()[:8]:
            fields = {"metric": lapse.name, "value": lapse.value, "length": str(lapse.length)}
            self._note("nan_metric", lapse.confidence, lapse.line, fields)
        self._see_life()
        self.scanner.ends.append(self.window[-END_BYTES:])
        self.window = b""

    def _see_life(self) -> None:
        """Note where the end of the log shows the run at work, if anything in it may have ended the run."""
        if not self.scanner.matches.by_cause:
            return
        end = self.window[-END_BYTES:].split(b"\n")
        first = self.lines + 2 - len(end)
        lines = [clean(raw, first + index, self.learned) for index, raw in enumerate(end)]
        texts = [line.text for line in lines]
        for sign, index in ((ALIVE, sign_of_life(texts)), (SERVES, serves(texts))):
            if index is not None:
                self._note(sign, 1.0, lines[index], {})

    def _learn_prefixes(self, limit: int) -> None:
        """Take what stands before the first frames of the next block for a prefix of all lines."""
        at = self.done
        for _ in range(MOST_PREFIXES - len(self.learned)):
            at = self.window.find(FRAME_BEGINS.encode(), at, limit)
            if at < 0:
                return
            start, end = self.window.rfind(b"\n", 0, at) + 1, self.window.find(b"\n", at)
            if end < 0:
                return
            after = self.window.find(b"\n", end + 1)
            two = (self.window[start:end], self.window[end + 1 : after if after >= 0 else len(self.window)])
            prefix = learned_prefix(*(clean(raw, 1, self.learned).text for raw in two))
            if prefix is not None:
                self.learned.append(prefix)
                self.scanner.forget()
            at = end

    def _learn_heads(self, lines: list[bytes]) -> None:
        """Take what nearly all lines of the next block, here by their words, begin with for a prefix of all lines."""
        starts = accumulate((len(words) + 1 for words in lines), initial=self.done)
        every = 1 + len(lines) // LINES_SAMPLED
        places = list(zip(starts, lines, strict=False))[::every]
        sample = [self.window[start : start + len(words)] for start, words in places]
        telling = key_words_of_lines() - _WORDS_OF_PLACES
        while len(self.learned) < MOST_PREFIXES:
            cleaned = (clean(raw, 1, self.learned).text for raw in sample)
            head = shared_head(cleaned, len(sample), telling)
            if head is None:
                return
            self.learned.append(head)
            self.scanner.forget()

    def _look(self, limit: int, is_last: bool) -> None:
        self._learn_prefixes(limit)
        lines = _words_only(self.window[self.done : limit]).split(b"\n")
        if is_last or not self.lines:  # what writes all lines of a file does so from its start on or up to its end
            self._learn_heads(lines)
        wanted = self._wanted(lines)
        if wanted:
            starts = accumulate((len(words) + 1 for words in lines), initial=self.done)
            added = self.added
            for number, (words, start) in enumerate(zip(lines, starts, strict=False), start=self.lines + 1):
                added += self.window.startswith(CONTINUES, start)
                # what was wanted at the start of the block may have been narrowed to nothing since
                kind = self.scanner.kinds([words])[words] if words in wanted else None
                if kind is not None:
                    self._ask_line(kind, words, Extent(start, start + len(words), number, added))
        self.lines += len(lines) - 1
        # the line that begins at the limit is counted with the next block
        self.added += self.window.startswith(CONTINUES, self.done) + self.window.count(
            b"\n" + CONTINUES, self.done, limit
        )
        self.done = limit

    def _wanted(self, lines: list[bytes]) -> set[bytes]:
        """Return which lines, by their words, have to be looked at; in most blocks of most logs there are none."""
        distinct = set(lines)
        kinds = self.scanner.kinds(distinct)
        found = {words: kind for words in distinct if (kind := kinds[words]) is not None}
        # a value that is not finite is followed until finite ones come, so then all metrics matter
        any_nan = self.watch.is_open or any(kind.has_nan for kind in found.values())
        return {words for words, kind in found.items() if kind.rules or (any_nan and kind.is_metric)}

    def _ask_line(self, kind: LineKind, words: bytes, extent: Extent) -> None:
        raw = self.window[extent.start : extent.end]
        if len(raw) <= PIECE_BYTES and b"\r" not in raw[:-1]:
            self._ask(kind, words, raw, extent)
            return
        for piece in _pieces(raw):
            words = _words_only(raw[piece])
            of_piece = self.scanner.kinds([words])[words]
            if of_piece is not None:
                start, end = extent.start + piece.start, extent.start + piece.stop
                self._ask(of_piece, words, raw[piece], extent._replace(start=start, end=end))

    def _ask(self, kind: LineKind, words: bytes, raw: bytes, extent: Extent) -> None:
        possible = [rule for rule in kind.rules if self.scanner.may_ask(rule.cause)]
        if not possible and not kind.is_metric:
            return
        line = clean(raw, extent.number, self.learned)
        lowered = line.text.lower()
        if not kind.is_tried:
            self.scanner.narrow(words, kind, lowered, line.text.lstrip())
        if kind.is_metric:
            self.watch.feed(line, self.scanner.matches.lines + extent.number)
        context = Context(line, self.window, extent.start, extent.end, self.budget, self.learned)
        rules = [rule for rule in possible if rule.wording.anchor in lowered]
        if not rules or shows_data(line.text):
            return
        for rule in rules:
            reading = read(rule.wording, context)
            if reading is not None:
                self.scanner.found[rule.cause] += 1
                fields = self._in_file(reading.fields, extent)
                text = _telling_part(line.text, lowered, rule.wording.anchor)
                own = structs.replace(line, number=line.number - extent.added, text=text)
                self._note(reading.cause or rule.cause, reading.confidence, own, fields, line.number)

    def _in_file(self, fields: dict[str, str], extent: Extent) -> dict[str, str]:
        """The fields with the number that the line they name has in the file."""
        if "line" not in fields:
            return fields
        below = self.window[extent.start :].split(b"\n", int(fields["lower"]))[1:]
        added = extent.added + sum(line.startswith(CONTINUES) for line in below)
        return {**fields, "line": str(int(fields["line"]) - added)}

    def _note(self, cause: str, confidence: float, line: Line, fields: dict[str, str], place: int = 0) -> None:
        evidence = Evidence(
            file=self.log.name,
            line=line.number if self.log.has_lines else 0,
            text=line.text.strip(),
            rank=fields.get("rank") or line.rank,
            actor=line.actor,
            pid=line.pid,
            node=fields.get("node") or line.node,
            gpu=fields.get("gpu", ""),
            time=line.time,
            repeated=line.repeated,
        )
        order = self.scanner.matches.lines + (place or line.number)
        match = Match(
            cause=cause, confidence=confidence, evidence=evidence, order=order, source=self.source, fields=fields
        )
        self.scanner.matches.note(match)


def _telling_part(text: str, lowered: str, anchor: str) -> str:
    """The line from just before what is known of it: of a long one only the beginning is shown."""
    begins = lowered.find(anchor) - CONTEXT_CHARACTERS
    return f"…{text[begins:].lstrip()}" if begins > CONTEXT_CHARACTERS else text


def _words_only(text: bytes) -> bytes:
    """Return ``text`` with its words in lower case, blanks for all else, and every byte and line where it was."""
    # The letter that ends a colour would become the first one of the word after it. Single bytes are looked for first,
    # as that costs nothing.
    if b"\x1b" in text:
        text = _GLUED_ESCAPE.sub(_without_last, text)
    if (b"^" in text or b"\\" in text) and b"[0m" in text:
        text = _GLUED_WRITTEN_OUT.sub(_without_last, text)
    return text.translate(_WORDS_ONLY)


def _without_last(escape: re.Match[bytes]) -> bytes:
    return escape[0][:-1] + b" "


def _pieces(raw: bytes) -> list[slice]:
    """Cut a line at carriage returns (progress bars), and what is still too long at fixed lengths, overlapping."""
    found: list[slice] = []
    start = 0
    for state in raw.split(b"\r"):
        end = start + len(state)
        while end - start > PIECE_BYTES:
            found.append(slice(start, start + PIECE_BYTES))
            start += PIECE_BYTES - OVERLAP_BYTES
        if start < end:
            found.append(slice(start, end))
        start = end + 1
    return found
