"""What rewards judge, and how they find an answer in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from trainers.data.prompts import Prompt

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")
_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Answer:
    """One sample to be rewarded.

    Attributes:
        prompt: What was asked.
        text: What was answered.
        stopped: Whether the answer ended by itself, not by the length limit.
    """

    prompt: Prompt
    text: str
    stopped: bool


class Reward(Protocol):
    """A reward function; from 0 to 1 except where a remote one says otherwise. It may be called from any thread."""

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The reward of each of ``answers``, in their order."""

    def close(self) -> None:
        """End the processes and threads that it started."""


def boxed(text: str) -> str | None:
    r"""What stands in the last ``\boxed{…}`` of ``text``, braces counted; None where there is none that ends."""
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    depth, first = 0, text.index("{", start)
    for place in range(first, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return text[first + 1 : place].strip()
    return None


def last_number(text: str) -> str | None:
    """The last number of ``text``, or fraction, without thousands separators; None where there is none."""
    found = _NUMBER.findall(text)
    return found[-1].replace(",", "") if found else None


def same_number(one: str, other: str) -> bool:
    """Whether both are plain decimal numbers of one value."""
    try:
        return Decimal(plain_number(one)) == Decimal(plain_number(other))
    except InvalidOperation:
        return False


def plain_number(number: str) -> str:
    """``number`` without dollar sign and thousands separators; any other comma is between two numbers."""
    bare = number.strip(" $")
    return bare.replace(",", "") if _THOUSANDS.fullmatch(bare) else bare


def code_of(text: str) -> str:
    """The last fenced block of Python in ``text``, or all of it where nothing is fenced."""
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else text
