"""What an attempt has to say against its nodes, for the cluster's memory of bad ones: hardware and vanished nodes.

What every node complains of is nobody's fault but the job's own: a python without torch, a full shared disk.
"""

import contextlib
import json
import os
import re
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Sequence

from rltui.onnode import bad_nodes, rundir, xids

NODE_FAILURE = "node failure"
"""First words of the reasons in ``end.json`` for nodes that Slurm lost."""

OTHER_ENVIRONMENT = "another environment"
"""First words of what ``node_report`` says of a node whose versions are not those of most."""

TAIL_BYTES = 1 << 22

_GPU_LOST = re.compile(r"(?i)GPU.{0,80}(?:is lost|\boff the bus|unknown error)|unable to determine the device handle")
_GPU_MEMORY = re.compile(r"(?i)row remapping is pending")


class Spoken(NamedTuple):
    """Evidence against a node: its name, a reason of ``bad_nodes.TIME_TO_LIVE_S``, and the words."""

    node: str
    reason: str
    words: str


def evidence_in(attempt: str, nodes: Sequence[str], blamed: Mapping[str, str]) -> List[Spoken]:
    """All evidence against the ``nodes`` of an attempt, by its files.

    Args:
        attempt: Its directory.
        nodes: The job's nodes, as the scheduler calls them.
        blamed: ``bad_nodes`` of its end: the reason by node.
    """
    checked = (rundir.read_json(os.path.join(attempt, rundir.PREFLIGHT)) or {}).get("nodes", {})
    found = [*_from_xids(attempt, nodes), *from_check(checked), *from_losses(blamed, nodes)]
    return list({(one.node, one.reason): one for one in reversed(found)}.values())[::-1]


def remember(attempt: str, nodes: Sequence[str], blamed: Mapping[str, str], now_s: float) -> None:
    """Write that evidence into the memory of the run root; one that cannot be written costs the attempt nothing."""
    run = rundir.run_of(attempt)
    root, number = os.path.dirname(run), os.path.basename(attempt)
    for one in evidence_in(attempt, nodes, blamed):
        with contextlib.suppress(OSError, ValueError):
            bad_nodes.record(root, one.node, one.reason, one.words, os.path.basename(run), int(number), now_s)


def from_losses(blamed: Mapping[str, str], nodes: Sequence[str]) -> List[Spoken]:
    """Nodes that Slurm lost; none where it lost most of a job's, as in a maintenance or a power cut."""
    lost = [node for node, reason in blamed.items() if reason.startswith(NODE_FAILURE)]
    if len(nodes) > 1 and 2 * len(lost) > len(nodes):
        return []
    return [Spoken(node, "node-lost", blamed[node]) for node in lost]


def from_check(reports: Mapping[str, Mapping[str, Any]]) -> List[Spoken]:
    """What the check before the start found wrong with single nodes: broken GPUs, or what most others have right."""
    said = {node: [str(one) for one in report.get("problems", ())] for node, report in reports.items()}
    found = []
    for node, problems in said.items():
        for problem in problems:
            reason = _reason(problem, node, said)
            if reason:
                found.append(Spoken(node, reason, problem))
    return found


def _reason(problem: str, node: str, said: Dict[str, List[str]]) -> str:
    if _GPU_LOST.search(problem):
        return "gpu-lost"
    if _GPU_MEMORY.search(problem):
        return "ecc"
    same = sum(any(_alike(problem, node) == _alike(one, other) for one in said[other]) for other in said)
    if problem.startswith(OTHER_ENVIRONMENT):
        same += 1  # of two that differ nobody can say which is odd
    return "node-check" if len(said) > 1 and 2 * same <= len(said) else ""


def _alike(problem: str, node: str) -> str:
    """``problem`` without what differs from node to node where the trouble is the same."""
    own = r"(?<![\w-])%s(?![\w-])" % re.escape(node)
    return re.sub(r"\d+(?:\.\d+)?", "#", re.sub(own, "<node>", problem))


def _from_xids(attempt: str, nodes: Sequence[str]) -> Iterator[Spoken]:
    by_host = {node.split(".")[0]: node for node in nodes}
    for line in rundir.read_tail(os.path.join(attempt, rundir.EVENTS), limit=TAIL_BYTES).split("\n"):
        if '"xid"' not in line:
            continue
        with contextlib.suppress(ValueError, AttributeError):
            event = json.loads(line)
            text, host = str(event.get("text", "")), str(event.get("host", ""))
            reason = xids.hardware_reason(text) if event.get("kind") == "xid" else ""
            if reason and host in by_host:
                yield Spoken(by_host[host], reason, text)
