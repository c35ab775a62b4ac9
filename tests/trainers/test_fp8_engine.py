"""vLLM with weights and KV cache in fp8: each transfer of weights is quantized as the model's own were."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from engine_support import (
    GuardedEngineActor,
    RunningEngine,
    build_model,
    own_ray,
    random_prompts,
    reference_log_probs,
    sampling,
)

from rltui.layout.schema import Rollout
from trainers.metrics import MISMATCH_KL_BOUND, log_prob_gap

if TYPE_CHECKING:
    from pathlib import Path

    from trainers.roles.completions import Completion

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
ROLLOUT = Rollout(engines=1, precision="bf16", quantization="fp8_per_tensor", kv_cache_dtype="fp8")
PROMPTS = random_prompts([3, 8, 140, 5])
LARGEST = torch.finfo(torch.float8_e4m3fn).max


def scaled_fp8_quant(numbers: torch.Tensor, scale: torch.Tensor | None = None, **_: Any) -> Any:
    """vLLM's kernel of this name, which its build for CPUs lacks."""
    scale = numbers.abs().max().float().reshape(1) / LARGEST if scale is None else scale
    return (numbers.float() / scale).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale


class QuantizedActor(GuardedEngineActor):
    """An engine that can quantize on a CPU, too."""

    _engine: Any

    def load(self) -> float:
        from vllm import _custom_ops

        _custom_ops.scaled_fp8_quant = scaled_fp8_quant
        return super().load()

    def dtypes(self) -> dict[str, str]:
        """What the model's parameters are stored as, and where its KV cache is, what that is stored as."""
        runner = self._engine._llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
        found = {name: str(one.dtype) for name, one in runner.model.named_parameters()}
        return {**found, "cache": str(runner.kv_caches[0].dtype)}

    def fresh(self, folder: str, settings: Any) -> list[Completion]:
        """Samples of an engine that begins with the weights in ``folder``."""
        self._fresh = QuantizedActor(self._rollout, folder, self._lengths, self._index)
        self._fresh.load()  # kept, for its end would be that of what both share in this process
        return self._fresh.generate(PROMPTS, settings)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    path = tmp_path_factory.mktemp("model")
    model = build_model()
    model.save_pretrained(path)
    with own_ray():
        running = RunningEngine(ROLLOUT, model, str(path), kind=QuantizedActor)
        running.connect()
        yield running
        running.close()


def divergence(model: Any, completions: list[Completion]) -> float:
    """What the guard of weights goes by."""
    said = np.concatenate([one.log_probs for one in completions])
    found = [reference_log_probs(model, PROMPTS[one.prompt_index], one, 1.0).numpy() for one in completions]
    return log_prob_gap(np.concatenate(found), said).kl


def test_weights_that_come_are_quantized_as_those_of_a_new_engine(engine: RunningEngine, tmp_path: Path) -> None:
    stored = engine.call("dtypes")
    assert {word for name, word in stored.items() if name.endswith("proj.weight")} == {"torch.float8_e4m3fn"}
    assert stored["cache"] in ("torch.uint8", "torch.float8_e4m3fn")
    old, before = build_model(), engine.generate(PROMPTS, sampling(samples_per_prompt=16))
    assert divergence(engine.model, before) < MISMATCH_KL_BOUND / 5
    assert engine.train() == 1
    after = engine.generate(PROMPTS, sampling(samples_per_prompt=16))
    assert divergence(engine.model, after) < MISMATCH_KL_BOUND / 5
    assert divergence(old, after) > 2 * MISMATCH_KL_BOUND
    assert engine.call("dtypes") == stored
    engine.model.save_pretrained(tmp_path)
    fresh = engine.call("fresh", str(tmp_path), sampling(samples_per_prompt=16))
    assert [(one.token_ids, one.log_probs) for one in fresh] == [(one.token_ids, one.log_probs) for one in after]
