"""What is shown as one line, and what is not."""

from __future__ import annotations

import pytest

from rltui.watch.log_folds import fold


def shown(*lines: str) -> list[str]:
    return [one.shown for one in fold(lines)]


def test_a_message_repeated_but_for_its_time() -> None:
    lines = [f"2026-01-01 08:00:0{number} WARNING queue is full" for number in range(4)]
    assert shown(*lines, "other") == [f"{lines[0]}  [×4]", "other"]
    assert shown("a", "b", "a") == ["a", "b", "a"]  # what came between would be out of order
    assert shown("", "", "") == ["", "", ""]


@pytest.mark.parametrize(
    "bar",
    [
        "Training: {0:>3}%|{1:<10}| {0}/100 [00:0{0}<00:09, 1.0{0}it/s]",
        "Loading safetensors: {0} of 9 {1:━<10} 1{0} MB/s",
    ],
)
def test_a_progress_bar_is_its_last_state(bar: str) -> None:
    lines = [bar.format(number, "█" * number) for number in range(1, 6)]
    assert shown(*lines) == [f"{lines[-1]}  [×5]"]


def test_numbers_of_other_lines_count() -> None:
    assert len(shown("step 1 reward 0.1", "step 2 reward 0.2")) == 2


@pytest.mark.parametrize(
    ("form", "end"),
    [
        ("[rank{0}]: W0101 08:00:00.{0} ProcessGroupNCCL.cpp:1 heartbeat", "[×64 ranks]"),
        ("(Learner pid=1{0}) 08:00:{0:02} rank={0} ready", "[×64 ranks]"),
        ("(EngineCore pid=1{0}) ready", "[×64 processes]"),
        ("[n{0}:node-n{0}] 2026-01-01 08:00:00,{0:03} ready", "[×64 processes]"),
    ],
)
def test_one_message_of_many_ranks(form: str, end: str) -> None:
    ranks = [form.format(number) for number in range(64)]
    assert shown(*ranks) == [f"{ranks[0]}  {end}"]
    twice = [line for rank in ranks for line in (rank, rank.replace("heartbeat", "ready") + "!")]
    assert len(shown(*twice)) == 2  # each rank says both before the next does
    again = fold([*ranks, *(f"other {number}" for number in range(200)), *ranks])
    assert [one.first for one in again if one.count > 1] == [0, 264]


def test_the_same_rank_again_after_something_else_is_a_line_of_its_own() -> None:
    assert len(shown("[rank0]: a", "[rank1]: a", "[rank0]: b", "[rank0]: a")) == 3
