"""The environment ``builtin/calculator``: a tool for arithmetic, and a reward for the right number at the end."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar

from trainers.environments import Environment, Messages, Step, Task, parse_tool_call
from trainers.rewards.answers import last_number

MOST_CHARACTERS = 200
MOST_BITS = 4096
"""Of a number's numerator or denominator, so that no expression takes long."""
_OPERATIONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


class Calculator(Environment):
    """An answer with a call of the tool gets its result; one without is the last, and earns 1 for the right number."""

    tools: ClassVar[list[dict[str, Any]]] = [
        {
            "type": "function",
            "function": {
                "name": "calculate",
                "description": "The value of an expression of numbers, + - * / and parentheses.",
                "parameters": {
                    "type": "object",
                    "properties": {"expression": {"type": "string"}},
                    "required": ["expression"],
                },
            },
        }
    ]

    def reset(self, task: Task) -> Messages:
        """Keep the right number in mind."""
        self._right = number_of(task.answer)
        return task.messages

    def step(self, answer: str) -> Step:
        """The result of the call, or the reward."""
        call = parse_tool_call(answer)
        if call is None:
            return Step(reward=float(self._right is not None and number_of(answer) == self._right), done=True)
        return Step(messages=[{"role": "tool", "content": call.error or self._call(call.name, call.arguments)}])

    def _call(self, name: str, arguments: dict[str, Any]) -> str:
        if name != "calculate":
            return f"There is no tool {name}; there is: calculate."
        try:
            return written(value_of(str(arguments.get("expression", ""))))
        except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError) as error:
            return f"That cannot be calculated: {error}"


def value_of(expression: str) -> Fraction:
    """The exact value of an expression of numbers, + - * / and parentheses.

    Raises:
        ValueError: It is another one, or too long or large.
        SyntaxError: It is none.
        ZeroDivisionError: It divides by zero.
    """
    if len(expression) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS} characters")
    return _value(ast.parse(expression.strip(), mode="eval").body)


def _value(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return Fraction(str(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if not isinstance(node, ast.BinOp) or type(node.op) not in _OPERATIONS:
        raise ValueError("only numbers, + - * / and parentheses are known")
    found: Fraction = _OPERATIONS[type(node.op)](_value(node.left), _value(node.right))
    if max(found.numerator.bit_length(), found.denominator.bit_length()) > MOST_BITS:
        raise ValueError("a number is too large")
    return found


def written(value: Fraction) -> str:
    """A value as one writes it: whole, or as a decimal of twelve digits."""
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.12g}"


def number_of(text: str) -> Fraction | None:
    """The last number of a text."""
    found = last_number(text)
    try:
        return Fraction(found) if found else None
    except (ValueError, ZeroDivisionError):
        return None
