"""How long a step would take: a roofline for each phase, with every assumption a constant here.

What cards reach of their peak is in :mod:`rltui.plan.rates`, how long responses are in the request: without a word on
them, evenly spread between nothing and the limit, so the mean is half of it and the longest of a step the limit itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.hardware.flops import BACKWARD_FACTOR, forward_flops_per_token
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.parameters import count_parameters
from rltui.memory.estimate import GIB
from rltui.memory.from_layout import ENGINE_SEQUENCES
from rltui.plan.rates import ATTENTION_FLOPS_SHARE, PREFILL_FLOPS_SHARE, rates_of, training_ease

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.plan.rates import Rates
    from rltui.plan.request import Request
    from rltui.plan.setup import EngineChoice, Setup, Training

ITEM_BYTES = 2
"""Weights, gradients and KV cache travel in 16 bits."""

COPY_BANDWIDTH_SHARE = 0.6
"""Share of a card's memory bandwidth that the optimizer's pass over its states reaches; assumed."""

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

STEP_OVERHEAD_S = 2.0
"""Of each step: rewards, data, logging, moving samples. Assumed: published steps are too long to tell it."""

OPTIMIZER_BYTES = 28
"""Bytes that AdamW moves for each parameter: float32 gradient, master weight and two moments, read and written."""


class StepTime(Struct, frozen=True, kw_only=True):
    """One training step, in seconds, and who waits meanwhile.

    Attributes:
        generate_s: From the first prompt to the last token.
        teacher_s: The teacher's scores of all samples; 0 without a teacher.
        train_s: Log-probs, forward, backward and optimizer of the policy, and the reference's log-probs.
        critic_s: Values, forward, backward and optimizer of the critic; 0 without one.
        update_s: Policy and critic: one after the other, or at once where the critic has GPUs of its own.
        sync_s: New weights to the engines, and their waking up.
        other_s: Rewards, data and logging.
        step_s: All of it: generation and training one after the other, or at once where rollouts run ahead.
        idle_share: GPU time of the whole cluster that nothing uses.
        tokens_per_s: Response tokens that are generated and trained on.
        decode_bound: What decoding waits for at the full batch.
        train_bound: What training waits for.
    """

    generate_s: float
    teacher_s: float
    train_s: float
    critic_s: float
    update_s: float
    sync_s: float
    other_s: float
    step_s: float
    idle_share: float
    tokens_per_s: float
    decode_bound: str
    train_bound: str


def link_bytes_per_s(request: Request, gpus: tuple[int, ...]) -> float:
    """Bandwidth of a collective over bundles of ``gpus``: NVLink or PCIe in one node, else the network if slower.

    As a self-test measured it on this cluster, else as data sheets have it.
    """
    name, known = request.gpu.name, request.measured
    sheet = next((rate for start, rate in NVLINK_BYTES_PER_S.items() if name.startswith(start)), PCIE_BYTES_PER_S)
    inside = known.node_bytes_per_s or LINK_SHARE * sheet
    if len(gpus) == 1:
        return inside
    return min(inside, known.network_bytes_per_s or LINK_SHARE * NETWORK_BYTES_PER_S)


def _of_bandwidth(request: Request, share: float) -> float:
    """Bytes/s of the card's memory: ``share`` of its data sheet, and never more than it was measured to reach."""
    return request.gpu.bandwidth * min(share, request.measured.bandwidth or 1.0)


def _of_peak(request: Request, share: float) -> float:
    """FLOP/s of the card: ``share`` of its data sheet, and never more than it was measured to reach."""
    return request.gpu.peak_flops * min(share, request.measured.matmul or 1.0)


def decode_step_s(request: Request, width: int, batch: float) -> tuple[float, str]:
    """Seconds in which an engine gives ``batch`` sequences one more token, and what bounds it.

    Each step reads the weights once for the whole batch and the KV cache of every sequence (Pope et al. 2022): bound by
    bandwidth until the batch's FLOPs take longer. Of a mixture of experts the batch reads the experts that it visits.
    """
    model = request.model
    context = _mean_context(request)
    read = _weight_bytes(model, batch) / width + batch * kv_layers(model, width).sequence_bytes(int(context))
    memory_s = read / _of_bandwidth(request, rates(request, model).decode)
    compute_s = batch * forward_flops_per_token(model, context) / (width * _of_peak(request, PREFILL_FLOPS_SHARE))
    talk_s = 2 * model.layers * ALL_REDUCE_S if width > 1 else 0.0
    bound = "memory bandwidth" if memory_s >= compute_s else "FLOPs"
    return max(memory_s, compute_s) + talk_s + DECODE_OVERHEAD_S, bound


def _mean_context(request: Request) -> float:
    """Tokens behind a sequence in flight, in the mean over time: long responses are in flight for longer."""
    mean = request.mean_tokens
    return request.prompt_tokens + (mean**2 + request.spread_tokens**2) / (2 * mean)


def rates(request: Request, model: Architecture) -> Rates:
    """What the request says that cards reach, else what published runs of the model's family did."""
    return request.rates or rates_of(model, request.gpu)


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
    width, mean = engine.tensor_parallel, request.mean_tokens
    prompts = -(-request.prompts // engines)
    samples = prompts * request.samples
    held = (engine.engine.kv_tokens or 0) / (request.prompt_tokens + mean)
    flight = max(1.0, min(samples, ENGINE_SEQUENCES, held))
    full_s, bound = decode_step_s(request, width, flight)
    longest = request.longest_of(samples * engines)
    drain_s = longest * decode_step_s(request, width, max(1.0, flight * mean / longest))[0]
    queued_s = (samples - flight) * mean / flight * full_s
    prefill = prompts * request.prompt_tokens * forward_flops_per_token(request.model, request.prompt_tokens / 2)
    prefill_s = prefill / (width * _of_peak(request, PREFILL_FLOPS_SHARE))
    return prefill_s + queued_s + drain_s, bound


def train_s(request: Request, learner: Training, critic: Architecture | None = None) -> tuple[float, str]:
    """Seconds of log-probs, forward, backward and optimizer on the fullest rank, and what bounds them.

    A micro-batch is padded to its longest sample. ZeRO-3
    gathers the weights in each pass and scatters gradients, ZeRO-2 scatters gradients (Rajbhandari et al. 2020); that
    traffic runs beside the computation, so the longer of the two counts.

    Args:
        request: What is planned for.
        learner: How the model is trained.
        critic: The critic's shape, whose values take the place of log-probs and whose head is one number; None: the
            policy.
    """
    model = request.model if critic is None else critic
    passes = 2 + BACKWARD_FACTOR + learner.gradient_checkpointing
    compute_s = _passes_s(request, model, learner, passes, head=critic is None)
    talk_s = _zero_bytes(model, learner) / link_bytes_per_s(request, learner.gpus)
    states = OPTIMIZER_BYTES * count_parameters(model).total / learner.ranks
    update_s = states / _of_bandwidth(request, COPY_BANDWIDTH_SHARE)
    bound = "FLOPs" if compute_s >= talk_s else "ZeRO's traffic"
    return _micro_batches(request, learner) * max(compute_s, talk_s) + update_s, bound


def _rows(request: Request, learner: Training) -> int:
    return -(-request.samples_per_step // learner.ranks)


def _micro_batches(request: Request, learner: Training) -> int:
    rows = _rows(request, learner)
    return -(-rows // min(rows, learner.micro_batch))


def _passes_s(request: Request, model: Architecture, learner: Training, passes: int, *, head: bool) -> float:
    """Seconds in which one micro-batch passes ``passes`` times through ``model``."""
    size = min(_rows(request, learner), learner.micro_batch)
    length = request.prompt_tokens + request.longest_of(size)
    return _flops_s(request, model, passes, size * length, length, head=head)


def training_compute_s(request: Request, learner: Training, model: Architecture, passes: int) -> float:
    """Seconds of ``passes`` through ``model`` with a rank's samples packed: no padding, and links left out."""
    length = request.prompt_tokens + request.mean_tokens
    return _rows(request, learner) * _flops_s(request, model, passes, length, length, head=True)


def _flops_s(request: Request, model: Architecture, passes: int, tokens: float, length: float, *, head: bool) -> float:
    filled = tokens / (tokens + SMALL_BATCH_TOKENS)
    matrices = forward_flops_per_token(model, 0, head)
    attention = forward_flops_per_token(model, length / 2, head) - matrices
    share = rates(request, model).training
    effort = matrices / _of_peak(request, share)
    effort += attention / _of_peak(request, max(share, ATTENTION_FLOPS_SHARE))
    return passes * tokens * effort / (filled * training_ease(request.gpu))


def reference_s(request: Request, learner: Training) -> float:
    """Seconds in which the reference, whose weights are divided over the learner's GPUs, passes all samples once."""
    compute_s = _passes_s(request, request.model, learner, 1, head=True)
    size = ITEM_BYTES * count_parameters(request.model).total * (learner.ranks - 1) / learner.ranks
    return _micro_batches(request, learner) * max(compute_s, size / link_bytes_per_s(request, learner.gpus))


def teacher_s(request: Request, teacher: EngineChoice, teachers: int) -> float:
    """Seconds in which ``teachers`` score all samples: a prefill of prompt and response, each sample on its own."""
    assert request.teacher is not None, "distillation has a teacher"
    samples = -(-request.samples_per_step // teachers)
    length = request.prompt_tokens + request.mean_tokens
    flops = samples * length * forward_flops_per_token(request.teacher, length / 2)
    return flops / (teacher.tensor_parallel * _of_peak(request, PREFILL_FLOPS_SHARE))


def _zero_bytes(model: Architecture, learner: Training) -> float:
    """Bytes that each rank sends for one micro-batch."""
    passes = 1 if learner.zero_stage == 2 else 4 + learner.gradient_checkpointing
    share = (learner.ranks - 1) / learner.ranks
    return passes * ITEM_BYTES * count_parameters(model).total * share


def sync_s(request: Request, learner: Training) -> float:
    """Seconds in which learner rank 0 gathers all weights (ZeRO-3) and broadcasts them whole to every engine GPU."""
    return gather_s(request, learner) + broadcast_s(request)


def broadcast_s(request: Request) -> float:
    """Seconds in which all weights pass once to the engines, over the network where there are several nodes."""
    return _weights(request.model) / link_bytes_per_s(request, (1,) * request.nodes)


def gather_s(request: Request, learner: Training) -> float:
    """Seconds in which rank 0 gathers all weights; with ZeRO-2 it has them."""
    if learner.zero_stage == 2:
        return 0.0
    return _weights(request.model) / link_bytes_per_s(request, learner.gpus)


def _weights(model: Architecture) -> float:
    return ITEM_BYTES * count_parameters(model).total


def shared_sync_s(request: Request, setup: Setup) -> float:
    """The same where engines share the learner's GPUs; those that sleep leave for host memory and come back."""
    broadcast_s = _weights(request.model) / link_bytes_per_s(request, setup.learner.gpus)
    moved = 2 * setup.engine.engine.weights_gib * GIB if setup.sleeps else 0.0
    moved_s = moved / (request.measured.host_bytes_per_s or PCIE_BYTES_PER_S)
    return gather_s(request, setup.learner) + broadcast_s + moved_s


def model_step_s(request: Request, made_s: float, update_s: float) -> float:
    """What waits for what: one after the other, or at once where rollouts run ahead; and what belongs to neither."""
    return (max(made_s, update_s) if request.async_steps else made_s + update_s) + STEP_OVERHEAD_S


def step_time(request: Request, setup: Setup) -> StepTime:
    """Put the phases together."""
    learner, critic, shared = setup.learner, setup.critic, setup.placement != "apart"
    generate, decode_bound = generate_s(request, setup.engine, setup.engines)
    train, train_bound = train_s(request, learner)
    train += reference_s(request, learner) if request.kl_coefficient else 0.0
    value = 0.0 if critic is None else train_s(request, critic, request.critic or request.model)[0]
    score = 0.0 if setup.teacher is None else teacher_s(request, setup.teacher, setup.teachers)
    sync = shared_sync_s(request, setup) if shared else sync_s(request, learner)
    split = setup.placement == "split"
    update = max(train, value) if split else train + value
    made = generate + score
    step = model_step_s(request, made, update) + sync
    busy = learner.ranks * (train + sync + (0.0 if split else value))
    busy += setup.engines * setup.engine.tensor_parallel * (generate + (0.0 if shared else sync))
    busy += critic.ranks * value if split and critic is not None else 0.0
    busy += setup.teachers * setup.teacher.tensor_parallel * score if setup.teacher is not None else 0.0
    return StepTime(
        generate_s=generate,
        teacher_s=score,
        train_s=train,
        critic_s=value,
        update_s=update,
        sync_s=sync,
        other_s=STEP_OVERHEAD_S,
        step_s=step,
        idle_share=max(0.0, 1 - busy / (request.total_gpus * step)),
        tokens_per_s=request.samples_per_step * request.mean_tokens / step,
        decode_bound=decode_bound,
        train_bound=train_bound,
    )
