r"""What a few filters make of a known text: ``$(echo 0,1,2 | tr ',' '\n' | wc -l)`` is 3.

Scripts count the GPUs of ``CUDA_VISIBLE_DEVICES`` that way. Only filters whose outcome follows from their words are
worked out; everything else stays unknown, for nothing is run.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from rltui.importers.values import HOLE, to_int

MAX_NUMBERS = 1024
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
    """What ``echo`` or ``seq`` prints for these words; None: it is another command."""
    head, *rest = words
    if head == "seq":
        return _numbered(rest)
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


def _numbered(words: Sequence[str]) -> str | None:
    """What ``seq LAST``, ``seq FIRST LAST`` or ``seq FIRST STEP LAST`` prints, one number a line or as ``-s`` says."""
    separator = "\n"
    if words[:1] == ["-s"] and words[1:]:
        separator, words = words[1], words[2:]
    elif words and words[0].startswith("-s"):
        separator, words = words[0][2:], words[1:]
    numbers = [number for number in map(to_int, words) if number is not None]
    if len(numbers) != len(words) or not 1 <= len(numbers) <= 3:
        return None
    first, step, last = (1, 1, *numbers)[-3:] if len(numbers) != 2 else (numbers[0], 1, numbers[1])
    counted = range(first, last + (1 if step > 0 else -1), step) if step else range(0)
    return separator.join(map(str, counted)) + "\n" if 0 < len(counted) <= MAX_NUMBERS else None


def transformed(value: str | None, operation: str) -> str:
    """``${name%pattern}`` and its kin; a hole where the value or the operation is not known."""
    if value is None or HOLE in value:
        return HOLE
    if operation in ("^^", ",,"):
        return value.upper() if operation == "^^" else value.lower()
    match = re.match(r"(##|#|%%|%)([^$`\"']*)\Z", operation)
    if match is None or len(value) > 1000:
        return HOLE
    return _without(value, match.group(1), match.group(2))


def _without(value: str, kind: str, pattern: str) -> str:
    """``value`` without the shortest or longest start (#) or end (%) that matches ``pattern``."""
    cuts = range(len(value) + 1)
    ordered = cuts if kind in ("#", "%%") else reversed(cuts)
    for cut in ordered:
        taken = value[:cut] if kind.startswith("#") else value[cut:]
        if fnmatch.fnmatchcase(taken, pattern):
            return value[cut:] if kind.startswith("#") else value[:cut]
    return value
