"""The code a run is made with, named by its content: the same code is packed and stored once."""

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
    """A copy of the trainers and of what they need of rltui.

    Attributes:
        digest: First 16 hex digits of the SHA-256 of ``contents``, names included.
        contents: Of each file, by its path.
    """

    digest: str
    contents: dict[str, bytes]

    def archive(self) -> bytes:
        """A ``.tar.gz``. It takes a hundred times as long as the digest: it is for a place that lacks this code."""
        packed = io.BytesIO()
        # 9, the usual, takes twice as long for less than a hundredth of the size
        zipped = gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6)
        with zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
            for name, content in self.contents.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o600
                tar.addfile(info, io.BytesIO(content))
        return packed.getvalue()


def take_snapshot() -> CodeSnapshot:
    """Read the code that is running now.

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
    """Read ``files``, again only where one has changed since: all jobs of a chain have one snapshot."""
    contents = {file.relative_to(root).as_posix(): file.read_bytes() for file, _, _ in files}
    digest = hashlib.sha256()
    for name in sorted(contents):
        digest.update(f"{name}\0{len(contents[name])}\0".encode())
        digest.update(contents[name])
    return CodeSnapshot(digest.hexdigest()[:16], contents)


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else path.rglob("*")
    return sorted(file for file in found if file.suffix in SUFFIXES)
