"""What ms-swift does where a command is silent, and the words that only it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rltui.check.script import check_script_text
from rltui.importers.read import import_text

GRPO = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --use_vllm true --vllm_mode colocate "


def layout(text: str, name: str = "run.sh") -> dict[str, Any]:
    """The layout of a script, by dotted key."""
    found = import_text(text, Path(name)).layout
    assert found is not None
    return flat(found)


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted key."""
    found = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def test_a_silent_command_has_the_defaults_of_ms_swift() -> None:
    found = layout(GRPO + "--tuner_type full --per_device_train_batch_size 4 --gradient_accumulation_steps 2\n")
    assert found["train.samples_per_prompt"] == 8
    assert found["train.prompts_per_step"] == 8
    assert found["train.temperature"] == 0.9
    assert found["train.learning_rate"] == 1e-5
    assert found["lengths.response"] == 512
    assert found["grpo.kl_coefficient"] == 0.04
    assert found["roles.rollout.sleep_while_training"] is False


@pytest.mark.parametrize(
    ("flags", "prompts", "steps"),
    [
        ("--steps_per_generation 4 --gradient_accumulation_steps 2", 16, 2),
        ("--generation_batch_size 256 --gradient_accumulation_steps 2", 32, 4),
        ("--gradient_accumulation_steps 2", 8, None),
    ],
)
def test_prompts_are_those_of_a_generation(flags: str, prompts: int, steps: int | None) -> None:
    found = layout(f"{GRPO}--per_device_train_batch_size 4 {flags}\n")
    assert (found["train.prompts_per_step"], found.get("train.optimizer_steps")) == (prompts, steps)


def test_passes_that_nothing_says_differ_between_versions() -> None:
    assert "train.prompts_per_step" in layout(GRPO + "--per_device_train_batch_size 4\n")["unsure"]


def test_megatron_counts_samples_of_all_processes() -> None:
    command = GRPO.replace("swift rlhf", "megatron rlhf")
    found = layout(f"{command}--global_batch_size 64 --steps_per_generation 2 --num_generations 16 --train_iters 70\n")
    assert (found["train.prompts_per_step"], found["train.optimizer_steps"], found["train.steps"]) == (8, 2, 70)


@pytest.mark.parametrize("flag", ["max_new_tokens", "response_length"])
def test_the_older_names_of_the_longest_response(flag: str) -> None:
    assert layout(f"{GRPO}--{flag} 700 --max_completion_length 300\n")["lengths.response"] == 700


def test_ppo_has_a_critic_and_a_reference_on_the_trainers_gpus() -> None:
    found = layout("NPROC_PER_NODE=8 swift rlhf --rlhf_type ppo --tuner_type full --model m --reward_model r\n")
    assert found["roles.critic.pool"] == found["roles.reference.pool"] == "shared"
    assert (found["roles.rollout.engine"], found["train.samples_per_prompt"]) == ("hf", 1)


def test_distillation_has_no_reference_and_its_teacher_may_leave_the_card() -> None:
    found = layout(GRPO.replace("grpo", "gkd") + "--beta 0.5 --teacher_model Qwen/Qwen3-32B --tuner_type full\n")
    assert found["algorithm"] == "opd"
    assert "roles.reference.pool" not in found
    assert "roles.teacher" in found["unsure"]


@pytest.mark.parametrize(("rewards", "algorithm"), [("", "opd"), ("--reward_funcs accuracy", "grpo")])
def test_grpo_with_a_teacher_and_no_reward_learns_from_the_teacher(rewards: str, algorithm: str) -> None:
    assert layout(f"{GRPO}--teacher_model Qwen/Qwen3-32B {rewards}\n")["algorithm"] == algorithm


@pytest.mark.parametrize("before", ["", "NPROC_PER_NODE=2 "])
def test_the_file_may_set_variables_that_the_environment_does_not(tmp_path: Path, before: str) -> None:
    (tmp_path / "run.yaml").write_text("ENV:\n  NPROC_PER_NODE: 4\nrlhf_type: grpo\nmodel: m\nuse_vllm: false\n")
    found = import_text(f"{before}swift rlhf run.yaml\n", tmp_path / "run.sh")
    assert found.trainer_gpus == (2 if before else 4)


def test_ray_counts_the_nodes_of_its_file() -> None:
    text = "rlhf_type: grpo\nmodel: m\nnnodes: 2\ntrain: {gpus: 8}\nrollout: {gpus: 8}\n"
    found = layout(text + "colocate_groups: [[train, rollout]]\n", "run.yaml")
    assert (found["hardware.nodes"], found["hardware.gpus_per_node"]) == (2, 4)


def test_adapters_need_no_reference_for_their_penalty() -> None:
    """The reference is the model without them; of TRL, too."""
    lengths = "--max_prompt_length 512 --max_completion_length 512 --per_device_train_batch_size 4"
    trl = f"accelerate launch --num_processes 8 train_grpo.py --model_name_or_path m --num_generations 8 {lengths}"
    for command in (f"{trl} --use_vllm true --vllm_mode colocate --beta 0.04 --lora_r 16", f"{GRPO}--beta 0.04"):
        assert "B220" not in [found.code for found in check_script_text(f"{command}\n", Path("run.sh")).findings]


def test_samples_of_a_prompt_are_spread_over_the_engines() -> None:
    command = f"{GRPO}--per_device_train_batch_size 1 --gradient_accumulation_steps 1\n"
    assert "B206" not in [found.code for found in check_script_text(command, Path("run.sh")).findings]


def test_torchrun_counts_the_processes_that_share_the_engines_gpus() -> None:
    """Several visible GPUs are spread over one process only where nothing starts more (F355, F366)."""
    flags = "--rlhf_type grpo --model m --use_vllm true --vllm_mode colocate --deepspeed zero2"
    for start, codes in (
        ("torchrun --nproc_per_node 4 swift/cli/rlhf.py", set()),
        ("swift rlhf", {"F355", "F366"}),
    ):
        report = check_script_text(f"CUDA_VISIBLE_DEVICES=0,1,2,3 {start} {flags}\n", Path("run.sh"))
        assert {found.code for found in report.findings} & {"F355", "F366"} == codes
