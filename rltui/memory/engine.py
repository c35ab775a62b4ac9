"""Memory of a rollout engine: weights, activations, graphs, and the KV cache that takes the rest of its budget."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.models import MXFP4_BYTES
from rltui.hardware.parameters import count_parameters, router_parameters
from rltui.memory.activations import CHUNKED_HEAD_GIB, forward_layer_bytes, routed_widths
from rltui.memory.estimate import CUDA_CONTEXT_GIB, GIB, NCCL_GIB, EngineEstimate
from rltui.memory.kv_pool import Pool, capacity
from rltui.memory.states import DEEPSPEED_LIVE_PARAMETERS

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu
    from rltui.memory.settings import EngineSettings

SAMPLER_LOGIT_BYTES = 40
"""Bytes of one logit in the profile run of vLLM's sampler, for ``max_num_seqs`` sequences: 16-bit and float32 logits,
a sort (4 + 8 and its workspace), probabilities, their sum, masks, noise. Logs of 0.7 to 0.10 show 38 to 41."""

NON_TORCH_GIB = 0.15
NON_TORCH_PER_PEER_GIB = 0.15
"""What vLLM logs as non-torch memory: a little for one GPU, and NCCL's buffers where several share a model."""

GRAPH_GIB = 0.25
GRAPH_LAYER_GIB = 0.045
"""CUDA graphs: 0.8 GiB for 28 layers, 2.2 for 36 and 3.2 for 64 in logs; they grow with the number of layers."""

PADDED_WEIGHTS = 1.002
"""Loaded weights over the parameters' bytes: padded vocabulary, norms and rotary tables."""

MXFP4_BLOCK = 256
"""vLLM's kernels for mxfp4 pad an expert's width to a multiple of this: gpt-oss-120b, whose experts are 2,880 wide,
loads 64.4 GiB on an H100 (Triton's kernels; Marlin's pad the other side too: 66.0), 3.6 more than its checkpoint."""

TEACHER_BATCHED_TOKENS = 1024
"""Tokens of one step of a vLLM teacher of the trainers; the newer of vLLM's model runners scores as many at once."""


class Batching(Struct, frozen=True):
    """Defaults of vLLM: sequences at once, and tokens of one step."""

    sequences: int
    tokens: int


def vllm_batching(gpu: Gpu | None, *, server: bool) -> Batching:
    """What vLLM takes on ``gpu`` where it is not told (``EngineArgs.get_batch_defaults``, 0.10 to 0.32).

    Engines before 0.8 take 256 sequences, and as many tokens as the longest sequence has, at least 2048.

    Args:
        gpu: The card; None: not known, which vLLM treats as a small one.
        server: Whether it is the API server, or the ``LLM`` class for offline use.
    """
    if gpu is not None and gpu.usable_gib >= 160:
        return Batching(1024, 16384)
    if gpu is not None and gpu.usable_gib >= 70 and not gpu.name.startswith("A100"):
        return Batching(1024, 8192 if server else 16384)
    return Batching(256, 2048 if server else 8192)


def weights_gib(model: Architecture, settings: EngineSettings) -> float:
    """GiB of one GPU's weights.

    Quantised checkpoints keep embedding, LM head and vision tower in 16 bits. Tensor parallelism divides everything,
    towers too, but what ``repeated_parameters`` counts; ``absorbed_gib`` comes on top.
    """
    if settings.weights_gib is not None:
        return settings.weights_gib
    count = count_parameters(model)
    ends = count.embedding + count.head + count.vision
    expert_bytes = settings.weight_bytes if settings.expert_weight_bytes is None else settings.expert_weight_bytes
    routed = count.routed * expert_bytes
    if model.experts is not None and expert_bytes == MXFP4_BYTES:
        routed *= math.ceil(model.experts.ffn / MXFP4_BLOCK) * MXFP4_BLOCK / model.experts.ffn
    layers = (count.total - ends - count.routed) * settings.weight_bytes + routed
    size = (layers + ends * max(2.0, settings.weight_bytes)) / settings.tensor_parallel * PADDED_WEIGHTS
    repeated = repeated_parameters(model, settings.tensor_parallel) * settings.weight_bytes
    return (size + repeated) / GIB + absorbed_gib(model, settings)


def repeated_parameters(model: Architecture, tensor_parallel: int) -> float:
    """Parameters of one GPU beyond its equal share, because tensor parallelism does not divide them.

    Routers and the projections down to the latent vectors of queries and keys are ``ReplicatedLinear`` in vLLM and
    SGLang (``deepseek_v2.py``, ``qwen3_moe.py``), and every GPU has at least one KV head (``QKVParallelLinear``).
    """
    routers = router_parameters(model) * model.experts.layers if model.experts else 0
    latent, layers, others = model.latent, model.softmax_layers, 1 - 1 / tensor_parallel
    if latent is not None:
        return others * (routers + layers * model.hidden * (latent.q_rank + latent.kv_rank + latent.rope_dim))
    head = 2 * model.hidden * model.head_dim * layers
    return others * routers + head * max(0.0, 1 - model.kv_heads / tensor_parallel)


def absorbed_gib(model: Architecture, settings: EngineSettings) -> float:
    """GiB of the 16-bit copies of latent attention's projections up from the latent vector, which decoding reads.

    vLLM makes them where the projection is quantised (``MLACommonImpl.process_weights_after_loading``: otherwise they
    are views), SGLang always (``w_kc`` and ``w_vc`` of ``post_load_weights``). The projection itself stays for prompts.
    """
    latent = model.latent
    if latent is None or (settings.weight_bytes >= 2 and not settings.static_budget):
        return 0.0
    width = model.heads * (latent.nope_dim + latent.value_dim) / settings.tensor_parallel
    return 2 * width * latent.kv_rank * model.softmax_layers / GIB


def activation_gib(model: Architecture, settings: EngineSettings) -> float:
    """Peak of vLLM's profile run: one step of all batched tokens, or sampling for all sequences if that is more."""
    if settings.activation_gib is not None:
        return settings.activation_gib
    expert, dense, _ = routed_widths(model)
    # tensor parallelism divides the feed-forward's width, but each GPU has the whole residual stream
    divided = 2 * model.mlp_matrices * max(expert, dense) * (1 - 1 / settings.tensor_parallel)
    step = settings.max_num_batched_tokens * (forward_layer_bytes(model) - divided)
    sampler = settings.max_num_seqs * model.vocab * SAMPLER_LOGIT_BYTES
    return max(step, sampler) / GIB


def prompt_logits_gib(model: Architecture, tokens: int, item_bytes: float) -> float:
    """GiB of the logits of ``tokens`` prompt tokens that vLLM scores at once, whole on each GPU of the engine.

    They come as the model's numbers; ``log_softmax`` turns others than float32 into float32 first, and answers in
    float32 (``GPUModelRunner._get_prompt_logprobs_dict`` and ``Sampler.compute_logprobs`` of vLLM 0.32). vLLM's profile
    run asks for no such scores, so its budget does not have them.
    """
    converted = 0.0 if item_bytes == 4 else 4.0
    return tokens * model.vocab * (item_bytes + converted + 4.0) / GIB


def estimate_engine(
    model: Architecture, settings: EngineSettings, capacity_gib: float | None, role: str = "rollout"
) -> EngineEstimate:
    """Estimate what each GPU of an engine holds.

    The budget is a share of the whole card, not of what is free: KV cache = utilization × card − weights −
    activations − non-torch memory (− graphs, in engines that count them).

    Args:
        model: The model.
        settings: How it is served.
        capacity_gib: What the card offers; None: not known, and neither is the KV cache.
        role: Name of the role.
    """
    weights, activation = weights_gib(model, settings), activation_gib(model, settings)
    graphs = GRAPH_GIB + GRAPH_LAYER_GIB * model.layers if settings.graphs else 0.0
    outside = settings.non_torch_gib
    if outside is None:
        outside = NON_TORCH_GIB + NON_TORCH_PER_PEER_GIB * min(settings.tensor_parallel - 1, 7)
    budget = None if capacity_gib is None else _budget_gib(settings, capacity_gib)
    kv = None
    if budget is not None:
        kv = budget - weights
        if not settings.static_budget:
            kv -= activation + outside + (graphs if settings.graphs_in_budget else 0.0)
    pool = None if kv is None else _pool(model, settings, kv)
    return EngineEstimate(
        role=role,
        weights_gib=weights,
        activation_gib=activation,
        non_torch_gib=outside,
        graphs_gib=graphs,
        kv_gib=kv,
        kv_tokens=None if pool is None else pool.tokens,
        max_concurrency=None if pool is None else pool.max_concurrency,
        budget_gib=budget,
    )


def _budget_gib(settings: EngineSettings, capacity_gib: float) -> float:
    """A share of the whole card for vLLM, of what CUDA and NCCL leave for SGLang."""
    if settings.static_budget:
        capacity_gib -= CUDA_CONTEXT_GIB + (NCCL_GIB if settings.tensor_parallel > 1 else 0.0)
    return settings.memory_utilization * capacity_gib


def _pool(model: Architecture, settings: EngineSettings, kv_gib: float) -> Pool:
    layers = kv_layers(model, settings.tensor_parallel, settings.kv_bytes)
    in_flight = settings.max_num_batched_tokens * settings.concurrent_batches
    states = 2 if settings.prefix_caching else 1
    return capacity(layers, kv_gib * GIB, settings.max_model_len, in_flight, settings.block_tokens, states)


def estimate_transformers_engine(
    model: Architecture, *, sequences: int, max_model_len: int, item_bytes: float, role: str = "rollout"
) -> EngineEstimate:
    """Estimate an engine that samples with transformers: the KV cache of a whole batch, and float32 logits.

    Args:
        model: The model.
        sequences: Sequences sampled at once.
        max_model_len: Longest sequence in tokens.
        item_bytes: Bytes of a weight and of a number in the cache.
        role: Name of the role.
    """
    weights = count_parameters(model).total * item_bytes / GIB
    cache = sequences * kv_layers(model, item_bytes=item_bytes).sequence_bytes(max_model_len) / GIB
    return EngineEstimate(
        role=role,
        weights_gib=weights,
        # float32 thrice: the last token's logits, these over the temperature, and their log-softmax
        activation_gib=sequences * model.vocab * (item_bytes + 3 * 4) / GIB,
        non_torch_gib=CUDA_CONTEXT_GIB,
        graphs_gib=0.0,
        kv_gib=cache,
        kv_tokens=sequences * max_model_len,
        max_concurrency=float(sequences),
        budget_gib=None,
    )


def estimate_transformers_classifier(
    model: Architecture, *, rows: int, max_model_len: int, item_bytes: float, role: str, gpus: int = 1
) -> EngineEstimate:
    """As ``estimate_transformers_scorer``, of a model with one output: no logits of a vocabulary.

    Where several ``gpus`` divide the weights, each has its share, and gathers layers as they are used.
    """
    found = estimate_transformers_scorer(
        model, rows=rows, max_model_len=max_model_len, item_bytes=item_bytes, role=role
    )
    weights = found.weights_gib - count_parameters(model).head * item_bytes / GIB
    gathered = min(weights, DEEPSPEED_LIVE_PARAMETERS * item_bytes / GIB) if gpus > 1 else 0.0
    return structs.replace(
        found,
        weights_gib=weights / gpus,
        non_torch_gib=CUDA_CONTEXT_GIB + (NCCL_GIB if gpus > 1 else 0.0),
        activation_gib=found.activation_gib - CHUNKED_HEAD_GIB + gathered,
    )


def estimate_transformers_scorer(
    model: Architecture, *, rows: int, max_model_len: int, item_bytes: float, role: str = "teacher"
) -> EngineEstimate:
    """Estimate a teacher that scores with transformers: no cache, activations of whole samples, logits in chunks.

    Args:
        model: The model.
        rows: Samples that pass at once.
        max_model_len: Longest sample in tokens.
        item_bytes: Bytes of a weight and of an activation.
        role: Name of the role.
    """
    hidden = rows * max_model_len * forward_layer_bytes(model) * item_bytes / 2
    return EngineEstimate(
        role=role,
        weights_gib=count_parameters(model).total * item_bytes / GIB,
        activation_gib=hidden / GIB + CHUNKED_HEAD_GIB,
        non_torch_gib=CUDA_CONTEXT_GIB,
        graphs_gib=0.0,
        kv_gib=0.0,
        kv_tokens=None,
        max_concurrency=None,
        budget_gib=None,
    )
