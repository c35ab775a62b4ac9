"""YAML read safely, with the line of every key: no tags, no aliases, no duplicate keys, no surprises of YAML 1.1.

PyYAML follows YAML 1.1, in which ``24:00:00`` is the number 86400, ``no`` is false and ``1e-6`` is a string. Layouts
use the core schema of YAML 1.2 instead: these three are a string, a string and a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml
from msgspec import Struct

from rltui.layout.errors import LayoutError, Problem

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_NODES = 50_000

Path_ = tuple[str | int, ...]

_Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _CoreLoader(_Base):  # type: ignore[misc]
    """A safe loader that knows the scalars of YAML 1.2's core schema only."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_CoreLoader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_CoreLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)


def _whole_number(_: Any, node: yaml.ScalarNode) -> int:
    # PyYAML would read 010 as 8
    return int(node.value)


_CoreLoader.add_constructor("tag:yaml.org,2002:int", _whole_number)


class _Dumper(yaml.SafeDumper):
    """Quotes a text that readers of either version would take for something else: 1.1's 24:00:00, 1.2's 1e5 and 08."""


for _first, _resolvers in _CoreLoader.yaml_implicit_resolvers.items():
    for _tag, _pattern in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _pattern, [_first])


def dump(values: Any) -> str:
    """``values`` as YAML that ``parse`` reads as the same, their keys in their order."""
    return str(yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


class Document(Struct, frozen=True):
    """Plain values of a YAML file, and where each of them stands.

    Attributes:
        values: The mapping at the top of the file.
        lines: Line (from 1) of each key or list item by its path, such as ``("roles", "learner", "gpus", 0)``.
        name: The file's name as the user gave it.
        inherited: File of each path that comes from a base layout; its line is a line of that file.
    """

    values: dict[str, Any]
    lines: dict[Path_, int]
    name: str
    inherited: dict[Path_, str] = {}

    def place(self, path: Path_) -> tuple[str, int]:
        """File and line of ``path``, or of its nearest parent that stands somewhere; line 0 where none does."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.inherited.get(path, self.name), self.lines.get(path, 0) if path else 0


def read_text(path: Path) -> str:
    """Return the text of a layout file.

    Raises:
        LayoutError: Not a readable UTF-8 text file of at most ``MAX_BYTES`` bytes.
    """
    name = str(path)
    try:
        if path.is_dir():
            raise LayoutError([Problem("is a directory, not a layout file", file=name)])
        if path.exists() and not path.is_file():
            raise LayoutError([Problem("is not a regular file", file=name)])
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise LayoutError([Problem(f"cannot be read: {error.strerror or error}", file=name)]) from error
    except ValueError as error:  # a NUL in the name
        raise LayoutError([Problem(f"cannot be read: {error}", file=name)]) from error
    return decode(data, name)


def decode(data: bytes, name: str) -> str:
    """Return ``data`` as text; layouts are small and UTF-8.

    Raises:
        LayoutError: Too large, binary, or not UTF-8.
    """
    if len(data) > MAX_BYTES:
        raise LayoutError(
            [Problem(f"is larger than {MAX_BYTES >> 20} MiB; a layout is a few hundred bytes", file=name)]
        )
    if b"\0" in data:
        raise LayoutError([Problem("is binary, not a YAML text file", file=name)])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise LayoutError([Problem("is not UTF-8 text", file=name, line=line)]) from error


def parse(text: str, name: str, expected: str = "a layout starts with 'layout: 1'") -> Document:
    """Parse YAML ``text`` into a ``Document``.

    Args:
        text: The file's content.
        name: The file's name, for messages.
        expected: What to say of a file that holds no mapping.

    Raises:
        LayoutError: Every problem found, each with its line.
    """
    try:
        _refuse_bombs(text, name)
        loader = _CoreLoader(text)
        try:
            root = loader.get_single_node()
            reader = _Reader(loader, name)
            values = reader.read(root, ()) if root is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = error.problem or error.context or "not valid YAML"
        raise LayoutError(
            [Problem(f"is not valid YAML: {what}", file=name, line=mark.line + 1 if mark else 0)]
        ) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:  # what is no UTF-8 in an argument comes as half a character
        raise LayoutError([Problem(f"is not valid YAML: {' '.join(str(error).split())}", file=name)]) from error
    if reader.problems:
        raise LayoutError(reader.problems)
    if not isinstance(values, dict):
        what = "is empty" if values is None else "holds no mapping at its top"
        raise LayoutError([Problem(f"{what}; {expected}", file=name, line=1)])
    return Document(values, reader.lines, name)


def _refuse_bombs(text: str, name: str) -> None:
    """Refuse deep nesting, floods of nodes and aliases while they are still events, before any tree is built."""
    depth = 0
    for nodes, event in enumerate(_events(text)):
        if isinstance(event, yaml.AliasEvent):
            problem = Problem("uses a YAML alias (*name); write the value out", file=name, line=_line(event))
            raise LayoutError([problem])
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            what = (
                f"is nested deeper than {MAX_DEPTH} levels"
                if depth > MAX_DEPTH
                else f"has more than {MAX_NODES} values"
            )
            raise LayoutError([Problem(what, file=name, line=_line(event))])


def _events(text: str) -> Iterator[Any]:
    return iter(yaml.parse(text, Loader=_CoreLoader))


def _line(event: Any) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


class _Reader:
    """Turns nodes into plain values while it notes lines and collects problems."""

    def __init__(self, loader: Any, name: str) -> None:
        self.loader = loader
        self.name = name
        self.lines: dict[Path_, int] = {}
        self.problems: list[Problem] = []

    def read(self, node: yaml.Node, path: Path_) -> Any:
        """Value of ``node``; its line is noted under ``path``."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        if not node.tag.startswith("tag:yaml.org,2002:") or node.tag.endswith((":binary", ":python")):
            self._complain(f"has the tag {node.tag!r}; only plain values are read", path, node)
            return None
        return self._scalar(node, path)

    def _scalar(self, node: yaml.Node, path: Path_) -> Any:
        try:
            return self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self._complain(f"cannot be read as a value: {' '.join(str(error).split())[:200]}", path, node)
            return None

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self._complain("has a key that is not a word", path, key_node)
                continue
            here = (*path, key)
            if key in values:
                self._complain(f"is there twice; the first one is on line {self.lines[here]}", here, key_node)
                continue
            self.lines[here] = key_node.start_mark.line + 1
            values[key] = self.read(value_node, here)
        return values

    def _complain(self, message: str, path: Path_, node: yaml.Node) -> None:
        self.problems.append(Problem(message, file=self.name, line=node.start_mark.line + 1, key=dotted(path)))


def dotted(path: Path_) -> str:
    """``("roles", "learner", "gpus", 0)`` as ``roles.learner.gpus[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
