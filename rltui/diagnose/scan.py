"""One pass over a log of any size: finds the lines that any sign may match, and asks the signs.

Logs repeat themselves. So each block is first reduced to its words (everything but letters becomes a space), and lines
that differ only in numbers become equal; a line whose words were seen before costs one look into a table. Only lines
with a key word of some sign are cleaned and matched. Memory is bounded whatever the input: a window of the file, a
bounded table, and a bounded number of sightings of each cause.
"""

from __future__ import annotations

import string
from typing import TYPE_CHECKING, NamedTuple

from rltui.diagnose.index import leads_by_word
from rltui.diagnose.lines import clean
from rltui.diagnose.metrics_watch import MetricsWatch
from rltui.diagnose.signs import Sighting, is_possible, seen
from rltui.diagnose.spots import Patience, Spot
from rltui.diagnose.verdicts import Evidence

if TYPE_CHECKING:
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
MOST_LINES_AROUND = 200_000
MEMO_BYTES = 1 << 24

_WORDS_ONLY = bytes(
    ord(letter.lower()) if letter in string.ascii_letters else 10 if letter == "\n" else 32
    for letter in map(chr, range(256))
)
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
        self._memo: dict[bytes, Candidate | None] = {}
        self._memo_bytes = 0
        self._sources = 0

    def scan(self, source: Source) -> None:
        """Read ``source`` to its end."""
        pass_ = _Pass(source.name, self._sources, self)
        self._sources += 1
        for block in source.blocks:
            for start in range(0, len(block), STEP_BYTES):
                pass_.add(block[start : start + STEP_BYTES])
        pass_.finish()
        self.notebook.lines += pass_.lines

    def candidates(self, words_of_lines: list[bytes]) -> dict[bytes, Candidate | None]:
        """Return what the lines may be, by their words; holds at least the given ones."""
        fresh = set(words_of_lines).difference(self._memo)
        if not fresh:
            return self._memo
        if self._memo_bytes > MEMO_BYTES:
            self._memo, self._memo_bytes = {}, 0
            fresh = set(words_of_lines)
        table = leads_by_word()
        for line in fresh:
            self._memo[line] = _classify(line, table)
            self._memo_bytes += len(line) + 100
        return self._memo

    def narrow(self, words: bytes, candidate: Candidate, lowered: str, text: str) -> None:
        """Remember which signs are possible for lines with these words, now that one of them was seen."""
        signs = tuple(sign for sign in candidate.signs if is_possible(sign, lowered, text))
        useful = signs or candidate.is_metric
        self._memo[words] = candidate._replace(signs=signs, is_tried=True) if useful else None


def _classify(line: bytes, table: dict[bytes, tuple[Lead, ...]]) -> Candidate | None:
    words = frozenset(line.split())
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

    def __init__(self, name: str, source: int, scanner: Scanner) -> None:
        self.name = name
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
        lines = self.window[self.done : limit].translate(_WORDS_ONLY).split(b"\n")
        candidates = self.scanner.candidates(lines)
        offset = self.done
        for count, words in enumerate(lines):
            candidate = candidates[words]
            if candidate is not None and (candidate.signs or candidate.has_nan or self.watch.is_open):
                extent = Extent(offset, offset + len(words), self.lines + count + 1, is_last)
                self._ask_line(candidate, words, extent)
            offset += len(words) + 1
        self.lines += len(lines) - 1
        self.done = limit

    def _ask_line(self, candidate: Candidate, words: bytes, extent: Extent) -> None:
        raw = self.window[extent.start : extent.end]
        if len(raw) <= PIECE_BYTES and b"\r" not in raw[:-1]:
            self._ask(candidate, words, raw, extent)
            return
        for piece in _pieces(raw):
            words = raw[piece].translate(_WORDS_ONLY)
            of_piece = self.scanner.candidates([words])[words]
            if of_piece is not None:
                start, end = extent.start + piece.start, extent.start + piece.stop
                self._ask(of_piece, words, raw[piece], extent._replace(start=start, end=end))

    def _ask(self, candidate: Candidate, words: bytes, raw: bytes, extent: Extent) -> None:
        line = clean(raw, extent.number)
        lowered = line.text.lower()
        if not candidate.is_tried:
            self.scanner.narrow(words, candidate, lowered, line.text)
        if candidate.is_metric:
            self.watch.feed(line, self.scanner.notebook.lines + extent.number)
        spot = Spot(line, self.window, extent.start, extent.end, extent.is_last, self.patience)
        for sign in candidate.signs:
            reading = seen(sign, spot) if sign.anchor in lowered else None
            if reading is not None:
                self._note(reading.cause, reading.confidence, line, reading.fields)

    def _note(self, cause: str, confidence: float, line: Line, fields: dict[str, str]) -> None:
        evidence = Evidence(
            file=self.name,
            line=line.number,
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
