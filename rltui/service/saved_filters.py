"""Filters of the list of runs that the user gave a name, kept for every later start of cockpit and shell."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rltui.cluster.plain_text import plain
from rltui.errors import RltuiError, UsageError
from rltui.service.kept import keep, kept_text

KEPT_IN = "filters"
"""File of the state directory: a line each, its name and then its words."""
ORDERS = ("save", "drop")
"""What is said before a name, so that no filter can be called so."""

_NAME = re.compile(r"[A-Za-z][\w.-]{0,39}\Z", re.ASCII)


def saved_filters() -> dict[str, str]:
    """Name → words, by name."""
    lines = (line.partition(" ") for line in kept_text(KEPT_IN).splitlines())
    return dict(sorted((name, plain(words)) for name, _, words in lines if _NAME.match(name) and words.strip()))


def save_filter(name: str, words: str) -> None:
    """Keep ``words`` under ``name``, in place of what it stood for.

    Raises:
        UsageError: It cannot be called so, or there are no words.
        RltuiError: It could not be written.
    """
    if not _NAME.match(name) or name in ORDERS:
        raise UsageError(f"{name[:40]!r} is no name for a filter.", "Begin with a letter; letters, digits, . - _")
    known = saved_filters()
    told = " ".join(expanded(words, known).split())
    if not told:
        raise UsageError("There is no filter to save.", "Type one behind / first.")
    _write(known | {name: told})


def drop_filter(name: str) -> None:
    """Forget a filter.

    Raises:
        UsageError: None is called so.
        RltuiError: It could not be written.
    """
    known = saved_filters()
    if name not in known:
        raise unknown_filter(name, known)
    _write({one: words for one, words in known.items() if one != name})


def unknown_filter(name: str, known: Mapping[str, str]) -> UsageError:
    """The error of a name that no filter has."""
    hint = f"There are @{', @'.join(known)}." if known else "In the cockpit, `:filter save NAME` saves what / shows."
    return UsageError(f"There is no saved filter {name[:40]!r}.", hint)


def expanded(query: str, known: Mapping[str, str], *, half_typed: bool = False) -> str:
    """``query`` with the words of each filter that it names as ``@name``; a name that is not there stays.

    Args:
        query: The filter.
        known: Name → words.
        half_typed: Whether it is being typed: the beginning of a name asks for nothing yet.
    """
    if "@" not in query:
        return query
    words = (known.get(word[1:], word) if word.startswith("@") else word for word in query.split())
    begun = tuple(f"@{name}" for name in known) if half_typed else ()
    return " ".join(word for word in words if not (word.startswith("@") and any(one.startswith(word) for one in begun)))


def _write(filters: Mapping[str, str]) -> None:
    problem = keep(KEPT_IN, "".join(f"{name} {words}\n" for name, words in filters.items()))
    if problem:
        raise RltuiError(problem)
