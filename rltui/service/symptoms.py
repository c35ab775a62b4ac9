"""The word for what a live run suffers from, out of what was read for its row of the list: it asks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.run_words import RunPicture, symptoms_of
from rltui.service.run_picture import steps_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltui.watch.snapshots import RunSummary


def symptom_word(run: RunSummary, lines: Sequence[Mapping[str, float]], now: float) -> str:
    """One word for ``run``; empty where it is well, does not train, or nobody can tell.

    Args:
        run: A live run; a fault of its cards stands in it already, and comes before what its numbers say.
        lines: The numbers of its newest steps by canonical name, oldest first.
        now: The time by the clock of its cluster, epoch seconds.
    """
    if run.symptom or run.state != "running" or run.no_step_s:
        return run.symptom
    found = symptoms_of(RunPicture(now=now, stage=run.stage, steps=steps_of(lines)))
    return found[0].word if found else ""
