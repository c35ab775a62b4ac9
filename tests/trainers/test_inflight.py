"""New weights in the midst of a sample: the engine goes on with them, and says which token is whose."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
import torch
from engine_support import LENGTHS, build_model, manifest_of, perturb, random_prompts, reference_log_probs, sampling

from free_ports import free_ports
from rltui.layout.schema import Rollout
from trainers.roles.engine import EngineActor
from trainers.roles.model_lock import ModelLock
from trainers.weights import WeightGroup, WeightSender
from waiting import WAIT_S, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from trainers.roles.completions import Completion

pytestmark = pytest.mark.trainers

PROMPTS = random_prompts([3, 8, 5])
BEFORE = 5
"""Tokens that the first weights sample."""


class Interrupted(EngineActor):
    """An engine whose sampling waits after ``BEFORE`` tokens until weights stand at the door."""

    asked = 0

    def _version_now(self) -> int:
        self.asked += 1
        if self.asked == self.stop_at:
            eventually(lambda: self._model_lock._waiting, "weights", WAIT_S)
        return super()._version_now()

    stop_at = -1


def interrupt(path: Path, model: Any) -> list[Completion]:
    """Samples of ``PROMPTS`` by a model that is moved (``model`` with it) when they have ``BEFORE`` tokens."""
    actor = Interrupted(Rollout(engines=1, engine="hf", precision="fp32"), str(path), LENGTHS, 0)
    actor.load()
    group = WeightGroup("127.0.0.1", free_ports(1)[0], 2, timeout_s=WAIT_S)
    manifest = manifest_of(model)
    with ThreadPoolExecutor(2) as threads:
        joined = threads.submit(actor.join_weight_group, group, 1)
        sender = WeightSender(group, timeout_s=WAIT_S)
        joined.result(WAIT_S)
        actor.stop_at = actor.asked + BEFORE + 1
        sampled = threads.submit(actor.generate, PROMPTS, sampling(max_tokens=12, samples_per_prompt=32))
        eventually(lambda: actor.asked == actor.stop_at, "the tokens before", WAIT_S)
        perturb(model, seed=1)
        received = threads.submit(actor.receive_weights, manifest, 7)
        sender.send([(meta.name, model.get_parameter(meta.name)) for meta in manifest], 7)
        assert received.result(WAIT_S) == 7
        sender.close()
        completions = sampled.result(WAIT_S)
    after = actor.generate(PROMPTS, sampling(max_tokens=12))
    assert {(one.weight_version, one.newest_version) for one in after} == {(7, 7)}
    return completions


def test_weights_that_come_in_the_midst_are_used_at_once(tmp_path: Path) -> None:
    model, old = build_model(), build_model()
    model.save_pretrained(tmp_path)
    completions = interrupt(tmp_path, model)
    assert len({one.newest_version for one in completions}) == 2
    for one in completions:
        prompt = PROMPTS[one.prompt_index]
        assert one.weight_version == 0
        assert one.newest_version == (7 if len(one.token_ids) > BEFORE else 0)
        said = torch.tensor(one.log_probs)
        by_old = reference_log_probs(old, prompt, one, 1.0)
        assert (said - by_old)[:BEFORE].abs().max() < 1e-4
        if len(one.token_ids) > BEFORE:
            assert (said - by_old)[BEFORE:].abs().max() > 0.01


def test_who_samples_gives_way_to_whoever_waits_and_waits_until_it_can_go_on() -> None:
    turns, order, fit = ModelLock(), [], threading.Event()

    def sample() -> None:
        with turns.sampling():
            order.append("first token")
            eventually(lambda: turns._waiting, "the one who waits", WAIT_S)
            turns.give_way(fit.is_set)
            order.append("second token")
            turns.give_way(fit.is_set)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    eventually(lambda: order, "the first token", WAIT_S)
    with turns.interrupting():
        order.append("half the weights")  # and no more came
    with turns.interrupting():
        order.append("all of them")
        fit.set()
    sampler.join(WAIT_S)
    assert order == ["first token", "half the weights", "all of them", "second token"]
    with turns.interrupting():
        pass  # nobody samples: at once


def test_what_is_being_computed_comes_to_its_end_before_the_weights_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for vLLM on a GPU, which computes a step while the last one's tokens are still on their way."""
    pytest.importorskip("vllm")
    from trainers.roles.vllm_engine import VllmEngine

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    engine, seen = VllmEngine.__new__(VllmEngine), MagicMock()
    engine._index, engine._images, engine._llm, engine._samples = 0, None, seen.llm, seen.samples
    engine._llm.llm_engine.vllm_config.max_concurrent_batches = 2
    engine.receive_weights([], version=1)
    names = [name.rpartition(".")[2] for name, *_ in seen.method_calls]
    told = [name for name in names if name in ("sleep", "step", "update_weights", "renew", "wake_up")]
    assert told == ["sleep", "step", "step", "update_weights", "renew", "wake_up"]
