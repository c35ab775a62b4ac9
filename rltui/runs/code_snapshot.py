"""The code an attempt runs: rltui's and the trainers', named by its content; the user's own as a zip."""

from __future__ import annotations

import functools
import gzip
import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

from msgspec import Struct

import rltui
from rltui.errors import MissingExtraError, RltuiError
from rltui.layout.schema import Layout
from rltui.layout.settings import rewards_of
from rltui.layout.variants import VARIANTS, is_own

LEFT_OUT = ("tui", "__pycache__")
"""No node needs a screen. The rest drives jobs, is imported by trainers, or decides and submits in hands-off mode."""

SUFFIXES = (".py", ".json", ".yaml", ".j2")

MOST_BYTES = 8 * 2**20
"""Of the user's source files together; data belongs into a dataset or an installed package."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all members, so that equal files make equal archives."""


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
        # with lengths, so that bytes which move from one file's end to the next one's beginning change it
        digest.update(f"{name}\0{len(contents[name])}\0".encode())
        digest.update(contents[name])
    return CodeSnapshot(digest.hexdigest()[:16], contents)


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _files(path: Path) -> list[Path]:
    found = [path] if path.is_file() else path.rglob("*")
    return sorted(file for file in found if file.suffix in SUFFIXES)


def own_code(layout: Layout, folder: Path) -> bytes | None:
    """The Python files of the packages that functions of the user's own are named from; None where there are none.

    They stand in the rewards of ``data``, ``data.environment`` and the variants of ``grpo``.

    What is not in ``folder`` must be installed on the nodes.

    Raises:
        RltuiError: They are too large to be carried.
    """
    words = [*rewards_of(layout.data), layout.data.environment]
    words += [getattr(layout.grpo, kind) for kind in VARIANTS] if layout.algorithm == "grpo" else []
    named = filter(is_own, words)
    packages = dict.fromkeys(name.partition(":")[0].partition(".")[0] for name in named)
    files = [file for name in packages for file in _files_of_package(folder, name)]
    if not files:
        return None
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        where = " and ".join(str(folder / name) for name in packages)
        raise RltuiError(f"{where} has more than {MOST_BYTES >> 20} MiB of Python: install it on the cluster.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.relative_to(folder).as_posix(), EPOCH), file.read_bytes())
    return buffer.getvalue()


def _files_of_package(folder: Path, package: str) -> list[Path]:
    found = sorted((folder / package).rglob("*.py")) if (folder / package).is_dir() else [folder / f"{package}.py"]
    return [file for file in found if file.is_file()]
