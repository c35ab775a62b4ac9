"""The text of prompts and answers for people: control characters escaped, special tokens apart, words that differ."""

from __future__ import annotations

import difflib
import re
from typing import Literal

Kind = Literal["text", "special", "new", "gone"]
"""What a piece is: words, a model's special token, words that only this answer has, words that only the other has."""

Piece = tuple[str, Kind]

MOST_WORDS = 4000
"""Words of an answer that are compared: more take seconds."""

SPECIAL = re.compile(
    r"<\|[^|<>\n]{1,64}\|>|<｜[^<>\n]{1,64}｜>|</?s>|<(?:pad|bos|eos|unk|start_of_turn|end_of_turn)>|\[/?INST\]"
    r"|</?think>|</?tool_call>"
)
"""Special tokens as Qwen, Llama, DeepSeek, Gemma and Mistral write them."""

_WORDS = re.compile(r"\n|[^\S\n]+|\S+")


def escaped(text: str) -> str:
    """``text`` with line ends as they are, and each other character that is not printable as Python writes it."""
    text = text.replace("\r\n", "\n")
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    if char == "\t":
        return "    "
    return (
        char
        if char.isspace() and ord(char) > 0x20 and ord(char) in _SPACES
        else char.encode("unicode_escape").decode("ascii")
    )


_SPACES = frozenset({0x00A0, 0x3000})
"""Odd spaces that texts of people have: no-break, and the ideographic one."""


def pieces(text: str) -> list[Piece]:
    """``text`` with its special tokens apart."""
    found: list[Piece] = []
    at = 0
    for match in SPECIAL.finditer(text):
        if match.start() > at:
            found.append((text[at : match.start()], "text"))
        found.append((match[0], "special"))
        at = match.end()
    return [*found, (text[at:], "text")] if at < len(text) or not found else found


def differences(best: str, own: str) -> list[Piece]:
    """``own`` with the words that ``best`` does not have, and at their place those that only ``best`` has."""
    before, after = _WORDS.findall(best)[:MOST_WORDS], _WORDS.findall(own)
    rest = "".join(after[MOST_WORDS:])
    after = after[:MOST_WORDS]
    found: list[Piece] = []
    # difflib's short cut passes over what is frequent, blanks first; texts of a few hundred words do without
    for tag, a, b, c, d in difflib.SequenceMatcher(None, before, after, autojunk=len(after) > 500).get_opcodes():
        if tag == "equal":
            found.append(("".join(after[c:d]), "text"))
            continue
        if b > a:
            found.append(("".join(before[a:b]), "gone"))
        if d > c:
            found.append(("".join(after[c:d]), "new"))
    return [*found, (rest, "text")] if rest else found
