"""One table of metric names: what other versions and other systems call a metric, and what it is called here.

Only names that mean the same quantity in the same unit are here. Canonical names are those of ``metrics.jsonl``
(docs/architecture.md); those of open-instruct, TRL and verl are as their own code writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ALIASES: Mapping[str, str] = {
    # step and time
    "_step": "step",
    "training_step": "step",
    "global_step": "step",
    "training/global_step": "step",
    "_timestamp": "time",
    # open-instruct
    "scores": "reward",
    "val/actor_tokens_per_second": "actor_tokens_per_second",
    "val/sequence_lengths": "response_length",
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
}


def canonical(name: str) -> str:
    """Return what the metric ``name`` is called here; a name that is not in the table stays as it is."""
    return ALIASES.get(name, name)


def canonical_values(line: Mapping[str, object]) -> dict[str, float]:
    """Return the numbers of a line of metrics by canonical name; the canonical name itself wins over an alias."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if name not in ALIASES or (ALIASES[name] not in line and ALIASES[name] not in found):
            found[canonical(name)] = float(value)
    return found
