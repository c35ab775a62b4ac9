"""Calls a user's reward function: a JSON line ``[prompt, response, answer, row]`` in, a JSON number or several out.

What the function raises is said as text instead of a number. What it prints goes nowhere: stdout is for answers.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def find(name: str) -> Callable[..., Any]:
    """The function ``module:function``."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def verdict(function: Callable[..., Any], question: list[Any]) -> float | dict[str, float] | str:
    """What ``function`` says, or why it says nothing."""
    try:
        found = function(*question)
        if isinstance(found, dict):
            return {str(name): float(value) for name, value in found.items()}
        return float(found)
    except Exception as error:  # noqa: BLE001 - it is the user's, and costs its own answer only
        return f"{type(error).__name__}: {error}"[:300]


def main() -> None:
    """Answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    function = find(sys.argv[1])
    print(json.dumps("ready"), file=answers, flush=True)
    os.dup2(nowhere, 2)  # nobody reads it from here on, and a full pipe would hold the function up
    for line in sys.stdin:
        print(json.dumps(verdict(function, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
