"""A run's earlier attempts: as a row of their own, and how each ended."""

from __future__ import annotations

from msgspec import Struct, structs

from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.watch.lines import decode
from rltui.watch.run_facts import ATTEMPT_FILES, run_facts, summarise
from rltui.watch.snapshots import RunSummary


class Ending(Struct, frozen=True):
    """How one attempt ended (``end.json``)."""

    outcome: str = ""
    reason: str = ""
    bad_nodes: dict[str, str] = {}
    """Why, by the name of each node that was to blame."""
    kept_away: tuple[str, ...] = ()
    """Of these nodes those that Slurm's next start of the job keeps away from already."""
    attempt: int = 0


def at_attempt(client: RelayClient, run: RunSummary, number: int) -> RunSummary:
    """``run`` as it stood at the end of one of its attempts.

    Raises:
        UsageError: It has no such attempt.
    """
    if number == run.attempt:
        return run
    folder = rundir.attempt_folder("", number)[1:]
    found = client.collect(run.path, [rundir.RUN, *(f"{folder}/{name}" for name in ATTEMPT_FILES)])
    facts = run_facts(run.run_id, {file.path: file.text for file in found if file.text is not None})
    if facts is None or facts.newest.number != number:
        raise UsageError(f"{run.run_id} has no attempt {number}.", f"It has 1 to {run.last_attempt}.")
    row = summarise(facts, run.path, None)
    return structs.replace(
        row, cluster=run.cluster, through=run.through, owner=run.owner, last_attempt=run.last_attempt
    )


def endings(client: RelayClient, run: RunSummary) -> list[Ending]:
    """How each attempt of ``run`` before the newest ended, oldest first; the newest too where its job waits again."""
    waits_again = run.end is None and run.job is not None and run.job.restarts > (run.job_restart or 0)
    if run.last_attempt < 2 and not waits_again:
        return []
    found = []
    for file in client.collect(run.path, [f"{rundir.ATTEMPTS}/*/{rundir.END}"], 1 << 16):
        number, end = file.path.split("/")[1], decode(file.text or "", Ending)
        if end is not None and number.isdigit() and int(number) < run.attempt + waits_again:
            found.append(structs.replace(end, attempt=int(number)))
    return sorted(found, key=lambda end: end.attempt)
