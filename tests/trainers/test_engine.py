"""The engine actor's own rules, and the transformers engine, in the test's process: no Ray, no second process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from engine_support import LENGTHS, build_model, manifest_of, parity, perturb, random_prompts, sampling

from free_ports import free_ports
from rltui.layout.schema import Rollout
from trainers.roles import hf_engine
from trainers.roles.completions import Request, derive_seed
from trainers.roles.endings import resident_gib
from trainers.roles.engine import EngineActor, check_lengths
from trainers.roles.engine_environment import engine_environment
from trainers.roles.hf_engine import drawn, left_pad, uniform
from trainers.weights import ParameterMeta, WeightGroup, WeightSender, WeightTransferError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

HF = Rollout(engines=1, engine="hf", precision="fp32")


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    build_model().save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def loaded(model_path: Path) -> EngineActor:
    actor = EngineActor(HF, str(model_path), LENGTHS, 0)
    assert actor.load() > 0
    return actor


@pytest.fixture
def own(model_path: Path) -> EngineActor:
    """An engine that the test may spoil."""
    actor = EngineActor(HF, str(model_path), LENGTHS, 0)
    actor.load()
    return actor


def exchange(actor: EngineActor, manifest: Sequence[ParameterMeta], tensors: Any, versions: tuple[int, int]) -> None:
    """Let a learner send ``tensors`` at the first version and the engine receive ``manifest`` at the second."""
    group = WeightGroup("127.0.0.1", free_ports(1)[0], 2, timeout_s=300.0)
    with ThreadPoolExecutor(1) as threads:

        def receive() -> None:
            actor.join_weight_group(group, 1)
            assert actor.receive_weights(list(manifest), versions[1]) == versions[1]

        received = threads.submit(receive)
        sender = WeightSender(group, timeout_s=300.0)
        try:
            sender.send(tensors, versions[0])
        except WeightTransferError:
            assert received.exception(timeout=300) is not None  # the engine's is the better explanation
        received.result(timeout=300)
        sender.close()


def test_padding_is_not_attended_to_and_not_counted() -> None:
    token_ids, mask, positions = left_pad([[5, 6, 7], [8]], room_tokens=2)
    assert token_ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]
    assert positions.tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("lengths", [[8, 8, 8], [3, 8, 1, 140, 5]], ids=["equal", "unequal"])
def test_log_probs_are_those_of_a_plain_forward_at_temperature(
    loaded: EngineActor, lengths: list[int], temperature: float
) -> None:
    model, prompts = build_model(), random_prompts(lengths)
    completions = loaded.generate(prompts, sampling(temperature=temperature))
    assert parity(model, prompts, completions, temperature) < 1e-4
    if temperature != 1.0:
        assert parity(model, prompts, completions, 1.0) > 0.1


def test_a_prompt_gets_the_same_log_probs_alone_and_in_padding(loaded: EngineActor) -> None:
    short, long = random_prompts([4, 60])
    settings = sampling(max_tokens=1, samples_per_prompt=200)
    alone = {c.token_ids: c.log_probs[0] for c in loaded.generate([short], settings)}
    padded = {c.token_ids: c.log_probs[0] for c in loaded.generate([short, long], settings) if c.prompt_index == 0}
    shared = alone.keys() & padded.keys()
    assert len(shared) > 5
    assert max(abs(alone[token] - padded[token]) for token in shared) < 1e-5


def test_large_requests_are_sampled_in_batches(loaded: EngineActor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_engine, "MAX_SEQUENCES", 8)
    model, prompts = build_model(), random_prompts([3, 9, 4, 30, 2])
    completions = loaded.generate(prompts, sampling(samples_per_prompt=4))
    assert [c.prompt_index for c in completions] == [index for index in range(5) for _ in range(4)]
    assert parity(model, prompts, completions) < 1e-4


def test_sampling_ends_when_all_samples_have_stopped(loaded: EngineActor, monkeypatch: pytest.MonkeyPatch) -> None:
    forwards: list[tuple[int, ...]] = []
    model = loaded._engine._model  # type: ignore[union-attr]
    hook = model.register_forward_pre_hook(
        lambda _m, _a, k: forwards.append(tuple(k["input_ids"].shape)), with_kwargs=True
    )
    settings = sampling(max_tokens=16, samples_per_prompt=1, temperature=0.01)
    [first] = loaded.generate(random_prompts([5]), settings)  # all but greedy, so the same again
    position = 5
    stop = first.token_ids[position]
    forwards.clear()
    [stopped] = loaded.generate(random_prompts([5]), replace(settings, stop_token_ids=(stop,)))
    hook.remove()
    expected = first.token_ids[: first.token_ids.index(stop) + 1]
    assert stopped.token_ids == expected
    assert stopped.finish_reason == "stop"
    assert forwards == [(1, 5)] + [(1, 1)] * (len(expected) - 1)


def requests(seeds: Sequence[int], prompts: Sequence[Sequence[int]]) -> list[Request]:
    return [Request(n, prompts[n], sampling(seed=seed)) for n, seed in enumerate(seeds)]


def test_a_sample_depends_on_its_seed_and_not_on_engine_or_company(loaded: EngineActor, model_path: Path) -> None:
    other = EngineActor(HF, str(model_path), LENGTHS, 1)
    other.load()
    prompts = random_prompts([6, 6, 9])
    asked = requests([7, 8, 9], prompts)
    together = loaded.stream(asked, 0).answers
    assert together.keys() == {0, 1, 2}
    assert len({one.token_ids for group in together.values() for one in group}) == 12
    for request in asked:
        alone = other.stream([request], 0).answers[request.key]
        assert [one.token_ids for one in alone] == [one.token_ids for one in together[request.key]]
    again = requests([7, 7, 9], [prompts[0], prompts[0], prompts[2]])
    found = loaded.stream(again, 0).answers
    assert [one.token_ids for one in found[0]] == [one.token_ids for one in found[1]]


def test_samples_of_different_limits_share_a_batch_and_keep_theirs(loaded: EngineActor) -> None:
    """As in conversations, where each sample has another rest of its budget."""
    prompts = random_prompts([6, 9])
    long, short = requests([7, 8], prompts)
    whole = loaded.stream([long, short], 0).answers
    cut = replace(short, sampling=replace(short.sampling, max_tokens=3))
    found = loaded.stream([long, cut], 0).answers
    assert found[long.key] == whole[long.key]
    assert any(len(one.token_ids) > 3 for one in whole[short.key])
    for one, other in zip(found[cut.key], whole[short.key], strict=True):
        assert one.token_ids == other.token_ids[:3]
        assert one.log_probs == pytest.approx(other.log_probs[:3], abs=1e-5)
        assert one.finish_reason == ("stop" if len(other.token_ids) <= 3 else "length")


def test_answers_that_another_call_found_are_not_lost(loaded: EngineActor, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = random_prompts([5, 6])
    loaded._engine._waiting += requests([1, 2], prompts)  # type: ignore[union-attr]
    assert len(loaded.generate(prompts, sampling())) == 8
    assert loaded.stream([], 0).answers.keys() == {0, 1}
    assert loaded.stream([], 0).answers == {}


def test_tokens_are_drawn_from_the_distribution_that_is_said() -> None:
    log_probs = torch.log_softmax(torch.tensor([2.0, -50.0, 0.5, 1.0]), dim=-1)
    numbers = uniform(range(200_000), 3)
    assert 0.0 <= numbers.min() < numbers.max() < 1.0
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.01
    assert abs(np.corrcoef(numbers, uniform(range(200_000), 4))[0, 1]) < 0.01
    tokens = drawn(log_probs.expand(len(numbers), -1), numbers)[:, 0]
    shares = torch.bincount(tokens, minlength=4) / len(numbers)
    torch.testing.assert_close(shares, log_probs.exp(), atol=0.005, rtol=0)
    assert shares[1] == 0


def test_half_precision_weights_are_converted_to_the_engines(own: EngineActor) -> None:
    model = build_model()
    perturb(model, 3)
    rounded = [(name, parameter.bfloat16()) for name, parameter in model.named_parameters()]
    exchange(own, [ParameterMeta.of(*pair) for pair in rounded], rounded, (1, 1))
    for name, parameter in rounded:
        model.get_parameter(name).copy_(parameter.float())
    prompts = random_prompts([6, 2])
    assert parity(model, prompts, own.generate(prompts, sampling())) < 1e-4


def test_after_weights_of_another_version_the_engine_refuses_to_generate(own: EngineActor) -> None:
    model = build_model(seed=1)
    with pytest.raises(WeightTransferError, match=r"engine 0 .* waits for version 2, the learner sent 1"):
        exchange(own, manifest_of(model), model.named_parameters(), (1, 2))
    with pytest.raises(RuntimeError, match="engine 0 may hold parts of weight version 2; send it a whole one"):
        own.generate(random_prompts([3]), sampling())
    assert own.describe()["weight_version"] == 0


@pytest.mark.parametrize(
    ("drop", "more", "message"),
    [
        ("model.norm.weight", None, r"engine 0: version 1 lacks model\.norm\.weight"),
        (None, ("model.other.weight", (3,)), r"no parameter 'model\.other\.weight' of shape \(3,\)"),
        ("model.norm.weight", ("model.norm.weight", (65,)), r"no parameter 'model\.norm\.weight' of shape \(65,\)"),
    ],
)
def test_weights_of_another_model_are_refused(
    own: EngineActor, drop: str | None, more: tuple[str, tuple[int, ...]] | None, message: str
) -> None:
    tensors = [(name, parameter) for name, parameter in build_model().named_parameters() if name != drop]
    if more:
        tensors.append((more[0], torch.zeros(more[1])))
    with pytest.raises(WeightTransferError, match=message):
        exchange(own, [ParameterMeta.of(*pair) for pair in tensors], tensors, (1, 1))


def test_an_engine_is_loaded_once_and_before_use(own: EngineActor, model_path: Path) -> None:
    with pytest.raises(RuntimeError, match="engine 0 is loaded already"):
        own.load()
    fresh = EngineActor(HF, str(model_path), LENGTHS, 3)
    with pytest.raises(RuntimeError, match="engine 3 is not loaded"):
        fresh.generate([[4]], sampling())
    with pytest.raises(RuntimeError, match="engine 0 has not joined a weight group"):
        own.receive_weights([], 1)


def test_tensor_parallelism_needs_vllm(model_path: Path) -> None:
    rollout = Rollout(engines=1, engine="hf", tensor_parallel=2, precision="fp32")
    with pytest.raises(ValueError, match="tensor_parallel is 2: set it to 1, or the engine to vllm"):
        EngineActor(rollout, str(model_path), LENGTHS, 0).load()


def test_without_vllm_the_error_says_what_to_do(model_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)  # how Python marks a module that is not there
    actor = EngineActor(Rollout(engines=1, engine="vllm"), str(model_path), LENGTHS, 2)
    with pytest.raises(ModuleNotFoundError) as caught:
        actor.load()
    assert "engine 2 needs vLLM" in str(caught.value)
    assert "pip install 'rltui[vllm]'" in str(caught.value)
    assert "roles.rollout.engine=hf" in str(caught.value)


def test_no_prompts_give_no_completions(loaded: EngineActor) -> None:
    assert loaded.generate([], sampling()) == []


@pytest.mark.parametrize("prompts", [[[4] * 5, []], [[4], [4] * 9]], ids=["empty", "too long"])
def test_prompts_that_do_not_fit_are_named(prompts: list[list[int]]) -> None:
    check_lengths([[4] * 8], max_tokens=8, limit_tokens=16)
    with pytest.raises(ValueError, match=r"prompt 1 has \d tokens; .* it must have 1 to 8"):
        check_lengths(prompts, max_tokens=8, limit_tokens=16)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0},
        {"temperature": 0.009},
        {"max_tokens": 0},
        {"samples_per_prompt": 0},
        {"top_p": 0.0},
        {"min_p": 1.1},
    ],
)
def test_settings_that_engines_would_change_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"temperature|max_tokens|top_p"):
        sampling(**change)


def test_the_likeliest_answer_is_drawn_once(loaded: EngineActor) -> None:
    prompts = random_prompts([4, 9])
    greedy = loaded.generate(prompts, sampling(temperature=0.0, samples_per_prompt=1, seed=1))
    assert greedy == loaded.generate(prompts, sampling(temperature=0.0, samples_per_prompt=1, seed=2))
    assert parity(build_model(), prompts, greedy) < 1e-4


def test_seeds_of_neighbours_are_unrelated_and_the_same_on_every_machine() -> None:
    seeds = {derive_seed(seed, index) for seed in range(50) for index in range(50)}
    assert len(seeds) == 2500
    assert max(seeds) < 2**48
    assert derive_seed(1, 2) == 6358550319883


def test_the_environment_of_engines() -> None:
    vllm, sharded = Rollout(engines=1), Rollout(engines=1, tensor_parallel=2)
    assert engine_environment(HF, on_cpu=True) == {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    assert engine_environment(HF, on_cpu=False) == {"TOKENIZERS_PARALLELISM": "false"}
    assert engine_environment(vllm, on_cpu=True)["TORCHDYNAMO_DISABLE"] == "1"
    on_gpu = engine_environment(vllm, on_cpu=False)
    assert not {"TORCHDYNAMO_DISABLE", "VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS"} & on_gpu.keys()
    assert on_gpu["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert engine_environment(sharded, on_cpu=False)["VLLM_ENABLE_V1_MULTIPROCESSING"] == "1"
    assert engine_environment(vllm) == engine_environment(vllm, on_cpu=not torch.cuda.is_available())


def test_memory_counts_child_processes() -> None:
    alone = resident_gib(os.getpid())
    program = "import sys; block = bytearray(200 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        both = resident_gib(os.getpid())
        child.communicate()
    assert both - alone > 0.15
    assert resident_gib(child.pid) == 0
