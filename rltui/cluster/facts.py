"""What a cluster offers right now, in the form that live checks, `rltui nodes` and `rltui setup` read."""

from __future__ import annotations

from msgspec import Struct


class PartitionFacts(Struct, frozen=True, kw_only=True):
    """One partition; None is a limit that is not set, or that nobody could read."""

    name: str
    is_default: bool = False
    is_up: bool = True
    max_time_s: float | None = None
    default_time_s: float | None = None
    max_nodes: int | None = None
    accounts: tuple[str, ...] = ()
    """Accounts that are let in; empty: all."""
    qos: tuple[str, ...] = ()
    """Qualities of service that are let in; empty: all."""


class NodeFacts(Struct, frozen=True, kw_only=True):
    """One node."""

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
    taken_at: float = 0.0
