"""The phases of a step: their times add up to what was spent, and the wait for prompts is one of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from trainers import loop as loop_module
from trainers import phases as phases_module
from trainers.grpo import Grpo
from trainers.lookahead import Lookahead
from trainers.phases import Phases

pytestmark = pytest.mark.trainers


class Clock:
    """A clock that goes on only when it is told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (phases_module, loop_module):
        monkeypatch.setattr(module, "time", made)
    return made


def test_what_is_spent_in_a_phase_within_another_is_the_inner_ones(clock: Clock) -> None:
    shown: list[str] = []
    phases = Phases(SimpleNamespace(enter=shown.append))
    with phases.phase("generate"):
        clock.now += 3.0
        with phases.phase("data"):
            clock.now += 5.0
        clock.now += 1.0
    with phases.phase("data"):
        clock.now += 0.5
    assert shown == ["generate", "data", "generate", "data"]
    assert phases.take() == {"generate": 4.0, "data": 5.5}
    assert phases.take() == {}


@pytest.mark.parametrize(
    ("trained_s", "waited_s"),
    [
        (30.0, 0.0),  # prompts are there before the learners are done
        (2.0, 5.0),
    ],
)
def test_prompts_read_while_learners_train_are_waited_for_as_far_as_it_takes_longer(
    clock: Clock, trained_s: float, waited_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Any = object.__new__(Grpo)
    made.phases, made.lookahead, made.fleet, made.layout = Phases(MagicMock()), MagicMock(), MagicMock(), MagicMock()
    for name in ("packing_efficiency", "merge", "check_numbers"):
        monkeypatch.setattr(loop_module, name, lambda *_, **__: {})
    made.shards = lambda *_: []
    began = clock.now

    def read(_: int) -> None:
        clock.now += 7.0

    def finish(*_: Any) -> list[Any]:
        clock.now = max(clock.now, began + trained_s)
        return [SimpleNamespace(began_at=50.0, ended_at=50.0 + trained_s, memory_gib=1.0)]

    made.lookahead.prepare, made.fleet.finish = read, finish
    with made.phase("train"):
        made.optimize(1, [])
    assert made.phases.take() == {"train": trained_s, "data": waited_s}


def test_a_step_waits_for_prompts_that_nobody_prepared(clock: Clock) -> None:
    phases = Phases(MagicMock())

    def read(_: int, count: int) -> list[Any]:
        clock.now += 4.0
        return [MagicMock()] * count

    task, rollouts = SimpleNamespace(prompts=read), MagicMock()
    made = Lookahead(task, rollouts, lambda _: MagicMock(), 2, 0, 9, lambda: phases.phase("data"))
    with phases.phase("generate"):
        made.collect(1, lambda: None)
    made.prepare(1)
    with phases.phase("generate"):
        made.collect(2, lambda: None)
        made.draw(2, 2, 1, lambda: None)
    assert phases.take() == {"generate": 0.0, "data": 8.0}
