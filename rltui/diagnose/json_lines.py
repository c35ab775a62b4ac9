"""Logs written as JSON, one record a line, and tracebacks written into one line, as the text that they carry.

Collectors (docker, Kubernetes, fluentd) and loggers (structlog, python-json-logger, Ray) write records whose message is
one field among others, and a whole traceback as one string with its line ends escaped. So do programs that print the
string of an exception in quotes, or a dictionary with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

CONTINUES = b"\x1e"
"""Begins each further line of a record: it has the number of the line that the record stands in."""

MOST_BYTES_OF_RECORD = 1 << 20
LONGEST_BEFORE = 200
"""Who wrote a record may stand before it: the actor, the node, the pod, a time."""

MOST_RECORDS_WITHIN = 3
"""A collector puts the record of a logger into one of its own."""

_MESSAGES = ("message", "msg", "log", "event", "text", "textPayload", "body", "MESSAGE")
_EXCEPTIONS = (
    "exc_info",
    "exc_text",
    "exception",
    "traceback",
    "stack_trace",
    "stacktrace",
    "stack",
    "error",
    "detail",
)
_LEVELS = ("level", "levelname", "severity", "lvl", "log_level")
_TIMES = ("time", "timestamp", "asctime", "ts", "@timestamp", "stream")
_KNOWN_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"} | {
    name: name for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}

_BEFORE = re.compile(rb"(?:[^\"'{}]*[\s:|\])])?")
_PRINTED = re.compile(
    r'(?:Traceback \(most recent call last\):|\s+File "[^"]+", line \d+, in .+)$|'
    r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception): "
)
"""What Python prints of an exception, in lines of their own."""

_ESCAPED_LINE_END = re.compile(rb"\\+n")
_ESCAPED_QUOTE = re.compile(rb"\\+([\"'])")
_ESCAPED = re.compile(
    rb"Traceback \(most recent call last\):(?=\s*\\+n)|"
    rb" *File \\*[\"'][^\"'\\]{1,300}\\*[\"'], line \d+, in [^\\]{1,100}(?=\\+n)|"
    rb"(?<=\\n)(?:\w+\.)*[A-Z]\w*(?:Error|Exception): "
)
_QUOTE_AT_END = re.compile(rb"(?:\\+n)?\\*[\"'][\s}\]),]*$")
_OF_DATA = re.compile(
    rb"(?i)(?:content|output|std(?:out|err)|responses?|observation|completions?|answers?|results?|prompts?|text|tool|"
    rb"solution|code)\\*[\"']?\]?\s*[:=]\s*[\[(]?b?\\*[\"']?[^\"']{0,200}$|\"role\"|'role'|<\|im_|(?:exit|return)_?code"
)
"""What a sample's program or its environment printed says nothing of the run."""


def unwrapped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``blocks`` with each record in place of its line, cut at line ends; all other lines as they are."""
    passed_on = False
    for whole in _cut_at_line_ends(blocks):
        if b'{"' not in whole and b"\\n" not in whole:
            yield whole
            continue
        lines = whole.split(b"\n")
        records = [_record(line) for line in lines]
        # who gives the single lines of a traceback an ordinary level passes on what others print
        passed_on |= any(one is not None and one.level != "ERROR" and _PRINTED.match(one.text) for one in records)
        yield b"\n".join(_told(line, one, passed_on) for line, one in zip(lines, records, strict=True))


def _cut_at_line_ends(blocks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for block in blocks:
        rest += block
        end = rest.rfind(b"\n") + 1
        if not end and len(rest) < MOST_BYTES_OF_RECORD:
            continue
        whole, rest = (rest[:end], rest[end:]) if end else (rest, b"")
        yield whole
    if rest:
        yield rest


class _Record(NamedTuple):
    """What a line of JSON says, what stood before it in the line, and the level that it was given."""

    before: str
    level: str
    text: str


def _told(line: bytes, record: _Record | None, passed_on: bool) -> bytes:
    if record is None:
        return _lines_of_traceback(line)
    keeps_level = record.level == "WARNING" or not passed_on
    text = f"{record.level}:log:{record.text}" if record.level and keeps_level else record.text
    each = ((record.before + one).encode("utf-8", "replace") for one in text.split("\n"))
    return (b"\n" + CONTINUES).join(map(_lines_of_traceback, each))


def _lines_of_traceback(line: bytes) -> bytes:
    """A traceback that is written into one line with its line ends escaped, as lines; no such: the line as it is."""
    begin = _ESCAPED.search(line) if b"\\n" in line else None
    if begin is None or _OF_DATA.search(line, 0, begin.start()) is not None:
        return line
    escaped = _QUOTE_AT_END.sub(b"", line[begin.start() :])
    told = _ESCAPED_QUOTE.sub(rb"\1", _ESCAPED_LINE_END.sub(b"\n" + CONTINUES, escaped))
    head = line[: begin.start()]
    return head + b"\n" + CONTINUES + told if head else told


def _record(line: bytes) -> _Record | None:
    begin = line.find(b'{"', 0, LONGEST_BEFORE + 2)
    if begin < 0 or not line.endswith((b"}", b"}\r")) or not _BEFORE.fullmatch(line, 0, begin):
        return None
    found = _of_record(line[begin:], MOST_RECORDS_WITHIN)
    if found is None:
        return None
    level, told = found
    return _Record(line[:begin].decode("utf-8", "replace"), level, told)


def _of_record(line: bytes, depth: int) -> tuple[str, str] | None:
    """The level and the words of a record; None where it is no record of a log."""
    try:
        record: Any = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not isinstance(record, dict):
        return None
    message = next((record[name] for name in _MESSAGES if isinstance(record.get(name), str)), None)
    level = next((record[name] for name in _LEVELS if isinstance(record.get(name), str)), "")
    if message is None or not (level or any(name in record for name in _TIMES)):
        return None
    message = message.rstrip("\r\n")
    known = _KNOWN_LEVELS.get(level.upper(), "")
    if depth > 1 and message.startswith('{"'):
        inner = _of_record(message.encode(), depth - 1)
        known, message = (inner[0] or known, inner[1]) if inner else (known, message)
    exceptions = (record[name].rstrip() for name in _EXCEPTIONS if isinstance(record.get(name), str))
    # what is indented goes on with the line before
    level = known if message and not message[0].isspace() else ""
    return level, "\n".join([message, *(text for text in exceptions if text not in message)])
