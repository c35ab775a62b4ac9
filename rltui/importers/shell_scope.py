"""Variables of a script at one point of it, as far as they are known, for what expands words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rltui.importers.values import HOLE, HOLES

_KEYED = re.compile(r"\[([^\]]*)\]=(.*)\Z", re.DOTALL)


class Scope:
    """Variables of a script as far as they are known.

    A name that is missing was never set in the script. Its environment may still hold it, so its bare value is a
    hole; a default given on the spot (``${NAME:-x}``) is taken. An array never comes from the environment: one that
    is missing is empty, unless a file that sets it was sourced and is ``unread``.
    """

    def __init__(
        self,
        variables: dict[str, str | tuple[str, ...]],
        arguments: Sequence[str] | None = None,
        unread: bool = False,
        substitute: Callable[[str], str] = lambda _: HOLE,
    ) -> None:
        self.variables = variables
        self.arguments = arguments
        self.unread = unread
        self.substitute = substitute
        self.nesting = 0

    def get(self, name: str) -> str | None:
        """Text of a variable or positional argument; None where it is not set."""
        if name.isdigit():
            return self._argument(int(name))
        if name in ("@", "*"):
            return " ".join(self.arguments or ())
        if name == "#":
            return HOLE if self.arguments is None else str(len(self.arguments))
        if not (name[0].isalpha() or name[0] == "_"):
            return HOLE
        value = self.variables.get(name)
        if isinstance(value, tuple):
            return value[0] if value else ""
        return value

    @property
    def separators(self) -> str:
        """What parts words: blanks, unless the script sets ``IFS``."""
        found = self.variables.get("IFS")
        return found if isinstance(found, str) and found and HOLE not in found else " \t\n"

    def _argument(self, index: int) -> str | None:
        if index == 0:
            return HOLE
        given = self.arguments or ()
        return given[index - 1] if index <= len(given) else None

    def items(self, name: str) -> tuple[str, ...]:
        """Words of an array, or of ``$@``; one hole where a value is not known."""
        if name in ("@", "*"):
            return tuple(self.arguments or ())
        value = self.variables.get(name)
        if value == HOLE or (value is None and self.unread):
            return (f"{HOLES}{name}",)
        if value is None:
            return ()
        return value if isinstance(value, tuple) else (value,)

    def keyed(self, name: str) -> dict[str, str] | None:
        """Items of an array by key, where its keys are words; None where it is none or not known."""
        pairs = [_KEYED.match(item) for item in self.items(name)]
        return {pair[1]: pair[2] for pair in pairs if pair} if pairs and all(pairs) else None
