"""The cluster's memory of bad nodes, through the relay: shown, offered to be left out, forgotten, reported."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.check.findings import Finding
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.onnode import bad_nodes
from rltui.onnode.bad_nodes import BadNode, Evidence
from rltui.onnode.node_evidence import NODE_FAILURE, from_losses
from rltui.runs.claims import if_there
from rltui.service.eligible import dispensable

if TYPE_CHECKING:
    from rltui.cluster.cluster import Cluster
    from rltui.cluster.jobs import JobSnapshot
    from rltui.cluster.relay_client import RelayClient
    from rltui.diagnose.recent import Symptom
    from rltui.runs.script_job import Work
    from rltui.watch.snapshots import RunSummary

CODE = "NODES"
"""Code of the finding that offers to leave nodes out."""

REASONS = {
    "gpu-lost": "a GPU was lost",
    "ecc": "GPU memory gave errors",
    "xid": "a GPU reported a hardware fault",
    "node-lost": "the node was lost under a job",
    "node-check": "the check before the start found it unfit",
    "straggler": "slower than its peers in several attempts",
}
"""What a reason of ``bad_nodes.TIME_TO_LIVE_S`` means."""

MOST_NAMED = 4


def remembered(client: RelayClient, run_root: str) -> tuple[BadNode, ...]:
    """The nodes that are bad now by the cluster's clock, those with the newest evidence first.

    Raises:
        ClusterError: The cluster cannot be reached, or the file not be read.
    """
    text = if_there(lambda: client.tail(f"{run_root}/{bad_nodes.FILE}", 8 * bad_nodes.MOST_BYTES).data)
    if text is None:
        return ()
    return tuple(bad_nodes.merged(text.decode("utf-8", "replace").split("\n"), client.hello().time))


def record(client: RelayClient, run_root: str, node: str, spoken: Evidence) -> None:
    """Write evidence against a node down; see ``bad_nodes.record``.

    Raises:
        ClusterError: It could not be written.
    """
    fields = {**spoken._asdict(), "run_root": run_root, "node": node, "now_s": spoken.at}
    del fields["at"]
    _do(client, "record", fields)


def forget(client: RelayClient, run_root: str, node: str) -> BadNode:
    """Let nothing that is known of ``node`` count any more; what was known comes back.

    Raises:
        UsageError: Nothing is known against it.
        ClusterError: It could not be written.
    """
    known = _known(remembered(client, run_root), node)
    _do(client, "forget", {"run_root": run_root, "node": node})
    return known


def record_lost(client: RelayClient, run: RunSummary, job: JobSnapshot) -> None:
    """Remember the nodes that Slurm lost under a ``job`` whose driver may not have lived to say so itself."""
    blamed = dict.fromkeys(job.failed_nodes, NODE_FAILURE)
    for one in from_losses(blamed, job.nodes):
        evidence = Evidence(one.reason, f"{one.words} under job {job.job_id}", run.run_id, run.attempt, job.ended_at)
        with suppress(RltuiError):  # the job's end names them all the same
            record(client, posixpath.dirname(run.path), one.node, evidence)


def record_slow(cluster: Cluster, run: RunSummary, symptoms: Sequence[Symptom]) -> None:
    """Remember the node that holds up a live ``run``; it counts from the third attempt on that says so.

    Only of a job with several nodes, where others do the same work: alone it may be the run's own doing.
    """
    nodes = run.job.nodes if run.job is not None and not run.through else ()
    for one in symptoms:
        if one.node in nodes and len(nodes) > 1:
            client = cluster.client
            spoken = Evidence("straggler", one.sentence, run.run_id, run.attempt, client.hello().time)
            with suppress(RltuiError):  # the verdict names it all the same
                record(client, posixpath.dirname(run.path), one.node, spoken)


def offers(cluster: Cluster, work: Work, *, resubmit: str = "") -> tuple[Finding, ...]:
    """The warning that bad nodes may be used by ``work``, with the words that leave them out; none where none may.

    A cluster that is away, or whose memory cannot be read, has nothing to offer.

    Args:
        cluster: Where it is to run.
        work: What is to run; the nodes that it keeps away from already are no matter.
        resubmit: The run that would be resubmitted; empty: it is launched.
    """
    if cluster.profile.scheduler != "slurm":
        return ()
    try:
        known = remembered(cluster.client, cluster.run_root)
    except ClusterError:
        return ()
    from rltui.runs.script import excluded_nodes

    out = excluded_nodes(work, cluster.profile)
    bad = sorted((one for one in known if one.node not in out), key=lambda one: -one.count)
    if not bad:
        return ()
    return (_offer(bad, dispensable(cluster, work, [one.node for one in bad]), work.slurm.exclude, resubmit),)


def _offer(bad: Sequence[BadNode], names: Sequence[str], excluded: Sequence[str], resubmit: str) -> Finding:
    """The warning of all ``bad`` nodes, with the words that leave ``names`` of them out: without these it can start."""
    said = "; ".join(f"{one.node} ({words(one)})" for one in bad[:MOST_NAMED])
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    override = f"slurm.exclude=[{', '.join(dict.fromkeys([*excluded, *names]))}]"
    leave = " ".join(f"--exclude {name}" for name in names) if resubmit else f"'{override}'"
    rest = f"; without {'the others' if names else 'them'} too few nodes would be left" if len(names) < len(bad) else ""
    which = "them" if len(names) == len(bad) else ", ".join(names)
    message = f"the run may get nodes that are remembered as bad: {said}{more}"
    message += (f"; {leave} leaves {which} out" if names else "") + rest
    fix = (override,) if names and not resubmit else ()
    return Finding(code=CODE, severity="warning", message=message, key="slurm.exclude", fix=fix)


def words(bad: BadNode) -> str:
    """Why and until when a node is remembered: ``GPU memory gave errors, 2×, until 11-30 14:00``."""
    reasons = ", ".join(REASONS.get(reason, reason) for reason in bad.reasons)
    times = f", {bad.count}×" if bad.count > 1 else ""
    return f"{reasons}{times}, until {_when(bad.expires)[5:]}"


def report(client: RelayClient, run_root: str, cluster: str, node: str) -> str:
    """What is remembered against ``node`` of ``cluster``, for its administrators; the user sends it.

    Raises:
        UsageError: Nothing is known against it.
    """
    bad = _known(remembered(client, run_root), node)
    attempts = f"{bad.count} attempt{'s' * (bad.count != 1)} of training runs"
    lines = [
        f"Node {bad.node} of {cluster}: {', '.join(REASONS.get(reason, reason) for reason in bad.reasons)}",
        "",
        f"Evidence from {attempts}, {_when(bad.first)} to {_when(bad.last)}:",
        "",
        *(f"  {_when(one.at)}  {one.run} attempt {one.attempt}  {one.reason}: {one.evidence}" for one in bad.evidence),
        "",
        "Could you look at the node, or drain it? `dmesg` and `nvidia-smi -q` around these times may tell more.",
    ]
    return "\n".join(lines) + "\n"


def _known(bad: Sequence[BadNode], node: str) -> BadNode:
    for one in bad:
        if one.node == node:
            return one
    names = ", ".join(one.node for one in bad) or "none"
    raise UsageError(f"Nothing is remembered against {node[:60]!r}.", f"Remembered as bad: {names}.")


def _do(client: RelayClient, deed: str, fields: dict[str, object]) -> None:
    program = Path(bad_nodes.__file__).read_bytes()
    argv = ["python3", "-I", "-S", "-", deed, json.dumps(fields)]
    done = client.run(argv, stdin=program, timeout_s=30.0, idempotent=True)
    if done.rc:
        last = (done.err.strip().splitlines() or ["no word why"])[-1]
        raise ClusterError(f"The memory of bad nodes on {client.place} cannot be written: {last[:200]}.")


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
