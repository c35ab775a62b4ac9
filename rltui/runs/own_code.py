"""A user's own reward, environment or variant of GRPO, carried along with an attempt: its packages as one zip."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from rltui.errors import RltuiError
from rltui.layout.schema import Layout
from rltui.layout.settings import rewards_of
from rltui.layout.variants import VARIANTS, is_own

MOST_BYTES = 8 * 2**20
"""Of the source files together; data belongs into a dataset or an installed package."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all members, so that equal files make equal archives."""


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
    files = [file for name in packages for file in _files(folder, name)]
    if not files:
        return None
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        where = " and ".join(str(folder / name) for name in packages)
        raise RltuiError(f"{where} has more than {MOST_BYTES >> 20} MiB of Python: install it on the cluster.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.relative_to(folder).as_posix(), _EPOCH), file.read_bytes())
    return buffer.getvalue()


def _files(folder: Path, package: str) -> list[Path]:
    found = sorted((folder / package).rglob("*.py")) if (folder / package).is_dir() else [folder / f"{package}.py"]
    return [file for file in found if file.is_file()]
