"""The answer: moments, their parts, the peak and the verdict."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

GIB = 2**30

CUDA_CONTEXT_GIB = 0.5
"""A CUDA context with the kernels of torch on an H100: 0.4 to 0.6 GiB that torch does not count."""

NCCL_GIB = 1.0
"""Buffers of NCCL's communicators for a handful of groups."""

NCCL_WAY_GIB = 0.5
"""The same for each further way in which Megatron divides a model. Read off ms-swift's examples, whose ``nvidia-smi``
shows 10 to 17 % more than is counted otherwise."""

NCCL_EXPERTS_GIB = 2.0
"""And what sending tokens to the experts of other GPUs takes besides: buffers to and from each of them. Read off
ms-swift's examples with ``expert_model_parallel_size``."""

TIGHT_HEADROOM = 0.08
"""Less free memory than this share of the card is tight: the estimate's own error is of that size."""

Verdict = Literal["fits", "tight", "no", "unknown"]
Parts = dict[str, float]


class Moment(Struct, frozen=True, kw_only=True):
    """Memory of one GPU at one moment.

    Attributes:
        moment: Its name: ``load``, ``generate``, ``log-probs``, ``backward``, ``first layer``, ``optimizer step``,
            ``weight sync``, ``wake-up``.
        parts_gib: What it is made of, in GiB; ``context`` is what CUDA and NCCL take outside torch.
    """

    moment: str
    parts_gib: Parts

    @property
    def total_gib(self) -> float:
        """All parts, as ``nvidia-smi`` would show them."""
        return sum(self.parts_gib.values())

    @property
    def torch_gib(self) -> float:
        """What torch's allocator reserves: all but the context."""
        return self.total_gib - self.parts_gib.get("context", 0.0)

    @property
    def allocated_gib(self) -> float:
        """What torch's allocator gives out: logits are gone before a layer is recomputed; only their blocks stay."""
        parts = self.parts_gib
        return self.torch_gib - min(parts.get("layer", 0.0), parts.get("logits", 0.0)) - parts.get("cached blocks", 0.0)

    @property
    def least_gib(self) -> float:
        """What must be there, as ``nvidia-smi`` would show it: torch gives most cached blocks back before it runs out.

        Not those of the logits: the one published run that ran out of memory between the two needed them.
        """
        return self.allocated_gib + self.parts_gib.get("cached blocks", 0.0) + self.parts_gib.get("context", 0.0)

    @property
    def own_gib(self) -> float:
        """What torch of that role's own process holds: neither a context nor what others hold on the card."""
        parts = self.parts_gib.items()
        own = (size for part, size in parts if not part.endswith((" beside", "context")) and part[:8] != "trainer ")
        return sum(own)


class Doubt(Struct, frozen=True):
    """How far off an estimate may be: nine of ten measured peaks lay within these shares of it.

    Attributes:
        below: The share by which a peak may be less.
        above: The share by which it may be more. What is not known adds to a peak more often than it saves.
    """

    below: float
    above: float

    def __str__(self) -> str:
        return f"±{self.above:.0%}" if self.below == self.above else f"-{self.below:.0%} +{self.above:.0%}"

    def or_more(self, *others: Doubt) -> Doubt:
        """The widest of this and ``others``."""
        every = (self, *others)
        return Doubt(max(each.below for each in every), max(each.above for each in every))


class RoleEstimate(Struct, frozen=True, kw_only=True):
    """Memory of one role on each of its GPUs.

    Attributes:
        role: The role.
        gpus: How many GPUs it has.
        capacity_gib: What the card offers; None where the card is not known.
        moments: In the order in which they come.
        error: Shares by which the peak may be off, from the residuals on measured points.
        knob: The override that lowers the peak, or an empty string.
        reason: Why that knob: the part that makes the peak.
        blocked: Why it cannot start at all, whatever the peak; empty: it can.
    """

    role: str
    gpus: int
    capacity_gib: float | None
    moments: tuple[Moment, ...]
    error: Doubt
    knob: str = ""
    reason: str = ""
    blocked: str = ""

    @property
    def peak(self) -> Moment:
        """The moment that needs most."""
        return max(self.moments, key=lambda moment: moment.total_gib)

    @property
    def peak_gib(self) -> float:
        """Memory of the fullest card at the moment when it holds most."""
        return self.peak.total_gib

    @property
    def verdict(self) -> Verdict:
        """Whether it fits the card; ``tight`` where it does once torch has given back the blocks that it caches."""
        if self.blocked or self.capacity_gib is None:
            return "no" if self.blocked else "unknown"
        if max(moment.least_gib for moment in self.moments) > self.capacity_gib:
            return "no"
        return "tight" if self.peak_gib > self.capacity_gib * (1 - TIGHT_HEADROOM) else "fits"


class EngineEstimate(Struct, frozen=True, kw_only=True):
    """What one GPU of an engine holds.

    Attributes:
        role: The role.
        weights_gib: Weights.
        activation_gib: Peak of the profile run.
        non_torch_gib: CUDA context, NCCL and kernels.
        graphs_gib: CUDA graphs.
        kv_gib: What is left for the KV cache; negative where nothing is.
        kv_tokens: Tokens that the cache holds when sequences have their full length.
        max_concurrency: Sequences of full length that fit at once.
        budget_gib: What the engine may take; None where the card is not known.
        scoring_gib: Logits and hidden states while it scores prompts, outside the budget; 0: it scores none.
    """

    role: str
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    graphs_gib: float
    kv_gib: float | None
    kv_tokens: int | None
    max_concurrency: float | None
    budget_gib: float | None
    scoring_gib: float = 0.0


class HostEstimate(Struct, frozen=True, kw_only=True):
    """One node's needs.

    Attributes:
        ram_parts_gib: Host memory by cause.
        shm_gib: Of it, what must fit /dev/shm.
    """

    ram_parts_gib: Parts
    shm_gib: float

    @property
    def ram_gib(self) -> float:
        """Main memory of a node that all roles on it take together."""
        return sum(self.ram_parts_gib.values())


class LayoutEstimate(Struct, frozen=True, kw_only=True):
    """Memory of all roles of a layout.

    Attributes:
        roles: One estimate a role; empty where nothing can be said.
        engines: What each engine's GPUs hold.
        host: The fullest node's host memory; None where nothing can be said.
        checkpoint_gib: One checkpoint on disk; None where the model is not known.
        models: Each model in words, with its size, by whose it is.
        notes: What is not known, and what the nearest known is.
    """

    roles: tuple[RoleEstimate, ...] = ()
    engines: tuple[EngineEstimate, ...] = ()
    host: HostEstimate | None = None
    checkpoint_gib: float | None = None
    models: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    def role(self, name: str) -> RoleEstimate | None:
        """The estimate of the role called ``name``."""
        return next((role for role in self.roles if role.role == name), None)
