"""Overrides as they are typed: their form, and how a newer one takes the place of an older. Pure functions."""

from __future__ import annotations

import shlex

from rltui.tui.commands import Completion, extend


def with_override(overrides: tuple[str, ...], new: str) -> tuple[str, ...]:
    """``overrides`` with ``new`` at the end; an older one of the same key goes."""
    key = new.partition("=")[0].strip()
    return (*(old for old in overrides if old.partition("=")[0].strip() != key), new)


def override_problem(text: str) -> str:
    """What is wrong with the form of an override, or an empty string; values are judged by the check."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        return "an override is key.path=value, such as train.steps=100"
    return "" if value.strip() else f"{key.strip()} has no value"


def script_words(text: str) -> tuple[tuple[str, ...], str]:
    """What stands behind a script, as words, and what is wrong with its form; the words are judged by the check."""
    try:
        return tuple(shlex.split(text)), ""
    except ValueError as error:
        return (), f"the words cannot be read: {error}"


def keys_that_fit(text: str) -> list[str]:
    """Keys of a layout that the last part of a dotted key may become."""
    from rltui.layout.convert import known_keys
    from rltui.layout.schema import Layout

    section, _, last = text.rpartition(".")
    path = tuple(section.split(".")) if section else ()
    return [name for name in known_keys(Layout, path) if name.startswith(last)]


def complete_override(text: str) -> Completion:
    """``text`` with the key of its last word made longer as far as it is certain; values are left alone."""
    before, space, word = text.rpartition(" ")
    if "=" in word:
        return Completion("", text)
    section, dot, last = word.rpartition(".")
    keys = keys_that_fit(word)
    ends = "." if len(keys) == 1 and keys_that_fit(f"{section}{dot}{keys[0]}.") else "="
    return extend(last, keys, ends, f"{before}{space}{section}{dot}")
