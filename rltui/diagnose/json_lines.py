"""Logs written as JSON, one record a line, as the text that they carry.

Collectors (docker, Kubernetes, fluentd) and loggers (structlog, python-json-logger, Ray) write records whose message is
one field among others, and a whole traceback as one string with its line ends escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

CONTINUES = b"\x1e"
"""Begins each further line of a record: it has the number of the line that the record stands in."""

MOST_BYTES_OF_RECORD = 1 << 20
MOST_RECORDS_WITHIN = 3
"""A collector puts the record of a logger into one of its own."""

_MESSAGES = ("message", "msg", "log", "event", "text", "textPayload", "body", "MESSAGE")
_EXCEPTIONS = ("exc_info", "exc_text", "exception", "traceback", "stack_trace", "stacktrace", "stack", "error")
_LEVELS = ("level", "levelname", "severity", "lvl", "log_level")
_TIMES = ("time", "timestamp", "asctime", "ts", "@timestamp", "stream")
_KNOWN_LEVELS = {"WARN": "WARNING", "FATAL": "CRITICAL"} | {
    name: name for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}


def unwrapped(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield ``blocks`` with each record in place of its line, cut at line ends; all other lines as they are."""
    rest = b""
    for block in blocks:
        rest += block
        end = rest.rfind(b"\n") + 1
        if not end and len(rest) < MOST_BYTES_OF_RECORD:
            continue
        whole, rest = (rest[:end], rest[end:]) if end else (rest, b"")
        yield _unwrapped(whole)
    if rest:
        yield _unwrapped(rest)


def _unwrapped(text: bytes) -> bytes:
    if not text.startswith(b'{"') and b'\n{"' not in text:
        return text
    return b"\n".join(_told(line) if line.startswith(b'{"') else line for line in text.split(b"\n"))


def _told(line: bytes) -> bytes:
    told = _of_record(line, MOST_RECORDS_WITHIN)
    return line if told is None else told.encode("utf-8", "replace").replace(b"\n", b"\n" + CONTINUES)


def _of_record(line: bytes, depth: int) -> str | None:
    """What a record says, its level as Python's logging would print it; None where it is no record of a log."""
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
    if depth > 1 and message.startswith('{"'):
        message = _of_record(message.encode(), depth - 1) or message
    known = _KNOWN_LEVELS.get(level.upper())
    if known and message and not message[0].isspace():
        message = f"{known}:log:{message}"
    exceptions = (record[name].rstrip() for name in _EXCEPTIONS if isinstance(record.get(name), str))
    return "\n".join([message, *(text for text in exceptions if text not in message)])
