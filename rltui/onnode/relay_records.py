"""The relay's ``records``: the newest, largest or smallest objects of a file of JSON lines, piece by piece."""

import heapq
import json
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from rltui.onnode.relay_files import open_file
from rltui.onnode.relay_request import MIB, Answer, Request, count_of, text_of
from rltui.onnode.relay_search import MAX_SCAN, blocks, end_of_line, finder

MAX_RECORDS = 1000
MAX_ANSWER = 8 * MIB
"""Characters of all texts that are given, about."""

_NUMBER = re.compile(rb" ?(-?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|Infinity|NaN))")
"""What stands behind a key. The key in its quotes stands in no text: quotes are escaped there."""

Kept = Tuple[float, int, bytes]
"""What a line is ranked by, where it begins, and its bytes."""


def records(request: Request) -> Answer:
    """Objects of the lines from ``offset``, the start of a line, on: of at most ``limit`` bytes at most ``hits``.

    Args:
        request: ``pattern`` and ``anchors`` are those of ``search``: only lines with them count. ``number`` names the
            key whose number ranks them, the largest first, or with ``smallest`` the smallest; without it the last
            ones are given, the last first. Texts are cut after ``clip`` characters.

    Gives ``records`` as ``[where the line begins, its bytes, its object]``, ``offset`` where it ended, the ``size`` of
    the file, and how many of the lines were no objects (``unread``). The next request goes on there.
    """
    most = max(1, min(count_of(request, "hits", 100), MAX_RECORDS))
    start, limit = count_of(request, "offset", 0), min(count_of(request, "limit", MAX_SCAN), MAX_SCAN)
    clip = min(count_of(request, "clip", 200), MAX_ANSWER // most)
    number = text_of(request, "number", "")
    sign = -1.0 if request.get("smallest") else 1.0
    find = finder(request) if request.get("pattern") or request.get("anchors") else None
    descriptor, found = open_file(request)
    best: List[Kept] = []
    offset = start
    try:
        for block in blocks(descriptor, start, limit):
            for value, begin, stop in _ranked(block, offset, find(block) if find else None, number, sign):
                if len(best) < most:
                    heapq.heappush(best, (value, offset + begin, block[begin:stop]))
                elif (value, offset + begin) > best[0][:2]:
                    heapq.heapreplace(best, (value, offset + begin, block[begin:stop]))
            offset += len(block)
    finally:
        os.close(descriptor)
    objects = [(at, len(line), _object(line, clip)) for _, at, line in sorted(best, reverse=True)]
    told = [list(one) for one in objects if one[2] is not None]
    return {"records": told, "unread": len(objects) - len(told), "offset": offset, "size": found.st_size}


def _ranked(
    block: bytes, offset: int, chosen: Optional[Iterator[List[int]]], number: str, sign: float
) -> Iterator[Tuple[float, int, int]]:
    """Rank, start and end of each line that counts and has what it is ranked by.

    A number that is none (NaN) is a fault that is looked for: it is ranked before all others.
    """
    needle = b'"%s":' % number.encode() if number else b""
    for begin, stop, place in _placed(block, chosen, needle):
        if not needle:
            yield float(offset + begin), begin, stop
            continue
        match = _NUMBER.match(block, place + len(needle), stop)
        if match is not None:
            value = sign * float(match[1])
            yield (value if value == value else float("inf")), begin, stop


def _placed(block: bytes, chosen: Optional[Iterator[List[int]]], needle: bytes) -> Iterator[Tuple[int, int, int]]:
    """Start and end of each line that counts and has ``needle``, and where in it that is."""
    if chosen is not None:
        for begin, stop, *_ in chosen:
            place = block.find(needle, begin, stop)
            if place >= 0:
                yield begin, stop, place
        return
    at = 0
    while at < len(block):
        place = block.find(needle, at)  # a search of the whole block is as fast as memory is read
        if place < 0:
            return
        begin = block.rfind(b"\n", at, place) + 1 or at
        stop = end_of_line(block, place)
        if stop > begin:
            yield begin, stop, place
        at = stop + 1


def _object(line: bytes, clip: int) -> Optional[Dict[str, Any]]:
    """The line's object with its texts cut; None where it is none, as the last line while it is written."""
    try:
        value = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return {_text(key, clip): _value(item, clip) for key, item in value.items()} if isinstance(value, dict) else None


def _value(value: Any, clip: int) -> Any:
    if isinstance(value, str):
        return _text(value, clip)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):  # NaN is no JSON
        return value if abs(value) < float("inf") else str(value)
    return _text(json.dumps(value, ensure_ascii=False), clip)


def _text(text: str, clip: int) -> str:
    """``text`` without lone surrogates, which no decoder on the other side takes."""
    return text[:clip].encode("utf-8", "replace").decode()
