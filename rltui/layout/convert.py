"""Plain values into the schema's structs, with every problem found at once rather than the first."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from rltui.layout.document import Document, Path_, dotted
from rltui.layout.errors import LayoutError, Problem


def to_struct(kind: type[Any], document: Document) -> Any:
    """Convert ``document.values`` into ``kind``.

    Raises:
        LayoutError: Unknown keys (with the nearest known one), missing keys and wrong values, each with its line.
    """
    problems = list(_problems(kind, document.values, (), document, kind))
    if problems:
        raise LayoutError(problems)
    try:
        return msgspec.convert(document.values, kind)
    except msgspec.ValidationError as error:
        raise LayoutError([Problem(str(error), file=document.name)]) from error


def value_problems(kind: Any, value: Any, path: Path_) -> tuple[Problem, ...]:
    """What is wrong with a value that stands at ``path`` of no file; ``kind`` is its declared type."""
    return tuple(_problems(kind, value, path, Document({}, {}, ""), kind))


def _problems(kind: Any, value: Any, path: Path_, document: Document, root: Any) -> Iterator[Problem]:
    struct, named = _struct_of(kind), _mapping_values(kind)
    if named is not None and isinstance(value, dict):
        for key, item in value.items():
            yield from _problems(named, item, (*path, key), document, root)
    elif isinstance(value, list) and (section := _list_section(kind)) is not None:
        for number, item in enumerate(value):
            yield from _problems(section, item, (*path, number), document, root)
    elif struct is None or (value is None and _is_optional(kind)):
        yield from _value_problem(kind, value, path, document)
    elif not isinstance(value, dict):
        message = f"must be a mapping, not {_describe(value)}"
        yield Problem(message, *document.place(path), dotted(path))
    else:
        yield from _mapping_problems(struct, value, path, document, root)


def _mapping_problems(
    struct: Any, value: dict[str, Any], path: Path_, document: Document, root: Any
) -> Iterator[Problem]:
    fields = _fields(struct)
    for key, item in value.items():
        here = (*path, key)
        if key in fields:
            yield from _problems(fields[key], item, here, document, root)
        else:
            hint = nearest(key, fields, root)
            yield Problem("is not a key of this section", *document.place(here), dotted(here), hint)
    for field in msgspec.structs.fields(struct):
        if field.required and field.name not in value:
            hint = _description(fields[field.name])
            yield Problem("is missing", *document.place(path), dotted((*path, field.name)), hint)


def _value_problem(kind: Any, value: Any, path: Path_, document: Document) -> Iterator[Problem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message = _must(kind) or _plain(str(error))
        message = f"{message}, not {_describe(value)}"
        match = difflib.get_close_matches(str(value), _choices(kind), n=1, cutoff=0.6)
        hint = f"did you mean {match[0]!r}?" if match else _description(kind)
        yield Problem(message, *document.place(path), dotted(path), hint)


def nearest(key: str, known: Iterable[str], root: Any = None) -> str:
    """A hint that names the word of ``known`` that is nearest to ``key``, or all of them where none is near.

    Args:
        key: What is not known.
        known: What could stand in its place.
        root: The struct of the whole; of a key that is not near one, those of its other sections with its words.
    """
    names = sorted(known)
    match = difflib.get_close_matches(key, names, n=1, cutoff=0.6)
    if match:
        return f"did you mean {match[0]!r}?"
    words = _words(key)
    paths = all_keys(root) if root is not None else ()
    elsewhere = [path for path in paths if words <= _words(path) and _words(path.rsplit(".")[-1]) <= words]
    if elsewhere:
        return f"did you mean {' or '.join(map(repr, elsewhere[:6]))}?"
    return "known: " + ", ".join(names)


def _words(key: str) -> set[str]:
    return set(re.split(r"[._]", key))


_PLAIN_WORDS = (
    ("`", "'"),
    ("Expected 'int'", "must be a whole number"),
    ("Expected 'float'", "must be a number"),
    ("Expected 'str' matching regex", "must match"),
    ("Expected 'str'", "must be text"),
    ("Expected 'bool'", "must be true or false"),
    ("Expected 'array'", "must be a list"),
    ("Expected 'object'", "must be a mapping"),
)


def _plain(message: str) -> str:
    """A sentence of msgspec in the words of someone who edits YAML."""
    text = message.split(" - at `")[0].split(", got ")[0].strip()
    for formal, plain in _PLAIN_WORDS:
        text = text.replace(formal, plain)
    return f"{text[0].lower()}{text[1:]}"


def _must(kind: Any) -> str:
    """``must be one of …`` where ``kind`` is a Literal, a list of such, or names and a function, else nothing."""
    while get_origin(kind) is Annotated and not _named(kind):
        kind = get_args(kind)[0]
    if get_origin(kind) is list and (each := _must(get_args(kind)[0])):
        return f"each {each}"
    choices = _choices(kind)
    if _named(kind):
        return f"must be one of {', '.join(choices)}, or a function of your own as package.module:function"
    return f"must be one of {', '.join(choices)}" if len(choices) > 1 else f"must be {choices[0]}" if choices else ""


def _choices(kind: Any) -> list[str]:
    """The words that ``kind`` knows."""
    while get_origin(kind) is Annotated:
        if named := _named(kind):
            return named
        kind = get_args(kind)[0]
    return [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []


def _named(kind: Any) -> list[str]:
    """The names among which ``rltui.layout.variants.one_of`` lets choose, where ``kind`` is such."""
    schemas = [
        meta.extra_json_schema or {} for meta in getattr(kind, "__metadata__", ()) if isinstance(meta, msgspec.Meta)
    ]
    return [name for schema in schemas for name in schema.get("examples", ())]


def _describe(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else f"the list {str(value)[:60]}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


@lru_cache(maxsize=256)
def _struct_of(kind: Any) -> Any:
    """The struct class behind ``kind`` (through Annotated and ``| None``), or None."""
    if get_origin(kind) is Annotated:
        return _struct_of(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        structs = [found for found in map(_struct_of, get_args(kind)) if found]
        return structs[0] if structs else None
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


@lru_cache(maxsize=256)
def _mapping_values(kind: Any) -> Any:
    """The value type of a ``dict[Name, …]`` field, or None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_args(kind)[1] if get_origin(kind) is dict else None


@lru_cache(maxsize=256)
def _list_section(kind: Any) -> Any:
    """The struct class of a list's items; None where ``kind`` is no list of such."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return _struct_of(get_args(kind)[0]) if get_origin(kind) is list else None


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


@lru_cache(maxsize=256)
def _fields(struct: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(struct, include_extras=True)  # those of class variables as well
    return {field.name: hints[field.name] for field in msgspec.structs.fields(struct)}


def _description(kind: Any) -> str:
    for meta in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        if isinstance(meta, msgspec.Meta) and meta.description:
            return meta.description
    return ""


def field_type(kind: Any, path: Path_) -> Any:
    """Declared type of the field at ``path`` below ``kind``, or None where the schema has no such field."""
    for part in path:
        named = _mapping_values(kind)
        if named is not None:
            kind = named
            continue
        struct = _struct_of(kind)
        if struct is None:
            return kind if isinstance(part, int) else None
        kind = _fields(struct).get(str(part))
        if kind is None:
            return None
    return kind


def known_keys(kind: Any, path: Path_) -> list[str]:
    """Keys of the section at ``path`` below ``kind``."""
    struct = _struct_of(field_type(kind, path)) if path else _struct_of(kind)
    return sorted(_fields(struct)) if struct is not None else []


def all_keys(kind: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every dotted key below ``path`` that has a value and no section."""
    for name in known_keys(kind, path):
        below = list(all_keys(kind, (*path, name)))
        yield from below or [".".join((*path, name))]
