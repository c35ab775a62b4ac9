"""Where an answer ends: every end token that a model's folder names, and texts of the layout, in both engines."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from engine_support import LENGTHS, build_model, random_prompts, sampling
from tokenizers import Tokenizer, decoders, models

from rltui.layout.load import load_layout
from rltui.layout.schema import Rollout
from trainers.data.codec import Codec
from trainers.data.stops import Stops
from trainers.reporting import NEVER_ENDING_STEPS, Reporter
from trainers.roles.completions import Request
from trainers.roles.engine import EngineActor
from trainers.roles.vllm_counters import VllmCounters
from trainers.roles.vllm_samples import VllmSamples

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

WORDS = {f"w{number}.": number for number in range(95)} | {f"<{number}>": number for number in range(95, 100)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tokenizer of a word a token, and end tokens 97, 98 and 99 in three places."""
    path = tmp_path_factory.mktemp("model")
    build_model().save_pretrained(path)
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="w0."))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([word for word in WORDS if word.startswith("<")])
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<97>"}}))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [98, 99]}))
    return path


def test_all_end_tokens_of_a_folder_end_an_answer(folder: Path) -> None:
    codec = Codec(str(folder), ["<95>", "w1."])
    assert (codec.stop_token_ids, codec.stop_texts) == ((97, 98, 99, 95), ("w1.",))
    assert codec.stop_token_id == 97
    assert [codec.decode([5, end, 6]) for end in codec.stop_token_ids] == ["w5."] * 4


def test_texts_end_with_the_token_that_completes_them(folder: Path) -> None:
    stops = Stops((97,), ("5.w6.w",), str(folder))
    assert [stops.ends(ids) for ids in ([5, 6], [5, 6, 7], [5, 97], [])] == [False, True, True, False]
    assert [stops.length(ids) for ids in ([1, 5, 6, 7, 8], [5, 97, 6, 7], [5, 6])] == [4, 2, 2]


@pytest.mark.parametrize("which", [0, 1])
def test_each_end_token_and_text_ends_samples_of_transformers(folder: Path, which: int) -> None:
    actor = EngineActor(Rollout(engines=1, engine="hf", precision="fp32"), str(folder), LENGTHS, 0)
    actor.load()
    prompts = random_prompts([5, 9])
    free = actor.generate(prompts, sampling(stop_token_ids=()))
    ends = (free[0].token_ids[4], free[1].token_ids[6])
    texts = (f"w{free[2].token_ids[3]}.w{free[2].token_ids[4]}.",)
    for stops, words in (((ends[which],), ()), (ends, ()), ((), texts), (ends, texts)):
        rule = Stops(stops, words, str(folder))
        for whole, cut in zip(
            free, actor.generate(prompts, sampling(stop_token_ids=stops, stop_texts=words)), strict=True
        ):
            assert cut.token_ids == whole.token_ids[: rule.length(whole.token_ids)]
            assert cut.finish_reason == ("stop" if rule.ends(cut.token_ids) else "length")


class FakeVllm:
    """vLLM's engine: every request gets the same tokens, one a step, until a stop token or the limit."""

    def __init__(self, tokens: list[int]) -> None:
        self.tokens, self.running, self.aborted = tokens, {}, []  # type: ignore[var-annotated]
        self.renderer = SimpleNamespace(render_cmpl=lambda prompts: prompts)

    def add_request(self, name: str, _: Any, parameters: Any) -> None:
        self.running[name] = (0, parameters)

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            self.running.pop(name)
            self.aborted.append(name)

    def step(self) -> list[Any]:
        outputs = []
        for name, (count, parameters) in list(self.running.items()):
            token = self.tokens[count]
            finished = token in parameters.stop_token_ids or count + 1 == parameters.max_tokens
            self.running[name] = (count + 1, parameters)
            if finished:
                del self.running[name]
            told = SimpleNamespace(
                token_ids=[token],
                logprobs=[{token: SimpleNamespace(logprob=-1.0)}],
                weight_versions=[SimpleNamespace(version="3")] if finished else None,  # as vLLM: only at its end
                routed_experts=None,
            )
            outputs.append(SimpleNamespace(request_id=name, outputs=[told], finished=finished, prompt_token_ids=[1]))
        return outputs


@pytest.mark.parametrize(("ends", "texts", "length"), [((98, 99), (), 4), ((), ("w6.w7.",), 3), ((), (), 6)])
def test_each_end_token_and_text_ends_samples_of_vllm(
    folder: Path, ends: tuple[int, ...], texts: tuple[str, ...], length: int
) -> None:
    engine = FakeVllm([5, 6, 7, 99, 8, 9])
    settings = sampling(max_tokens=6, stop_token_ids=ends, stop_texts=texts)
    samples = VllmSamples(engine, slots=4)
    samples.add(Request(3, [1], settings), {"prompt_token_ids": [1]}, Stops(ends, texts, str(folder)), "")
    found = samples.run(0, lambda: 3).answers[3]
    assert [(one.weight_version, one.newest_version) for one in found] == [(3, 3)] * 4
    assert [one.token_ids for one in found] == [(5, 6, 7, 99, 8, 9)[:length]] * 4
    assert {one.finish_reason for one in found} == {"stop" if length < 6 else "length"}
    assert len(engine.aborted) == (4 if texts else 0)


def test_samples_that_vllm_has_no_cache_for_wait_and_take_no_slot(folder: Path) -> None:
    """Of eight samples in four slots, the cache holds two, and one of these is put off in each step."""
    engine, counters = FakeVllm([5, 6]), VllmCounters()
    step = engine.step

    def counted() -> list[Any]:
        told = SimpleNamespace(num_waiting_reqs=5, num_skipped_waiting_reqs=1, kv_cache_usage=0.97)
        preempted = SimpleNamespace(num_preempted_reqs=1)
        counters.record(scheduler_stats=told, iteration_stats=preempted, mm_cache_stats=None)
        return step()

    engine.step = counted  # type: ignore[method-assign]
    samples = VllmSamples(engine, slots=4, counters=counters)
    for key in (3, 4):
        asked = Request(key, [1], sampling(max_tokens=2, samples_per_prompt=4, stop_token_ids=()))
        samples.add(asked, {"prompt_token_ids": [1]}, Stops((), (), str(folder)), "")
    found = samples.run(8, lambda: 3)
    assert found.cache_share == 0.97
    assert found.preempted >= 1
    assert found.waited_s == pytest.approx(3 * found.busy_slot_s)  # six of eight
    assert found.busy_slot_s == pytest.approx(2 * found.span_s)


@pytest.mark.parametrize(("fractions", "warns"), [([1.0] * 5, 1), ([1.0, 0.9, 1.0, 1.0, 1.0], 0), ([0.0, 1.0], 0)])
def test_a_run_whose_answers_never_end_says_so_once(fractions: list[float], warns: int) -> None:
    said: list[str] = []
    reporter = Reporter.__new__(Reporter)
    reporter._endless_steps, reporter._session = 0, SimpleNamespace(event=lambda _, text: said.append(text))  # type: ignore[assignment]
    for fraction in fractions:
        reporter._warn_of_endless_answers({"truncated_fraction": fraction})
    assert len(said) == warns
    assert all("train.stop" in text and str(NEVER_ENDING_STEPS) in text for text in said)


def test_a_layout_names_texts(tmp_path: Path) -> None:
    assert load_layout("layouts/local/grpo-tiny.yaml", ["train.stop=[</answer>, <95>]"]).layout.train.stop == [
        "</answer>",
        "<95>",
    ]
