"""Python expressions on paper: what literals, names and a few operators come to; all else is a hole."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from rltui.importers.values import HOLE

MAX_TEXT = 100_000
MAX_NUMBER = 10**12
GPUS_OF_HARDWARE = {"H100": 8, "H200": 8, "B200": 8, "B300": 8, "GB200": 4, "GB300": 4, "MI300X": 8, "MI350X": 8}
"""GPUs a node that miles' ``NUM_GPUS_OF_HARDWARE`` names."""
_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod,
}  # fmt: skip
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda left, right: left in right,
}  # fmt: skip
_CALLED: Mapping[str, Callable[..., Any]] = {
    "int": int, "float": float, "str": str, "bool": bool, "len": len, "min": min, "max": max, "abs": abs,
}  # fmt: skip


def known(value: Any) -> bool:
    """Whether a value holds no hole."""
    return not (isinstance(value, str) and HOLE in value)


def value_of(node: ast.expr | None, names: Mapping[str, Any]) -> Any:
    """The value of an expression; a hole where it is not known.

    Args:
        node: The expression.
        names: Values by name; a mapping stands for an object with fields.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return names.get(node.id, HOLE)
    handler = _HANDLERS.get(type(node))
    try:
        return handler(node, names) if handler else HOLE
    except (TypeError, ValueError, KeyError, IndexError, ZeroDivisionError, OverflowError, AttributeError):
        return HOLE


def _attribute(node: ast.Attribute, names: Mapping[str, Any]) -> Any:
    if node.attr == "NUM_GPUS_OF_HARDWARE":
        return GPUS_OF_HARDWARE
    owner = value_of(node.value, names)
    return owner.get(node.attr, HOLE) if isinstance(owner, dict) else HOLE


def _joined(node: ast.JoinedStr, names: Mapping[str, Any]) -> Any:
    pieces: list[str] = []
    for piece in node.values:
        value = value_of(piece.value if isinstance(piece, ast.FormattedValue) else piece, names)
        plain = isinstance(value, str | int | float | bool) or value is None
        formatted = isinstance(piece, ast.FormattedValue) and (piece.format_spec or piece.conversion != -1)
        pieces.append(str(value) if plain and not (formatted and not isinstance(value, str)) else HOLE)
    return _bounded("".join(pieces))


def _bounded(value: Any) -> Any:
    """``value``, or a hole where it grows without end."""
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else HOLE
    return HOLE if isinstance(value, int | float) and abs(value) > MAX_NUMBER else value


def _binary(node: ast.BinOp, names: Mapping[str, Any]) -> Any:
    left, right = value_of(node.left, names), value_of(node.right, names)
    adds_text = isinstance(node.op, ast.Add) and isinstance(left, str) and isinstance(right, str)
    if adds_text:
        return _bounded(left + right)
    numbers = all(isinstance(side, int | float) for side in (left, right))
    return _bounded(_BINARY[type(node.op)](left, right)) if numbers else HOLE


def _boolean(node: ast.BoolOp, names: Mapping[str, Any]) -> Any:
    wants = isinstance(node.op, ast.Or)
    value: Any = HOLE
    doubtful = False
    for part in node.values:
        value = value_of(part, names)
        if not known(value):
            doubtful = True
        elif bool(value) == wants and not doubtful:
            return value
    return HOLE if doubtful else value


def _compare(node: ast.Compare, names: Mapping[str, Any]) -> Any:
    left = value_of(node.left, names)
    for operation, other in zip(node.ops, node.comparators, strict=True):
        right = value_of(other, names)
        if not known(left) or not known(right) or (isinstance(right, list | tuple) and HOLE in right):
            return HOLE
        if not _COMPARED[type(operation)](left, right):
            return False
        left = right
    return True


def _choice(node: ast.IfExp, names: Mapping[str, Any]) -> Any:
    test = value_of(node.test, names)
    if known(test):
        return value_of(node.body if test else node.orelse, names)
    first, second = value_of(node.body, names), value_of(node.orelse, names)
    return first if first == second else HOLE


def _negated(node: ast.UnaryOp, names: Mapping[str, Any]) -> Any:
    value = value_of(node.operand, names)
    if not known(value):
        return HOLE
    return not value if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else HOLE


def _listed(node: ast.List | ast.Tuple, names: Mapping[str, Any]) -> Any:
    return [value_of(item, names) for item in node.elts]


def _mapped(node: ast.Dict, names: Mapping[str, Any]) -> Any:
    return {
        value_of(key, names): value_of(value, names) for key, value in zip(node.keys, node.values, strict=True) if key
    }


def _item(node: ast.Subscript, names: Mapping[str, Any]) -> Any:
    key = value_of(node.slice, names)
    return value_of(node.value, names)[key] if known(key) else HOLE


def _call(node: ast.Call, names: Mapping[str, Any]) -> Any:
    arguments = [value_of(argument, names) for argument in node.args]
    if isinstance(node.func, ast.Attribute):
        return _method(node.func, arguments, names)
    if not isinstance(node.func, ast.Name) or node.keywords or not all(known(value) for value in arguments):
        return HOLE
    return _bounded(_CALLED[node.func.id](*arguments))


def _method(function: ast.Attribute, arguments: list[Any], names: Mapping[str, Any]) -> Any:
    """``os.environ.get(NAME, default)``, ``os.getenv`` and ``text.strip()``; a default beside a name is taken."""
    if ast.unparse(function) in ("os.environ.get", "os.getenv"):
        return arguments[1] if len(arguments) > 1 else HOLE
    owner = value_of(function.value, names)
    if function.attr in ("strip", "lower", "upper") and isinstance(owner, str) and not arguments:
        return getattr(owner, function.attr)()
    if function.attr == "join" and isinstance(owner, str) and isinstance(arguments[0], list):
        return _bounded(owner.join(arguments[0]))
    return HOLE


_HANDLERS: dict[type[ast.expr] | type[None], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Attribute: _attribute, ast.JoinedStr: _joined, ast.BinOp: _binary, ast.BoolOp: _boolean,
    ast.Compare: _compare, ast.IfExp: _choice, ast.UnaryOp: _negated, ast.List: _listed, ast.Tuple: _listed,
    ast.Dict: _mapped, ast.Subscript: _item, ast.Call: _call,
}  # fmt: skip
