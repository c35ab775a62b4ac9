"""``rltui plan`` of what stands already: its own time beside the proposals', and the overrides that divide it so."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from msgspec import structs

from rltui.check.run import check_file
from rltui.cli.main import main
from rltui.errors import RltuiError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.layout.roles import Pool
from rltui.plan.of_layout import predict
from rltui.plan.standing import changes, divided_like

SPLIT = "tests/fixtures/import/verl_split.sh"
PRESETS = ("open-instruct/grpo-7b-2x4-uneven", "verl-ppo/ppo-1x4-split", "opd/text-8")


@pytest.mark.parametrize("preset", PRESETS)
def test_the_overrides_divide_a_layout_as_the_proposal_does(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", preset, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    own = load_layout(resolve(preset)).layout
    assert told["now"]["step_s"] == pytest.approx(predict(own).time.step_s, rel=1e-6)
    for proposal in told["proposals"]:
        changed = load_layout(resolve(preset), proposal["changes"]).layout
        assert changed.data == own.data
        assert changed.train == own.train
        assert changed.slots_of("learner") == sum(proposal["learner_gpus"])
        assert changed.num_engines == proposal["engines"]
        assert changed.roles.rollout.tensor_parallel == proposal["tensor_parallel"]
        assert predict(changed).time.step_s == pytest.approx(proposal["time"]["step_s"], rel=1e-6)


def test_what_is_printed_can_be_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", PRESETS[1], "train.prompts_per_step=128"]) == 0
    out = capsys.readouterr().out
    assert "\nnow  split" in out
    assert "\nnow: verl-ppo/ppo-1x4-split as it stands; #1 makes " in out
    words = shlex.split(out.splitlines()[-1])
    assert words[:5] == ["#1:", "rltui", "launch", PRESETS[1], "train.prompts_per_step=128"]
    assert main(["check", *words[3:]]) == 0


def test_pools_are_named_all_at_once() -> None:
    own = load_layout(resolve("verl-ppo/ppo-1x4-split")).layout
    other = load_layout(resolve("verl-ppo/ppo-1x4-standard")).layout
    words = changes(own, divided_like(own, other))
    assert [word for word in words if word.startswith("pools")] == ["pools={all: {gpus: [4]}}"]
    assert load_layout(resolve("verl-ppo/ppo-1x4-split"), words).layout == divided_like(own, other)


def test_pools_of_one_size_stay_two() -> None:
    own = load_layout(resolve("verl-ppo/ppo-1x4-split")).layout
    assert divided_like(own, own) == own
    swapped = structs.replace(own, pools={"policy": Pool(gpus=[1]), "value": Pool(gpus=[2])})
    shifted = divided_like(structs.replace(own, pools={"value": Pool(gpus=[1]), "x": Pool(gpus=[3])}), swapped)
    assert sorted(pool.gpus for pool in shifted.pools.values()) == [[1], [2]]


def test_the_last_micro_batch_has_what_is_left_and_0_is_all_at_once() -> None:
    preset, key = resolve("open-instruct/grpo-7b-1x4-even"), "roles.learner.micro_batch"
    seconds = {size: predict(load_layout(preset, [f"{key}={size}"]).layout).time.train_s for size in (0, 1, 64, 256)}
    assert seconds[64] <= seconds[1]
    assert seconds[0] == seconds[256]


def test_what_has_no_gpus_is_not_timed() -> None:
    preset = resolve("open-instruct/grpo-7b-1x4-even")
    for word in ("roles.learner.pool=x", "roles.learner.gpus=[]", "roles.rollout.engines=0", "roles.critic={pool: x}"):
        with pytest.raises(RltuiError, match="no GPUs"):
            predict(load_layout(preset, [word]).layout)


def test_a_script_is_timed_and_cannot_be_changed_by_overrides(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["plan", SPLIT, "--gpu", "H100"]) == 0
    out = capsys.readouterr().out
    assert "\nnow  split" in out
    assert "  roles.rollout.tensor_parallel: 2 → 4 (actor_rollout_ref.rollout.tensor_model_parallel_size=4)\n" in out
    assert "rltui launch" not in out
    assert main(["plan", SPLIT, "--gpu", "H100", "--save", str(tmp_path)]) == 0
    assert [check_file(path).ok for path in tmp_path.iterdir()] == [True, True]


def test_on_other_gpus_nothing_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", PRESETS[0], "--gpus", "1x8xH200", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["now"] is None
    assert told["not_compared"] == "other GPUs than its own were asked for"
    assert {"hardware.nodes=1", "hardware.gpus_per_node=8", "hardware.gpu=H200-SXM-141GB"} <= set(
        told["proposals"][0]["changes"]
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Name a model and GPUs, or what stands already"),
        (["--model", "Qwen/Qwen3-8B"], "Name a model and GPUs"),
        ([PRESETS[0], "--prompts", "3"], "train.prompts_per_step=…"),
        ([PRESETS[0], "--run", "grpo-1"], "not both"),
        ([PRESETS[0], "--response-mean", "9000"], "--response-mean must be between 1 and the longest response (8192"),
        ([PRESETS[0], "--count", "0"], "--count must be between"),
        ([PRESETS[0], "train.prompt=3"], "train.prompt"),
    ],
)
def test_words_that_are_not_understood(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["local/grpo-tiny"], "cpu is no card"),
        ([PRESETS[0], "roles.learner.lora_rank=8"], "adapters"),
        ([PRESETS[0], "roles.judge.model=Qwen/Qwen3-8B", "data.reward=judge"], "how long a judge thinks"),
    ],
)
def test_what_plan_knows_no_division_of_is_said(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) != 0
    assert said in capsys.readouterr().err


UNNAMED = "tests/fixtures/import/verl_tight.sh"


def test_a_card_that_a_script_does_not_name_is_that_of_the_gpus_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", UNNAMED]) == 1
    assert "--gpus 2x8xH100" in capsys.readouterr().err
    assert main(["plan", UNNAMED, "--gpus", "2x4xH100"]) == 0
    assert "\nnow  2×4" in capsys.readouterr().out, "these are its own GPUs"
    assert main(["plan", UNNAMED, "--gpus", "2x8xH100"]) == 0
    assert "is not compared" in capsys.readouterr().out


def test_no_proposal_is_nearer_to_a_full_card_than_what_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", UNNAMED, "--gpu", "H100", "--json"]) == 0
    assert "M302" not in capsys.readouterr().out
    assert main(["plan", UNNAMED, "--gpu", "H100"]) == 0
    assert "M302" not in capsys.readouterr().out
