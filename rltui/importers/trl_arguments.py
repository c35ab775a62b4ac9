"""The arguments of ``GRPOConfig(…)`` in a Python program, read from its syntax tree; nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from rltui.importers.python_launcher import parsed
from rltui.importers.python_values import value_of
from rltui.importers.values import HOLE

CONFIG = "GRPOConfig"
_LOADERS = ("FastLanguageModel", "FastVisionModel", "FastModel")


class Program(Struct, frozen=True):
    """What a program says of its GRPO; a hole stands for a value that only a run would show.

    Attributes:
        configs: Arguments of each ``GRPOConfig``.
        loading: Arguments of unsloth's loader; None where there is none.
        model: The model that is trained.
    """

    configs: tuple[dict[str, Any], ...]
    loading: dict[str, Any] | None
    model: Any


def read_program(text: str, path: Path) -> Program:
    """What the program ``text`` says.

    Raises:
        UsageError: Not Python.
    """
    tree = parsed(text, path)
    names = _names(tree)
    calls = [(_called(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    by_name = dict(reversed(calls))
    loader = next((by_name[name] for kind in _LOADERS if (name := f"{kind}.from_pretrained") in by_name), None)
    trainer = _keywords(by_name.get("GRPOTrainer"), names)
    peft = next((_keywords(node, names) for name, node in calls if name.endswith("get_peft_model")), {})
    loading = None if loader is None else _keywords(loader, names)
    model = (loading or {}).get("model_name") or _first(loader, names) or trainer.get("model") or HOLE
    rank = {"lora_r": peft["r"]} if "r" in peft else {}
    configs = (_keywords(node, names) | rank for name, node in calls if name.rsplit(".", 1)[-1] == CONFIG)
    return Program(tuple(configs), loading, model)


def _names(tree: ast.Module) -> dict[str, Any]:
    """Names that stand for one value all over the file; a hole for those that are set twice, or by a caller."""
    names: dict[str, Any] = {}
    for target, value in _assigned(tree):
        found = value_of(value, names)
        names[target] = found if target not in names or names[target] == found else HOLE
    return names


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        elif isinstance(node, ast.arg):
            yield node.arg, None
        elif isinstance(node, ast.AugAssign | ast.For) and isinstance(node.target, ast.Name):
            yield node.target.id, None


def _called(function: ast.expr) -> str:
    """The dotted name that is called; empty where it is no name."""
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        return f"{_called(function.value)}.{function.attr}".lstrip(".")
    return ""


def _keywords(call: ast.Call | None, names: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a call by keyword."""
    given = call.keywords if call else []
    return {keyword.arg: value_of(keyword.value, names) for keyword in given if keyword.arg}


def _first(call: ast.Call | None, names: Mapping[str, Any]) -> Any:
    """The first argument of a call by position; None where there is none."""
    return value_of(call.args[0], names) if call and call.args else None
