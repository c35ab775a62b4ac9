"""Inheritance: ``base: other-layout`` lays a file over another one, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rltui.errors import UsageError
from rltui.layout.document import Document, Path_, parse, read_text
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.presets import resolve

BASE = "base"
MAX_CHAIN = 16


def inherit(document: Document) -> Document:
    """Return ``document`` over its base, and that over its own; mappings are merged, all else is replaced.

    A base is a preset's name, or a path (ending in .yaml or .yml, or starting with ``.``, ``/`` or ``~``) relative to
    the file that names it. A key that is set to null takes the base's value away.

    Raises:
        LayoutError: The base is missing, unreadable or no name, or the chain comes back to a file that is in it.
    """
    return _inherit(document, (_identity(Path(document.name)),))


def _inherit(document: Document, chain: Sequence[Path]) -> Document:
    if BASE not in document.values:
        return document
    path = _base_path(document)
    if _identity(path) in chain:
        names = " → ".join(each.name for each in (*chain, path))
        raise _problem(document, f"is circular: {names}")
    if len(chain) >= MAX_CHAIN:
        raise _problem(document, f"is the {MAX_CHAIN}th layout of a chain; that is as far as it goes")
    try:
        below = _inherit(parse(read_text(path), str(path)), (*chain, _identity(path)))
    except LayoutError as error:
        if any(problem.line for problem in error.problems):
            raise  # it has its place, in the base
        raise _problem(document, f"cannot be used: {error.problems[0]}") from error
    return _lay_over(document, below)


def _base_path(document: Document) -> Path:
    word = document.values[BASE]
    if not isinstance(word, str) or not word or len(word) > 500 or "\0" in word:
        raise _problem(document, "must be the name of a preset or the path of a layout file")
    try:
        path = resolve(word)
    except UsageError as error:
        raise _problem(document, f"{error.message[0].lower()}{error.message[1:]}", error.hint) from error
    return path if path.is_absolute() else Path(document.name).parent / path


def _identity(path: Path) -> Path:
    """The file itself, however it is written; a symlink loop is left for the reader to refuse."""
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path


def _problem(document: Document, message: str, hint: str = "") -> LayoutError:
    file, line = document.place((BASE,))
    return LayoutError([Problem(message, file, line, BASE, hint)])


def _lay_over(upper: Document, lower: Document) -> Document:
    values: dict[str, Any] = {key: value for key, value in upper.values.items() if key != BASE}
    merged = _merge(lower.values, values)
    lines: dict[Path_, int] = {}
    inherited: dict[Path_, str] = {}
    for path, line in lower.lines.items():
        if path not in upper.lines and not _replaced(path, upper):
            lines[path], inherited[path] = line, lower.inherited.get(path, lower.name)
    lines.update(upper.lines)
    return Document(merged, lines, upper.name, inherited)


def _replaced(path: Path_, upper: Document) -> bool:
    """Whether ``upper`` has a value that is no mapping at a parent of ``path``: nothing of the base is left below."""
    value: Any = upper.values
    for part in path:
        if not isinstance(value, dict):
            return True
        if part not in value:
            return False
        value = value[part]
    return False


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = _merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
