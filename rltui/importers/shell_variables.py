"""What a shell knows at one point of its script: variables, those that are exported, arguments and functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from rltui.importers import shell_syntax as syntax
from rltui.importers.shell_arithmetic import assigned
from rltui.importers.shell_expand import Scope, expand_text, expand_words
from rltui.importers.shell_joins import Value, appended
from rltui.importers.values import HOLE, to_int

DECLARING = ("export", "local", "declare", "readonly", "typeset")


class Variables:
    """The variables of a shell, and the commands of it that set them."""

    def __init__(self, variables: dict[str, Value]) -> None:
        self.variables = variables
        self.exported: set[str] = set(variables)
        self.functions: dict[str, syntax.Block] = {}
        self.references: dict[str, str] = {}
        self.arguments: Sequence[str] | None = None
        self.unread = False
        self.line = 0

    @property
    def scope(self) -> Scope:
        """The variables as they are at this point, for expansion."""
        return Scope(self.variables, self.arguments, self.unread)

    def assign(self, assignments: Sequence[syntax.Assignment]) -> None:
        """Set variables, through a ``nameref`` where there is one."""
        for item in (replace(each, name=self.references.get(each.name, each.name)) for each in assignments):
            value: Value
            if isinstance(item.value, tuple):
                value = tuple(expand_words(item.value, self.scope, self.line))
            else:
                value = expand_text(item.value, self.scope, self.line)
            self.variables[item.name] = appended(self.variables.get(item.name), value) if item.append else value

    def declare(self, words: Sequence[str], assignments: Sequence[syntax.Assignment]) -> None:
        """Follow ``export``, ``local`` and their kin."""
        if "-n" in words:
            self.references |= {each.name: expand_text(str(each.value), self.scope) for each in assignments}
            return
        self.assign(assignments)
        if words[0] in ("export", "declare", "typeset"):
            self.exported.update(item.name for item in assignments)
            self.exported.update(words[1:])

    def sets(self, words: Sequence[str]) -> bool:
        """Follow a command that sets variables or arguments; tells whether it was one."""
        head = words[0]
        if head == "unset":
            for name in words[1:]:
                self.variables.pop(name, None)
        elif head in ("read", "mapfile", "readarray"):
            names = [name for name in words[1:] if name.isidentifier()]
            here = words[-1] if len(names) == 1 and words[-2:-1] == names and "-d" in words else HOLE
            self.variables.update(dict.fromkeys(names, here))
        elif head == "shift":
            self.arguments = self.arguments and self.arguments[to_int("".join(words[1:2])) or 1 :]
        elif head == "let":
            for word in words[1:]:
                self.variables |= assigned(word, self.scope.get)
        elif head == "set" and "--" in words:
            self.arguments = list(words[words.index("--") + 1 :])
        else:
            return head == "set"
        return True

    @contextmanager
    def called(self, arguments: Sequence[str]) -> Iterator[None]:
        """A function under way, with arguments of its own."""
        outer, references = self.arguments, dict(self.references)
        self.arguments = arguments
        yield
        self.arguments, self.references = outer, references
