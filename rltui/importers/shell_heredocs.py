"""Here-documents of a shell script: where their text ends, and the word that it is for the command that reads it."""

from __future__ import annotations

import re

from msgspec import Struct

BEGINS = re.compile(r"<<(?!<)(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|(\\?[^\s;&|<>()'\"]+))")


class Heredoc(Struct, frozen=True):
    """A here-document whose text begins at the next line.

    Attributes:
        delimiter: The line that ends it.
        is_indented: Tabs may stand in front of that line.
        is_quoted: Nothing in its text is expanded.
        at: Where its text stands among the tokens of the script.
    """

    delimiter: str
    is_indented: bool
    is_quoted: bool
    at: int = 0

    def text(self, script: str, start: int) -> tuple[str, int]:
        """Its text, which begins at ``start``, and the position after the line that ends it."""
        at = start
        while at < len(script):
            end = script.find("\n", at)
            line = script[at : end if end >= 0 else len(script)]
            if (line.lstrip("\t") if self.is_indented else line) == self.delimiter:
                return script[start:at], at + len(line) + (end >= 0)
            at += len(line) + 1
        return script[start:], len(script)

    def word(self, text: str) -> str:
        """Its text as a raw word, for the shell to expand or not."""
        if self.is_quoted:
            return "'" + text.replace("'", "'\\''") + "'"
        return '"' + text.replace('\\"', '\\\\"').replace('"', '\\"') + '"'


def heredoc_at(text: str, at: int) -> tuple[Heredoc, int] | None:
    """The here-document that ``<<EOF`` at ``at`` begins, and the position after this word."""
    match = BEGINS.match(text, at)
    if match is None:
        return None
    delimiter = match[2] or match[3] or match[4].replace("\\", "")
    is_quoted = bool(match[2] or match[3]) or match[4].startswith("\\")
    return Heredoc(delimiter, bool(match[1]), is_quoted), match.end()
