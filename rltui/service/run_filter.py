"""The words that pick runs of a list: behind ``/`` of the cockpit, ``--where`` of the shell, or kept under a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rltui.cluster.plain_text import plain
from rltui.errors import RltuiError, UsageError
from rltui.paths import keep, kept_text
from rltui.watch.log_times import span_s
from rltui.watch.snapshots import RunSummary

WORDS = "words, state:failed, algo:grpo, cluster:hpc, owner:bob, name:x, why:oom, since:2h, before:30d, @saved"


def latest(summary: RunSummary) -> float:
    """When something last became of a run: its end, else its beginning."""
    return max(summary.created_at, summary.end.at if summary.end is not None else 0.0)


def _fields(summary: RunSummary) -> dict[str, str]:
    return {
        "state": summary.state,
        "algo": summary.algorithm,
        "cluster": summary.cluster,
        "owner": summary.owner,
        "name": summary.name,
        "why": summary.failure or summary.symptom,
    }


def known_words(runs: Iterable[RunSummary]) -> list[str]:
    """Words of a filter that some of ``runs`` fit, such as ``state:failed``, and those that take a span of time."""
    found = {f"{name}:{value}" for run in runs for name, value in _fields(run).items() if value and " " not in value}
    return [*sorted(found), "since:", "before:"]


def matches(summary: RunSummary, query: str, now: float = 0.0) -> bool:
    """Whether a run fits a filter: every word must occur in it; ``state:``, ``algo:``, ``cluster:`` … name a field.

    Args:
        summary: The run.
        query: The filter; ``since:2h`` keeps runs that began or ended in these two hours, ``before:30d`` the others of
            30 days. A span that is not yet one keeps all: filters are typed letter by letter.
        now: Epoch seconds, for ``since:`` and ``before:``.
    """
    fields = _fields(summary)
    everything = " ".join([summary.run_id, *fields.values()]).lower()
    for word in query.lower().split():
        name, colon, value = word.partition(":")
        if colon and name in ("since", "before"):
            within_s = span_s(value)
            if within_s is not None and (latest(summary) < now - within_s) != (name == "before"):
                return False
        elif colon and name in fields:
            if value not in fields[name].lower():
                return False
        elif word not in everything:
            return False
    return True


def picked(runs: Sequence[RunSummary], query: str, now: float) -> list[RunSummary]:
    """Runs that fit a filter which is meant as it stands.

    Raises:
        UsageError: It has no word, or one that names nothing, or a time or a saved filter that is none: it would pick
            more than was meant.
    """
    saved = saved_filters()
    query = expanded(query, saved)
    words = query.lower().split()
    if not words:
        raise UsageError("--where has no word: it would pick every run.", f"It takes {WORDS}.")
    for word in words:
        if word.startswith("@"):
            raise unknown_filter(word[1:], saved)
        name, _, value = word.partition(":")
        if name in ("since", "before") and span_s(value) is None:
            raise UsageError(f"--where {word[:60]}: that is no time.", "Write 90m, 2h, 3d or 1w.")
        if word.endswith(":"):
            raise UsageError(f"--where {word[:60]} names nothing: it would pick every run.", f"It takes {WORDS}.")
    return [run for run in runs if matches(run, query, now)]


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
