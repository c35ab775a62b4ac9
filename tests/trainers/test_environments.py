"""Samples of several turns, piece by piece: masks, tools, processes and the order of turns; no Ray, small models."""

from __future__ import annotations

import itertools
import json
import math
import sys
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from trainer_support import ROOT, wait_for

from rltui.check.bundled import ENVIRONMENTS
from rltui.layout.load import load_layout
from rltui.runs.own_code import own_code
from trainers.advantages import generalised_advantages, token_rewards
from trainers.conversations import Conversations
from trainers.data.batch import Sample, pad, shard, split
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.environments import Environment, Task, parse_tool_call
from trainers.environments.calculator import Calculator, value_of
from trainers.environments.opening import OpenedTask, task_of
from trainers.environments.pool import BUILTIN, Environments, Play, Played, class_of, start_worker
from trainers.environments.worker import Instances
from trainers.metrics import sample_metrics
from trainers.objectives import objective
from trainers.roles.engine import Completion, SamplingSettings, derive_seed
from trainers.roles.forward import Scores
from trainers.roles.step_report import StepSums

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.trainers

TINY = ROOT / "layouts" / "local" / "grpo-tools-tiny.yaml"
MASKS = ((True, True, False, False, True), (True, False, True), (True, True, True, True))
VOCABULARY_SIZE = 7


def masked_samples(seed: int) -> tuple[list[Sample], list[torch.Tensor]]:
    """Samples with tokens of an environment, whose columns hold nonsense there; and the logits [R, V] of each."""
    source = torch.Generator().manual_seed(seed)
    samples, logits = [], []
    for mask in MASKS:
        length = len(mask)
        scores = torch.randn(length, VOCABULARY_SIZE, generator=source, dtype=torch.float64)
        ids = torch.randint(VOCABULARY_SIZE, (length,), generator=source)
        chosen = scores.log_softmax(-1).gather(-1, ids.unsqueeze(-1)).squeeze(-1)
        keep = torch.tensor(mask)
        columns = {
            name: torch.where(keep, chosen + 0.3 * torch.randn(length, generator=source), 77.0 * keep.logical_not())
            for name in ("engine_log_probs", "old_log_probs", "reference_log_probs")
        }
        columns |= {
            "advantages": torch.full((length,), float(torch.randn(1, generator=source))),
            "staleness": keep * 0.0,
        }
        arrays = {name: values.numpy() for name, values in columns.items()}
        samples.append(Sample((1, 2), tuple(ids.tolist()), arrays, response_mask=() if all(mask) else mask))
        logits.append(scores)
    return samples, logits


def padded(logits: Sequence[torch.Tensor], width: int) -> torch.Tensor:
    found = torch.zeros(len(logits), width, VOCABULARY_SIZE, dtype=torch.float64)
    for row, values in enumerate(logits):
        found[row, : len(values)] = values
    return found.requires_grad_()


def plain_loss(
    samples: Sequence[Sample], logits: Sequence[torch.Tensor], aggregation: str, beta: float
) -> torch.Tensor:
    """GRPO's loss written out over the tokens that the policy chose, one after the other; nothing else exists here."""
    sums, counts = [], []
    for sample, scores in zip(samples, logits, strict=True):
        mask = sample.response_mask or (True,) * len(sample.response_ids)
        terms = []
        for place in [place for place, chosen in enumerate(mask) if chosen]:
            columns = {name: float(values[place]) for name, values in sample.columns.items()}  # type: ignore[index]
            log_prob = scores[place].log_softmax(-1)[sample.response_ids[place]]
            ratio, worth = (log_prob - columns["old_log_probs"]).exp(), columns["advantages"]
            gained = torch.minimum(ratio * worth, ratio.clamp(0.8, 1.272) * worth)
            weight = min(math.exp(columns["old_log_probs"] - columns["engine_log_probs"]), 2.0)
            apart = log_prob - columns["reference_log_probs"]
            terms.append(-weight * gained + beta * (torch.exp(-apart) - 1 + apart))
        sums.append(torch.stack(terms).sum())
        counts.append(len(terms))
    if aggregation == "token":
        return torch.stack(sums).sum() / sum(counts)
    if aggregation == "sequence":
        return torch.stack([total / count for total, count in zip(sums, counts, strict=True)]).mean()
    return torch.stack(sums).sum() / (len(samples) * 12)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "dr_grpo"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("pack", [0, 16])
def test_the_loss_is_that_of_the_tokens_which_the_policy_chose(aggregation: str, ranks: int, pack: int) -> None:
    words = [f"grpo.aggregation={aggregation}", "grpo.kl_coefficient=0.3", "roles.reference={}"]
    loss_of = objective(load_layout(TINY, words).layout)
    samples, logits = masked_samples(3)
    kind: Any = aggregation
    parts = shard(samples, [], ranks, kind, response_limit=12, pack_tokens=pack)
    scores, found = padded(logits, 5), torch.zeros((), dtype=torch.float64)
    for part in parts:
        [batch] = part.trained
        rows = batch.rows.tensors(torch.device("cpu"))
        numbers, width = batch.rows.numbers.clip(0), rows.response_mask.shape[1]
        ids = rows.token_ids[:, -width:].unsqueeze(-1)
        log_probs = scores[numbers, :width].log_softmax(-1).gather(-1, ids).squeeze(-1)
        found = found + loss_of(Scores(log_probs, torch.zeros_like(log_probs)), rows, batch.denominator).loss
    free = [values.clone().requires_grad_() for values in logits]
    expected = plain_loss(samples, free, aggregation, 0.3)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    [gradient] = torch.autograd.grad(found, scores)
    for row, (mask, wanted) in enumerate(zip(MASKS, torch.autograd.grad(expected, free), strict=True)):
        assert torch.allclose(gradient[row, : len(mask)], wanted, rtol=1e-5, atol=1e-9)
        assert not gradient[row, : len(mask)][~torch.tensor(mask)].any()


def test_entropy_parity_and_lengths_know_only_the_tokens_of_the_policy() -> None:
    samples, logits = masked_samples(4)
    rows = pad(samples).tensors(torch.device("cpu"))
    scores = padded(logits, 5).detach().log_softmax(-1)
    log_probs = scores.gather(-1, rows.token_ids[:, -5:].unsqueeze(-1)).squeeze(-1)
    entropies = -(scores.exp() * scores).sum(-1)
    sums = StepSums()
    sums.measure(rows, Scores(log_probs, entropies))
    report = sums.report(1e-3, time.time(), 0.0)
    chosen = [(row, place) for row, mask in enumerate(MASKS) for place, is_chosen in enumerate(mask) if is_chosen]
    apart = [float(abs(log_probs[at] - rows.columns["engine_log_probs"][at])) for at in chosen]
    assert report.tokens == report.fresh_tokens == len(chosen) == 9
    assert report.parity_max_abs == pytest.approx(max(apart))
    assert report.parity_max_abs < 5 < 77
    assert report.entropy_sum == pytest.approx(sum(float(entropies[at]) for at in chosen))
    groups = [[Completion(0, (1,) * len(mask), (0.0,) * len(mask), "stop", 0, response_mask=mask)] for mask in MASKS]
    metrics = sample_metrics(groups, [[1.0]] * 3)
    assert (metrics["response_length"], metrics["response_length_max"]) == (3.0, 4.0)
    assert "turns" not in metrics


def test_columns_of_environment_tokens_travel_with_the_others() -> None:
    samples, _ = masked_samples(5)
    [left, right] = split(samples, 2)
    for part in (left, right):
        for row, number in enumerate(part.numbers.tolist()):
            if number < 0:
                assert not part.response_mask[row].any()
                continue
            values = samples[number].columns["engine_log_probs"]
            assert np.allclose(part.columns["engine_log_probs"][row, : len(MASKS[number])], values)
            assert part.response_mask[row, : len(MASKS[number])].tolist() == list(MASKS[number])
            assert part.attention_mask[row].sum() == 2 + len(MASKS[number])


def test_advantage_estimation_steps_over_what_the_environment_said() -> None:
    source = torch.Generator().manual_seed(0)
    mask = torch.tensor([[True, True, False, False, True, True], [True, False, True, False, False, False]])
    kl, values = (torch.randn(2, 6, generator=source, dtype=torch.float64) for _ in range(2))
    rewards = token_rewards(torch.tensor([1.0, -2.0], dtype=torch.float64), mask, kl, 0.1)
    advantages, returns = generalised_advantages(rewards, values, mask, 0.9, 0.8)
    for row in range(2):
        chosen = mask[row]
        whole = torch.ones(1, int(chosen.sum()), dtype=torch.bool)
        total = torch.tensor([[1.0, -2.0][row]], dtype=torch.float64)
        alone = token_rewards(total, whole, kl[row][chosen].unsqueeze(0), 0.1)
        expected = generalised_advantages(alone, values[row][chosen].unsqueeze(0), whole, 0.9, 0.8)
        assert torch.equal(advantages[row][chosen], expected[0][0])
        assert torch.equal(returns[row][chosen], expected[1][0])
        assert not advantages[row][~chosen].any()
        assert not returns[row][~chosen].any()


TOOL_CALLS = [
    ("12", None),
    ('x <tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', ("add", {"a": 1})),
    ('<tool_call>\n{"name": "now"}\n</tool_call> and <tool_call>{"name": "later"}</tool_call>', ("now", {})),
    ('<tool_call>{"name": "open"}', ("open", {})),
    ("<tool_call>add(1, 2)</tool_call>", "not JSON"),
    ("<tool_call></tool_call>", "not JSON"),
    ("<tool_call>[1]</tool_call>", 'needs a "name"'),
    ('<tool_call>{"name": 3}</tool_call>', 'needs a "name"'),
    ('<tool_call>{"name": "add", "arguments": "1+1"}</tool_call>', "must be an object"),
    ("<tool_call>" + "[" * 100_000, "not JSON"),
]


@pytest.mark.parametrize(("answer", "expected"), TOOL_CALLS)
def test_tool_calls_are_read_or_answered_with_what_is_wrong(answer: str, expected: Any) -> None:
    found = parse_tool_call(answer)
    if expected is None:
        assert found is None
    elif isinstance(expected, str):
        assert found is not None
        assert expected in found.error
        assert "<tool_call>" in found.error
    else:
        assert found is not None
        assert (found.name, found.arguments, found.error) == (*expected, "")


@pytest.mark.parametrize(
    ("expression", "value"), [("2*(3+4)", 14), ("-1/3 + 1/3", 0), ("0.1+0.2", Fraction(3, 10)), ("10-2-3", 5)]
)
def test_the_calculator_is_exact(expression: str, value: Fraction) -> None:
    assert value_of(expression) == value


def test_the_calculator_answers_whatever_it_is_asked_and_pays_for_the_last_number() -> None:
    environment = Calculator()
    environment.reset(Task([{"role": "user", "content": "6*7?"}], "42"))
    for expression in (
        "__import__('os')",
        "9**9**9",
        "1/0",
        "(" * 150,
        "1e999",
        "x",
        "",
        "True",
        "*".join(["99999"] * 40),
    ):
        call = json.dumps({"name": "calculate", "arguments": {"expression": expression}})
        step = environment.step(f"<tool_call>{call}</tool_call>")
        assert not step.done
        assert step.messages[0]["role"] == "tool"  # type: ignore[index]
        assert "annot be calculated" in str(step.messages)
    said = environment.step('<tool_call>{"name": "calculate", "arguments": {"expression": "6*7"}}</tool_call>')
    assert said.messages == [{"role": "tool", "content": "42"}]
    assert "no tool search" in str(environment.step('<tool_call>{"name": "search"}</tool_call>').messages)
    assert environment.step("it is 42").reward == 1.0
    assert environment.step("it is 42 or 41") == ("", 0.0, True)
    assert set(BUILTIN) == set(ENVIRONMENTS)


GAMES = """
import os, time
from trainers.environments import Environment, Step

class Game(Environment):
    def reset(self, task):
        print("noise on stdout")
        self.start, self.said = os.getpid(), []
        if task.answer == "no game":
            raise LookupError("there is no such game")
        return f"play {task.row['level']}>"

    def step(self, answer):
        if answer == "raises":
            raise ValueError("no such move")
        if answer == "dies":
            os._exit(3)
        if answer == "hangs":
            time.sleep(60)
        if answer == "nan":
            return Step(reward=float("nan"))
        if answer == "nonsense":
            return Step(messages=[{"text": "no role"}])
        if answer == "nothing":
            return None
        self.said.append(answer)
        return Step(messages="".join(self.said), reward=0.5, done=len(self.said) == 3)
"""


@pytest.fixture
def games(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Environments, list[tuple[str, str]]]]:
    """One process for all samples, so that each fault is in everybody's way."""
    (tmp_path / "games.py").write_text(GAMES)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{tmp_path}")
    events: list[tuple[str, str]] = []
    made = Environments("games:Game", [start_worker("games:Game")], 1.5, lambda *words: events.append(words))
    yield made, events
    made.close()


def test_a_fault_costs_its_own_sample_only(games: tuple[Environments, list[tuple[str, str]]]) -> None:
    environments, events = games
    task = Task([{"role": "user", "content": "?"}], row={"level": 3})
    opened = environments.open([task, replace(task, answer="no game"), task])
    assert opened == [[{"role": "user", "content": "play 3>"}], None, [{"role": "user", "content": "play 3>"}]]
    good, plays = Play(0, task), []
    for number, fault in enumerate(("raises", "dies", "nan", "hangs", "nonsense", "nothing"), 1):
        good.answers.append("abc"[len(good.answers)] if len(good.answers) < 3 else "d")
        if number <= 3:
            told = environments.step(good, last=False).result()
            said = "" if number == 3 else "abc"[:number]
            assert told == Played([{"role": "user", "content": said}] if said else [], 0.5, done=number == 3)
        plays.append(Play(number, task, [fault]))
        assert environments.step(plays[-1], last=False).result() == Played([], failed=True)
    assert len(events) == 5  # different words only, and no more than that
    assert {kind for kind, _ in events} == {"environment"}
    assert any("LookupError: there is no such game" in text for _, text in events)
    assert any("more than 1.5 s, or ended its process" in text for _, text in events)
    again = Play(9, task, ["x"])
    assert environments.step(again, last=True).result() == Played([], 0.5, done=False)


def test_an_environment_that_cannot_be_imported_is_named() -> None:
    with pytest.raises(ValueError, match=r"the environment no_games:Chess cannot start: .*No module named 'no_games'"):
        start_worker("no_games:Chess")
    with pytest.raises(ValueError, match=r"no environment 'builtin/chess'; bundled are: builtin/guess-order"):
        class_of("builtin/chess")


def test_instances_are_closed_once_their_sample_is_over() -> None:
    closed: list[int] = []

    class Counted(Environment):
        def step(self, answer: str) -> Any:
            return answer, 0.0, answer == "end"

        def close(self) -> None:
            closed.append(id(self))
            raise RuntimeError("nobody minds")

    instances, task = Instances(Counted), {"messages": [], "answer": "", "row": {}, "seed": 0}

    def step(key: int, *answers: str, last: bool = False, over: Sequence[int] = ()) -> Any:
        asked = {"do": "step", "key": key, "task": task, "answers": answers, "last": last, "over": over}
        return json.loads(instances.answer(asked))

    assert step(1, "a")["messages"] == [{"role": "user", "content": "a"}]
    assert step(2, "a", last=True)["messages"] == []
    assert len(closed) == 1
    assert step(1, "a", "end")["done"]
    assert len(closed) == 2
    step(3, "a")
    step(4, "a", over=[3, 99])
    assert len(closed) == 3


def test_packages_of_reward_and_environment_are_carried(tmp_path: Path) -> None:
    (tmp_path / "games").mkdir()
    (tmp_path / "games" / "chess.py").write_text("class Chess: pass\n")
    layout = load_layout(TINY, ["data.environment=games.chess:Chess"]).layout
    assert own_code(layout, tmp_path) is not None
    assert own_code(load_layout(TINY).layout, tmp_path) is None


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
        self.under_way: dict[int, tuple[Play, bool, Future[Played]]] = {}
        self.forgotten: list[int] = []
        self.told: list[str] = []

    def step(self, play: Play, last: bool) -> Future[Played]:
        self.under_way[play.key] = play, last, Future()
        return self.under_way[play.key][2]

    def say(self, key: int, text: str = "", **words: Any) -> None:
        said = [{"role": "user", "content": text}] if text else []
        self.under_way.pop(key)[2].set_result(Played(said, **{"done": False, **words}))

    def forget(self, play: Play) -> None:
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

    pool = Environments("x:Y", [Lane(number) for number in range(4)], 30.0, lambda *_: None)
    table.talks._environments = pool
    table.begin()
    wait_for(lambda: len(table.rollouts.asked) == 4, "the next turns of the other three", 20.0)
    assert not released.is_set()
    released.set()
    wait_for(lambda: len(table.rollouts.asked) == 5, "the last one's", 20.0)
    pool.close()


def test_environments_are_found_without_the_training_stack() -> None:
    """A worker starts in the time that Python takes; torch would take seconds."""
    import subprocess

    program = (
        "import sys, trainers.environments.worker; print([m for m in ('torch', 'ray', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
