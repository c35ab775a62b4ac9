"""What goes between the commands of a script: texts that they print and read, and files that they write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rltui.importers import shell_syntax as syntax
from rltui.importers.shell_expand import expand_text
from rltui.importers.shell_filters import filtered
from rltui.importers.shell_joins import Value
from rltui.importers.shell_printing import formatted, printed
from rltui.importers.shell_variables import Variables
from rltui.importers.values import HOLE

PRINTED = "\0printed"
"""The variable that holds what a ``$(…)`` or a pipe has printed so far; branches join it like any other."""

MAX_FILE = 100_000
_READING = frozenset({"read", "mapfile", "readarray"})
_TAKES = {"read": "adinNptu", "mapfile": "dnOsuCc", "readarray": "dnOsuCc"}


class Streams(Variables):
    """The variables of a shell, with its standard input and output."""

    def __init__(self, variables: dict[str, Value], beside: Callable[[str], str | None]) -> None:
        super().__init__(variables)
        self.beside = beside
        self.files: dict[str, str] = {}
        self.stdin: str | None = None  # what a pipe or a redirection gives; None: that is not known

    def file(self, path: str) -> str | None:
        """Text of a file that the script has written, or that lies beside it."""
        name = path.rsplit("/", 1)[-1]
        return self.files.get(path) or (self.files.get(name) if HOLE not in name else None) or self.beside(path)

    @contextmanager
    def captured(self) -> Iterator[list[str]]:
        """A subshell under way whose output is wanted: a list that gets it at the end."""
        outer, texts = self.variables.get(PRINTED), list[str]()
        with self.apart():
            self.variables[PRINTED] = ""
            yield texts
            texts.append(str(self.variables.get(PRINTED, HOLE)))
        self.variables.pop(PRINTED, None)
        self.variables |= {} if outer is None else {PRINTED: outer}

    @contextmanager
    def fed(self, text: str | None) -> Iterator[None]:
        """Commands under way that read ``text``."""
        outer, self.stdin = self.stdin, text
        yield
        self.stdin = outer

    def prints(self, text: str | None) -> None:
        """Note what a command prints; None: only a run shows it."""
        before = self.variables.get(PRINTED)
        if isinstance(before, str):
            self.variables[PRINTED] = (before + (HOLE if text is None else text))[:MAX_FILE]

    def output(self, words: Sequence[str]) -> str | None:
        """What a command prints; None where only a run shows it."""
        if words[0] == "cat" and len(words) == 2 and words[1] != "-":
            return self.files.get(words[1])
        text = printed(words, str(self.variables.get("SLURM_NNODES", "")))
        if text is not None or self.stdin is None:
            return text
        return filtered(self.stdin, [word for word in words if word != "-"])

    def writes(self, node: syntax.Command, words: Sequence[str]) -> bool:
        """Note the file that a command writes, as ``cat > FILE`` and ``tee FILE`` do; tells whether it writes one."""
        targets = [(operator, raw) for operator, raw in node.redirections if operator in syntax.WRITING]
        paths = [(operator.endswith(">>"), expand_text(raw, self.scope, self.line)) for operator, raw in targets]
        if words[0] == "tee":
            paths += [("-a" in words, word) for word in words[1:] if not word.startswith("-")]
        for appends, path in paths:
            text = self.output(words[: 1 if words[0] == "tee" else None])
            if text is not None:
                name = path.rsplit("/", 1)[-1]
                whole = (self.files.get(path, "") if appends else "") + text
                self.files |= dict.fromkeys((path, name), whole[:MAX_FILE])
        return bool(targets)

    def input_of(self, redirections: Sequence[tuple[str, str]]) -> str | None:
        """The text that redirections give; else that of the pipe in front."""
        for operator, raw in reversed(redirections):
            if operator == "<<<":
                text = expand_text(raw, self.scope, self.line)
                return text if text.endswith("\n") else f"{text}\n"
            if operator == "<":
                text = expand_text(raw, self.scope, self.line)
                # ``<(command)`` was cut as ``$(command)``
                return f"{text}\n" if raw.startswith("$(") else self.file(text)
        return self.stdin

    def reads(self, words: Sequence[str], separators: str | None) -> bool:
        """Follow ``read``, ``mapfile`` and ``printf -v``, which set variables; tells whether it was one of them."""
        if words[:2] == ["printf", "-v"] and len(words) > 3:
            text = formatted(words[3:])
            self.variables[words[2]] = HOLE if text is None else text
            return True
        if words[0] not in _READING:
            return False
        options, names = _options(words, _TAKES[words[0]])
        separators = self.scope.separators if separators is None else separators
        text = self.stdin
        known = text is not None and HOLE not in text
        if words[0] != "read":
            name = names[0] if names else "MAPFILE"
            self.variables[name] = _lines(text, options) if text is not None and known else HOLE
        elif "a" in options:
            line = text.split("\n", 1)[0] if text is not None and known else HOLE
            self.variables[options["a"]] = HOLE if HOLE in line else tuple(_fields(line, separators, 0))
        elif text is not None and options.get("d") == "" and len(names) == 1:
            self.variables[names[0]] = text
        elif text is not None and known and not options.get("d") and ("r" in options or "\\" not in text):
            found = _fields(text.split("\n", 1)[0], separators, max(1, len(names)))
            padded = [*found, *[""] * (len(names) - len(found))]
            self.variables.update(zip(names or ["REPLY"], padded, strict=False))
        else:
            self.variables.update(dict.fromkeys(names, HOLE))
        return True


def _options(words: Sequence[str], taking: str) -> tuple[dict[str, str], list[str]]:
    """Letters of options with their values, and the names behind them."""
    options: dict[str, str] = {}
    at = 1
    while at < len(words) and words[at].startswith("-"):
        letters = words[at][1:]
        at += 1
        for place, letter in enumerate(letters):
            options[letter] = letters[place + 1 :]
            if letter in taking:
                if not options[letter] and at < len(words):
                    options[letter] = words[at]
                    at += 1
                break
    return options, [word for word in words[at:] if word.isidentifier()]


def _lines(text: str, options: dict[str, str]) -> tuple[str, ...]:
    """The items that ``mapfile`` makes of a text."""
    end = options.get("d", "\n")[:1] or "\0"
    items = text.split(end)
    items = items[:-1] if items[-1] == "" else items
    return tuple(items) if "t" in options else tuple(f"{item}{end}" for item in items)


def _fields(line: str, separators: str, count: int) -> list[str]:
    """The words of a line between ``separators``, the last of ``count`` with all that is left; 0: all of them."""
    blanks = "".join(char for char in separators if char in " \t\n")
    others = "".join(char for char in separators if char not in " \t\n")
    blank = f"[{re.escape(blanks)}]" if blanks else "(?!)"
    pattern = f"{blank}*[{re.escape(others)}]{blank}*|{blank}+" if others else f"{blank}+"
    line = line.strip(blanks) if blanks else line
    if not line:
        return []
    if count == 1 or not separators:
        return [line]
    found = re.split(pattern, line, maxsplit=max(0, count - 1))
    return found[:-1] if found[-1] == "" and not count else found
