"""One table of metric names: what other versions and other systems call a metric, and what it is called here.

Only names that mean the same quantity in the same unit are here. Canonical names are those of ``metrics.jsonl``
(docs/formats.md); those of the other systems are as their own code writes them.

This module is used on nodes, so it keeps to the standard library and Python 3.8.
"""

import contextlib
from typing import Dict, Mapping

ALIASES: Mapping[str, str] = {
    # step and time
    "_step": "step",
    "training_step": "step",
    "global_step": "step",
    "training/global_step": "step",
    "train/global_step": "step",
    "_timestamp": "time",
    # open-instruct
    "scores": "reward",
    "val/actor_tokens_per_second": "actor_tokens_per_second",
    "val/sequence_lengths": "response_length",
    "val/sequence_lengths_max": "response_length_max",
    "debug/vllm_vs_local_logprob_diff_mean": "parity_mean_abs",
    "policy/clipfrac_avg": "clip_fraction",
    "policy/entropy_avg": "entropy",
    "loss/policy_avg": "loss",
    "lr": "learning_rate",
    "time/training": "time/train",
    "time/getting_response": "time/generate",
    "time/group_generation_max": "time/generate",
    "time/trainer_idling": "time/learner_idle",
    "time/trainer_waiting_for_data": "time/learner_idle",
    "time/generation_waiting_for_trainer": "time/engine_idle",
    # TRL (its PPO names are open-instruct's above)
    "objective/scores": "reward",
    "clip_ratio/region_mean": "clip_fraction",
    "completions/mean_length": "response_length",
    "completions/clipped_ratio": "truncated_fraction",
    "completions/max_length": "response_length_max",
    "frac_reward_zero_std": "zero_std_fraction",
    "sampling/sampling_logp_difference/mean": "parity_mean_abs",
    "sampling/sampling_logp_difference/max": "parity_max_abs",
    # verl
    "critic/rewards/mean": "reward",
    "actor/pg_loss": "loss",
    "actor/grad_norm": "grad_norm",
    "actor/pg_clipfrac": "clip_fraction",
    "actor/entropy": "entropy",
    "actor/lr": "learning_rate",
    "response_length/mean": "response_length",
    "response_length/clip_ratio": "truncated_fraction",
    "timing_s/step": "time/total",
    "timing_s/gen": "time/generate",
    "timing_s/update_actor": "time/train",
    "timing_s/update_weights": "time/weight_sync",
    "timing_s/save_checkpoint": "time/saving",
    "perf/max_memory_allocated_gb": "learner_memory_gib",
    "timing_s/old_log_prob": "time/log_probs",
    "timing_s/reward": "time/reward",
    "timing_s/testing": "time/evaluate",
    "timing_s/update_critic": "time/update_critic",
    "response_length/max": "response_length_max",
    "actor/kl_loss": "kl",
    "fully_async/trainer/idle_ratio": "learner_idle_fraction",
    "fully_async/rollouter/idle_ratio": "engine_idle_fraction",
    "training/rollout_probs_diff_mean": "parity_mean_abs",
    # slime, miles
    "rollout/step": "step",
    "rollout/raw_reward": "reward",
    "rollout/response_len/mean": "response_length",
    "rollout/response_len/max": "response_length_max",
    "rollout/truncated_ratio": "truncated_fraction",
    "train/loss": "loss",
    "train/grad_norm": "grad_norm",
    "train/train_rollout_logprob_abs_diff": "parity_mean_abs",
    "perf/step_time": "time/total",
    "perf/rollout_time": "time/generate",
    "perf/actor_train_time": "time/train",
    "perf/log_probs_time": "time/log_probs",
    "perf/update_weights_time": "time/weight_sync",
    "perf/save_model_time": "time/saving",
    "perf/train_wait_time": "time/learner_idle",
    # TRL's GRPO
    "step_time": "time/total",
    # prime-rl; what its agents, which a run names as it likes, tell is in _OF_AGENTS
    "reward/all/mean": "reward",
    "train/agg/effective/num_output_tokens/mean": "response_length",
    "train/agg/effective/num_output_tokens/max": "response_length_max",
    "loss/mean": "loss",
    "optim/grad_norm": "grad_norm",
    "mismatch_kl/all/mean": "mismatch_kl",
    "entropy/all/mean": "entropy",
    "time/step": "time/total",
    "time/forward_backward": "time/train",
    "time/broadcast_weights": "time/weight_sync",
    "time/save_ckpt": "time/saving",
    "time/wait_for_batch": "time/learner_idle",
    "perf/peak_memory": "learner_memory_gib",
    # NeMo-RL
    "train/reward": "reward",
    "mean_gen_tokens_per_sample": "response_length",
    "truncation_rate": "truncated_fraction",
    "timing/train/total_step_time": "time/total",
    "timing/train/generation": "time/generate",
    "timing/train/policy_training": "time/train",
    "timing/train/checkpointing": "time/saving",
    "timing/train/data_processing": "time/data",
    "timing/train/prepare_for_generation/transfer_and_update_weights": "time/weight_sync",
    # SkyRL
    "trainer/global_step": "step",
    "reward/avg_raw_reward": "reward",
    "policy/policy_loss": "loss",
    "policy/grad_norm": "grad_norm",
    "policy/policy_entropy": "entropy",
    "policy/rollout_train_logprobs_abs_diff_mean": "parity_mean_abs",
    "generate/avg_num_tokens": "response_length",
    "generate/max_num_tokens": "response_length_max",
    "timing/step": "time/total",
    "timing/generate": "time/generate",
    "timing/policy_train": "time/train",
    "timing/fwd_logprobs_values_reward": "time/log_probs",
    "timing/sync_weights": "time/weight_sync",
    "timing/save_checkpoints": "time/saving",
    # OpenRLHF
    "rollout/reward_mean": "reward",
    "rollout/response_length_mean": "response_length",
    "rollout/truncated_rate": "truncated_fraction",
    "policy_loss": "loss",
    "actor_grad_norm": "grad_norm",
    "timing/step_total": "time/total",
    "timing/generation": "time/generate",
    "timing/ppo_train": "time/train",
    "timing/broadcast": "time/weight_sync",
    # AReaL
    "ppo_actor/task_reward/avg": "reward",
    "rollout/reward": "reward",
    "seq_len/avg": "response_length",
    "no_eos_ratios/avg": "truncated_fraction",
    "timeperf/rollout": "time/generate",
    "timeperf/train_step": "time/train",
    "timeperf/recompute_logp": "time/log_probs",
    "timeperf/update_weights": "time/weight_sync",
    "timeperf/save": "time/saving",
    # engines' own counters, where a trainer passes them on
    "vllm:num_requests_running": "engine_running",
    "vllm:num_requests_waiting": "engine_waiting",
    "vllm:kv_cache_usage_perc": "kv_cache_usage",
    "vllm:gpu_cache_usage_perc": "kv_cache_usage",
    "vllm:num_preemptions_total": "preemptions_total",
    "sglang:num_running_reqs": "engine_running",
    "sglang:num_queue_reqs": "engine_waiting",
    "sglang:token_usage": "kv_cache_usage",
}


_AGENTS = "train/agg/effective/"
_OF_AGENTS = {"reward/mean": "reward", "is_truncated/mean": "truncated_fraction"}

KNOWN = frozenset([*ALIASES.values(), *_OF_AGENTS.values()])
"""Names that rltui itself looks for."""


def canonical(name: str) -> str:
    """Return what the metric ``name`` is called here; a name that is not in the table stays as it is."""
    if name.startswith(_AGENTS):
        return _OF_AGENTS.get(name[len(_AGENTS) :].partition("/")[2]) or ALIASES.get(name, name)
    return ALIASES.get(name, name)


def canonical_values(line: Mapping[str, object]) -> Dict[str, float]:
    """Return the numbers of a line of metrics by canonical name; the canonical name itself wins over an alias."""
    found: Dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        own = canonical(name)
        if own == name or (own not in line and own not in found):
            with contextlib.suppress(OverflowError):  # an integer of hundreds of digits
                found[own] = float(value)
    return found
