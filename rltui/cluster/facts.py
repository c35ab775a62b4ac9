"""What a cluster offers right now, in the form that live checks, `rltui nodes` and `rltui setup` read."""

from __future__ import annotations

from msgspec import Struct


class PartitionFacts(Struct, frozen=True, kw_only=True):
    """One partition; None is a limit that is not set, or that nobody could read."""

    name: str
    is_default: bool = False
    is_up: bool = True
    max_time_s: float | None = None
    max_nodes: int | None = None
    accounts: tuple[str, ...] = ()
    """Accounts that are let in; empty: all."""
    qos: tuple[str, ...] = ()
    """Qualities of service that are let in; empty: all."""


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What a node has, who uses it, and whether it takes jobs."""

    name: str
    partitions: tuple[str, ...] = ()
    state: str = "unknown"
    """Slurm's base word in small letters: idle, mixed, allocated, down …"""
    flags: tuple[str, ...] = ()
    """What comes with it: drain, not_responding, maint, reserved …"""
    reason: str = ""
    gpu: str = ""
    """Type as the scheduler names it, such as ``h100``."""
    gpus: int = 0
    gpus_used: int | None = None
    cpus: int = 0
    memory_gib: float = 0.0
    features: tuple[str, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether a job could run there once it is free."""
        bad = {"drain", "drained", "draining", "not_responding", "fail", "maint", "powering_down", "invalid_reg"}
        return self.state in ("idle", "mixed", "allocated", "completing") and not bad.intersection(self.flags)


class ClusterFacts(Struct, frozen=True, kw_only=True):
    """All of it at one time."""

    partitions: tuple[PartitionFacts, ...] = ()
    nodes: tuple[NodeFacts, ...] = ()
    accounts: tuple[str, ...] = ()
    """Accounts of the user; empty where nobody could tell."""
    run_root_free_gib: float | None = None
    cached_models: tuple[str, ...] | None = None
    """Models in the Hugging Face cache that jobs would use; None where nobody looked."""
    refusal: str = ""
    """Why ``sbatch --test-only`` refuses this layout's script; empty where it does not, or was not asked."""
    python_problem: str = ""
    """Why the profile's python cannot train, as the login node tells; empty where it can or nobody knows."""
    env_file_problem: str = ""
    """Why a job would refuse the profile's file of secrets."""
    folder_problem: str = ""
    """Why a script cannot run in its folder, as the login node tells."""
    container_problem: str = ""
    """Why nothing could run in the job's container, as the login node tells: its image, or the python outside."""
    container_warning: str = ""
    """What of it the login node has not, and compute nodes may have: the runtime."""
    taken_at: float = 0.0

    def partition(self, names: str) -> PartitionFacts | None:
        """What a job may have that asks for a partition, or for the first of several that can start it.

        Args:
            names: As Slurm takes it: a name, or several with commas; empty: the cluster's default.

        Returns:
            For several, what at least one of them allows; None where one is not there, or there is no default.
        """
        known = {one.name: one for one in self.partitions}
        wanted = (
            [name.strip() for name in names.split(",")] if names else [o.name for o in self.partitions if o.is_default]
        )
        found = [known[name] for name in wanted if name in known]
        if not found or len(found) < len(wanted):
            return None
        return found[0] if len(found) == 1 else _any_of(found)

    def nodes_of(self, names: str) -> tuple[NodeFacts, ...]:
        """Nodes of a partition, or of several with commas; of the default where ``names`` is empty."""
        partition = self.partition(names)
        wanted = partition.name.split(",") if partition else ()
        return tuple(node for node in self.nodes if any(name in node.partitions for name in wanted))


def _any_of(found: list[PartitionFacts]) -> PartitionFacts:
    times, counts = [one.max_time_s for one in found], [one.max_nodes for one in found]
    return PartitionFacts(
        name=",".join(one.name for one in found),
        is_up=any(one.is_up for one in found),
        max_time_s=None if None in times else max(time for time in times if time is not None),
        max_nodes=None if None in counts else max(count for count in counts if count is not None),
        accounts=_union([one.accounts for one in found]),
        qos=_union([one.qos for one in found]),
    )


def _union(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    """All that one of ``lists`` lets in; one that is empty lets everybody in."""
    return tuple(dict.fromkeys(name for names in lists for name in names)) if all(lists) else ()
