"""The words that pick runs out of a list: in the cockpit behind ``/``, in the shell behind ``--where``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rltui.errors import UsageError
from rltui.service.saved_filters import expanded, saved_filters, unknown_filter
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
        UsageError: It has no word, or names a time or a saved filter that is none: it would pick more than was meant.
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
    return [run for run in runs if matches(run, query, now)]
