"""Which node of a job Slurm lost: by srun's words, or the times at which the samplers of its nodes fell silent."""

import os
import re
from typing import Iterable, List, Mapping, Sequence

from rltui.onnode import node_evidence, rundir

LOG = "nodes.log"
"""What the step that holds Ray on the other nodes, and srun itself, wrote."""

CLEARLY_S = 8.0
"""Samplers write once a second, and Slurm ends the others within a few: a longer lead is a node's own end."""

TAIL_BYTES = 1 << 13

_FILE = re.compile(r"gpu-(?P<host>.+)\.jsonl\Z")
_LOST = re.compile(r"Node failure on (?P<node>[\w.-]+)")
_TIME = re.compile(rb'^\{"t":(\d+(?:\.\d+)?),')


def named_by_srun(lines: Iterable[str], nodes: Sequence[str]) -> List[str]:
    """Those of ``nodes`` that Slurm lost, in the words that srun had for it before it ended the others' tasks."""
    named = {match.group("node") for match in map(_LOST.search, lines) if match}
    return [node for node in nodes if node in named]


def silent_first(last_words: Mapping[str, float]) -> List[str]:
    """The nodes that fell silent clearly before all others, as where a switch took several; none where it is not clear.

    Args:
        last_words: When each node's sampler wrote last, epoch seconds.
    """
    if not last_words:
        return []
    first = min(last_words.values())
    silent = [node for node, at in last_words.items() if at - first < CLEARLY_S]
    later = [at for node, at in last_words.items() if node not in silent]
    if not later or min(later) - max(last_words[node] for node in silent) < CLEARLY_S:
        return []
    return sorted(silent)


def sampler_file(host: str) -> str:
    """The file of an attempt that the sampler of ``host`` writes."""
    return "gpu-%s.jsonl" % host


def is_sampler_file(name: str) -> bool:
    """Whether a file of an attempt is a sampler's."""
    return _FILE.match(name) is not None


def host_of(name: str) -> str:
    """The node whose sampler wrote the file."""
    match = _FILE.match(name)
    return match.group("host") if match else ""


def last_time(tail: bytes) -> float:
    """When the last whole line of a sampler's file was written; 0 where there is none."""
    times = [_TIME.match(line) for line in tail.split(b"\n")[:-1]]
    found = [float(match.group(1)) for match in times if match]
    return found[-1] if found else 0.0


def lost_here(attempt: str, nodes: Sequence[str]) -> List[str]:
    """Those of the job's ``nodes`` that were lost, by the files of an attempt's directory."""
    try:
        names = [name for name in os.listdir(attempt) if is_sampler_file(name)]
    except OSError:
        return []
    log = rundir.read_tail(os.path.join(attempt, LOG), limit=TAIL_BYTES)
    tails = {host_of(name): rundir.read_tail(os.path.join(attempt, name), limit=TAIL_BYTES) for name in names}
    return lost(log, {host: tail.encode() for host, tail in tails.items()}, nodes)


def lost(log: str, tails: Mapping[str, bytes], nodes: Sequence[str]) -> List[str]:
    """Those of the job's ``nodes`` that were lost.

    Args:
        log: The end of the log of the other nodes' step.
        tails: The ends of the samplers' files, by host.
        nodes: All nodes of the job, as Slurm calls them, so that they can be excluded by that name.
    """
    named = named_by_srun(log.splitlines(), nodes)
    if named:
        return named
    words = {host: last_time(tail) for host, tail in tails.items()}
    silent = silent_first({host: at for host, at in words.items() if at})
    # samplers go by the short host name, Slurm by what slurm.conf calls the node
    by_host = {node.split(".")[0]: node for node in nodes}
    return [by_host.get(host, host) for host in silent]


def put_first(reason: str, bad_nodes: Mapping[str, str]) -> str:
    """``reason`` behind the names of the nodes that Slurm lost: what else was seen followed from that.

    Args:
        reason: Why the attempt ended, as it was seen.
        bad_nodes: What is known against nodes of the job.
    """
    lost = [node for node, why in bad_nodes.items() if why.startswith(node_evidence.NODE_FAILURE)]
    if not lost or reason.startswith(node_evidence.NODE_FAILURE):
        return reason
    return "%s on %s; %s" % (node_evidence.NODE_FAILURE, ", ".join(lost), reason)
