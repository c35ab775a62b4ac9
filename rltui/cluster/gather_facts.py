"""What a Slurm cluster offers right now, asked in three calls."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rltui.cluster.facts import ClusterFacts
from rltui.cluster.plain_text import plain
from rltui.cluster.slurm.errors import SlurmUnansweredError
from rltui.cluster.slurm.nodes import read_nodes, read_partitions
from rltui.cluster.slurm.runner import SlurmRunner

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.cluster.relay_client import RelayClient


def gather_facts(relay: RelayClient, clock: Callable[[], float] = time.time) -> ClusterFacts:
    """Ask Slurm for its partitions, all its nodes and the user's accounts.

    All nodes are asked for, always: of single nodes the controller tells stale states. What cannot be told without
    accounting (``accounts``) stays empty; disk and model cache are not Slurm's to tell.

    Raises:
        SlurmUnansweredError: The controller does not answer, or there is no Slurm on that host.
        ClusterError: The cluster cannot be reached.
    """
    runner = SlurmRunner(relay, clock)
    partitions = read_partitions(runner.ask(["scontrol", "--all", "--oneliner", "show", "partition"]))
    nodes = read_nodes(runner.ask(["scontrol", "--all", "--detail", "--oneliner", "show", "node"]))
    return ClusterFacts(partitions=partitions, nodes=nodes, accounts=_accounts(runner), taken_at=clock())


def _accounts(runner: SlurmRunner) -> tuple[str, ...]:
    who = runner.relay.hello().user
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={who}", "format=account"]
    try:
        lines = runner.ask(argv).splitlines()
    except SlurmUnansweredError:
        return ()
    return tuple(dict.fromkeys(plain(line).strip() for line in lines if line.strip()))
