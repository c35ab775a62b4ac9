"""``$((…))``: whole-number arithmetic of the shell, with bounds on size and depth."""

from __future__ import annotations

import re
from collections.abc import Callable

from rltui.importers.values import HOLE, to_int

MAX_LENGTH = 500
MAX_VALUE = 10**18
_TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|\*\*|\+\+|--|<=|>=|==|!=|&&|\|\||[-+*/%()<>!?:])")
_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"), ("**",),
)  # fmt: skip


_SET = re.compile(r"([A-Za-z_]\w*)\s*(?:(\+\+|--)|(<<|>>|[-+*/%&|^])?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)")


class _Unknown(Exception):  # noqa: N818 (not an error: the value is just not known)
    """The expression has a part that is not known or not understood."""


def evaluate(expression: str, lookup: Callable[[str], str | None]) -> str:
    """Value of ``expression``, expansions already made, as text; a hole where it is not known.

    Args:
        expression: What stands between the brackets.
        lookup: Text of a variable, or None where the script does not set it: the environment may, so it is not 0.
    """
    if HOLE in expression or len(expression) > MAX_LENGTH:
        return HOLE
    try:
        tokens = _tokens(expression)
        value, at = _conditional(tokens, 0, lookup)
    except (_Unknown, RecursionError):
        return HOLE
    return str(value) if at == len(tokens) else HOLE


def assigned(expression: str, lookup: Callable[[str], str | None]) -> dict[str, str]:
    """Variables that ``((…))`` or ``let`` sets, as ``N=2*M``, ``N*=2`` or ``N++``; holes where it sets several.

    Args:
        expression: As for ``evaluate``.
        lookup: As for ``evaluate``.
    """
    found = list(_SET.finditer(expression))
    if len(found) != 1 or expression[: found[0].start()].strip():
        return dict.fromkeys((match[1] or match[4] for match in found), HOLE)
    match, rest = found[0], expression[found[0].end() :].strip()
    name, step, operator = match[1] or match[4], match[2] or match[0][:2], match[3]
    if match[2] or match[4]:
        return {name: HOLE if rest else evaluate(f"{name}{step[0]}1", lookup)}
    return {name: evaluate(f"{name}{operator}({rest})" if operator else rest, lookup)}


def _tokens(expression: str) -> list[str]:
    tokens, at = [], 0
    text = expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _Unknown
        tokens.append(match.group(1))
        at = match.end()
    return tokens


def _conditional(tokens: list[str], at: int, lookup: Callable[[str], str | None]) -> tuple[int, int]:
    value, at = _binary(tokens, at, 0, lookup)
    if tokens[at : at + 1] != ["?"]:
        return value, at
    then, at = _conditional(tokens, at + 1, lookup)
    if tokens[at : at + 1] != [":"]:
        raise _Unknown
    other, at = _conditional(tokens, at + 1, lookup)
    return (then if value else other), at


def _binary(tokens: list[str], at: int, level: int, lookup: Callable[[str], str | None]) -> tuple[int, int]:
    if level == len(_LEVELS):
        return _unary(tokens, at, lookup)
    value, at = _binary(tokens, at, level + 1, lookup)
    while at < len(tokens) and tokens[at] in _LEVELS[level]:
        operator = tokens[at]
        right, at = _binary(tokens, at + 1, level + (operator != "**"), lookup)
        value = _apply(operator, value, right)
    return value, at


def _apply(operator: str, left: int, right: int) -> int:
    if operator in "/%" and right == 0:
        raise _Unknown
    if operator == "**" and not 0 <= right <= 64:
        raise _Unknown
    value = _OPERATIONS[operator](left, right)
    if abs(value) > MAX_VALUE:
        raise _Unknown
    return value


# the shell's division goes towards zero
def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "||": lambda left, right: int(bool(left or right)),
    "&&": lambda left, right: int(bool(left and right)),
    "==": lambda left, right: int(left == right),
    "!=": lambda left, right: int(left != right),
    "<": lambda left, right: int(left < right),
    ">": lambda left, right: int(left > right),
    "<=": lambda left, right: int(left <= right),
    ">=": lambda left, right: int(left >= right),
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
    "%": lambda left, right: left - right * _divide(left, right),
    "**": lambda left, right: left**right,
}


def _unary(tokens: list[str], at: int, lookup: Callable[[str], str | None]) -> tuple[int, int]:
    if at >= len(tokens):
        raise _Unknown
    token = tokens[at]
    if token in "+-!":
        value, at = _unary(tokens, at + 1, lookup)
        return (-value if token == "-" else int(not value) if token == "!" else value), at
    if token == "(":
        value, at = _conditional(tokens, at + 1, lookup)
        if tokens[at : at + 1] != [")"]:
            raise _Unknown
        return value, at + 1
    return _operand(token, lookup), at + 1


def _operand(token: str, lookup: Callable[[str], str | None]) -> int:
    if token.isdigit():
        # a leading zero means octal in the shell, and nobody who writes one means it
        if len(token) > 1 and token.startswith("0"):
            raise _Unknown
        return int(token)
    if not token[0].isalpha() and token[0] != "_":
        raise _Unknown
    text = lookup(token)
    value = None if text is None else to_int(text or "0")
    if value is None:
        raise _Unknown
    return value
