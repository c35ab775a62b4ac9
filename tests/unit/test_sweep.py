"""Sweeps: which runs their words make, what is refused before anything is submitted, and which waits for which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rltui.cli.main import main
from rltui.cluster.profile import Profile
from rltui.errors import RltuiError, UsageError
from rltui.service.review import review_launch
from rltui.service.submit import Launched
from rltui.service.sweep import _new_sweep, submit_sweep
from rltui.service.sweep_points import NO_SWEEP, Sweep, points_of, read_sweep

LOCAL_PROFILE = Profile(name="local", scheduler="local")


def test_all_combinations_are_runs_with_names_that_tell_them_apart() -> None:
    points = points_of(["train.learning_rate=1e-6,3e-6", "train.seed=1, 2"])
    assert [point.settings for point in points] == [
        ("train.learning_rate=1e-6", "train.seed=1"),
        ("train.learning_rate=1e-6", "train.seed=2"),
        ("train.learning_rate=3e-6", "train.seed=1"),
        ("train.learning_rate=3e-6", "train.seed=2"),
    ]
    assert [point.suffix for point in points][:2] == ["learning_rate-1e-6-seed-1", "learning_rate-1e-6-seed-2"]


def test_a_sweep_as_it_is_typed() -> None:
    sweep = read_sweep("train.seed=1,2  'data.files=[a, b],[c]' --at-once 2")
    assert sweep.words == ("train.seed=1,2", "data.files=[a, b],[c]")
    assert sweep.at_once == 2
    assert read_sweep(str(sweep)) == sweep, "what is edited is what was typed"
    assert sweep.arguments[-2:] == ("--at-once", "2")
    assert read_sweep("") == read_sweep("--at-once 3") == NO_SWEEP
    for text in ("train.seed=1", "train.seed=1,2 --at-once", "train.seed=1,2 --at-once 0", "'"):
        with pytest.raises(UsageError):
            read_sweep(text)


def test_commas_within_a_value_do_not_part_it() -> None:
    points = points_of(["data.files=[a, b],[c]", "--lr='1,5',2"])
    assert [point.settings[0] for point in points] == ["data.files=[a, b]"] * 2 + ["data.files=[c]"] * 2
    assert points[0].settings[1] == "--lr='1,5'"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.seed=1"], "is no sweep"),
        (["train.seed"], "is no sweep"),
        (["=1,2"], "is no sweep"),
        (["train.seed=1,,2"], "is no sweep"),
        (["train.seed=1,2,"], "is no sweep"),
        (["data.files=[a],[b"], "is no sweep"),
        (["name=don't,do"], "is no sweep"),
        (["train.seed=1,1"], "a value twice"),
        (["train.seed=1,2", "train.seed=3,4"], "stands twice"),
        ([f"train.{name}={','.join(map(str, range(11)))}" for name in ("seed", "steps")], "121 runs"),
    ],
)
def test_what_is_no_sweep_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        points_of(words)


def _submitted(run_id: str, fails: bool = False) -> Any:
    def submit(*, after_job: str) -> Launched:
        if fails:
            raise RltuiError("Slurm refused it.")
        return Launched(run_id=run_id, attempt=1, job_id=f"{run_id}>{after_job}", cluster="lab", path="/runs")

    return submit


def test_a_run_waits_for_the_one_that_is_so_many_before_it() -> None:
    told: list[Launched] = []
    made = submit_sweep([_submitted(name) for name in "abcde"], 2, told.append)
    assert [one.job_id for one in made] == ["a>", "b>", "c>a>", "d>b>", "e>c>a>"]
    assert told == made
    assert [one.job_id for one in submit_sweep([_submitted(name) for name in "abc"], 0, told.append)] == [
        "a>",
        "b>",
        "c>",
    ]


def test_a_refusal_on_the_way_says_what_stays() -> None:
    with pytest.raises(RltuiError, match=r"Slurm refused it\. 1 of 3 runs were submitted before, and stay\."):
        submit_sweep([_submitted("a"), _submitted("b", fails=True), _submitted("c")], 0, lambda _: None)


def test_the_verb_shows_all_and_refuses_what_is_unsound_before_it_submits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, own_folders: Path
) -> None:
    sweep = ("launch", "local/grpo-tiny", "--sweep")
    assert main([*sweep, "train.seed=1,2", "--dry-run"]) == 0
    assert "2 runs of local/grpo-tiny on local" in capsys.readouterr().err
    assert main([*sweep, "train.steps=5,-1", "--yes"]) == 2
    assert "train.steps=-1: Not launched" in capsys.readouterr().err
    assert main([*sweep, "train.seed=1,2", "--at-once", "1", "--yes"]) == 2
    assert "has no Slurm" in capsys.readouterr().err
    assert main([*sweep, "train.seed=1,2", "--wait"]) == 2
    assert main(["launch", "local/grpo-tiny", "--at-once", "2"]) == 2
    assert main(["launch", "--sweep", "train.seed=1,2"]) == 2
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\npython train.py\n")
    assert main(["launch", str(script), "--gpus-per-node", "0", "--sweep", "lr=1,2", "--yes"]) == 2
    assert "does not hand its arguments on" in capsys.readouterr().err
    assert main(["ps", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["runs"]


def test_the_review_of_a_sweep_says_what_stands_in_the_way_of_which_run() -> None:
    review = review_launch(LOCAL_PROFILE, "local/grpo-tiny", (), sweep=Sweep(("train.steps=5,-1", "train.seed=1,2")))
    assert [settings for settings, error in review.swept if error] == [
        "train.steps=-1 train.seed=1",
        "train.steps=-1 train.seed=2",
    ]
    assert not review.can_launch
    assert review.first == ("train.steps=5", "train.seed=1")
    assert review.commands == ("rltui launch local/grpo-tiny --sweep train.steps=5,-1 --sweep train.seed=1,2",)
    limited = review_launch(LOCAL_PROFILE, "local/grpo-tiny", (), sweep=Sweep(("train.seed=1,2",), 1))
    assert "has no Slurm" in limited.findings[-1].message
    assert not limited.can_launch


def test_the_review_of_a_script_s_sweep(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\npython train.py\n")
    words = ("--gpus-per-node", "0")
    review = review_launch(LOCAL_PROFILE, str(script), words, sweep=Sweep(("lr=1,2",)))
    assert all("does not hand its arguments on" in error for _, error in review.swept)
    script.write_text('#!/bin/bash\npython train.py "$@"\n')
    review = review_launch(LOCAL_PROFILE, str(script), words, sweep=Sweep(("lr=1,2",)))
    assert [error for _, error in review.swept] == ["", ""]
    assert review.can_launch
    refused = review_launch(LOCAL_PROFILE, str(script), ("--nodes",), sweep=Sweep(("lr=1,2",)))
    assert not refused.can_launch


def test_no_two_of_many_sweeps_of_one_name_are_one() -> None:
    # of four hex digits a thousand draws have two that are equal, all but surely
    assert len({_new_sweep("grpo") for _ in range(1000)}) == 1000
