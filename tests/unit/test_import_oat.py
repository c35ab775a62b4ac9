"""What oat does where a command is silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.importers.read import import_text

COMMAND = "python train.py --collocate --vllm_sleep --critic_type drgrpo --gpus 8 --pretrain Qwen/Qwen2.5-Math-1.5B"


def test_a_silent_command_has_the_defaults_of_oat() -> None:
    found = import_text(f"{COMMAND}\n", Path("run.sh")).layout
    assert found is not None
    assert (found["train"]["prompts_per_step"], found["train"]["samples_per_prompt"]) == (128, 2)
    assert (found["lengths"]["prompt"], found["lengths"]["response"]) == (1024, 512)
    assert found["roles"]["learner"]["micro_batch"] == 1


@pytest.mark.parametrize(("flags", "held"), [("", False), (" --kl_penalty_coef 0.01", True)])
def test_a_penalty_in_the_reward_needs_a_reference_too(flags: str, held: bool) -> None:
    found = import_text(f"{COMMAND} --beta 0{flags}\n", Path("run.sh")).layout
    assert found is not None
    assert ("reference" in found["roles"]) is held
