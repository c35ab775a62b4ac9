"""Bytes of activations and logits for each token.

Widths are counted tensor by tensor: h is the residual stream, q and kv the widths of queries and of keys (or values),
f that of the feed-forward network. Flash attention keeps no scores. Constants that cannot be counted are named and say
what they were read off; docs/memory.md has the residuals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.memory.settings import Adapter, Head, Sharding, Workload

LAYER_RESIDUALS = 20
"""Bytes per h that a recomputed layer holds at its backward peak for norms and residuals. Read off prime-rl 0.6B."""

FUSED_NORMS = 8
"""Bytes per h of norms' inputs and of the inputs of the matrices behind them, of both halves of a layer, where kernels
are fused: 2 each."""

PASSING_RESIDUALS = 4
"""Bytes per h of the gradients of the residual stream before and behind a part of a layer."""

QK_NORM_COPY = 8
"""Bytes per q and kv that a norm of trained queries and keys adds in the backward pass (a float32 copy, a gradient)."""

ROUTED_TOKEN = 20
"""Bytes per h of each token that is sent to an expert: dispatched input, output, their gradients and the float32
weighting. Read off prime-rl 30B-A3B."""

DELTA_RULE_KEPT, DELTA_RULE_PEAK = 89, 111
"""Bytes of each channel of the values that a layer of linear attention keeps, and has at its backward peak, where
transformers computes the delta rule by itself in float32 (``torch_chunk_gated_delta_rule``). Counted tensor by tensor
with torch's ``MemTracker`` on Qwen3-Next's layer of transformers 5.19 in three shapes, 88 to 93 and 110 to 112; its
projections and its gated norm are in it."""

HEAD_BYTES: dict[Head, float] = {
    "full": 14.0,
    "freed": 12.0,
    "vocab_parallel": 10.0,
    "compiled": 8.0,
    "fused": 4.0,
    "streamed": 3.0,
    "in_place": 2.0,
    "chunked": 0.0,
    "none": 0.0,
}
"""Bytes of one logit. ``full`` is 2 (16 bits) + 4 (float32) + 4 (log-softmax) + 4 (its gradient): 14 in the allocated
peaks of fitcheck on a T4, 13 in those of our own learner. ``freed`` is 12: torchtitan drops the logits before the
backward pass, so the log-softmax, the gradient that comes in and the one that goes out are left, 4 each.
``vocab_parallel`` is 2 (16 bits) + 4 (float32, overwritten by the softmax) + 4: the compiler gives what it changes in
place and also sums or scatters into a buffer of its own (``fused_cross_entropy.py`` of Megatron-Core, which says so and
mends it in 2026). ``compiled`` is also 2 (16 bits) + 2 (log-softmax in 16 bits) + 4 (a gradient of each), as TRL's
``selective_log_softmax`` has it. ``fused`` is 2 (16 bits) + 2 (gradients): a compiled loss keeps nothing in float32 but
a sum and a maximum of each token. ``streamed`` is 2 (16 bits; a chunk's gradient comes as its logits go) and, of one
chunk in eight, 4 (float32) + 4 (log-softmax): torchtune's ``CEWithChunkedOutputLoss``. ``in_place`` is 2: the gradient
is written where the logits were (FlashAttention's cross-entropy)."""

CACHED_LOGIT: dict[Head, float] = {"full": 3.0}
"""Bytes of one logit that torch's allocator keeps in blocks nobody has: 2 of the gradient in 16 bits, which comes when
the log-softmax has gone, and one more as read off the reserved memory of prime-rl's SFT path."""

FLOAT32_LOGIT = 2.0
"""Bytes more of one logit of ``full`` where the LM head is float32: no 16-bit copy (2), but another of 4."""

LOGITS_GO_FIRST: tuple[Head, ...] = ("fused", "streamed")
"""Heads whose logits are gone before a layer is recomputed, and whose system grows its allocator's segments in place
(``expandable_segments``), so that the layer gets their memory. Of other heads the allocator keeps the blocks."""

CAPPED_LOGIT = 4.0
"""Bytes more of one logit that a tanh caps in 16 bits: its output and the gradient of that."""

SCORE_BYTES = 8.0
"""Bytes of one attention score where no kernel fuses them: the tanh's output 2, the softmax in float32 4 and its 16-bit
copy 2 (``eager_attention_forward`` of transformers' Gemma 2; litgpt's attention with capped scores)."""

EAGER_SCORE_KEPT, EAGER_SCORE_PEAK = 6.0, 14.0
"""Bytes of one attention score where attention is written out (``eager``, in transformers): what a layer keeps is the
softmax in float32 and its 16-bit copy; at the peak of its backward pass there are scores and masked scores (2 each),
both of these, and a gradient of 4. 13 to 15 in seven allocated peaks of fitcheck on a T4."""

CHUNKED_HEAD_GIB = 0.3
"""One chunk of logits in float32 and its gradient, where they are never all there."""


def widths(model: Architecture) -> tuple[int, int]:
    """Width of queries and of keys (or values) of one layer."""
    if model.latent is not None:
        expanded = model.heads * (model.latent.nope_dim + model.latent.rope_dim)  # training expands the latent vector
        return expanded, expanded
    # Qwen3-Next's q_proj gives the gate of attention's output together with the queries
    query = model.query_dim * (2 if model.gated_query else 1)
    return query, model.kv_dim


def routed_widths(model: Architecture) -> tuple[int, int, int]:
    """Width that a token sees in a layer with experts, of a dense layer, and of the residual copies sent to experts."""
    experts = model.experts
    if experts is None:
        return 0, model.widest_ffn, 0
    sent = experts.top_k * (experts.latent or model.hidden)
    return experts.top_k * experts.ffn + experts.shared_ffn, model.ffn, sent


def recomputed_layer_bytes(model: Architecture, *, trained: bool = True, delta_rule: str = "fused") -> float:
    """Bytes of a token in the layer whose activations are recomputed, at the peak of its backward pass.

    12 f: gate, up, their product, and a gradient of each, 2 bytes each; a plain network has no gate. 6 (q + kv):
    queries, keys and values before and after rotation, and the attention's output. The rest are the constants above.

    Args:
        model: The model.
        trained: Whether its own weights get gradients; frozen norms (LoRA) keep no float32 copies.
        delta_rule: How linear attention runs.
    """
    expert, dense, routed = routed_widths(model)
    found = _recomputed_bytes(model, max(expert, dense), routed, trained=trained)
    if delta_rule == "fused":
        return found
    return max(found, found - _attention_bytes(model, trained=trained) + DELTA_RULE_PEAK * _delta_values(model))


def _delta_values(model: Architecture) -> int:
    """Channels of the values of a layer of linear attention by the delta rule."""
    linear = model.linear
    return linear.value_heads * linear.value_dim if linear is not None and linear.kind == "delta" else 0


def fused_layer_bytes(model: Architecture, layers: int = 1) -> float:
    """The same of ``layers`` that Megatron recomputes at once, with its kernels.

    Each keeps what it would if nothing were recomputed; in the one whose backward pass runs there are gradients of
    gate, up and their product (6 f) and of the residual stream before and behind a part (4 h). On 131,072 tokens a card
    each further layer at once took 18.5 GiB of Qwen3.5-35B-A3B (Baseten's ml-cookbook); 21 come out here.
    """
    expert, dense, routed = routed_widths(model)
    ffn = max(expert, dense)
    return layers * _fused_bytes(model, ffn, routed) + _fused_gradients(model, ffn)


def passing_gradients_bytes(model: Architecture) -> float:
    """Bytes of a token of the gradients on their way through a layer of which nothing is recomputed."""
    expert, dense, _ = routed_widths(model)
    return _fused_gradients(model, max(expert, dense))


def _fused_gradients(model: Architecture, ffn: float) -> float:
    return 2 * model.mlp_matrices * ffn + PASSING_RESIDUALS * model.hidden


def adapter_input_bytes(model: Architecture, adapter: Adapter | None) -> float:
    """Bytes of a token of the float32 copies that float32 adapters make of the inputs of one layer's matrices."""
    if adapter is None or not adapter.float32:
        return 0.0
    expert, dense, _ = routed_widths(model)
    width = 3 * model.hidden + model.query_dim
    if adapter.targets != "attention":
        width += (model.mlp_matrices - 1) * model.hidden + (dense or expert)
    return 4 * width


def mean_layer_bytes(model: Architecture, *, megatron: bool) -> float:
    """The same in the mean of all layers, of which some may have no experts, or nothing else (Nemotron-H).

    Args:
        model: The model.
        megatron: Whether Megatron's kernels compute it, or torch's.
    """
    ffn, sent = _mean_ffn(model)
    if megatron:
        return _fused_bytes(model, ffn, sent) + _fused_gradients(model, ffn)
    return _recomputed_bytes(model, ffn, sent, trained=True)


def _recomputed_bytes(model: Architecture, ffn: float, sent: float, *, trained: bool) -> float:
    attention = _attention_bytes(model, trained=trained)
    return 4 * model.mlp_matrices * ffn + attention + LAYER_RESIDUALS * model.hidden + ROUTED_TOKEN * sent


def _attention_bytes(model: Architecture, *, trained: bool) -> float:
    query, kv = widths(model)
    return (6 + (QK_NORM_COPY if model.qk_norm and trained else 0)) * (query + kv)


def kept_layer_bytes(
    model: Architecture, workload: Workload, adapter: Adapter | None = None, *, residual: float = 2
) -> float:
    """Bytes of a token that one layer (the mean of all) keeps from the forward to the backward pass.

    Args:
        model: The model.
        workload: What is passed, and how.
        adapter: Adapters, where the base is frozen.
        residual: Bytes of a number of the residual stream.
    """
    hidden = model.hidden
    if workload.checkpointing == "full":
        return residual * hidden
    if workload.checkpointing == "offload":
        return 0
    query, kv = widths(model)
    ffn, sent = _mean_ffn(model)
    if workload.checkpointing == "selective":
        # Every second matrix product of a layer is kept: queries, values, gate, down. Those of routed experts are
        # grouped, which the policy does not name.
        exchanged = 4 * sent if workload.keeps_exchanges else 0
        return 2 * hidden + 2 * query + 2 * (query + kv + _ungrouped(model)) + exchanged
    if workload.kernels == "fused":
        kept = _fused_bytes(model, ffn, sent)
    elif workload.kernels == "litgpt":
        kept = _litgpt_bytes(model, ffn, sent)
    else:
        kept = _eager_bytes(model, ffn, sent, workload, trained=adapter is None)
    if adapter is not None and adapter.targets == "attention":
        kept -= 2 * ffn + 2 * hidden + 2 * sent  # frozen matrices need no input for a weight gradient
    if adapter is not None and adapter.quantised:
        kept += 4 * (2 * hidden + query + ffn)  # dequantising layers keep a float32 copy of their input
    return kept


def score_bytes(model: Architecture, sharding: Sharding, workload: Workload) -> float:
    """Bytes of attention scores that are kept: of models that cap them, where nothing fuses that (Gemma 2)."""
    if workload.kernels == "fused" or not model.capped_scores:
        return 0
    # where layers are recomputed, one at a time has its scores
    layers = model.softmax_layers / sharding.pipeline_parallel if workload.checkpointing == "none" else 1
    return _scores(model, sharding, workload) * SCORE_BYTES * layers


def eager_score_bytes(model: Architecture, sharding: Sharding, workload: Workload) -> tuple[float, float]:
    """Bytes of all scores where attention is written out: what layers keep, and what one has at its backward peak."""
    if workload.attention == "fused":
        return 0.0, 0.0
    scores, layers = _scores(model, sharding, workload), model.softmax_layers / sharding.pipeline_parallel
    kept = EAGER_SCORE_KEPT * scores * layers if workload.checkpointing == "none" else 0.0
    return kept, EAGER_SCORE_PEAK * scores


def _scores(model: Architecture, sharding: Sharding, workload: Workload) -> float:
    """Scores of one layer on one GPU: tensor parallelism divides the heads, context parallelism the queries."""
    cut = sharding.tensor_parallel * sharding.context_parallel
    return workload.sequences * workload.length**2 * model.heads / cut


def gathered_input_bytes(model: Architecture, sharding: Sharding, *, adapted: bool) -> float:
    """Bytes of a GPU's token that a layer keeps besides: inputs of divided matrices, gathered from all who divide them.

    Activations are divided along the sequence and gathered before the projections of attention and of a dense
    feed-forward network. torch's tensor parallelism (DTensor) keeps what was gathered, in place of its share. Megatron
    gathers anew in the backward pass, but low-rank adapters there keep it beside the share: Megatron-Bridge measured
    4.7 GB of it on Qwen3-8B at tensor parallel 2 and 8,192 tokens (``sequence_parallel_input_regather``); 4.8 come out.
    """
    degree = sharding.tensor_parallel
    if degree == 1 or not (sharding.backend == "fsdp" or (sharding.backend == "megatron" and adapted)):
        return 0.0
    besides = degree - 1 if sharding.backend == "fsdp" else degree
    return (1 + model.dense_layers / model.layers) * 2 * model.hidden * besides


def scattered_output_bytes(model: Architecture, sharding: Sharding) -> float:
    """Bytes of a GPU's token that selective checkpointing keeps of a layer besides where t GPUs divide its matrices.

    Each half's output once it is scattered (``reduce_scatter_tensor`` is in torchtitan's list), and of the dense down
    projection, whose product is among those kept, a part of a sum for the tokens of all t.
    """
    degree = sharding.tensor_parallel
    if degree == 1 or sharding.backend != "fsdp":
        return 0.0
    shared = model.experts.layers if model.experts is not None and model.experts.shared_ffn else 0
    down = (model.dense_layers + shared) / model.layers
    return 2 * model.hidden * (2 + down * (degree - 1))


def whole_norm_bytes(
    model: Architecture, sharding: Sharding, workload: Workload, *, trained: bool
) -> tuple[float, float]:
    """Bytes of a GPU's token that a layer keeps, and one has at its backward peak, because norms are not divided.

    Without sequence parallelism each of the t GPUs that divide matrices has the inputs of norms and of the matrices
    behind them for all tokens: of the 34 h of GPT's layer 10, two of which are dropout's masks (Korthikanti et al.
    2022, equation 2). Bytes of a token elsewhere are those of a GPU's share of the tokens, so t - 1 are missing.
    """
    if not sharding.whole_norms:
        return 0.0, 0.0
    others = (sharding.tensor_parallel - 1) * model.hidden
    fused = workload.kernels == "fused"
    of_a_layer = FUSED_NORMS if fused else _eager_norms(model, trained=trained) / model.hidden
    kept = {"none": of_a_layer, "offload": 0.0}.get(workload.checkpointing, 2.0)
    layer = LAYER_RESIDUALS if workload.checkpointing != "none" and not fused else PASSING_RESIDUALS
    if fused and workload.checkpointing == "full":
        layer += FUSED_NORMS * workload.layers_at_once
    return kept * others, layer * others


def whole_keys_bytes(model: Architecture) -> float:
    """Bytes of a token of the whole sequence, on each GPU that shares it by torch's context parallelism.

    It gathers keys and values of one layer at a time (``context_parallel``'s ``allgather``, its default since 2.7).
    """
    return 2 * 2 * widths(model)[1]


def _mean_ffn(model: Architecture) -> tuple[float, float]:
    """Width of the feed-forward part and of the copies sent to experts, as means over layers."""
    expert, dense, routed = routed_widths(model)
    expert_layers = model.experts.layers if model.experts else 0
    return (expert * expert_layers + dense * model.dense_layers) / model.layers, routed * expert_layers / model.layers


def _ungrouped(model: Architecture) -> float:
    """Width of gate and down that a layer (the mean of all) has outside routed experts."""
    experts, hidden = model.experts, model.hidden
    shared = experts.shared_ffn if experts else 0
    everywhere = model.dense_layers * (model.ffn + hidden)
    return (everywhere + (experts.layers * (shared + hidden) if experts and shared else 0)) / model.layers


def _fused_bytes(model: Architecture, ffn: float, sent: float) -> float:
    """About 34 h for GPT's widths, as Korthikanti et al. 2022 (arXiv:2205.05198) count without the scores."""
    query, kv = widths(model)
    return 2 * model.mlp_matrices * ffn + (8 if model.qk_norm else 6) * (query + kv) + 6 * model.hidden + 4 * sent


def _eager_bytes(model: Architecture, ffn: float, sent: float, workload: Workload, *, trained: bool) -> float:
    """What autograd saves of a layer of transformers' (``tests/trainers/test_kept_activations.py`` counts it there).

    Gate, up, silu's output and the product (8 f; 4 f without a gate); queries, keys, values and attention's output;
    each norm's input in float32 and, for the gradient of its weight, normalised; the inputs of both halves' matrices;
    of what goes to experts the inputs and the outputs.
    """
    query, kv = widths(model)
    # where attention is masked, or written out, keys and values are repeated for every head that shares them
    repeated = workload.mask or workload.attention == "eager"
    attention = 8.0 * query if repeated else 4.0 * (query + kv)
    if model.qk_norm:
        attention += _a_norm(model, trained=trained) * (query + kv)
    if workload.delta_rule == "torch" and model.linear is not None and model.linear.kind == "delta":
        attention += (DELTA_RULE_KEPT * _delta_values(model) - attention) * model.linear.layers / model.layers
    gated = 8 if model.mlp_matrices == 3 else 4
    return gated * ffn + attention + _eager_norms(model, trained=trained) + 4 * sent


def _a_norm(model: Architecture, *, trained: bool) -> int:
    """Bytes of a number that transformers' norms keep; LayerNorm is one operation, which takes 16 bits."""
    return 2 if model.norm_bias else 4 + 2 * trained


def _eager_norms(model: Architecture, *, trained: bool) -> float:
    """Bytes of a token that a layer of transformers keeps of norms and of the inputs of both halves' matrices."""
    return (_a_norm(model, trained=trained) * model.norms + 4) * model.hidden


def _litgpt_bytes(model: Architecture, ffn: float, sent: float) -> float:
    """As read off litgpt's table of fine-tuning with adapters, dropout before them and blocks of the allocator too."""
    query, kv = widths(model)
    attention = (12 if model.qk_norm else 6) * (query + kv)
    return (8 if model.mlp_matrices == 3 else 4) * ffn + attention + 16 * model.hidden + 6 * sent


def merged_stack_bytes(model: Architecture, adapter: Adapter | None) -> tuple[float, float]:
    """Bytes of a layer's experts with their updates added, and of the gradient of the stack that goes last.

    PEFT's adapters on stacked experts (``ParamWrapper``) add W and B A into a new stack of all experts, on which the
    layer computes, so that autograd keeps it as it keeps inputs. In the backward pass the sum has a gradient of its own
    before the adapters have theirs; that of gate and up comes when the down projection's stack has gone.
    """
    if adapter is None or adapter.targets != "peft" or not routed_adapters(model, adapter):
        return 0.0, 0.0
    assert model.experts is not None
    numbers = model.experts.count * model.mlp_matrices * model.experts.ffn * (model.experts.latent or model.hidden)
    return 2.0 * numbers, 2.0 * numbers / model.mlp_matrices


def routed_adapters(model: Architecture, adapter: Adapter) -> bool:
    """Whether routed experts have adapters."""
    experts = model.experts
    return experts is not None and (adapter.targets == "all" or (adapter.targets == "peft" and not experts.bias))


def forward_layer_bytes(model: Architecture) -> float:
    """Bytes of a token in one layer where nothing is kept for a backward pass.

    6 f (4 f without a gate) and 6 h: gate, up and their product; input, normalised input and output. vLLM's profile run
    has the same.
    """
    expert, dense, routed = routed_widths(model)
    return 2 * model.mlp_matrices * max(expert, dense) + 6 * model.hidden + 4 * routed


def mask_bytes(model: Architecture, workload: Workload) -> float:
    """Bytes of padding masks: one boolean mask, and a 16-bit one of each layer that waits for its backward pass.

    ``scaled_dot_product_attention`` turns a boolean mask into one of the queries' type, and autograd keeps it.
    """
    if not workload.mask:
        return 0
    layers = model.softmax_layers if workload.checkpointing == "none" else 1
    return workload.sequences * workload.length**2 * (1 + 2 * layers)
