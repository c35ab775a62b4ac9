"""Variants of GRPO and PPO in scripts of other systems arrive in the layout under its own names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rltui.importers.layout_of import as_yaml
from rltui.importers.read import import_file
from rltui.layout.load import load_text
from rltui.layout.schema import Layout

VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator={estimator} actor_rollout_ref.model.path=Qwen/Qwen3-8B "
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1 trainer.nnodes=1 trainer.n_gpus_per_node=8 "
    "data.train_batch_size=256 data.max_response_length=4096 {words}\n"
)
TRL = (
    "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 grpo.py --model_name_or_path Qwen/Qwen3-0.6B --use_vllm "
    "--vllm_mode colocate {words}\n"
)
OPEN_INSTRUCT = (
    "python open_instruct/grpo_fast.py --model_name_or_path Qwen/Qwen3-0.6B --num_learners_per_node 1 "
    "--vllm_num_engines 1 --response_length 2048 --max_prompt_token_length 512 --pack_length 4096 {words}\n"
)
OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 4 --vllm_num_engines 4 "
    "--ref_num_nodes 1 --ref_num_gpus_per_node 4 --colocate_actor_ref --pretrain Qwen/Qwen3-8B {words}\n"
)
A = "actor_rollout_ref.actor"
R = "algorithm.rollout_correction"


def imported(folder: Path, command: str, words: str) -> tuple[Layout, tuple[str, ...]]:
    """The layout of a command with further words, and what could not be mapped."""
    file = folder / "run.sh"
    file.write_text(command.format(words=words, estimator="gae" if "critic." in words else "grpo"))
    found = import_file(file)
    assert found.layout is not None, found.unmapped
    return load_text(as_yaml(found.layout), "run.sh").layout, tuple(found.unmapped)


def value(layout: Layout, key: str) -> Any:
    place: Any = layout
    for name in key.split("."):
        place = getattr(place, name)
    return place


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        (
            VERL,
            "actor_rollout_ref.rollout.enable_rollout_routing_replay=True",
            {"roles.rollout.router_replay": True},
        ),
        (
            VERL,
            "",
            {"grpo.dual_clip": 3.0, "grpo.clip_high": 0.2, "grpo.importance": "off", "grpo.filter_zero_std": False},
        ),
        (
            VERL,
            f"{A}.policy_loss.loss_mode=gspo {A}.clip_ratio_low=3e-4",
            {"grpo.ratio": "sequence", "grpo.clip_low": 3e-4},
        ),
        (VERL, "actor_rollout_ref.rollout.top_p=0.95", {"train.top_p": 0.95}),
        (VERL, f"{A}.policy_loss.loss_mode=cispo", {"grpo.ratio": "cispo", "grpo.aggregation": "token"}),
        (
            VERL,
            f"algorithm.adv_estimator=rloo {A}.policy_loss.loss_mode=sapo {A}.tau_neg=1.3",
            {
                "grpo.advantage": "rloo",
                "grpo.ratio": "sapo",
                "grpo.aggregation": "sequence",
                "grpo.clip_low": 0.2,
                "grpo.clip_high": 0.272,
                "grpo.sapo_temperature_negative": 1.3,
            },
        ),
        (
            VERL,
            f"algorithm.adv_estimator=reinforce_plus_plus {A}.policy_loss.loss_mode=kl_cov "
            f"{A}.policy_loss.kl_cov_ratio=0.02 {A}.loss_agg_mode=seq-mean-token-sum",
            {
                "grpo.advantage": "reinforce_plus_plus",
                "grpo.filter_zero_std": False,
                "grpo.ratio": "kl_cov",
                "grpo.kl_cov_fraction": 0.02,
                "grpo.kl_cov_coefficient": 0.1,
                "grpo.aggregation": "sequence_sum",
            },
        ),
        (
            VERL,
            f"algorithm.adv_estimator=opo {A}.policy_loss.loss_mode=clip_cov {A}.policy_loss.clip_cov_ub=40",
            {"grpo.advantage": "opo", "grpo.ratio": "clip_cov", "grpo.clip_cov_high": 40.0, "grpo.clip_high": 0.2},
        ),
        (
            VERL,
            f"algorithm.adv_estimator=reinforce_plus_plus_baseline {A}.policy_loss.loss_mode=geo_mean",
            {"grpo.advantage": "reinforce_plus_plus_baseline", "grpo.ratio": "gmpo", "grpo.aggregation": "sequence"},
        ),
        (VERL, f"{A}.clip_ratio_c=10.0 {A}.clip_ratio_high=0.28", {"grpo.dual_clip": 10.0, "grpo.clip_high": 0.28}),
        (VERL, f"{A}.loss_agg_mode=seq-mean-token-mean", {"grpo.aggregation": "sequence"}),
        (
            VERL,
            f"{A}.loss_agg_mode=seq-mean-token-sum-norm algorithm.norm_adv_by_std_in_grpo=False",
            {"grpo.aggregation": "dr_grpo", "grpo.advantage": "centered"},
        ),
        (
            VERL,
            f"{A}.use_kl_loss=True {A}.kl_loss_coef=0.01 {A}.kl_loss_type=mse",
            {"grpo.kl": "loss", "grpo.kl_coefficient": 0.01, "grpo.kl_estimator": "k2"},
        ),
        (VERL, f"{A}.entropy_coeff=0.003", {"grpo.entropy_coefficient": 0.003}),
        (
            VERL,
            "algorithm.use_kl_in_reward=True algorithm.kl_ctrl.kl_coef=0.05",
            {"grpo.kl": "reward", "grpo.kl_coefficient": 0.05, "grpo.kl_estimator": "k1"},
        ),
        (
            VERL,
            "algorithm.use_kl_in_reward=True algorithm.kl_ctrl.type=adaptive critic.cliprange_value=0.3 "
            f"{A}.clip_ratio=0.1",
            {
                "ppo.kl": "reward",
                "ppo.kl_target": 0.1,
                "ppo.kl_horizon": 10_000,
                "ppo.value_clip": 0.3,
                "ppo.clip": 0.1,
            },
        ),
        (
            VERL,
            f"{R}.rollout_is=token {R}.rollout_is_threshold=5",
            {"grpo.importance": "cap", "grpo.importance_cap": 5.0},
        ),
        (VERL, f"{R}.rollout_is=sequence", {"grpo.importance": "sequence_product", "grpo.importance_cap": 2.0}),
        (
            VERL,
            f"{R}.rollout_is=token {R}.rollout_is_threshold=0.5_5.0",
            {"grpo.importance": "mask", "grpo.importance_low": 0.5, "grpo.importance_cap": 5.0},
        ),
        (VERL, f"{A}.tis_imp_ratio_cap=3", {"grpo.importance": "cap", "grpo.importance_cap": 3.0}),
        (
            VERL,
            "algorithm.filter_groups.enable=True algorithm.filter_groups.max_num_gen_batches=4 data.gen_batch_size=768",
            {"grpo.filter_zero_std": True, "grpo.active_sampling_limit": 12},
        ),
        (
            VERL,
            "+reward_model.reward_kwargs.overlong_buffer_cfg.enable=True "
            "+reward_model.reward_kwargs.overlong_buffer_cfg.len=1024",
            {"grpo.overlong_penalty_tokens": 1024},
        ),
        (
            VERL,
            f"{A}.use_dynamic_bsz=True {A}.ppo_max_token_len_per_gpu=8192 {A}.grad_clip=0.5 "
            "actor_rollout_ref.model.lora_rank=32",
            {"lengths.pack": 8192, "train.gradient_clip": 0.5, "roles.learner.lora_rank": 32},
        ),
        (TRL, "", {"grpo.clip_low": 0.2, "grpo.clip_high": 0.2, "grpo.filter_zero_std": False}),
        (TRL, "--loss_type grpo --epsilon 0.1", {"grpo.aggregation": "sequence", "grpo.clip_high": 0.1}),
        (
            TRL,
            "--loss_type dr_grpo --scale_rewards none",
            {"grpo.aggregation": "dr_grpo", "grpo.advantage": "centered"},
        ),
        (TRL, "--loss_type cispo --epsilon_high 5.0", {"grpo.ratio": "cispo", "grpo.clip_high": 5.0}),
        (TRL, "--importance_sampling_level sequence --delta 4", {"grpo.ratio": "sequence", "grpo.dual_clip": 4.0}),
        (TRL, "--mask_truncated_completions True --num_iterations 2", {"grpo.mask_truncated": True, "train.epochs": 2}),
        (
            TRL,
            "--vllm_importance_sampling_mode token_mask --vllm_importance_sampling_cap 3",
            {"grpo.importance": "mask", "grpo.importance_low": 0.0, "grpo.importance_cap": 3.0},
        ),
        (
            TRL,
            "--loss_type sapo --sapo_temperature_neg 1.2 --multi_objective_aggregation normalize_then_sum",
            {
                "grpo.ratio": "sapo",
                "grpo.aggregation": "sequence",
                "grpo.sapo_temperature_negative": 1.2,
                "grpo.clip_high": 0.272,
                "grpo.advantage": "gdpo",
            },
        ),
        (
            TRL,
            "--vllm_importance_sampling_mode sequence_mask --vllm_importance_sampling_clip_min 0.4",
            {"grpo.importance": "sequence_mask", "grpo.importance_low": 0.4},
        ),
        (TRL, "--top_entropy_quantile 0.2", {"grpo.top_entropy_quantile": 0.2}),
        (TRL, "--top_p 0.9", {"train.top_p": 0.9}),
        (TRL, "--vllm_importance_sampling_correction false", {"grpo.importance": "off"}),
        (OPEN_INSTRUCT, "--loss_fn cispo --kl_estimator 1", {"grpo.ratio": "cispo", "grpo.kl_estimator": "k2"}),
        (OPEN_INSTRUCT, "--kl_estimator kl3", {"grpo.kl_estimator": "k3"}),
        (OPEN_INSTRUCT, "--loss_denominator 2048", {"grpo.aggregation": "dr_grpo"}),
        (OPEN_INSTRUCT, "--loss_denominator sequence", {"grpo.aggregation": "sequence"}),
        (
            OPEN_INSTRUCT,
            "--mask_truncated_completions True --async_steps 4 --active_sampling",
            {"grpo.mask_truncated": True, "train.async_steps": 4, "grpo.active_sampling_limit": 10},
        ),
        (OPEN_INSTRUCT, "--truncated_importance_sampling_ratio_cap 0.0", {"grpo.importance": "off"}),
        (OPEN_INSTRUCT, "--rho_clamp_upper_bound 3", {"grpo.importance": "cap", "grpo.importance_cap": 3.0}),
        (
            OPEN_INSTRUCT,
            "--rho_mask_lower_bound 0.5 --rho_mask_upper_bound 5",
            {"grpo.importance": "mask", "grpo.importance_low": 0.5, "grpo.importance_cap": 5.0},
        ),
        (
            OPENRLHF,
            "--advantage_estimator group_norm --policy_loss_type gspo --use_kl_loss --kl_estimator k3 "
            "--init_kl_coef 1e-3",
            {"grpo.ratio": "sequence", "grpo.kl": "loss", "grpo.kl_estimator": "k3", "grpo.kl_coefficient": 1e-3},
        ),
        (
            OPENRLHF,
            "--algo.advantage.estimator dr_grpo --actor.dual_clip 3 --actor.eps_clip_low_high 0.2 0.28",
            {"grpo.advantage": "centered", "grpo.dual_clip": 3.0, "grpo.clip_high": 0.28, "grpo.kl": "reward"},
        ),
        (
            OPENRLHF,
            "--algo.advantage.estimator reinforce --algo.advantage.is_correction_enable "
            "--algo.advantage.is_correction_type icepop --algo.advantage.is_correction_threshold 0.5 4",
            {"grpo.importance": "mask", "grpo.importance_low": 0.5, "grpo.importance_cap": 4.0},
        ),
        (
            OPENRLHF,
            "--advantage_estimator group_norm --overlong_buffer_len 512 --async_train --async_queue_size 2 "
            "--use_dynamic_batch --train_max_tokens_per_gpu 8192",
            {"grpo.overlong_penalty_tokens": 512, "train.async_steps": 2, "lengths.pack": 8192},
        ),
        (OPENRLHF, "--advantage_estimator rloo", {"grpo.advantage": "rloo"}),
        (OPENRLHF, "--advantage_estimator reinforce_baseline", {"grpo.advantage": "reinforce_plus_plus_baseline"}),
        (OPENRLHF, "--eps_clip 0.1 --kl_target 6", {"ppo.clip": 0.1, "ppo.kl": "reward", "ppo.kl_target": 6.0}),
    ],
    ids=lambda case: case[:60] if isinstance(case, str) else "",
)
def test_words_of_another_system_are_keys_of_the_layout(
    tmp_path: Path, command: str, words: str, expected: dict[str, Any]
) -> None:
    layout, unmapped = imported(tmp_path, command, words)
    assert {key: value(layout, key) for key in expected} == expected
    named = [word.partition("=")[0].lstrip("+-") for word in words.split() if "=" in word or word.startswith("--")]
    assert not [line for line in unmapped if any(line.lstrip("-").startswith((f"{n}:", f"{n}=")) for n in named)] or (
        "active_sampling" in words
    )


@pytest.mark.parametrize(
    ("command", "words", "line"),
    [
        (VERL, f"{A}.policy_loss.loss_mode=gpg", f"{A}.policy_loss.loss_mode=gpg: has no place in a layout"),
        (VERL, "algorithm.adv_estimator=remax", "algorithm.adv_estimator=remax: has no place in a layout"),
        (
            VERL,
            f"{A}.loss_agg_mode=token-sum",
            f"{A}.loss_agg_mode=token-sum: has no place in a layout",
        ),
        (
            VERL,
            f"{A}.use_kl_loss=True algorithm.use_kl_in_reward=True",
            "algorithm.use_kl_in_reward=true beside a KL loss: has no place in a layout",
        ),
        (
            VERL,
            f"{A}.policy_loss.loss_mode=gspo {A}.clip_ratio_c=9",
            f"{A}.clip_ratio_c: has no place in a layout",
        ),
        (TRL, "--loss_type vespo", "--loss_type=vespo: has no place in a layout"),
        (TRL, "--scale_rewards batch", "--scale_rewards=batch: has no place in a layout"),
        (OPEN_INSTRUCT, "--kl_estimator 3", "--kl_estimator=3: has no place in a layout"),
        (OPEN_INSTRUCT, "--active_sampling", "--active_sampling: no limit is said; 10 times the prompts are taken"),
        (
            OPENRLHF,
            "--advantage_estimator group_norm --overlong_buffer_len 512 --overlong_penalty_factor 2",
            "--overlong_penalty_factor: a penalty of another height than 1 has no place in a layout",
        ),
    ],
)
def test_what_a_layout_has_no_word_for_is_said(tmp_path: Path, command: str, words: str, line: str) -> None:
    assert line in imported(tmp_path, command, words)[1]


def test_a_word_that_only_a_run_shows_is_not_guessed(tmp_path: Path) -> None:
    layout, unmapped = imported(tmp_path, VERL, f"{A}.loss_agg_mode=$(cat mode)")
    assert layout.grpo.aggregation == "token"
    assert any("loss_agg_mode: its value shows only in a run" in line for line in unmapped)


def test_a_row_has_the_tokens_of_all_ranks_that_megatron_divides_it_over(tmp_path: Path) -> None:
    budget = f"{A}.use_dynamic_bsz=True {A}.ppo_max_token_len_per_gpu=8192 {A}.strategy=megatron"
    assert imported(tmp_path, VERL, budget)[0].lengths.pack == 8192
    assert imported(tmp_path, VERL, f"{budget} {A}.megatron.context_parallel_size=2")[0].lengths.pack == 16384
