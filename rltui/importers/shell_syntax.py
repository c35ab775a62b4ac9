"""The tree of a shell script: commands, conditions, loops and functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from rltui.importers.shell_lexer import REDIRECTIONS, ScriptError, Token, lex

MAX_DEPTH = 40
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[.+?\])?(\+?)=(.*)\Z", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
DECLARING = frozenset({"export", "local", "declare", "readonly", "typeset"})
WRITING = frozenset({">", ">>", ">|", "&>", "&>>"})
"""Redirections of what a command prints."""


class Assignment(Struct, frozen=True):
    """Setting a variable: ``NAME=value``, ``NAME+=value``, ``NAME[index]=value`` or ``NAME=(words)``."""

    name: str
    value: str | tuple[str, ...]
    append: bool = False
    index: str = ""


class Command(Struct, frozen=True):
    """A simple command: assignments before it, its raw words, and where its input comes from and its output goes."""

    assignments: tuple[Assignment, ...]
    words: tuple[str, ...]
    line: int
    redirections: tuple[tuple[str, str], ...] = ()


class AndOr(Struct, frozen=True):
    """``left && right``, ``left || right`` or ``left | right``."""

    left: Node
    operator: str
    right: Node


class If(Struct, frozen=True):
    """Conditions with their bodies; the last condition is empty where there is an ``else``."""

    branches: tuple[tuple[Block, Block], ...]


class Case(Struct, frozen=True):
    """A subject, and patterns with their bodies."""

    subject: str
    arms: tuple[tuple[tuple[str, ...], Block], ...]


class For(Struct, frozen=True):
    """A loop over words; None stands for the words of a C-style loop."""

    name: str
    words: tuple[str, ...] | None
    body: Block


class While(Struct, frozen=True):
    """A loop of ``while`` or ``until``; how often its body runs, nobody knows."""

    condition: Block
    body: Block
    redirections: tuple[tuple[str, str], ...] = ()


class Function(Struct, frozen=True):
    """A function that is defined."""

    name: str
    body: Block


class Group(Struct, frozen=True):
    """``{ …; }`` or ``( … )``; an ``exit`` in the second, a subshell, ends no more than that."""

    body: Block
    is_subshell: bool = False


Node = Command | AndOr | If | Case | For | While | Function | Group
Block = tuple[Node, ...]


def parse(text: str) -> tuple[Block, list[str]]:
    """Return the tree of a script, and what was read other than bash would.

    Raises:
        ScriptError: Not a script that can be read.
    """
    tokens, notes = lex(text)
    return _Parser(tokens).block(frozenset()), notes


class _Parser:
    """Recursive descent; forgiving, for a reading needs less than a run."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def peek(self, ahead: int = 0) -> Token:
        """A token to come; at the end, a newline."""
        index = self.at + ahead
        last = self.tokens[-1].line if self.tokens else 1
        return self.tokens[index] if index < len(self.tokens) else Token("newline", "", last)

    def is_word(self, *texts: str) -> bool:
        """Whether the next token is one of these words."""
        token = self.peek()
        return token.kind == "word" and token.text in texts

    def is_operator(self, *texts: str) -> bool:
        """Whether the next token is one of these operators."""
        token = self.peek()
        return token.kind == "operator" and token.text in texts

    def accept(self, *texts: str) -> bool:
        """Take the next token if it is one of these words or operators."""
        found = self.is_word(*texts) or self.is_operator(*texts)
        self.at += found
        return found

    def skip_separators(self) -> None:
        """Skip line ends and ``;``."""
        while self.at < len(self.tokens) and (self.peek().kind == "newline" or self.is_operator(";", "&")):
            self.at += 1

    def block(self, ends: frozenset[str]) -> Block:
        """Commands up to one of the words or operators in ``ends``, which is left for the caller."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ScriptError(self.peek().line, f"nested deeper than {MAX_DEPTH} levels")
        nodes: list[Node] = []
        while True:
            self.skip_separators()
            if self.at >= len(self.tokens) or (ends and (self.is_word(*ends) or self.is_operator(*ends))):
                break
            before = self.at
            node = self.and_or()
            nodes.append(Group((node,), is_subshell=True) if self.is_operator("&") else node)
            self.at += self.at == before  # a stray bracket or word such as fi
        self.depth -= 1
        return tuple(nodes)

    def and_or(self) -> Node:
        """Commands joined by ``&&``, ``||`` and ``|``."""
        node = self.command()
        while self.is_operator("&&", "||", "|", "|&"):
            operator = self.peek().text
            self.at += 1
            while self.peek().kind == "newline" and self.at < len(self.tokens):
                self.at += 1
            node = AndOr(node, "|" if operator == "|&" else operator, self.command())
        return node

    def command(self) -> Node:
        """A compound or simple command."""
        if self.accept("if"):
            return self.condition()
        if self.accept("case"):
            return self.case()
        if self.accept("for", "select"):
            return self.loop_over_words()
        if self.accept("while", "until"):
            return self.loop()
        if self.accept("{"):
            return self.closed(Group(self.block(frozenset({"}"}))), "}")
        if self.accept("("):
            return self.closed(Group(self.block(frozenset({")"})), is_subshell=True), ")")
        if self.is_word("function") or self.defines_function():
            return self.function()
        return self.simple()

    def closed(self, node: Node, end: str) -> Node:
        """Take ``end`` and the redirections behind it."""
        self.accept(end)
        self.redirections()
        return node

    def redirections(self) -> tuple[tuple[str, str], ...]:
        """Take the redirections that come next; those of standard input and output, with the raw word of each."""
        found = []
        while self.is_operator(*REDIRECTIONS):
            operator, target = self.peek(), self.peek(1)
            standard = operator.words in ((), ("0",) if "<" in operator.text else ("1",))
            self.at += 1 + (target.kind == "word")
            if standard and target.kind == "word":
                found.append((operator.text, target.text))
        return tuple(found)

    def condition(self) -> Node:
        """Parse what stands after ``if``, all of its branches, to ``fi``."""
        branches: list[tuple[Block, Block]] = []
        while True:
            test = self.block(frozenset({"then", "fi"}))
            self.accept("then")
            branches.append((test, self.block(frozenset({"elif", "else", "fi"}))))
            if not self.accept("elif"):
                break
        if self.accept("else"):
            branches.append(((), self.block(frozenset({"fi"}))))
        return self.closed(If(tuple(branches)), "fi")

    def case(self) -> Node:
        """Parse what stands after ``case``, its subject and its branches, to ``esac``."""
        subject = self.peek().text
        self.at += 1
        self.skip_separators()
        self.accept("in")
        arms: list[tuple[tuple[str, ...], Block]] = []
        self.skip_separators()
        while self.at < len(self.tokens) and not self.is_word("esac"):
            arms.append(self.arm())
            self.skip_separators()
        return self.closed(Case(subject, tuple(arms)), "esac")

    def arm(self) -> tuple[tuple[str, ...], Block]:
        """One ``pattern | pattern) body ;;``."""
        self.accept("(")
        patterns: list[str] = []
        while self.at < len(self.tokens) and not self.accept(")"):
            if self.peek().kind == "word":
                patterns.append(self.peek().text)
            self.at += 1
        body = self.block(frozenset({";;", ";&", ";;&", "esac"}))
        self.accept(";;", ";&", ";;&")
        return tuple(patterns), body

    def loop_over_words(self) -> Node:
        """Parse what stands after ``for``: the variable, its words, and the body."""
        name = self.peek().text
        self.at += 1
        words: list[str] | None = None if name.startswith("((") else ["$@"]
        self.skip_newlines()
        if self.accept("in"):
            words = []
            while self.peek().kind == "word" and self.at < len(self.tokens):
                words.append(self.peek().text)
                self.at += 1
        return self.closed(For(name, None if words is None else tuple(words), self.do_block()), "")

    def skip_newlines(self) -> None:
        """Skip line ends."""
        while self.peek().kind == "newline" and self.at < len(self.tokens):
            self.at += 1

    def loop(self) -> Node:
        """Parse what stands after ``while`` or ``until``: the condition, and the body."""
        test = self.block(frozenset({"do", "done"}))
        body = self.do_block()
        return While(test, body, self.redirections())

    def do_block(self) -> Block:
        """Parse a loop's body, ``do … done``."""
        self.skip_separators()
        self.accept("do")
        body = self.block(frozenset({"done"}))
        self.accept("done")
        return body

    def defines_function(self) -> bool:
        """Whether ``name ( )`` comes next."""
        name, opening, closing = self.peek(), self.peek(1), self.peek(2)
        return name.kind == "word" and (opening.text, closing.text) == ("(", ")") and opening.kind == "operator"

    def function(self) -> Node:
        """``name() { … }`` or ``function name { … }``."""
        self.accept("function")
        name = self.peek().text
        self.at += 1
        if self.accept("("):
            self.accept(")")
        self.skip_newlines()
        body = self.command()
        return Function(name, body.body if isinstance(body, Group) and not body.is_subshell else (body,))

    def simple(self) -> Command:
        """Assignments and words up to an operator or line end."""
        line = self.peek().line
        assignments: list[Assignment] = []
        words: list[str] = []
        redirections: list[tuple[str, str]] = []
        while self.at < len(self.tokens):
            token = self.peek()
            if words and words[0] == "[[" and words[-1] != "]]" and token.kind == "operator":
                words.append(token.text)
                self.at += 1
                continue
            if token.kind == "operator" and token.text in REDIRECTIONS:
                redirections.extend(self.redirections())
                continue
            if token.kind in ("operator", "newline"):
                break
            self.at += 1
            self.place(token, assignments, words)
        return Command(tuple(assignments), tuple(words), line, tuple(redirections))

    def place(self, token: Token, assignments: list[Assignment], words: list[str]) -> None:
        """Put a token among the assignments or the words of its command."""
        declares = bool(words) and words[0] in DECLARING
        if token.kind == "array":
            name = token.text.rstrip("+=")
            assignments.append(Assignment(name, token.words, append=token.text.endswith("+=")))
            return
        match = _ASSIGNMENT.match(token.text)
        if match and (declares or not words):
            name, index, plus, value = match.groups()
            assignments.append(Assignment(name, value, append=bool(plus), index=(index or "")[1:-1]))
        else:
            words.append(token.text)


def flat(tests: Block) -> Iterator[Command]:
    """The commands of tests that are joined by ``&&`` and ``||``."""
    for node in tests:
        if isinstance(node, Command):
            yield node
        elif isinstance(node, AndOr):
            yield from flat((node.left, node.right))


def variables_of(tests: Block) -> set[str]:
    """Variables that the tests look at."""
    return {name for test in flat(tests) for name in _VARIABLE.findall(" ".join(test.words))}


def set_where_empty(tests: Block, body: Block) -> set[str]:
    """Variables that ``tests`` find empty, where ``body`` does nothing but set them, as where no GPU is detected."""
    names = {item.name for node in body if isinstance(node, Command) for item in node.assignments}
    plain = all(isinstance(node, Command) and not node.words for node in body)
    asks = any("-z" in test.words for test in flat(tests))
    return names if plain and asks and names <= variables_of(tests) else set()


def ends_in_error(body: Block, functions: Mapping[str, Block], depth: int = 0) -> bool:
    """Whether a branch ends the script with an error, itself or by one of the script's ``functions``."""
    last = body[-1] if body else None
    if isinstance(last, Group):
        return not last.is_subshell and ends_in_error(last.body, functions, depth)
    if not isinstance(last, Command) or not last.words:
        return False
    if last.words[0] in functions and depth < MAX_DEPTH:
        return ends_in_error(functions[last.words[0]], functions, depth + 1)
    return last.words[0] == "exit" and last.words[1:2] != ("0",)
