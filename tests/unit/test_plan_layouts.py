"""``rltui plan LAYOUT|SCRIPT``: what stands there, as it is, and other divisions of its GPUs."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from rltui.cli.main import main
from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.plan.of_layout import predict
from rltui.plan.rank import propose
from rltui.plan.request import Request

PRESET = "open-instruct/grpo-7b-2x4-tp1"
VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256 \\
    data.max_prompt_length=1024 data.max_response_length=4096 \\
    actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct actor_rollout_ref.model.use_remove_padding=True \\
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=16384 \\
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.n=8 trainer.n_gpus_per_node=8 trainer.nnodes=2
"""


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the verb says in JSON."""
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_preset_is_predicted_as_launch_predicts_it(capsys: pytest.CaptureFixture[str]) -> None:
    stands = answered(capsys, PRESET)["as_it_is"]
    assert stands["time"]["step_s"] == pytest.approx(predict(load_layout(resolve(PRESET)).layout).time.step_s)
    assert main(["plan", PRESET]) == 0
    out = capsys.readouterr().out
    assert out.startswith("as it is:\n")
    assert "TOKENS/S" in out, "other divisions follow"
    assert max(len(line) for line in out[: out.index("\nsave:")].splitlines()) <= 80


def test_shorter_responses_and_overrides_count(capsys: pytest.CaptureFixture[str]) -> None:
    plain, short, doubled = (
        answered(capsys, PRESET, *words)["as_it_is"]["time"]
        for words in ((), ("--response-mean", "500"), ("train.prompts_per_step=64",))
    )
    assert short["generate_s"] < plain["generate_s"] < doubled["generate_s"]


def test_a_script_of_another_system_is_planned_for_by_its_model_gpus_and_batch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(VERL)
    found = answered(capsys, str(script), "--gpu", "H100")
    assert found["as_it_is"]["time"]["train_s"] > 0
    for layout in (each["layout"] for each in found["proposals"]):
        hardware = layout["hardware"]
        assert layout["train"]["prompts_per_step"] == 256
        assert (hardware["nodes"], hardware["gpus_per_node"], hardware["gpu"]) == (2, 8, "H100-SXM-80GB")


@pytest.mark.parametrize("words", [["--model", "Qwen/Qwen3-8B"], ["--prompts", "8"], ["--algorithm", "ppo"]])
def test_what_a_layout_says_is_not_said_beside_it(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["plan", PRESET, *words]) == 2
    assert f"says what {words[0]} would" in capsys.readouterr().err


def test_divisions_differ_in_learners_and_do_not_leave_one_a_sample_short_for_little() -> None:
    model, gpu = find_model("Qwen/Qwen2.5-7B"), find_gpu("H100")
    assert model is not None
    assert gpu is not None
    wanted = Request(model_name=model.name, model=model, gpu=gpu, nodes=2, gpus_per_node=8, response_tokens=4096)
    three = propose(wanted, lambda *_: True)
    apart = [each.setup.learner.ranks for each in three if each.setup.placement == "apart"]
    assert len(three) == 3
    assert 8 in apart, "half and half, whatever is a little faster beside it"
    assert all(abs(one - other) >= 2 for one, other in combinations(apart, 2)), "of other widths is no other division"
