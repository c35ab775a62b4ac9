"""Reading the file that is imported, and files that it builds on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1 << 20


def read_source(path: Path) -> str:
    """Text of ``path``.

    Raises:
        UsageError: Not a readable UTF-8 text file of at most 1 MiB.
    """
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a directory.", "Name a launch script or configuration file.")
        if path.exists() and not path.is_file():
            raise UsageError(f"{path} is not a regular file.")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:  # a NUL in the name
        raise UsageError(f"{path} cannot be read: {error}.") from error
    return decode(data, str(path))


def decode(data: bytes, name: str) -> str:
    """``data`` as text.

    Raises:
        UsageError: Too large, binary, empty, or not UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} is larger than {MAX_BYTES >> 20} MiB; a launch script is a few kilobytes.")
    if b"\0" in data:
        raise UsageError(f"{name} is binary, not a script or configuration file.")
    if not data.strip():
        raise UsageError(f"{name} is empty.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(f"{name} is not UTF-8 text (line {line}).") from error
