"""What a GPU holds of a model in training: weights, gradients, optimizer, and the layers gathered to compute with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.hardware.parameters import count_parameters
from rltui.memory.activations import routed_adapters, routed_widths
from rltui.memory.estimate import GIB

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.memory.settings import Adapter, Sharding, States

FSDP_GATHERED_LAYERS = 3.5
"""Layers that FSDP2 holds whole at once: the one that computes, the next one that is prefetched as flat buffer and as
parameters, and part of the cast of its shard. Read off the MoE rows of prime-rl, where a layer is gigabytes."""

FSDP1_GATHERED_LAYERS = 2
"""Layers that the first FSDP holds whole: its default ``limit_all_gathers`` permits the computing one and the next."""

DEFERRED_GRADIENT = 4.0
"""Bytes of a whole gradient that waits for its sum over GPUs: FSDP2 adds it up in the numbers that it reduces in."""

DEEPSPEED_LIVE_PARAMETERS = 10**9
"""``stage3_max_live_parameters`` and ``stage3_max_reuse_distance``: whole parameters that ZeRO-3 keeps."""

DEEPSPEED_BUCKET_ELEMENTS = 5 * 10**8
"""``reduce_bucket_size``: gradients that wait in one buffer to be reduced."""

LEAST_BUCKET_ELEMENTS = 10**7
"""A bucket of narrow models: smaller messages would wait for the link's latency instead of its bandwidth. Assumed."""

DEEPSPEED_SUB_GROUP = 10**9
"""``sub_group_size``: parameters that ZeRO-3's optimizer steps at once."""


class ZeroTraffic(Struct, frozen=True, kw_only=True):
    """How the trainers have DeepSpeed talk while it trains; what ``plan`` and the memory estimate count with, too.

    Attributes:
        overlaps: Whether gradients are reduced, and weights gathered, while the passes compute.
        bucket: Elements of a bucket of gradients (``reduce_bucket_size``).
        buckets: Buckets that are there at once.
        prefetch: Elements of whole weights that ZeRO-3 gathers ahead of their use (``stage3_prefetch_bucket_size``).
    """

    overlaps: bool
    bucket: int
    buckets: int
    prefetch: int


def zero_traffic(stage: int, hidden: int, trained: float = 0, offload: str = "") -> ZeroTraffic:
    """The traffic of a learner or critic.

    The first reduction or gather can begin no sooner than its bucket is full, and the last one has nothing to hide
    behind, so buckets are of about a matrix: hidden² elements, and 0.9 of it to prefetch, as transformers fills in for
    ``auto``. At ZeRO-2 a second bucket fills while the first is reduced; ZeRO-3 reduces a copy. ZeRO-1 cannot overlap
    where gradients accumulate outside DeepSpeed (its own assertion). With ZeRO-2 and an offloaded optimizer the
    gradients leave the card on the stream that would reduce: DeepSpeed's default, no overlap, is kept.

    Args:
        stage: ZeRO stage as it is run.
        hidden: Width of the model.
        trained: Parameters with gradients, 0 if not known: DeepSpeed allocates what it is told, however small the
            model.
        offload: What lives in host memory.
    """
    if not stage:
        return ZeroTraffic(overlaps=False, bucket=0, buckets=0, prefetch=0)
    size = min(max(hidden * hidden, LEAST_BUCKET_ELEMENTS), DEEPSPEED_BUCKET_ELEMENTS)
    overlaps = stage == 3 or (stage == 2 and offload in ("", "none"))
    return ZeroTraffic(
        overlaps=overlaps,
        bucket=int(min(size, trained or size)),
        buckets=1 + overlaps,
        prefetch=size * 9 // 10 if stage == 3 else 0,
    )


class Slice(Struct, frozen=True, kw_only=True):
    """Parameters of one GPU's slice of the model, and over how many ranks ZeRO divides them.

    Attributes:
        shared: Parameters outside routed experts.
        routed: Parameters of routed experts.
        shared_ranks: Ranks that have the same shared slice.
        routed_ranks: Ranks that have the same experts.
    """

    shared: float
    routed: float
    shared_ranks: int
    routed_ranks: int

    @property
    def whole(self) -> float:
        """Parameters of the slice, those of its experts among them."""
        return self.shared + self.routed

    @property
    def shard(self) -> float:
        """Parameters of one ZeRO partition of the slice."""
        return self.shared / self.shared_ranks + self.routed / self.routed_ranks


def slice_of(model: Architecture, sharding: Sharding) -> Slice:
    """Cut ``model`` by tensor, pipeline and expert parallelism."""
    count = count_parameters(model)
    stages = sharding.pipeline_parallel
    return Slice(
        shared=count.shared / (sharding.tensor_parallel * stages),
        routed=count.routed / (sharding.expert_split * stages),
        shared_ranks=sharding.replicas,
        routed_ranks=sharding.expert_replicas,
    )


def state_gib(part: Slice, states: States, sharding: Sharding) -> dict[str, float]:
    """GiB of weights, gradients and optimizer on one GPU (Rajbhandari et al. 2020, figure 1)."""
    stage = sharding.zero_stage
    weights = part.shard if stage == 3 else part.whole
    gradients = part.shard if stage >= 2 else part.whole
    optimizer = part.shard if stage >= 1 else part.whole
    parts = {
        "weights": 0.0 if sharding.offload == "all" else weights * states.weights,
        "gradients": gradients * _gradient_bytes(states, sharding),
        "optimizer": optimizer * _optimizer_bytes(states, sharding),
    }
    if sharding.hpz > 1 and stage == 3:
        # ZeRO++ keeps a second copy in 16 bits, divided within a node only (Wang et al. 2023, arXiv:2306.10209)
        parts["weights"] += part.whole * states.compute / sharding.hpz
    return {name: size / GIB for name, size in parts.items()}


def _optimizer_bytes(states: States, sharding: Sharding) -> float:
    """Bytes of a parameter's optimizer on the card, the mean of those that are offloaded and the others."""
    whole = states.master + states.moments
    kept = {"": whole, "moments": states.master}.get(sharding.offload, 0.0)
    return whole + (kept - whole) * sharding.offload_share


def _gradient_bytes(states: States, sharding: Sharding) -> float:
    """Bytes of a gradient that waits on the card. DeepSpeed's ZeRO-2 brings an offloaded optimizer's 16-bit ones back.

    ``_restore_cpu_offload_grad_to_gpu`` of its ``stage_1_and_2.py`` does; a 1.7B on one H200 held 2 bytes a parameter
    beside its weights in the backward pass and in the optimizer's step.
    """
    if sharding.offload not in ("optimizer", "all") or sharding.zero_stage < 2:
        return states.gradients
    return states.compute if sharding.backend == "deepspeed" and sharding.zero_stage == 2 else 0.0


def step_gib(part: Slice, states: States, sharding: Sharding) -> float:
    """GiB that the optimizer's step needs beside the states: float32 gradients and its own temporaries."""
    if sharding.offload in ("optimizer", "all"):
        return 0.0
    stepped = part.shard if sharding.zero_stage >= 1 else part.whole
    if sharding.backend == "deepspeed" and sharding.zero_stage == 3:
        stepped = min(stepped, DEEPSPEED_SUB_GROUP)
    return stepped * states.stepping / GIB


def gathered_gib(
    model: Architecture, states: States, sharding: Sharding, *, trained: bool, base_bytes: float | None = None
) -> dict[str, float]:
    """GiB of whole layers, whole gradients and communication buffers during a pass.

    Layers are gathered in the numbers that are computed with, but a quantised frozen base as it is stored: its packed
    numbers are sharded in 16-bit containers (``quant_storage`` of bitsandbytes, made for FSDP-QLoRA).

    Args:
        model: The model.
        states: Bytes of a parameter.
        sharding: How it is divided.
        trained: Whether its weights get gradients.
        base_bytes: Bytes of a parameter of a frozen base; None: it is not frozen.
    """
    item = states.compute if base_bytes is None else min(states.compute, base_bytes)
    if sharding.backend in ("fsdp", "fsdp1"):
        return {"gathered": _fsdp_bytes(model, states, sharding, item, trained=trained) / GIB}
    if trained and not states.gradients:
        # The optimizer steps inside the backward pass: one gradient at a time, the largest is the LM head's.
        return {"buffers": states.compute * model.vocab * model.hidden / GIB}
    if sharding.backend != "deepspeed":
        return {}
    parts = {}
    whole = slice_of(model, sharding).whole
    if sharding.zero_stage == 3:
        # DeepSpeed counts elements as they are stored: containers of several packed numbers are one.
        parts["gathered"] = min(whole * item, DEEPSPEED_LIVE_PARAMETERS * states.compute) / GIB
    if sharding.zero_stage >= 1 and trained:
        elements = min(whole, DEEPSPEED_BUCKET_ELEMENTS)
        if sharding.buckets_by_width:
            traffic = zero_traffic(sharding.zero_stage, model.hidden, whole, sharding.offload)
            elements = traffic.bucket * traffic.buckets
        parts["buffers"] = elements * states.compute / GIB
    return parts


def _fsdp_bytes(model: Architecture, states: States, sharding: Sharding, item: float, *, trained: bool) -> float:
    count = count_parameters(model)
    routed = count.routed / model.experts.layers if model.experts else 0.0
    layer = (count.largest_layer - routed) / sharding.tensor_parallel + routed / sharding.expert_split
    embedding, head = count.embedding / sharding.tensor_parallel, count.head / sharding.tensor_parallel
    if sharding.pipeline_parallel > 1:
        # A stage keeps its weights whole between micro-batches, and adds up whole float32 gradients.
        part = slice_of(model, sharding)
        return part.whole * (item + (4 if trained else 0))
    layers = FSDP_GATHERED_LAYERS if sharding.backend == "fsdp" else FSDP1_GATHERED_LAYERS
    own_gradient = trained and not sharding.defers_sync  # else all are there, and counted as such
    gathered = item * layers * layer + (states.compute * layer if own_gradient else 0.0)
    if item < states.compute:
        # The matrix that is multiplied with is dequantised whole.
        matrix = model.hidden * max(model.query_dim, *routed_widths(model)[:2]) / sharding.tensor_parallel
        gathered += states.compute * matrix
    copies = 2 if own_gradient else 1
    if sharding.ends_apart:
        return max(gathered, states.compute * copies * max(embedding, head))
    return gathered + states.compute * (copies * embedding + head)


def adapter_parameters(model: Architecture, adapter: Adapter) -> int:
    """Parameters of low-rank adapters on every linear layer."""
    hidden, query, kv = model.hidden, model.query_dim, model.kv_dim
    # of W [out, in] A is [rank, in] and B [out, rank]: rank (in + out) for each of q, k and v, and o
    attention = (hidden + query) + 2 * (hidden + kv) + (query + hidden)
    total = attention * model.softmax_layers
    experts = model.experts
    if adapter.targets != "attention":
        total += model.mlp_matrices * (hidden + model.ffn) * model.dense_layers
        if experts is not None and experts.shared_ffn:
            total += experts.layers * model.mlp_matrices * (hidden + experts.shared_ffn)
    return adapter.rank * total + routed_adapter_parameters(model, adapter)


def routed_adapter_parameters(model: Architecture, adapter: Adapter) -> int:
    """Parameters of the adapters on routed experts."""
    experts = model.experts
    if experts is None or not routed_adapters(model, adapter):
        return 0
    width = experts.latent or model.hidden
    of_one = model.mlp_matrices * (width + experts.ffn)
    if adapter.targets == "peft" and model.mlp_matrices == 3:
        of_one += 2 * experts.ffn  # gate and up are one stack, whose adapters have twice the rank
    return adapter.rank * experts.layers * experts.count * of_one


def trained_parameters(model: Architecture, adapter: Adapter | None = None, *, freeze_vision: bool = False) -> int:
    """Parameters that have gradients and an optimizer: the adapters' where there are some, else the model's."""
    if adapter is not None:
        return adapter_parameters(model, adapter)
    count = count_parameters(model)
    return count.text if freeze_vision else count.total


def frozen_gib(model: Architecture, part: Slice, adapter: Adapter, sharding: Sharding) -> dict[str, float]:
    """GiB of a frozen base, of the adapters on it and of their gradients.

    Quantised bases keep embedding and LM head in 16 bits.
    """
    count = count_parameters(model)
    base = part.shard if sharding.zero_stage == 3 else part.whole
    ends = (count.embedding + count.head) / count.total * base
    end_bytes = max(4.0 if adapter.float32_ends else 2.0, adapter.base_bytes)
    routed = routed_adapter_parameters(model, adapter)
    split = Slice(
        shared=(adapter_parameters(model, adapter) - routed) / (sharding.tensor_parallel * sharding.pipeline_parallel),
        routed=routed / (sharding.expert_split * sharding.pipeline_parallel),
        shared_ranks=sharding.replicas,
        routed_ranks=sharding.expert_replicas,
    )
    trained = split.shard if sharding.zero_stage == 3 else split.whole
    states, offloaded = adapter.states, sharding.offload in ("optimizer", "all")
    kept = states.weights if offloaded else states.resident - states.gradients
    gradients = 0.0 if offloaded and sharding.zero_stage >= 2 else states.gradients
    return {
        "weights": 0.0 if sharding.offload == "all" else ((base - ends) * adapter.base_bytes + ends * end_bytes) / GIB,
        "adapters": 0.0 if sharding.offload == "all" else trained * kept / GIB,
        "gradients": trained * gradients / GIB,
    }
