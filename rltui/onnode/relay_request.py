"""What every operation of the relay shares: reading the fields of a request, refusing it, packing bytes into JSON.

Bytes that travel in bulk (``data``, an HTTP answer's ``body``) are base64, with zlib before it where ``packed`` says
so. Short text (``out``, ``err``, ``input``, a request's ``body``) is UTF-8 with surrogate escapes: any bytes survive.
"""

import base64
import os
import zlib
from typing import Any, Dict, List, Optional, Tuple

MIB = 1 << 20

Request = Dict[str, Any]
Answer = Dict[str, Any]


class Refusal(Exception):  # noqa: N818 (it is an answer, not an accident)
    """A request that cannot be done; becomes an answer with ``ok: false``.

    Attributes:
        kind: One word for programs, such as ``missing``.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def text_of(request: Request, name: str, default: Optional[str] = None) -> str:
    """Return the string ``name`` of a request."""
    value = request.get(name, default)
    if not isinstance(value, str):
        raise Refusal("bad-request", "%s must be a string" % name)
    return value


def bytes_of(request: Request, name: str) -> bytes:
    """Return the short text ``name`` of a request as bytes; none where it is left out."""
    return text_of(request, name, "").encode("utf-8", "surrogateescape")


def number_of(request: Request, name: str, default: Optional[float] = None) -> float:
    """Return the number ``name`` of a request; it must not be negative."""
    value = request.get(name, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        raise Refusal("bad-request", "%s must be a number, zero or more" % name)
    return value


def count_of(request: Request, name: str, default: Optional[int] = None) -> int:
    """Return the whole number ``name`` of a request; it must not be negative."""
    return int(number_of(request, name, default))


def texts_of(request: Request, name: str) -> List[str]:
    """Return the list of strings ``name`` of a request; it must not be empty."""
    value = request.get(name)
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise Refusal("bad-request", "%s must be a list of strings" % name)
    return value


def table_of(request: Request, name: str) -> Dict[str, str]:
    """Return the table of strings ``name`` of a request; empty where it is left out."""
    value = request.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Refusal("bad-request", "%s must be a table of strings" % name)
    return value


def path_of(request: Request, name: str = "path") -> str:
    """Return the path ``name`` of a request, ``~`` expanded."""
    return os.path.expanduser(text_of(request, name))


def pack(data: bytes) -> Tuple[str, bool]:
    """Return ``data`` as base64, and whether zlib made it smaller before."""
    packed = zlib.compress(data, 1) if len(data) > 512 else data
    smaller = len(packed) < len(data)
    return base64.b64encode(packed if smaller else data).decode(), smaller


def unpack(data: str, packed: bool, limit: int) -> bytes:
    """Return the bytes that ``pack`` took.

    Raises:
        ValueError: It is no base64.
        zlib.error: It is no zlib.
        Refusal: They are more than ``limit``.
    """
    raw = base64.b64decode(data, validate=True)
    if packed:
        raw = zlib.decompressobj().decompress(raw, limit + 1)
    if len(raw) > limit:
        raise Refusal("too-large", "the data is over %d bytes" % limit)
    return raw
