"""What a live run suffers from: one word for its row of the list, and, on its node, warnings of silent failures."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.diagnose.recent import Recent, RunPicture
from rltui.diagnose.run_words import symptoms_of
from rltui.diagnose.silent_rules import silent_symptoms
from rltui.onnode import rundir
from rltui.onnode.symptom_watch import NICENESS
from rltui.onnode.tell_once import tell_of
from rltui.service.run_picture import FIRST_BYTES, METRICS_BYTES, first_and_newest, gpus_at_work, steps_of
from rltui.watch.lines import parse_object

if TYPE_CHECKING:
    from rltui.watch.runs import RunsReader
    from rltui.watch.snapshots import RunSummary


def symptom_word(run: RunSummary, reader: RunsReader, *, with_gpus: bool = True) -> str:
    """One word for ``run``, with the GPU that it is of; empty where it is well, does not train, or nobody can tell.

    Args:
        run: A live run; a fault of its cards or a process that is stopped stands in it already, and comes before what
            its numbers say.
        reader: Who read it, with the numbers of its newest steps, by the clock of its cluster.
        with_gpus: Whether there is time to ask the cluster for what its GPUs do.

    Raises:
        ClusterError: The cluster went away.
    """
    if run.symptom or run.state != "running" or run.no_step_s:
        return run.symptom
    gpus = gpus_at_work(reader.sampler_ends(run), run, reader.taken_at) if with_gpus else ()
    steps = steps_of(reader.recent(run))
    found = symptoms_of(RunPicture(now=reader.taken_at, stage=run.stage, steps=steps, gpus=gpus))
    return found[0].in_a_list if found else ""


def warn_of(attempt: Path) -> list[str]:
    """Write what goes wrong silently with the attempt into its events, each once, and tell people once a run.

    Returns:
        The causes that are new.
    """
    found = silent_symptoms(_recent(attempt / rundir.METRICS))
    said = _warned(attempt)
    new = [one for one in found if one.cause not in said]
    told = {cause for other in attempt.parent.iterdir() if other != attempt for cause in _warned(other)} if new else ()
    for one in new:
        words = f"{one.word}: {one.sentence}"
        rundir.log_event(str(attempt), rundir.SYMPTOM, words, cause=one.cause)
        if one.cause not in told:
            tell_of(str(attempt), "warned", words=words, about=one.cause)
    return [one.cause for one in new]


def _recent(metrics: Path) -> Recent:
    with metrics.open("rb") as stream:
        first = stream.read(FIRST_BYTES)
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - METRICS_BYTES))
        early, newest = first_and_newest(first, stream.read(METRICS_BYTES))
    return Recent(first=early, steps=newest)


def _warned(attempt: Path) -> set[str]:
    """The causes of which the attempt's events warn."""
    try:
        lines = (attempt / rundir.EVENTS).read_bytes().splitlines()
    except OSError:
        return set()
    events = [event for line in lines if (event := parse_object(line)) is not None]
    return {str(event.get("cause")) for event in events if event.get("kind") == rundir.SYMPTOM}


if __name__ == "__main__":
    os.nice(NICENESS)
    warn_of(Path(sys.argv[1]))
