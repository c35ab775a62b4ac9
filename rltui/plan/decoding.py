"""How long engines take to generate: each decode step reads the weights once, and the cache of all in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.hardware.flops import forward_flops_per_token
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.parameters import count_parameters
from rltui.plan.cards import (
    ITEM_BYTES,
    link_bytes_per_s,
    network_bytes_per_s,
    nvlink_gpus,
    of_bandwidth,
    of_peak,
    rates,
)
from rltui.plan.rates import PREFILL_FLOPS_SHARE

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.request import Request
    from rltui.plan.setup import EngineChoice

DECODE_OVERHEAD_S = 2e-3
"""Scheduling of one decode step; assumed."""

DECODE_LAYER_S = 50e-6
"""Of each layer in a decode step, whatever it reads: kernels follow each other. Chosen on published times of one
sequence in vLLM, where a 0.6B model takes 4.2 ms a token and reads its weights in 0.6 (``tests/truth/plan.py``)."""

EAGER_LAYER_S = 300e-6
"""In which Python launches the kernels of one layer of a decode step, where there are no CUDA graphs: about twenty."""

EAGER_EXPERTS_S = 350e-6
"""The same of those by which a layer finds each token's experts, and gives it to them."""

EAGER_ALL_REDUCE_S = 60e-6
"""The same of one all-reduce. These three were chosen on half of verl's published runs of 7B, 30B-A3B and 32B, which
are bound by their longest responses (``tests/truth/plan.py``)."""

DECODE_SEQUENCE_S = 20e-6
"""Of each sequence in a decode step: sampling, detokenising and bookkeeping. Chosen with the three above."""

DECODE_FLOPS_SHARE = 0.35
"""Share of the peak FLOP/s that the matrix products of a decode step reach where the batch is large. This
and the time of an all-reduce were chosen on ML.ENERGY's table (vLLM on H100, 8 to 512 sequences)."""

CACHE_SHARE = 0.7
"""Of the bandwidth with which weights are read, what attention reaches with the cache of a batch. Chosen on decode
steps of 64 and more sequences in vLLM (ML.ENERGY), and on whole steps."""

ALL_REDUCE_S = 5e-6
"""Latency of one all-reduce of an engine's GPUs; each layer has two."""

ALL_REDUCE_OF_RACK_S = 40e-6
"""The same where the engine takes several nodes of a rack, whose NVLink an engine's own kernels do not use."""

ALL_REDUCE_OF_NODES_S = 60e-6
"""The same over the network. Both were chosen on NeMo-RL's steps of Qwen3-235B and DeepSeek-V3."""


DRAIN_PARTS = 12
"""Moments at which it is looked how many sequences are still in flight."""


class DecodeStep(Struct, frozen=True, kw_only=True):
    """What one decode step of an engine is made of, in seconds.

    Attributes:
        weights_s: Reading the weights once for the whole batch.
        products_s: The batch's matrix products, beside which the weights are read.
        cache_s: Reading the KV cache of every sequence.
        kernels_s: Kernels that follow each other, and all-reduces, whatever they read.
        launch_s: Launching the kernels one by one, beside which they run; 0 with CUDA graphs.
        host_s: Scheduling and sampling, while the card waits.
    """

    weights_s: float
    products_s: float
    cache_s: float
    kernels_s: float
    launch_s: float
    host_s: float

    @property
    def step_s(self) -> float:
        """All of it: in every layer the cache follows the matrices."""
        card_s = max(self.weights_s, self.products_s) + self.cache_s + self.kernels_s
        return max(card_s, self.launch_s) + self.host_s

    @property
    def fixed_s(self) -> float:
        """What is neither weights nor cache: kernels and their launching, all-reduces, scheduling and sampling."""
        return self.step_s - max(self.weights_s, self.products_s) - self.cache_s

    @property
    def bound(self) -> str:
        """What takes most of it."""
        if self.fixed_s > self.step_s / 2:
            return "launches and sampling"
        return "FLOPs" if self.products_s > self.weights_s + self.cache_s else "memory bandwidth"


def decode_step(request: Request, width: int, batch: float, context: float = 0.0) -> DecodeStep:
    """One more token for ``batch`` sequences of an engine of ``width`` GPUs.

    Each step reads the weights once for the whole batch and the KV cache of every sequence (Pope et al. 2022). Of a
    mixture of experts the batch reads the experts that it visits.

    Args:
        request: What is planned for.
        width: GPUs of the engine.
        batch: Sequences in flight.
        context: Tokens behind each of them; 0: the mean over time.
    """
    model = request.model
    bandwidth = of_bandwidth(request, rates(request, model).decode)
    sequence = kv_layers(model, width, request.kv_bytes).sequence_bytes(int(context or _mean_context(request)))
    return DecodeStep(
        weights_s=_weight_bytes(request, batch) / width / bandwidth,
        products_s=batch * forward_flops_per_token(model, 0) / (width * of_peak(request, DECODE_FLOPS_SHARE)),
        cache_s=batch * sequence / (CACHE_SHARE * bandwidth),
        kernels_s=model.layers * DECODE_LAYER_S + 2 * model.layers * _all_reduce_s(request, width, batch),
        launch_s=_launch_s(model, width) if request.eager else 0.0,
        host_s=DECODE_OVERHEAD_S + batch * DECODE_SEQUENCE_S,
    )


def _all_reduce_s(request: Request, width: int, batch: float) -> float:
    """Seconds in which ``width`` GPUs add up what each has of the batch's hidden states.

    Over nodes, the cards of each do so first, and each then sends its part of the sum.
    """
    if width == 1:
        return 0.0
    inside = min(width, nvlink_gpus(request))
    # a ring sends 2 (n - 1) / n of the bytes over each link: a scatter of sums, and a gather
    sent = 2 * ITEM_BYTES * batch * request.model.hidden
    seconds = sent * (inside - 1) / inside / link_bytes_per_s(request, (inside,))
    if width > inside:
        return ALL_REDUCE_OF_NODES_S + seconds + sent / inside / network_bytes_per_s(request)
    return seconds + (ALL_REDUCE_S if width <= request.gpus_per_node else ALL_REDUCE_OF_RACK_S)


def _launch_s(model: Architecture, width: int) -> float:
    """Seconds in which Python launches all kernels of a decode step."""
    experts = model.experts.layers if model.experts is not None else 0
    all_reduces = 2 * model.layers if width > 1 else 0
    return model.layers * EAGER_LAYER_S + experts * EAGER_EXPERTS_S + all_reduces * EAGER_ALL_REDUCE_S


def decode_step_s(request: Request, width: int, batch: float) -> tuple[float, str]:
    """Seconds of ``decode_step``, and what bounds it."""
    step = decode_step(request, width, batch)
    return step.step_s, step.bound


def _mean_context(request: Request) -> float:
    """Tokens behind a sequence in flight, in the mean over time: long responses are in flight for longer."""
    mean = request.mean_tokens
    # E[L^2] / 2 E[L]: a response of length L is met L times as often, half done in the mean
    return request.prompt_tokens + (mean**2 + request.spread_tokens**2) / (2 * mean)


def _weight_bytes(request: Request, batch: float) -> float:
    """Bytes of the weights that a step reads; the head is never quantized."""
    model, count = request.model, count_parameters(request.model)
    head = model.vocab * model.hidden
    lookup = count.embedding - (head if model.tied else 0)
    visited = 1.0
    if model.experts is not None:
        # the chance that one of the batch's tokens visits an expert, were all equally likely
        visited = 1 - (1 - model.experts.top_k / model.experts.count) ** batch
    layers = count.text - lookup - head - count.routed * (1 - visited)
    return request.weight_bytes * layers + ITEM_BYTES * head


def generate_s(request: Request, engine: EngineChoice, engines: int) -> tuple[float, str]:
    """Seconds until the busiest engine has all its samples, and what bounds decoding.

    While samples wait, as many as fit are in flight; after that the batch shrinks as they end, down to the longest.
    Prompts are prefilled once: their samples share the cache.
    """
    width, mean = engine.tensor_parallel, request.mean_tokens
    samples = _samples(request, engines)
    flight = sequences_at_once(request, engine, engines)
    full_s, bound = decode_step_s(request, width, flight)
    drain_s = _drain_s(request, width, flight, request.longest_of(samples * engines))
    queued_s = (samples - flight) * mean / flight * full_s
    return _prefill_s(request, width, engines) + queued_s + drain_s, bound


def _drain_s(request: Request, width: int, flight: float, longest: float) -> float:
    """Seconds until the last of ``flight`` sequences ends, while none takes the places of those that do.

    At the part x of the longest, (1 - x) to the power of longest / mean - 1 of them are still there: lengths evenly
    spread where the mean is half of the longest, few much longer than the others where it is less. Steps are longest in
    the beginning, where x is looked at most closely.
    """
    power = max(0.0, longest / request.mean_tokens - 1)
    seconds = 0.0
    for part in range(DRAIN_PARTS):
        share = (part + 0.5) / DRAIN_PARTS
        batch = max(1.0, flight * (1 - share**2) ** power)
        step = decode_step(request, width, batch, request.prompt_tokens + share**2 * longest)
        # x = share^2, so dx = 2 share d(share), by the midpoint rule
        seconds += 2 * share / DRAIN_PARTS * step.step_s
    return longest * seconds


def steady_s(request: Request, engine: EngineChoice, engines: int) -> float:
    """Seconds of a step's samples where those of later steps fill the places of samples that have ended."""
    samples = _samples(request, engines)
    flight = sequences_at_once(request, engine, engines)
    full_s, _ = decode_step_s(request, engine.tensor_parallel, flight)
    return _prefill_s(request, engine.tensor_parallel, engines) + samples * request.mean_tokens / flight * full_s


def _samples(request: Request, engines: int) -> int:
    return -(-request.prompts // engines) * request.samples


def sequences_at_once(request: Request, engine: EngineChoice, engines: int) -> float:
    """Sequences that the busiest engine has in flight while enough wait: of its share of all steps, as many as fit."""
    samples = _samples(request, engines) * (1 + request.async_steps)
    held = (engine.engine.kv_tokens or 0) / (request.prompt_tokens + request.mean_tokens)
    return max(1.0, min(samples, request.engine_sequences, held))


def _prefill_s(request: Request, width: int, engines: int) -> float:
    """Seconds in which an engine takes its prompts in; only of their last tokens are there logits."""
    tokens = -(-request.prompts // engines) * request.prompt_tokens
    flops = tokens * forward_flops_per_token(request.model, request.prompt_tokens / 2, head=False)
    return flops / (width * of_peak(request, PREFILL_FLOPS_SHARE))


def teacher_s(request: Request, teacher: EngineChoice, teachers: int) -> float:
    """Seconds in which ``teachers`` score all samples: a prefill of prompt and response, each sample on its own."""
    assert request.teacher is not None, "distillation has a teacher"
    samples = -(-request.samples_per_step // teachers)
    length = request.prompt_tokens + request.mean_tokens
    flops = samples * length * forward_flops_per_token(request.teacher, length / 2)
    return flops / (teacher.tensor_parallel * of_peak(request, PREFILL_FLOPS_SHARE))
