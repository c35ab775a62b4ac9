"""Where rltui keeps its things: XDG directories, each overridable by an environment variable; and small texts there."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from rltui.errors import RltuiError

DECIDER_VARIABLE = "RLTUI_DECIDER_DIR"
"""State and cache of what decides on a node how a run goes on: a node may have no home, and the variables of the user
are for the jobs that it submits, which inherit all that it has."""


def state_dir() -> Path:
    """Journal and caches of the cockpit: ``$RLTUI_STATE_DIR`` or the XDG state directory."""
    return _directory((DECIDER_VARIABLE, "RLTUI_STATE_DIR"), "XDG_STATE_HOME", ".local/state")


def run_root() -> Path:
    """Run directories of the local cluster: ``$RLTUI_RUN_ROOT`` or ``runs`` in the XDG data directory."""
    chosen = os.environ.get("RLTUI_RUN_ROOT")
    return with_home(chosen) if chosen else _directory((), "XDG_DATA_HOME", ".local/share") / "runs"


def cache_dir() -> Path:
    """Things that can be made again: ``$RLTUI_CACHE_DIR`` or the XDG cache directory."""
    return _directory((DECIDER_VARIABLE, "RLTUI_CACHE_DIR"), "XDG_CACHE_HOME", ".cache")


def config_dir() -> Path:
    """The user's settings: ``$RLTUI_CONFIG_DIR`` or the XDG configuration directory."""
    return _directory(("RLTUI_CONFIG_DIR",), "XDG_CONFIG_HOME", ".config")


def _directory(own_variables: Sequence[str], xdg_variable: str, default: str) -> Path:
    own = next(filter(None, map(os.environ.get, own_variables)), None)
    if own:
        return with_home(own)
    xdg = os.environ.get(xdg_variable)
    base = Path(xdg) if xdg and os.path.isabs(xdg) else home_dir() / default  # noqa: PTH117
    return base / "rltui"


def home_dir() -> Path:
    """The user's home; ``/`` for one of a container who has no ``HOME`` and is in no list of users."""
    found = with_home("~")
    return Path("/") if str(found) == "~" else found


def with_home(name: str) -> Path:
    """``name`` with its ``~`` filled in; as it stands where nobody here is called so, as for a path of a cluster."""
    return Path(os.path.expanduser(name))  # noqa: PTH111  # pathlib raises for those that are not known


def is_file(path: Path) -> bool:
    """Whether ``path`` is a regular file; no name that a user or a script gives makes this fail, however long it is."""
    return os.path.isfile(path)  # noqa: PTH113  # pathlib raises for names that are too long


def is_folder(path: Path) -> bool:
    """Whether ``path`` is a folder; as ``is_file``."""
    return os.path.isdir(path)  # noqa: PTH112  # as above


def ensure_private(path: Path) -> Path:
    """Make ``path`` a directory that only its owner may enter, and return it.

    Raises:
        RltuiError: It cannot be made, belongs to somebody else, or others may write to it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError as error:
        raise RltuiError(f"Cannot make {path}: {error.strerror}.", _elsewhere(path)) from error
    if found.st_uid != os.getuid():
        raise RltuiError(f"{path} belongs to somebody else (uid {found.st_uid}).", _elsewhere(path))
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RltuiError(f"{path} can be written by others.", f"chmod go-w {path}")
    return path


def _elsewhere(path: Path) -> str:
    runs = path == run_root() or run_root() in path.parents
    variable = "RLTUI_RUN_ROOT" if runs else "RLTUI_STATE_DIR"
    return f"Set {variable} to a directory you can write to."


def kept_text(name: str) -> str:
    """What was kept under ``name``, a file in the state directory; empty where nothing was, or it cannot be read."""
    try:
        return (state_dir() / name).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def keep(name: str, text: str) -> str:
    """Keep ``text`` for the next start; what comes back is why it could not be kept."""
    try:
        replace_text(ensure_private(state_dir()) / name, text)
    except (OSError, RltuiError) as error:
        return f"{name}: not kept: {error}"
    return ""


def replace_text(path: Path, text: str) -> None:
    """Write a file in one step: a full disk takes nothing of what it held; a link is followed, and the mode stays.

    Raises:
        OSError: It cannot be written.
    """
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        if target.exists():
            part.chmod(target.stat().st_mode & 0o777)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
