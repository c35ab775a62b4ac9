"""Several training sets in one run: which prompts are drawn, who judges the answers, and what is said of each set."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from rltui.layout.errors import LayoutError
from rltui.layout.load import load_layout
from rltui.layout.settings import MIXTURE_BLOCK, prompts_per_block
from rltui.runs.code_snapshot import own_code
from trainers.data.mixture import Mixture
from trainers.data.prompts import Prompt
from trainers.data.tasks import make_evaluation_task, make_task
from trainers.dry_run import arithmetic
from trainers.metrics import source_metrics
from trainers.rewards.answers import Answer
from trainers.rewards.composed import BySource, make_reward
from trainers.rewards.exact import Exact
from trainers.rewards.parts import SumOfParts, parts_of

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.data.codec import Codec

pytestmark = pytest.mark.trainers

ROOT = Path(__file__).parents[2]
SUMS = ROOT / "tests/fixtures/data/sums.jsonl"


def mixed(*sets: str, words: tuple[str, ...] = ()) -> Layout:
    """A layout that trains on sorting digits and on these sets."""
    path = ROOT / "layouts/local/grpo-tiny.yaml"
    return load_layout(path, [f"data.mixture=[{', '.join(sets)}]", "lengths.prompt=100", *words]).layout


def sums(weight: float = 1.0, name: str = "sums", more: str = "") -> str:
    return f"{{name: {name}, train: {SUMS}, weight: {weight}{more}}}"


def test_every_set_has_its_share_and_its_own_epochs(codec: Codec) -> None:
    found = make_task(mixed(sums(0.25)), codec).prompts(0, 2 * MIXTURE_BLOCK)
    assert Counter(prompt.source for prompt in found) == {"train": 1600, "sums": 400}
    assert 2 < sum(prompt.source == "sums" for prompt in found[:50]) < 25  # not one set after the other
    of_sums = [prompt.text for prompt in found if prompt.source == "sums"]
    epochs = [of_sums[first : first + 6] for first in range(0, 396, 6)]
    assert all(len({*epoch}) == 6 for epoch in epochs)
    alone = load_layout(ROOT / "layouts/local/grpo-tiny.yaml", ["lengths.prompt=100"]).layout
    first = [prompt.text for prompt in make_task(alone, codec).prompts(0, 1600)]
    assert [prompt.text for prompt in found if prompt.source == "train"] == first


@pytest.mark.parametrize("cursor", [0, 7, 995, 1000, 4321])
def test_a_resumed_run_draws_what_it_would_have_drawn(codec: Codec, cursor: int) -> None:
    layout = mixed(sums(0.3), sums(2.0, "more"))
    whole = make_task(layout, codec).prompts(0, cursor + 9)
    assert make_task(layout, codec).prompts(cursor, 9) == whole[cursor:]
    task = make_task(layout, codec)
    task.prompts(cursor + 2000, 3)  # what is drawn ahead changes nothing
    assert task.prompts(cursor, 9) == whole[cursor:]
    other = make_task(mixed(sums(0.3), sums(2.0, "more"), words=("train.seed=99",)), codec).prompts(0, 50)
    assert [prompt.source for prompt in other] != [prompt.source for prompt in make_task(layout, codec).prompts(0, 50)]


@pytest.mark.parametrize("weights", [[1.0], [1e-3, 7.0], [0.333, 0.333, 0.334], [3.7] * 7])
def test_shares_are_whole_prompts_nearest_to_the_weights(weights: list[float]) -> None:
    layout = mixed(*(sums(weight, f"set{number}") for number, weight in enumerate(weights)))
    counts = prompts_per_block(layout.data)
    assert sum(counts) == MIXTURE_BLOCK
    for count, weight in zip(counts, [1.0, *weights], strict=True):
        assert abs(count - MIXTURE_BLOCK * weight / (1 + sum(weights))) < 1


def test_a_set_has_an_end_only_where_all_have_and_none_is_never_drawn(codec: Codec) -> None:
    task = make_task(mixed(sums()), codec)
    assert (task.size, task.left_out) == (None, 0)
    files = mixed(sums(), words=(f"data.train={SUMS}",))
    assert make_task(files, codec).size == 12
    with pytest.raises(ValueError, match=r"weight of sums in data\.mixture is less than one prompt in 1000"):
        Mixture({"train": task, "sums": task}, [1000, 0], 0)


@pytest.mark.parametrize(
    ("more", "key", "words"),
    [
        ("weight: 0", "weight", "must be a number > 0.0, not 0"),
        ("weight: -1", "weight", "must be a number > 0.0, not -1"),
        (
            "reward: nobody",
            "reward",
            "must be one of exact, math, code, http, judge, reward_model, none, or",
        ),
        ("rewards: math", "rewards", "is not a key of this section"),
    ],
)
def test_wrong_weights_rewards_and_keys_are_told_with_their_place(more: str, key: str, words: str) -> None:
    with pytest.raises(LayoutError) as caught:
        mixed(sums(), f"{{name: other, train: {SUMS}, {more}}}")
    [problem] = caught.value.problems
    assert problem.key == f"data.mixture[1].{key}"
    assert problem.message.startswith(words)


def test_a_set_that_is_not_there_is_named_before_training(codec: Codec) -> None:
    with pytest.raises((ValueError, OSError), match=r"gone\.jsonl"):
        make_task(mixed("{name: gone, train: /nowhere/gone.jsonl}"), codec)


def test_answers_are_judged_by_the_reward_of_their_set() -> None:
    """An evaluation's prompts are of no set, and judged by the layout's reward."""
    reward = make_reward(mixed(sums(more=", reward: none")), lambda kind, text: None)
    answers = [Answer(Prompt((1,), "5", source=name), "5", True) for name in ("sums", "train", "", "sums")]
    assert reward.score(answers) == [0.0, 1.0, 1.0, 0.0]
    reward.close()


def test_a_reward_in_parts_beside_one_without_takes_nothing_from_it() -> None:
    """GDPO reads the parts of all: a reward without any, among such as have them, would count as 0."""

    class Own:
        def score(self, answers: Sequence[Answer]) -> list[float]:
            return [SumOfParts({"right": (0.5, 1.0), "short": (0.2, 1.0)}) for _ in answers]

        def close(self) -> None:
            pass

    answers = [Answer(Prompt((1,), "5", source=name), "5", True) for name in ("train", "sums")]
    found = BySource({"train": Exact(), "sums": Own()}, Exact()).score(answers)
    parts = {name: values.tolist() for name, (values, _) in parts_of(found, torch.Size([2, 1])).items()}
    assert found == [1.0, 0.7]
    assert parts == {"answer": [[1.0], [0.0]], "right": [[0.0], [0.5]], "short": [[0.0], [pytest.approx(0.2)]]}


def test_keys_of_a_set_are_its_own_and_others_are_those_of_the_data(codec: Codec, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"question": "1+1=", "gold": "2", "answer": "no"}) + "\n")
    task = make_task(mixed(f"{{name: own, train: {file}, answer_key: gold}}"), codec)
    own = next(prompt for prompt in task.prompts(0, 50) if prompt.source == "own")
    assert (own.text, own.answer) == ("1+1=", "2")
    layout = mixed(f"{{name: own, train: {file}, answer_key: gold}}", words=(f"data.eval={SUMS}",))
    assert {prompt.source for prompt in make_evaluation_task(layout, codec).prompts(0, 6)} == {""}


def test_metrics_tell_the_sets_apart() -> None:
    prompts = [Prompt((1,), "", source=name) for name in ("train", "sums", "sums")]
    assert source_metrics(prompts, [[1.0, 0.5], [0.0, 1.0], [1.0, 1.0]], 1.0) == {
        "reward/sums": 0.75, "solve_rate/sums": 0.75, "reward/train": 0.75, "solve_rate/train": 0.5,
    }  # fmt: skip
    assert source_metrics([Prompt((1,), "")], [[1.0]], 1.0) == {}


def test_a_dry_run_says_what_each_set_gets() -> None:
    assert "mixture      of each 1000 prompts train 800, sums 200" in arithmetic(mixed(sums(0.25)))


def test_the_reward_of_a_set_has_its_code_carried_along_and_its_workers_started(tmp_path: Path) -> None:
    (tmp_path / "graders.py").write_text("def grade(*_): return 1\n")
    words = ("data.reward=http", "roles.reward={workers: 2}")
    layout = mixed(sums(more=", reward: 'graders:grade'"), words=words)
    assert b"graders.py" in (own_code(layout, tmp_path) or b"")
    assert layout.num_reward_workers == 2
    assert mixed(sums(more=", reward: http"), words=words).num_reward_workers == 0
