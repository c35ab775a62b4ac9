"""Brackets inside a word: where they close, and the words that ``{a,b}`` and ``{0..7}`` become."""

from __future__ import annotations

import re

from rltui.importers.shell_lexer import bracket_end

BRACKETS = {"(": ")", "{": "}"}
MAX_BRACES = 100
MAX_WORDS = 1024
_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?\Z")


def quotable(raw: str) -> str:
    """``raw`` without double quotes of its own, which only switch off and on again those around it."""
    parts, at = [], 0
    while at < len(raw):
        end = at + 1
        if raw[at] == "\\":
            end = at + 2
        elif raw[at] == "$" and raw[at + 1 : at + 2] in BRACKETS:
            end = bracket_end(raw, at + 1, raw[at + 1], BRACKETS[raw[at + 1]])
        parts.append("" if raw[at] == '"' else raw[at:end])
        at = end
    return "".join(parts)


def alternatives(raw: str) -> list[str]:
    """The raw words that ``raw`` becomes by its ``{a,b}`` and ``{0..7}``; itself where it has none."""
    at = 0
    while at < len(raw) and raw.count("{") <= MAX_BRACES:
        end = _piece_end(raw, at)
        parts = _parts(raw[at + 1 : end - 1]) if raw[at] == "{" and end <= len(raw) else []
        if parts:
            starts = [raw[:at] + one for part in parts for one in alternatives(part)]
            ends = alternatives(raw[end:])
            return [start + rest for start in starts for rest in ends] if len(starts) * len(ends) < MAX_WORDS else [raw]
        at = at + 1 if raw[at] == "{" else end
    return [raw]


def _piece_end(raw: str, at: int) -> int:
    """Position after the character, quoted text, bracket or expansion at ``at``."""
    if raw[at] == "\\":
        return at + 2
    if raw[at] in "'\"`":
        match = re.compile(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", re.DOTALL).match(raw, at)
        return match.end() if match else len(raw)
    start = at + (raw[at] == "$")
    opening = raw[start : start + 1]
    if opening in BRACKETS and (opening == "{" or start > at):
        return bracket_end(raw, start, opening, BRACKETS[opening])
    return at + 1


def _parts(inside: str) -> list[str]:
    """The alternatives between two braces; none where they are no more than a text in braces."""
    if match := _RANGE.match(inside):
        first, last = int(match[1]), int(match[2])
        step = abs(int(match[3] or 1)) or 1
        numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
        padded = any(re.match(r"-?0\d", text) for text in match.groups()[:2])
        width = max(len(match[1]), len(match[2])) if padded else 0
        return [f"{number:0{width}d}" for number in numbers] if len(numbers) < MAX_WORDS else []
    cuts, at = [-1], 0
    while at < len(inside):
        cuts += [at] if inside[at] == "," else []
        at = _piece_end(inside, at)
    return (
        [inside[start + 1 : end] for start, end in zip(cuts, [*cuts[1:], len(inside)], strict=True)] if cuts[1:] else []
    )
