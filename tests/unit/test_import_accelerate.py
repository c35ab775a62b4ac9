"""TRL's trainings under accelerate: what its configuration and DeepSpeed's say reaches the layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rltui.importers.read import import_file, read_facts

GRPO = "grpo.py --model_name_or_path Qwen/Qwen2.5-7B --use_vllm True --vllm_mode colocate"
ZERO = "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 16\ndeepspeed_config:\n"
FSDP = "distributed_type: FSDP\nnum_machines: 1\nnum_processes: 8\nfsdp_config:\n"


def layout(tmp_path: Path, line: str, **files: str) -> dict[str, Any]:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    script = tmp_path / "run.sh"
    script.write_text(line + "\n")
    found = import_file(script).layout
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("config", "stage", "offload"),
    [
        (f"{ZERO}  zero_stage: 3\n  offload_optimizer_device: cpu\n", 3, "optimizer"),
        (f"{ZERO}  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: cpu\n", 3, "all"),
        (f"{ZERO}  zero_stage: 1\n  offload_optimizer_device: none\n", 1, None),
        (f"{ZERO}  deepspeed_config_file: ds.json\n", 3, "optimizer"),
        (f"{ZERO}  deepspeed_config_file: missing.json\n", 2, None),
        (f"{FSDP}  fsdp_sharding_strategy: FULL_SHARD\n", 3, None),
        (f"{FSDP}  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_offload_params: true\n", 2, "all"),
        (f"{FSDP}  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n", 3, None),
    ],
)
def test_an_accelerate_configuration_says_how_states_are_divided(
    tmp_path: Path, config: str, stage: int, offload: str | None
) -> None:
    own = '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'
    found = layout(tmp_path, f"accelerate launch --config_file acc.yaml {GRPO}", acc__yaml=config, ds__json=own)
    learner = found["roles"]["learner"]
    assert (learner["zero_stage"], learner.get("offload")) == (stage, offload)


def test_fsdp_may_recompute_without_a_flag_of_the_training(tmp_path: Path) -> None:
    config = f"{FSDP}  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_activation_checkpointing: true\n"
    line = f"accelerate launch --config_file acc.yaml {GRPO}"
    assert layout(tmp_path, line, acc__yaml=config)["roles"]["learner"]["gradient_checkpointing"] is True


def test_flags_and_files_of_deepspeed_itself(tmp_path: Path) -> None:
    flags = f"accelerate launch --num_processes 8 --use_deepspeed --zero_stage 3 {GRPO}"
    assert layout(tmp_path, flags)["roles"]["learner"]["zero_stage"] == 3
    ds = '{"zero_optimization": {"stage": 1}}'
    named = f"torchrun --nproc_per_node 8 {GRPO} --deepspeed ds.json"
    assert layout(tmp_path, named, ds__json=ds)["roles"]["learner"]["zero_stage"] == 1
    assert layout(tmp_path, f"torchrun --nproc_per_node 8 {GRPO}")["roles"]["learner"]["zero_stage"] == 2  # assumed


def test_an_accelerate_configuration_says_how_many_machines(tmp_path: Path) -> None:
    found = layout(tmp_path, f"accelerate launch --config_file acc.yaml {GRPO}", acc__yaml=f"{ZERO}  zero_stage: 3\n")
    assert (found["hardware"]["nodes"], found["hardware"]["gpus_per_node"]) == (2, 8)
    one = f"accelerate launch --config_file acc.yaml --num_machines 1 --num_processes 8 {GRPO}"
    found = layout(tmp_path, one, acc__yaml=f"{ZERO}  zero_stage: 3\n")
    assert (found["hardware"]["nodes"], found["hardware"]["gpus_per_node"]) == (1, 8)


@pytest.mark.parametrize(
    ("words", "prompts", "steps"),
    [
        ("--per_device_train_batch_size 4 --gradient_accumulation_steps 8 --num_generations 8", 32, 1),
        ("--per_device_train_batch_size 4", 4, 1),
        ("--per_device_train_batch_size 4 --steps_per_generation 4", 16, 4),
        ("--per_device_train_batch_size 4 --generation_batch_size 64", 8, 2),
        ("--per_device_train_batch_size 4 --gradient_accumulation_steps $ROUNDS", 64, 1),  # 64 is assumed
        ("", 64, 1),
    ],
)
def test_a_generation_has_the_rows_of_all_processes(tmp_path: Path, words: str, prompts: int, steps: int) -> None:
    train = layout(tmp_path, f"accelerate launch --num_processes 8 {GRPO} {words}")["train"]
    assert (train["prompts_per_step"], train.get("optimizer_steps", 1)) == (prompts, steps)


@pytest.mark.parametrize(
    ("line", "processes", "stage"),
    [
        ("trl grpo --accelerate_config zero3 --model_name_or_path Q/q --use_vllm --vllm_mode colocate", 8, 3),
        ("trl grpo --accelerate_config zero2 --num_processes 4 --use_vllm --vllm_mode colocate", 4, 2),
        ("trl grpo --accelerate_config single_gpu --use_vllm --vllm_mode colocate", 1, 2),
        ("trl grpo --config run.yaml", 2, 3),
        (f"accelerate launch --config_file one.yaml --num_processes 4 {GRPO}", 1, 2),
        (f"accelerate launch --config_file one.yaml --multi_gpu --num_processes 4 {GRPO}", 4, 2),
        (f"accelerate launch --num_processes 4 --use_fsdp --fsdp_sharding_strategy FULL_SHARD {GRPO}", 4, 3),
        (f"torchrun --nproc_per_node 4 {GRPO} --fsdp 'full_shard auto_wrap'", 4, 3),
    ],
)
def test_processes_and_stages_where_a_name_or_a_file_says_them(
    tmp_path: Path, line: str, processes: int, stage: int
) -> None:
    run = "accelerate_config: fsdp2\nnum_processes: 2\nuse_vllm: true\nvllm_mode: colocate\nnum_generations: 8\n"
    found = layout(tmp_path, line, run__yaml=run, one__yaml="distributed_type: NO\nnum_processes: 8\n")
    assert sum(found["pools"]["shared"]["gpus"]) == processes
    assert found["roles"]["learner"]["zero_stage"] == stage


@pytest.mark.parametrize(
    ("program", "words", "rank"),
    [
        ("trl/scripts/grpo.py", "--use_peft", 16),
        ("trl/scripts/grpo.py", "--lora_r 32", None),
        ("trl/scripts/grpo.py", "--use_peft --lora_r 32", 32),
        ("my_grpo.py", "--lora_r 32", 32),
        ("my_grpo.py", "--lora_r 32 --use_peft false", None),
    ],
)
def test_adapters_are_trained_where_a_switch_says_so(
    tmp_path: Path, program: str, words: str, rank: int | None
) -> None:
    line = f"accelerate launch --num_processes 2 {program} --use_vllm --vllm_mode colocate --beta 0.04 {words}"
    roles = layout(tmp_path, line)["roles"]
    assert roles["learner"].get("lora_rank") == rank
    assert ("reference" in roles) is (rank is None)


@pytest.mark.parametrize(
    ("program", "algorithm", "rollout"),
    [
        ("examples/scripts/dpo_online.py --use_vllm --vllm_mode colocate", "online dpo", 2),
        ("examples/scripts/orpo.py", "dpo", 0),
        ("examples/scripts/ppo/ppo.py", "ppo", 0),
        ("trl/experimental/gold/gold.py --teacher_model_name_or_path T/t", "opd", 0),
    ],
)
def test_programs_of_trl_that_are_no_grpo(tmp_path: Path, program: str, algorithm: str, rollout: int) -> None:
    script = tmp_path / "run.sh"
    text = f"accelerate launch --num_processes 2 {program} --model_name_or_path Q/q\n"
    facts, _ = read_facts(text, script)
    assert (facts.algorithm, facts.rollout_gpus) == (algorithm, rollout)
    assert (facts.critic == "shared") is (algorithm == "ppo")


def test_rloo_of_trl_compares_two_samples_where_nothing_is_said(tmp_path: Path) -> None:
    found = layout(tmp_path, "trl rloo --num_processes 2 --per_device_train_batch_size 4 --model_name_or_path Q/q")
    assert (found["train"]["samples_per_prompt"], found["train"]["prompts_per_step"]) == (2, 4)
    assert found["grpo"]["advantage"] == "rloo"
