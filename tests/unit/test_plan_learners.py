"""What learners send each other beside ZeRO's traffic, and what of a layout changes its prediction."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from rltui.errors import RltuiError
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.hardware.parameters import count_parameters
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.plan.cards import host_bytes_per_s, link_bytes_per_s, network_bytes_per_s
from rltui.plan.decoding import EAGER_ALL_REDUCE_S, EAGER_LAYER_S, decode_step
from rltui.plan.experts import BUSIEST, DISPATCH_S, LOOP_S
from rltui.plan.measured import Measured
from rltui.plan.of_layout import predict, request_of_layout, training_way
from rltui.plan.request import Means, Request
from rltui.plan.setup import Training
from rltui.plan.training import (
    HOST_BYTES_PER_S,
    TENSOR_EXPOSED,
    optimizer_s,
    reference_s,
    train_terms,
    training_compute_s,
)

MIXTURE = "Qwen/Qwen3-30B-A3B"


def shared(gpus: tuple[int, ...], size: int) -> tuple[float, Request]:
    """Seconds of all passes of a micro-batch of one row of 32k tokens that ``size`` ranks share."""
    model, gpu = find_model("Qwen/Qwen3-8B"), find_gpu("H100")
    assert model is not None
    assert gpu is not None
    means = Means(pack=True, sequence_parallel=size)
    request = Request(model_name=model.name, model=model, gpu=gpu, nodes=4, gpus_per_node=4, means=means)
    way = Training(
        gpus=gpus,
        zero_stage=3,
        micro_batch=1,
        gradient_checkpointing=True,
        packed_tokens=32_768,
        sequence_parallel=size,
    )
    return train_terms(request, way)[1], request


def test_sharing_sequences_costs_its_exchanges_and_more_between_nodes() -> None:
    # 36 layers, 8192 tokens of a rank, 32 + 32 query and output and 8 + 8 key heads, of 128 numbers of two bytes
    sent = 36 * 8192 * 80 * 128 * 2 * 3 / 4
    (alone, _), (near, request), (far, _) = shared((4,), 1), shared((4,), 4), shared((2, 2), 4)
    passes = 3  # forward, recomputed, backward
    near_s, far_s = (passes * sent / link_bytes_per_s(request, gpus) for gpus in ((4,), (2, 2)))
    assert near == pytest.approx(alone / 4 + near_s, rel=1e-6)
    assert far - near >= 0.999999 * (far_s - near_s) > 0


def divided(name: str, *, micro_batch: int = 1, **division: Any) -> tuple[float, Request]:
    """Seconds of all passes of a step of 64 samples of 4,096 tokens on 32 H100 in four nodes, evenly packed."""
    model, gpu = find_model(name), find_gpu("H100")
    assert model is not None
    assert gpu is not None
    request = Request(
        model_name=name,
        model=model,
        gpu=gpu,
        nodes=4,
        gpus_per_node=8,
        prompt_tokens=2048,
        response_mean=2048,
        prompts=8,
    )
    way = Training(
        gpus=(8,) * 4,
        zero_stage=3,
        micro_batch=micro_batch,
        gradient_checkpointing=True,
        packed_tokens=4096,
        **division,
    )
    return training_compute_s(request, way, model, 4), request


def test_a_pipeline_waits_while_it_fills_and_less_where_its_stages_take_turns() -> None:
    whole, _ = divided("Qwen/Qwen3-8B")
    # 32 ranks in pipelines of 8: four of them, 16 rows for each
    assert divided("Qwen/Qwen3-8B", pipeline_parallel=8)[0] == pytest.approx(whole * (1 + 7 / 16))
    assert divided("Qwen/Qwen3-8B", pipeline_parallel=8, virtual_stages=4)[0] == pytest.approx(whole * (1 + 7 / 64))


def test_divided_matrices_are_waited_for_and_more_between_nodes() -> None:
    whole, request = divided("Qwen/Qwen3-8B")
    near, far = (divided("Qwen/Qwen3-8B", tensor_parallel=size)[0] for size in (8, 16))
    tokens = 64 * 4096 / 32
    # 36 layers, before and behind attention and feed-forward network, 4,096 numbers of two bytes, seven other ranks
    sent = 36 * 2 * 2 * 4096 * 2 * 7 * tokens
    assert near == pytest.approx(whole + 3 * TENSOR_EXPOSED * sent / link_bytes_per_s(request, (8,)))
    assert far - whole > 3 * (near - whole)


def test_experts_on_other_nodes_are_waited_for() -> None:
    name = MIXTURE
    whole, near, far = (divided(name, expert_parallel=size, routed_evenly=True)[0] for size in (1, 8, 32))
    # 2 rows of each rank, 4 passes, 48 layers
    assert near == pytest.approx(whole + 2 * 4 * 48 * DISPATCH_S["plain"])
    tokens, request = 64 * 4096 / 32, divided(name)[1]
    # forward, recomputed, backward: 8 experts a token, three in four elsewhere; 2,048 numbers, there and back
    sent = 3 * 2 * 2 * 8 * 3 / 4 * 2048 * 48 * tokens
    assert far == pytest.approx(near + sent / network_bytes_per_s(request))
    assert divided("Qwen/Qwen3-8B", expert_parallel=32)[0] == divided("Qwen/Qwen3-8B")[0]


def test_a_fused_dispatcher_waits_less_and_sends_a_node_one_copy() -> None:
    plain, fused = (divided(MIXTURE, expert_parallel=32, dispatch=word)[0] for word in ("plain", "fused"))
    assert fused < plain - 2 * 4 * 48 * (DISPATCH_S["plain"] - DISPATCH_S["fused"])
    one, four = (divided(MIXTURE, expert_parallel=8, micro_batch=rows)[0] for rows in (1, 2))
    assert one - four == pytest.approx(4 * 48 * DISPATCH_S["plain"]), "half as many micro-batches, half the waits"


def test_ranks_wait_for_the_one_whose_experts_are_asked_for_most() -> None:
    forced, natural = (divided(MIXTURE, expert_parallel=8, routed_evenly=word)[0] for word in (True, False))
    assert 1.05 < natural / forced < BUSIEST
    alone = [divided(MIXTURE, routed_evenly=word)[0] for word in (True, False)]
    assert alone[0] == alone[1], "undivided, each rank computes its own tokens"


def test_experts_one_after_the_other_take_as_long_as_they_take_to_launch() -> None:
    whole, looped = (divided(MIXTURE, loops_experts=word)[0] for word in (False, True))
    assert looped == pytest.approx(whole + 2 * 4 * 48 * 128 * LOOP_S)
    assert divided("Qwen/Qwen3-8B", loops_experts=True)[0] == divided("Qwen/Qwen3-8B")[0]


def test_layers_of_linear_attention_are_gathered_like_others_where_matrices_are_divided() -> None:
    name = "Qwen/Qwen3.5-27B"
    (whole, request), (two, _) = divided(name), divided(name, tensor_parallel=2)
    tokens = 64 * 4096 / 32
    # 64 layers, 48 of them with linear attention, each with a feed-forward network; 5,120 numbers of two bytes
    sent = (64 + 64) * 2 * 5120 * 2 * tokens
    assert two == pytest.approx(whole + 3 * TENSOR_EXPOSED * sent / link_bytes_per_s(request, (8,)))


def test_megatrons_kernels_move_less_of_the_tokens_that_go_to_experts() -> None:
    seconds = {
        name: [divided(name, megatron=megatron)[0] for megatron in (False, True)]
        for name in ("Qwen/Qwen3-30B-A3B", "Qwen/Qwen3-8B")
    }
    gained = {name: 1 - by_megatron / by_torch for name, (by_torch, by_megatron) in seconds.items()}
    assert gained["Qwen/Qwen3-30B-A3B"] > 2 * gained["Qwen/Qwen3-8B"] > 0


def test_a_layout_whose_learners_divide_layers_is_predicted() -> None:
    words = ["roles.learner.gpus=[4, 4]"]
    alone, pairs = (
        predict(
            load_layout(resolve("open-instruct/grpo-7b-2x4-tp1"), [*words, f"roles.learner.tensor_parallel={n}"]).layout
        )
        for n in (1, 2)
    )
    assert alone.time.train_s < pairs.time.train_s < 3 * alone.time.train_s


def test_a_layout_without_graphs_waits_for_each_kernel_of_a_decode_step() -> None:
    graphs, eager = (
        load_layout(
            resolve("open-instruct/grpo-7b-2x4-tp1"),
            [f"roles.rollout.enforce_eager={word}", "train.prompts_per_step=4"],
        ).layout
        for word in ("false", "true")
    )
    wanted = request_of_layout(eager)
    few, more = (decode_step(wanted, width, 1) for width in (1, 2))
    layers = wanted.model.layers
    assert few.step_s == pytest.approx(layers * EAGER_LAYER_S + few.host_s), "reading the weights takes less"
    assert more.launch_s - few.launch_s == pytest.approx(2 * layers * EAGER_ALL_REDUCE_S)
    full = [decode_step(request_of_layout(layout), 1, 256).step_s for layout in (graphs, eager)]
    assert full[0] == full[1], "a card with enough to do is not waited for"
    assert predict(eager).time.generate_s > predict(graphs).time.generate_s


def test_sequences_in_flight_are_those_of_the_layout() -> None:
    few, many = (
        load_layout(resolve("open-instruct/grpo-7b-2x4-tp1"), [f"roles.rollout.max_concurrency={count}"]).layout
        for count in (8, 64)
    )
    assert predict(few).time.generate_s > predict(many).time.generate_s


def test_engines_in_fp8_read_half_as_much_of_weights_and_cache() -> None:
    words = ["roles.rollout.quantization=fp8_per_block", "roles.rollout.kv_cache_dtype=fp8"]
    plain, weights, both = (
        decode_step(
            request_of_layout(load_layout(resolve("open-instruct/grpo-7b-2x4-tp1"), words[:count]).layout), 1, 64
        )
        for count in range(3)
    )
    assert 0.5 * plain.weights_s < weights.weights_s < 0.6 * plain.weights_s  # the head stays in 16 bits
    assert both.weights_s == weights.weights_s
    assert both.cache_s == pytest.approx(weights.cache_s / 2) == pytest.approx(plain.cache_s / 2)


def test_a_reference_that_is_whole_on_every_card_gathers_nothing() -> None:
    slow = Measured(network_bytes_per_s=3e9)
    words = ["roles.reference={}", "grpo.kl_coefficient=0.1", "train.prompts_per_step=4", "train.samples_per_prompt=2"]
    way = Training(gpus=(4, 4), zero_stage=3, micro_batch=1, gradient_checkpointing=True)
    divided, whole = (
        structs.replace(
            request_of_layout(load_layout(resolve("open-instruct/grpo-7b-2x4-tp1"), [*words, stage]).layout),
            measured=slow,
        )
        for stage in ("roles.reference.zero_stage=3", "roles.reference.zero_stage=0")
    )
    assert reference_s(whole, way) < reference_s(divided, way)


@pytest.mark.parametrize("role", ["roles.learner.precision=fp32", "roles.rollout.precision=fp32"])
def test_float32_is_not_timed_as_if_it_were_half_precision(role: str) -> None:
    layout = load_layout(resolve("open-instruct/grpo-7b-2x4-tp1"), [role]).layout
    with pytest.raises(RltuiError, match="numbers in float32"):
        predict(layout)


def test_a_step_in_host_memory_moves_gradients_in_float32_and_clips_them_there() -> None:
    model, gpu = find_model("Qwen/Qwen3-8B"), find_gpu("H200")
    assert model is not None
    assert gpu is not None
    request = Request(model_name=model.name, model=model, gpu=gpu, nodes=1, gpus_per_node=8)
    way = Training(gpus=(8,), zero_stage=3, micro_batch=1, gradient_checkpointing=True, offload=True)
    mine = count_parameters(model).total / 8
    # down 4 bytes of gradient and up 2 of weight; AdamW's 28, 4 that arrive, 8 of clipping, 4 read and 2 written
    by_hand = 6 * mine / host_bytes_per_s(request) + 46 * mine * 8 / HOST_BYTES_PER_S
    assert optimizer_s(request, model, way) == pytest.approx(by_hand)


def test_each_pass_over_the_samples_and_each_optimizer_step_is_counted() -> None:
    def terms(*words: str) -> tuple[int, float, float]:
        even = ["roles.learner.micro_batch=1", "lengths.pack=0", *words]
        layout = load_layout(resolve("open-instruct/grpo-7b-1x4-even"), even).layout
        return train_terms(request_of_layout(layout), training_way(layout, layout.roles.learner))[:3]

    batches, pass_s, update_s = terms()
    # forward, recomputed and backward of two, behind a pass for log-probs that have moved since
    for words, passes in (("train.epochs=2", 9), ("train.optimizer_steps=2", 5)):
        assert terms(words) == (batches, pytest.approx(pass_s * passes / 4), pytest.approx(2 * update_s))
    assert terms("grpo.kl=reward", "grpo.kl_coefficient=0.01")[1] == pytest.approx(pass_s * 5 / 4)
