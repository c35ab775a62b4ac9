"""Write the tables of settings that other systems know, out of clones of their repositories with all history.

``python tools/framework_keys.py CLONES`` reads the clones ``CLONES/OWNER/NAME``; nothing is run or checked out. A name
counts that any version had, so that no version's script is suspected. Names only are kept: one line a section, ``*``
behind a name whose own keys are free, ``~`` before one that only a class has and no file, ``@since-until`` behind one
that was not always there.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from framework_sources import SOURCES, Source

TABLES = Path(__file__).parent.parent / "rltui" / "check" / "frameworks" / "keys"
_FREE = re.compile(r"\b(?:dict|Dict|Mapping|Any|DictConfig|object)\b")
_WORDS = frozenset(
    {"Annotated", "Any", "Callable", "Dict", "False", "Field", "Final", "ClassVar", "List", "Literal", "NotRequired",
     "None", "Optional", "Path", "Required", "Sequence", "Set", "True", "Tuple", "Type", "Union", "Iterable"}
)  # fmt: skip
"""Words of types that are no classes of a configuration."""
_BASES = frozenset(
    {"ABC", "BaseConfig", "BaseModel", "BaseSettings", "Enum", "Generic", "Literal", "Optional", "Protocol", "T",
     "TypedDict", "Annotated", "Union", "Field", "None", "False", "True"}
)  # fmt: skip
"""Bases that have no fields."""


def main() -> None:
    """Write every table, or those whose names are given behind the folder of clones."""
    clones, *names = sys.argv[1:]
    for dialect in names or SOURCES:
        spans: dict[str, dict[str, _Span]] = defaultdict(dict)
        for source in SOURCES[dialect]:
            _History(source, Path(clones)).into(spans)
        (TABLES / f"{dialect}.txt").write_text(_text(spans), encoding="utf-8")


class _Span(NamedTuple):
    """From when until when a name was there, as YYMMDD; empty where it was from the start, or is still."""

    since: str = ""
    until: str = ""


def _text(spans: dict[str, dict[str, _Span]]) -> str:
    lines = []
    for section in sorted(spans):
        names = {
            name: span
            for name, span in spans[section].items()
            if f"{name}*" not in spans[section]
            and not (name.startswith("~") and {name[1:], f"{name[1:]}*"} & spans[section].keys())
        }
        words = [f"{name}@{span.since}-{span.until}" if any(span) else name for name, span in sorted(names.items())]
        lines.append(f"{section}: {' '.join(words)}")
    return "\n".join([*lines, ""])


class _History:
    """All versions of the files of a source, read once each."""

    def __init__(self, source: Source, clones: Path) -> None:
        owner, name = source.repository.split("/")
        places = (clones / owner / name, clones / owner / name / ".git")
        place = next(place for place in places if (place / "objects").is_dir())
        self.source = source
        self.git = ["git", f"--git-dir={place}"]
        self.parsed: dict[str, _Parsed] = {}

    def into(self, spans: dict[str, dict[str, _Span]]) -> None:
        """Add the names of every version; those of the samples, a fortnight apart, say from when until when."""
        changes = list(self._changes())
        blobs = {blob: path for _, path, blob in changes if blob}
        newest = {path: blob for _, path, blob in changes}
        if self.source.only_newest:
            old = re.compile(self.source.only_newest)
            blobs = {blob: path for blob, path in blobs.items() if not old.fullmatch(path) or newest[path] == blob}
        self._parse(blobs)
        since: dict[tuple[str, str], str] = {}
        until: dict[tuple[str, str], str] = {}
        before: set[tuple[str, str]] | None = None
        forms: set[tuple[str, str]] = set()
        for day, files in self._versions(changes, blobs):
            marked = {(section, name) for section, names in self._table(files).items() for name in names}
            now = {(section, name.strip("~*")) for section, name in marked}
            forms |= marked
            since |= {name: "" if before is None else day for name in now if name not in since}
            until |= dict.fromkeys((before or set()) - now, day)
            until |= dict.fromkeys(now, "")
            before = now
        for (section, name), day in since.items():
            typed = not {(section, name), (section, f"{name}*")} & forms
            free = (section, f"{name}*") in forms or (section, f"~{name}*") in forms
            word = f"{'~' if typed else ''}{name}{'*' if free else ''}"
            gone = until[section, name]
            first, last = self.source.unseen
            span = _Span(day, "" if first <= gone <= last else gone) if self.source.dated else _Span()
            before_it = spans[section].get(word)
            if before_it is None or self.source.dated:
                spans[section][word] = span if before_it is None else _wider(before_it, span)

    def _changes(self) -> Iterator[tuple[str, str, str]]:
        """Day, path and blob of every change of a file, oldest first; the blob is empty where the file is gone."""
        raw = _out(
            [
                *self.git,
                "log",
                "--reverse",
                "--raw",
                "--no-abbrev",
                "--no-renames",
                "-m",
                "--first-parent",
                "--format=@%ct",
            ]
        )
        day = ""
        for line in raw.splitlines():
            if line.startswith("@"):
                day = time.strftime("%y%m%d", time.gmtime(int(line[1:])))
                continue
            meta, _, path = line.partition("\t")
            if re.fullmatch(self.source.files, path) and "test" not in path:
                blob = meta.split()[3]
                yield day, path, blob if set(blob) != {"0"} else ""

    def _versions(
        self, changes: list[tuple[str, str, str]], blobs: dict[str, str]
    ) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """The files, with their blobs, at the end of each day on which their names changed."""
        now = {path: blob for blob, path in blobs.items() if self.source.only_newest and path.endswith(".yaml")}
        last: dict[str, int] = {}
        for day, group in groupby(changes, key=lambda change: change[0]):
            for _, path, blob in group:
                if blob in blobs:
                    now[path] = blob
                elif not blob and not (self.source.only_newest and path.endswith(".yaml")):
                    now.pop(path, None)
            marks = {path: self.parsed[blob].mark for path, blob in now.items() if blob in self.parsed}
            if marks != last:
                last = marks
                yield day, list(now.items())

    def _parse(self, blobs: dict[str, str]) -> None:
        with subprocess.Popen(
            [*self.git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            for blob, path in blobs.items():
                reader.stdin.write(f"{blob}\n".encode())
                reader.stdin.flush()
                head = reader.stdout.readline().split()
                if len(head) == 3:
                    text = reader.stdout.read(int(head[2])).decode("utf-8", "replace")
                    reader.stdout.read(1)
                    self.parsed[blob] = _parsed(text, path)

    def _table(self, files: list[tuple[str, str]]) -> dict[str, set[str]]:
        """Names by section that these files know together."""
        parsed = [(path, self.parsed[blob]) for path, blob in files if blob in self.parsed]
        if self.source.kind == "flat":
            return {"": set().union(*(one.flat for _, one in parsed))}
        table: dict[str, set[str]] = defaultdict(set)
        classes: dict[str, _Class] = defaultdict(_Class)
        targets: dict[str, set[str]] = defaultdict(set)
        mounted: dict[str, set[str]] = defaultdict(set)
        for _, one in parsed:
            for name, other in one.classes.items():
                classes[name].add(other)
            for package, file in one.mounted:
                mounted[file].add(package)
        for path, one in parsed:
            for package in ("", *mounted.get(path, ())):
                _mapping_into(one.values, package, table, targets)
        for root in self.source.roots:
            _flatten(root, "", classes, table, ())
        typed: dict[str, set[str]] = defaultdict(set)
        for section, roots in targets.items():
            for root in roots:
                _flatten(root, section, classes, typed, ())
        for section, names in typed.items():
            known = {name.rstrip("*") for name in table[section]}
            table[section].update(f"~{name}" for name in names if name.rstrip("*") not in known)
        return table


def _wider(one: _Span, other: _Span) -> _Span:
    since = "" if "" in (one.since, other.since) else min(one.since, other.since)
    until = "" if "" in (one.until, other.until) else max(one.until, other.until)
    return _Span(since, until)


class _Parsed(NamedTuple):
    """What one version of a file knows."""

    classes: dict[str, _Class]
    flat: frozenset[str]
    values: dict[Any, Any]
    mounted: list[tuple[str, str]]
    mark: int
    """What changes where names do."""


def _shape(values: object) -> object:
    return (
        [(key, _shape(value)) for key, value in values.items() if key != "_target_"] if isinstance(values, dict) else 0
    )


def _parsed(text: str, path: str) -> _Parsed:
    classes: dict[str, _Class] = defaultdict(_Class)
    values: Any = None
    flags: list[str] = []
    if path.endswith(".c"):
        flags = list(_slurm_options(text))
    elif path.endswith(".py"):
        _classes_of(text, classes)
        flags = [flag.replace("-", "_") for flag in _flags(text)]
    else:
        with suppress(yaml.YAMLError):
            values = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    values = values if isinstance(values, dict) else {}
    mounted = list(_mounted(text, path))
    fields = [
        (name, sorted(one.bases), sorted((field, sorted(types)) for field, types in one.fields.items()))
        for name, one in sorted(classes.items())
    ]
    flat = frozenset({*flags, *(field for one in classes.values() for field in one.fields)})
    return _Parsed(classes, flat, values, mounted, hash(repr((fields, sorted(flags), _shape(values), mounted))))


def _out(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, check=True).stdout.decode("utf-8", "replace")


def _slurm_options(text: str) -> Iterator[str]:
    """Options that sbatch takes; those that only srun takes, behind ``srun.``."""
    for name, setters in re.findall(r"slurm_cli_opt_t \w+ = \{\s*\.name = \"([\w-]+)\",(.*?)\n\};", text, re.DOTALL):
        taken = set(re.findall(r"\.set_func(\w*) =", setters))
        if taken & {"", "_sbatch"}:
            yield name
        elif "_srun" in taken:
            yield f"srun.{name}"


def _flags(text: str) -> Iterator[str]:
    for names in re.findall(
        r"""(?:add_argument|reset_arg)\(\s*(?:parser,\s*)?((?:f?["']--?[A-Za-z][\w.-]*["'],?\s*)+)""", text
    ):
        yield from re.findall(r"""["']--([A-Za-z][\w.-]+)["']""", names)


class _Class:
    """The fields that a class had in any version, each with the words of its type, and its bases."""

    def __init__(self) -> None:
        self.fields: dict[str, set[str]] = defaultdict(set)
        self.bases: set[str] = set()

    def add(self, other: _Class) -> None:
        """Take in what another version has."""
        self.bases |= other.bases
        for name, words in other.fields.items():
            self.fields[name] |= words


def _classes_of(text: str, classes: dict[str, _Class]) -> None:
    if not re.search(r"TypedDict|BaseModel|BaseConfig|dataclass|Config\):", text):
        return
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for alias in ast.walk(tree):
        # ``X: TypeAlias = A | B`` and ``X = Annotated[A | B, …]`` are classes with both as bases
        if isinstance(alias, (ast.Assign, ast.AnnAssign)) and alias.value is not None:
            target = alias.targets[0] if isinstance(alias, ast.Assign) else alias.target
            if (
                isinstance(target, ast.Name)
                and target.id[:1].isupper()
                and isinstance(alias.value, (ast.Subscript, ast.BinOp))
            ):
                classes[target.id].bases.update(re.findall(r"\b[A-Z]\w+", ast.unparse(alias.value)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef):
            continue
        one = classes[node.name]
        one.bases.update(re.findall(r"\w+", " ".join(ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases)))
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                words = ast.unparse(field.annotation)
                one.fields[field.target.id].add(words)
                value = ast.unparse(field.value) if field.value is not None else ""
                choices = re.search(r"AliasChoices\(([^)]*)\)", words + value)
                for name in re.findall(r"'([\w-]+)'", choices.group(1)) if choices else ():
                    one.fields[name.replace("-", "_")].add(words)


def _flatten(
    name: str, section: str, classes: dict[str, _Class], table: dict[str, set[str]], above: tuple[str, ...]
) -> None:
    """Put the fields of a class, and of those that it holds, under ``section``."""
    if name in above or name not in classes or len(above) > 8:
        return
    one = classes[name]
    parent, _, last = section.rpartition(".")
    if last and any(base[:1].isupper() and base not in classes and base not in _BASES for base in one.bases):
        table[parent].add(f"{last}*")  # what a class of another package has is not known
    for base in one.bases:
        _flatten(base, section, classes, table, (*above, name))
    for field, types in one.fields.items():
        if field.startswith("_"):
            continue
        here = f"{section}.{field}".lstrip(".")
        inner = {word for words in types for word in re.findall(r"\b\w+", words) if word in classes}
        # a class of another package may hold anything
        strange = any(set(re.findall(r"\b[A-Z]\w+", re.sub(r"'[^']*'", "", words))) - _WORDS - inner for words in types)
        free = strange or (not inner and any(_FREE.search(words) for words in types))
        table[section].add(f"{field}*" if free else field)
        for kind in inner:
            _flatten(kind, here, classes, table, (*above, name))


def _mapping_into(
    values: dict[Any, Any], section: str, table: dict[str, set[str]], targets: dict[str, set[str]]
) -> None:
    for key, value in values.items():
        if key == "_target_":
            targets[section].add(str(value).rsplit(".", 1)[-1])
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z]\w*", key):
            continue
        here = f"{section}.{key}".lstrip(".")
        table[section].add(f"{key}*" if value in ({}, None) else key)
        if isinstance(value, dict):
            _mapping_into(value, here, table, targets)


def _mounted(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Package and file of the groups in Hydra's ``defaults``."""
    for group, package, option in re.findall(r"^\s*-\s*([\w/]+)@([\w.]+):\s*(\w+)", text, re.MULTILINE):
        yield package, f"{name.rpartition('/')[0]}/{group}/{option}.yaml"


if __name__ == "__main__":
    main()
