"""Who shares cards with whom, and what follows: who works at the same time, and when engines get the next prompts."""

from __future__ import annotations

import pytest
from trainer_support import ROOT

from rltui.layout.load import load_layout
from trainers.colocation import are_apart, begins_early, concurrent

pytestmark = pytest.mark.trainers


@pytest.mark.parametrize(
    ("preset", "words", "apart", "early"),
    [
        ("local/grpo-tiny", (), True, True),
        ("local/ppo-tiny", (), False, False),  # the learners have the cards until the step is over
        ("local/opd-tiny", (), True, True),
        ("local/opd-tiny", ("opd.on_policy_fraction=0.5",), True, False),  # a coin says whether engines answer at all
        ("local/grpo-tiny", ("train.async_steps=1",), True, True),
    ],
)
def test_engines_begin_early_where_they_have_cards_and_know_that_they_answer(
    preset: str, words: tuple[str, ...], apart: bool, early: bool
) -> None:
    found = load_layout(ROOT / "layouts" / f"{preset}.yaml", words).layout
    assert (are_apart(found), begins_early(found)) == (apart, early)


@pytest.mark.parametrize(
    ("preset", "rounds"),
    [
        ("local/ppo-tiny", [["learner", "critic"]]),
        ("verl-ppo/ppo-1x4-standard", [["learner"], ["critic"]]),  # their activations must never meet on a card
    ],
)
def test_roles_on_the_same_cards_take_turns_and_others_work_together(preset: str, rounds: list[list[str]]) -> None:
    assert concurrent(load_layout(ROOT / "layouts" / f"{preset}.yaml").layout, ["learner", "critic"]) == rounds
