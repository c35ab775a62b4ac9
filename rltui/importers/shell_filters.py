r"""What a few filters make of a known text: ``$(echo 0,1,2 | tr ',' '\n' | wc -l)`` is 3.

Scripts count the GPUs of ``CUDA_VISIBLE_DEVICES`` that way. Only filters whose outcome follows from their words are
worked out; everything else stays unknown, for nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.importers.values import HOLE

_ESCAPES = {"\\n": "\n", "\\t": "\t"}
_FIELD_COUNT = re.compile(r"\{\s*print\s*\(?\s*NF\s*\)?\s*;?\s*\}\Z")


def piped(stages: Sequence[Sequence[str]]) -> str:
    """The text that a pipeline of commands prints, without its last line ends; a hole where that is not known.

    Args:
        stages: Words of each command, expanded.
    """
    if any(HOLE in word for words in stages for word in words) or not stages or not all(stages):
        return HOLE
    text = _printed(stages[0])
    for words in stages[1:]:
        text = None if text is None else _filtered(text, list(words))
    return HOLE if text is None else text.rstrip("\n")


def _printed(words: Sequence[str]) -> str | None:
    """What ``echo`` prints for these words; None: it is another command."""
    head, *rest = words
    if head != "echo":
        return None
    if rest[:1] == ["-n"]:
        return " ".join(rest[1:])
    return None if rest[:1] and rest[0].startswith("-") else " ".join(rest) + "\n"


def _filtered(text: str, words: list[str]) -> str | None:
    """What a filter makes of ``text``."""
    if words[0] == "wc" and len(words) == 2:
        counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
        return f"{counts[words[1]]}\n" if words[1] in counts else None
    if words[0] == "tr":
        return _translated(text, words[1:])
    if words[0] == "awk":
        return _field_count(text, words[1:])
    if words[0] == "grep" and words[1:2] == ["-o"] and len(words) == 3 and re.fullmatch(r"[\w,: ]", words[2]):
        return f"{words[2]}\n" * text.count(words[2])
    return None


def _translated(text: str, words: list[str]) -> str | None:
    """``tr A B``, ``tr -d A`` and ``tr -cd A`` for single characters."""
    pieces = [_ESCAPES.get(word, word) for word in words]
    if len(pieces) != 2 or len(pieces[1]) != 1:
        return None
    if pieces[0] in ("-d", "-cd", "-dc"):
        keeps = pieces[0] != "-d"
        return "".join(char for char in text if (char == pieces[1]) == keeps)
    return text.replace(pieces[0], pieces[1]) if len(pieces[0]) == 1 else None


def _field_count(text: str, words: list[str]) -> str | None:
    """What ``awk -F, '{print NF}'`` prints of ``text``: how scripts count GPUs in a list."""
    if words[:1] == ["-F"]:
        words = [f"-F{words[1]}", *words[2:]] if len(words) > 1 else words
    if len(words) != 2 or not re.fullmatch(r"-F[,:;]", words[0]) or not _FIELD_COUNT.match(words[1]):
        return None
    separator = words[0][2:]
    return "".join(f"{len(line.split(separator)) if line else 0}\n" for line in text.splitlines())
