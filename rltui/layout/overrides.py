"""Overrides: words ``key.path=value``, typed as in YAML, laid over a layout before it is validated."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any

from rltui.layout.convert import field_type, known_keys, nearest
from rltui.layout.document import Document, Path_, dotted, parse
from rltui.layout.errors import LayoutError, Problem
from rltui.layout.schema import Layout

_PART = re.compile(r"[^.\[\]]+|\[\d+\]")


def apply_overrides(document: Document, words: Sequence[str]) -> Document:
    """Return ``document`` with every ``key.path=value`` of ``words`` applied, later words winning.

    Raises:
        LayoutError: A word without ``=``, a key that the schema does not have, or a value that is not YAML.
    """
    if not words:
        return document
    values = copy.deepcopy(document.values)
    lines = dict(document.lines)
    problems: list[Problem] = []
    for word in words:
        problems.extend(_apply(word, values, lines))
    if problems:
        raise LayoutError(problems)
    inherited = {path: name for path, name in document.inherited.items() if lines.get(path)}
    return Document(values, lines, document.name, inherited)


def _apply(word: str, values: dict[str, Any], lines: dict[Path_, int]) -> tuple[Problem, ...]:
    try:
        path, value = parse_override(word)
        _set(values, path, value)
    except LayoutError as error:
        return error.problems
    for below in [known for known in lines if known[: len(path)] == path]:
        del lines[below]
    lines[path] = 0  # it stands in no line of the file
    return ()


def parse_override(word: str) -> tuple[Path_, Any]:
    """Split ``roles.rollout.engines=6`` into its path and its typed value.

    Raises:
        LayoutError: As ``apply_overrides``.
    """
    key, equals, text = word.partition("=")
    key = key.strip()
    if not equals or not key:
        raise LayoutError([Problem(f"{word[:80]!r} is not an override", hint="write key.path=value")])
    path: Path_ = tuple(int(part[1:-1]) if part.startswith("[") else part for part in _PART.findall(key))
    if dotted(path) != key:
        raise LayoutError([Problem("is not a dotted key", key=key[:80])])
    _refuse_unknown(path)
    return path, _value(key, text)


def _value(key: str, text: str) -> Any:
    if text.strip() == "":
        return ""
    indented = text.replace("\n", "\n ")
    try:
        return parse(f"value: {indented}", "override").values["value"]
    except LayoutError as error:
        raise LayoutError([Problem(error.problems[0].message, key=key)]) from error


def _refuse_unknown(path: Path_) -> None:
    for length in range(1, len(path) + 1):
        if field_type(Layout, path[:length]) is None:
            hint = nearest(str(path[length - 1]), known_keys(Layout, path[: length - 1]), Layout)
            raise LayoutError([Problem("is not a key of a layout", key=dotted(path), hint=hint)])


def _set(values: Any, path: Path_, value: Any) -> None:
    for part in path[:-1]:
        if isinstance(part, str) and isinstance(values, dict):
            if not isinstance(values.get(part), dict | list):
                values[part] = {}
            values = values[part]
        else:
            values = _item(values, part, path)
    last = path[-1]
    if isinstance(values, dict) and isinstance(last, str):
        values[last] = value
    else:
        _item(values, last, path)
        values[last] = value


def _item(values: Any, index: Any, path: Path_) -> Any:
    if isinstance(values, list) and isinstance(index, int) and index < len(values):
        return values[index]
    raise LayoutError([Problem("is not there to be overridden", key=dotted(path))])
