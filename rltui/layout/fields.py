"""A layout as a form: every key with what it means, what may stand there, what does, and where that comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from rltui.layout.diff import flat
from rltui.layout.errors import LayoutError
from rltui.layout.json_schema import json_schema
from rltui.layout.load import load_layout
from rltui.layout.origins import AT_LAUNCH, origin_of, origins
from rltui.layout.overrides import parse_override


class Field(Struct, frozen=True, kw_only=True):
    """One key of a layout.

    Attributes:
        key: Dotted.
        about: What it means; empty where its name says all.
        takes: What may stand there, in words: ``whole number, 1 or more``, ``one of a, b``.
        value: What stands there now; None where nothing does.
        origin: Where that comes from.
        before: What the file has.
        is_set: Whether an override changes it.
    """

    key: str
    about: str
    takes: str
    value: Any
    origin: str
    before: Any
    is_set: bool


def read_fields(path: str | Path, overrides: Sequence[str] = ()) -> tuple[Field, ...]:
    """Every key of the layout at ``path`` with ``overrides``, in the order of the schema.

    Raises:
        LayoutError: The file is no layout. Overrides that do not fit it are shown as they are.
    """
    plain = load_layout(path)
    before = flat(msgspec.to_builtins(plain.layout))
    known, values = origins(plain), dict(before)
    try:
        values = flat(msgspec.to_builtins(load_layout(path, overrides).layout))
    except LayoutError:
        values |= dict(_typed(overrides))
    typed = [key for key, _ in _typed(overrides)]
    return tuple(
        Field(
            key=key,
            about=str(schema.get("description", "")),
            takes=takes(schema),
            value=values.get(key),
            origin=AT_LAUNCH if _is_under(key, typed) else origin_of(key, known),
            before=before.get(key),
            is_set=_is_under(key, typed),
        )
        for key, schema in leaves()
    )


def value_problem(path: str | Path, overrides: Sequence[str], key: str, text: str) -> str:
    """What the schema says against ``text`` for ``key``, given the other overrides; empty: nothing."""
    others = [word for word in overrides if word.partition("=")[0].strip() != key]
    try:
        load_layout(path, others)
    except LayoutError:
        others = []  # another key is wrong already: this one is judged alone
    try:
        load_layout(path, [*others, f"{key}={text}"])
    except LayoutError as error:
        problem = next((one for one in error.problems if one.key == key), error.problems[0])
        about = "" if problem.key in ("", key) else f"{problem.key} "
        return f"{about}{problem.message}{f' ({problem.hint})' if problem.hint else ''}"
    return ""


def leaves() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Dotted key and schema of everything that can be set by itself; not the version of the schema."""
    definitions = json_schema()["$defs"]
    yield from ((key, schema) for key, schema in _leaves("", definitions["Layout"], definitions) if key != "layout")


def _leaves(key: str, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    choices = [schema, *schema.get("anyOf", ())]
    section = next((one["$ref"].rpartition("/")[2] for one in choices if "$ref" in one), "")
    found = definitions[section] if section else schema
    if "properties" not in found:
        yield key, {**found, **schema} if section else schema
        return
    for name, item in found["properties"].items():
        yield from _leaves(f"{key}.{name}" if key else name, item, definitions)


def takes(schema: Mapping[str, Any]) -> str:
    """What may stand there, in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(takes(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    kind = schema.get("type")
    if kind == "array":
        return f"list of {takes(schema.get('items', {}))}"
    if kind in ("integer", "number"):
        return f"{'whole number' if kind == 'integer' else 'number'}{_bounds(schema)}"
    names = {"boolean": "true or false", "null": "null", "object": "map", "string": "text"}
    return names.get(str(kind), "anything")


_LARGE = 10**6
"""A bound from here on only guards against slips of the keyboard, and says nothing to a person."""


def _bounds(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    words = [f"more than {schema['exclusiveMinimum']:g}"] if "exclusiveMinimum" in schema else []
    words += [f"less than {schema['exclusiveMaximum']:g}"] if "exclusiveMaximum" in schema else []
    if low is not None and high is not None and high < _LARGE:
        words.append(f"{low:g} to {high:g}")
    elif low is not None:
        words.append(f"{low:g} or more")
    elif high is not None and high < _LARGE:
        words.append(f"{high:g} at most")
    return f", {', '.join(words)}" if words else ""


def _typed(overrides: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for word in overrides:
        key, _, text = word.partition("=")
        yield key.strip(), _value(word, text)


def _value(word: str, text: str) -> Any:
    try:
        return parse_override(word)[1]
    except LayoutError:
        return text


def _is_under(key: str, typed: Sequence[str]) -> bool:
    return any(key == one or key.startswith((f"{one}.", f"{one}[")) or one.startswith(f"{key}[") for one in typed)
