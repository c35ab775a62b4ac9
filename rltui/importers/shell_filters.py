r"""What a few filters make of a known text: ``$(echo 0,1,2 | tr ',' '\n' | wc -l)`` is 3.

Scripts count the GPUs of ``CUDA_VISIBLE_DEVICES`` that way. Only filters whose outcome follows from their words are
worked out; everything else stays unknown, for nothing is run.
"""

from __future__ import annotations

import fnmatch
import re

from rltui.importers.shell_arithmetic import evaluate
from rltui.importers.values import HOLE, NODE, to_int

MAX_MATCHED = 300
_ESCAPES = {"\\n": "\n", "\\t": "\t"}
_CASES = {("[:upper:]", "[:lower:]"): str.lower, ("A-Z", "a-z"): str.lower,
          ("[:lower:]", "[:upper:]"): str.upper, ("a-z", "A-Z"): str.upper}  # fmt: skip
_FIELD_COUNT = re.compile(r"\{\s*print\s*\(?\s*NF\s*\)?\s*;?\s*\}\Z")
_FIELD = re.compile(r"\{\s*print\s*\(?\s*\$(\d+)\s*\)?\s*;?\s*\}\Z")
_SUBSTITUTION = re.compile(r"s([/|#,:])((?:[\w@+=,:/ -](?<!\1))+)\1((?:[\w@+=,.:/ -](?<!\1))*)\1(g?)\Z")
_OF_LINES = frozenset({"head", "tail", "wc"})
"""Filters that look at no line: the names of nodes, which only a run shows, may go through them."""


def filtered(text: str, words: list[str]) -> str | None:
    """What a filter makes of ``text``; None: it is another command, or its outcome shows only in a run."""
    head = words[0].rsplit("/", 1)[-1]
    if head in ("cat", "tee"):
        return text if head == "tee" or not words[1:] else None
    if HOLE in text and (head not in _OF_LINES or HOLE in text.replace(NODE, "") or words[1:] == ["-c"]):
        return None
    if any(HOLE in word for word in words):
        return None
    if head == "wc" and len(words) == 2:
        counts = {"-l": text.count("\n"), "-w": len(text.split()), "-c": len(text.encode())}
        return f"{counts[words[1]]}\n" if words[1] in counts else None
    if head == "grep" and words[1:2] == ["-o"] and len(words) == 3 and re.fullmatch(r"[\w,: ]", words[2]):
        return f"{words[2]}\n" * text.count(words[2])
    if head == "xargs" and not words[1:]:
        return " ".join(text.split()) + "\n"
    if head == "bc" and re.fullmatch(r"[\d+*() -]+\n?", text):
        return f"{evaluate(text, lambda _: None)}\n"
    worked = {"tr": _translated, "awk": _field, "cut": _cut, "sed": _substituted, "head": _some, "tail": _some}
    return worked[head](text, words) if head in worked else None


def _translated(text: str, words: list[str]) -> str | None:
    """``tr A B``, ``tr -d A`` and ``tr -cd A`` for single characters, and to capitals and back."""
    pieces = [_ESCAPES.get(word, word) for word in words[1:]]
    if tuple(pieces) in _CASES:
        return _CASES[pieces[0], pieces[1]](text)
    if len(pieces) != 2 or len(pieces[1]) != 1:
        return None
    if pieces[0] in ("-d", "-cd", "-dc"):
        keeps = pieces[0] != "-d"
        return "".join(char for char in text if (char == pieces[1]) == keeps)
    return text.replace(pieces[0], pieces[1]) if len(pieces[0]) == 1 else None


def _split_option(words: list[str], letter: str) -> list[str]:
    """``words`` with the value of ``-F ,`` in its own word, ``-F,``."""
    at = words.index(f"-{letter}") if f"-{letter}" in words[:-1] else -1
    return words if at < 0 else [*words[:at], words[at] + words[at + 1], *words[at + 2 :]]


def _field(text: str, words: list[str]) -> str | None:
    """What ``awk '{print $2}'`` prints, or ``awk -F, '{print NF}'``, by which scripts count GPUs in a list."""
    *options, program = _split_option(words, "F")[1:] or [""]
    separator = options[0][2:] if options else None
    if len(options) > 1 or (separator is not None and not re.fullmatch(r"[,:;=_/-]", separator)):
        return None
    rows = [line.split(separator) if line else [] for line in text.splitlines()]
    if _FIELD_COUNT.match(program):
        return "".join(f"{len(row)}\n" for row in rows)
    match = _FIELD.match(program)
    if match is None or match[1] == "0":
        return None
    place = int(match[1]) - 1
    return "".join(f"{row[place] if place < len(row) else ''}\n" for row in rows)


def _cut(text: str, words: list[str]) -> str | None:
    """``cut -d: -f2`` and ``cut -d: -f1-3``."""
    options = {word[:2]: word[2:] for word in _split_option(_split_option(words, "d"), "f")[1:]}
    match = re.fullmatch(r"(\d*)(-?)(\d*)", options.get("-f", ""))
    if options.keys() != {"-d", "-f"} or len(options["-d"]) != 1 or not match or not (match[1] or match[3]):
        return None
    first = int(match[1] or 1)
    last = int(match[3]) if match[3] else None if match[2] else first
    rows = [line.split(options["-d"]) for line in text.splitlines()]
    return "".join(options["-d"].join(row if len(row) == 1 else row[first - 1 : last]) + "\n" for row in rows)


def _substituted(text: str, words: list[str]) -> str | None:
    """``sed 's/a/b/; s/c/d/g'`` for plain texts."""
    given = words[1 + (words[1:2] in (["-e"], ["-E"], ["-r"])) :]
    steps = [_SUBSTITUTION.match(step.strip()) for step in given[0].split(";")] if len(given) == 1 else [None]
    lines = text.splitlines()
    for step in steps:
        if step is None or "+" in step[2]:
            return None
        lines = [line.replace(step[2], step[3], -1 if step[4] else 1) for line in lines]
    return "".join(f"{line}\n" for line in lines)


def _some(text: str, words: list[str]) -> str | None:
    """``head -n 1``, ``head -1``, ``tail -n 1``."""
    count = to_int("".join(words[1:]).removeprefix("-").removeprefix("n")) if words[1:] else 10
    if count is None or count < 1:
        return None
    lines = text.splitlines(keepends=True)
    return "".join(lines[:count] if words[0].endswith("head") else lines[-count:])


def transformed(value: str | None, operation: str) -> str:
    """``${name%pattern}`` and its kin; a hole where the value or the operation is not known."""
    if value is None or HOLE in value or HOLE in operation or len(value) > 1000:
        return HOLE
    if operation in ("^^", ",,"):
        return value.upper() if operation == "^^" else value.lower()
    if operation in ("^", ","):
        return (value[:1].upper() if operation == "^" else value[:1].lower()) + value[1:]
    if match := re.match(r"/([/#%]?)((?:[^/\\]|\\.)+)(?:/(.*))?\Z", operation, re.DOTALL):
        return _replaced(value, match[1], re.sub(r"\\(.)", r"\1", match[2]), match[3] or "")
    match = re.match(r"(##|#|%%|%)(.*)\Z", operation, re.DOTALL)
    return _without(value, match.group(1), match.group(2)) if match else HOLE


def _without(value: str, kind: str, pattern: str) -> str:
    """``value`` without the shortest or longest start (#) or end (%) that matches ``pattern``."""
    cuts = range(len(value) + 1)
    ordered = cuts if kind in ("#", "%%") else reversed(cuts)
    for cut in ordered:
        taken = value[:cut] if kind.startswith("#") else value[cut:]
        if fnmatch.fnmatchcase(taken, pattern):
            return value[cut:] if kind.startswith("#") else value[:cut]
    return value


def _replaced(value: str, kind: str, pattern: str, new: str) -> str:
    """``value`` with ``new`` where it first matches ``pattern``; everywhere (/), at its start (#), at its end (%)."""
    if len(value) > MAX_MATCHED:
        return HOLE
    parts, at = [], 0
    while at < len(value):
        ends = (len(value),) if kind == "%" else range(len(value), at, -1)
        end = next((end for end in ends if fnmatch.fnmatchcase(value[at:end], pattern)), None)
        if end is None and kind == "#":
            break
        if end is None:
            parts.append(value[at])
            at += 1
            continue
        parts.append(new)
        at = end
        if kind != "/":
            break
    return "".join(parts) + value[at:]
