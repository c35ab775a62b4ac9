"""What the machine offers: room, a writable folder, a GPU; and the lock that keeps two set-ups apart."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from environment.failures import SetupError, explain

GIB = 2**30
LOCK_DEADLINE_S = 1800.0


def has_gpu() -> bool:
    """Tell whether an NVIDIA GPU can be used here."""
    if any(Path("/proc/driver/nvidia/gpus").glob("*")):
        return True
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    return "GPU 0" in listing


def check_writable(folder: Path) -> None:
    """Write a file into ``folder`` and remove it: permission bits do not tell of read-only disks and quotas.

    Raises:
        SetupError: It cannot be written.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"x" * 4096)
    except OSError as error:
        cause, hint = explain(str(error))
        raise SetupError(f"{folder} cannot be written, {cause}: {error.strerror}.", hint) from error


def uv_cache(environ: Mapping[str, str]) -> Path:
    """Return the folder where uv keeps what it downloaded."""
    if environ.get("UV_CACHE_DIR"):
        return Path(environ["UV_CACHE_DIR"])
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "uv"


def existing(path: Path) -> Path:
    """Return the nearest folder at or above ``path`` that exists."""
    while not path.exists():
        path = path.parent
    return path


def check_room(folder: Path, need_gib: float) -> None:
    """Check that ``need_gib`` fit where .venv and uv's cache are; on one disk both share their files (hard links).

    Raises:
        SetupError: There is too little room.
    """
    if os.environ.get("RLTUI_SETUP_ANY_DISK"):
        return
    for place in {existing(folder), existing(uv_cache(os.environ))}:
        free_gib = shutil.disk_usage(place).free / GIB
        if free_gib < need_gib:
            raise SetupError(
                f"about {need_gib:.2f} GiB are needed and {free_gib:.2f} GiB are free on the disk of {place}.",
                "Free some space, or move uv's cache with UV_CACHE_DIR. RLTUI_SETUP_ANY_DISK=1 skips this check.",
            )


def lock(folder: Path) -> int:
    """Take the lock on ``folder`` and return its descriptor; it is held until the last process that has it ends.

    Raises:
        SetupError: Another set-up held it for LOCK_DEADLINE_S.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    deadline = time.monotonic() + LOCK_DEADLINE_S
    if not _locked(descriptor):
        print(f"setup: waiting for another set-up in {folder}", flush=True)
    while not _locked(descriptor):
        if time.monotonic() > deadline:
            raise SetupError(f"another set-up in {folder} did not end.", "Look for a hung pip or uv.")
        time.sleep(0.2)
    return descriptor


def _locked(descriptor: int) -> bool:
    """Try to lock; where the file system knows no locks, that counts as done."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
