"""Which node failed under a job that Slurm ended for it: its records name all nodes of the job, not that one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from rltui.cluster.relay_types import FileRange, RelayError
from rltui.errors import ClusterError
from rltui.onnode import rundir
from rltui.onnode.lost_nodes import LOG, TAIL_BYTES, host_of, is_sampler_file, lost
from rltui.service.bad_nodes import record_lost

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.facts import NodeFacts
    from rltui.cluster.jobs import JobSnapshot
    from rltui.cluster.relay_client import RelayClient
    from rltui.watch.snapshots import RunSummary

NODE_FAIL = "NODE_FAIL"

SETTLED_S = 60.0
"""How long after a job's end the last words of its nodes may still come in over a shared file system."""

GONE = frozenset({"down", "error", "fail", "failing"})
GONE_FLAGS = frozenset({"not_responding", "fail", "down"})


def with_failed_nodes(
    client: RelayClient, found: dict[str, tuple[str, ...]], run: RunSummary, job: JobSnapshot, now: float
) -> JobSnapshot:
    """``job`` with the nodes that failed under it, where it ended for that and evidence names them.

    Args:
        client: The relay of the run's cluster.
        found: What was found before, by the attempt's directory; what is found now comes into it.
        run: The run, at the attempt of that job.
        job: The scheduler's word on it.
        now: The cluster's clock, epoch seconds.
    """
    if job.word != NODE_FAIL:
        return job
    attempt = rundir.attempt_folder(run.path, run.attempt)
    known = found.get(attempt)
    if known is None:
        known = lost_nodes(client, attempt, job.nodes)
        settled = now - job.ended_at > SETTLED_S
        if settled and not known:
            known = _down_now(client, job.nodes)
        if settled or known:
            found[attempt] = known
        record_lost(client, run, structs.replace(job, failed_nodes=known))
    return structs.replace(job, failed_nodes=known)


def lost_nodes(client: RelayClient, attempt: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Those of the job's ``nodes`` that were lost, by the attempt's files; empty where they do not tell."""
    try:
        names = [entry.name for entry in client.list(attempt) if is_sampler_file(entry.name)]
        ranges = [FileRange(f"{attempt}/{name}", None, TAIL_BYTES) for name in (LOG, *names)]
        log, *answers = (b"" if isinstance(one, RelayError) else one.data for one in client.read_many(ranges))
    except ClusterError:
        return ()
    return tuple(lost(log.decode("utf-8", "replace"), dict(zip(map(host_of, names), answers, strict=True)), nodes))


def down_among(nodes: Sequence[str], facts: Sequence[NodeFacts]) -> tuple[str, ...]:
    """Those of a job's ``nodes`` that are down, or do not answer Slurm; none where all are, as in a maintenance."""
    down = {one.name for one in facts if one.state in GONE or GONE_FLAGS.intersection(one.flags)}
    found = tuple(node for node in nodes if node in down)
    return found if len(found) < len(nodes) or len(nodes) == 1 else ()


def _down_now(client: RelayClient, nodes: Sequence[str]) -> tuple[str, ...]:
    from rltui.cluster.gather_facts import gather_facts

    try:
        return down_among(nodes, gather_facts(client).nodes)
    except ClusterError:
        return ()
