"""Reading the file that is imported, and files that it builds on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rltui.errors import UsageError
from rltui.importers.values import HOLE
from rltui.paths import is_file

MAX_BYTES = 1 << 20
_FOLDERS_ABOVE = 5
_MAX_PARTS = 12


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


def one_beside(path: Path, name: str) -> Path | None:
    """The file ``name`` beside ``path`` or up to five folders above it, if it is there.

    Of a place on another machine (``/home/me/repo/configs/a.yaml``) or one that is not known (``$REPO/configs/a.yaml``)
    the last parts are looked for, at least a folder and a file. ``$SCRIPT_DIR/a.yaml`` is taken to be in the folder of
    ``path``.
    """
    return next((target for target in _places(path.resolve().parent, name) if is_file(target)), None)


def _places(folder: Path, name: str) -> Iterator[Path]:
    """Where a file may be that a script in ``folder`` calls ``name``, likeliest first."""
    above = (folder, *folder.parents[:_FOLDERS_ABOVE])
    relative = name.removeprefix(HOLE)
    if HOLE in relative:
        _, _, relative = relative.rpartition(HOLE)
        if not relative.startswith("/"):
            return
    parts = tuple(part for part in relative.split("/") if part not in ("", "~", "."))
    if HOLE not in name and not name.startswith(("/", "~")):
        yield from (place / relative for place in above if parts)
        return
    if name.startswith("/"):
        yield Path(name)
    if name == f"{HOLE}{relative}" and parts:
        yield folder.joinpath(*parts)
    for start in range(max(0, len(parts) - _MAX_PARTS), len(parts) - 1):
        yield from (place.joinpath(*parts[start:]) for place in above)
