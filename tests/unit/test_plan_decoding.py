"""How long engines take in a plan: one decode step, and until the longest response has ended."""

from __future__ import annotations

from typing import Any

import pytest

from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.plan.candidates import engine_choices
from rltui.plan.decoding import (
    ALL_REDUCE_OF_NODES_S,
    ALL_REDUCE_S,
    decode_step,
    decode_step_s,
    generate_s,
)
from rltui.plan.request import Request


def request(name: str = "Qwen/Qwen2.5-7B", nodes: int = 2, gpus: int = 4, **more: Any) -> Request:
    model, gpu = find_model(name), find_gpu("H100")
    assert model is not None
    assert gpu is not None
    return Request(model_name=name, model=model, gpu=gpu, nodes=nodes, gpus_per_node=gpus, **more)


def test_a_decode_step_is_bound_by_bandwidth_until_the_batch_is_large() -> None:
    one, bound_one = decode_step_s(request(), 1, 1)
    # 7.07e9 parameters without the embedding, two bytes each, at 80 % of 3.35 TB/s, 2 ms, and 50 µs a layer
    assert one == pytest.approx(7.07e9 * 2 / (0.8 * 3.35e12) + 2e-3 + 28 * 50e-6, rel=0.02)
    assert bound_one == "memory bandwidth"
    short = request(prompt_tokens=1, response_tokens=3)
    assert decode_step_s(short, 1, 4096)[1] == "FLOPs"
    assert decode_step_s(request(), 2, 64)[0] < decode_step_s(request(), 1, 64)[0]


def test_an_all_reduce_takes_longer_the_more_sequences_and_the_further_away() -> None:
    small, large = (decode_step(request("Qwen/Qwen2.5-32B", 2, 8), 8, batch).kernels_s for batch in (1, 512))
    # 512 states of 5,120 numbers, twice 7/8 of them over 70 % of 450 GB/s, twice in each of 64 layers
    assert large - small == pytest.approx(128 * 2 * 2 * 511 * 5120 * 7 / 8 / (0.7 * 450e9))
    near, far = (decode_step(request("Qwen/Qwen2.5-32B", 2, 8), width, 1).kernels_s for width in (8, 16))
    assert far > near + 128 * (ALL_REDUCE_OF_NODES_S - ALL_REDUCE_S)


def test_engines_that_lose_sequences_get_faster_towards_the_longest() -> None:
    engine = next(each for each in engine_choices(request()) if each.memory.verdict == "fits")
    wanted = request(prompts=16, samples=16, response_tokens=8192, response_mean=500)
    longest = wanted.longest_of(256)
    alone, full = (longest * decode_step_s(wanted, engine.tensor_parallel, batch)[0] for batch in (1, 256))
    made = generate_s(wanted, engine, 1)[0]
    assert alone < made < (alone + full) / 2, "most of 256 end long before the longest"


def test_a_mixture_reads_only_the_experts_that_are_visited() -> None:
    moe = request("Qwen/Qwen3-30B-A3B", prompt_tokens=1, response_tokens=3)
    few, many = decode_step_s(moe, 1, 1)[0], decode_step_s(moe, 1, 512)[0]
    assert few < many / 3


def test_a_wider_spread_makes_the_longest_response_longer_up_to_the_limit() -> None:
    narrow, wide = (request(response_tokens=8192, response_mean=2000, response_spread=each) for each in (50, 500))
    assert narrow.longest_of(512) < wide.longest_of(512) <= 8192
    assert request(response_tokens=3000).longest_of(2) == pytest.approx(2000), "two evenly spread: two thirds"
