"""What can be chosen from a list: data only, for views and screens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

Choice = TypeVar("Choice")


class PickItem(NamedTuple):
    """One line to choose.

    Attributes:
        id: What comes back when it is chosen.
        label: What it is called.
        detail: What else is worth knowing.
        off: Why it cannot be chosen; empty where it can.
        key: The key that does the same without the list.
        urgent: Whether its detail is worth a look.
    """

    id: str
    label: str
    detail: str = ""
    off: str = ""
    key: str = ""
    urgent: bool = False


def fits(text: str, words: str) -> bool:
    """Whether every one of ``words`` occurs in ``text``, whatever their case."""
    text = text.lower()
    return all(word in text for word in words.lower().split())


def after(choices: Sequence[Choice], now: Choice, step: int = 1) -> Choice:
    """The choice ``step`` behind ``now``, behind the last one the first; of one that is gone, that behind the first."""
    return choices[((choices.index(now) if now in choices else 0) + step) % len(choices)]
