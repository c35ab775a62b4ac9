"""Which prompts a GRPO step draws and trains on, and what it makes of overlong and penalised samples."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from msgspec import structs
from trainer_support import LAYOUT

from rltui.layout.load import load_layout
from trainers.advantages import overlong_penalty
from trainers.checkpoint import TrainingState
from trainers.data.curriculum import make_curriculum
from trainers.data.sort_digits import SortDigits
from trainers.groups import Drawn, choose, next_draw
from trainers.grpo import Grpo
from trainers.lookahead import Lookahead, StalenessCounter
from trainers.phases import Phases
from trainers.prefetch import Prefetch
from trainers.roles.completions import Completion, derive_seed

if TYPE_CHECKING:
    from trainers.roles.sampling import SamplingSettings

pytestmark = pytest.mark.trainers


@pytest.mark.parametrize(
    ("wanted", "limit", "signal", "count"),
    [
        (4, 1, [], 4),
        (4, 1, [0, 0, 0, 0], 0),  # without refills the batch is what it is
        (4, 3, [1, 1, 1, 1], 0),
        (4, 3, [1, 1, 1, 0], 2),  # one is missing, 3 of 4 had a signal
        (4, 3, [1, 1, 0, 0], 4),
        (4, 3, [0, 0, 0, 0], 4),  # never more than a batch at once
        (4, 3, [0] * 9, 3),  # the limit is 12 prompts
        (4, 3, [0] * 12, 0),
        (4, 3, [0] * 11 + [1], 0),
    ],
)
def test_prompts_are_drawn_until_the_batch_is_full(wanted: int, limit: int, signal: list[int], count: int) -> None:
    assert next_draw(wanted, limit, [bool(each) for each in signal]) == count


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_a_batch_is_full_or_the_limit_was_tried(share: float) -> None:
    source = random.Random(f"{share}")
    for wanted, limit in [(1, 1), (8, 1), (8, 4), (32, 3), (5, 10)]:
        signal: list[bool] = []
        while count := next_draw(wanted, limit, signal):
            assert 1 <= count <= wanted
            signal += [source.random() < share for _ in range(count)]
        assert sum(signal) >= wanted or len(signal) == wanted * limit
        trained, measured = choose(wanted, signal, filter_zero_std=True)
        assert len(trained) == min(wanted, sum(signal))
        assert all(signal[i] for i in trained)
        assert not any(signal[i] for i in measured)
        assert set(range(wanted)) <= {*trained, *measured}


def test_without_the_filter_all_groups_are_trained_on() -> None:
    assert choose(3, [True, False, True], filter_zero_std=False) == ([0, 1, 2], [])
    assert choose(3, [True, False, True], filter_zero_std=True) == ([0, 2], [1])


def test_the_overlong_penalty_is_that_of_dapo() -> None:
    """0 up to the slope, then linear in the tokens of the slope, -1 at the limit."""
    lengths = torch.tensor([1, 16, 17, 18, 20])
    assert overlong_penalty(lengths, 20, 4).tolist() == pytest.approx([0.0, 0.0, -0.25, -0.5, -1.0])
    assert overlong_penalty(lengths, 20, 0).tolist() == [0.0] * 5


class Sampler:
    """Stands in for the engines: samples are a function of prompt and seed, as an engine's are."""

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def submit(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, on_answer: Any = None, drawn: int = 0
    ) -> Any:
        seeds = [derive_seed(sampling.seed, drawn + i) for i in range(len(prompts))]
        self.seeds += seeds
        return [self.group(prompt, seed) for prompt, seed in zip(prompts, seeds, strict=True)]

    def collect(self, ticket: Any, check: Any) -> list[list[Completion]]:
        return list(ticket)

    def generate(
        self, prompts: Sequence[Sequence[int]], sampling: SamplingSettings, check: Any, drawn: int
    ) -> list[list[Completion]]:
        return self.collect(self.submit(prompts, sampling, drawn=drawn), check)

    def group(self, prompt: Sequence[int], seed: int) -> list[Completion]:
        source = random.Random(f"{prompt}/{seed}")
        right = source.random() < 0.3  # of the groups have a signal: some of their samples are right
        answers = [sorted(prompt[:-1]) if right and source.random() < 0.5 else [11] * 3 for _ in range(4)]
        return [Completion(0, (*a, 2), (-0.1,) * 4, "stop", 0) for a in answers]


def loop(*words: str) -> Any:
    """GRPO's loop with a sampler for its engines and without learners."""
    settings = ["train.prompts_per_step=6", "train.samples_per_prompt=4", "grpo.active_sampling_limit=5"]
    made: Any = object.__new__(Grpo)
    made.layout = load_layout(LAYOUT, [*settings, *words]).layout
    made.codec = type(
        "Digits", (), {"stop_token_ids": (2,), "stop_texts": (), "decode": staticmethod(lambda ids: str(list(ids)))}
    )
    digits = SortDigits(3, 0, lambda text: [3 + int(digit) if digit != ">" else 1 for digit in text])
    made.task = made.curriculum = make_curriculum(made.layout, digits)
    made.rollouts, made.state, made.staleness = Sampler(), TrainingState(), StalenessCounter(0)
    train = made.layout.train
    made.lookahead = Lookahead(
        made.task, made.rollouts, made.sampling, train.prompts_per_step, train.async_steps, train.steps
    )
    made.session = type("Session", (), {"board": type("Board", (), {"enter": staticmethod(lambda name: None)})})
    made.phases = Phases(made.session.board)
    made.prefetched_rewards = Prefetch(made.compute_rewards)
    made.reward = type("Sorted", (), {"score": staticmethod(lambda answers: [is_sorted(one) for one in answers])})
    return made


def is_sorted(answer: Any) -> float:
    """1.0 where the answer, which ``Digits`` writes as a list of token ids, is the prompt's digits in order."""
    return float(json.loads(answer.text)[:-1] == sorted(answer.prompt.token_ids[:-1]))


def steps(made: Any, first: int, last: int) -> list[tuple[Any, ...]]:
    """What steps draw and train on, each moving the state as the loop does."""
    found = []
    for number in range(first, last + 1):
        drawn = made.draw(number)
        trained, _, _ = made.with_advantages(drawn)
        made.state = structs.replace(made.state.after_step(len(drawn.prompts), 0), ahead=made.lookahead.starts)
        found.append(
            (made.state.cursor, tuple(p.token_ids for p in drawn.prompts), tuple(s.response_ids for s in trained))
        )
    return found


@pytest.mark.parametrize("async_steps", [0, 2])
def test_a_resumed_run_draws_what_the_uninterrupted_one_drew(async_steps: int) -> None:
    words = [f"train.async_steps={async_steps}", "train.steps=6"]
    whole = loop(*words)
    curve = steps(whole, 1, 3)
    saved = whole.state
    curve += steps(whole, 4, 6)
    assert len({len(prompts) for _, prompts, _ in curve}) > 1  # steps tried different numbers of prompts
    assert any(len(prompts) > 6 for _, prompts, _ in curve)
    seeds = whole.rollouts.seeds
    assert len(set(seeds)) == len(seeds)  # no draw of a step repeats another's samples
    assert len(saved.ahead) == async_steps
    drawn = [prompt for _, prompts, _ in curve for prompt in prompts]
    assert sorted(drawn) == sorted(p.token_ids for p in whole.task.prompts(0, len(drawn)))  # each of them once
    resumed = loop(*words)
    resumed.state = saved
    resumed.lookahead.resume(saved.cursor, saved.ahead)
    assert steps(resumed, 4, 6) == curve[3:]


@pytest.mark.parametrize("count", [3, 12])
def test_steps_that_were_ahead_share_no_prompt_with_others_where_a_step_now_has_another_number(count: int) -> None:
    words = ["train.async_steps=2", "train.steps=9", "grpo.active_sampling_limit=1"]
    before = loop(*words)
    drawn = [prompts for _, prompts, _ in steps(before, 1, 3)]
    after = loop(*words, f"train.prompts_per_step={count}")
    after.state = structs.replace(before.state, prompts_per_step=6)
    after.lookahead.resume(after.state.cursor, after.state.ahead, after.state.prompts_per_step)
    drawn += [prompts for _, prompts, _ in steps(after, 4, 7)]
    assert [len(prompts) for prompts in drawn] == [6] * 3 + [count] * 4
    flat = [prompt for prompts in drawn for prompt in prompts]
    assert flat == [prompt.token_ids for prompt in after.task.prompts(0, len(flat))]


def test_no_prompt_is_tried_twice_and_batches_are_full() -> None:
    made = loop()
    cursor = 0
    for after, prompts, trained in steps(made, 1, 6):
        assert prompts == tuple(p.token_ids for p in made.task.prompts(cursor, after - cursor))
        assert len(trained) == 6 * 4 or after - cursor == 30
        cursor = after


def drawn_groups() -> Drawn:
    """Two groups: one that differs, with a cut sample, and one without signal."""
    [first, second] = SortDigits(3, 0, lambda text: [5] * len(text)).prompts(0, 2)

    def sample(length: int, reason: Any = "stop") -> Completion:
        return Completion(0, (5,) * length, (-0.5,) * length, reason, 0)

    groups = [[sample(2), sample(3), sample(4, "length")], [sample(2), sample(2), sample(4, "length")]]
    rewards = [[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    return Drawn([first, second], groups, rewards, rewards, [True, False])


def advantages_of(samples: Sequence[Any]) -> list[float]:
    return [sample.columns["advantages"] for sample in samples]


def test_cut_samples_count_for_their_siblings_but_not_for_the_loss() -> None:
    trained, measured, _ = loop("grpo.advantage=centered").with_advantages(drawn_groups())
    assert advantages_of(trained) == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert [len(sample.response_ids) for sample in measured] == [2]  # one stands for the group without signal
    trained, measured, _ = loop("grpo.advantage=centered", "grpo.mask_truncated=true").with_advantages(drawn_groups())
    assert advantages_of(trained) == pytest.approx([2 / 3, -1 / 3])
    assert [len(sample.response_ids) for sample in measured] == [2, 4]  # and one for those that were cut of the other
    assert {frozenset(sample.columns) for sample in measured} == {frozenset(["engine_log_probs", "staleness"])}


def test_the_overlong_penalty_is_part_of_the_reward_but_not_of_the_signal() -> None:
    """The limit is 4 tokens: a penalty over two of them fines 3 tokens with 1/2 and 4 with 1."""
    words = ["grpo.advantage=centered", "grpo.overlong_penalty_tokens=2"]
    trained, measured, _ = loop(*words).with_advantages(drawn_groups())
    assert advantages_of(trained) == pytest.approx([1 + 1 / 6, -0.5 + 1 / 6, -1 + 1 / 6])
    assert len(measured) == 1


def test_the_kl_in_the_reward_is_each_samples_sum_before_the_group_is_compared() -> None:
    made = loop("grpo.advantage=centered", "grpo.kl=reward", "grpo.kl_coefficient=0.1", "grpo.kl_estimator=k1")
    asked: list[list[str]] = []

    def measure(kinds: list[str], samples: Sequence[Any]) -> dict[str, Any]:
        asked.append(kinds)
        return {
            kind: [np.full(len(s.response_ids), -0.5 if kind == "learner" else -0.7, np.float32) for s in samples]
            for kind in kinds
        }

    made.measure = measure
    trained, _, metrics = made.with_advantages(drawn_groups())
    rewards = [1.0 - 0.1 * 0.2 * 2, -0.1 * 0.2 * 3, -0.1 * 0.2 * 4]  # k1 is 0.2 a token
    assert advantages_of(trained) == pytest.approx([r - sum(rewards) / 3 for r in rewards], abs=1e-6)
    assert asked == [["learner", "reference"]]
    assert metrics["kl"] == pytest.approx(0.2, abs=1e-6)


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        (["grpo.kl_coefficient=0.1"], {"reference"}),
        (["grpo.kl_coefficient=0.1", "grpo.kl=none"], set()),
        (["grpo.kl=reward"], set()),
        (["train.epochs=2"], {"learner"}),
        (["grpo.kl_coefficient=0.1", "train.epochs=2"], {"learner", "reference"}),
    ],
)
def test_only_what_is_needed_is_measured(words: list[str], kinds: set[str]) -> None:
    made = loop(*words)
    asked: set[str] = set()

    def measure(wanted: list[str], samples: Sequence[Any]) -> dict[str, Any]:
        asked.update(wanted)
        return {kind: [np.zeros(len(s.response_ids), np.float32) for s in samples] for kind in wanted}

    made.measure = measure
    made.with_advantages(drawn_groups())
    assert asked == kinds
