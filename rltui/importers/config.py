"""Configuration files of other systems: YAML with OmegaConf's ``${a.b}`` and ``defaults:``, and TOML.

Resolvers such as ``${oc.env:HOME}`` are never evaluated: their values are holes.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rltui.errors import UsageError
from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.source import one_beside, read_source
from rltui.importers.values import HOLE, is_known, to_bool, to_float, to_int
from rltui.paths import is_file

MAX_DEPTH = 40
MAX_NODES = 50_000
MAX_FILES = 30
_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTERPOLATION = re.compile(r"\$\{([^${}]*)\}")
_PLAIN = re.compile(r"(\.*)([A-Za-z_][\w-]*(?:\.[\w-]+)*)\Z")


def read_yaml(text: str, name: str) -> dict[str, Any]:
    """The mapping at the top of a YAML text.

    Raises:
        UsageError: Not YAML, not a mapping, a bomb, or with tags that would build objects.
    """
    try:
        _refuse_bombs(text, name)
        values = yaml.load(text, Loader=_Loader)  # _Loader is a safe one
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}" if mark else ""
        raise UsageError(f"{name}{place}: not valid YAML: {error.problem or error.context}.") from error
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{name}: not valid YAML: {' '.join(str(error).split())[:200]}.") from error
    if not isinstance(values, dict):
        raise UsageError(f"{name} holds no mapping at its top, so it is no configuration file.")
    _refuse_floods(values, name)
    return {str(key): value for key, value in values.items()}


def _refuse_bombs(text: str, name: str) -> None:
    """Refuse deep nesting, floods of nodes and aliases that multiply, before any tree is built."""
    depth = aliases = 0
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        aliases += isinstance(event, yaml.AliasEvent)
        if depth > MAX_DEPTH:
            raise UsageError(f"{name} is nested deeper than {MAX_DEPTH} levels.")
        if count > MAX_NODES or aliases > 100:
            raise UsageError(f"{name} has more values than a configuration file has.")


def _refuse_floods(values: Any, name: str) -> None:
    """Refuse a tree that aliases make larger than any configuration, before anything walks it."""
    waiting, seen = [values], 0
    while waiting:
        value = waiting.pop()
        seen += 1
        if seen > MAX_NODES:
            raise UsageError(f"{name} has more values than a configuration file has.")
        waiting.extend(value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())


def read_toml(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML text.

    Raises:
        UsageError: Not TOML, or this Python cannot read it.
    """
    try:
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ImportError as error:
        raise UsageError(
            f"{name}: this Python cannot read TOML.", "Use Python 3.11 or newer, or install tomli beside rltui."
        ) from error
    try:
        values: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
        raise UsageError(f"{name}: not valid TOML: {' '.join(str(error).split())[:200]}.") from error
    return values


class _Chain(NamedTuple):
    """How a kind of file names those that it builds on.

    Attributes:
        key: Under which it names them.
        find: The file that a name beside another file means, if it is there.
        read: Its values, out of its text and name.
        section: The dotted section in which what a name means belongs; empty at the top.
    """

    key: str
    find: Callable[[Path, Any], Path | None]
    read: Callable[[str, str], dict[str, Any]]
    section: Callable[[Any], str] = lambda _: ""

    def whole(self, values: dict[str, Any], path: Path) -> tuple[dict[str, Any], list[str]]:
        """``values`` of the file ``path`` over those that it builds on, and the names of files that are not there.

        Raises:
            UsageError: The files name each other in a circle, or one of them cannot be read.
        """
        missing: list[str] = []
        return self._over(values, path, (path.resolve(),), missing), missing

    def _over(self, values: dict[str, Any], path: Path, seen: tuple[Path, ...], missing: list[str]) -> dict[str, Any]:
        names = values.get(self.key)
        result: dict[str, Any] = {}
        for name in names if isinstance(names, list) else [names] if names else []:
            if name == "_self_":
                continue
            target = self.find(path, name)
            if target is None:
                missing.append(str(name))
                continue
            if target.resolve() in seen or len(seen) > MAX_FILES:
                raise UsageError(f"{path}: its {self.key} come back to {target.name}.", "Break the circle.")
            base = self.read(read_source(target), str(target))
            inner = self._over(base, target, (*seen, target.resolve()), missing)
            section = self.section(name)
            result = merged(result, nested(section.split("."), inner) if section else inner)
        return merged(result, {key: value for key, value in values.items() if key != self.key})


def toml_chain(values: dict[str, Any], path: Path) -> tuple[dict[str, Any], list[str]]:
    """A file of prime-rl with all that its ``toml_files`` name, and their paths; later ones win."""
    return _Chain("toml_files", lambda path, name: one_beside(path, str(name)), read_toml).whole(values, path)


def with_defaults(values: dict[str, Any], path: Path) -> tuple[dict[str, Any], list[str]]:
    """A file of NeMo-RL with all that its ``defaults`` name, and their paths; the file itself wins."""
    return _Chain("defaults", _default, read_yaml).whole(values, path)


def _default(path: Path, name: object) -> Path | None:
    """The file that an entry of ``defaults`` names, if it is there."""
    targets = (path.parent / f"{name}{ending}" for ending in ("", ".yaml", ".yml"))
    return next((target for target in targets if is_file(target)), None)


def with_hydra_defaults(values: dict[str, Any], path: Path) -> tuple[dict[str, Any], list[str]]:
    """A file of Hydra's with all that its ``defaults`` name, and those that are not there; the file itself wins.

    What Hydra brings along itself (``override hydra/job_logging: stdout``) says nothing of a training.
    """
    listed = values.get("defaults")
    if not isinstance(listed, list):
        return values, []
    own = [entry for entry in listed if not _of_hydra(entry).startswith("override ")]
    return _Chain("defaults", _hydra_file, read_yaml, _hydra_section).whole({**values, "defaults": own}, path)


def _of_hydra(entry: object) -> str:
    """An entry of Hydra's ``defaults`` as ``group/option@section``, also one that is ``group@section: option``."""
    if not isinstance(entry, dict) or len(entry) != 1:
        return str(entry)
    ((group, option),) = entry.items()
    name, at, section = str(group).partition("@")
    return f"{name}/{option}{at}{section}"


def _hydra_file(path: Path, entry: object) -> Path | None:
    return _default(path, _of_hydra(entry).partition("@")[0])


def _hydra_section(entry: object) -> str:
    """Where a file of a group belongs: behind the ``@``, else the group's own name."""
    name, at, section = _of_hydra(entry).partition("@")
    found = section if at else name.rpartition("/")[0].replace("../", "").replace("/", ".").strip(".")
    return "" if found in ("_global_", "_here_") else found


def settings_beside(path: Path, name: str) -> Settings | None:
    """The settings of the YAML file ``name`` beside ``path``; None where it is not there, as ``one_beside`` looks."""
    target = one_beside(path, name)
    return None if target is None else from_mapping(read_yaml(read_source(target), str(target)))


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``base`` with the values of ``over`` put over it, mapping by mapping."""
    if over.get("_override_") is True:
        return {key: value for key, value in over.items() if key != "_override_"}
    result = dict(base)
    for key, value in over.items():
        before = result.get(key)
        result[key] = merged(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return result


def nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """A value as the only one in mappings of these names, the outermost first."""
    for key in reversed(keys[1:]):
        value = {key: value}
    return {keys[0]: value}


def plain_value(text: str) -> Any:
    """A word of a command as YAML and TOML would have it; a hole where it is not known."""
    if not is_known(text):
        return HOLE
    bare = text.strip().strip("'\"")
    if bare in ("null", "None", "~"):
        return None
    if to_int(bare) is not None:
        return to_int(bare)
    if bare.lower() in ("true", "false"):
        return to_bool(bare)
    if re.fullmatch(r"\[?\d+(?:\s*,\s*\d+)*\]?", bare) and ("," in bare or "[" in bare):
        return [int(piece) for piece in re.findall(r"\d+", bare)]
    number = to_float(bare)
    return bare if number is None else number


def interpolated(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with every plain ``${a.b}`` and ``${..b}`` replaced; what resolvers would give becomes a hole."""
    interpolation = _Interpolation(values)
    return {key: interpolation.resolved(value, (key,), 0) for key, value in values.items()}


class _Interpolation:
    """Replaces references in one tree of values."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.steps = 0

    def resolved(self, value: Any, path: tuple[str | int, ...], depth: int) -> Any:
        """``value``, which stands at ``path``, with its references replaced."""
        self.steps += 1
        if depth > MAX_DEPTH or self.steps > 4 * MAX_NODES:
            return HOLE
        if isinstance(value, dict):
            return {str(key): self.resolved(inner, (*path, key), depth + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.resolved(inner, (*path, index), depth + 1) for index, inner in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = _INTERPOLATION.fullmatch(value)
        if whole:
            return self.referred(whole.group(1), path, depth)
        text = _INTERPOLATION.sub(lambda match: str(self.referred(match.group(1), path, depth)), value)
        return HOLE if "${" in text or len(text) > 10_000 else text

    def referred(self, name: str, path: tuple[str | int, ...], depth: int) -> Any:
        """The value that a reference at ``path`` names; a hole where it is none or a resolver."""
        match = _PLAIN.match(name.strip())
        if match is None:
            return HOLE
        dots, dotted = match.groups()
        # one dot is the mapping that holds the reference, each further dot its parent
        target = (*(path[: len(path) - len(dots)] if dots else ()), *dotted.split("."))
        if len(dots) > len(path):
            return HOLE
        value: Any = self.root
        for part in target:
            inside = isinstance(value, list) and isinstance(part, int) and part < len(value)
            if not inside and not (isinstance(value, dict) and part in value):
                return HOLE
            value = value[part]
        return self.resolved(value, target, depth + 1)
