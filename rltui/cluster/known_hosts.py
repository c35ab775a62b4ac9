"""Known host keys as OpenSSH keeps them: names hashed or with wildcards, revoked keys, certificate authorities.

paramiko's own reader matches no wildcards and passes over ``@revoked``, so a key that the site withdrew would be taken.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

Verdict = Literal["known", "unknown", "changed", "revoked"]
LARGEST = 16 << 20
DEFAULT_PORT = 22


class Entry(Struct, frozen=True):
    """One line of a file."""

    marker: str
    """``@revoked``, ``@cert-authority`` or nothing."""
    names: str
    key_type: str
    blob: bytes
    place: str
    """``FILE:LINE``, for messages."""


def read_known_hosts(files: Iterable[str | Path]) -> tuple[Entry, ...]:
    """Every entry of those files that are there; lines that are none are passed over, as ssh does."""
    return tuple(entry for file in files for entry in _entries(Path(file)))


def _entries(path: Path) -> Iterator[Entry]:
    try:
        with path.open("rb") as stream:
            lines = stream.read(LARGEST).splitlines()
    except OSError:
        return
    for number, raw in enumerate(lines, 1):
        words = raw.decode("utf-8", "replace").split()
        marker = words.pop(0) if words and words[0].startswith("@") else ""
        if len(words) < 3 or words[0].startswith("#"):
            continue
        try:
            blob = base64.b64decode(words[2], validate=True)
        except (binascii.Error, ValueError):
            continue
        yield Entry(marker, words[0], words[1], blob, f"{path}:{number}")


class KnownHosts:
    """What is known of the keys of one host.

    Args:
        entries: Entries of all files.
        name: The host's address, or the alias it is known by.
        port: Its port; 0 where ``name`` is an alias that stands for host and port together.
    """

    def __init__(self, entries: Sequence[Entry], name: str, port: int) -> None:
        self.name = lookup_name(name, port)
        self._entries = [entry for entry in entries if matches(entry.names, self.name)]
        # ssh takes a key that is known for the host's default port on its other ports too, though it is no proof of a
        # change there: another machine may answer on a forwarded port
        self._fallback = [entry for entry in entries if matches(entry.names, name.lower())]

    @property
    def key_types(self) -> tuple[str, ...]:
        """Types of the keys that are known; the server is asked for these first."""
        return tuple(dict.fromkeys(entry.key_type for entry in self._entries if not entry.marker))

    @property
    def has_authority(self) -> bool:
        """Whether the host is vouched for by a certificate authority."""
        return any(entry.marker == "@cert-authority" for entry in self._entries)

    @property
    def places(self) -> tuple[str, ...]:
        """``FILE:LINE`` of each key that is known."""
        return tuple(entry.place for entry in self._entries if not entry.marker)

    def judge(self, blob: bytes) -> Verdict:
        """What to think of a server that shows this key.

        A key of another type than the known ones counts as changed: whoever sits in the middle could offer just that.
        """
        both = [*self._entries, *self._fallback]
        if any(entry.blob == blob and entry.marker == "@revoked" for entry in both):
            return "revoked"
        if any(entry.blob == blob and not entry.marker for entry in both):
            return "known"
        return "changed" if any(not entry.marker for entry in self._entries) else "unknown"


def lookup_name(name: str, port: int) -> str:
    """How a host is called in the files: ``host``, or ``[host]:port`` where the port is not 22."""
    name = name.lower()
    return name if port in (0, DEFAULT_PORT) else f"[{name}]:{port}"


def matches(patterns: str, name: str) -> bool:
    """Whether the names of an entry mean ``name``; one negated pattern that does takes it back."""
    if patterns.startswith("|1|"):
        return _matches_hashed(patterns, name)
    found = False
    for pattern in patterns.lower().split(","):
        if pattern.startswith("!") and _like(pattern[1:], name):
            return False
        found = found or _like(pattern, name)
    return found


def _like(pattern: str, name: str) -> bool:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.fullmatch("".join(parts), name) is not None


def _matches_hashed(names: str, name: str) -> bool:
    try:
        _, _, salt, digest = names.split("|")
        wanted = base64.b64decode(digest)
        return hmac.compare_digest(_digest(base64.b64decode(salt), name), wanted)
    except (binascii.Error, ValueError):
        return False


def _digest(salt: bytes, name: str) -> bytes:
    # SHA-1, as OpenSSH writes them; it hides names and proves nothing
    return hmac.new(salt, name.encode(), hashlib.sha1).digest()


def fingerprint(blob: bytes) -> str:
    """``SHA256:…`` as ssh and ssh-keygen print it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def remember(path: Path, name: str, port: int, key_type: str, blob: bytes, hashed: bool = False) -> None:
    """Append a key to a file, made with its folder for the user alone where they are missing.

    Raises:
        OSError: It cannot be written.
    """
    names = lookup_name(name, port)
    if hashed:
        salt = os.urandom(20)
        names = "|".join(("", "1", *(base64.b64encode(part).decode() for part in (salt, _digest(salt, names)))))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        line = f"{names} {key_type} {base64.b64encode(blob).decode()}\n"
        os.write(descriptor, (("\n" if torn else "") + line).encode())
    finally:
        os.close(descriptor)
