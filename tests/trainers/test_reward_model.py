"""A reward model: what it reads, that padding changes nothing, what its scores are worth, and what else is added."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rank_support import forking
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification

from free_ports import free_ports
from rltui.layout.grading import Scoring
from rltui.layout.load import load_text
from rltui.layout.settings import Data, Source
from trainers.data.prompts import Prompt
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.rewards.answers import Answer
from trainers.rewards.composed import composed
from trainers.rewards.formats import FORM
from trainers.rewards.parts import SumOfParts
from trainers.rewards.reward_models import TOO_LONG, RewardModels, reward_of_score
from trainers.roles.calls import NotLoadedError
from trainers.roles.reward_model import RewardModel, classified, load_classifier
from trainers.roles.reward_worker import Question, Reply, RewardWorker

pytestmark = pytest.mark.trainers

ROOT = Path(__file__).parents[2]
PRESET = (ROOT / "layouts" / "local" / "grpo-with-reward-model-tiny.yaml").read_text()
EOS = 2
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{{ m.content }}<eos>{% endfor %}{% if add_generation_prompt %}?{% endif %}"
)


def config(labels: int = 1, padding: int | None = None) -> Qwen3Config:
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    found = Qwen3Config(
        vocab_size=len(VOCABULARY), num_key_value_heads=1, head_dim=16, max_position_embeddings=512, **sizes
    )
    found.num_labels, found.pad_token_id, found.eos_token_id = labels, padding, EOS
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reward model as many are published: without padding token, each turn ended by the end token."""
    path = tmp_path_factory.mktemp("reward-model")
    torch.manual_seed(0)
    Qwen3ForSequenceClassification(config()).save_pretrained(path)
    tokenizer = new_tokenizer(VOCABULARY, 512)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize("padding", [None, 0])
def test_what_stands_beside_a_conversation_does_not_change_its_score(folder: Path, padding: int | None) -> None:
    model = load_classifier(str(folder), "fp32", 512)
    model.config.pad_token_id = padding
    source = random.Random(1)
    rows = [[source.randrange(4, 40) for _ in range(length)] + [EOS] for length in (3, 11, 1, 7)]
    together = classified(model, rows)
    assert model.config.pad_token_id == padding
    for row, score in zip(rows, together, strict=True):
        ids = torch.tensor([row])
        plain = model.score(model.model(input_ids=ids).last_hidden_state[:, -1])[0, 0]
        assert float(score) == pytest.approx(float(plain), abs=1e-5)


def test_what_is_no_reward_model_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"positions for 512 tokens: set roles\.reward_model\.context=512"):
        load_classifier(str(folder), "fp32", 513)
    Qwen3ForCausalLM(config()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is no reward model: its weights lack score\.weight"):
        load_classifier(str(tmp_path), "fp32", 64)
    Qwen3ForSequenceClassification(config(labels=3)).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="it has 3 outputs, and one is a score"):
        load_classifier(str(tmp_path), "fp32", 64)


def test_a_score_is_worth_its_place_or_its_chance() -> None:
    assert reward_of_score(3.0, Scoring(center=1.0, spread=4.0, bounded=False)) == 0.5
    assert reward_of_score(3.0, Scoring(center=1.0, spread=2.0)) == pytest.approx(1 / (1 + math.exp(-1)))
    assert [reward_of_score(score, Scoring()) for score in (-1e9, 0.0, 1e9)] == [0.0, 0.5, 1.0]


class StandInFleet:
    """Two replicas in this process."""

    def __init__(self, layout: Any, path: str) -> None:
        self.model_paths = {"reward_model": path}
        self.replicas = [RewardModel(layout, number, path) for number in range(2)]
        for each in self.replicas:
            each.load()

    def of(self, _: str) -> list[RewardModel]:
        return self.replicas

    def begin(self, _: str, method: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
        return [method(role, one) for role, one in zip(self.replicas, arguments, strict=True)]

    def finish(self, found: list[Any], _: str) -> list[Any]:
        return found


def test_it_reads_its_own_chat_and_what_is_too_long_earns_what_the_layout_says(folder: Path) -> None:
    words = ["data.scoring={failed: -1, system: Be kind}", "roles.reward_model.context=40"]
    layout = load_text(PRESET, "preset", words).layout
    events: list[str] = []
    session: Any = SimpleNamespace(layout=layout, event=lambda _, text: events.append(text))
    fleet: Any = StandInFleet(layout, str(folder))
    models = RewardModels(session, fleet)
    asked = ({"role": "user", "content": "6*7"},)
    texts = ["42", "x" * 30, "7", "41"]
    found = models.score([Answer(Prompt((1,), "", "<policy's own>6*7", messages=asked), text, True) for text in texts])
    scores = []
    for text in ("42", "7", "41"):
        said = f"system:Be kind<eos>user:6*7<eos>assistant:{text}<eos>"
        ids = new_tokenizer(VOCABULARY, 512)(said)["input_ids"]
        assert ids.count(EOS) == 3
        scores += classified(fleet.replicas[0]._model, [ids]).tolist()
    first, *rest = (reward_of_score(one, Scoring()) for one in scores)
    assert found == pytest.approx([first, -1.0, *rest])
    assert len(events) == 1
    assert TOO_LONG in events[0]
    measures = models.measures()
    assert measures == pytest.approx({"reward_model_failed_fraction": 0.25, "reward_model_score": sum(scores) / 3})
    assert models.measures() == {}


DIVIDED = ["roles.reward_model.engines=2", "roles.reward_model.zero_stage=3", "roles.reward_model.micro_batch=2"]


def rank_that_divides(rank: int, path: str, port: int, pipe: Any) -> None:
    """Answer what comes by ``pipe``, first with the numbers that this rank holds."""
    os.environ.update(DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1")
    model = RewardModel(load_text(PRESET, "preset", DIVIDED).layout, rank, path)
    model.load("127.0.0.1", port)
    pipe.send(sum(one.ds_tensor.numel() for one in model._model.module.parameters()))
    while (rows := pipe.recv()) is not None:
        pipe.send(model.score(rows))


class RanksFleet:
    """The ends of the pipes to ranks."""

    def __init__(self, path: str, pipes: Sequence[Any]) -> None:
        self.model_paths, self.pipes = {"reward_model": path}, pipes

    def of(self, _: str) -> Sequence[Any]:
        return self.pipes

    def begin(self, _: str, method: Callable[..., Any], arguments: Sequence[Any]) -> Sequence[Any]:
        assert method.__name__ == "score"
        for pipe, one in zip(self.pipes, arguments, strict=True):
            pipe.send(one)
        return self.pipes

    def finish(self, asked: Sequence[Any], _: str) -> list[Any]:
        return [answer_of(pipe) for pipe in asked]


def answer_of(pipe: Any) -> Any:
    assert pipe.poll(280), "no answer"
    return pipe.recv()


def test_ranks_that_divide_its_weights_say_what_the_whole_model_says(deepspeed_here: None, folder: Path) -> None:
    """Also where they do not get as many answers each, and none at all."""
    context, port = forking(), free_ports(1)[0]
    pipes = [context.Pipe() for _ in range(2)]
    ranks = [
        context.Process(target=rank_that_divides, args=(rank, str(folder), port, theirs))
        for rank, (_, theirs) in enumerate(pipes)
    ]
    session: Any = SimpleNamespace(layout=load_text(PRESET, "preset", DIVIDED).layout, event=None)
    fleet: Any = RanksFleet(str(folder), [ours for ours, _ in pipes])
    models, whole = RewardModels(session, fleet), load_classifier(str(folder), "fp32", 64)
    source = random.Random(4)
    try:
        for process, (_, theirs) in zip(ranks, pipes, strict=True):
            process.start()
            theirs.close()  # so that the other end tells of a rank that is gone
        for pipe in fleet.pipes:
            assert answer_of(pipe) < 0.6 * whole.num_parameters()
        for count in (5, 1, 0, 8):
            rows = [[source.randrange(4, 40) for _ in range(source.randint(1, 30))] for _ in range(count)]
            wanted = [classified(whole, [row]).item() for row in rows]
            assert models._ask(rows) == pytest.approx(wanted, abs=1e-5)
        for pipe in fleet.pipes:
            pipe.send(None)
        for process in ranks:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in ranks:
            process.kill()


class Fixed:
    """A reward that says the same of every answer."""

    def __init__(self, value: float) -> None:
        self.value, self.is_closed = value, False

    def score(self, answers: Sequence[Answer]) -> list[float]:
        return [self.value] * len(answers)

    def close(self) -> None:
        self.is_closed = True


def test_rewards_are_added_by_weight_and_remember_their_parts() -> None:
    data = Data(
        train="a",
        reward="math",
        added_rewards={"reward_model": 0.5, "rules:polite": -1.0, "rules:brief": 2.0},
        mixture=[Source(name="b", train="b", reward="http")],
        format="boxed",
        format_weight=0.2,
    )
    several = Fixed(SumOfParts({"rude": (0.25, 1.0), "long": (0.5, 2.0)}))
    brief = Fixed(SumOfParts({"long": (-0.25, 1.0), "data.format": (0.125, 1.0)}))
    rewards = {"math": Fixed(1.0), "http": Fixed(0.0), "reward_model": Fixed(0.4)}
    rewards |= {"rules:polite": several, "rules:brief": brief}
    reward = composed(data, rewards)
    one, other = reward.score([Answer(Prompt((1,), "", source=name), "x", True) for name in ("train", "b")])
    assert one == pytest.approx(0.8 * (1.0 + 0.2 - 1.25 - 0.25))
    assert other == pytest.approx(0.8 * (0.0 + 0.2 - 1.25 - 0.25))
    assert isinstance(one, SumOfParts)
    own = [f"rules:{part}" for part in ("polite.rude", "polite.long", "brief.long", "brief.data.format")]
    assert list(one.parts) == ["math", "reward_model", *own, FORM]
    assert one.parts["rules:polite.long"] == pytest.approx((0.5, -1.6))
    reward.close()
    assert all(each.is_closed for each in rewards.values())


def test_a_function_in_a_reward_worker_asks_the_judge_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "graders.py").write_text(
        "def grade(prompt, response, answer, row, judge):\n"
        "    return len(judge.ask(response)) + judge.likelihood(prompt, response)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    words = ["roles.judge={model: builtin/tiny-qwen3-sorter, engine: hf}", "roles.reward={workers: 1}"]
    layout = load_text(PRESET, "preset", [*words, "data.reward=graders:grade"]).layout
    worker = RewardWorker(layout)
    with pytest.raises(NotLoadedError):
        worker.score(Answer(Prompt((1,), "", "q"), "a", True), "graders:grade")
    worker.load(prove=False)
    for _ in range(2):
        said = worker.score(Answer(Prompt((1,), "", "q"), "a", True), "graders:grade")
        assert said == Question("verdicts", (["a"], 0))
        said = worker.go_on(Reply(["yes"]))
        assert said == Question("likelihoods", ([["q", "a"]],))
        said = worker.go_on(Reply([0.25]))
        assert not isinstance(said, Question)
        assert said.reward == 3.25
    with pytest.raises(NotLoadedError):
        worker.go_on(Reply(["who asked?"]))
    worker.score(Answer(Prompt((1,), "", "q"), "a", True), "graders:grade")
    refused = worker.go_on(Reply(error="no chat template"))
    assert not isinstance(refused, Question)
    assert refused.reward == 0.0, "an error of that function alone"
    for each in worker._rewards.values():
        each.close()
