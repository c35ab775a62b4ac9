"""How long a step would take: a roofline for each phase, with every assumption a constant here.

The figures rank layouts against each other; they are no promise. Lengths of responses are taken as evenly spread
between nothing and the limit, so the mean is half of it and the longest of a step is the limit itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.hardware.flops import forward_flops_per_token, training_flops_per_token
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.parameters import count_parameters
from rltui.memory.from_layout import ENGINE_SEQUENCES

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu
    from rltui.plan.candidates import EngineChoice, LearnerChoice, Request

ITEM_BYTES = 2
"""Weights, gradients and KV cache travel in 16 bits."""

DECODE_BANDWIDTH_SHARE = 0.6
"""Share of a card's memory bandwidth that decoding reaches; assumed, kernels alone reach 0.8 to 0.9."""

PREFILL_FLOPS_SHARE = 0.5
"""Share of the peak FLOP/s that prefill reaches; assumed."""

TRAINING_FLOPS_SHARE = 0.35
"""Share of the peak FLOP/s in training; assumed. Published runs report an MFU of 0.3 to 0.5 (Llama 3, 2024: 0.38 to
0.43 on 8,192 H100 and more)."""

SMALL_BATCH_TOKENS = 1024
"""Tokens of a micro-batch at which training reaches half of that share: smaller kernels fill no card. Assumed."""

LINK_SHARE = 0.7
"""Share of a link's bandwidth that a collective reaches; assumed."""

NETWORK_BYTES_PER_S = 50e9
"""Between nodes, for each GPU and direction: one 400 Gb/s adapter a GPU. Assumed; nothing in a layout says it."""

PCIE_BYTES_PER_S = 25e9
"""Between cards of a node without NVLink: PCIe 4.0 ×16 less its overhead."""

NVLINK_BYTES_PER_S = {
    "V100-SXM": 150e9,
    "A100-SXM": 300e9,
    "A800-SXM": 200e9,
    "H100-SXM": 450e9,
    "H800-SXM": 200e9,
    "H200-SXM": 450e9,
    "GH200": 450e9,
    "H20-": 450e9,
    "B200": 900e9,
    "B300": 900e9,
    "GB200": 900e9,
    "GB300": 900e9,
}
"""One direction, by the first letters of a card's name: half of what NVIDIA's data sheets state for both."""

DECODE_OVERHEAD_S = 2e-3
"""Scheduling and sampling of one decode step; assumed."""

ALL_REDUCE_S = 15e-6
"""Latency of one all-reduce of an engine's GPUs; each layer has two. Assumed."""

OPTIMIZER_BYTES = 28
"""Bytes that AdamW moves for each parameter: float32 gradient, master weight and two moments, read and written."""


class StepTime(Struct, frozen=True, kw_only=True):
    """One training step, in seconds, and who waits meanwhile.

    Attributes:
        generate_s: From the first prompt to the last token.
        train_s: Log-probs, forward, backward and optimizer.
        sync_s: New weights to the engines.
        step_s: All of it: generation and training one after the other, or at once where rollouts run ahead.
        idle_share: GPU time of the whole cluster that nothing uses.
        tokens_per_s: Response tokens that are generated and trained on.
        decode_bound: What decoding waits for at the full batch.
        train_bound: What training waits for.
    """

    generate_s: float
    train_s: float
    sync_s: float
    step_s: float
    idle_share: float
    tokens_per_s: float
    decode_bound: str
    train_bound: str


def link_bytes_per_s(gpu: Gpu, gpus: tuple[int, ...]) -> float:
    """Bandwidth of a collective over bundles of ``gpus``: NVLink or PCIe in one node, else the network if slower."""
    inside = next((rate for name, rate in NVLINK_BYTES_PER_S.items() if gpu.name.startswith(name)), PCIE_BYTES_PER_S)
    return LINK_SHARE * (inside if len(gpus) == 1 else min(inside, NETWORK_BYTES_PER_S))


def decode_step_s(request: Request, width: int, batch: float) -> tuple[float, str]:
    """Seconds in which an engine gives ``batch`` sequences one more token, and what bounds it.

    Each step reads the weights once for the whole batch and the KV cache of every sequence (Pope et al. 2022): bound by
    bandwidth until the batch's FLOPs take longer. Of a mixture of experts the batch reads the experts that it visits.
    """
    model, gpu = request.model, request.gpu
    context = _mean_context(request)
    read = _weight_bytes(model, batch) / width + batch * kv_layers(model, width).sequence_bytes(int(context))
    memory_s = read / (gpu.bandwidth * DECODE_BANDWIDTH_SHARE)
    compute_s = batch * forward_flops_per_token(model, context) / (width * gpu.peak_flops * PREFILL_FLOPS_SHARE)
    talk_s = 2 * model.layers * ALL_REDUCE_S if width > 1 else 0.0
    bound = "memory bandwidth" if memory_s >= compute_s else "FLOPs"
    return max(memory_s, compute_s) + talk_s + DECODE_OVERHEAD_S, bound


def _mean_context(request: Request) -> float:
    """Tokens behind a sequence in flight: with evenly spread lengths, a third of the limit is the mean over time."""
    return request.prompt_tokens + request.response_tokens / 3


def _weight_bytes(model: Architecture, batch: float) -> float:
    count = count_parameters(model)
    lookup = 0 if model.tied else count.embedding
    visited = 1.0
    if model.experts is not None:
        visited = 1 - (1 - model.experts.top_k / model.experts.count) ** batch
    return ITEM_BYTES * (count.text - lookup - count.routed * (1 - visited))


def generate_s(request: Request, engine: EngineChoice, engines: int) -> tuple[float, str]:
    """Seconds until the busiest engine has all its samples, and what bounds decoding.

    While samples wait, as many as fit are in flight; after that the batch shrinks as they end, down to the longest.
    Prompts are prefilled once: their samples share the cache.
    """
    width, limit = engine.tensor_parallel, request.response_tokens
    prompts = -(-request.prompts // engines)
    samples = prompts * request.samples
    held = (engine.engine.kv_tokens or 0) / (request.prompt_tokens + limit / 2)
    flight = max(1.0, min(samples, ENGINE_SEQUENCES, held))
    full_s, bound = decode_step_s(request, width, flight)
    drain_s = limit * decode_step_s(request, width, max(1.0, flight / 2))[0]
    queued_s = (samples - flight) * limit / 2 / flight * full_s
    prefill = prompts * request.prompt_tokens * forward_flops_per_token(request.model, request.prompt_tokens / 2)
    prefill_s = prefill / (width * request.gpu.peak_flops * PREFILL_FLOPS_SHARE)
    return prefill_s + queued_s + drain_s, bound


def train_s(request: Request, learner: LearnerChoice) -> tuple[float, str]:
    """Seconds of log-probs, forward, backward and optimizer on the fullest rank, and what bounds them.

    A micro-batch is padded to its longest sample: of m evenly spread lengths that is m/(m+1) of the limit. ZeRO-3
    gathers the weights in each pass and scatters gradients, ZeRO-2 scatters gradients (Rajbhandari et al. 2020); that
    traffic runs beside the computation, so the longer of the two counts.
    """
    rows = -(-request.samples_per_step // learner.ranks)
    size = min(rows, learner.micro_batch)
    length = request.prompt_tokens + request.response_tokens * size / (size + 1)
    per_token = training_flops_per_token(request.model, length, recompute=learner.gradient_checkpointing)
    per_token += forward_flops_per_token(request.model, length / 2)
    tokens = size * length
    share = TRAINING_FLOPS_SHARE * tokens / (tokens + SMALL_BATCH_TOKENS)
    compute_s = tokens * per_token / (request.gpu.peak_flops * share)
    talk_s = _zero_bytes(request.model, learner) / link_bytes_per_s(request.gpu, learner.gpus)
    states = OPTIMIZER_BYTES * count_parameters(request.model).total / learner.ranks
    update_s = states / (request.gpu.bandwidth * DECODE_BANDWIDTH_SHARE)
    bound = "FLOPs" if compute_s >= talk_s else "ZeRO's traffic"
    return -(-rows // size) * max(compute_s, talk_s) + update_s, bound


def _zero_bytes(model: Architecture, learner: LearnerChoice) -> float:
    """Bytes that each rank sends for one micro-batch."""
    passes = 1 if learner.zero_stage == 2 else 4 + learner.gradient_checkpointing
    share = (learner.ranks - 1) / learner.ranks
    return passes * ITEM_BYTES * count_parameters(model).total * share


def sync_s(request: Request, learner: LearnerChoice) -> float:
    """Seconds in which learner rank 0 gathers all weights (ZeRO-3) and broadcasts them whole to every engine GPU."""
    size = ITEM_BYTES * count_parameters(request.model).total
    everyone = (1,) * request.nodes
    gather_s = size / link_bytes_per_s(request.gpu, learner.gpus) if learner.zero_stage == 3 else 0.0
    return gather_s + size / link_bytes_per_s(request.gpu, everyone)


def step_time(request: Request, learner: LearnerChoice, engine: EngineChoice, engines: int) -> StepTime:
    """Put the phases together."""
    generate, decode_bound = generate_s(request, engine, engines)
    train, train_bound = train_s(request, learner)
    sync = sync_s(request, learner)
    step = (max(generate, train) if request.async_steps else generate + train) + sync
    busy = learner.ranks * (train + sync) + engines * engine.tensor_parallel * (generate + sync)
    return StepTime(
        generate_s=generate,
        train_s=train,
        sync_s=sync,
        step_s=step,
        idle_share=1 - busy / (request.total_gpus * step),
        tokens_per_s=request.samples_per_step * request.response_tokens / 2 / step,
        decode_bound=decode_bound,
        train_bound=train_bound,
    )
