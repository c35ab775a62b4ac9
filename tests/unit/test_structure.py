"""Sizes that keep the code readable: limits that nothing may break, and a share that most must keep."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("rltui", "trainers", "tools")
EVERYTHING = (*PRODUCT, "tests")
LONGEST_FILE, LONGEST_CLASS, LONGEST_FUNCTION = 400, 300, 60
SHORT_FUNCTION, SHORT_SHARE = 20, 0.8


@dataclass(frozen=True)
class Piece:
    """A file, class or function and its length in lines, decorators left out."""

    kind: str
    where: str
    lines: int


def pieces(path: Path) -> list[Piece]:
    """Return the file at ``path`` and every class and function in it."""
    text = path.read_text()
    place = str(path.relative_to(ROOT))
    found = [Piece("file", place, len(text.splitlines()))]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            found.append(Piece(kind, f"{place}:{node.lineno} {node.name}", length))
    return found


@cache
def all_pieces(*rooms: str) -> list[Piece]:
    """Return the pieces of all Python files in ``rooms``, longest first."""
    files = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    assert files, f"no Python file in {rooms}"
    return sorted((piece for path in files for piece in pieces(path)), key=lambda piece: -piece.lines)


@pytest.mark.parametrize(
    ("kind", "limit"), [("file", LONGEST_FILE), ("class", LONGEST_CLASS), ("function", LONGEST_FUNCTION)]
)
def test_nothing_is_longer_than_its_limit(kind: str, limit: int) -> None:
    too_long = [piece for piece in all_pieces(*EVERYTHING) if piece.kind == kind and piece.lines > limit]
    assert not too_long, "\n".join(f"{piece.lines} lines: {piece.where}" for piece in too_long)


@pytest.mark.parametrize("room", PRODUCT)
def test_most_functions_fit_on_a_card(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    functions = [piece for piece in all_pieces(room) if piece.kind == "function"]
    share = sum(piece.lines <= SHORT_FUNCTION for piece in functions) / len(functions)
    worst = "\n".join(f"{piece.lines:4d} lines: {piece.where}" for piece in functions[:5])
    with capsys.disabled():
        print(f"\n{room}: {share:.1%} of {len(functions)} functions have at most {SHORT_FUNCTION} lines\n{worst}")
    assert share >= SHORT_SHARE, worst


def test_every_test_file_has_a_name_of_its_own() -> None:
    """The folders of ``tests`` are no packages: of two files of one name pytest collects one and refuses the other."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, count in names.items() if count > 1]
