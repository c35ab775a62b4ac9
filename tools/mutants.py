"""Break the code on purpose, at places drawn by chance, and see whether the tests notice.

``python tools/mutants.py [--count 48] [--seed 1] [--only rltui]`` changes one thing at a time in a copy of the
committed tree: a comparison, a number, an ``and``, a ``not``, a sign. The tests that import the changed module run
against it, those of tests/unit first. It prints a line for each, and how many were noticed; one that survives is either
a gap in the tests or a change that changes nothing, which only a reader can tell.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("rltui", "trainers")
NEEDS_A_RUN = ("cluster", "ssh", "bench")
"""Folders of tests that start clusters: minutes each, and not for one change of one line."""
MOST_TEST_FILES = 25
DEADLINE_S = 300
FOLDER_DEADLINE_S = 1800
"""A whole folder takes minutes on a busy machine without any change; what is not over by then hangs."""

COMPARED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
COMPUTED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*"}


class Mutant(NamedTuple):
    """A change of one place: its file, its line, what stood there and what stands there now."""

    path: Path
    line: int
    old: str
    new: str
    text: str
    """The whole file with the change in it."""


def mutants_of(path: Path) -> list[Mutant]:
    """Return all changes that are possible in a file, annotations and texts left alone."""
    text = path.read_text(encoding="utf-8")
    found = []
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in function.body:
                for node in ast.walk(statement):
                    found += [] if (change := _change(node, text)) is None else [_mutant(path, text, node, change)]
    return found


def _change(node: ast.AST, text: str) -> str | None:
    """What to write in place of ``node``; None where there is nothing to change."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARED:
            return f"{_source(text, left)} {COMPARED[type(operator)]} {_source(text, right)}"
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in COMPUTED and not _is_text(node):
            return f"{_source(text, left)} {COMPUTED[type(operator)]} {_source(text, right)}"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            return word.join(f"({_source(text, value)})" for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"bool({_source(text, operand)})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(value)):
            return str(value + 1)
        case _:
            return None


def _is_text(node: ast.BinOp) -> bool:
    """Whether a part of it is a text or a tuple: a sign between these is no arithmetic."""
    return any(isinstance(part, ast.JoinedStr | ast.Tuple | ast.List | ast.Set | ast.Dict) or (
        isinstance(part, ast.Constant) and isinstance(part.value, str | bytes)) for part in ast.walk(node))  # fmt: skip


def _source(text: str, node: ast.AST) -> str:
    return ast.get_source_segment(text, node) or ""


def _mutant(path: Path, text: str, node: ast.AST, change: str) -> Mutant:
    lines = text.splitlines(keepends=True)
    assert isinstance(node, ast.expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    starts = [0, *(sum(len(line.encode()) for line in lines[: index + 1]) for index in range(len(lines)))]
    raw = text.encode()
    first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    changed = raw[:first] + f"({change})".encode() + raw[last:]
    return Mutant(path, node.lineno, raw[first:last].decode(), change, changed.decode())


def tests_for(path: Path, tree: Path) -> list[str]:
    """Return the test files that import the module of ``path``: first those named like it, then tests/unit's."""
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b")
    files = [
        file
        for file in sorted((tree / "tests").rglob("test_*.py"))
        if file.relative_to(tree / "tests").parts[0] not in NEEDS_A_RUN and imports.search(file.read_text("utf-8"))
    ]
    files.sort(key=lambda file: (name not in file.stem, "unit" not in file.parts))
    return [str(file.relative_to(tree)) for file in files[:MOST_TEST_FILES]]


def draw(tree: Path, packages: Sequence[str], count: int, chance: random.Random) -> list[Mutant]:
    """Draw ``count`` changes, as many from each room as from any other, of files that a test imports."""
    folders = [path for room in packages for path in sorted((tree / room).iterdir()) if path.name != "__pycache__"]
    rooms = [sorted(folder.rglob("*.py")) if folder.is_dir() else [folder] for folder in folders]
    rooms = [files for files in rooms if files[0].suffix == ".py"]
    found: list[Mutant] = []
    while len(found) < count:
        path = chance.choice(rooms[len(found) % len(rooms)])
        possible = mutants_of(path)
        if possible and tests_for(path.relative_to(tree), tree):
            found.append(chance.choice(possible))
        else:
            chance.shuffle(rooms)
    return found


def verdict(mutant: Mutant, tree: Path, tests: Sequence[str], deadline_s: float) -> str:
    """Run ``tests`` against the change, and put the file back: ``noticed``, ``hung`` or ``SURVIVED``.

    A change that makes them hang is noticed too; it has a word of its own, as a machine that is busy looks the same.
    """
    before = mutant.path.read_text(encoding="utf-8")
    mutant.path.write_text(mutant.text, encoding="utf-8")
    argv = [sys.executable, "-m", "pytest", "-x", "-q", *tests]
    try:
        done = subprocess.run(argv, cwd=tree, capture_output=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired:
        return "hung"
    else:
        return "noticed" if done.returncode else "SURVIVED"
    finally:
        mutant.path.write_text(before, encoding="utf-8")


def room_tests(path: Path) -> str:
    """Return the folder whose tests are to guard the module of ``path`` in seconds."""
    if path.parts[0] == "trainers":
        return "tests/trainers"
    return {"tui": "tests/tui", "diagnose": "tests/diagnose"}.get(path.parts[1], "tests/unit")


def tried(
    mutants: Sequence[Mutant], tree: Path, tests: Mapping[Mutant, Sequence[str]], deadline_s: float
) -> list[Mutant]:
    """Try each change, print a line about it, and return those that nobody noticed."""
    left = []
    for number, mutant in enumerate(mutants, 1):
        word = verdict(mutant, tree, tests[mutant], deadline_s)
        left += [mutant] if word == "SURVIVED" else []
        old, new = (" ".join(text.split()) for text in (mutant.old, mutant.new))
        print(f"{number:3} {word:8} {mutant.path.relative_to(tree)}:{mutant.line}  {old}  ->  {new}", flush=True)
    return left


def main() -> int:
    """Entry point; returns 0 whatever survives, as what to make of it is a reader's decision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PACKAGES, default=PACKAGES, help="trainers' tests take minutes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", folder], input=archive.stdout, check=True)
        drawn = draw(tree, options.only, options.count, random.Random(options.seed))
        of_module = {mutant: tests_for(mutant.path.relative_to(tree), tree) for mutant in drawn}
        left = tried(drawn, tree, of_module, DEADLINE_S)
        print(f"{len(drawn) - len(left)} of {len(drawn)} noticed by the tests of their module, seed {options.seed}")
        of_folder = {mutant: [room_tests(mutant.path.relative_to(tree))] for mutant in left}
        still = tried(left, tree, of_folder, FOLDER_DEADLINE_S)
        print(f"{len(drawn) - len(still)} of {len(drawn)} noticed by all tests of their folder")
    return 0


if __name__ == "__main__":
    sys.exit(main())
