"""Every engine keeps the same promises, as a Ray actor that takes real weights from a learner.

The engines of this module are started once each, and their weights move on from test to test: a ``RunningEngine``
knows which weights its actor should have.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import ray
import torch
from engine_support import (
    STOP,
    VOCABULARY,
    GuardedEngineActor,
    RunningEngine,
    build_model,
    manifest_of,
    own_ray,
    parity,
    random_prompts,
    reference_log_probs,
    sampling,
)

from rltui.layout.schema import Rollout
from waiting import WAIT_S, eventually

if TYPE_CHECKING:
    from trainers.roles.completions import Completion

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
pytestmark = pytest.mark.trainers

AT_ONCE = 16
"""Samples that vLLM runs at once; the others wait."""
SCHEDULER = {"scheduler_cls": "held_scheduler.HeldScheduler"}
HELD: dict[str, Any] = {"engine": "vllm", "max_concurrency": AT_ONCE, "engine_args": SCHEDULER}
ROLLOUTS = {
    "hf": Rollout(engines=1, engine="hf", precision="fp32"),
    "vllm": Rollout(engines=1, precision="fp32", **HELD),
    "vllm-tp2": Rollout(engines=1, tensor_parallel=2, precision="fp32", **HELD),
}
VLLM = [
    pytest.param("vllm", marks=[pytest.mark.vllm, needs_vllm]),
    pytest.param("vllm-tp2", marks=[pytest.mark.vllm, pytest.mark.slow, needs_vllm]),
]
TOLERANCE = 1e-4
"""Largest difference of log-probs in float32, in nats; measured 3e-6."""

# The long one fills a KV block of vLLM, which must not outlive the weights that computed it.
PROMPTS = random_prompts([3, 8, 1, 140, 5, 8])

BEFORE = 5
"""Tokens that the first weights sample, where other ones come in the midst of greedy samples."""
OFTEN = tuple(range(STOP, VOCABULARY, 7))
"""Tokens that end a sample: lengths differ then, and not all that run at once end with one step."""


class Interrupted(GuardedEngineActor):
    """An engine whose sampling waits once, after some steps, until weights stand at the door, and vLLM with it."""

    _engine: Any
    asked, stop_at = 1, -1

    def interrupt(self, steps: int) -> None:
        """Wait after so many steps of the next call, which begins when it has all samples."""
        from held_scheduler import STEPS

        self.asked, self.stop_at = 0, steps + 1
        Path(self._model_path, STEPS).write_text(str(steps))
        self._engine._llm.sleep(level=0, mode="keep")

    def reach(self) -> None:
        """Wait until sampling waits."""
        eventually(lambda: self.asked >= self.stop_at, "the tokens before", WAIT_S)

    def _version_now(self) -> int:
        self.asked += 1
        if self.asked == 1:
            self._engine._llm.wake_up(["scheduling"])
        if self.asked == self.stop_at:
            eventually(lambda: self._model_lock._waiting, "weights", WAIT_S)
        return super()._version_now()


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    with own_ray():
        yield


@pytest.fixture(scope="module", params=["hf", *VLLM])
def engine(
    cluster: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningEngine]:
    path: Path = tmp_path_factory.mktemp("model")
    model = build_model()
    model.save_pretrained(path)
    running = RunningEngine(ROLLOUTS[request.param], model, str(path), kind=Interrupted)
    # Small buckets, so that a tiny model travels in several, as a large one does.
    running.connect(bucket_bytes=32 * 2**10)
    yield running
    running.close()


def test_completions_are_as_asked_for(engine: RunningEngine) -> None:
    completions = engine.generate(PROMPTS, sampling(samples_per_prompt=8))
    assert [c.prompt_index for c in completions] == [index for index in range(len(PROMPTS)) for _ in range(8)]
    for completion in completions:
        *body, last = completion.token_ids
        assert STOP not in body
        assert len(completion.log_probs) == len(completion.token_ids) <= 12
        assert completion.finish_reason == ("stop" if last == STOP else "length")
        assert completion.finish_reason == "stop" or len(completion.token_ids) == 12
        assert completion.weight_version == engine.version
    assert {c.finish_reason for c in completions} == {"stop", "length"}


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_log_probs_are_those_of_a_plain_forward_at_temperature(engine: RunningEngine, temperature: float) -> None:
    settings = sampling(temperature=temperature)
    completions = engine.generate(PROMPTS, settings)
    assert parity(engine.model, PROMPTS, completions, temperature) < TOLERANCE
    if temperature != 1.0:
        assert parity(engine.model, PROMPTS, completions, 1.0) > 0.1


def test_samples_are_drawn_from_the_distribution_that_log_probs_name(engine: RunningEngine) -> None:
    prompt, samples = PROMPTS[1], 4096
    drawn = engine.generate([prompt], sampling(temperature=0.6, max_tokens=1, samples_per_prompt=samples))
    counts = torch.bincount(torch.tensor([c.token_ids[0] for c in drawn]), minlength=100)
    logits = engine.model(torch.tensor([prompt])).logits[0, -1].float()
    # Total variation: 0.05 by chance with these counts, 0.18 to the distribution at temperature 1.
    at_temperature, at_one = (
        (counts / samples - torch.softmax(logits / temperature, dim=-1)).abs().sum().item() / 2
        for temperature in (0.6, 1.0)
    )
    assert at_temperature < 0.1 < at_one


@pytest.mark.parametrize(
    "change", [{"top_p": 0.7}, {"top_k": 5}, {"min_p": 0.1}, {"min_p": 0.02, "top_k": 8, "top_p": 0.8}]
)
def test_truncated_samples_and_their_log_probs_are_of_the_likeliest_tokens(
    engine: RunningEngine, change: dict[str, float]
) -> None:
    completions = engine.generate(PROMPTS, sampling(temperature=0.7, samples_per_prompt=8, **change))
    shares = []
    for one in completions:
        ids = torch.tensor([[*PROMPTS[one.prompt_index], *one.token_ids]])
        logits = engine.model(ids).logits[0, -1 - len(one.token_ids) : -1].float() / 0.7
        for row, token, log_prob in zip(logits.softmax(dim=-1).tolist(), one.token_ids, one.log_probs, strict=True):
            kept = likeliest(row, **change)
            assert token in kept
            shares.append(sum(kept.values()))
            assert abs(math.log(kept[token] / shares[-1]) - log_prob) < TOLERANCE
    assert min(shares) < 0.9  # something was left out


def likeliest(row: list[float], top_p: float = 1.0, top_k: float = 0, min_p: float = 0.0) -> dict[int, float]:
    """The tokens that may be drawn, with their probabilities among all."""
    ordered = sorted(enumerate(row), key=lambda pair: -pair[1])
    ordered = [(token, share) for token, share in ordered if share >= min_p * ordered[0][1]][: int(top_k) or None]
    kept, whole, before = {}, sum(share for _, share in ordered), 0.0
    for token, share in ordered:
        if before < top_p * whole:
            kept[token] = share
        before += share
    return kept


def test_the_same_seed_gives_the_same_samples(engine: RunningEngine) -> None:
    first, again, other = (engine.generate(PROMPTS, sampling(seed=seed)) for seed in (5, 5, 6))
    tokens = [[c.token_ids for c in completions] for completions in (first, again, other)]
    assert tokens[0] == tokens[1]
    assert tokens[0] != tokens[2]
    assert len(set(tokens[0][:4])) > 1  # samples of one prompt differ


def test_at_temperature_zero_each_token_is_the_likeliest_one(engine: RunningEngine) -> None:
    completions = engine.generate(PROMPTS, sampling(temperature=0.0, samples_per_prompt=1))
    assert [c.prompt_index for c in completions] == list(range(len(PROMPTS)))
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        logits = engine.model(torch.tensor([[*prompt, *completion.token_ids]])).logits[0, len(prompt) - 1 : -1]
        assert logits.argmax(dim=-1).tolist() == list(completion.token_ids)
    assert parity(engine.model, PROMPTS, completions) < TOLERANCE


def test_new_weights_are_acknowledged_and_used(engine: RunningEngine) -> None:
    settings = sampling(samples_per_prompt=8)
    for _ in range(2):
        before = engine.generate(PROMPTS, settings)
        assert engine.train() == engine.version
        after = engine.generate(PROMPTS, settings)
        assert {c.weight_version for c in after} == {engine.version}
        assert parity(engine.model, PROMPTS, after) < TOLERANCE
        assert parity(engine.model, PROMPTS, before) > 0.1  # the step was large enough to notice stale weights
    described = engine.call("describe")
    assert described["weight_version"] == engine.version
    assert described["engine"] == engine.rollout.engine
    assert described["pid"] != os.getpid()
    assert 0.2 < described["resident_gib"] < 1.2 * (1 + 2 * (engine.rollout.tensor_parallel - 1))


def test_an_engine_that_slept_runs_the_weights_that_woke_it_and_nothing_before(engine: RunningEngine) -> None:
    engine.call("sleep")
    with pytest.raises(ray.exceptions.RayTaskError, match="sleeps: it needs its cache and weights back"):
        engine.generate(PROMPTS, sampling())
    with pytest.raises(ray.exceptions.RayTaskError, match="sleeps: it has no memory for weights"):
        engine.call("receive_weights", manifest_of(engine.model), engine.version + 1)
    engine.call("sleep")
    engine.call("wake", "weights")
    engine.train()
    with pytest.raises(ray.exceptions.RayTaskError, match="sleeps: it needs its cache back"):
        engine.generate(PROMPTS, sampling())
    engine.call("wake", "cache")
    engine.call("wake", "cache")
    assert engine.parity(PROMPTS, sampling()) < TOLERANCE
    engine.call("sleep")
    for part in ("weights", "cache"):
        engine.call("wake", part)
    with pytest.raises(ray.exceptions.RayTaskError, match="was sent no weights"):
        engine.generate(PROMPTS, sampling())
    engine.hand_over(manifest_of(engine.model))
    assert engine.parity(PROMPTS, sampling()) < TOLERANCE


def test_an_engine_on_the_learners_card_shares_its_memory(engine: RunningEngine) -> None:
    engine.share()
    engine.train()
    assert engine.parity(PROMPTS, sampling()) < TOLERANCE


def test_an_engine_can_join_another_group(engine: RunningEngine) -> None:
    engine.connect()  # a learner that was started again
    engine.train()
    assert engine.parity(PROMPTS, sampling()) < TOLERANCE


@pytest.mark.parametrize("engine", VLLM[:1], indirect=True)
@pytest.mark.parametrize(
    ("target", "name", "result"),
    [
        pytest.param("trainers.roles.vllm_weights", "repack_output_heads", None, id="tied output head"),
        pytest.param("trainers.roles.vllm_engine.VllmEngine", "_salt", "same", id="prefix cache"),
    ],
)
def test_parity_would_show_stale_parts_of_vllm(engine: RunningEngine, target: str, name: str, result: object) -> None:
    engine.call("leave_out", target, name, result)
    engine.generate(PROMPTS, sampling())
    engine.train()
    stale = engine.parity(PROMPTS, sampling())
    engine.call("put_back")
    assert stale > 100 * TOLERANCE
    engine.hand_over(manifest_of(engine.model))
    assert engine.parity(PROMPTS, sampling()) < TOLERANCE


@pytest.mark.parametrize("engine", VLLM, indirect=True)
def test_vllm_does_not_go_on_with_a_parameter_that_was_not_sent_until_all_are(engine: RunningEngine) -> None:
    manifest = [meta for meta in manifest_of(engine.model) if meta.name != "model.norm.weight"]
    with pytest.raises(ray.exceptions.RayTaskError, match=r"lacks model\.norm\.weight"):
        engine.hand_over(manifest)
    with pytest.raises(ray.exceptions.RayTaskError, match="may hold parts of weight version"):
        engine.generate(PROMPTS, sampling())
    assert engine.train() == engine.version
    assert engine.parity(PROMPTS, sampling()) < TOLERANCE


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


@pytest.mark.parametrize("engine", VLLM[:1], indirect=True)
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


@pytest.mark.parametrize("engine", VLLM, indirect=True)
def test_samples_that_wait_begin_with_the_new_weights_and_none_is_lost(engine: RunningEngine) -> None:
    swap = Swap(engine, steps=12, samples_per_prompt=20, stop_token_ids=OFTEN)
    engine.train()
    completions = swap.completions()
    assert [one.prompt_index for one in completions] == [index for index in range(len(PROMPTS)) for _ in range(20)]
    kinds = Counter(swap.kind(one) for one in completions)
    assert kinds["old"] > AT_ONCE
    assert 0 < kinds["mixed"] <= AT_ONCE
    assert kinds["new"] > AT_ONCE
    assert max(swap.gap(one) for one in completions) < TOLERANCE


@pytest.mark.parametrize("engine", VLLM, indirect=True)
def test_half_the_weights_make_samples_wait_for_all_of_them(engine: RunningEngine) -> None:
    swap = Swap(engine, steps=12, samples_per_prompt=20, stop_token_ids=OFTEN)
    engine.version += 1
    with pytest.raises(ray.exceptions.RayTaskError, match=r"lacks model\.norm\.weight"):
        engine.hand_over([meta for meta in manifest_of(engine.model) if meta.name != "model.norm.weight"])
    engine.train()
    completions = swap.completions()
    assert {swap.kind(one) for one in completions} == {"old", "mixed", "new"}
    assert max(swap.gap(one) for one in completions) < TOLERANCE


@pytest.mark.parametrize("engine", VLLM[:1], indirect=True)
def test_parity_would_show_what_the_old_weights_read_of_a_prompt(engine: RunningEngine) -> None:
    engine.call("leave_out", "trainers.roles.vllm_samples.VllmSamples", "renew", None)
    swap = Swap(engine, BEFORE, samples_per_prompt=8)
    engine.train()
    completions = swap.completions()
    engine.call("put_back")
    assert max(swap.gap(one) for one in completions if swap.kind(one) == "new") > 100 * TOLERANCE


@pytest.mark.parametrize("engine", VLLM[1:], indirect=True)
def test_nothing_outlives_a_wide_engine_that_is_killed(engine: RunningEngine) -> None:
    # The last test of this engine: it is of no use afterwards.
    actor = psutil.Process(engine.call("describe")["pid"])
    children = actor.children(recursive=True)
    assert len(children) >= 3  # vLLM's core and a worker for each rank
    actor.kill()
    gone, alive = psutil.wait_procs(children, timeout=WAIT_S)
    assert not alive, [child.cmdline() for child in alive]
    assert len(gone) == len(children)
