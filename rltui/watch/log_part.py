"""A piece of a log around one line, wherever in the file it stands: evidence can be read in its place."""

from __future__ import annotations

import gzip
import io
import posixpath
import zlib
from collections import deque
from collections.abc import Iterator

from msgspec import structs

from rltui.cluster.relay_client import RelayClient, pieces
from rltui.errors import RltuiError
from rltui.watch.snapshots import LogPart
from rltui.watch.text import plain_line

BEFORE, AFTER = 500, 1500
"""Lines of the piece before and behind the wanted one."""

MAX_PACKED_BYTES = 64 << 20
MAX_UNPACKED_BYTES = 256 << 20
MAX_LINE_BYTES = 1 << 16


AROUND_BYTES = 256 << 10
"""What is read on either side of a line of which is known where it begins."""


def read_part(client: RelayClient, attempt: str, name: str, line: int, offset: int | None = None) -> LogPart:
    """Read the piece of the log ``name`` (a path below ``attempt``) around ``line``, counted from 1.

    Args:
        client: The relay of the cluster.
        attempt: The attempt's directory.
        name: The log.
        line: The line.
        offset: Where it begins; None: the file is read from its start, a chunk at a time, as only that tells.

    Raises:
        RltuiError: There is no such log, or the cluster is away.
    """
    if posixpath.isabs(name) or ".." in name.split("/"):
        raise RltuiError(f"{name!r} is no log of this run.")
    if offset is not None:
        return _around(client, f"{attempt}/{name}", LogPart(name=name, line=line), offset)
    blocks: Iterator[bytes] = (chunk.data for chunk in pieces(client, f"{attempt}/{name}"))
    if name.endswith(".gz"):
        blocks = iter([_unpacked(b"".join(_at_most(blocks, MAX_PACKED_BYTES)))])
    kept: deque[bytes] = deque(maxlen=BEFORE + AFTER + 1)
    number = 0
    for number, raw in enumerate(_lines(blocks), start=1):
        kept.append(raw)
        if number >= max(1, line) + AFTER:
            break
    first = number - len(kept) + 1 if kept else 1
    return LogPart(name=name, line=line, first_line=first, lines=tuple(plain_line(raw) for raw in kept))


def _around(client: RelayClient, path: str, part: LogPart, offset: int) -> LogPart:
    start = max(0, offset - AROUND_BYTES)
    data = client.read(path, start, offset - start + AROUND_BYTES).data
    first = data.find(b"\n", 0, offset - start) + 1 if start else 0
    before = data[first : offset - start]
    lines = list(_lines(iter([data[first:]])))
    return structs.replace(
        part, first_line=part.line - before.count(b"\n"), lines=tuple(plain_line(raw) for raw in lines)
    )


def _at_most(blocks: Iterator[bytes], limit: int) -> Iterator[bytes]:
    for block in blocks:
        yield block
        limit -= len(block)
        if limit <= 0:
            return


def _unpacked(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return stream.read(MAX_UNPACKED_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise RltuiError(f"The log cannot be unpacked: {error}.") from error


def _lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The lines of a file, each cut at ``MAX_LINE_BYTES``: a progress bar may be one line of gigabytes."""
    rest = b""
    for block in blocks:
        head, *lines = block.split(b"\n")
        rest = (rest + head[:MAX_LINE_BYTES])[:MAX_LINE_BYTES]
        for line in lines:
            yield rest
            rest = line[:MAX_LINE_BYTES]
    if rest:
        yield rest
