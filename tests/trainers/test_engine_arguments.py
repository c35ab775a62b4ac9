"""Every key of a rollout role reaches what it is for, and vLLM's signature is still the one that we write to."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from engine_support import LENGTHS, build_model
from vllm.engine.arg_utils import EngineArgs

from rltui.layout.load import load_layout
from rltui.layout.schema import Rollout, Teacher
from trainers.roles.hf_engine import HfEngine
from trainers.roles.vllm_engine import ARGUMENT_OF, engine_arguments
from trainers.roles.vllm_teacher import teacher_arguments

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

KNOWN = {field.name for field in fields(EngineArgs)}
ELSEWHERE = {"engines", "pool", "engine"}
"""Keys that placement and the choice of the engine read."""
OTHER: dict[str, Any] = {
    "precision": "fp16", "quantization": "fp8_per_block", "kv_cache_dtype": "fp8",
    "tensor_parallel": 2, "max_concurrency": 7, "memory_utilization": 0.3,
    "sleep_while_training": True, "enforce_eager": True, "router_replay": True,
}  # fmt: skip


def on_gpus(**keys: Any) -> dict[str, Any]:
    return engine_arguments(Rollout(engines=1, **keys), "nowhere", LENGTHS, on_cpu=False)


def test_the_table_has_every_key_of_the_role() -> None:
    keys = {field.name for field in msgspec.structs.fields(Rollout)}
    assert keys == {*ARGUMENT_OF, *ELSEWHERE, "engine_args"}


@pytest.mark.parametrize("key", ARGUMENT_OF)
def test_every_key_reaches_vllm_on_gpus(key: str) -> None:
    usual, other = on_gpus(), on_gpus(**{key: OTHER[key]})
    assert other[ARGUMENT_OF[key]] != usual[ARGUMENT_OF[key]]
    changed = {name for name in usual if usual[name] != other[name]}
    assert changed <= {ARGUMENT_OF[key], "distributed_executor_backend"}


def test_installed_vllm_knows_all_arguments(tmp_path: Path) -> None:
    build_model().save_pretrained(tmp_path)
    layout = load_layout("layouts/local/opd-tiny.yaml").layout
    teacher = teacher_arguments(layout, Teacher(model="x"), "nowhere", on_cpu=False)
    on_cpu = engine_arguments(Rollout(engines=1), str(tmp_path), LENGTHS, on_cpu=True)
    assert KNOWN.issuperset([*on_gpus(), *on_cpu, *teacher])


def test_without_a_card_vllm_tells_no_routes() -> None:
    with pytest.raises(ValueError, match=r"router_replay: vLLM .* needs Triton"):
        engine_arguments(Rollout(engines=1, router_replay=True), "nowhere", LENGTHS, on_cpu=True)


def test_own_arguments_are_passed_on_or_refused_in_words() -> None:
    assert on_gpus(engine_args={"max_num_batched_tokens": 8192})["max_num_batched_tokens"] == 8192
    for own, words in {
        "max_num_batched_token": "does not know: max_num_batched_tokens",
        "enforce_eager": r"set roles\.rollout\.enforce_eager",
        "logprobs_mode": "depends on its own value",
    }.items():
        with pytest.raises(ValueError, match=words):
            on_gpus(engine_args={own: 1})
    with pytest.raises(ValueError, match="vLLM's arguments"):
        HfEngine(Rollout(engines=1, engine="hf", engine_args={"seed": 1}), "nowhere", LENGTHS, 0)
