"""Guards of a script: a test of variables, and a branch that ends the script with an error."""

from __future__ import annotations

import re

from rltui.importers import shell_syntax as syntax

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")


def variables_of(tests: syntax.Block) -> set[str]:
    """Variables that the tests look at."""
    names: set[str] = set()
    for node in tests:
        if isinstance(node, syntax.Command):
            names.update(_VARIABLE.findall(" ".join(node.words)))
        elif isinstance(node, syntax.AndOr):
            names |= variables_of((node.left, node.right))
    return names


def ends_in_error(body: syntax.Block) -> bool:
    """Whether a branch ends the script with an error."""
    last = body[-1] if body else None
    if isinstance(last, syntax.Group):
        return ends_in_error(last.body)
    return isinstance(last, syntax.Command) and last.words[:1] == ("exit",) and last.words[1:2] != ("0",)
