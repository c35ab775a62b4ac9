"""A job that Slurm starts again keeps away from the nodes that it lost, by its own doing: no rltui has to be there.

Slurm gives a job the same node again as soon as that answers, and what rebooted under a job once often does so twice.
The list of excluded nodes can be changed while a job waits, and it counts as waiting already in the seconds that Slurm
leaves it after the loss (seen on 22.05). So the driver that outlives the node does it; where the driver was on that
node, the next start does it if it finds itself there.
"""

import os
import signal
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence

from rltui.onnode import node_evidence, rundir
from rltui.onnode.allocation import REQUEUE, Allocation, ask, hostnames, requeue, shown

FREE = frozenset({"idle"})
USABLE = FREE | {"mixed", "allocated", "completing", "planned"}

KEPT_AWAY = "kept_away"
"""Key of ``end.json``: the nodes that the job's next starts keep away from."""

ELSEWHERE = "elsewhere"
"""Key of ``end.json``: this start made room for one on other nodes. A job does so once, lest it go round in circles."""


class Group(NamedTuple):
    """Nodes that are given together: those of a component of a het job, or all of a job."""

    nodes: Sequence[str]
    partition: str


def groups(allocation: Allocation, environment: Mapping[str, str]) -> List[Group]:
    """What the job's nodes were taken from."""
    partition = environment.get("SLURM_JOB_PARTITION", "")
    of_parts = [
        Group(part.nodes, environment.get("SLURM_JOB_PARTITION_HET_GROUP_%d" % number, partition))
        for number, part in enumerate(allocation.parts)
    ]
    return of_parts or [Group(allocation.nodes, partition)]


def why_not(group: Group, lost: Sequence[str], excluded: Sequence[str], listing: str, at_once: bool = False) -> str:
    """Why ``group`` cannot do without the nodes ``lost``, as too few like them would be left; empty: it can.

    Args:
        group: Where they were.
        lost: Some of its nodes.
        excluded: What the job keeps away from already.
        listing: sinfo's answer, ``node|state|gres|features`` a line.
        at_once: Whether others have to be free right now.
    """
    rows = [line.split("|") for line in listing.splitlines() if line.count("|") == 3]
    kinds = {tuple(row[2:]) for row in rows if row[0] in lost}
    out, states = {*lost, *excluded}, FREE if at_once else USABLE
    # a star, which says that a node does not answer, stays
    alike = [row for row in rows if row[0] not in out and tuple(row[2:]) in kinds]
    left = {row[0] for row in alike if row[1].rstrip("~#!%$@^-+") in states}
    needed = len(lost) if at_once else len(group.nodes)
    if len(left) >= needed:
        return ""
    return "%d other nodes like it are %s, %d are needed" % (len(left), "free" if at_once else "left", needed)


def keep_away(attempt: str, allocation: Allocation, blamed: Dict[str, str]) -> List[str]:
    """Let a job that was queued again keep away from nodes that it lost; what came of it is an event of the attempt.

    Args:
        attempt: The directory of the attempt that was on them.
        allocation: What it had.
        blamed: ``bad_nodes`` of its end; only what Slurm lost counts, and not where that was most of the job's nodes.

    Returns:
        The nodes that are left out now; none where too few would be left, or Slurm says no.
    """
    lost = [one.node for one in node_evidence.from_losses(blamed, allocation.nodes)]
    if not lost:
        return []
    names, job = ", ".join(lost), str(allocation.job_id)
    as_shown = shown(job)
    trouble = problem(allocation, lost, as_shown)
    if not trouble:
        # scontrol replaces the list, it does not add to it
        left_out = ",".join([*_excluded(as_shown), *lost])
        told = ask(["scontrol", "update", "JobId=%s" % job, "ExcNodeList=%s" % left_out])
        trouble = "Slurm does not change job %s" % job if told is None else ""
    if trouble:
        rundir.log_event(attempt, "warning", "the job may get %s again: %s" % (names, trouble))
        return []
    rundir.log_event(attempt, "excluded", "job %s, which Slurm starts again, keeps away from %s" % (job, names))
    return lost


def problem(allocation: Allocation, lost: Sequence[str], job: str, at_once: bool = False) -> str:
    """Why ``job``, as scontrol shows it, cannot do without its nodes ``lost``, so far as it shows; see ``why_not``."""
    if os.environ.get("SLURM_JOB_RESERVATION"):
        return "it is in a reservation"
    if not job:
        return "Slurm does not answer"
    if " ReqNodeList=(null)" not in job:
        return "it asks for nodes by name"
    for group in groups(allocation, os.environ):
        mine = [node for node in lost if node in group.nodes]
        if mine:
            argv = ["sinfo", "--noheader", "--Node", "--partition=%s" % group.partition, "--format=%N|%T|%G|%f"]
            trouble = why_not(group, mine, _excluded(job), ask(argv) or "", at_once)
            if trouble:
                return trouble
    return ""


def _excluded(job: str) -> List[str]:
    """The nodes that a job keeps away from, from what scontrol shows of it."""
    folded = [word[12:] for word in job.split() if word.startswith("ExcNodeList=")]
    return hostnames(folded[0]) if folded and folded[0] != "(null)" else []


def lost_before(attempt: str, job_id: int, nodes: Sequence[str]) -> Dict[str, str]:
    """Those of ``nodes`` that earlier starts of the job lost, with the reasons; none where one has made room before."""
    found: Dict[str, str] = {}
    for end in _ends_of(attempt, job_id):
        if end.get(ELSEWHERE):
            return {}
        found.update({node: why for node, why in (end.get("bad_nodes") or {}).items() if node in nodes})
    return {node: why for node, why in found.items() if why.startswith(node_evidence.NODE_FAILURE)}


def _ends_of(attempt: str, job_id: int) -> Iterator[Dict[str, Any]]:
    folder = os.path.dirname(attempt)
    for name in sorted(os.listdir(folder)):
        record = rundir.read_json(os.path.join(folder, name, rundir.SLURM)) or {}
        if record.get("job_id") == job_id and name != os.path.basename(attempt):
            yield rundir.read_json(os.path.join(folder, name, rundir.END)) or {}


def makes_room(attempt: str, allocation: Allocation) -> bool:
    """Whether this start, which got a node again that the job lost before, has had Slurm start the job elsewhere.

    Only where others are free: a queue of hours is worse than a node that has come back.

    Args:
        attempt: The directory of this start.
        allocation: What it has.
    """
    lost = lost_before(attempt, allocation.job_id, allocation.nodes)
    if not lost or problem(allocation, list(lost), shown(str(allocation.job_id)), at_once=True):
        return False
    # it comes to all processes of the job, those that finish this too
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not requeue(str(allocation.job_id)):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        return False
    words = "it had got %s again, which the job had lost before; Slurm starts it once more" % ", ".join(lost)
    record = {"schema": rundir.SCHEMA, "job_id": allocation.job_id, "restart": allocation.restart}
    rundir.write_json(os.path.join(attempt, rundir.SLURM), {**record, "nodes": allocation.nodes})
    kept_away = {KEPT_AWAY: keep_away(attempt, allocation, lost), ELSEWHERE: True}
    rundir.write_end(attempt, "lost", None, words, slurm=REQUEUE, **kept_away)
    return True
