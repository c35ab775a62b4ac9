"""What ``tools/proof.py`` sees of a house: circles of imports, and the files that a walk leads through."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TEXTS = {
    "house.door": "from house.hall import Hall\ndef enter():\n    return Hall().stairs()\n",
    "house.hall": "def other(): pass\nclass Hall:\n    def stairs(self):\n        from house.room import Room\n"
    "        return self.up(Room())\n    def up(self, room):\n        return room.light()\n",
    "house.room": "import house.cellar\nclass Room:\n    def light(self):\n        return house.cellar.fuse()\n",
    "house.cellar": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.room import Room\n"
    "def fuse(): pass\ndef lost(): pass\n",
}


@pytest.fixture(scope="module")
def proof() -> ModuleType:
    spec = importlib.util.spec_from_file_location("proof", Path(__file__).parents[2] / "tools" / "proof.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["proof"] = module
    spec.loader.exec_module(module)
    return module


def test_a_walk_goes_by_calls_and_counts_changes_of_file(proof: ModuleType) -> None:
    graph = proof.calls([proof.File(name, text, ast.parse(text)) for name, text in TEXTS.items()])
    way = ["house.door", "house.hall", "house.room"]
    assert proof.walk(graph, "house.door:enter", "house.room:Room.light") == way
    assert proof.walk(graph, "house.door:enter", "house.hall:other") is None
    assert proof.walk(graph, "house.door:enter", "house.cellar:lost") is None


@pytest.mark.parametrize(("everywhere", "expected"), [(False, []), (True, [{"house.room", "house.cellar"}])])
def test_a_circle_may_be_one_of_types_only(proof: ModuleType, everywhere: bool, expected: list[set[str]]) -> None:
    files = [proof.File(name, text, ast.parse(text)) for name, text in TEXTS.items()]
    graph = {
        file.name: {
            target.partition(":")[0] for target in proof.imports_of(file, TEXTS, everywhere=everywhere).values()
        }
        for file in files
    }
    assert proof.circles(graph) == expected


def test_minutes_and_mutants_are_those_that_runs_printed(proof: ModuleType) -> None:
    output = "minutes: cluster 50.6, tui 3.1\n27 of 44 noticed by the tests of their module, seed 1\n"
    assert proof.printed(output) == {
        "minutes of tests/cluster": "50.6",
        "minutes of tests/tui": "3.1",
        "mutants noticed by the tests of their module, seed 1": "27 of 44",
    }


def test_no_files_of_the_house_import_each_other_in_a_circle(proof: ModuleType) -> None:
    """Neither when they are loaded nor later, nor for types alone: each can be read after those that it imports."""
    root = Path(__file__).parents[2]
    files = []
    for path in (path for room in ("rltui", "trainers") for path in (root / room).rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        files.append(proof.File(name, "", ast.parse(path.read_text(encoding="utf-8"))))
    names = {file.name for file in files}
    graph = {
        file.name: {target.partition(":")[0] for target in proof.imports_of(file, names, everywhere=True).values()}
        for file in files
    }
    assert graph["rltui.watch.snapshots"] >= {"rltui.watch.owners"}, "what is imported is seen"
    assert [sorted(circle) for circle in proof.circles(graph)] == []
