"""Evaluations by themselves: pass@k against counting, when they are due, what is asked, and what is kept of them."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rltui.layout.load import load_text
from trainers.data.tasks import make_task
from trainers.data.tiny_qwen3 import TinySettings, _new_model
from trainers.evaluation import KEPT_ANSWERS, KEPT_FILES, Evaluation, budgets, measures, pass_at_k
from trainers.roles.completions import Completion

if TYPE_CHECKING:
    from trainers.data.codec import Codec
    from trainers.data.prompts import Prompt
    from trainers.roles.sampling import SamplingSettings

pytestmark = pytest.mark.trainers

ROOT = Path(__file__).parents[2]
TINY = (ROOT / "layouts/local/grpo-tiny.yaml").read_text()
SET = ["data.eval=builtin/sort-digits", "data.eval_every=50", "data.eval_prompts=10"]


def test_a_model_is_evaluated_by_itself(codec: Codec, tmp_path: Path) -> None:
    """The program: metrics as JSON alone on stdout; a model of random weights answers nothing right."""
    _new_model(TinySettings(digits=3, seed=1)).save_pretrained(codec.model_path)
    words = ["--model", codec.model_path, "--folder", str(tmp_path), *SET, "data.eval_samples=2"]
    done = subprocess.run(
        [sys.executable, "-m", "trainers.evaluate", str(ROOT / "layouts/local/grpo-tiny.yaml"), *words],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "2 samples a prompt at temperature 0 would all be the same one" in done.stderr
    done = subprocess.run(
        [*done.args, "data.eval_temperature=1.0"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert set(found) == {"eval/reward_mean", "eval/pass_at_1", "eval/pass_at_2", "eval/length_mean",
                          "eval/truncated_fraction", "time/evaluate"}  # fmt: skip
    assert found["eval/reward_mean"] < 0.1
    assert len((tmp_path / "evaluations/step-000000.jsonl").read_text().splitlines()) == 20


class Engine:
    """Answers every prompt with its digits as they stand; remembers with which settings it was asked."""

    def __init__(self) -> None:
        self.settings: list[SamplingSettings] = []

    def __call__(
        self, prompts: Sequence[Sequence[int]], settings: Callable[[int], SamplingSettings]
    ) -> list[list[Completion]]:
        self.settings.append(settings(0))
        return [
            [Completion(number, (*prompt[:-1], 2), (0.0,) * len(prompt), "stop", 0)] * settings(0).samples_per_prompt
            for number, prompt in enumerate(prompts)
        ]


def judge(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[list[float]]:
    """Right where the first answer's first digit is even; of two answers only the first."""
    return [[float(group[0].token_ids[0] % 2 == 0), 0.25][: len(group)] for group in groups]


def evaluation(codec: Codec, run: Path, *words: str, engine: Engine | None = None) -> Evaluation:
    layout = load_text(TINY, "tiny.yaml", [*SET, *words]).layout
    return Evaluation(layout, codec, engine or Engine(), judge, run)


@pytest.mark.parametrize("samples", [1, 2, 5, 8])
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(samples: int) -> None:
    for right, k in itertools.product(range(samples + 1), range(1, samples + 1)):
        draws = list(itertools.combinations([True] * right + [False] * (samples - right), k))
        assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)
    with pytest.raises(ValueError, match="pass@9 needs at least 9 answers"):
        pass_at_k(samples, 0, 9)


def test_pass_at_k_has_no_bias_where_the_plain_share_has() -> None:
    """10 answers a problem, each right with chance 0.3: pass@5 is 1 - 0.7^5, and 1 - (1 - c / n)^5 is not it."""
    source, true = random.Random(0), 1 - 0.7**5
    counts = [sum(source.random() < 0.3 for _ in range(10)) for _ in range(20_000)]
    assert sum(pass_at_k(10, c, 5) for c in counts) / len(counts) == pytest.approx(true, abs=0.005)
    assert abs(sum(1 - (1 - c / 10) ** 5 for c in counts) / len(counts) - true) > 0.02


@pytest.mark.parametrize(("samples", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_budgets(samples: int, expected: list[int]) -> None:
    assert budgets(samples) == expected


def test_measures_of_answers() -> None:
    groups = [[Completion(0, (1,) * n, (0.0,) * n, "stop" if n < 4 else "length", 0) for n in (1, 2, 3, 4)]] * 2
    found = measures(groups, [[1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.9]], passes=0.9)
    assert found == pytest.approx({
        "eval/reward_mean": 0.3, "eval/pass_at_1": 0.25, "eval/pass_at_2": 0.5, "eval/pass_at_4": 1.0,
        "eval/length_mean": 2.5, "eval/truncated_fraction": 0.25,
    })  # fmt: skip


def test_it_is_due_first_last_and_in_between(codec: Codec, tmp_path: Path) -> None:
    due = evaluation(codec, tmp_path, "train.steps=120").is_due
    assert [step for step in range(121) if due(step)] == [0, 50, 100, 120]
    none = evaluation(codec, tmp_path, "data.eval=").is_due
    never = evaluation(codec, tmp_path, "data.eval_every=0").is_due
    assert not any(none(step) or never(step) for step in (0, 50, 2000))


def test_one_that_a_stop_cut_off_is_missing_after_the_resume(codec: Codec, tmp_path: Path) -> None:
    found = evaluation(codec, tmp_path)
    assert found.is_missing(50)
    found.run(50)
    assert not found.is_missing(50)
    assert not evaluation(codec, tmp_path).is_missing(50)
    assert not found.is_missing(51)


def test_the_run_s_seed_has_no_part_in_what_is_asked(codec: Codec, tmp_path: Path) -> None:
    engines = Engine(), Engine()
    one, other = (
        evaluation(codec, tmp_path, f"train.seed={seed}", engine=engine) for seed, engine in enumerate(engines)
    )
    assert one.prompts == other.prompts
    trained = make_task(load_text(TINY, "tiny.yaml", SET).layout, codec).prompts(0, 10)
    assert one.prompts != trained
    first = one.run(0)
    assert {**one.run(50), "time/evaluate": 0} == {**first, "time/evaluate": 0} == {**other.run(0), "time/evaluate": 0}
    assert engines[0].settings[0] == engines[0].settings[1] == engines[1].settings[0]
    assert engines[0].settings[0].is_greedy


def test_all_rows_of_a_file_are_asked_once(codec: Codec, tmp_path: Path) -> None:
    rows = [f"data.eval={ROOT / 'tests/fixtures/data/sums.jsonl'}", "lengths.prompt=10", "data.eval_prompts=0"]
    found = evaluation(codec, tmp_path, *rows)
    assert (len(found.prompts), found.left_out) == (5, 1)
    assert len({prompt.text for prompt in found.prompts}) == 5
    assert len(evaluation(codec, tmp_path, *rows[:2], "data.eval_prompts=3").prompts) == 3
    assert len(evaluation(codec, tmp_path, *rows[:2], "data.eval_prompts=300").prompts) == 5
    assert len(evaluation(codec, tmp_path, "data.eval_prompts=0").prompts) == 64


def test_some_answers_are_kept_of_some_evaluations(codec: Codec, tmp_path: Path) -> None:
    words = ["data.eval_prompts=40", "data.eval_samples=2", "data.eval_temperature=1.0"]
    found = evaluation(codec, tmp_path, *words)
    for step in range(0, 50 * (KEPT_FILES + 3), 50):
        found.run(step)
    files = sorted((tmp_path / "evaluations").iterdir())
    assert [file.name for file in files] == [f"step-{step:06d}.jsonl" for step in range(150, 50 * (KEPT_FILES + 3), 50)]
    lines = [json.loads(line) for line in files[0].read_text().splitlines()]
    assert len(lines) == KEPT_ANSWERS
    assert [line["prompt"] for line in lines[:40]] == [prompt.text for prompt in found.prompts]
    first = found.prompts[0]
    assert lines[0] == {
        "step": 150, "prompt": first.text, "answer": first.text[:-1], "right_answer": first.answer, "tokens": 4,
        "finish_reason": "stop", "reward": float(codec.encode(first.text)[0] % 2 == 0),
    }  # fmt: skip
    assert lines[40]["prompt"] == first.text
    assert lines[40]["reward"] == 0.25
