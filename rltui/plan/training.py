"""How long learners take for a step.

Matrix products and attention reach shares of the peak FLOP/s, the tensors between them move at a share of the
bandwidth, ZeRO's traffic runs beside both, and the optimizer passes over its states in the end.
"""

from __future__ import annotations

import math
from operator import itemgetter
from typing import TYPE_CHECKING

from rltui.hardware.flops import BACKWARD_FACTOR, forward_flops_per_token
from rltui.hardware.parameters import count_parameters
from rltui.memory.activations import CACHED_LOGIT, HEAD_BYTES, mean_layer_bytes
from rltui.memory.states import zero_traffic
from rltui.plan.cards import (
    COPY_BANDWIDTH_SHARE,
    ITEM_BYTES,
    host_bytes_per_s,
    link_bytes_per_s,
    nvlink_gpus,
    of_bandwidth,
    of_peak,
    rates,
    ring_bytes_per_s,
)
from rltui.plan.experts import dispatch_s, launch_s, waiting_flops
from rltui.plan.rates import attention_share

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.request import Request
    from rltui.plan.setup import Training

LAUNCH_S = 150e-6
"""In which Python launches the kernels of one layer's pass (about 25 of 6 µs): no pass of a layer takes less, however
few tokens there are. Assumed."""

HOST_BYTES_PER_S = 200e9
"""Of a node's host memory, while its ranks step an offloaded optimizer together: about a third of what two sockets of
eight DDR5 channels have. Assumed."""

OPTIMIZER_BYTES = 28
"""Bytes that AdamW moves for each parameter: float32 gradient, master weight and two moments, read and written."""

HOST_STEP_BYTES = OPTIMIZER_BYTES + 4 + 8 + 6
"""The same of host memory where the states are there: the float32 gradient also arrives, and is read and written to be
clipped; and the host turns the new float32 weight into 16 bits before it leaves (DeepSpeed's ``stage3.py``)."""

HOST_GRADIENT_BYTES = 4
"""Of a gradient on its way to host memory: DeepSpeed turns it into float32 on the card, before it is copied."""

STATE_BYTES = 12
"""Of each parameter's master weight and two moments."""

TENSOR_EXPOSED = 0.7
"""Share of what ranks that divide matrices send each other for which they wait. Chosen on torchtitan's Llama-3.1 on 64
and 256 H100 at tensor parallel 8: whole for the 8B without asynchronous collectives, less for the 70B."""

TENSOR_MOVES = 2
"""Times that each tensor of a layer moves in a pass: written by one kernel, read by another."""


def train_s(request: Request, learner: Training, critic: Architecture | None = None) -> tuple[float, str]:
    """Seconds of log-probs, forward, backward and optimizer on the fullest rank, and what bounds them.

    A micro-batch is padded to its longest sample. ZeRO-3 gathers the weights in each pass and scatters gradients,
    ZeRO-2 scatters gradients (Rajbhandari et al. 2020). Where that traffic runs beside the computation
    (``zero_traffic``, by which the trainers configure DeepSpeed), the longer of the two counts, else their sum.

    Args:
        request: What is planned for.
        learner: How the model is trained.
        critic: The critic's shape, whose values take the place of log-probs and whose head is one number; None: the
            policy.
    """
    micro_batches, pass_s, update_s, bound = train_terms(request, learner, critic)
    return micro_batches * pass_s * (1 + _bubble(request, learner)) + update_s, bound


def train_terms(
    request: Request, learner: Training, critic: Architecture | None = None
) -> tuple[int, float, float, str]:
    """Micro-batches of a step, seconds of all passes of one, seconds of the optimizer, and what bounds the passes."""
    model = request.model if critic is None else critic
    scored = request.log_prob_passes if critic is None else 1
    # forward, backward, and the forward pass that is recomputed
    passes = scored + request.epochs * (1 + BACKWARD_FACTOR + learner.gradient_checkpointing)
    compute_s = _passes_s(request, model, learner, passes, head=critic is None)
    talk_s = _zero_bytes(request, model, learner, scored) / ring_bytes_per_s(request, _same_parts(learner))
    update_s = request.updates * optimizer_s(request, model, learner)
    sent = _sent_passes(passes, request.epochs)
    tokens = _micro_batch_tokens(request, learner)[0] / learner.sharing
    swap_s, parts_s = sent * _exchange_s(request, model, learner), sent * _division_s(request, model, learner, tokens)
    exchanges = "the ring of context" if learner.megatron else "Ulysses' exchanges"
    terms = (
        (compute_s, "FLOPs"),
        (talk_s, "ZeRO's traffic"),
        (swap_s, exchanges),
        (parts_s, "divided layers"),
    )
    overlaps = zero_traffic(learner.zero_stage, model.hidden).overlaps
    pass_s = max(compute_s, talk_s) if overlaps else compute_s + talk_s
    return _micro_batches(request, learner), pass_s + swap_s + parts_s, update_s, max(terms, key=itemgetter(0))[1]


def _sent_passes(passes: int, epochs: int = 1) -> int:
    """Passes in which activations travel: the two of each backward pass send the gradients of one."""
    return max(1, passes - epochs * (BACKWARD_FACTOR - 1))


def _division_s(request: Request, model: Architecture, learner: Training, tokens: float) -> float:
    """Seconds in which ranks wait for each other's parts of layers in one pass, for ``tokens`` of each rank's own.

    Divided along the sequence (Korthikanti et al. 2022), activations are gathered before each divided part of a layer
    and scattered behind it: twice for attention of any kind, twice for a dense feed-forward network. Experts get their
    tokens and give them back, over the network or, where their matrices are divided like all others, as these do.
    """
    width, seconds = learner.tensor_parallel, dispatch_s(request, model, learner, tokens)
    if width > 1:
        parts = model.softmax_layers + model.dense_layers + (model.linear.layers if model.linear else 0)
        parts += model.experts.layers if model.experts and learner.expert_parallel == 1 else 0
        sent = 2 * ITEM_BYTES * model.hidden * (width - 1) * parts * tokens
        bundles = learner.gpus[:1] if width <= nvlink_gpus(request) else learner.gpus
        seconds += TENSOR_EXPOSED * sent / link_bytes_per_s(request, bundles)
    return seconds


def _bubble(request: Request, learner: Training) -> float:
    """Time in which a pipeline fills and empties, as a share of what it works: (p - 1) / (v m).

    Of p stages, m micro-batches of an optimizer step and v parts of a stage that take turns (Narayanan et al. 2021).
    """
    micro_batches = _micro_batches(request, learner) / request.optimizer_steps
    return (learner.pipeline_parallel - 1) / (learner.virtual_stages * micro_batches)


def _exchange_s(request: Request, model: Architecture, learner: Training) -> float:
    """Seconds in which ranks that share rows exchange heads for tokens in one pass of a micro-batch; nothing hides it.

    In each layer a rank keeps its part of queries, keys, values and the attention's output of its tokens, and sends the
    other ranks theirs (Jacobs et al. 2023, DeepSpeed Ulysses); key heads are copied where there are fewer than ranks.
    The backward pass sends the gradients of the same. Megatron's ranks pass keys and values on in a ring (Liu et al.
    2023) while they attend to those that came before: what takes longer than that is waited for.
    """
    size = learner.sequence_parallel
    if size == 1:
        return 0.0
    tokens, length = _micro_batch_tokens(request, learner)
    sent = (2 * model.heads + 2 * max(model.kv_heads, size)) * model.head_dim * (size - 1) / size
    hidden_s = 0.0
    if learner.megatron:
        sent, hidden_s = 2.0 * model.kv_dim * (size - 1), tokens * _attention_s(request, model, length) / size
    sent *= model.softmax_layers * tokens / size * ITEM_BYTES / (learner.tensor_parallel * learner.pipeline_parallel)
    inside = learner.tensor_parallel * size <= min(learner.gpus)
    return max(0.0, sent / link_bytes_per_s(request, learner.gpus[:1] if inside else learner.gpus) - hidden_s)


def optimizer_s(request: Request, model: Architecture, learner: Training) -> float:
    """Seconds of AdamW's pass over its states: on the card, or in the host memory that a node's ranks share.

    Offloaded, gradients come from the card and weights go back to it; or all states come to the card, and leave it.
    Where ranks share the optimizer alone (stage 1), gradients in float32 are added up and new weights gathered then.
    """
    mine = count_parameters(model).total / learner.ranks
    shared_s = 0.0
    if learner.zero_stage == 1:
        sent = (4 + ITEM_BYTES) * kept_parameters(model, learner)
        shared_s = sent / ring_bytes_per_s(request, _same_parts(learner))
    if not learner.offload or learner.trains_on_card:
        step_s = OPTIMIZER_BYTES * mine / of_bandwidth(request, COPY_BANDWIDTH_SHARE)
        moved = 2 * STATE_BYTES * mine if learner.offload else 0.0
        return shared_s + step_s + moved / host_bytes_per_s(request)
    moved_s = shared_s + (HOST_GRADIENT_BYTES + ITEM_BYTES) * mine / host_bytes_per_s(request)
    return moved_s + HOST_STEP_BYTES * mine * max(learner.gpus) / HOST_BYTES_PER_S


def _rows(request: Request, learner: Training) -> int:
    """Rows of the fullest rank: samples, or what holds them where they share rows."""
    rows = float(request.samples_per_step)
    if learner.packed_tokens:
        rows *= _mean_length(request) / learner.packed_tokens
    return math.ceil(rows / learner.replicas)


def _micro_batches(request: Request, learner: Training) -> int:
    """Micro-batches of one pass over the samples; none has rows of two optimizer steps."""
    rows = -(-_rows(request, learner) // request.optimizer_steps)
    return request.optimizer_steps * -(-rows // min(rows, learner.micro_batch))


def _mean_length(request: Request) -> float:
    return request.prompt_tokens + request.mean_tokens


def _passes_s(request: Request, model: Architecture, learner: Training, passes: int, *, head: bool) -> float:
    """Seconds in which one micro-batch passes ``passes`` times through ``model``; packed rows have no padding."""
    tokens, attended = _micro_batch_tokens(request, learner)
    return passes * _pass_s(request, model, learner, tokens / learner.sharing, attended, head=head)


def _micro_batch_tokens(request: Request, learner: Training) -> tuple[float, float]:
    """Tokens of a micro-batch, padding included, and the length of its samples; the last one has what is left."""
    size = _rows(request, learner) / _micro_batches(request, learner)
    length = request.prompt_tokens + request.longest_of(size)
    if learner.packed_tokens:
        return size * learner.packed_tokens, _mean_length(request)
    return size * length, length


def training_compute_s(request: Request, learner: Training, model: Architecture, passes: int) -> float:
    """Seconds of ``passes`` through ``model`` with all samples packed and divided evenly: no padding, no ZeRO."""
    length, micro_batches = _mean_length(request), _micro_batches(request, learner)
    tokens = request.samples_per_step * length / learner.ranks
    pass_s = passes * micro_batches * _pass_s(request, model, learner, tokens / micro_batches, length, head=True)
    sent_s = _sent_passes(passes) * _division_s(request, model, learner, tokens)
    return (pass_s + sent_s) * (1 + _bubble(request, learner))


def _pass_s(
    request: Request, model: Architecture, learner: Training, tokens: float, length: float, *, head: bool
) -> float:
    """Seconds in which ``tokens`` in sequences of ``length`` pass once through ``model``.

    Norms, activations and rotations wait for memory, not for FLOPs: each tensor of a layer at its backward peak is
    written and read in a pass, in the mean over forward, recomputation and backward pass. That makes narrow models, and
    cards with much bandwidth for their FLOP/s, as fast as they are: their size needs no share of its own.
    """
    matrices = forward_flops_per_token(model, 0, head)
    compute_s = (matrices + waiting_flops(model, learner)) / of_peak(request, rates(request, model).training)
    compute_s += _attention_s(request, model, length)
    layer_bytes = mean_layer_bytes(model, megatron=learner.megatron)
    logit = HEAD_BYTES["full"] + CACHED_LOGIT["full"] if head else 0
    moved = TENSOR_MOVES * (model.layers * layer_bytes + logit * model.vocab)
    moved_s = moved / of_bandwidth(request, COPY_BANDWIDTH_SHARE)
    least_s = model.layers / learner.pipeline_parallel * LAUNCH_S
    return max(tokens * (compute_s + moved_s), least_s) + launch_s(model, learner)


def _attention_s(request: Request, model: Architecture, length: float) -> float:
    """Seconds in which one token of a sequence of ``length`` attends to those before it, in all layers."""
    flops = forward_flops_per_token(model, length / 2) - forward_flops_per_token(model, 0)
    return flops / of_peak(request, attention_share(request.gpu))


def reference_s(request: Request, learner: Training) -> float:
    """Seconds in which the reference on the learner's GPUs passes all samples once.

    Where its weights are divided over them, each layer is gathered in every pass; Megatron's is cut as the learner is.
    """
    compute_s = _passes_s(request, request.model, learner, 1, head=True)
    if learner.megatron:
        tokens = _micro_batch_tokens(request, learner)[0] / learner.sharing
        compute_s += _division_s(request, request.model, learner, tokens)
        return _micro_batches(request, learner) * compute_s * (1 + _bubble(request, learner))
    size = ITEM_BYTES * count_parameters(request.model).total * (learner.ranks - 1) / learner.ranks
    if request.reference_stage == 0:
        size = 0.0
    return _micro_batches(request, learner) * max(compute_s, size / ring_bytes_per_s(request, learner.gpus))


def kept_parameters(model: Architecture, learner: Training) -> float:
    """Parameters of a rank's part of the model, as it is cut before ZeRO shares it."""
    count, stages = count_parameters(model), learner.pipeline_parallel
    shared, routed = (count.total - count.routed) / learner.tensor_parallel, count.routed / learner.expert_cut
    return (shared + routed) / stages


def _same_parts(learner: Training) -> tuple[int, ...]:
    """Cards of each node that hold the same part of each matrix: those among which ZeRO gathers and scatters."""
    return tuple(max(1, gpus // learner.tensor_parallel) for gpus in learner.gpus)


def _zero_bytes(request: Request, model: Architecture, learner: Training, scored: int) -> float:
    """Bytes that each rank sends for one micro-batch; where the optimizer alone is shared, a step sends, not those."""
    if learner.zero_stage == 1:
        return 0.0
    # ZeRO-3 gathers for log-probs, forward, recomputation and backward, and scatters gradients; ZeRO-2 the last
    passes = request.epochs
    if learner.zero_stage == 3:
        passes = scored + request.epochs * (3 + learner.gradient_checkpointing)
    parts = learner.tensor_parallel * learner.pipeline_parallel
    # (n - 1) / n, as of a ring of the n = ranks / parts that hold the same part
    share = (learner.ranks - parts) / learner.ranks
    return passes * ITEM_BYTES * count_parameters(model).total / parts * share
