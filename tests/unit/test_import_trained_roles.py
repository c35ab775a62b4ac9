"""What imported layouts say of actors, critics and engines: each system's own words, and its defaults for the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from import_support import read

VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B"
    " actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.n_gpus_per_node=8 trainer.nnodes=1"
)
PPO = f"{VERL} algorithm.adv_estimator=gae"
OPENRLHF = (
    "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 4"
    " --critic_num_nodes 1 --critic_num_gpus_per_node 4 --ref_num_nodes 1 --ref_num_gpus_per_node 4"
    " --vllm_num_engines 4 --vllm_tensor_parallel_size 1 --colocate_all_models --pretrain Qwen/Qwen3-8B"
)


def roles(tmp_path: Path, text: str) -> dict[str, Any]:
    layout = read(tmp_path, text).layout
    assert layout is not None
    found: dict[str, Any] = layout["roles"]
    return found


@pytest.mark.parametrize(
    ("words", "engines"),
    [
        ("", 4),
        ("actor_rollout_ref.rollout.data_parallel_size=2", 2),
        ("actor_rollout_ref.rollout.data_parallel_size=2 actor_rollout_ref.rollout.pipeline_model_parallel_size=2", 1),
        ("actor_rollout_ref.rollout.data_parallel_size=$REPLICAS", None),
    ],
)
def test_verls_engines_hold_their_data_parallel_copies(tmp_path: Path, words: str, engines: int | None) -> None:
    found = read(tmp_path, f"{VERL} {words}")
    assert (found.rollout_gpus, found.rollout_tp, found.rollout_engines) == (8, 2, engines)


@pytest.mark.parametrize(
    ("words", "recomputes"),
    [
        ("", True),
        ("actor_rollout_ref.model.enable_gradient_checkpointing=False", False),
        ("actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4", False),
        ("actor_rollout_ref.actor.strategy=megatron", False),
        ("actor_rollout_ref.actor.strategy=megatron actor_rollout_ref.model.enable_gradient_checkpointing=True", False),
        ("+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full", True),
    ],
)
def test_verl_recomputes_activations_unless_it_is_told_not_to(tmp_path: Path, words: str, recomputes: bool) -> None:
    assert roles(tmp_path, f"{VERL} {words}")["learner"].get("gradient_checkpointing", False) is recomputes


def test_verls_mini_batches_have_256_prompts_where_nothing_is_said(tmp_path: Path) -> None:
    def steps(words: str) -> int:
        layout = read(tmp_path, f"{VERL} {words}").layout
        assert layout is not None
        return int(layout["train"].get("optimizer_steps", 1))

    assert steps("data.train_batch_size=512") == 2
    assert steps("data.train_batch_size=512 actor_rollout_ref.actor.ppo_mini_batch_size=128") == 4
    assert steps("data.train_batch_size=512 actor_rollout_ref.actor.ppo_mini_batch_size=$MINI") == 1


def test_verls_elder_micro_batch_is_that_of_all_gpus(tmp_path: Path) -> None:
    old = roles(tmp_path, f"{PPO} actor_rollout_ref.actor.ppo_micro_batch_size=32 critic.ppo_micro_batch_size=4")
    assert (old["learner"]["micro_batch"], old["critic"]["micro_batch"]) == (4, 1)
    new = roles(tmp_path, f"{PPO} actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=32")
    assert new["learner"]["micro_batch"] == 32
    wide = "actor_rollout_ref.actor.ppo_micro_batch_size=32 actor_rollout_ref.actor.ulysses_sequence_parallel_size=2"
    assert roles(tmp_path, f"{VERL} {wide}")["learner"]["micro_batch"] == 8


def test_verls_critic_has_settings_of_its_own(tmp_path: Path) -> None:
    words = "critic.model.path=Qwen/Qwen3-4B critic.ppo_micro_batch_size_per_gpu=2 critic.strategy=fsdp2"
    critic = roles(tmp_path, f"{PPO} {words} critic.model.fsdp_config.optimizer_offload=True")["critic"]
    assert (critic["model"], critic["micro_batch"], critic["offload"]) == ("Qwen/Qwen3-4B", 2, "optimizer")
    assert critic["gradient_checkpointing"] is True
    same = roles(tmp_path, f"{PPO} critic.model.path=Qwen/Qwen3-8B")["critic"]
    assert {"model", "offload"}.isdisjoint(same)
    assert "model" not in roles(tmp_path, f"{PPO} critic.model.path=$CRITIC")["critic"]
    assert "critic" not in roles(tmp_path, f"{VERL} algorithm.adv_estimator=grpo {words}")


def test_a_critic_is_trained_as_the_actor_is_where_one_flag_is_for_both(tmp_path: Path) -> None:
    words = "--micro_train_batch_size 4 --gradient_checkpointing --zero_stage 3 --adam_offload --critic_pretrain a/b"
    critic = roles(tmp_path, f"{OPENRLHF} {words}")["critic"]
    assert (critic["micro_batch"], critic["zero_stage"], critic["offload"]) == (4, 3, "optimizer")
    assert (critic["gradient_checkpointing"], critic["model"]) == (True, "a/b")
    assert "critic" not in roles(tmp_path, f"{OPENRLHF} {words} --advantage_estimator group_norm")


def test_a_job_that_asks_for_fewer_gpus_than_its_roles_need_is_told(tmp_path: Path) -> None:
    few = read(tmp_path, f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n{VERL}")
    assert (few.declared_gpus, few.needed_gpus) == (4, 8)
    told = "hardware: 1 × 8 GPUs, as the roles say; the job asks for 4"
    assert told in few.unmapped
    for gpus in (8, 16):
        enough = read(tmp_path, f"#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:{gpus}\n{VERL}")
        assert not [line for line in enough.unmapped if "the job asks" in line]


@pytest.mark.parametrize("estimator", ["gae", "masked_gae", "bi_level_gae"])
def test_every_kind_of_gae_has_a_critic(tmp_path: Path, estimator: str) -> None:
    program = VERL.replace("verl.trainer.main_ppo", "mine.trainer.main_ppo")
    assert "critic" in roles(tmp_path, f"{program} algorithm.adv_estimator={estimator}")
    assert "critic" not in roles(tmp_path, f"{program} algorithm.adv_estimator=grpo")


@pytest.mark.parametrize("model", ["<PATH-TO-MODEL>", "path/to/the/model", "/models/a", "~/a"])
def test_a_model_that_is_a_place_is_unsure_and_one_of_a_hub_is_not(tmp_path: Path, model: str) -> None:
    def unsure(name: str) -> bool:
        layout = read(tmp_path, VERL.replace("Qwen/Qwen3-8B", f"'{name}'")).layout
        assert layout is not None
        return "roles.learner.model" in layout["unsure"]

    assert unsure(model)
    assert not unsure("Qwen/Qwen3-8B")
