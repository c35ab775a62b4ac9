"""The code a run is made with, packed so that the same code is stored once and always gives the same name."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
from pathlib import Path

from msgspec import Struct

import rltui
from rltui.errors import MissingExtraError

LEFT_OUT = ("tui", "__pycache__")
"""No node needs a screen. The rest drives jobs, is imported by trainers, or decides and submits in hands-off mode."""

SUFFIXES = (".py", ".json", ".yaml", ".j2")


class CodeSnapshot(Struct, frozen=True):
    """A packed copy of the trainers and of what they need of rltui.

    Attributes:
        digest: First 16 hex digits of the content's SHA-256.
        archive: A ``.tar.gz``, equal for equal content.
    """

    digest: str
    archive: bytes


def take_snapshot() -> CodeSnapshot:
    """Pack the code that is running now.

    Raises:
        MissingExtraError: The trainers package is not beside rltui.
    """
    package = Path(rltui.__file__).parent
    trainers = package.parent / "trainers"
    if not trainers.is_dir():
        raise MissingExtraError(
            "The bundled trainers are not installed.", "Install rltui again: pip install 'rltui[trainers]'"
        )
    parts = sorted(part for part in package.iterdir() if part.name not in LEFT_OUT)
    files = [file for part in parts for file in _files(part)] + _files(trainers)
    return _snapshot(package.parent, tuple((file, *_stamp(file)) for file in files))


@functools.lru_cache(maxsize=1)
def _snapshot(root: Path, files: tuple[tuple[Path, int, int], ...]) -> CodeSnapshot:
    """Pack ``files``, again only where one has changed since: all jobs of a chain have one snapshot."""
    archive = _pack({file.relative_to(root).as_posix(): file.read_bytes() for file, _, _ in files})
    return CodeSnapshot(hashlib.sha256(archive).hexdigest()[:16], archive)


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else path.rglob("*")
    return sorted(file for file in found if file.suffix in SUFFIXES)


def _pack(contents: dict[str, bytes]) -> bytes:
    """A tar.gz without times or owners, so that equal contents give equal bytes."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name in sorted(contents):
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(contents[name]), 0o600
            tar.addfile(info, io.BytesIO(contents[name]))
    return packed.getvalue()
