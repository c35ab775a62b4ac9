"""What a cluster has and how much of it is free, with the nodes that the profile keeps away from."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.gather_facts import gather_facts
from rltui.cluster.machines import open_relay
from rltui.cluster.profile import Profile
from rltui.cluster.profiles import Profiles, load_profiles
from rltui.cluster.prompts import Prompter
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.remote_paths import RemoteRoot
from rltui.cluster.slurm.nodelist import fold
from rltui.cluster.slurm.nodes import RESERVATIONS_ARGV, Reservation, read_reservations
from rltui.cluster.slurm.replies import SlurmUnansweredError
from rltui.cluster.slurm.runner import SlurmRunner
from rltui.errors import ClusterError, UsageError
from rltui.onnode.bad_nodes import BadNode
from rltui.service.bad_nodes import forget, remembered, report, words


class NodeGroup(Struct, frozen=True, kw_only=True):
    """Nodes that are alike in all that a person would tell apart."""

    nodes: tuple[str, ...]
    state: str
    """In a word or two, such as ``idle``, ``drained``, ``down``, ``mixed+reserved``."""
    gpu: str
    gpus: int
    """Of each of them."""
    gpus_free: int | None
    """Of each of them; None where nobody could tell."""
    is_usable: bool
    reason: str
    partitions: tuple[str, ...]

    @property
    def names(self) -> str:
        """Their names as Slurm folds them."""
        return fold(self.nodes)


class ClusterNodes(Struct, frozen=True, kw_only=True):
    """A Slurm cluster's nodes, and what its runs remember of them."""

    profile: Profile
    facts: ClusterFacts
    reservations: tuple[Reservation, ...] = ()
    bad: tuple[BadNode, ...] = ()
    """Remembered by evidence; what the profile avoids is in the profile."""


def clusters_nodes(name: str, prompter: Prompter) -> ClusterNodes:
    """Ask a Slurm cluster for its partitions and nodes, and the run root for those that are remembered as bad.

    Args:
        name: A profile's name; empty: the only Slurm cluster that there is.
        prompter: Who answers what the login asks.

    Raises:
        UsageError: No such cluster, or none that has Slurm.
        ClusterError: It cannot be reached, or its controller does not answer.
    """
    with _relay_of(name, prompter) as (profile, relay):
        try:
            facts = gather_facts(relay)
        except SlurmUnansweredError as error:
            if error.trouble.kind == "missing":
                raise ClusterError(f"{relay.place} has no Slurm tools.", "Is this the login node?") from error
            raise
        kept = read_reservations(SlurmRunner(relay).ask(RESERVATIONS_ARGV))
        bad = remembered(relay, RemoteRoot(relay, profile).path)
        return ClusterNodes(profile=profile, facts=facts, reservations=kept, bad=bad)


def forget_node(name: str, node: str, prompter: Prompter) -> BadNode:
    """Let nothing that a cluster remembers of ``node`` count any more; what was known comes back.

    Raises:
        UsageError: Nothing is remembered against it, or as ``clusters_nodes``.
        ClusterError: It cannot be written.
    """
    with _relay_of(name, prompter) as (profile, relay):
        return forget(relay, RemoteRoot(relay, profile).path, node)


def node_report(name: str, node: str, prompter: Prompter) -> str:
    """What is remembered of ``node``, as a text for the site's administrators.

    Raises:
        UsageError: Nothing is remembered against it, or as ``clusters_nodes``.
    """
    with _relay_of(name, prompter) as (profile, relay):
        return report(relay, RemoteRoot(relay, profile).path, profile.name, node)


@contextmanager
def _relay_of(name: str, prompter: Prompter) -> Iterator[tuple[Profile, RelayClient]]:
    profile = _chosen(load_profiles(), name)
    relay = open_relay(profile, prompter)
    try:
        yield profile, relay
    finally:
        relay.close()


def grouped(found: ClusterNodes, partition: str = "", today: str = "") -> tuple[NodeGroup, ...]:
    """Put nodes that are alike together, those with free GPUs first and those out of service last.

    Args:
        found: What Slurm says, and which nodes are marked as bad.
        partition: Only nodes of this one; empty: all.
        today: The date that the end of a bad node's time is compared with; empty: today.
    """
    facts = found.facts
    avoided = _avoided(found.profile, today or datetime.date.today().isoformat())
    known = {bad.node: f"remembered: {words(bad)}" for bad in found.bad}
    groups: dict[tuple[object, ...], list[NodeFacts]] = {}
    for node in facts.nodes:
        if not partition or partition in node.partitions:
            key = (node.state, node.flags, node.gpu, node.gpus, node.gpus_used, node.reason, node.partitions)
            groups.setdefault((*key, avoided.get(node.name), known.get(node.name)), []).append(node)
    listed = [_group(nodes, avoided, known) for nodes in groups.values()]
    return tuple(sorted(listed, key=lambda group: (not group.is_usable, -(group.gpus_free or 0), group.nodes)))


def _group(nodes: Sequence[NodeFacts], avoided: dict[str, str], known: dict[str, str]) -> NodeGroup:
    first = nodes[0]
    reasons = (first.reason, avoided.get(first.name, ""), known.get(first.name, ""))
    return NodeGroup(
        nodes=tuple(node.name for node in nodes),
        state=_state_word(first),
        gpu=first.gpu,
        gpus=first.gpus,
        gpus_free=None if first.gpus_used is None else max(0, first.gpus - first.gpus_used),
        is_usable=first.is_usable and first.name not in avoided,
        reason="; ".join(filter(None, reasons)),
        partitions=first.partitions,
    )


def _state_word(node: NodeFacts) -> str:
    flags = [flag for flag in node.flags if flag not in ("drain", "not_responding")]
    word = node.state
    if "drain" in node.flags:
        word = {"idle": "drained", "down": "down"}.get(node.state, "draining")
    elif "not_responding" in node.flags and node.state != "down":
        word = "unresponsive"
    return "+".join((word, *flags))


def _avoided(profile: Profile, today: str) -> dict[str, str]:
    current = [one for one in profile.bad_nodes if one.is_avoided(today)]
    return {one.node: f"avoided: {one.reason or 'no reason given'}" for one in current}


def _chosen(profiles: Profiles, name: str) -> Profile:
    if name:
        profile = profiles.get(name)
        if profile.scheduler != "slurm":
            what = (
                f"Cluster {name!r} runs no Slurm (its scheduler is {profile.scheduler}), so there are no nodes to list."
            )
            on_hosts = f"`rltui queue {name}` shows its cards and who has them."
            hint = on_hosts if profile.scheduler in ("hosts", "local") else "`rltui clusters` lists all clusters."
            raise UsageError(what, hint)
        return profile
    slurm = [one for one in profiles.by_name.values() if one.scheduler == "slurm"]
    if len(slurm) == 1:
        return slurm[0]
    if not slurm:
        raise UsageError("No Slurm cluster is known yet.", "`rltui setup` adds one; run it on a login node or at home.")
    raise UsageError(
        "There are several Slurm clusters.", f"Say --cluster with one of {', '.join(o.name for o in slurm)}."
    )
