"""Cutting a shell script into words and operators, with quotes, continued lines, arrays and here-documents."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rltui.errors import UsageError
from rltui.importers.shell_heredocs import Heredoc, heredoc_at

_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|&>>|&>|<<<|<<-|<<|>>|>&|<&|<>|>\||[;&|()<>]")
_ARRAY_START = re.compile(r"[A-Za-z_]\w*\+?=\Z")
_RESUMES = re.compile(r"""[ \t]*(?:--?[A-Za-z]|\+|["$']|[A-Za-z_][\w.]*=)""")
_PLACEHOLDER = re.compile(r"(?<=[ \t])<[A-Za-z][\w.-]*>(?=\s|\Z)")
REDIRECTIONS = frozenset({"<", ">", ">>", ">&", "<&", "<>", ">|", "&>", "&>>", "<<<"})
MAX_TOKENS = 200_000


class ScriptError(UsageError):
    """A script that cannot be read as shell, with the line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")


class Token(Struct, frozen=True):
    """A word, operator or newline.

    Attributes:
        kind: What it is; an ``array`` is ``NAME=(…)`` or ``NAME+=(…)`` with its words.
        text: The raw text, quotes included; of an array, ``NAME=`` or ``NAME+=``.
        line: Where it starts, from 1.
        words: The raw words of an array; of a redirection, the number of its file where it is said.
    """

    kind: Literal["word", "operator", "newline", "array"]
    text: str
    line: int
    words: tuple[str, ...] = ()


def lex(text: str) -> tuple[list[Token], list[str]]:
    """Return the tokens of ``text``, and what was read other than bash would.

    Raises:
        ScriptError: A quote, bracket or array is opened and never closed.
    """
    lexer = _Lexer(text.replace("\r\n", "\n"))
    lexer.run()
    return lexer.tokens, lexer.notes


def bracket_end(text: str, start: int, opening: str, closing: str) -> int:
    """Position after the bracket that closes the one at ``start``; one more than all of ``text`` where none does."""
    try:
        return _Lexer(text).balanced(start, opening, closing)
    except ScriptError:
        return len(text) + 1


class _Lexer:
    """One pass over the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.tokens: list[Token] = []
        self.notes: list[str] = []
        self.heredocs: list[Heredoc] = []
        self.descriptor = ""

    def run(self) -> None:
        """Read the text to its end, token by token, within a bound."""
        while self.at < len(self.text):
            if len(self.tokens) > MAX_TOKENS:
                raise ScriptError(self.line, f"more than {MAX_TOKENS} words; a launch script has a few hundred")
            self.step()

    def step(self) -> None:
        """Read one token, or skip what lies between tokens."""
        if self.skip_blank():
            return
        char = self.text[self.at]
        if char == "\n":
            self.newline()
        elif char == "#":
            self.skip_comment()
        elif self.text.startswith("((", self.at):
            self.word_until_arithmetic_end()
        elif match := _PLACEHOLDER.match(self.text, self.at):
            self.placeholder(match.group())
        elif match := _OPERATOR.match(self.text, self.at):
            self.operator(match.group())
        else:
            self.word()

    def skip_blank(self) -> bool:
        """Skip blanks and continued line ends; tells whether anything was skipped."""
        start = self.at
        while self.at < len(self.text):
            if self.text[self.at] in " \t\r":
                self.at += 1
            elif length := self.continuation():
                self.at += length
                self.line += 1
                self.skip_comments_in_command()
            else:
                break
        return self.at > start

    def continuation(self) -> int:
        """Length of a backslash and line end here, blanks between them included; 0 where there is none."""
        if not self.text.startswith("\\", self.at):
            return 0
        end = self.at + 1
        while end < len(self.text) and self.text[end] in " \t\r":
            end += 1
        return end + 1 - self.at if end < len(self.text) and self.text[end] == "\n" else 0

    def skip_comments_in_command(self) -> None:
        """Skip comment lines after a continued line where the command plainly goes on behind them.

        In bash such a comment ends the command; people put them there all the same, so the reading follows what is
        meant, and says so.
        """
        at, lines = self.at, 0
        while match := re.compile(r"[ \t]*#[^\n]*\n").match(self.text, at):
            at, lines = match.end(), lines + 1
        if lines and _RESUMES.match(self.text, at):
            self.notes.append(
                f"line {self.line}: a comment inside a continued command ends the command in bash; read on as meant"
            )
            self.at = at
            self.line += lines

    def skip_comment(self) -> None:
        """Skip to the end of the line."""
        end = self.text.find("\n", self.at)
        self.at = len(self.text) if end < 0 else end

    def newline(self) -> None:
        """A line end, and the bodies of here-documents that begin after it, which become here-strings."""
        end = Token("newline", "\n", self.line)
        start = self.at
        self.at += 1
        words: list[tuple[int, Token]] = []
        for heredoc in self.heredocs:
            text, self.at = heredoc.text(self.text, self.at)
            words.append((heredoc.at, Token("word", heredoc.word(text), end.line)))
        for place, word in reversed(words):
            self.tokens.insert(place, word)
        self.heredocs.clear()
        self.count_lines(start, self.at)
        self.tokens.append(end)

    def operator(self, text: str) -> None:
        """An operator; ``<(…)`` is a word."""
        if text in "<>" and self.text.startswith("(", self.at + 1):
            start = self.at
            self.at = self.balanced(self.at + 1, "(", ")")
            self.tokens.append(Token("word", f"$({self.text[start + 2 : self.at]}", self.line))
            return
        if begun := heredoc_at(self.text, self.at):
            heredoc, self.at = begun
            self.tokens.append(Token("operator", "<<<", self.line))
            self.heredocs.append(replace(heredoc, at=len(self.tokens)))
            return
        self.at += len(text)
        if text in ("<<", "<<-"):
            return
        self.tokens.append(Token("operator", text, self.line, (self.descriptor,) if self.descriptor else ()))
        self.descriptor = ""

    def placeholder(self, text: str) -> None:
        """``<YOUR_MODEL>`` as a word: bash would read and write files of the words behind it, which nobody means."""
        self.notes.append(f"line {self.line}: {text} is a placeholder, which bash takes for files; read on as meant")
        self.at += len(text)
        self.tokens.append(Token("word", f"'{text}'", self.line))

    def word_until_arithmetic_end(self) -> None:
        """Take ``((…))`` as one word: its inside has operators that are none of the shell."""
        start, line = self.at, self.line
        end = self.balanced(self.at, "(", ")")
        self.count_lines(start, end)
        self.at = end
        self.tokens.append(Token("word", self.text[start:end], line))

    def word(self) -> None:
        """A word, or an array that is assigned."""
        line, raw = self.line, self.raw_word()
        if self.text.startswith("(", self.at) and _ARRAY_START.match(raw):
            self.tokens.append(Token("array", raw, line, self.array_words()))
        elif raw.isdigit() and self.text[self.at : self.at + 1] in ("<", ">"):
            self.descriptor = raw  # the number of the file that is redirected
        elif raw:
            self.tokens.append(Token("word", raw, line))

    def raw_word(self) -> str:
        """Text up to the next blank or operator outside quotes."""
        parts: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;&|()<>":
                break
            if self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
                continue
            end = self.piece_end()
            parts.append(self.text[self.at : end])
            self.count_lines(self.at, end)
            self.at = end
        return "".join(parts)

    def piece_end(self) -> int:
        """End of the character, quoted text or expansion that starts here."""
        char = self.text[self.at]
        if char == "\\":
            return min(self.at + 2, len(self.text))
        if char == "'":
            return self.closing_quote(self.at)
        if char in '"`':
            return self.closing_double(self.at, char)
        if char == "$":
            return self.dollar_end(self.at)
        return self.at + 1

    def closing_quote(self, start: int) -> int:
        """Position after the ``'`` that ends a quote."""
        end = self.text.find("'", start + 1)
        if end < 0:
            raise ScriptError(self.line, "a quote (') is opened and never closed")
        return end + 1

    def closing_double(self, start: int, quote: str) -> int:
        """Position after the ``"`` or backtick that ends a quote; expansions inside may hold quotes of their own."""
        at = start + 1
        while at < len(self.text):
            char = self.text[at]
            if char == quote:
                return at + 1
            if char == "\\":
                at += 2
            elif char == "$" and quote == '"':
                at = self.dollar_end(at)
            else:
                at += 1
        raise ScriptError(self.line, f"a quote ({quote}) is opened and never closed")

    def dollar_end(self, start: int) -> int:
        """End of ``$name``, ``${…}``, ``$(…)``, ``$((…))`` or ``$'…'``."""
        follows = self.text[start + 1 : start + 2]
        if follows == "{":
            return self.balanced(start + 1, "{", "}")
        if follows == "(":
            return self.balanced(start + 1, "(", ")")
        if follows == "'":
            match = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL).match(self.text, start + 1)
            return match.end() if match else start + 1
        return start + 1

    def balanced(self, start: int, opening: str, closing: str) -> int:
        """Position after the bracket that closes the one at ``start``; quotes are skipped."""
        depth, at = 0, start
        is_script = opening == "(" and not self.text.startswith("((", start)
        heredocs: list[Heredoc] = []
        while at < len(self.text):
            char = self.text[at]
            if is_script and char in "#<\n" and (after := self.past_text(at, heredocs)) > at:
                at = after
                continue
            if char == "\\":
                at += 2
                continue
            if char == "'" and not (opening == "{" and self.inside_double(start)):
                at = self.closing_quote(at)
                continue
            if char == '"':
                at = self.closing_double(at, '"')
                continue
            depth += (char == opening) - (char == closing)
            at += 1
            if depth == 0:
                return at
        raise ScriptError(self.line, f"a bracket ({opening}) is opened and never closed")

    def past_text(self, at: int, heredocs: list[Heredoc]) -> int:
        """Position after a remark or the here-documents at ``at`` in a script in brackets, where quotes mean nothing.

        ``heredocs`` are those that begin at the next line.
        """
        if self.text[at] == "#" and self.text[at - 1] in " \t\n(;":
            end = self.text.find("\n", at)
            return len(self.text) if end < 0 else end
        if begun := heredoc_at(self.text, at):
            heredocs.append(begun[0])
            return begun[1]
        if self.text[at] == "\n" and heredocs:
            at += 1
            for heredoc in heredocs:
                _, at = heredoc.text(self.text, at)
            heredocs.clear()
        return at

    def inside_double(self, start: int) -> bool:
        """Whether the line up to ``start`` has an open double quote; an apostrophe means nothing then."""
        # a bounded look back, so that a line of a million characters is not counted again and again
        line_start = self.text.rfind("\n", max(0, start - 4096), start) + 1 or max(0, start - 4096)
        return self.text.count('"', line_start, start) % 2 == 1

    def array_words(self) -> tuple[str, ...]:
        """The raw words between the brackets of an array; comments and line ends are left out."""
        opened = self.line
        self.at += 1
        words: list[str] = []
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == ")":
                self.at += 1
                return tuple(words)
            if char == "\n":
                self.at += 1
                self.line += 1
            elif char == "#":
                self.skip_comment()
            elif char in " \t\r" or self.continuation():
                self.skip_array_blank()
            elif char in ";&|(<>":
                words.append(char)
                self.at += 1
            else:
                words.append(self.raw_word())
        raise ScriptError(opened, "an array is opened and never closed")

    def skip_array_blank(self) -> None:
        """Skip blanks and continued line ends inside an array."""
        length = self.continuation()
        self.line += bool(length)
        self.at += length or 1

    def count_lines(self, start: int, end: int) -> None:
        """Keep the line number right over text that is taken whole."""
        self.line += self.text.count("\n", start, end)
