"""All causes and signs, and the table by which the scan finds candidates."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from rltui.diagnose import catalog, wordings
from rltui.diagnose.signs import anchor_words, key_words

if TYPE_CHECKING:
    from rltui.diagnose.causes import Cause
    from rltui.diagnose.signs import Sign

CAUSES: dict[str, Cause] = {cause.id: cause for cause in catalog.all_causes()}
SIGNS: tuple[Sign, ...] = wordings.all_signs()


class Lead(NamedTuple):
    """A sign, and the words that a line must have for it to be possible."""

    sign: Sign
    needed: frozenset[bytes]


@cache
def leads_by_word() -> dict[bytes, tuple[Lead, ...]]:
    """Return the signs that each key word may lead to."""
    table: dict[bytes, list[Lead]] = {}
    for sign in SIGNS:
        lead = Lead(sign, frozenset(word.encode() for word in anchor_words(sign)))
        for word in key_words(sign):
            table.setdefault(word.encode(), []).append(lead)
    return {word: tuple(leads) for word, leads in table.items()}
