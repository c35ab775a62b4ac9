"""What a language model is asked about an answer, and how its verdict is read."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from rltui.layout.grading import Judging
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.data.prompts import Prompt
from trainers.data.tiny_qwen3 import VOCABULARY, new_tokenizer
from trainers.rewards.answers import Answer
from trainers.rewards.model_judge import ModelJudge
from trainers.rewards.own import Own
from trainers.rewards.verdicts import filled, question_of, reward_of_verdict

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers

SUM = Prompt((1,), "42", "<|user|>6*7", messages=({"role": "user", "content": "6*7 = {answer}?"},), is_chat=True)
SAID = Answer(SUM, "It is {reference}.", True)


def test_places_are_filled_once_and_other_braces_stay() -> None:
    template = 'Q: {question} R: {reference} A: {answer} as {"score": 1} or {grade}'
    assert filled(template, SAID) == 'Q: 6*7 = {answer}? R: 42 A: It is {reference}. as {"score": 1} or {grade}'


def test_the_question_is_what_was_asked_without_the_policys_own_words() -> None:
    assert question_of(SUM) == "6*7 = {answer}?"
    assert question_of(Prompt((1,), "", "plain")) == "plain"
    parts = [{"type": "image"}, {"type": "text", "text": "What is it?"}]
    said = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": parts})
    assert question_of(Prompt((1,), "", "", messages=said)) == "system: Be brief.\n\nuser: What is it?"


def test_the_judges_chat_template_gets_its_variables(tmp_path: Path) -> None:
    tokenizer = new_tokenizer(VOCABULARY, 512)
    tokenizer.chat_template = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}{{ enable_thinking }}"
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 2}')
    renderer = Renderer(Codec(str(tmp_path)), True, "Be strict.", options={"enable_thinking": False})
    assert renderer.text("Right?") == "system:Be strict.;user:Right?;False"


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("Score: 7", 0.7),
        ("A score of 3 would be harsh.\nScore: **8.5**", 0.85),
        ("<think>score: 2?</think>Score: 10/10", 1.0),
        ("Score: 11", None),
        ("Score: none", None),
        ("7", None),
        ("", None),
    ],
)
def test_a_number_is_the_last_that_the_pattern_finds(verdict: str, expected: float | None) -> None:
    assert reward_of_verdict(verdict, Judging()) == expected


def test_a_scale_may_run_the_other_way_and_a_pattern_may_find_no_number() -> None:
    assert reward_of_verdict("errors: 1", Judging(pattern=r"errors: (\w+)", lowest=4, highest=0)) == 0.75
    assert reward_of_verdict("errors: many", Judging(pattern=r"errors: (\w+)", lowest=4, highest=0)) is None
    assert reward_of_verdict("score 3 of 4", Judging(pattern=r"score (\d) of (\d)", highest=4)) == 0.75


def test_the_last_whole_word_of_the_choices_counts() -> None:
    settings = Judging(
        verdict="choice", choices={"CORRECT": 1.0, "INCORRECT": 0.0, "CORRECT, BUT RUDE": 0.5, "[[A]]": 2.0}
    )
    assert reward_of_verdict("INCORRECT", settings) == 0.0
    assert reward_of_verdict("Not INCORRECT at all: CORRECT", settings) == 1.0
    assert reward_of_verdict("CORRECT, BUT RUDE.", settings) == 0.5
    assert reward_of_verdict("[[A]]", settings) == 2.0
    assert reward_of_verdict("correct", settings) is None


class StandIn:
    """Judges without engines: they say what is asked of them, backwards."""

    def __init__(self, settings: Judging | None = None, barrier: threading.Barrier | None = None) -> None:
        self.settings, self.reasons, self._barrier = settings, list[str](), barrier

    def verdicts(self, prompts: Sequence[Any], max_tokens: int = 0) -> list[str | None]:
        if self._barrier is not None:
            self._barrier.wait(30)
        if not all(isinstance(prompt, str) for prompt in prompts):
            raise ValueError("no chat template")
        return [None if len(prompt) > (max_tokens or 20) else prompt[::-1] for prompt in prompts]

    def likelihoods(self, pairs: Sequence[tuple[Any, str]]) -> list[float | None]:
        return [math.exp(-len(said)) if said else None for _, said in pairs]

    def failed(self, why: str) -> float:
        self.reasons.append(why)
        return -1.0


def answers(*texts: str) -> list[Answer]:
    return [Answer(Prompt((1,), "42", "6*7"), text, True) for text in texts]


def test_an_answer_without_a_verdict_costs_itself_only() -> None:
    judges = StandIn(Judging(prompt="{answer} :erocS", failed=-1.0))
    reward = ModelJudge(judges)  # type: ignore[arg-type]
    assert reward.score(answers("7", "x" * 30, "3", "?")) == [0.7, -1.0, 0.3, -1.0]
    assert ["max_tokens" in why for why in judges.reasons] == [True, False]
    judges = StandIn(Judging(prompt="{question}", verdict="likelihood", continuation="{answer}"))
    likely = ModelJudge(judges)  # type: ignore[arg-type]
    assert likely.score(answers("42", "", "1")) == pytest.approx([math.exp(-2), -1.0, math.exp(-1)])


GRADERS = """
def grade(prompt, response, answer, row, judge):
    if response == "messages":
        return len(judge.ask([{"role": "user", "content": prompt}]))
    said = judge.ask(response, max_tokens=9)
    return {"said": -2.0 if said is None else float(said), "likely": judge.likelihood(prompt, response)}
"""


def own_reward(folder: Path, monkeypatch: pytest.MonkeyPatch, events: list[str], judges: StandIn | None) -> Own:
    (folder / "graders.py").write_text(GRADERS)
    monkeypatch.setenv("PYTHONPATH", f"{folder}:{__file__.rpartition('/tests/')[0]}")
    return Own("graders:grade", 4, 5.0, lambda _, text: events.append(text), judges)  # type: ignore[arg-type]


def test_a_function_of_ones_own_asks_the_judge_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    reward = own_reward(tmp_path, monkeypatch, events, StandIn(barrier=threading.Barrier(4)))
    found = reward.score(answers("12", "x" * 10, "messages", "34"))
    reward.close()
    likely = [math.exp(-2), math.exp(-10), 0.0, math.exp(-2)]
    assert found == pytest.approx([21 + likely[0], -2 + likely[1], 0.0, 43 + likely[3]])
    assert events == ["the reward graders:grade failed, and such answers earn 0: ValueError: no chat template"]


def test_a_function_that_wants_a_judge_is_refused_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"has an argument 'judge', and there is no roles\.judge here"):
        own_reward(tmp_path, monkeypatch, [], None)
