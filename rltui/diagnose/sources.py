"""Where the text of a log comes from: files, gzipped files, standard input, bytes; always as blocks of UTF-8 bytes."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

from msgspec import Struct, structs

from rltui.watch.text import plain

BLOCK_BYTES = 1 << 20

END_BYTES = 2 << 20
"""End of a log that is kept for its steps: some hundred of them."""

_GZIP_MAGIC = b"\x1f\x8b"
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Source(Struct, frozen=True):
    """A log: the name that evidence will carry, and its bytes in blocks of any size.

    Attributes:
        has_lines: Whether line numbers lead somewhere; not so where the text was put together from something else.
        has_records: Whether lines that are JSON are a logger's records. A run's events are not: what they say was so
            at their time.
    """

    name: str
    blocks: Iterable[bytes]
    has_lines: bool = True
    has_records: bool = True


class Ends:
    """Keeps the ends of logs while somebody else reads them: standard input can be read only once.

    Attributes:
        of: The last ``END_BYTES`` of each log that was read, by name.
    """

    def __init__(self) -> None:
        self.of: dict[str, bytes] = {}

    def kept(self, source: Source) -> Source:
        """``source``, whose end is kept when it is read."""
        return structs.replace(source, blocks=self._read(source))

    def _read(self, source: Source) -> Iterator[bytes]:
        for block in source.blocks:
            self.of[source.name] = (self.of.get(source.name, b"") + block)[-END_BYTES:]
            yield block


def text_source(name: str, text: str | bytes, *, has_lines: bool = True) -> Source:
    """Return text at hand as a source; surrogates without a partner, which JSON can bring, become question marks."""
    return Source(plain(name), (text.encode("utf-8", "replace") if isinstance(text, str) else text,), has_lines)


def stream_source(name: str, stream: IO[bytes]) -> Source:
    """Return an open binary stream as a source; it is read once, in order, and unpacked where it is gzip."""
    return Source(plain(name), decoded(iter(lambda: stream.read(BLOCK_BYTES), b"")))


def decoded(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``blocks`` unpacked (gzip) and as bytes in which ASCII is ASCII (UTF-16 and UTF-32 become UTF-8).

    Encodings that keep ASCII (UTF-8, Latin-1, GBK …) pass as they are: what rules look for is ASCII. A damaged or cut
    archive yields what could be read of it.
    """
    iterator = iter(blocks)
    first = next(iterator, b"")
    if first.startswith(_GZIP_MAGIC):
        iterator = _unpacked(first, iterator)
        first = next(iterator, b"")
    encoding = next((name for mark, name in _WIDE if first.startswith(mark)), "") or _guess_wide(first)
    if not encoding:
        yield first
        yield from iterator
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for block in iterator:
        yield decoder.decode(block).encode("utf-8", "replace")


def _guess_wide(block: bytes) -> str:
    # ASCII text in UTF-16 without a mark (PowerShell's `>` before version 6) has a NUL in every second byte; NULs only
    # stand where the log was cut (logrotate's copytruncate) while its writer stayed at its place
    sample = block[:4096]
    half = len(sample) // 2
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    if half < 8 or even + odd > 1.2 * half:
        return ""
    if odd > 0.8 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.8 * half else ""


def _unpacked(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(wbits=31)
    block: bytes | None = first
    while block is not None:
        try:
            data = inflater.decompress(block, BLOCK_BYTES)
        except zlib.error:
            return
        if data:
            yield data
        if inflater.eof and inflater.unused_data:  # members after each other are one file (`cat a.gz b.gz`)
            block, inflater = inflater.unused_data, zlib.decompressobj(wbits=31)
        else:
            block = inflater.unconsumed_tail or next(rest, None)
