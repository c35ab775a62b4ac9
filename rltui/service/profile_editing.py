"""Writing a cluster into the user's file so that every other line of it, comments too, stays as it is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from rltui.cluster.profiles import EXPECTED
from rltui.errors import RltuiError, UsageError
from rltui.layout.document import parse
from rltui.layout.errors import LayoutError

HEADER = "# Clusters that rltui knows: docs/clusters.md. No secrets: env_file names the file that has them.\n"


def with_block(text: str, name: str, block: str) -> str:
    """``text`` with the cluster ``name`` as in ``block``, in the place of the old one or at the end.

    Raises:
        UsageError: The file cannot be edited so that only this cluster changes.
    """
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    span = _span(lines, name)
    if span is None:
        changed = "".join([*(lines or [HEADER]), "\n", block])
    else:
        changed = "".join([*lines[: span[0]], block, *lines[span[1] :]])
    _check(text, changed, name)
    return changed


def _span(lines: list[str], name: str) -> tuple[int, int] | None:
    """From the line of the key ``name`` to behind its last line; comments above the next key are the next one's."""
    key = re.compile(rf"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')\s*:(?:\s|$)")
    start = next((index for index, line in enumerate(lines) if key.match(line)), None)
    if start is None:
        return None
    end = start + 1
    for index in range(start + 1, len(lines)):
        if lines[index][:1] not in (" ", "\t", "#", "\n", "\r", "-", "}", "]"):
            break
        if lines[index][:1] in (" ", "\t", "-", "}", "]") and lines[index].strip():
            end = index + 1
    return start, end


def entry_of(text: str, name: str) -> dict[str, Any] | None:
    """The keys that the file has for a cluster, or None.

    Raises:
        UsageError: The file cannot be read as YAML.
    """
    try:
        values = parse(text, "clusters.yaml", EXPECTED).values if _has_content(text) else {}
    except LayoutError as error:
        raise UsageError(
            f"Your clusters.yaml cannot be read: {error}", "Mend it first; `rltui info` names it."
        ) from error
    entry = values.get(name)
    return entry if isinstance(entry, dict) else None


def _check(before: str, after: str, name: str) -> None:
    """What is written must read as the old file with one cluster changed, whatever YAML the old one was in."""
    try:
        new = parse(after, "clusters.yaml", EXPECTED).values
        old = parse(before, "clusters.yaml", EXPECTED).values if _has_content(before) else {}
    except LayoutError as error:
        raise UsageError(
            f"The file cannot be edited by itself: {error}", "Add the lines shown above by hand."
        ) from error
    new.pop(name, None)
    old.pop(name, None)
    if new != old:
        raise UsageError("The file cannot be edited by itself.", "Add the lines shown above by hand.")


def _has_content(text: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())


def write_file(path: Path, text: str) -> None:
    """Replace the file in one step; a link is followed, and the mode stays.

    Raises:
        RltuiError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        target = path.resolve()
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        temporary.write_text(text, "utf-8")
        temporary.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o644)
        temporary.replace(target)
    except OSError as error:
        raise RltuiError(
            f"Cannot write {path}: {error.strerror}.", "Set RLTUI_CONFIG_DIR to another folder."
        ) from error
