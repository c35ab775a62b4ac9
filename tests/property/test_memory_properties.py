"""More tokens, more samples or a smaller share of the card never make an estimate better."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from rltui.errors import UsageError
from rltui.hardware.hf_config import architecture_from_config
from rltui.hardware.kv_cache import kv_layers
from rltui.hardware.model_types import TRAITS
from rltui.hardware.models import models
from rltui.hardware.parameters import count_parameters
from rltui.layout.schema import Layout
from rltui.memory import EngineSettings, Sharding, Workload, estimate_engine, estimate_layout, estimate_training
from rltui.memory.estimate import GIB
from rltui.memory.kv_pool import capacity
from rltui.memory.settings import DEEPSPEED_BF16, FSDP_FP32, MEGATRON_BF16

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture

ARCHITECTURES = st.sampled_from(models())
TOKENS = st.integers(1, 200_000)
SHARDINGS = st.builds(
    Sharding,
    gpus=st.sampled_from([1, 2, 3, 4, 8, 64]),
    backend=st.sampled_from(["deepspeed", "fsdp", "megatron", "plain"]),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    tensor_parallel=st.sampled_from([1, 2, 4]),
    pipeline_parallel=st.sampled_from([1, 2]),
    expert_parallel=st.sampled_from([1, 2]),
    hpz=st.sampled_from([1, 8]),
    offload=st.sampled_from(["", "moments", "optimizer", "all"]),
)
STATES = st.sampled_from([DEEPSPEED_BF16, FSDP_FP32, MEGATRON_BF16])
WORKLOADS = st.builds(
    Workload,
    tokens=TOKENS,
    sequences=st.integers(1, 64),
    accumulates=st.booleans(),
    checkpointing=st.sampled_from(["none", "selective", "full", "offload"]),
    kernels=st.sampled_from(["fused", "eager"]),
    head=st.sampled_from(["full", "compiled", "streamed", "chunked", "none"]),
    mask=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(ARCHITECTURES, SHARDINGS, STATES, WORKLOADS, st.integers(1, 100_000))
def test_more_tokens_take_more(
    model: Architecture, sharding: Sharding, states: Any, workload: Workload, added: int
) -> None:
    longer = msgspec.structs.replace(workload, tokens=workload.tokens + added)
    before, after = (estimate_training(model, sharding, load, states, log_probs=True) for load in (workload, longer))
    for earlier, later in zip(before.moments, after.moments, strict=True):
        assert later.total_gib >= earlier.total_gib - 1e-9
        assert all(size >= 0 for size in later.parts_gib.values())


@settings(max_examples=200, deadline=None)
@given(ARCHITECTURES, STATES, WORKLOADS, st.sampled_from([1, 2, 4, 8, 32]))
def test_higher_stages_and_more_ranks_never_take_more_states(
    model: Architecture, states: Any, workload: Workload, gpus: int
) -> None:
    def states_gib(stage: Any, ranks: int) -> float:
        load = estimate_training(model, Sharding(gpus=ranks, zero_stage=stage), workload, states).moments[1]
        return sum(load.parts_gib[name] for name in ("weights", "gradients", "optimizer"))

    workload = msgspec.structs.replace(workload, accumulates=True)
    by_stage = [states_gib(stage, gpus) for stage in (0, 1, 2, 3)]
    assert by_stage == sorted(by_stage, reverse=True)
    assert states_gib(3, 2 * gpus) <= states_gib(3, gpus)


@settings(max_examples=200, deadline=None)
@given(ARCHITECTURES, st.floats(0.05, 1), st.floats(0, 0.5), st.integers(16, 200_000), st.sampled_from([1, 2, 4, 8]))
def test_more_of_the_card_holds_more_tokens(
    model: Architecture, utilization: float, added: float, length: int, tensor_parallel: int
) -> None:
    def tokens(share: float) -> int:
        asked = EngineSettings(memory_utilization=share, max_model_len=length, tensor_parallel=tensor_parallel)
        engine = estimate_engine(model, asked, 79.18)
        assert engine.kv_tokens is not None
        assert engine.kv_tokens >= 0
        return engine.kv_tokens

    assert tokens(min(1.0, utilization + added)) >= tokens(utilization)


@settings(max_examples=200, deadline=None)
@given(ARCHITECTURES, st.integers(16, 100_000), st.integers(1, 100_000), st.sampled_from([1, 2, 4, 8]))
def test_longer_sequences_are_fewer(model: Architecture, length: int, added: int, tensor_parallel: int) -> None:
    layers = kv_layers(model, tensor_parallel)
    short, long = (capacity(layers, 20 * GIB, size, 8192, 16) for size in (length, length + added))
    assert long.max_concurrency <= short.max_concurrency


@settings(max_examples=200, deadline=None)
@given(ARCHITECTURES)
def test_counts_are_positive_and_consistent(model: Architecture) -> None:
    count = count_parameters(model)
    assert count.total > 0
    assert 0 < count.active <= count.text
    assert kv_layers(model).sequence_bytes(1000) > 0


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10**13), st.floats(), st.text(max_size=5), st.lists(st.integers(0, 9))
)
KEYS = st.sampled_from(
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
     "vocab_size", "num_experts", "num_experts_per_tok", "moe_intermediate_size", "mlp_only_layers", "layer_types",
     "decoder_sparse_step", "kv_lora_rank", "sliding_window", "sliding_window_pattern", "linear_num_value_heads",
     "full_attention_interval", "text_config", "vision_config", "thinker_config", "tie_word_embeddings"]
)  # fmt: skip
TYPES = st.sampled_from([*TRAITS, "brand_new", ""])
GOOD = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
    "moe_intermediate_size": 32,
}  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    TYPES,
    st.dictionaries(KEYS, VALUES, max_size=4),
    st.dictionaries(st.sampled_from(["model_type", "hidden_size", "depth", "patch_size", "image_size"]), VALUES),
)
def test_any_config_is_a_shape_or_a_clear_error(kind: str, changes: dict[str, Any], vision: dict[str, Any]) -> None:
    config = {**GOOD, "model_type": kind, "vision_config": {"model_type": "siglip", **vision}, **changes}
    with suppress(UsageError):  # anything else is a bug
        model = architecture_from_config(config, "fuzzed")
        assert count_parameters(model).total > 0
        assert kv_layers(model, 2).sequence_bytes(100) >= 0
        assert estimate_training(model, Sharding(gpus=2), Workload(tokens=64, checkpointing="none")).peak_gib > 0


@settings(max_examples=150, deadline=None)
@given(
    micro_batch=st.integers(1, 64),
    more=st.integers(1, 64),
    length=st.integers(16, 32768),
    longer=st.integers(1, 32768),
    stage=st.sampled_from([0, 1, 2, 3]),
    checkpointing=st.booleans(),
    precision=st.sampled_from(["bf16", "fp16", "fp32"]),
)
def test_layouts_are_monotone_in_batch_and_length(
    micro_batch: int, more: int, length: int, longer: int, stage: int, checkpointing: bool, precision: str
) -> None:
    def peak(batch: int, response: int) -> float:
        learner = {
            "model": "Qwen/Qwen3-4B", "gpus": [2], "zero_stage": stage, "micro_batch": batch, "precision": precision,
            "gradient_checkpointing": checkpointing,
        }  # fmt: skip
        layout = {
            "layout": 1, "name": "x", "algorithm": "grpo", "data": {"train": "x"},
            "hardware": {"nodes": 1, "gpus_per_node": 4, "gpu": "H200"},
            "roles": {"learner": learner, "rollout": {"engines": 2}},
            "train": {"steps": 1, "prompts_per_step": 32, "samples_per_prompt": 8, "learning_rate": 1e-6},
            "lengths": {"prompt": 16, "response": response},
        }  # fmt: skip
        return estimate_layout(msgspec.convert(layout, Layout)).roles[0].peak_gib

    base = peak(micro_batch, length)
    assert peak(micro_batch + more, length) >= base
    assert peak(micro_batch, length + longer) >= base
