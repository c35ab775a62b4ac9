"""Writing fixes into a layout file: the values change, comments and everything else stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import yaml
from msgspec import Struct

from rltui.errors import UsageError
from rltui.layout.document import Path_, dotted
from rltui.layout.errors import LayoutError
from rltui.layout.load import load_text
from rltui.layout.overrides import parse_override

if TYPE_CHECKING:
    from rltui.check.findings import Finding


class Fix(Struct, frozen=True):
    """The overrides that would settle findings of a layout.

    Attributes:
        words: ``key.path=value``, worst finding first, one for each key.
        codes: The findings that they settle.
        at_odds: Findings whose fix contradicts an earlier one; check again once that has been applied.
    """

    words: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    at_odds: tuple[str, ...] = ()


def collect(findings: Sequence[Finding]) -> Fix:
    """The fixes of all errors and warnings that agree with one another; notes are left to the user."""
    chosen: dict[str, str] = {}
    codes: list[str] = []
    at_odds: list[str] = []
    for finding in findings:
        if finding.severity == "note" or not finding.fix:
            continue
        wanted = {word.partition("=")[0]: word for word in finding.fix}
        if any(chosen.get(key, word) != word for key, word in wanted.items()):
            at_odds.append(finding.code)
            continue
        chosen.update(wanted)
        codes.append(finding.code)
    return Fix(tuple(chosen.values()), tuple(dict.fromkeys(codes)), tuple(dict.fromkeys(at_odds)))


def apply(text: str, name: str, words: Sequence[str]) -> str:
    """Return ``text`` with the overrides ``words`` written into it.

    Raises:
        UsageError: A value stands in a way that cannot be edited safely; nothing is changed then.
    """
    wanted = load_text(text, name, words).layout
    edited = text
    for word in words:
        path, value = parse_override(word)
        edited = _set(edited, path, value, name)
    try:
        same = load_text(edited, name).layout == wanted
    except LayoutError:
        same = False
    if not same:
        raise _refusal(name, " ".join(words))
    return edited


def _refusal(name: str, what: str) -> UsageError:
    return UsageError(f"{name}: the fix cannot be written safely into this file.", f"Write it yourself: {what}")


def _set(text: str, path: Path_, value: Any, name: str) -> str:
    root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    node: Any = root
    for depth, part in enumerate(path):
        child = _child(node, part)
        if child is None:
            return _insert(text, node, path[depth:], value, top=node is root, name=name)
        node = child
    start, end = node.start_mark.index, node.end_mark.index
    block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    if isinstance(node, yaml.SequenceNode) and block and isinstance(value, list):
        return _relist(text, node, value, name, path)
    if block or "\n" in text[start:end] or "#" in text[start:end]:
        raise _refusal(name, f"{dotted(path)}={_flow(value)}")
    space = " " if start == end and text[start - 1 : start] == ":" else ""
    return text[:start] + space + _flow(value) + text[end:]


def _relist(text: str, node: yaml.SequenceNode, values: list[Any], name: str, path: Path_) -> str:
    """Rewrite a list that has one plain item a line; the items that stay keep their lines, comments and all.

    Raises:
        UsageError: An item is no plain value on a line of its own, or a comment would go with what is dropped.
    """
    refusal = _refusal(name, f"{dotted(path)}={_flow(values)}")
    lines = text.splitlines(keepends=True)
    first, last = node.value[0].start_mark.line, node.value[-1].start_mark.line
    old = {item.start_mark.line: item for item in node.value}
    if not values or not all(isinstance(item, yaml.ScalarNode) for item in node.value) or last - first + 1 != len(old):
        raise refusal
    left = [(yaml.safe_load(item.value) if item.style is None else item.value, line) for line, item in old.items()]
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    written: list[str] = []
    for value in values:
        kept = next((pair for pair in left if pair[0] == value), None)
        if kept:
            left.remove(kept)
        written.append(lines[kept[1]].rstrip("\n") if kept else f"{indent}- {_flow(value)}")
    if any("#" in lines[line] for _, line in left) or not lines[first].lstrip().startswith("-"):
        raise refusal
    ends = "\n" if lines[last].endswith("\n") else ""
    return "".join([*lines[:first], "\n".join(written) + ends, *lines[last + 1 :]])


def _child(node: Any, part: str | int) -> Any:
    if isinstance(part, int):
        return node.value[part] if isinstance(node, yaml.SequenceNode) and part < len(node.value) else None
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    return None


def _insert(text: str, parent: Any, missing: Path_, value: Any, top: bool, name: str) -> str:
    """Add the key ``missing[0]``, with the rest of the path below it, as the last one of ``parent``."""
    for part in reversed(missing[1:]):
        value = {part: value}
    entry = f"{missing[0]}: {_flow(value)}"
    if not isinstance(parent, yaml.MappingNode) or isinstance(missing[0], int):
        raise _refusal(name, entry)
    if parent.flow_style:
        close = parent.end_mark.index - 1
        separator = ", " if parent.value else ""
        last = parent.value[-1][1].end_mark.index if parent.value else close
        return text[:last] + separator + entry + text[last:]
    if top:
        return text + ("" if text.endswith("\n") else "\n") + entry + "\n"
    first = parent.value[0][0].start_mark
    line = text.rfind("\n", 0, first.index) + 1
    indent: int = first.column
    return text[:line] + " " * indent + entry + "\n" + text[line:]


def _flow(value: Any) -> str:
    """``value`` on one line, as YAML 1.2 reads it."""
    if isinstance(value, str) and value and not value[0].isdigit():
        dumped = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
        return str(dumped).removesuffix("\n").removesuffix("\n...").strip()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return _number(value)
    dumped = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    return str(dumped).removesuffix("\n").removesuffix("\n...").strip()


def _number(value: float) -> str:
    """``1.0e-06`` rather than ``1e-06``, which readers of YAML 1.1 take for text."""
    text = str(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text
