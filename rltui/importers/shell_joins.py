"""What is known after branches that cannot be decided: what they agree on; the rest becomes a hole."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.importers.values import HOLE, to_int

_COMMAND_WORDS = 3
Value = str | tuple[str, ...]


def joined(outcomes: Sequence[dict[str, Value]]) -> dict[str, Value]:
    """Variables after branches: the same value in all stays, another becomes a hole."""
    result: dict[str, Value] = {}
    for name in {name for outcome in outcomes for name in outcome}:
        values = [outcome.get(name) for outcome in outcomes]
        first = values[0]
        if first is not None and all(value == first for value in values):
            result[name] = first
        elif any(isinstance(value, tuple) for value in values):
            result[name] = _joined_words([value if isinstance(value, tuple) else () for value in values])
        elif commands := _commands(values):
            result[name] = " ".join(_joined_words(commands))
        else:
            result[name] = HOLE
    return result


def appended(before: Value | None, value: Value) -> Value:
    """The value after ``NAME+=value``: texts are joined, arrays grow."""
    if before is None:
        return value
    if isinstance(value, tuple) or isinstance(before, tuple):
        first = before if isinstance(before, tuple) else (before,)
        return first + (value if isinstance(value, tuple) else (value,))
    return before + value


def counted(before: dict[str, Value], after: dict[str, Value]) -> dict[str, Value]:
    """Holes for numbers that a body has changed which was followed once: how often it runs is not known."""
    changed = {name for name, value in after.items() if name in before and value != before[name]}
    return {name: HOLE for name in changed if None not in (to_int(before[name]), to_int(after[name]))}


def _commands(values: Sequence[Value | None]) -> list[tuple[str, ...]]:
    """The words of texts that all begin as one command does, to which branches add flags; none where they do not."""
    texts = [tuple(value.split()) for value in values if isinstance(value, str)]
    if len(texts) != len(values):
        return []
    beginnings = {words[:_COMMAND_WORDS] for words in texts}
    return texts if len(beginnings) == 1 and len(beginnings.pop()) == _COMMAND_WORDS else []


def _joined_words(lists: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The words that all lists begin with, then what may follow with holes for its values."""
    length = 0
    while all(len(words) > length for words in lists) and len({words[length] for words in lists}) == 1:
        length += 1
    doubtful: list[str] = []
    for words in lists:
        doubtful.extend(_doubtful(words[length:]))
    return (*lists[0][:length], *dict.fromkeys(doubtful))


def _doubtful(words: Sequence[str]) -> list[str]:
    """Flags and keys of words that may be there or not, their values replaced by holes."""
    found: list[str] = []
    for word in words:
        if word.startswith("--") and "=" not in word:
            found.append(f"{word}={HOLE}")
        elif "=" in word:
            found.append(f"{word.split('=', 1)[0]}={HOLE}")
        elif HOLE in word:
            found.append(word)
    return found
