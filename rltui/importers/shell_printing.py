"""What a few commands print from their words alone: ``echo``, ``printf``, ``seq``, ``basename`` and their kin."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.importers.shell_arithmetic import evaluate
from rltui.importers.values import HOLE, NODE, to_int

MAX_NUMBERS = 1024
MAX_NODES = 1024
_FORMAT = re.compile(r"%(?:%|(0?\d*)([sdi]))")
_ESCAPE = re.compile(r"\\([nt\\])")
_ESCAPED = {"n": "\n", "t": "\t", "\\": "\\"}


def printed(words: Sequence[str], nodes: str = "") -> str | None:
    """What a command prints for these words; None: it is another command, or that shows only in a run.

    Args:
        words: The command, expanded; words that are not known are holes in what it prints.
        nodes: Nodes of the job, as ``SLURM_NNODES`` says.
    """
    head, rest = words[0].rsplit("/", 1)[-1], list(words[1:])
    if head == "echo":
        return _echoed(rest)
    if head == "printf":
        return formatted(rest[rest[:1] == ["--"] :])
    if head == "scontrol" and rest[:1] == ["show"] and "".join(rest[1:2]).startswith("hostname"):
        count = to_int(nodes) or 0
        return "".join(f"{NODE}{index}\n" for index in range(count)) if 0 < count <= MAX_NODES else None
    if any(HOLE in word for word in rest):
        return None
    if head in ("which", "command") and (found := [word for word in rest if word not in ("-v", "-V")]):
        return f"{HOLE}/{found[0].rsplit('/', 1)[-1]}\n" if len(found) == 1 else None  # somewhere on the machine
    if head == "seq":
        return _numbered(rest)
    if head in ("basename", "dirname") and 1 <= len(rest) <= 2 and not rest[0].startswith("-"):
        return _part_of_path(head, rest)
    if head == "expr":
        value = evaluate(" ".join(rest), lambda _: None)
        return None if HOLE in value else f"{value}\n"
    return None


def formatted(words: Sequence[str]) -> str | None:
    """What ``printf`` makes of its format and words; a format with other marks than ``%s`` and ``%d`` is not known."""
    if not words or "%" in _FORMAT.sub("", words[0]) or HOLE in words[0]:
        return None
    form, given, texts = words[0], list(words[1:]), []
    marks = [match for match in _FORMAT.finditer(form) if match[0] != "%%"]
    while True:
        taken, given = given[: len(marks)], given[len(marks) :]
        values = iter([*taken, *[""] * (len(marks) - len(taken))])
        parts, at = [], 0
        for match in _FORMAT.finditer(form):
            parts.append(_unescaped(form[at : match.start()]))
            value = "%" if match[0] == "%%" else _filled(match, next(values))
            if value is None:
                return None
            parts.append(value)
            at = match.end()
        texts.append("".join([*parts, _unescaped(form[at:])]))
        if not marks or not given:
            return "".join(texts)


def _filled(mark: re.Match[str], value: str) -> str | None:
    if HOLE in value:
        return HOLE
    if mark[2] == "s":
        return value.rjust(int(mark[1] or 0))
    number = to_int(value or "0")
    if number is None or (len(value) > 1 and value.lstrip("-").startswith("0")):
        return None
    return f"{number:{mark[1]}d}"


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED[match[1]], text)


def _echoed(words: list[str]) -> str | None:
    if words[:1] == ["-n"]:
        return " ".join(words[1:])
    if words[:1] == ["-e"]:
        return _unescaped(" ".join(words[1:])) + "\n"
    return None if words[:1] and words[0].startswith("-") else " ".join(words) + "\n"


def _part_of_path(head: str, words: list[str]) -> str | None:
    """``basename PATH [ENDING]`` and ``dirname PATH``."""
    path = words[0].rstrip("/") or "/"
    folder, slash, name = path.rpartition("/")
    if head == "dirname":
        return f"{folder.rstrip('/') or slash or '.'}\n" if len(words) == 1 else None
    ending = words[1] if len(words) == 2 else ""
    return f"{name.removesuffix(ending) or name or '/'}\n"


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
