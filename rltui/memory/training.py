"""Memory of a model in training, moment by moment."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from rltui.hardware.architecture import Architecture
from rltui.hardware.parameters import count_parameters
from rltui.memory.activations import (
    CACHED_LOGIT,
    CAPPED_LOGIT,
    CHUNKED_HEAD_GIB,
    FLOAT32_LOGIT,
    HEAD_BYTES,
    LOGITS_GO_FIRST,
    adapter_input_bytes,
    eager_score_bytes,
    forward_layer_bytes,
    fused_layer_bytes,
    gathered_input_bytes,
    kept_layer_bytes,
    mask_bytes,
    merged_stack_bytes,
    passing_gradients_bytes,
    recomputed_layer_bytes,
    scattered_output_bytes,
    score_bytes,
    whole_keys_bytes,
    whole_norm_bytes,
)
from rltui.memory.estimate import (
    CUDA_CONTEXT_GIB,
    GIB,
    NCCL_EXPERTS_GIB,
    NCCL_GIB,
    NCCL_WAY_GIB,
    Doubt,
    Moment,
    Parts,
    RoleEstimate,
)
from rltui.memory.knobs import training_knob
from rltui.memory.settings import DEEPSPEED_BF16, Adapter, Sharding, States, WeightSync, Workload
from rltui.memory.states import DEFERRED_GRADIENT, Slice, frozen_gib, gathered_gib, slice_of, state_gib, step_gib

TRAINING_ERROR = Doubt(0.14, 0.1)
"""Nine of ten measured peaks of FSDP, and more of the bundled trainers, lie within these shares of the estimate. Of
sources that were held out while such shares were set by the others, too (docs/memory.md)."""

OTHERS_ERROR = Doubt(0.16, 0.3)
"""The same of Megatron, of DeepSpeed with its own defaults, of one card without a library that divides states, of
trainers whose ways are not known, and of all weights of a model with experts under FSDP: communicators, allocators,
fused kernels, optimizers and the ways of experts differ."""

UNSURE_ERROR = Doubt(0.3, 0.7)
"""The same where layers are linear, or states lie in host memory and DeepSpeed is not who moves them: kernels and
copies of those differ from version to version."""

OFFLOADED_IN_FLIGHT = 5
"""Layer inputs that wait to be copied to host memory, or back."""


def estimate_training(
    model: Architecture,
    sharding: Sharding,
    workload: Workload,
    states: States = DEEPSPEED_BF16,
    *,
    adapter: Adapter | None = None,
    sync: WeightSync | None = None,
    log_probs: bool = False,
    freeze_vision: bool = False,
    capacity_gib: float | None = None,
    role: str = "learner",
) -> RoleEstimate:
    """Estimate the memory of each GPU that trains ``model``.

    Args:
        model: The model.
        sharding: How it is divided among GPUs.
        workload: What one pass works on.
        states: Bytes of a trained parameter; with an ``adapter``, how the base is computed with.
        adapter: Low-rank adapters, where the base is frozen.
        sync: How weights go to engines; None: they do not.
        log_probs: Whether there are forward passes without gradients, too.
        freeze_vision: Whether the vision tower keeps its weights: it has no gradients and no optimizer.
        capacity_gib: What the card offers; None: not known, so that the verdict is ``unknown``.
        role: Name of the role.
    """
    part, count = slice_of(model, sharding), count_parameters(model)
    trained_share = count.text / count.total if freeze_vision else 1.0
    idle, passing, held = _phases(
        lambda split: _held(model, part, split, states, adapter, workload, trained_share), sharding
    )
    base_bytes = None if adapter is None else adapter.base_bytes
    gathered = gathered_gib(model, states, sharding, trained=adapter is None, base_bytes=base_bytes)
    moments = [Moment(moment="load", parts_gib=idle)]
    if log_probs:
        moments.append(_forward(model, passing, gathered, sharding, workload, adapter))
    cast = held if adapter is not None else {**held, **_cast(part, states, sharding)}
    backward = _backward(model, cast, gathered, sharding, workload, states, adapter=adapter)
    moments.append(backward)
    if adapter is not None and sharding.backend == "fsdp1" and workload.checkpointing == "full":
        moments.append(_first_layer(model, backward, sharding, workload))
    if adapter is None:
        on_card = structs.replace(sharding, offload="") if sharding.trains_on_card else sharding
        step = trained_share * step_gib(part, states, on_card)
    else:
        step = (held["adapters"] + held["gradients"]) * states.stepping / states.resident
    moments.append(Moment(moment="optimizer step", parts_gib={**held, "step": step}))
    if sync is not None:
        moments.append(_sync(model, idle, sharding, sync))
    knob, reason = training_knob(max(moments, key=lambda m: m.total_gib), sharding, workload, sync)
    return RoleEstimate(
        role=role,
        gpus=sharding.gpus,
        capacity_gib=capacity_gib,
        moments=tuple(moments),
        error=_error(model, sharding, adapted=adapter is not None),
        knob=knob,
        reason=reason,
    )


def _error(model: Architecture, sharding: Sharding, *, adapted: bool) -> Doubt:
    """Shares by which nine of ten measured peaks of such a configuration were off at most."""
    linear = model.linear is not None and model.linear.kind != "conv"
    moved = bool(sharding.offload) and sharding.backend != "deepspeed"
    if linear or moved:
        return UNSURE_ERROR
    if sharding.backend == "deepspeed" and sharding.buckets_by_width:
        return TRAINING_ERROR
    sharded = sharding.backend in ("fsdp", "fsdp1") and (model.experts is None or adapted)
    return TRAINING_ERROR if sharded else OTHERS_ERROR


def _phases(hold: Callable[[Sharding], Parts], sharding: Sharding) -> tuple[Parts, Parts, Parts]:
    """What is on the card between steps, in a pass without gradients, and while it trains."""
    held = hold(sharding)
    # ZeRO-3 of DeepSpeed allocates gradients once and for all; others free them after each step.
    keeps = sharding.backend == "deepspeed" and sharding.zero_stage == 3
    idle = held if keeps else _without(held, "gradients")
    if not (sharding.trains_on_card and sharding.offload):
        return idle, idle, held
    held = hold(structs.replace(sharding, offload=""))
    return idle, _without(held, "gradients", "optimizer"), held


def _held(
    model: Architecture,
    part: Slice,
    sharding: Sharding,
    states: States,
    adapter: Adapter | None,
    workload: Workload,
    trained_share: float,
) -> Parts:
    """What a card holds between micro-batches: weights, gradients, optimizer states, CUDA's context."""
    parts = {"context": CUDA_CONTEXT_GIB + _communicators_gib(sharding)}
    if adapter is None:
        kept = state_gib(part, states, sharding)
        parts |= {name: size if name == "weights" else trained_share * size for name, size in kept.items()}
    else:
        parts |= frozen_gib(model, part, adapter, sharding)
    if workload.reference:
        frozen = part.shard if sharding.zero_stage == 3 else part.whole
        parts["reference"] = workload.reference * frozen * states.compute / GIB
    return parts


def _cast(part: Slice, states: States, sharding: Sharding) -> Parts:
    """The 16-bit copies that ``torch.autocast`` keeps of float32 weights during a pass, where nobody shards them."""
    autocast = sharding.backend == "plain" and states.weights > states.compute
    return {"cast weights": part.whole * states.compute / GIB} if autocast else {}


def _communicators_gib(sharding: Sharding) -> float:
    """What NCCL holds; Megatron has groups of their own along each way in which it divides a model."""
    if sharding.gpus == 1:
        return 0.0
    if sharding.backend != "megatron":
        return NCCL_GIB
    ways = (sharding.tensor_parallel, sharding.pipeline_parallel, sharding.context_parallel, sharding.expert_parallel)
    dispatch = NCCL_EXPERTS_GIB if sharding.expert_parallel > 1 else 0.0
    return NCCL_GIB + NCCL_WAY_GIB * sum(degree > 1 for degree in ways) + dispatch


def _without(parts: Parts, *names: str) -> Parts:
    return {name: size for name, size in parts.items() if name not in names}


def _tokens(sharding: Sharding, workload: Workload) -> float:
    """A GPU's share of the tokens; GPUs that divide matrices share them, but for norms (``whole_norm_bytes``)."""
    return workload.tokens / (sharding.tensor_parallel * sharding.context_parallel)


def _logits_gib(
    model: Architecture, sharding: Sharding, workload: Workload, *, passes: float = 1.0, float32: bool = False
) -> Parts:
    """Logits and what the loss makes of them, and the blocks that the allocator keeps of it."""
    if workload.head in ("none", "chunked"):
        return {"logits": CHUNKED_HEAD_GIB if workload.head == "chunked" else 0.0}
    share = workload.tokens if workload.head_tokens is None else workload.head_tokens
    logits = share / (sharding.tensor_parallel * sharding.context_parallel) * model.vocab * passes / GIB
    # A loss over divided logits keeps shifted copies of its own (torch's loss_parallel), whoever drops the logits.
    head = "full" if workload.head == "freed" and sharding.tensor_parallel > 1 else workload.head
    more = CAPPED_LOGIT if model.capped_logits and workload.kernels != "fused" else 0.0
    more += FLOAT32_LOGIT if float32 and head == "full" else 0.0
    parts = {"logits": logits * (HEAD_BYTES[head] + more)}
    return parts if head not in CACHED_LOGIT else {**parts, "cached blocks": logits * CACHED_LOGIT[head]}


def _forward(
    model: Architecture,
    idle: Parts,
    gathered: Parts,
    sharding: Sharding,
    workload: Workload,
    adapter: Adapter | None,
) -> Moment:
    """A forward pass that keeps nothing; the logits have no gradient."""
    layer = forward_layer_bytes(model) * _tokens(sharding, workload)
    parts = {
        **idle,
        **_without(gathered, "buffers"),
        "layer": (layer + workload.sequences * workload.length**2 * 3 * workload.mask) / GIB,
        **_logits_gib(model, sharding, workload, passes=0.5),
    }
    if stack := merged_stack_bytes(model, adapter)[0]:
        parts["merged experts"] = stack / GIB
    return Moment(moment="log-probs", parts_gib=parts)


def _backward(
    model: Architecture,
    held: Parts,
    gathered: Parts,
    sharding: Sharding,
    workload: Workload,
    states: States,
    *,
    adapter: Adapter | None,
) -> Moment:
    """The backward pass: all that layers kept, one layer recomputed, the logits, and gradients of earlier batches.

    Of Megatron's pipeline (1F1B) the first stage has a micro-batch in flight for each stage and no logits, the last one
    a single micro-batch with its logits; the fuller of the two counts.
    """
    stages = sharding.pipeline_parallel
    in_flight = min(stages, workload.pipeline_micro_batches or stages)
    float32 = adapter is not None and adapter.float32_ends
    residual = 4 if float32 or "cast weights" in held else 2  # autocast adds 16-bit outputs to a float32 embedding
    kept = _kept_gib(model, sharding, workload, adapter, residual=residual)
    logits = _logits_gib(model, sharding, workload, float32=float32)
    if stages > 1 and sharding.backend == "megatron":
        first, last = kept * in_flight, kept + logits["logits"]
        kept, logits = (first, {"logits": 0.0}) if first >= last else (kept, logits)
    else:
        kept *= in_flight
    all_scores, a_layers_scores = eager_score_bytes(model, sharding, workload)
    once = mask_bytes(model, workload) + score_bytes(model, sharding, workload) + all_scores
    if sharding.gathers_keys and sharding.context_parallel > 1:
        once += whole_keys_bytes(model) * workload.tokens / sharding.tensor_parallel
    parts = {
        **held,
        **gathered,
        "activations": kept + once / GIB,
        "layer": _layer_gib(model, sharding, workload, adapter) + a_layers_scores / GIB,
        **logits,
        **_merged_stacks(model, sharding, workload, adapter),
    }
    if sharding.defers_sync and workload.accumulates and adapter is None:
        parts["gradients"] = slice_of(model, sharding).whole * DEFERRED_GRADIENT / GIB
    if workload.head in LOGITS_GO_FIRST:
        parts[min("layer", "logits", key=parts.__getitem__)] = 0.0
    leaves = sharding.backend == "deepspeed" and sharding.offload in ("optimizer", "all")
    if (leaves or not workload.accumulates) and "gradients" in parts:
        # Gradients come while activations go: the larger of the two is there, not both.
        parts["gradients"] -= min(parts["gradients"], parts["activations"] + parts["logits"])
    end = held if adapter is not None else _last_gradients(model, {**held, **gathered}, sharding, states)
    return max(
        Moment(moment="backward", parts_gib=parts), Moment(moment="backward", parts_gib=end), key=lambda m: m.total_gib
    )


def _last_gradients(model: Architecture, held: Parts, sharding: Sharding, states: States) -> Parts:
    """The end of a backward pass of DeepSpeed's ZeRO-2 that adds up gradients in float32: all is there in 16 bits, too.

    A rank keeps the 16-bit gradients of its partition until the last of them, that of the embedding, which is as large
    as the head and is made beside the head's where the two are tied (``get_flat_partition`` of ``stage_1_and_2.py``).
    """
    if (sharding.backend, sharding.zero_stage, sharding.offload) != ("deepspeed", 2, ""):
        return held
    if states.gradients <= states.compute:
        return held
    last = held.get("gradients", 0.0) * states.compute / states.gradients
    embedding = states.compute * model.vocab * model.hidden / GIB if model.tied else 0.0
    return {**held, "16-bit gradients": last + embedding}


def _kept_gib(
    model: Architecture, sharding: Sharding, workload: Workload, adapter: Adapter | None, *, residual: float
) -> float:
    """What the layers of a GPU keep of one micro-batch until its backward pass."""
    if workload.checkpointing == "offload":
        kept = OFFLOADED_IN_FLIGHT * 2.0 * model.hidden
    else:
        a_layer = kept_layer_bytes(model, workload, adapter, residual=residual)
        a_layer += whole_norm_bytes(model, sharding, workload, trained=adapter is None)[0]
        if workload.checkpointing == "full":
            a_layer /= workload.layers_at_once
        if workload.checkpointing == "none":
            a_layer += gathered_input_bytes(model, sharding, adapted=adapter is not None)
        if workload.checkpointing == "selective":
            a_layer += scattered_output_bytes(model, sharding)
        kept = a_layer * model.layers / sharding.pipeline_parallel
    if sharding.pipeline_parallel > 1:
        kept += 2 * model.hidden  # a stage keeps its outputs besides its layers' inputs
    return kept * _tokens(sharding, workload) / GIB


def _merged_stacks(model: Architecture, sharding: Sharding, workload: Workload, adapter: Adapter | None) -> Parts:
    """Experts with their updates added: of all layers until the backward pass, or of the one that is recomputed."""
    stack, gradient = merged_stack_bytes(model, adapter)
    if not stack or model.experts is None:
        return {}
    layers = model.experts.layers / sharding.pipeline_parallel if workload.checkpointing == "none" else 1
    return {"merged experts": (stack * layers + gradient) / GIB}


def _layer_gib(model: Architecture, sharding: Sharding, workload: Workload, adapter: Adapter | None) -> float:
    """The layer, or layers, that a GPU recomputes, at the peak of their backward pass; else the gradients of one."""
    if workload.checkpointing == "none" and workload.kernels == "eager":
        layer = passing_gradients_bytes(model)
    elif sharding.backend == "megatron" and workload.checkpointing == "full":
        layer = fused_layer_bytes(model, workload.layers_at_once)
    else:
        layer = recomputed_layer_bytes(model, trained=adapter is None, delta_rule=workload.delta_rule)
        layer += adapter_input_bytes(model, adapter)
        if adapter is not None and adapter.float32_ends:
            layer *= 2  # what quantised matrices give out is turned back into the numbers of the residual stream
    layer += whole_norm_bytes(model, sharding, workload, trained=adapter is None)[1]
    return layer * _tokens(sharding, workload) / GIB


def _first_layer(model: Architecture, backward: Moment, sharding: Sharding, workload: Workload) -> Moment:
    """The end of a backward pass with the first FSDP: the logits are gone, but each layer's input has its gradient.

    FSDP frees a frozen layer's weights by a hook on the gradient of its input (``register_multi_grad_hook``, PyTorch's
    pull request 101982). With adapters and checkpointing, inputs and their gradients stay until the first layer is
    done: in fms-acceleration's table of Llama-3-8B allocated memory grows by 4 h a layer and token there, but by 2 h on
    one GPU, and with FSDP where every weight is trained.
    """
    parts = _without(backward.parts_gib, "logits", "cached blocks")
    layers = model.layers / sharding.pipeline_parallel
    parts["input gradients"] = 2 * model.hidden * layers * _tokens(sharding, workload) / GIB
    return Moment(moment="first layer", parts_gib=parts)


def _sync(model: Architecture, idle: Parts, sharding: Sharding, sync: WeightSync) -> Moment:
    """Weights on their way to the engines: a bucket, and what is gathered of a ZeRO-3 model."""
    parts = dict(idle)
    count = count_parameters(model)
    parts["bucket"] = min(sync.bucket_gib, count.total * sync.item_bytes / GIB)
    if sync.gather == "layer":
        largest = max(count.largest_layer, count.embedding)
        parts["gathered"] = (largest if sharding.zero_stage == 3 else 0) * sync.item_bytes / GIB
    else:
        copies = 2 if sync.gather == "clone" else 1
        parts["gathered"] = (count.total if sharding.zero_stage == 3 else 0) * sync.item_bytes * copies / GIB
    return Moment(moment="weight sync", parts_gib=parts)
