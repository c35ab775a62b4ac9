"""A user's own reward function, carried along with an attempt: the package that a layout names, as one zip file."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

from rltui.errors import RltuiError

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.schema import Layout

MOST_BYTES = 8 * 2**20
"""Of the source files together; data belongs into a dataset or an installed package."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all members, so that equal files make equal archives."""


def own_code(layout: Layout, folder: Path) -> bytes | None:
    """The Python files of the package that ``data.reward`` names, if it is in ``folder``; else nodes have to have it.

    Raises:
        RltuiError: They are too large to be carried.
    """
    if ":" not in layout.data.reward:
        return None
    name = layout.data.reward.partition(":")[0].partition(".")[0]
    files = sorted((folder / name).rglob("*.py")) if (folder / name).is_dir() else [folder / f"{name}.py"]
    files = [file for file in files if file.is_file()]
    if not files:
        return None
    if sum(file.stat().st_size for file in files) > MOST_BYTES:
        raise RltuiError(f"{folder / name} has more than {MOST_BYTES >> 20} MiB of Python: install it on the cluster.")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.relative_to(folder).as_posix(), _EPOCH), file.read_bytes())
    return buffer.getvalue()
