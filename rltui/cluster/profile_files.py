"""The files that profiles come from: who may have written them, and whether they are used."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from rltui.errors import RltuiError
from rltui.paths import config_dir, ensure_private, is_file, state_dir

FILE_NAME = "clusters.yaml"
PROJECT_FOLDER = ".rltui"
LARGEST = 1 << 20

FileKind = Literal["site", "user", "project"]


class ProfileFile(Struct, frozen=True, kw_only=True):
    """One file that may hold profiles."""

    path: str
    kind: FileKind
    used: bool = False
    note: str = ""
    """Why it is not used: absent, not trusted, unreadable; empty where it is."""
    text: str = ""
    sha256: str = ""

    @property
    def exists(self) -> bool:
        """Whether it was there to be read."""
        return bool(self.sha256)


def profile_files() -> tuple[ProfileFile, ...]:
    """Read every file that may hold profiles, the one that yields to all others first: site, user, project."""
    sites = [_read(path, "site") for path in reversed(site_files())]
    project = _project_file()
    projects = [_if_trusted(_read(project, "project"))] if project else []
    return (*sites, _read(user_file(), "user"), *projects)


def site_files() -> list[Path]:
    """Files of the machine's administrators, the one that wins first (``$XDG_CONFIG_DIRS``)."""
    folders = [folder for folder in os.environ.get("XDG_CONFIG_DIRS", "").split(":") if Path(folder).is_absolute()]
    return [Path(folder) / "rltui" / FILE_NAME for folder in folders or ["/etc/xdg"]]


def user_file() -> Path:
    """The user's own file, which `rltui setup` writes."""
    return config_dir() / FILE_NAME


def _project_file() -> Path | None:
    """``.rltui/clusters.yaml`` of the nearest folder upwards from the current one that has one."""
    try:
        here = Path.cwd()
    except OSError:  # the current directory is gone
        return None
    for folder in (here, *here.parents):
        found = folder / PROJECT_FOLDER / FILE_NAME
        if is_file(found):
            return found
    return None


def _read(path: Path, kind: FileKind) -> ProfileFile:
    """The file as it is now; no more is read of it later, so what was trusted is what is used."""
    name = str(path)
    try:
        if not path.exists():
            return ProfileFile(path=name, kind=kind, note="absent")
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return ProfileFile(path=name, kind=kind, note="is not a regular file")
        # a project's file is judged by its content, whoever wrote it
        if kind != "project" and (stranger := _stranger(found)):
            return ProfileFile(path=name, kind=kind, note=stranger)
        with path.open("rb") as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            return ProfileFile(path=name, kind=kind, note="is larger than 1 MiB")
        text, digest = data.decode("utf-8-sig"), hashlib.sha256(data).hexdigest()
    except OSError as error:
        return ProfileFile(path=name, kind=kind, note=f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        return ProfileFile(path=name, kind=kind, note="is not UTF-8 text")
    return ProfileFile(path=name, kind=kind, used=True, text=text, sha256=digest)


def _stranger(found: os.stat_result) -> str:
    if found.st_uid not in (0, os.getuid()):
        return f"belongs to somebody else (uid {found.st_uid})"
    return "can be written by others: chmod go-w" if found.st_mode & stat.S_IWOTH else ""


def _if_trusted(file: ProfileFile) -> ProfileFile:
    if not file.used or file.sha256 in _trusted():
        return file
    note = "not trusted yet; `rltui clusters --trust` shows it and asks"
    return msgspec.structs.replace(file, used=False, note=note)


def trust(file: ProfileFile) -> None:
    """Remember that the user wants a project's file of exactly this content; any change to it asks again.

    Raises:
        RltuiError: The state directory cannot be written.
    """
    folder = ensure_private(state_dir())
    entries = {**_trusted(), file.sha256: {"path": file.path, "at": time.time()}}
    temporary = folder / f".trusted.{os.getpid()}"
    try:
        temporary.write_bytes(msgspec.json.encode({"schema": 1, "files": entries}))
        temporary.chmod(0o600)
        temporary.replace(_trust_file())
    except OSError as error:
        raise RltuiError(f"Cannot write {_trust_file()}: {error.strerror}.", "Is the disk full?") from error


def _trust_file() -> Path:
    return state_dir() / "trusted.json"


def _trusted() -> dict[str, Any]:
    try:
        files = msgspec.json.decode(_trust_file().read_bytes())["files"]
    except (OSError, msgspec.DecodeError, KeyError, TypeError):
        return {}
    return files if isinstance(files, dict) else {}
