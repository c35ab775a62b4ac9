"""What a Slurm cluster offers right now, asked in three calls at once."""

from __future__ import annotations

import time
from weakref import WeakKeyDictionary

from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.plain_text import plain
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.slurm.nodes import NODES_ARGV, NODES_BYTES, read_nodes, read_partitions
from rltui.cluster.slurm.replies import SlurmUnansweredError
from rltui.cluster.slurm.runner import SlurmRunner, on_cluster

RECENT_S = 5.0
"""How long an answer holds for what else one verb, or one screen, wants to know at that moment."""

_recent: WeakKeyDictionary[RelayClient, tuple[float, ClusterFacts]] = WeakKeyDictionary()


def recent_facts(relay: RelayClient) -> ClusterFacts:
    """The same as ``gather_facts``, asked again only where the last answer through ``relay`` is not of just now.

    Raises:
        SlurmUnansweredError: As ``gather_facts``.
    """
    asked_at, facts = _recent.get(relay, (0.0, None))
    if facts is None or time.monotonic() - asked_at > RECENT_S:
        facts = gather_facts(relay)
        _recent[relay] = time.monotonic(), facts
    return facts


def gather_facts(relay: RelayClient) -> ClusterFacts:
    """Ask Slurm for its partitions, all its nodes and the user's accounts.

    All nodes are asked for, always: of single nodes the controller tells stale states. What cannot be told without
    accounting (``accounts``) stays empty; disk and model cache are not Slurm's to tell.

    Raises:
        SlurmUnansweredError: The controller does not answer, or there is no Slurm on that host.
    """
    from concurrent.futures import ThreadPoolExecutor

    runner = SlurmRunner(relay)
    with ThreadPoolExecutor(2) as pool:
        nodes = pool.submit(_nodes, runner)
        accounts = pool.submit(_accounts, runner)
        partitions = runner.ask(["scontrol", "--all", "--oneliner", "show", "partition"])
        return ClusterFacts(
            partitions=read_partitions(partitions),
            nodes=nodes.result(),
            accounts=accounts.result(),
            taken_at=time.time(),
        )


def node_facts(relay: RelayClient) -> tuple[NodeFacts, ...]:
    """All nodes as Slurm sees them now, in one call.

    Raises:
        SlurmUnansweredError: As ``gather_facts``.
    """
    return _nodes(SlurmRunner(relay))


def _nodes(runner: SlurmRunner) -> tuple[NodeFacts, ...]:
    return read_nodes(runner.ask(NODES_ARGV, limit=NODES_BYTES))


def cluster_name(relay: RelayClient) -> str:
    """What Slurm calls the cluster; empty where it does not say."""
    done = relay.run(on_cluster(relay, ["scontrol", "show", "config"]), timeout_s=30, idempotent=True)
    for line in done.out.splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "ClusterName":
            return value.strip()
    return ""


def federation(relay: RelayClient) -> str:
    """The federation that the cluster is in; empty where it is in none."""
    done = relay.run(on_cluster(relay, ["scontrol", "show", "federation"]), timeout_s=30, idempotent=True)
    key, _, name = done.out.partition("\n")[0].partition(":")
    return plain(name).strip() if key.strip() == "Federation" else ""


def _accounts(runner: SlurmRunner) -> tuple[str, ...]:
    who = runner.relay.hello().user
    argv = ["sacctmgr", "--noheader", "--parsable2", "show", "associations", f"user={who}", "format=cluster,account"]
    try:
        lines = runner.ask(argv).splitlines()
    except SlurmUnansweredError:
        return ()
    rows = [tuple(plain(word).strip() for word in line.split("|")) for line in lines if line.count("|") == 1]
    if len({cluster for cluster, _ in rows}) > 1:
        # one database may serve several clusters, and an account of another one is refused here
        here = cluster_name(runner.relay)
        rows = [row for row in rows if row[0] == here] or rows
    return tuple(dict.fromkeys(account for _, account in rows if account))
