"""What a shell knows at one point of its script: variables, those that are exported, arguments and functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from rltui.importers import shell_syntax as syntax
from rltui.importers.shell_arithmetic import assigned, evaluate
from rltui.importers.shell_expand import expand_text, expand_words
from rltui.importers.shell_joins import Value, appended, joined
from rltui.importers.shell_scope import Scope
from rltui.importers.values import HOLE, to_int

REACH = ("", "continue", "break", "return", "exit")
"""The words that leave what is followed, by how far they leave it; empty: it goes on."""


class Variables:
    """The variables of a shell, and the commands of it that set them."""

    def __init__(self, variables: dict[str, Value]) -> None:
        self.variables = variables
        self.exported: set[str] = set(variables)
        self.functions: dict[str, syntax.Block] = {}
        self.references: dict[str, str] = {}
        self.arguments: Sequence[str] | None = None
        self.unread = False
        self.keyed: set[str] = set()  # arrays whose keys are words, as ``declare -A`` makes them
        self.exports_all = False
        self.line = 0
        self.left = ""  # the word that ended what was followed: continue, break, return or exit
        self.ways: dict[str, dict[str, Value]] = {}  # what is set where a branch that may be taken was left by a word
        self.loops = 0
        self.locals: dict[str, Value | None] | None = None  # what names were before a function had them for itself

    @property
    def scope(self) -> Scope:
        """The variables as they are at this point, for expansion."""
        return Scope(self.variables, self.arguments, self.unread, self.substitute)

    def substitute(self, text: str) -> str:
        """What ``$(text)`` prints; a hole where only a run shows it."""
        del text
        return HOLE

    def assign(self, assignments: Sequence[syntax.Assignment]) -> None:
        """Set variables, through a ``nameref`` where there is one."""
        if self.exports_all:
            self.exported.update(item.name for item in assignments)
        for item in (replace(each, name=self.references.get(each.name, each.name)) for each in assignments):
            value: Value
            if isinstance(item.value, tuple):
                value = tuple(expand_words(item.value, self.scope, self.line))
            else:
                value = expand_text(item.value, self.scope, self.line)
            before = self.variables.get(item.name)
            if item.index:
                self.variables[item.name] = self._with_item(before, item, str(value))
            else:
                self.variables[item.name] = appended(before, value) if item.append else value

    def _with_item(self, before: Value | None, item: syntax.Assignment, value: str) -> Value:
        """An array after ``NAME[index]=value``; a hole where it has keys, or which item is set is not known."""
        words = () if before is None and not self.unread else before
        if item.name in self.keyed and isinstance(words, tuple):
            key = expand_text(item.index, self.scope, self.line)
            kept = tuple(word for word in words if not word.startswith(f"[{key}]="))
            return HOLE if HOLE in key or item.append else (*kept, f"[{key}]={value}")
        position = to_int(evaluate(expand_text(item.index, self.scope, self.line), self.scope.get))
        if item.append or not isinstance(words, tuple) or position is None or not 0 <= position <= len(words):
            return HOLE
        return (*words[:position], value, *words[position + 1 :])

    def declare(self, words: Sequence[str], assignments: Sequence[syntax.Assignment]) -> None:
        """Follow ``export``, ``local`` and their kin."""
        if "-n" in words:
            self.references |= {each.name: expand_text(str(each.value), self.scope) for each in assignments}
            return
        names = [*(item.name for item in assignments), *(word for word in words[1:] if word.isidentifier())]
        if self.locals is not None and words[0] in ("local", "declare", "typeset") and "-g" not in words:
            for name in names:
                self.locals.setdefault(name, self.variables.get(name))
        if any(word.startswith("-") and "A" in word for word in words[1:]):
            self.keyed.update(names)
            arrays = {item.name for item in assignments}
            self.variables.update({name: () for name in names if name not in arrays})
        self.assign(assignments)
        if words[0] == "export" or any(word.startswith("-") and "x" in word for word in words[1:]):
            self.exported.update(names)

    def sets(self, words: Sequence[str]) -> bool:
        """Follow a command that sets variables or arguments; tells whether it was one."""
        head = words[0]
        if head == "unset":
            for name, bracket, _ in (word.partition("[") for word in words[1:]):
                if not bracket:
                    self.variables.pop(name, None)
                elif name in self.variables:
                    self.variables[name] = HOLE  # without one of its items
        elif head == "shift":
            count = to_int(words[1]) if words[1:] else 1
            self.arguments = self.arguments and self.arguments[1 if count is None else count :]
        elif head == "let":
            for word in words[1:]:
                self.variables |= assigned(word, self.scope.get)
        elif head == "set":
            self.option(words[1:])
        else:
            return False
        return True

    def option(self, words: Sequence[str]) -> None:
        """Follow ``set``: new arguments, and whether every variable that is set is exported as well."""
        if "--" in words:
            self.arguments = list(words[words.index("--") + 1 :])
        for sign, letters in ((word[0], word[1:]) for word in words if word[:1] in ("-", "+")):
            if "a" in letters or (letters == "o" and "allexport" in words):
                self.exports_all = sign == "-"

    def note_way(self, left: str, variables: dict[str, Value]) -> None:
        """Note what is set where ``left`` leaves what is followed."""
        self.ways[left] = joined([self.ways[left], variables]) if left in self.ways else variables

    def rejoin(self, outer: dict[str, dict[str, Value]], *words: str) -> None:
        """Go on behind what these words leave, with what every way there has set; ``outer`` are ways left before it."""
        self.note_way(self.left, self.variables)
        here = [variables for left, variables in self.ways.items() if left in ("", *words)]
        ways, self.ways = self.ways, outer
        for left in ways.keys() - {"", *words}:
            self.note_way(left, ways[left])
        if here:
            self.left, self.variables = "", joined(here)

    @contextmanager
    def called(self, arguments: Sequence[str]) -> Iterator[None]:
        """A function under way, with arguments and variables of its own."""
        outer, references, outer_locals = self.arguments, dict(self.references), self.locals
        ways, loops, self.ways, self.loops = self.ways, self.loops, {}, 0
        self.arguments, self.locals = arguments, {}
        yield
        self.rejoin(ways, "return")
        self.loops = loops
        for name, value in self.locals.items():
            if value is None:
                self.variables.pop(name, None)
            else:
                self.variables[name] = value
        self.arguments, self.references, self.locals = outer, references, outer_locals

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A subshell under way, which begins with all that is known here and changes nothing of it."""
        kept = (self.variables, self.exported, self.functions, self.references, self.arguments, self.exports_all)
        self.variables, self.exported = dict(self.variables), set(self.exported)
        self.functions, self.references = dict(self.functions), dict(self.references)
        ways, loops, self.ways, self.loops = self.ways, self.loops, {}, 0
        yield
        self.variables, self.exported, self.functions, self.references, self.arguments, self.exports_all = kept
        self.left, self.ways, self.loops = "", ways, loops
