"""A script on several nodes: where its processes meet, and how it is started on each of them."""

import os
import subprocess
import sys
from typing import Dict, List, NamedTuple

from rltui.onnode import rundir
from rltui.onnode.allocation import read_allocation, start_step, step_command
from rltui.onnode.node_network import host, reserve_block

_NUMBERED = 'export NODE_RANK="$SLURM_NODEID" PET_NODE_RANK="$SLURM_NODEID"; exec "$@"'
"""Runs what follows with the node's number, from 0, the head's: torchrun takes options that it lacks from PET_*."""


class Rendezvous(NamedTuple):
    """Where the processes of a job meet.

    Attributes:
        nodes: Their names, the first has the meeting place.
        cpus: CPU cores of each.
        address: Of the first node, as the others reach it.
        port: A port that is free there.
    """

    nodes: List[str]
    cpus: int
    address: str
    port: int


def rendezvous(attempt: str, environment: Dict[str, str]) -> Rendezvous:
    """Where the nodes of this Slurm job meet: at the address that the node check found.

    Raises:
        NoAllocationError: This is no Slurm job.
        NoPortsError: No port is free.
    """
    allocation = read_allocation(environment, host())
    report = (rundir.read_json(os.path.join(attempt, rundir.PREFLIGHT)) or {}).get("nodes", {}).get(host(), {})
    # the block's last port: Ray, where there is one, has taken its own by now
    port = reserve_block(allocation.job_id).last_worker
    return Rendezvous(allocation.nodes, allocation.cpus, report.get("address") or host(), port)


def meeting_variables(place: Rendezvous) -> Dict[str, str]:
    """What torch, accelerate and most launch scripts look for."""
    return {"MASTER_ADDR": place.address, "MASTER_PORT": str(place.port), "NNODES": str(len(place.nodes))}


def torchrun_variables(place: Rendezvous) -> Dict[str, str]:
    """The same as torchrun's defaults, for a script that names no rendezvous."""
    return {f"PET_{name}": value for name, value in meeting_variables(place).items()}


def on_each_node(place: Rendezvous, argv: List[str]) -> List[str]:
    """The command that runs ``argv`` once on each node, and ends all when one of them fails."""
    # of an option that is there twice, srun takes the last
    return [*step_command(place.nodes, place.cpus), "--kill-on-bad-exit=1", "bash", "-c", _NUMBERED, "bash", *argv]


def start_samplers(attempt: str, place: Rendezvous) -> "subprocess.Popen[bytes]":
    """Start the samplers of the nodes beside the first, where no Ray of ours has agents that do.

    Raises:
        NoAllocationError: There is no srun here.
    """
    argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", attempt]
    argv += ["--mark", os.environ[rundir.ATTEMPT_VARIABLE]]
    with open(os.devnull, "wb") as nowhere:
        return start_step(place.nodes[1:], 1, argv, subprocess.DEVNULL, nowhere, nowhere)
