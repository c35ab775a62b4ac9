"""Bringing files onto the disk: what the page cache holds is lost when a node loses its power or is reset."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path


def flush_to_disk(paths: Iterable[Path]) -> None:
    """Return when ``paths`` are on the disk: the bytes of files, the entries of folders.

    Over a network file system only the node that wrote a file can say so; therefore writers flush their own files.
    """
    for path in paths:
        # fsync(2) takes a descriptor that only reads, and a folder has no other kind
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def files_of_rank(folder: Path, tag: str, rank: int) -> Iterator[Path]:
    """The files below ``folder`` that ``rank`` of ``tag`` wrote, and the folder of ``tag`` last.

    DeepSpeed names the rank in the files of ZeRO; what has no rank in its name is the first one's.
    """
    for path in sorted((folder / tag).rglob("*")):
        own = f"zero_pp_rank_{rank}_" in path.name
        if path.is_file() and (own or (rank == 0 and "zero_pp_rank_" not in path.name)):
            yield path
    yield from sorted(folder.glob(f"*-{tag}-{rank:04d}.pt"))
    # to flush a file does not flush its name, an entry of the folder (fsync(2))
    yield folder / tag
