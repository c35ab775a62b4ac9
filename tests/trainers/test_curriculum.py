"""A curriculum draws prompts by how they were solved, and after a resume the same ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trainers.checkpoint import TrainingState
from trainers.data.curriculum import Curriculum
from trainers.data.prompts import Prompt
from trainers.lookahead import Lookahead

pytestmark = pytest.mark.trainers

ROWS, STEPS, PROMPTS = 20, 30, 4


class Rows:
    """A task of ``ROWS`` prompts, again and again in the same order."""

    left_out, size = 0, ROWS

    def prompts(self, cursor: int, count: int) -> list[Prompt]:
        return [Prompt((place,), "", key=str(place % ROWS)) for place in range(cursor, cursor + count)]


def solved(prompt: Prompt) -> list[float]:
    """The first quarter of the rows is always solved, the last never, the others by half of the answers."""
    return {0: [1.0, 1.0], 3: [0.0, 0.2]}.get(4 * int(prompt.key) // ROWS, [1.0, 0.0])


class Run:
    """What the training loop does with prompts, on engines that answer at once."""

    def __init__(self, skip: float = 0.9, ahead: int = 0) -> None:
        self.curriculum = Curriculum(Rows(), skip, 1.0, seed=3)
        self.skipped: list[float] = []
        self.state, self.metrics = TrainingState(), dict[str, float]()
        settings: Any = str
        self.lookahead = Lookahead(self.curriculum, self, settings, PROMPTS, ahead, STEPS, as_asked=lambda one: one)

    def submit(self, prompts: list[Prompt], *_: Any) -> list[Prompt]:
        return prompts

    def collect(self, ticket: list[Prompt], check: Any) -> list[Any]:
        return [[] for _ in ticket]

    def generate(self, prompts: list[Prompt], *_: Any) -> list[Any]:
        return [[] for _ in prompts]

    def step(self) -> list[str]:
        number = self.state.step + 1
        prompts, _ = self.lookahead.collect(number, lambda: None)
        self.curriculum.note(prompts, [solved(one) for one in prompts])
        if number % 3 == 0:  # as active sampling does
            further, _ = self.lookahead.draw(number, PROMPTS, 2, lambda: None)
            self.curriculum.note(further, [solved(one) for one in further])
            prompts = [*prompts, *further]
        self.lookahead.prepare(number)
        state = msgspec.structs.replace(self.state.after_step(len(prompts), 0), ahead=self.lookahead.starts)
        self.state = msgspec.structs.replace(state, curriculum=self.curriculum.state(state.first_needed))
        self.metrics = self.curriculum.measures()
        self.skipped.append(self.metrics.get("curriculum/skipped_fraction", 0.0))
        return [one.key for one in prompts]


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_resumed_run_draws_what_the_lost_one_drew(ahead: int) -> None:
    whole = Run(ahead=ahead)
    drawn, saved = [], []
    for _ in range(STEPS):
        drawn.append(whole.step())
        saved.append(msgspec.json.encode(whole.state))
    for lost_after in range(1, STEPS):
        resumed = Run(ahead=ahead)
        resumed.state = msgspec.json.decode(saved[lost_after - 1], type=TrainingState)
        resumed.lookahead.resume(resumed.state.cursor, resumed.state.ahead)
        resumed.curriculum.resume(resumed.state.first_needed, resumed.state.curriculum)
        assert [resumed.step() for _ in range(lost_after, STEPS)] == drawn[lost_after:]


def test_prompts_that_taught_nothing_are_drawn_less_but_not_never() -> None:
    run, plain = Run(), Run(skip=0.0)
    drawn = [key for _ in range(STEPS) for key in run.step()]
    assert drawn[:ROWS] == [str(number) for number in range(ROWS)]  # nothing is known in the first epoch
    later = drawn[ROWS:]
    settled = [key for key in later if solved(Prompt((), "", key=key)) != [1.0, 0.0]]
    assert 0 < len(settled) < 0.25 * len(later)
    assert run.metrics["curriculum/settled_fraction"] == 0.5
    assert 0.2 < sum(run.skipped[10:]) / len(run.skipped[10:]) < 0.6
    assert [key for _ in range(STEPS) for key in plain.step()] == [str(n % ROWS) for n in range(STEPS * PROMPTS + 20)]
    assert plain.metrics == {}


def test_where_all_prompts_are_settled_they_are_drawn_all_the_same() -> None:
    curriculum = Curriculum(Rows(), 0.999, 1.0, seed=0)
    everything = curriculum.prompts(0, ROWS)
    curriculum.note(everything, [[1.0]] * ROWS)
    assert len(curriculum.prompts(ROWS, 3 * ROWS)) == 3 * ROWS


def test_a_checkpoint_from_before_curricula_goes_on_where_its_data_stood() -> None:
    curriculum = Curriculum(Rows(), 0.5, 1.0, seed=0)
    state = msgspec.json.decode(b'{"step": 1, "cursor": 6, "ahead": [4, 8]}', type=TrainingState)
    curriculum.resume(state.first_needed, state.curriculum)
    found = [one.token_ids[0] for first in (4, 8, 14) for one in curriculum.prompts(first, 4)]
    assert found == [4, 5, 6, 7, 8, 9, 10, 11, 14, 15, 16, 17]
