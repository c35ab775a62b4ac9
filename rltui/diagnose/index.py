"""All causes and signs, and the table by which the scan finds candidates."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rltui.diagnose import catalog, wordings
from rltui.diagnose.signs import key_words

if TYPE_CHECKING:
    from rltui.diagnose.causes import Cause
    from rltui.diagnose.signs import Sign

CAUSES: dict[str, Cause] = {cause.id: cause for cause in catalog.all_causes()}
SIGNS: tuple[Sign, ...] = wordings.all_signs()


@cache
def signs_by_word() -> dict[bytes, tuple[Sign, ...]]:
    """Return the signs that each key word may lead to."""
    table: dict[bytes, list[Sign]] = {}
    for sign in SIGNS:
        for word in key_words(sign):
            table.setdefault(word.encode(), []).append(sign)
    return {word: tuple(signs) for word, signs in table.items()}
