"""Activations and logits against hand computation."""

from __future__ import annotations

from typing import Literal

import pytest
from msgspec import structs

from rltui.hardware.architecture import Architecture, Experts, LinearAttention
from rltui.hardware.models import known_model
from rltui.memory import settings as s
from rltui.memory.activations import (
    DELTA_RULE_KEPT,
    DELTA_RULE_PEAK,
    EAGER_SCORE_KEPT,
    EAGER_SCORE_PEAK,
    LAYER_RESIDUALS,
    QK_NORM_COPY,
    ROUTED_TOKEN,
    forward_layer_bytes,
    kept_layer_bytes,
    mask_bytes,
    recomputed_layer_bytes,
)
from rltui.memory.estimate import GIB, Doubt, Moment
from rltui.memory.training import OTHERS_ERROR, TRAINING_ERROR, UNSURE_ERROR, estimate_training

H, Q, KV, F, LAYERS, VOCAB = 1024, 1024, 256, 4096, 4, 32000
DENSE = Architecture(name="dense", layers=LAYERS, hidden=H, heads=8, kv_heads=2, head_dim=128, ffn=F, vocab=VOCAB)
NORMED = Architecture(
    name="normed", layers=LAYERS, hidden=H, heads=8, kv_heads=2, head_dim=128, ffn=F, vocab=VOCAB, qk_norm="head"
)
PLAIN = structs.replace(DENSE, name="plain", mlp_matrices=2)
SPARSE = Architecture(
    name="sparse", layers=LAYERS, hidden=H, heads=8, kv_heads=2, head_dim=128, vocab=VOCAB,
    experts=Experts(layers=LAYERS, count=16, top_k=2, ffn=512, shared_ffn=256),
)  # fmt: skip
LINEAR = structs.replace(
    DENSE, linear=LinearAttention(layers=3, key_heads=4, value_heads=16, key_dim=128, value_dim=128)
)
ONE = s.Sharding(gpus=1, backend="plain", zero_stage=0)
BACKENDS: tuple[s.Backend, ...] = ("fsdp", "megatron")
RULES: tuple[Literal["fused", "torch"], ...] = ("fused", "torch")


def backward(workload: s.Workload, sharding: s.Sharding = ONE, model: Architecture = DENSE) -> Moment:
    estimate = estimate_training(model, sharding, workload)
    return next(moment for moment in estimate.moments if moment.moment == "backward")


@pytest.mark.parametrize(
    ("checkpointing", "kernels", "expected"),
    [
        ("full", "fused", 2 * H),
        ("offload", "fused", 0),
        ("none", "fused", 6 * F + 6 * (Q + KV) + 6 * H),
        ("none", "eager", 8 * F + 4 * (Q + KV) + 16 * H),
        ("none", "litgpt", 8 * F + 6 * (Q + KV) + 16 * H),
    ],
)
def test_kept_by_a_layer(checkpointing: str, kernels: str, expected: int) -> None:
    workload = s.Workload(tokens=1, checkpointing=checkpointing, kernels=kernels)  # type: ignore[arg-type]
    assert kept_layer_bytes(DENSE, workload) == expected


def test_gpts_widths_give_korthikantis_34_bytes_a_hidden() -> None:
    """Two matrices of width 4 h there are as wide as three of 8/3 h here; no grouped queries."""
    gpt = Architecture(name="gpt", layers=1, hidden=3072, heads=24, kv_heads=24, head_dim=128, ffn=8192, vocab=1)
    kept = kept_layer_bytes(gpt, s.Workload(tokens=1, checkpointing="none"))
    assert kept / 3072 == pytest.approx(34)


def test_selective_is_between_full_and_none() -> None:
    kept = [
        kept_layer_bytes(DENSE, s.Workload(tokens=1, checkpointing=mode))
        for mode in ("offload", "full", "selective", "none")
    ]
    assert kept == sorted(kept)
    assert len(set(kept)) == 4


def test_frozen_matrices_keep_less_and_quantised_ones_more() -> None:
    workload = s.Workload(tokens=1, checkpointing="none")
    plain = kept_layer_bytes(DENSE, workload)
    frozen = kept_layer_bytes(DENSE, workload, s.Adapter(targets="attention"))
    quantised = kept_layer_bytes(DENSE, workload, s.Adapter(targets="attention", base_bytes=0.55))
    assert plain - frozen == 2 * F + 2 * H
    assert quantised - frozen == 4 * (2 * H + Q + F)


def test_experts_with_updates_added_are_kept_by_every_layer_or_by_the_recomputed_one() -> None:
    """16 experts of three matrices, 2 bytes a number; and the gradient of the down projections' stack."""
    stack, adapter = 2 * 16 * 3 * 512 * H / GIB, s.Adapter(targets="peft")
    for checkpointing, layers in (("none", LAYERS), ("full", 1)):
        workload = s.Workload(tokens=1, checkpointing=checkpointing, kernels="eager")  # type: ignore[arg-type]
        moments = {m.moment: m.parts_gib for m in estimate_training(SPARSE, ONE, workload, adapter=adapter).moments}
        assert moments["backward"]["merged experts"] == pytest.approx(stack * layers + stack / 3)
    kept = s.Workload(tokens=1, checkpointing="none", kernels="eager", head="none")
    divided = estimate_training(SPARSE, s.Sharding(gpus=8), kept, adapter=adapter)
    assert divided.knob == "roles.learner.gradient_checkpointing=true"
    others = (s.Adapter(targets="linear"), s.Adapter(targets="all"), None)
    every = [estimate_training(SPARSE, ONE, s.Workload(tokens=1), adapter=each).moments for each in others]
    assert not any("merged experts" in moment.parts_gib for moments in every for moment in moments)


def test_a_layer_of_which_nothing_is_recomputed_has_gradients_on_their_way_besides() -> None:
    kept = s.Workload(tokens=1000, checkpointing="none", kernels="eager")
    assert backward(kept).parts_gib["layer"] == pytest.approx((6 * F + 4 * H) * 1000 / GIB)


def test_masks_and_scores_have_keys_and_values_repeated_for_every_head() -> None:
    plain = s.Workload(tokens=1, checkpointing="none", kernels="eager")
    for repeating in (structs.replace(plain, mask=True), structs.replace(plain, attention="eager")):
        assert kept_layer_bytes(DENSE, repeating) - kept_layer_bytes(DENSE, plain) == 8 * Q - 4 * (Q + KV)


def test_recomputed_layer() -> None:
    assert recomputed_layer_bytes(DENSE) == 12 * F + 6 * (Q + KV) + LAYER_RESIDUALS * H
    assert recomputed_layer_bytes(NORMED) - recomputed_layer_bytes(DENSE) == QK_NORM_COPY * (Q + KV)
    assert recomputed_layer_bytes(NORMED, trained=False) == recomputed_layer_bytes(DENSE)
    routed = 12 * (2 * 512 + 256) + 6 * (Q + KV) + LAYER_RESIDUALS * H + ROUTED_TOKEN * 2 * H
    assert recomputed_layer_bytes(SPARSE) == routed
    assert forward_layer_bytes(DENSE) == 6 * F + 6 * H
    assert recomputed_layer_bytes(PLAIN) == 8 * F + 6 * (Q + KV) + LAYER_RESIDUALS * H
    assert forward_layer_bytes(PLAIN) == 4 * F + 6 * H


def test_backward_adds_up_by_hand() -> None:
    moment = backward(s.Workload(tokens=8192, checkpointing="full", head="full"))
    assert moment.parts_gib["activations"] == pytest.approx(2 * H * LAYERS * 8192 / GIB)
    assert moment.parts_gib["layer"] == pytest.approx((12 * F + 6 * (Q + KV) + LAYER_RESIDUALS * H) * 8192 / GIB)
    assert moment.parts_gib["logits"] == pytest.approx(14 * VOCAB * 8192 / GIB)
    assert moment.parts_gib["cached blocks"] == pytest.approx(3 * VOCAB * 8192 / GIB)
    assert moment.total_gib == pytest.approx(sum(moment.parts_gib.values()))
    assert moment.torch_gib == pytest.approx(moment.total_gib - moment.parts_gib["context"])


@pytest.mark.parametrize(("head", "bytes_a_logit"), [("full", 14), ("compiled", 8), ("streamed", 3), ("none", 0)])
def test_logits_by_how_the_head_is_computed(head: str, bytes_a_logit: int) -> None:
    parts = backward(s.Workload(tokens=1000, head=head)).parts_gib  # type: ignore[arg-type]
    assert parts["logits"] == pytest.approx(bytes_a_logit * VOCAB * 1000 / GIB)


def test_chunked_head_does_not_grow() -> None:
    few, many = (backward(s.Workload(tokens=tokens, head="chunked")).parts_gib["logits"] for tokens in (100, 10**6))
    assert few == many == pytest.approx(0.3)


def test_only_the_responses_logits_count_where_only_they_are_asked_for() -> None:
    parts = backward(s.Workload(tokens=1000, head_tokens=250, head="compiled")).parts_gib
    assert parts["logits"] == pytest.approx(8 * VOCAB * 250 / GIB)


@pytest.mark.parametrize(("head_tokens", "there", "gone"), [(1000, "logits", "layer"), (100, "layer", "logits")])
def test_logits_that_go_first_leave_their_memory_to_the_layer(head_tokens: int, there: str, gone: str) -> None:
    parts = backward(s.Workload(tokens=1000, head_tokens=head_tokens, head="streamed")).parts_gib
    assert parts[there] > 0
    assert parts[gone] == 0


def test_tensor_and_context_parallelism_divide_activations_and_logits() -> None:
    workload, one = s.Workload(tokens=8192), s.Sharding(backend="megatron", zero_stage=1)
    whole = backward(workload, one).parts_gib
    split = backward(workload, structs.replace(one, gpus=8, tensor_parallel=4, context_parallel=2)).parts_gib
    for name in ("activations", "layer", "logits"):
        assert split[name] == pytest.approx(whole[name] / 8)


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("kernels", ["fused", "eager"])
def test_without_sequence_parallelism_each_gpu_has_norms_of_all_tokens(
    checkpointing: s.Checkpointing, kernels: s.Kernels
) -> None:
    tokens = 8192
    workload = s.Workload(tokens=tokens, checkpointing=checkpointing, kernels=kernels)
    divided = s.Sharding(gpus=4, backend="megatron", zero_stage=1, tensor_parallel=4)
    least = backward(workload, divided).parts_gib
    most = backward(workload, structs.replace(divided, sequence_parallel=False)).parts_gib
    # of two norms and two inputs 2 bytes each; eagerly a norm keeps its input in float32 and, trained, normalised
    norms = {"fused": 8, "eager": 16}[kernels] if checkpointing == "none" else 2
    assert most["activations"] - least["activations"] == pytest.approx(norms * H * LAYERS * tokens * 3 / 4 / GIB)
    assert most["layer"] > least["layer"]
    assert most["logits"] == least["logits"]


def test_deepspeeds_tensor_parallelism_never_divides_norms() -> None:
    workload, split = s.Workload(tokens=8192), s.Sharding(gpus=4, zero_stage=1, tensor_parallel=4)
    told = structs.replace(split, sequence_parallel=False)
    assert backward(workload, split).parts_gib == backward(workload, told).parts_gib


def pipeline(backend: s.Backend, head: s.Head) -> Moment:
    """Of four stages of a layer each, with more micro-batches than stages."""
    deep = s.Sharding(gpus=4, backend=backend, zero_stage=1, pipeline_parallel=4)
    return backward(s.Workload(tokens=1024, pipeline_micro_batches=8, head=head), deep)


def test_pipeline_keeps_as_many_micro_batches_as_it_has_stages() -> None:
    inputs, outputs = 2 * H * (LAYERS / 4), 2 * H
    kept = (inputs + outputs) * 1024 * 4 / GIB
    assert pipeline("deepspeed", "full").parts_gib["activations"] == pytest.approx(kept)
    assert pipeline("megatron", "none").parts_gib["activations"] == pytest.approx(kept), "of the first stage"


def test_megatrons_last_stage_has_the_logits_and_one_micro_batch() -> None:
    last, first = pipeline("megatron", "full").parts_gib, pipeline("megatron", "none").parts_gib
    assert last["activations"] == pytest.approx(first["activations"] / 4)
    assert last["logits"] == pytest.approx(14 * VOCAB * 1024 / GIB)


def test_layers_recomputed_together_keep_one_input_and_are_there_at_once() -> None:
    one, four = (
        backward(s.Workload(tokens=1024, layers_at_once=n), s.Sharding(backend="megatron", zero_stage=1)).parts_gib
        for n in (1, 4)
    )
    assert four["activations"] == pytest.approx(one["activations"] / 4)
    each = kept_layer_bytes(DENSE, s.Workload(tokens=1, checkpointing="none"))
    assert one["layer"] == pytest.approx((each + 6 * F + 4 * H) * 1024 / GIB), "and gradients on their way"
    assert four["layer"] - one["layer"] == pytest.approx(3 * each * 1024 / GIB)


def test_autocast_keeps_casts_of_the_weights_and_a_float32_residual() -> None:
    """TRL loads float32 weights and trains under ``torch.autocast``, which keeps the 16-bit copies of a pass."""
    workload = s.Workload(tokens=1000, head="chunked")
    mixed, pure = (
        next(m for m in estimate_training(DENSE, ONE, workload, states).moments if m.moment == "backward").parts_gib
        for states in (s.FSDP_FP32_FOREACH, s.PURE_BF16_FOREACH)
    )
    assert mixed["cast weights"] == pytest.approx(pure["weights"])
    assert "cast weights" not in pure
    assert mixed["activations"] == pytest.approx(2 * pure["activations"])
    sharded = s.Sharding(gpus=2, backend="fsdp")
    moments = estimate_training(DENSE, sharded, workload, s.FSDP_FP32_FOREACH).moments
    assert not any("cast weights" in moment.parts_gib for moment in moments), "FSDP gathers in 16 bits"


def test_capped_scores_are_kept_where_nothing_fuses_them() -> None:
    capped = structs.replace(DENSE, capped_scores=True, capped_logits=True)
    rows = s.Workload(tokens=2 * 512, sequences=2, checkpointing="none", kernels="eager")
    more = {
        name: size - backward(rows).parts_gib[name] for name, size in backward(rows, model=capped).parts_gib.items()
    }
    assert more["activations"] == pytest.approx(8 * 2 * 512**2 * DENSE.heads * LAYERS / GIB)
    assert more["logits"] == pytest.approx(4 * VOCAB * 1024 / GIB)
    fused = structs.replace(rows, kernels="fused")
    assert backward(fused, model=capped) == backward(fused)


def test_float32_adapters_copy_the_inputs_of_a_layers_matrices() -> None:
    """Queries, keys, values, gate and up read h, the output projection q, the down projection f."""
    workload, layers = s.Workload(tokens=1000, head="none"), []
    for float32 in (False, True):
        moments = estimate_training(DENSE, ONE, workload, adapter=s.Adapter(float32=float32)).moments
        layers.append(next(m for m in moments if m.moment == "backward").parts_gib["layer"])
    assert layers[1] - layers[0] == pytest.approx(4 * (5 * H + Q + F) * 1000 / GIB)


def test_allocated_memory_has_the_larger_of_logits_and_layer() -> None:
    moment = backward(s.Workload(tokens=1000))
    smaller, cached = min(moment.parts_gib["layer"], moment.parts_gib["logits"]), moment.parts_gib["cached blocks"]
    assert moment.torch_gib - moment.allocated_gib == pytest.approx(smaller + cached)
    assert moment.torch_gib - moment.least_gib == pytest.approx(smaller - moment.parts_gib["context"])
    assert smaller > 0
    assert cached > 0


def test_offloaded_inputs_leave_a_few_in_flight() -> None:
    parts = backward(s.Workload(tokens=4096, checkpointing="offload")).parts_gib
    assert parts["activations"] == pytest.approx(5 * 2 * H * 4096 / GIB)


def test_padding_mask_grows_with_the_square_of_the_length() -> None:
    rows = s.Workload(tokens=4 * 2048, sequences=4, mask=True, checkpointing="none")
    assert mask_bytes(DENSE, rows) == 4 * 2048**2 * (1 + 2 * LAYERS)
    recomputed = s.Workload(tokens=4 * 2048, sequences=4, mask=True, checkpointing="full")
    assert mask_bytes(DENSE, recomputed) == 4 * 2048**2 * 3
    assert mask_bytes(DENSE, s.Workload(tokens=2048)) == 0


def test_gradients_are_beside_activations_only_where_they_accumulate() -> None:
    """In the first micro-batch gradients come while activations go."""
    together = backward(s.Workload(tokens=64, accumulates=True))
    first = backward(s.Workload(tokens=64, accumulates=False))
    kept = together.parts_gib["activations"] + together.parts_gib["logits"]
    assert together.total_gib - first.total_gib == pytest.approx(min(kept, together.parts_gib["gradients"]))


def test_megatrons_adapters_keep_their_inputs_whole() -> None:
    """Of 2,000 tokens each of two GPUs has half, and keeps all inputs of attention and feed-forward, 2 bytes each."""
    two, workload = (
        s.Sharding(gpus=2, backend="megatron", zero_stage=1, tensor_parallel=2),
        s.Workload(tokens=2000, checkpointing="none", head="none"),
    )
    kept = {}
    for name, split in {"megatron": two, "plain": s.Sharding(gpus=2, backend="plain", tensor_parallel=2)}.items():
        estimate = estimate_training(DENSE, split, workload, adapter=s.Adapter())
        kept[name] = next(each for each in estimate.moments if each.moment == "backward").parts_gib["activations"]
    assert kept["megatron"] - kept["plain"] == pytest.approx(2 * 2 * H * 2000 * LAYERS / GIB)
    recomputed = s.Workload(tokens=2000, checkpointing="full", head="none")
    moments = estimate_training(DENSE, two, recomputed, adapter=s.Adapter()).moments
    whole = next(each for each in moments if each.moment == "backward").parts_gib["activations"]
    assert whole == pytest.approx(2 * H * 1000 * LAYERS / GIB), "only layers' inputs are kept"


def test_torchs_tensor_parallelism_keeps_inputs_whole_in_place_of_its_share() -> None:
    """Of 2,000 tokens each of two GPUs keeps the inputs of attention and feed-forward of the other's thousand, too."""
    workload = s.Workload(tokens=2000, checkpointing="none", head="none")
    kept = {
        backend: backward(workload, s.Sharding(gpus=2, backend=backend, tensor_parallel=2)).parts_gib["activations"]
        for backend in BACKENDS
    }
    assert kept["fsdp"] - kept["megatron"] == pytest.approx(2 * 2 * H * 1000 * LAYERS / GIB)


def test_a_delta_rule_without_its_kernels_is_the_layer_that_counts() -> None:
    values = 16 * 128
    fused, by_torch = (recomputed_layer_bytes(LINEAR, delta_rule=rule) for rule in RULES)
    assert fused == recomputed_layer_bytes(DENSE)
    assert by_torch - fused == DELTA_RULE_PEAK * values - 6 * (Q + KV)
    assert recomputed_layer_bytes(DENSE, delta_rule="torch") == fused, "a model without linear layers is not touched"
    kept = {rule: s.Workload(tokens=1, checkpointing="none", kernels="eager", delta_rule=rule) for rule in RULES}
    more = kept_layer_bytes(LINEAR, kept["torch"]) - kept_layer_bytes(LINEAR, kept["fused"])
    assert more == (DELTA_RULE_KEPT * values - 4 * (Q + KV)) * 3 / LAYERS


@pytest.mark.parametrize(
    ("sharding", "model", "error"),
    [
        (ONE, DENSE, OTHERS_ERROR),
        (s.Sharding(gpus=8, offload="optimizer", buckets_by_width=True), DENSE, TRAINING_ERROR),
        (s.Sharding(gpus=8, offload="optimizer"), DENSE, OTHERS_ERROR),
        (s.Sharding(gpus=8, backend="megatron", zero_stage=1, offload="optimizer"), DENSE, UNSURE_ERROR),
        (ONE, LINEAR, UNSURE_ERROR),
    ],
    ids=["one card alone", "our DeepSpeed's offload", "others' DeepSpeed", "Megatron's offload", "linear attention"],
)
def test_what_was_measured_further_off_has_a_wider_bar(sharding: s.Sharding, model: Architecture, error: Doubt) -> None:
    assert estimate_training(model, sharding, s.Workload(tokens=1)).error == error


def test_attention_that_is_written_out_has_a_score_for_each_pair_of_tokens() -> None:
    fused = backward(s.Workload(tokens=4096, sequences=2)).parts_gib
    eager = backward(s.Workload(tokens=4096, sequences=2, attention="eager")).parts_gib
    scores = 2 * 2048**2 * DENSE.heads
    assert eager["layer"] - fused["layer"] == pytest.approx(EAGER_SCORE_PEAK * scores / GIB)
    assert eager["activations"] == fused["activations"]
    kept = s.Workload(tokens=4096, sequences=2, checkpointing="none")
    every = backward(structs.replace(kept, attention="eager")).parts_gib["activations"]
    assert every - backward(kept).parts_gib["activations"] == pytest.approx(EAGER_SCORE_KEPT * scores * LAYERS / GIB)


def test_scores_are_divided_as_heads_and_layers_are() -> None:
    """Each GPU has the scores of its own heads, and of the layers of its own stage."""
    rows = s.Workload(tokens=4096, sequences=2, checkpointing="none")

    def kept(sharding: s.Sharding) -> float:
        with_scores = estimate_training(DENSE, sharding, structs.replace(rows, attention="eager")).peak.parts_gib
        return with_scores["activations"] - estimate_training(DENSE, sharding, rows).peak.parts_gib["activations"]

    cut = s.Sharding(gpus=4, backend="megatron", zero_stage=1, tensor_parallel=2, pipeline_parallel=2)
    assert kept(cut) == pytest.approx(kept(s.Sharding(backend="megatron", zero_stage=1)) / 4)


def test_exchanges_with_other_gpus_experts_are_kept_where_the_policy_names_them() -> None:
    model = structs.replace(DENSE, ffn=0, experts=Experts(layers=LAYERS, count=8, top_k=2, ffn=512))
    recomputed = s.Workload(tokens=1, checkpointing="selective")
    kept = structs.replace(recomputed, keeps_exchanges=True)
    assert kept_layer_bytes(model, recomputed) == 2 * H + 2 * Q + 2 * (Q + KV)
    assert kept_layer_bytes(model, kept) - kept_layer_bytes(model, recomputed) == 4 * 2 * H


def test_selective_checkpointing_keeps_what_divided_parts_scatter() -> None:
    def kept(name: str, tensor: int) -> float:
        found = known_model(name)
        assert found is not None
        sharding = s.Sharding(gpus=8, backend="fsdp", tensor_parallel=tensor)
        workload = s.Workload(tokens=8192 * tensor, checkpointing="selective", head="chunked")
        moment = next(m for m in estimate_training(found, sharding, workload).moments if m.moment == "backward")
        return moment.parts_gib["activations"] * GIB / (8192 * found.layers * 2 * found.hidden)

    # both halves' outputs, and the down projection's, which is a sum's part of the tokens of both GPUs
    assert kept("Llama-3.1-8B", 2) - kept("Llama-3.1-8B", 1) == pytest.approx(3)
    # products of routed experts are grouped, and not kept
    assert kept("Qwen3-30B-A3B", 4) - kept("Qwen3-30B-A3B", 1) == pytest.approx(2)
