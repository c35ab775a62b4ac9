"""What is begun on answers as they come: in its place, once, and with what went wrong."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.data.prompts import Prompt
from trainers.prefetch import Prefetch
from trainers.roles.completions import Completion, grouped
from waiting import DEADLINE_S

pytestmark = pytest.mark.trainers


def prompts_of(count: int) -> list[Prompt]:
    return [Prompt(token_ids=(number,), text="", answer="") for number in range(count)]


def answers_to(count: int) -> list[Completion]:
    """Two answers to each prompt of a call, told apart by their tokens."""
    return [Completion(index, (sample,), (-0.1,), "stop", 0) for index in range(count) for sample in (0, 1)]


def judge(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
    """A reward that tells which prompt and which answer it is of."""
    return [
        [10.0 * prompt.token_ids[0] + one.token_ids[0] for one in group]
        for prompt, group in zip(prompts, groups, strict=True)
    ]


@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6), seed=st.integers(0, 10**6))
def test_parts_are_in_the_order_of_the_prompts_however_answers_come(sizes: list[int], seed: int) -> None:
    early, prompts = Prefetch(judge), prompts_of(sum(sizes))
    on_answer = early.expect(prompts)
    chunks = [(sum(sizes[:number]), size) for number, size in enumerate(sizes)]
    random.Random(seed).shuffle(chunks)
    for first, size in chunks:
        on_answer(first, size, answers_to(size))
    whole = judge(prompts, grouped(answers_to(sum(sizes)), sum(sizes)))
    assert [rewards for part in early.take(prompts) or [] for rewards in part] == whole
    assert early.take(prompts) is None  # they were taken
    early.close()


def test_of_prompts_that_were_not_expected_there_is_nothing() -> None:
    early = Prefetch(judge)
    early.expect(prompts_of(2))
    assert early.take(prompts_of(2)) is None
    early.close()


def test_steps_that_are_under_way_at_once_keep_apart() -> None:
    early, first, second = Prefetch(judge), prompts_of(1), prompts_of(1)
    for prompts, token in ((first, 3), (second, 7)):
        early.expect(prompts)(0, 1, [Completion(0, (token,), (-0.1,), "stop", 0)])
    assert early.take(second) == [[[7.0]]]
    assert early.take(first) == [[[3.0]]]
    early.close()


def test_what_the_work_raises_is_raised_where_it_is_taken() -> None:
    def broken(*_: Any) -> list[list[float]]:
        raise ValueError("no such judge")

    early, prompts = Prefetch(broken), prompts_of(1)
    early.expect(prompts)(0, 1, answers_to(1))
    with pytest.raises(ValueError, match="no such judge"):
        early.take(prompts)
    early.close()


def test_work_that_cannot_begin_is_told_and_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    early, prompts = Prefetch(judge), prompts_of(2)
    on_answer = early.expect(prompts)
    on_answer(0, 1, answers_to(1))

    def refused(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(early._threads, "submit", refused)
    on_answer(1, 1, answers_to(1))
    with pytest.raises(RuntimeError, match="can't start new thread"):
        early.take(prompts)
    early.close()


def test_whoever_brings_answers_does_not_wait_for_the_work() -> None:
    may_end = threading.Event()

    def slow(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
        assert may_end.wait(DEADLINE_S)
        return judge(prompts, groups)

    early, prompts = Prefetch(slow), prompts_of(2)
    on_answer = early.expect(prompts)
    on_answer(0, 1, answers_to(1))
    on_answer(1, 1, answers_to(1))
    may_end.set()
    assert early.take(prompts) == [[[0.0, 1.0]], [[10.0, 11.0]]]
    early.close()


def test_answers_after_the_end_are_dropped() -> None:
    early, prompts = Prefetch(judge), prompts_of(1)
    on_answer = early.expect(prompts)
    early.close()
    on_answer(0, 1, answers_to(1))
