"""How a user's word becomes a run."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.errors import UsageError
from rltui.watch.snapshots import RunSummary


def find_run(runs: Sequence[RunSummary], word: str) -> RunSummary:
    """The run among ``runs`` (newest first) that ``word`` names: its id, a unique prefix, or a layout's name.

    A colleague's is meant only where none of the user's own is.

    Raises:
        UsageError: No run, or more than one, is meant.
    """
    matches = _matches([run for run in runs if not run.owner], word) or _matches(runs, word)
    if len(matches) == 1:
        return matches[0]
    if not matches:
        hint = "`rltui ps` lists the runs." if runs else "There are no runs yet: rltui launch local/grpo-tiny"
        raise UsageError(f"No run is called {word[:80]!r}.", hint)
    raise UsageError(f"{word[:80]!r} could be {', '.join(run.run_id for run in matches[:5])}.", "Write more of the id.")


def _matches(runs: Sequence[RunSummary], word: str) -> list[RunSummary]:
    exact = [run for run in runs if run.run_id == word] or [run for run in runs if run.name == word][:1]
    return exact or [run for run in runs if word and run.run_id.startswith(word)]
