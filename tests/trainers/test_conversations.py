"""Samples of several turns between engines and environments: order, seeds, budgets, and how turns are written."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.conversations import Conversations
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.environments.opening import OpenedTask, task_of
from trainers.environments.pool import Environments, Episode, EpisodeStep
from trainers.metrics import sample_metrics
from trainers.roles.completions import Completion, derive_seed
from trainers.roles.sampling import SamplingSettings
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

TINY = ROOT / "layouts" / "local" / "grpo-tools-tiny.yaml"
CHATS = {
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<eos>{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}": "\n<tool>7<eos>\n<assistant>",
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<bos>{% endif %}": "<tool>7<bos>",
}


def codec_with(folder: Path, template: str = "") -> Codec:
    tokenizer = new_tokenizer(VOCABULARY, 512)
    if template:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 2}))
    return Codec(str(folder))


@pytest.mark.parametrize(("template", "expected"), CHATS.items())
def test_what_an_environment_says_is_written_as_the_template_goes_on(
    template: str, expected: str, tmp_path: Path
) -> None:
    codec = codec_with(tmp_path, template)
    renderer, said = Renderer(codec, chat=True, system=""), [{"role": "tool", "content": "7"}]
    ended = renderer.following(said, is_chat=True, last_token=codec.stop_token_id)
    assert codec.transcript(ended) == expected
    begun = codec.encode(renderer.text("6+1?")) + codec.encode("<eos>")
    whole = [{"role": "user", "content": "6+1?"}, {"role": "assistant", "content": ""}, *said]
    if "<eos>" in template:
        assert codec.transcript([*begun, *ended]) == renderer.text(whole)
    cut = renderer.following(said, is_chat=True, last_token=codec.encode("1")[0])
    assert codec.transcript(cut) == ("<eos>" if "<eos>" in template else "") + expected
    assert codec.transcript(renderer.following(said, is_chat=False, last_token=2)) == "7"


def test_messages_that_the_template_refuses_are_an_error(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"
    )
    renderer = Renderer(codec_with(tmp_path, template), chat=True, system="")
    with pytest.raises(ValueError, match="does not take these messages: no tools"):
        renderer.following([{"role": "tool", "content": "7"}], is_chat=True, last_token=2)
    with pytest.raises(ValueError, match="leaves out what the assistant said"):
        renderer.following([{"role": "user", "content": "7"}], is_chat=True, last_token=2)


def test_an_environment_opens_prompts_in_its_own_words_where_they_fit(tmp_path: Path) -> None:
    codec, events = codec_with(tmp_path), []
    said: list[Any] = ["12>", None, "1" * 99]
    opener = SimpleNamespace(open=lambda tasks: [text and [{"role": "user", "content": text}] for text in said])
    drawn = [Prompt(tuple(codec.encode("3>")), "3", "3>") for _ in said]
    inner = SimpleNamespace(prompts=lambda cursor, count: drawn, left_out=0, size=None)
    renderer: Any = Renderer(codec, chat=False, system="")
    environments: Any = opener
    task = OpenedTask(inner, environments, renderer, 4, 0, lambda *words: events.append(words))
    opened, failed, too_long = task.prompts(0, 3)
    assert (codec.transcript(opened.token_ids), opened.text) == ("12>", "12>")
    assert task_of(opened, 0) == task_of(drawn[0], 0)
    assert failed is drawn[1]
    assert too_long is drawn[2]
    assert len(events) == 1


class FakeRollouts:
    """Engines that answer when the test says so; ``asked`` is what they were asked for, oldest first."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any, Callable[..., None]]] = []

    def submit(self, prompts: Any, sampling: Any, on_answer: Any, **_: Any) -> Any:
        self.asked.append((prompts, sampling, on_answer))
        return SimpleNamespace(failure=None)

    def submit_each(self, asked: Any, on_answer: Any, **_: Any) -> Any:
        self.asked.append((*zip(*asked, strict=True), on_answer))
        return SimpleNamespace(failure=None)

    def collect(self, *_: Any) -> None:
        """What waits to be collected is nobody's business here."""


class FakeEnvironments:
    """Environments that answer when the test says so."""

    def __init__(self) -> None:
        self.keys = itertools.count()
        self.under_way: dict[int, tuple[Episode, bool, Future[EpisodeStep]]] = {}
        self.forgotten: list[int] = []
        self.told: list[str] = []

    def step(self, play: Episode, last: bool) -> Future[EpisodeStep]:
        self.under_way[play.key] = play, last, Future()
        return self.under_way[play.key][2]

    def say(self, key: int, text: str = "", **words: Any) -> None:
        said = [{"role": "user", "content": text}] if text else []
        self.under_way.pop(key)[2].set_result(EpisodeStep(said, **{"done": False, **words}))

    def forget(self, play: Episode) -> None:
        self.forgotten.append(play.key)

    tell = property(lambda self: self.told.append)


SETTINGS = SamplingSettings(1.0, 12, 2, (2,), seed=5)


class Table:
    """Conversations between fake engines and fake environments about two prompts of two samples each."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.codec = codec_with(folder)
        layout = load_layout(TINY, [f"roles.rollout.engine={engine}", "data.max_turns=3"]).layout
        self.rollouts, self.environments = FakeRollouts(), FakeEnvironments()
        rollouts: Any = self.rollouts
        environments: Any = self.environments
        renderer = Renderer(self.codec, chat=False, system="")
        self.talks = Conversations(rollouts, environments, self.codec, renderer, layout, seed=0)
        self.prompts = [Prompt(tuple(self.codec.encode(text)), "", text) for text in ("1>", "2>")]
        self.talk = self.talks.submit(self.prompts, SETTINGS)

    def turn(self, text: str, version: int = 0, index: int = 0) -> Completion:
        ids = tuple(self.codec.encode(text))
        reason: Any = "stop" if text.endswith("<eos>") else "length"
        return Completion(index, ids, (-0.5,) * len(ids), reason, version, version)

    def begin(self) -> None:
        """All four samples answer for the first time."""
        self.rollouts.asked[0][2](0, 2, [self.turn(f"{n}<eos>", index=n // 2) for n in range(4)])


@pytest.fixture(params=["hf", "vllm"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    return Table(tmp_path, request.param)


def test_samples_go_on_by_themselves_or_by_turn_and_always_with_the_same_seeds(table: Table) -> None:
    table.begin()
    by_turn = table.talks._by_turn
    assert [play.answers for play, _, _ in table.environments.under_way.values()] == [["0"], ["1"], ["2"], ["3"]]
    for key in (3, 0, 2):  # sample 1 keeps its environment waiting
        table.environments.say(key, f"{key}!")
    assert len(table.rollouts.asked) == (1 if by_turn else 4)
    table.environments.say(1, "1!")
    asked = [pair for prompts, sampling, _ in table.rollouts.asked[1:] for pair in zip(prompts, sampling, strict=True)]
    texts = [table.codec.transcript(prompt) for prompt, _ in asked]
    order = [0, 1, 2, 3] if by_turn else [3, 0, 2, 1]
    assert texts == [f"{1 + key // 2}>{key}<eos>{key}!" for key in order]
    for key, (_, sampling) in zip(order, asked, strict=True):
        assert sampling.seed == derive_seed(derive_seed(5, key // 2), key % 2, 1)
        assert (sampling.samples_per_prompt, sampling.max_tokens) == (1, 12 - 4)
    assert len(table.rollouts.asked) == (2 if by_turn else 5)


def test_a_sample_is_what_was_said_with_a_mask_of_what_the_policy_chose(table: Table) -> None:
    table.begin()
    table.environments.say(0, "", reward=1.0, done=True)
    table.environments.say(1, "", failed=True, done=True)
    table.environments.say(2, "?" * 10)  # leaves no room for an answer
    table.environments.say(3, "??", reward=0.25)
    [(_, [sampling], on_answer)] = table.rollouts.asked[1:]
    assert sampling.max_tokens == 8
    on_answer(0, 1, [table.turn("45<eos>", version=2)])
    table.environments.say(3, "?", reward=0.5)
    table.rollouts.asked[2][2](0, 1, [table.turn("6<eos>", version=3)])
    assert table.environments.under_way[3][1]  # the third turn is the last
    table.environments.say(3, "", reward=0.25)
    [[won, failed], [cut, long]] = table.talks.collect(table.talk, lambda: None)
    assert won.outcome is not None
    assert (won.outcome.reward, won.outcome.turns, won.response_mask, won.finish_reason) == (1.0, 1, (), "stop")
    assert failed.outcome is not None
    assert (failed.outcome.reward, failed.outcome.failed) == (0.0, True)
    assert (cut.finish_reason, len(cut.token_ids), cut.prompt_index) == ("length", 2, 1)
    assert table.environments.forgotten == [2]
    assert table.codec.transcript(long.token_ids) == "3<eos>??45<eos>?6<eos>"
    assert long.response_mask == (True,) * 2 + (False,) * 2 + (True,) * 3 + (False,) + (True,) * 2
    assert [value for value, chosen in zip(long.log_probs, long.response_mask, strict=True) if not chosen] == [0.0] * 3
    assert (long.weight_version, long.newest_version, long.outcome.reward if long.outcome else 0) == (0, 3, 1.0)
    metrics = sample_metrics([[won, failed], [cut, long]], [[0.0] * 2] * 2)
    assert (metrics["environment_failures"], metrics["turns"], metrics["environment_length"]) == (1.0, 1.5, 0.75)
    assert metrics["response_length"] == (2 + 2 + 2 + 7) / 4


def test_what_cannot_go_on_reaches_who_collects(table: Table) -> None:
    table.begin()
    table.environments.under_way[0][2].set_exception(OSError("no process can be started"))
    with pytest.raises(OSError, match="no process can be started"):
        table.talks.collect(table.talk, lambda: None)


def test_a_slow_environment_holds_up_no_other_sample(tmp_path: Path) -> None:
    """Real processes, several threads: what an engine of slots is asked for while one environment hangs."""
    (tmp_path / "model").mkdir()
    table = Table(tmp_path / "model", "vllm")
    released = threading.Event()

    class Lane:
        def __init__(self, number: int) -> None:
            self.number = number

        def ask(self, question: Any, timeout_s: float) -> Any:
            if self.number == 1:
                assert released.wait(timeout_s)
            return {"messages": [{"role": "user", "content": "?"}], "reward": 0.0, "done": question["last"]}

        def close(self) -> None:
            """Nothing runs."""

    pool = Environments("x:Y", [Lane(number) for number in range(4)], 300.0, lambda *_: None)
    table.talks._environments = pool
    table.begin()
    eventually(lambda: len(table.rollouts.asked) == 4, "the next turns of the other three")
    assert not released.is_set()
    released.set()
    eventually(lambda: len(table.rollouts.asked) == 5, "the last one's")
    pool.close()
