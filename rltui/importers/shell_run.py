"""Following a shell script without running it: which commands it would start, with which words.

This is an abstract reading. Where a branch cannot be decided every branch is followed and the results are joined:
what all branches agree on stays known, the rest becomes a hole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from rltui.importers import shell_syntax as syntax
from rltui.importers.shell_arithmetic import assigned
from rltui.importers.shell_conditions import GPU_WORDS, asks_for_device, is_test, matches, succeeds
from rltui.importers.shell_expand import expand_text, expand_words
from rltui.importers.shell_joins import Value, counted
from rltui.importers.shell_lexer import ScriptError
from rltui.importers.shell_starts import Started as Started
from rltui.importers.shell_starts import Starts
from rltui.importers.shell_streams import PRINTED
from rltui.importers.shell_variables import REACH
from rltui.importers.values import HOLE, to_int

MAX_STEPS = 20_000
MAX_ROUNDS = 8
_ARGUMENTS = re.compile(r"\$#|\$\{#\}|\$\{?1|^getopts\b")
_READS_INPUT = frozenset({
    "read", "mapfile", "readarray", "cat", "tee", "bash", "sh", "zsh", "dash", "sbatch", "ssh", "tr", "wc", "cut",
    "sed", "awk", "head", "tail", "grep", "bc", "xargs",
})  # fmt: skip
"""Commands of which it matters what they read."""


class Reading(Struct, frozen=True):
    """What a script starts, its variables at the end, remarks on the reading, and ``#SBATCH`` lines of its jobs."""

    commands: tuple[Started, ...]
    variables: dict[str, Value]
    notes: tuple[str, ...]
    jobs: tuple[str, ...] = ()


def _not_there(_: str) -> str | None:
    return None


def read_shell(
    text: str, environ: Mapping[str, str] | None = None, beside: Callable[[str], str | None] = _not_there
) -> Reading:
    """Follow the script ``text``.

    Args:
        text: The script.
        environ: Variables that are known to be set, such as Slurm's.
        beside: Gives the text of a script that this one starts or sources, or None where it is not there.

    Raises:
        ScriptError: It is not a script that can be read, or it goes on without end.
    """
    follower = _Follower(dict(environ or {}), beside)
    follower.variables.setdefault("BASH", "/bin/bash")
    try:
        block, notes = syntax.parse(text)
        follower.notes.extend(notes)
        follower.block(block)
    except RecursionError as error:
        raise ScriptError(1, "nested too deep to be read") from error
    unique = tuple(dict.fromkeys(follower.notes))
    return Reading(tuple(follower.commands), follower.variables, unique, tuple(follower.jobs))


def _taken(device: str) -> str:
    return f"the branch for {device!r} is taken; which device there is shows only in a run"


class _Follower(Starts):
    """The state of a reading."""

    def __init__(self, variables: dict[str, Value], beside: Callable[[str], str | None]) -> None:
        super().__init__(variables, beside)
        self.steps = 0

    def block(self, block: syntax.Block) -> None:
        """Follow nodes until they are left."""
        for node in block:
            if self.left:
                return
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise ScriptError(self.line, f"more than {MAX_STEPS} steps; the script goes on without end")
            self.node(node)

    def node(self, node: syntax.Node) -> None:
        """Follow one node of the syntax tree: a command, a branch, a loop, a function."""
        if isinstance(node, syntax.Command):
            self.command(node)
        elif isinstance(node, syntax.AndOr):
            self.and_or(node)
        elif isinstance(node, syntax.If):
            self.condition(node)
        elif isinstance(node, syntax.Case):
            self.case(node)
        elif isinstance(node, syntax.For):
            self.loop_over_words(node)
        elif isinstance(node, syntax.While):
            self.loop(node)
        elif isinstance(node, syntax.Function):
            self.functions[node.name] = node.body
        elif node.is_subshell:
            self.subshell(node.body)
        else:
            self.block(node.body)

    def subshell(self, body: syntax.Block) -> None:
        """Follow what runs in a shell of its own: ``( … )``, a part of a pipeline, a command in the background."""
        with self.apart():
            self.block(body)
            text = self.variables.get(PRINTED)
        if text is not None and self.is_captured:
            self.variables[PRINTED] = text

    def and_or(self, node: syntax.AndOr) -> None:
        """``&&``, ``||``, ``|``; an ordinary command is taken to succeed."""
        if node.operator == "|":
            with self.captured() as texts:
                self.block((node.left,))
            with self.fed(texts[0]):
                self.subshell((node.right,))
            return
        self.node(node.left)
        if self.left:
            return
        verdict = succeeds(node.left, self.scope)
        tested = is_test(node.left)
        if tested and (verdict is not False) == (node.operator == "&&") and self.demands((node.left,), (node.right,)):
            return
        if verdict is None and tested:
            self.branches([(node.right,), ()])
        elif (verdict is not False) == (node.operator == "&&"):
            self.node(node.right)

    def condition(self, node: syntax.If) -> None:
        """Follow the branch that is taken, or all that may be."""
        possible: list[syntax.Block] = []
        for index, (test, body) in enumerate(node.branches):
            sure, self.sure = self.sure, self.sure and index == 0
            self.tests_commands(test)
            self.sure = sure
            verdict = succeeds(test[-1], self.scope) if test else True
            if test and asks_for_device(test[-1], self.scope):
                self.notes.append(_taken("gpu"))
            if verdict is False or (verdict and self.demands(test, body)):
                continue
            if verdict is None and (names := syntax.set_where_empty(test, body)):
                self.notes.append(f"{', '.join(sorted(names))}: as the script sets it where a run finds nothing")
                possible = [body]
                break
            possible.append(body)
            if verdict:
                break
        else:
            possible.append(())
        self.branches(possible)

    def demands(self, tests: syntax.Block, body: syntax.Block) -> bool:
        """Whether ``body`` ends a script for want of a variable that ``tests`` look at; it is then taken to be set."""
        if not syntax.ends_in_error(body, self.functions):
            return False
        wanting = {name for name in syntax.variables_of(tests) if not self.variables.get(name)}
        self.variables.update(dict.fromkeys(wanting, HOLE))
        return bool(wanting)

    def tests_commands(self, test: syntax.Block) -> None:
        """Follow what a condition runs; a Ray cluster or the training itself may be started there."""
        for node in test:
            if isinstance(node, syntax.Command) or not is_test(node):
                self.node(node)

    def case(self, node: syntax.Case) -> None:
        """Follow the arm that matches; of arms for several kinds of device, the one for GPUs."""
        subject = expand_text(node.subject, self.scope, self.line)
        if HOLE not in subject:
            fitting = (
                body
                for patterns, body in node.arms
                if any(matches(subject, pattern, self.scope, self.line) for pattern in patterns)
            )
            self.block(next(fitting, ()))
            return
        for patterns, body in node.arms:
            if GPU_WORDS.intersection(patterns):
                self.notes.append(_taken(patterns[0]))
                self.block(body)
                return
        none: list[syntax.Block] = [] if any("*" in patterns for patterns, _ in node.arms) else [()]
        self.branches([*(body for _, body in node.arms), *none])

    def branches(self, bodies: Sequence[syntax.Block]) -> None:
        """Follow each body from the same state and join what comes out of those that go on."""
        if len(bodies) == 1:
            self.block(bodies[0])
            return
        before, sure = dict(self.variables), self.sure
        left: set[str] = set()
        for body in bodies:
            self.variables, self.left, self.sure = dict(before), "", False
            self.block(body)
            left.add(self.left)
            self.note_way(self.left, self.variables)
        self.sure = sure
        # where no branch goes on, what is left least far is where the script may go on
        self.left = min(left, key=REACH.index)
        self.variables = self.ways.pop(self.left)

    def loop(self, node: syntax.While) -> None:
        """Follow the body as something that may happen; a loop over arguments has none to go over."""
        text = self.input_of(node.redirections)
        asks = any(test.words[:1] == ("read",) for test in syntax.flat(node.condition))
        if asks and text is not None and HOLE not in text and text.count("\n") <= MAX_ROUNDS:
            self.loop_over_lines(node, text.splitlines(keepends=True))
            return
        self.block(node.condition)
        outer, self.ways = self.ways, {}
        self.loops += 1
        tested = " ".join(word for test in node.condition if isinstance(test, syntax.Command) for word in test.words)
        counts = _ARGUMENTS.search(tested)
        options = expand_words(tested.split(), self.scope, self.line) if self.arguments and counts else []
        if options[:1] == ["getopts"] and HOLE not in "".join([*options, *(self.arguments or ())]):
            self.loop_over_options(node.body, *options[1:3])
        elif counts is None or options[:1] == ["getopts"]:
            self.branches([node.body, ()])
        else:
            self.loop_over_arguments(node.body)
        self.loops -= 1
        self.rejoin(outer, "continue", "break")

    def loop_over_lines(self, node: syntax.While, lines: Sequence[str]) -> None:
        """Follow the body for each line that the condition reads; at the end it reads nothing."""
        outer, self.ways = self.ways, {}
        self.loops += 1
        for line in (*lines, ""):
            if self.left:
                break
            with self.fed(line):
                self.block(node.condition)
            if line:
                self.round(node.body)
        self.loops -= 1
        self.rejoin(outer, "break")

    def loop_over_arguments(self, body: syntax.Block) -> None:
        """Follow the body while it shifts arguments away, as scripts read their options."""
        left = len(self.arguments or ()) + 1
        while not self.left and self.arguments and len(self.arguments) < left:
            left = len(self.arguments)
            self.round(body)

    def loop_over_options(self, body: syntax.Block, known: str = "", name: str = "") -> None:
        """Follow the body for each option that ``getopts KNOWN NAME`` finds; letters with a colon take a value."""
        words = list(self.arguments or ())
        at = (to_int(str(self.variables.get("OPTIND", 1))) or 1) - 1
        while not self.left and at < len(words) and re.match(r"-[^-]", words[at]):
            letters = words[at][1:]
            at += 1
            while letters and not self.left:
                letter, letters = letters[0], letters[1:]
                value = ""
                if f"{letter}:" in known and letters:
                    value, letters = letters, ""
                elif f"{letter}:" in known:
                    value = "".join(words[at : at + 1])
                    at += 1
                self.variables |= {name: letter if letter in known else "?", "OPTARG": value, "OPTIND": str(at + 1)}
                self.round(body)
        at += words[at : at + 1] == ["--"]
        self.variables |= {name: "?", "OPTIND": str(at + 1)}

    def round(self, body: syntax.Block) -> None:
        """Follow a loop's body once."""
        outer, self.ways = self.ways, {}
        self.block(body)
        self.rejoin(outer, "continue")

    def loop_over_words(self, node: syntax.For) -> None:
        """Follow the body for each word where the words are few and known, else once with a hole."""
        words = None if node.words is None else expand_words(node.words, self.scope, self.line)
        if words is None or len(words) > MAX_ROUNDS or any(HOLE in word for word in words):
            words = [HOLE]
            self.variables |= dict.fromkeys(assigned(node.name, self.scope.get), HOLE)
        before, outer, self.ways = dict(self.variables), self.ways, {}
        self.loops += 1
        for word in words:
            if self.left:
                break
            if node.name.isidentifier():
                self.variables[node.name] = word
            self.round(node.body)
        self.loops -= 1
        self.rejoin(outer, "break")
        if words == [HOLE]:
            self.variables |= counted(before, self.variables)
            if before.get(PRINTED) != self.variables.get(PRINTED):
                self.prints(None)

    def command(self, node: syntax.Command) -> None:
        """Follow a simple command: it sets, exports, calls a function, or starts a program."""
        self.line = node.line
        raws = node.words[node.words[:1] == ("!",) :]
        if raws[:1] in (("[",), ("[[",), ("test",)):
            return
        if raws and raws[0].startswith("(("):
            self.variables |= assigned(expand_text(raws[0][2:-2], self.scope, node.line), self.scope.get)
            return
        words = expand_words(raws, self.scope, node.line)
        if not words:
            self.assign(node.assignments)
            return
        if words[0] in syntax.DECLARING:
            self.declare(words, node.assignments)
            return
        environ = {
            item.name: expand_text(item.value, self.scope, node.line)
            for item in node.assignments
            if isinstance(item.value, str)
        }
        reads = not _READS_INPUT.isdisjoint(word.rsplit("/", 1)[-1] for word in words)
        with self.fed(self.input_of(node.redirections) if reads else self.stdin):
            if not self.reads(words, environ.get("IFS")):
                self.does(node, words, environ)
        if words[0] == "exec" and words[1:]:
            self.left = "exit"

    def does(self, node: syntax.Command, words: list[str], environ: dict[str, str]) -> None:
        """Follow a command with its words: one of the shell's own, or a program, and what it prints."""
        is_own = self.builtin(words)
        text = self.output(words) if words[0] not in self.functions else None
        if not is_own and not (self.is_captured and text is not None):
            self.started(words, environ)
        if not self.writes(node, words) and (not is_own or words[0] in ("echo", "printf")):
            self.prints(text)

    def builtin(self, words: list[str]) -> bool:
        """Do what a shell's own command does to the reading; tells whether it was one."""
        head = words[0]
        if head in ("exit", "return") or (head in ("break", "continue") and self.loops):
            self.left = head
        elif head in ("source", "."):
            self.source(words[1:])
        elif head in self.functions:
            self.call(head, words[1:])
        elif not self.sets(words):
            return head in ("echo", "printf", ":", "cd", "trap", "wait", "sleep", "shopt", "ulimit", "pkill")
        return True
