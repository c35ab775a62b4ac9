"""What a script starts: programs, scripts beside it and inside its words, jobs, and what a ``$(…)`` runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from msgspec import Struct
from msgspec.structs import replace

from rltui.importers import shell_syntax as syntax
from rltui.importers.shell_children import ASSIGNED, Child, child_of, script_in
from rltui.importers.shell_joins import Value
from rltui.importers.shell_lexer import ScriptError
from rltui.importers.shell_streams import PRINTED, Streams
from rltui.importers.slurm_lines import read_slurm
from rltui.importers.values import HOLE

MAX_CALLS = 12
ENVIRONMENTS = frozenset({"activate", "conda.sh", ".bashrc", ".bash_profile", ".profile", ".env"})


class Started(Struct, frozen=True):
    """A command that the script would start.

    Attributes:
        words: Its words, expanded; a hole stands where a word is not known.
        environ: Variables that it sees: those set in front of it, over those that the script exports.
        line: Line of the script.
        sure: Whether every run of the script comes here.
        job: Which of the jobs that the script submits starts it, from 1; 0: the script itself.
    """

    words: tuple[str, ...]
    environ: dict[str, str]
    line: int
    sure: bool = True
    job: int = 0


class Starts(Streams):
    """The state of a shell, with what it has started."""

    def __init__(self, variables: dict[str, Value], beside: Callable[[str], str | None]) -> None:
        super().__init__(variables, beside)
        self.jobs: list[str] = []
        self.job = 0
        self.commands: list[Started] = []
        self.notes: list[str] = []
        self.sure = True
        self.calls = 0

    def block(self, block: syntax.Block) -> None:
        """Follow nodes of the tree; what follows them knows how."""
        raise NotImplementedError

    def substitute(self, text: str) -> str:
        """What ``$(text)`` prints; what it starts, such as ``sbatch`` whose answer is kept, is noted."""
        try:
            block, _ = syntax.parse(text)
        except ScriptError:
            return HOLE
        if self.calls >= MAX_CALLS:
            return HOLE
        self.calls += 1
        line, first = self.line, len(self.commands)
        with self.captured() as texts:
            self.block(block)
        self.line = line
        self.commands[first:] = [replace(command, line=line) for command in self.commands[first:]]
        self.calls -= 1
        return texts[0].rstrip("\n")

    def call(self, name: str, arguments: Sequence[str]) -> None:
        """Follow a function of the script."""
        if self.calls >= MAX_CALLS:
            raise ScriptError(self.line, f"functions call each other without end ({name[:40]})")
        self.calls += 1
        with self.called(arguments):
            self.block(self.functions[name])
        self.calls -= 1

    def source(self, words: list[str]) -> None:
        """``source FILE``: the file where it lies beside the script, in this script's own scope."""
        text = None
        if words and self.calls < MAX_CALLS:
            text = words[0] if "\n" in words[0] else self.file(words[0])  # ``source <(command)`` has the text itself
        if text is None:
            self.unread |= bool(words) and words[0].rsplit("/", 1)[-1] not in ENVIRONMENTS
            self.notes.append(f"line {self.line}: {' '.join(words[:1])} is not read; what it sets is not known")
            return
        outer, ways, self.ways = self.arguments, self.ways, {}
        self.arguments = words[1:] or outer
        self.inner(text, f"{words[0]}, which is sourced,")
        self.rejoin(ways, "return")
        self.arguments = outer

    def started(self, words: list[str], environ: dict[str, str]) -> None:
        """Note a command; a script in its words, in its input or beside this one is followed in its place."""
        given = takewhile(lambda word: word == "env" or ASSIGNED.match(word), words)
        environ |= {name: value for name, equals, value in (word.partition("=") for word in given) if equals}
        inner = script_in(words) if self.calls < MAX_CALLS else None
        if inner is not None and HOLE not in inner[:1]:
            self.inner(inner, "the script inside this command")
            return
        seen = {name: value for name, value in self.variables.items() if name in self.exported}
        everything = {name: value for name, value in seen.items() if isinstance(value, str)} | environ
        child = child_of(words, everything, self.stdin or "") if self.calls < MAX_CALLS else None
        text = (child.text or self.file(child.path)) if child else None
        if child is None or not text or text[0] == HOLE:
            self.commands.append(Started(tuple(words), everything, self.line, self.sure, self.job))
            return
        self.child(child, text, {**seen, **environ})

    def child(self, child: Child, text: str, environ: dict[str, Value]) -> None:
        """Follow a script that runs as a process of its own: it sees what is exported, and changes nothing here."""
        outer = self.job
        if child.batch is not None:
            self.jobs.append("\n".join([text, *(f"#SBATCH {option}" for option in child.batch)]))
            self.job = len(self.jobs)
            environ = {**environ, **read_slurm(self.jobs[-1]).environ}
        with self.apart(), self.fed(None):
            self.variables, self.exported, self.functions, self.exports_all = dict(environ), set(environ), {}, False
            self.arguments = None if not child.arguments and self.arguments is None else child.arguments
            self.inner(text, child.path or "the script inside this command")
        self.job = outer

    def inner(self, text: str, name: str) -> None:
        """Follow a script inside this one."""
        self.calls += 1
        line = self.line
        try:
            block, _ = syntax.parse(text)
        except ScriptError:
            self.notes.append(f"line {line}: {name} cannot be read")
            block = ()
        self.block(block)
        self.line = line
        self.calls -= 1

    @property
    def is_captured(self) -> bool:
        """Whether what is printed here is read by a ``$(…)`` or a pipe."""
        return PRINTED in self.variables
