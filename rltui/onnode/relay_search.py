"""The relay's ``search``: lines of a file that a pattern finds, a bounded piece of the file for each request."""

import os
import re
from collections import deque
from typing import Callable, Iterator, List, Optional, Pattern, Set, Tuple

from rltui.onnode.relay_files import open_file
from rltui.onnode.relay_request import MIB, Answer, Refusal, Request, count_of, pack, text_of

BLOCK = 4 * MIB
MAX_SCAN = 256 * MIB
MAX_HITS = 10000
MAX_LINE = 8192
"""Bytes of a found line that are given, from a little before what was found."""

BEFORE = 200

Find = Callable[[bytes], Iterator[List[int]]]
"""From a block to start and end of each line that is meant, and where in it that shows."""

Hits = List[List[object]]
_LOOKS_AROUND = re.compile(r"\\[AZ]|\(\?[=!<]")
"""What may find something in a line alone that it does not find among other lines."""


def search(request: Request) -> Answer:
    """Lines with ``pattern`` from ``offset``, the start of a line, on: at most ``limit`` bytes, ``hits`` lines.

    Where ``anchors`` are given, every line that the pattern finds has one of them, and only lines with one are looked
    at: that is as fast as memory is read, and a pattern of several words may be a hundred times slower. With ``newest``
    all of ``limit`` is passed and the last ``hits`` lines of it are given: what stands before these is only counted.

    Gives ``hits`` as ``[number of the line counted from the offset's, where it begins, its bytes]``, where it ended
    (``offset``), how many line ends were passed (``lines``) and the file's ``size``. The next request goes on there.
    """
    find = finder(request)
    start, most = count_of(request, "offset", 0), max(1, min(count_of(request, "hits", 1000), MAX_HITS))
    limit = min(count_of(request, "limit", MAX_SCAN), MAX_SCAN)
    descriptor, found = open_file(request)
    try:
        how = _newest if request.get("newest") else _first
        hits, offset, lines = how(descriptor, start, limit, most, find)
    finally:
        os.close(descriptor)
    return {"hits": hits, "offset": offset, "lines": lines, "size": found.st_size}


def _first(descriptor: int, start: int, limit: int, most: int, find: Find) -> Tuple[Hits, int, int]:
    """The first ``most`` lines that are found, where that ended, and how many line ends were passed."""
    hits: Hits = []
    lines, offset = 0, start
    for block in blocks(descriptor, start, limit):
        end = 0
        for begin, stop, at in find(block):
            lines += block.count(b"\n", end, begin)
            end = begin
            hits.append([lines, offset + begin, *_shown(block, begin, stop, at)])
            if len(hits) >= most:
                lines += 1 if block[stop : stop + 1] else 0
                return hits, offset + min(stop + 1, len(block)), lines
        lines += block.count(b"\n", end)
        offset += len(block)
    return hits, offset, lines


def _newest(descriptor: int, start: int, limit: int, most: int, find: Find) -> Tuple[Hits, int, int]:
    """The last ``most`` lines that are found: line ends are counted first, then blocks searched, the last one first."""
    places: List[Tuple[int, int, int]] = []
    lines, offset = 0, start
    for block in blocks(descriptor, start, limit):
        places.append((offset, len(block), lines))
        lines += block.count(b"\n")
        offset += len(block)
    hits: Hits = []
    for at, size, above in reversed(places):
        block, end, here = os.pread(descriptor, size, at), 0, []
        # a deque of that length keeps only the last ones
        for begin, stop, place in deque(find(block), most - len(hits)):
            above += block.count(b"\n", end, begin)
            end = begin
            here.append([above, at + begin, *_shown(block, begin, stop, place)])
        hits = here + hits
        if len(hits) >= most:
            break
    return hits, offset, lines


def _shown(block: bytes, begin: int, stop: int, at: int) -> List[object]:
    """The line from ``begin`` to ``stop`` as it is sent; of a long one what stands around ``at``."""
    first = max(begin, at - BEFORE) if at - begin > MAX_LINE - BEFORE else begin
    return list(pack(block[first : min(stop, first + MAX_LINE)]))


def finder(request: Request) -> Find:
    """What finds the lines of a block that the request's ``pattern`` and ``anchors`` mean."""
    text = text_of(request, "pattern", "")
    pattern = _compiled(text)
    anchors = [str(anchor).encode() for anchor in request.get("anchors") or () if anchor]
    if anchors:
        return lambda block: _found_by(anchors, block, pattern)
    looks_around = bool(_LOOKS_AROUND.search(text))
    return lambda block: _found(block, pattern, looks_around)


def _compiled(pattern: str) -> Pattern[bytes]:
    try:
        return re.compile(pattern.encode("utf-8"), re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal("bad-request", "the pattern cannot be read: %s" % error) from error


def blocks(descriptor: int, offset: int, limit: int) -> Iterator[bytes]:
    """Whole lines of a file, a few MiB at once; a line that is longer than a block is cut."""
    begin, end = offset, offset + limit
    while offset < end:
        wanted = min(BLOCK, end - offset)
        block = os.pread(descriptor, wanted, offset)
        if len(block) == wanted:
            whole = block.rfind(b"\n") + 1
            if not whole and wanted < BLOCK and offset > begin:
                return  # the limit ends within a line: the next request begins with it
            block = block[:whole] or block
        if not block:
            return
        yield block
        offset += len(block)


def _found(block: bytes, pattern: Pattern[bytes], looks_around: bool) -> Iterator[List[int]]:
    """Start and end of each line with the pattern, and where in it that is.

    The block is searched as one, which is fast; as a pattern may reach over a line's end, each line found is then
    searched alone.
    """
    at = 0
    while at < len(block):
        match = None if looks_around else pattern.search(block, at)
        if match is None and not looks_around:
            return
        begin = block.rfind(b"\n", 0, match.start()) + 1 if match else at
        stop = end_of_line(block, begin)
        alone: Optional["re.Match[bytes]"] = pattern.search(block[begin:stop])
        if alone is not None and begin < len(block):
            yield [begin, stop, begin + alone.start()]
        at = stop + 1


def _found_by(anchors: List[bytes], block: bytes, pattern: Pattern[bytes]) -> Iterator[List[int]]:
    """The same, among the lines that have an anchor."""
    begins: Set[int] = set()
    for anchor in anchors:
        at = block.find(anchor)
        while at >= 0:
            begins.add(block.rfind(b"\n", 0, at) + 1)
            at = block.find(anchor, end_of_line(block, at))
    for begin in sorted(begins):
        stop = end_of_line(block, begin)
        alone = pattern.search(block[begin:stop])
        if alone is not None:
            yield [begin, stop, begin + alone.start()]


def end_of_line(block: bytes, begin: int) -> int:
    """Where the line with the byte ``begin`` ends."""
    stop = block.find(b"\n", begin)
    return len(block) if stop < 0 else stop
