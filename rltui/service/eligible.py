"""How many nodes a layout could still start on, for previews that exclude some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from rltui.errors import ClusterError

if TYPE_CHECKING:
    from rltui.cluster.cluster import Cluster
    from rltui.cluster.facts import ClusterFacts
    from rltui.cluster.profile import Profile
    from rltui.runs.script_job import Work


class Eligible(Struct, frozen=True, kw_only=True):
    """Which nodes of one partition a layout fits on, and how many are known at all."""

    partition: str
    known: int
    """All of them."""
    eligible: int
    """Usable ones with enough GPUs that nobody excludes."""
    needed: int
    """What the job asks for."""


def eligible_nodes(cluster: Cluster, layout: Work) -> Eligible | None:
    """Ask the cluster which nodes are left for ``layout``; None where it has no Slurm or does not answer."""
    if cluster.profile.scheduler != "slurm":
        return None
    from rltui.cluster.gather_facts import recent_facts

    try:
        return count_eligible(recent_facts(cluster.client), cluster.profile, layout)
    except ClusterError:
        return None


def count_eligible(facts: ClusterFacts, profile: Profile, layout: Work) -> Eligible | None:
    """Count the nodes that ``layout`` could start on, of several kinds those of the scarcest.

    Returns:
        None where a partition is not known.
    """
    from rltui.runs.script import components

    counted = [_count(facts, profile, part) for part in components(layout)]
    known = [one for one in counted if one is not None]
    return min(known, key=lambda one: one.eligible - one.needed) if len(known) == len(counted) else None


def _count(facts: ClusterFacts, profile: Profile, layout: Work) -> Eligible | None:
    from rltui.runs.script import excluded_nodes

    partition = facts.partition(layout.slurm.partition or profile.partition)
    nodes = facts.nodes_of(partition.name) if partition else ()
    if partition is None or not nodes:
        return None
    gpus = 0 if layout.hardware.on_cpu else layout.hardware.gpus_per_node
    out = set(excluded_nodes(layout, profile))
    left = [node for node in nodes if node.is_usable and node.name not in out and node.gpus >= gpus]
    return Eligible(partition=partition.name, known=len(nodes), eligible=len(left), needed=layout.hardware.nodes)


def dispensable(cluster: Cluster, layout: Work, names: Sequence[str]) -> tuple[str, ...]:
    """Those of ``names``, the first first, without which ``layout`` can still start; all where Slurm does not say."""
    from rltui.cluster.gather_facts import recent_facts

    try:
        facts = recent_facts(cluster.client)
    except ClusterError:
        return tuple(names)
    out: tuple[str, ...] = ()
    for name in names:
        slurm = structs.replace(layout.slurm, exclude=[*layout.slurm.exclude, *out, name])
        left = count_eligible(facts, cluster.profile, structs.replace(layout, slurm=slurm))
        if left is None or left.eligible >= left.needed:
            out += (name,)
    return out


def freest_partition(cluster: Cluster, layout: Work, fits: Callable[[str], bool]) -> str:
    """The one of the profile's partitions that ``fits`` and has most nodes free for ``layout`` right now.

    Empty where ``layout`` names one, or there is nothing to choose, or Slurm does not answer.
    """
    from rltui.cluster.gather_facts import recent_facts
    from rltui.cluster.profile import in_partition
    from rltui.cluster.slurm.replies import SlurmUnansweredError

    profile = cluster.profile
    if layout.slurm.partition or not profile.partitions:
        return ""
    try:
        facts = recent_facts(cluster.client)
    except SlurmUnansweredError:
        return ""
    names = list(dict.fromkeys([*([profile.partition] if profile.partition else []), *profile.partitions]))
    free = {name: free_nodes(facts, in_partition(profile, name), layout, name) for name in names if fits(name)}
    return max(free, key=lambda name: free[name], default="")


def free_nodes(facts: ClusterFacts, profile: Profile, layout: Work, partition: str) -> int:
    """How many nodes of a partition could start their share of ``layout`` right now, at most as many as it needs."""
    from rltui.runs.script import excluded_nodes

    wanted = 0 if layout.hardware.on_cpu else layout.hardware.gpus_per_node
    out = set(excluded_nodes(layout, profile))
    # an allocated node has GPUs free at times, but no CPU; a completing one still runs its epilog
    free = [
        node
        for node in facts.nodes_of(partition)
        if node.is_usable and node.state in ("idle", "mixed") and node.name not in out
        if node.gpus - (node.gpus_used or 0) >= wanted
    ]
    return min(len(free), layout.hardware.nodes)
