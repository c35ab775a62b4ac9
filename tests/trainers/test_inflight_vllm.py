"""New weights in the midst of vLLM's samples: what has begun goes on with its KV cache, the rest begins with them."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest
import ray
import torch
from engine_support import (
    STOP,
    VOCABULARY,
    WAIT_S,
    GuardedEngineActor,
    RunningEngine,
    build_model,
    manifest_of,
    own_ray,
    random_prompts,
    reference_log_probs,
    sampling,
)

from rltui.layout.schema import Rollout
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainers.roles.engine import Completion

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

TOLERANCE = 1e-4
"""Largest difference of log-probs in float32, in nats; measured 4e-6."""
BEFORE = 5
"""Tokens that the first weights sample, where the engine's every step is ours."""
AT_ONCE = 6
"""Samples that run at once; the others wait."""

OFTEN = tuple(range(STOP, VOCABULARY, 7))
"""Tokens that end a sample: lengths differ then, and not all that run at once may end with one step."""

# The long one fills a KV block of vLLM, which samples that begin with the new weights must not read.
PROMPTS = random_prompts([3, 140, 8])


class Interrupted(GuardedEngineActor):
    """An engine whose sampling waits once, after some steps, until weights stand at the door."""

    asked, stop_at = 0, -1

    def interrupt(self, steps: int) -> None:
        """Wait after so many steps of the next call."""
        self.asked, self.stop_at = 0, steps + 1

    def reach(self) -> None:
        """Wait until sampling waits."""
        eventually(lambda: self.asked >= self.stop_at, "the tokens before", WAIT_S)

    def _version_now(self) -> int:
        self.asked += 1
        if self.asked == self.stop_at:
            eventually(lambda: self._model_lock._waiting, "weights", WAIT_S)
        return super()._version_now()


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids=["one shard", "two shards"])
def engine(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningEngine]:
    path, model = tmp_path_factory.mktemp("model"), build_model()
    model.save_pretrained(path)
    words: dict[str, Any] = {"tensor_parallel": request.param, "precision": "fp32", "max_concurrency": AT_ONCE}
    with own_ray():
        running = RunningEngine(Rollout(engines=1, engine="vllm", **words), model, str(path), kind=Interrupted)
        running.connect(bucket_bytes=32 * 2**10)
        yield running
        running.close()


class Swap:
    """A call to the engine that waits after ``steps`` of its steps, and a model with the weights until then."""

    def __init__(self, engine: RunningEngine, steps: int, **settings: Any) -> None:
        self.engine, self.before = engine, engine.version
        self.old = build_model()
        self.old.load_state_dict(engine.model.state_dict())
        engine.call("interrupt", steps)
        self._sampled = engine.actor.generate.remote(PROMPTS, sampling(**settings))
        ray.get(engine.bring("reach"), timeout=WAIT_S)

    def completions(self) -> list[Completion]:
        found: list[Completion] = ray.get(self._sampled, timeout=WAIT_S)
        assert {one.weight_version for one in found} | {one.newest_version for one in found} <= {
            self.before,
            self.engine.version,
        }
        return found

    def kind(self, one: Completion) -> str:
        """Which weights sampled it, as it says."""
        if one.weight_version == self.engine.version:
            return "new"
        return "old" if one.newest_version == self.before else "mixed"

    def logits(self, one: Completion, before: int) -> torch.Tensor:
        """Logits [tokens, vocabulary] behind a sample of which the old weights sampled ``before`` tokens.

        The new ones read the last of these, and go on with the KV cache of the old.
        """
        prompt, tokens = torch.tensor([PROMPTS[one.prompt_index]]), torch.tensor([one.token_ids])
        read = self.old(torch.cat([prompt, tokens[:, : before - 1]], dim=1), use_cache=True)
        parts = [read.logits[0, -before:]]
        if before < tokens.shape[1]:
            parts.append(self.engine.model(tokens[:, before - 1 : -1], past_key_values=read.past_key_values).logits[0])
        return torch.cat(parts)

    def gap(self, one: Completion) -> float:
        """Largest distance of a sample's log-probs from those of the weights that it names, in nats."""
        said, length = torch.tensor(one.log_probs), len(one.token_ids)
        if self.kind(one) == "new":
            found = [reference_log_probs(self.engine.model, PROMPTS[one.prompt_index], one, 1.0)]
        else:
            splits = [length] if self.kind(one) == "old" else range(1, length)
            found = [log_probs(self.logits(one, before), one) for before in splits]
        return min(float((said - values).abs().max()) for values in found)


def log_probs(logits: torch.Tensor, one: Completion) -> torch.Tensor:
    return torch.log_softmax(logits, dim=-1)[range(len(one.token_ids)), list(one.token_ids)]


@pytest.mark.parametrize("engine", [1], indirect=True, ids=["one shard"])
def test_each_token_is_the_likeliest_one_of_the_weights_of_its_moment(engine: RunningEngine) -> None:
    swap = Swap(engine, BEFORE, temperature=0.0, samples_per_prompt=1)
    engine.train()
    completions = swap.completions()
    assert [one.prompt_index for one in completions] == list(range(len(PROMPTS)))
    assert "mixed" in {swap.kind(one) for one in completions}
    for one in completions:
        length = len(one.token_ids)
        assert swap.kind(one) == ("mixed" if length > BEFORE else "old")
        logits = swap.logits(one, min(BEFORE, length))
        assert logits.argmax(dim=-1).tolist() == list(one.token_ids)
        said = torch.tensor(one.log_probs)
        assert (log_probs(logits, one) - said).abs().max() < TOLERANCE
        if length > BEFORE:  # and neither weights alone would have said so
            for model in (swap.old, engine.model):
                alone = reference_log_probs(model, PROMPTS[one.prompt_index], one, 1.0)
                assert (alone - said).abs().max() > 100 * TOLERANCE


def test_samples_that_wait_begin_with_the_new_weights_and_none_is_lost(engine: RunningEngine) -> None:
    swap = Swap(engine, steps=30, samples_per_prompt=40, stop_token_ids=OFTEN)
    engine.train()
    completions = swap.completions()
    assert [one.prompt_index for one in completions] == [index for index in range(len(PROMPTS)) for _ in range(40)]
    kinds = Counter(swap.kind(one) for one in completions)
    assert kinds["old"] > AT_ONCE
    assert 0 < kinds["mixed"] <= AT_ONCE
    assert kinds["new"] > AT_ONCE
    assert max(swap.gap(one) for one in completions) < TOLERANCE


def test_half_the_weights_make_samples_wait_for_all_of_them(engine: RunningEngine) -> None:
    swap = Swap(engine, steps=30, samples_per_prompt=40, stop_token_ids=OFTEN)
    engine.version += 1
    with pytest.raises(ray.exceptions.RayTaskError, match=r"lacks model\.norm\.weight"):
        engine.hand_over([meta for meta in manifest_of(engine.model) if meta.name != "model.norm.weight"])
    engine.train()
    completions = swap.completions()
    assert {swap.kind(one) for one in completions} == {"old", "mixed", "new"}
    assert max(swap.gap(one) for one in completions) < TOLERANCE


@pytest.mark.parametrize("engine", [1], indirect=True, ids=["one shard"])
def test_parity_would_show_what_the_old_weights_read_of_a_prompt(engine: RunningEngine) -> None:
    engine.call("leave_out", "trainers.roles.vllm_samples.VllmSamples", "renew", None)
    swap = Swap(engine, BEFORE, samples_per_prompt=8)
    engine.train()
    completions = swap.completions()
    engine.call("put_back")
    assert max(swap.gap(one) for one in completions if swap.kind(one) == "new") > 100 * TOLERANCE


def test_what_is_being_computed_comes_to_its_end_before_the_weights_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for vLLM on a GPU, which computes a step while the last one's tokens are still on their way."""
    from trainers.roles.vllm_engine import VllmEngine

    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    engine, seen = VllmEngine.__new__(VllmEngine), MagicMock()
    engine._index, engine._images, engine._llm, engine._samples = 0, None, seen.llm, seen.samples
    engine._llm.llm_engine.vllm_config.max_concurrent_batches = 2
    engine.receive_weights([], version=1)
    names = [name.rpartition(".")[2] for name, *_ in seen.method_calls]
    told = [name for name in names if name in ("sleep", "step", "update_weights", "renew", "wake_up")]
    assert told == ["sleep", "step", "step", "update_weights", "renew", "wake_up"]
