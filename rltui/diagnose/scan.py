"""One pass over a log of any size: finds the lines that any sign may match, and asks the signs.

Logs repeat themselves. So each block is first reduced to its words (everything but letters becomes a space), and lines
that differ only in numbers become equal; a line whose words were seen before costs one look into a table. Only lines
with a key word of some sign are cleaned and matched. Memory is bounded whatever the input: a window of the file, a
bounded table, and a bounded number of sightings of each cause.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from rltui.diagnose.index import leads_by_word
from rltui.diagnose.lines import clean, shows_data
from rltui.diagnose.metrics_watch import MetricsWatch
from rltui.diagnose.signs import Sighting, is_possible, seen
from rltui.diagnose.spots import Patience, Spot
from rltui.diagnose.verdicts import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltui.diagnose.index import Lead
    from rltui.diagnose.lines import Line
    from rltui.diagnose.signs import Sign
    from rltui.diagnose.sources import Source

BEHIND_BYTES = 1 << 16
"""What stays readable before a line: longer than any traceback."""

AHEAD_BYTES = 1 << 14
"""What has to be there after a line before it is looked at, unless the file ends."""

STEP_BYTES = 1 << 20
PIECE_BYTES = 4096
OVERLAP_BYTES = 512
"""A longer line is looked at in pieces, as if each were a line."""

MOST_SIGHTINGS = 200
MOST_FINDS = 20_000
"""What was found so often in one log set is known, and its signs are asked no more."""

MOST_LINES_AROUND = 200_000
MEMO_BYTES = 1 << 24

_WORDS_ONLY = bytes(
    ord(letter.lower()) if letter in string.ascii_letters else 10 if letter == "\n" else 32
    for letter in map(chr, range(256))
)
_GLUED_ESCAPE = re.compile(rb"\x1b\[[0-9;?]{0,16}[A-Za-z](?=[A-Za-z])")
_GLUED_WRITTEN_OUT = re.compile(rb"\[[0-9;]{1,16}m(?=[A-Za-z])")
_METRIC_WORDS = frozenset((b"loss", b"norm", b"gradnorm"))
_NOT_FINITE = frozenset((b"nan", b"inf", b"infinity"))


class Candidate(NamedTuple):
    """What lines with certain words may be: signs of causes, a step's metrics, metrics with NaN among them.

    ``is_tried``: whether a line with these words was looked at, and signs that cannot match any were left out.
    """

    signs: tuple[Sign, ...]
    is_metric: bool
    has_nan: bool
    is_tried: bool = False


class Extent(NamedTuple):
    """Where a line (or a piece of one) is in the window, its number, and whether the window ends with the file."""

    start: int
    end: int
    number: int
    is_last: bool


class Notebook:
    """What was seen so far in all sources.

    Attributes:
        sightings: By cause or state, oldest first; of more than ``MOST_SIGHTINGS`` the first ones and the last.
        lines: Lines read of all sources.
    """

    def __init__(self) -> None:
        self.sightings: dict[str, list[Sighting]] = {}
        self.lines = 0

    def note(self, sighting: Sighting) -> None:
        """Add a sighting."""
        known = self.sightings.setdefault(sighting.cause, [])
        if len(known) >= MOST_SIGHTINGS:
            known.pop()
        known.append(sighting)


class Scanner:
    """Reads sources one after the other into one notebook."""

    def __init__(self) -> None:
        self.notebook = Notebook()
        self.found: Counter[str] = Counter()
        """How often signs were found, by cause or state."""
        self._memo: dict[bytes, Candidate | None] = {}
        self._memo_bytes = 0
        self._sources = 0

    def scan(self, source: Source) -> None:
        """Read ``source`` to its end."""
        pass_ = _Pass(source, self._sources, self)
        self._sources += 1
        for block in source.blocks:
            for start in range(0, len(block), STEP_BYTES):
                pass_.add(block[start : start + STEP_BYTES])
        pass_.finish()
        self.notebook.lines += pass_.lines

    def may_ask(self, cause: str) -> bool:
        """Whether signs of ``cause`` are still worth their time."""
        return self.found[cause] < MOST_FINDS

    def candidates(self, words_of_lines: Iterable[bytes]) -> dict[bytes, Candidate | None]:
        """Return what the lines may be, by their words; holds at least the given ones."""
        words_of_lines = set(words_of_lines)
        fresh = words_of_lines.difference(self._memo)
        if not fresh:
            return self._memo
        if self._memo_bytes > MEMO_BYTES:
            self._memo, self._memo_bytes = {}, 0
            fresh = words_of_lines
        table = leads_by_word()
        keys = key_words_of_lines()
        for line in fresh:
            words = line.split()
            self._memo[line] = None if keys.isdisjoint(words) else _classify(words, table)
        self._memo_bytes += sum(map(len, fresh)) + 100 * len(fresh)
        return self._memo

    def narrow(self, words: bytes, candidate: Candidate, lowered: str, text: str) -> None:
        """Remember which signs are possible for lines with these words, now that one of them was seen."""
        signs = tuple(sign for sign in candidate.signs if is_possible(sign, lowered, text))
        useful = signs or candidate.is_metric
        self._memo[words] = candidate._replace(signs=signs, is_tried=True) if useful else None


@cache
def key_words_of_lines() -> frozenset[bytes]:
    """Return the words without which a line is nothing to anybody."""
    return frozenset(leads_by_word()) | _METRIC_WORDS


def _classify(words_of_line: list[bytes], table: dict[bytes, tuple[Lead, ...]]) -> Candidate | None:
    words = frozenset(words_of_line)
    keys = table.keys() & words
    is_metric = not _METRIC_WORDS.isdisjoint(words)
    if not keys and not is_metric:
        return None
    leads = {id(lead.sign): lead for key in sorted(keys) for lead in table[key]}
    signs = tuple(lead.sign for lead in leads.values() if lead.needed <= words)
    if not signs and not is_metric:
        return None
    return Candidate(signs, is_metric, is_metric and not _NOT_FINITE.isdisjoint(words))


class _Pass:
    """The reading of one source: a window that moves over it."""

    def __init__(self, log: Source, source: int, scanner: Scanner) -> None:
        self.log = log
        self.source = source
        self.scanner = scanner
        self.watch = MetricsWatch()
        self.patience = Patience(MOST_LINES_AROUND)
        self.window = b""
        self.done = 0
        """Bytes of the window that were looked at."""
        self.lines = 0
        """Line ends before ``done``."""

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
        """Look at the rest."""
        if self.done < len(self.window):
            self._look(len(self.window), is_last=True)
        for lapse in self.watch.lapses()[:8]:
            fields = {"metric": lapse.name, "value": lapse.value, "length": str(lapse.length)}
            self._note("nan_metric", lapse.confidence, lapse.line, fields)
        self.window = b""

    def _look(self, limit: int, is_last: bool) -> None:
        lines = _words_only(self.window[self.done : limit]).split(b"\n")
        wanted = self._wanted(lines)
        if wanted:
            starts = accumulate((len(words) + 1 for words in lines), initial=self.done)
            for number, (words, start) in enumerate(zip(lines, starts, strict=False), start=self.lines + 1):
                # what was wanted at the start of the block may have been narrowed to nothing since
                candidate = self.scanner.candidates([words])[words] if words in wanted else None
                if candidate is not None:
                    self._ask_line(candidate, words, Extent(start, start + len(words), number, is_last))
        self.lines += len(lines) - 1
        self.done = limit

    def _wanted(self, lines: list[bytes]) -> set[bytes]:
        """Return which lines, by their words, have to be looked at; in most blocks of most logs there are none."""
        distinct = set(lines)
        candidates = self.scanner.candidates(distinct)
        found = {words: candidate for words in distinct if (candidate := candidates[words]) is not None}
        # a value that is not finite is followed until finite ones come, so then all metrics matter
        any_nan = self.watch.is_open or any(candidate.has_nan for candidate in found.values())
        return {words for words, candidate in found.items() if candidate.signs or (any_nan and candidate.is_metric)}

    def _ask_line(self, candidate: Candidate, words: bytes, extent: Extent) -> None:
        raw = self.window[extent.start : extent.end]
        if len(raw) <= PIECE_BYTES and b"\r" not in raw[:-1]:
            self._ask(candidate, words, raw, extent)
            return
        for piece in _pieces(raw):
            words = _words_only(raw[piece])
            of_piece = self.scanner.candidates([words])[words]
            if of_piece is not None:
                start, end = extent.start + piece.start, extent.start + piece.stop
                self._ask(of_piece, words, raw[piece], extent._replace(start=start, end=end))

    def _ask(self, candidate: Candidate, words: bytes, raw: bytes, extent: Extent) -> None:
        possible = [sign for sign in candidate.signs if self.scanner.may_ask(sign.cause)]
        if not possible and not candidate.is_metric:
            return
        line = clean(raw, extent.number)
        lowered = line.text.lower()
        if not candidate.is_tried:
            self.scanner.narrow(words, candidate, lowered, line.text)
        if candidate.is_metric:
            self.watch.feed(line, self.scanner.notebook.lines + extent.number)
        spot = Spot(line, self.window, extent.start, extent.end, extent.is_last, self.patience)
        signs = [sign for sign in possible if sign.anchor in lowered]
        if not signs or shows_data(line.text):
            return
        for sign in signs:
            reading = seen(sign, spot)
            if reading is not None:
                self.scanner.found[sign.cause] += 1
                self._note(reading.cause, reading.confidence, line, reading.fields)

    def _note(self, cause: str, confidence: float, line: Line, fields: dict[str, str]) -> None:
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
        order = self.scanner.notebook.lines + line.number
        sighting = Sighting(
            cause=cause, confidence=confidence, evidence=evidence, order=order, source=self.source, fields=fields
        )
        self.scanner.notebook.note(sighting)


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
