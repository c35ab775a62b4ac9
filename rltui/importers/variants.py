"""Variants of GRPO and PPO in the words of other systems: losses, clips, KL, importance weights, sampling.

Each function returns layout keys, and a note for every word that a layout has no place for. The names are those of
verl's ``actor.yaml`` and ``rollout_correction.yaml``, TRL's ``GRPOConfig``, open-instruct's ``grpo_fast.py`` and
OpenRLHF's ``train_ppo_ray``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rltui.importers.facts import NO_PLACE
from rltui.importers.values import product, to_float

if TYPE_CHECKING:
    from rltui.importers.arguments import Settings

REFILLS = 10
"""Batches of prompts that are drawn at most where a system draws without a limit; a layout has one."""
_ACTOR = "actor_rollout_ref.actor"
_KL = {"kl": "k1", "k1": "k1", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}

_ADVANTAGES = {
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "opo": "opo",
    "gdpo": "gdpo",
    "reinforce++": "reinforce_plus_plus",
    "reinforce_plus_plus": "reinforce_plus_plus",
    "reinforce_plus_plus_baseline": "reinforce_plus_plus_baseline",
}
"""Advantages under the names that several systems have for them; those of PPO and GRPO are told by other words."""
_KNOWN = ("", "gae", "ppo", "grpo", "grpo_vectorized", "gspo", "cispo", "on_policy_distillation")

_LEVELS = {"token": "cap", "sequence": "sequence_product", "geometric": "sequence_mean", "null": "off", "none": "off"}


class Variants:
    """Layout keys found so far, and what could not be said in them.

    Args:
        source: The settings of a command.
        prefix: What stands before their names in notes.
    """

    def __init__(self, source: Settings, prefix: str = "") -> None:
        self.source, self.prefix = source, prefix
        self.found: dict[str, Any] = {}
        self.notes: list[str] = []

    def choose(self, key: str, words: Mapping[str, object], *names: str) -> None:
        """Take the layout's word for that of the first name that is set."""
        word = self.source.text(*names).lower()
        if word in words:
            self.found[key] = words[word]
        elif word:
            self.note(names, word)

    def number(self, key: str, *names: str) -> None:
        """Take a number, where it is known."""
        value = self.source.number(*names)
        if value is not None:
            self.found[key] = value

    def note(self, names: tuple[str, ...], word: object) -> None:
        """Say that a layout has no place for a word."""
        name = next((name for name in names if name in self.source.values), names[0])
        self.notes.append(f"{self.prefix}{name}={word}{NO_PLACE}")

    def advantage(self, *names: str) -> dict[str, Any]:
        """Take what samples are compared with, where that is not what PPO or GRPO do; all that is found so far."""
        if self.source.text(*names).lower() not in _KNOWN:
            self.choose("grpo.advantage", _ADVANTAGES, *names)
        if self.found.get("grpo.advantage") == "reinforce_plus_plus":
            self.found["grpo.filter_zero_std"] = False  # nobody but rltui leaves such groups out by default
        return self.found

    def refilled(self, limit: int | None, name: str) -> None:
        """Groups without a signal are left out, and others drawn in their place."""
        self.found |= {"grpo.filter_zero_std": True, "grpo.active_sampling_limit": limit or REFILLS}
        if not limit:
            self.notes.append(f"{self.prefix}{name}: no limit is said; {REFILLS} times the prompts are taken")

    def overlong(self, length: int | None, factor: float | None, name: str) -> None:
        """A penalty that rises to 1 over the last tokens."""
        if length and factor == 1:
            self.found["grpo.overlong_penalty_tokens"] = length
        elif length:
            self.notes.append(f"{self.prefix}{name}: a penalty of another height than 1 has no place in a layout")


def verl(source: Settings, algorithm: str) -> Variants:
    """Variants of verl; what its own defaults say counts where the command is silent."""
    found = Variants(source)
    ratios = {"vanilla": "token", "gspo": "sequence", "geo_mean": "gmpo"}
    ratios |= {name: name for name in ("cispo", "sapo", "clip_cov", "kl_cov")}
    found.choose("grpo.ratio", ratios, f"{_ACTOR}.policy_loss.loss_mode")
    modes = {"token-mean": "token", "seq-mean-token-mean": "sequence", "seq-mean-token-sum-norm": "dr_grpo"}
    found.choose("grpo.aggregation", modes | {"seq-mean-token-sum": "sequence_sum"}, f"{_ACTOR}.loss_agg_mode")
    found.number("ppo.clip", f"{_ACTOR}.clip_ratio")
    clip = found.found.get("ppo.clip", 0.2)
    found.found |= {"grpo.clip_low": clip, "grpo.clip_high": clip, "grpo.filter_zero_std": False}
    found.number("grpo.clip_low", f"{_ACTOR}.clip_ratio_low")
    found.number("grpo.clip_high", f"{_ACTOR}.clip_ratio_high")
    if found.found.get("grpo.ratio", "token") == "token":
        found.found["grpo.dual_clip"] = 3.0
        found.number("grpo.dual_clip", f"{_ACTOR}.clip_ratio_c")
    deviation = source.flag("algorithm.norm_adv_by_std_in_grpo", default=True)
    if deviation is not None:
        found.found["grpo.advantage"] = "standard" if deviation else "centered"
    found.advantage("algorithm.adv_estimator")
    _verl_surrogate(found)
    section = "ppo" if algorithm == "ppo" else "grpo"
    _verl_kl(found, section)
    found.number(f"{section}.entropy_coefficient", f"{_ACTOR}.entropy_coeff")
    _verl_importance(found)
    _verl_sampling(found)
    return found


def _verl_surrogate(found: Variants) -> None:
    """Settings of the losses that are not PPO's, and what these do not read."""
    settings = f"{_ACTOR}.policy_loss"
    ratio = found.found.get("grpo.ratio")
    if ratio in ("sapo", "gmpo"):
        found.found["grpo.aggregation"] = "sequence"  # whatever loss_agg_mode says
    if ratio in ("sapo", "kl_cov"):
        del found.found["grpo.clip_low"], found.found["grpo.clip_high"]
    if ratio == "sapo":
        found.number("grpo.sapo_temperature_positive", f"{_ACTOR}.tau_pos")
        found.number("grpo.sapo_temperature_negative", f"{_ACTOR}.tau_neg")
    if ratio == "kl_cov":
        found.found["grpo.kl_cov_coefficient"] = 0.1
        found.number("grpo.kl_cov_coefficient", f"{settings}.ppo_kl_coef")
        found.number("grpo.kl_cov_fraction", f"{settings}.kl_cov_ratio")
    if ratio == "clip_cov":
        found.number("grpo.clip_cov_fraction", f"{settings}.clip_cov_ratio")
        found.number("grpo.clip_cov_low", f"{settings}.clip_cov_lb")
        found.number("grpo.clip_cov_high", f"{settings}.clip_cov_ub")


def _verl_kl(found: Variants, section: str) -> None:
    source, control = found.source, "algorithm.kl_ctrl"
    in_reward = source.flag("algorithm.use_kl_in_reward")
    if source.flag(f"{_ACTOR}.use_kl_loss"):
        found.found |= {f"{section}.kl": "loss", f"{section}.kl_coefficient": 0.001, f"{section}.kl_estimator": "k3"}
        found.number(f"{section}.kl_coefficient", f"{_ACTOR}.kl_loss_coef")
        found.choose(f"{section}.kl_estimator", _KL, f"{_ACTOR}.kl_loss_type")
        if in_reward:
            found.note(("algorithm.use_kl_in_reward",), "true beside a KL loss")
    elif in_reward:
        found.found |= {f"{section}.kl": "reward", f"{section}.kl_coefficient": 0.001, f"{section}.kl_estimator": "k1"}
        found.number(f"{section}.kl_coefficient", f"{control}.kl_coef")
        found.choose(f"{section}.kl_estimator", _KL, "algorithm.kl_penalty")
        if source.text(f"{control}.type") == "adaptive":
            found.found["ppo.kl_target"] = source.number(f"{control}.target_kl", default=0.1)
            found.found["ppo.kl_horizon"] = source.integer(f"{control}.horizon", default=10_000)


def _verl_importance(found: Variants) -> None:
    """The weight between trainer and engine, under the names that it has had."""
    source, new = found.source, "algorithm.rollout_correction"
    found.found["grpo.importance"] = "off"
    if source.has(f"{new}.rollout_is"):
        found.choose("grpo.importance", _LEVELS, f"{new}.rollout_is")
        _bounds(found, source.text(f"{new}.rollout_is_threshold", default="2.0"))
    elif source.flag("algorithm.rollout_is"):
        found.found["grpo.importance"] = "cap"
        found.choose("grpo.importance", _LEVELS, "algorithm.rollout_is_level")
        _bounds(found, source.text("algorithm.rollout_is_threshold", default="2.0"))
    elif (cap := source.number(f"{_ACTOR}.tis_imp_ratio_cap")) is not None and cap > 0:
        found.found |= {"grpo.importance": "cap", "grpo.importance_cap": cap}


def _bounds(found: Variants, text: str) -> None:
    """An upper bound, or ``lower_upper`` between which tokens count (IcePop)."""
    bounds = _numbers(text.split("_"))
    if len(bounds) == 2 and found.found["grpo.importance"] == "cap":
        found.found |= {"grpo.importance": "mask", "grpo.importance_low": bounds[0], "grpo.importance_cap": bounds[1]}
    elif len(bounds) == 1:
        found.found["grpo.importance_cap"] = bounds[0]


def _numbers(words: Sequence[object]) -> list[float]:
    """All as numbers; none where one of them is not known."""
    numbers = [number for word in words if (number := to_float(word)) is not None]
    return numbers if len(numbers) == len(words) else []


def _verl_sampling(found: Variants) -> None:
    """Groups that are drawn again, and penalties of long answers."""
    source, groups = found.source, "algorithm.filter_groups"
    if source.flag(f"{groups}.enable"):
        batches = source.integer(f"{groups}.max_num_gen_batches", default=REFILLS)
        prompts = source.integer("data.train_batch_size", default=1024)
        drawn = product(batches, source.integer("data.gen_batch_size", default=prompts))
        limit = -(-drawn // prompts) if drawn and drawn > 0 and prompts else None
        found.refilled(limit, f"{groups}.max_num_gen_batches")
    for prefix in ("reward.reward_kwargs.", "reward_model.reward_kwargs.", "reward_model."):
        name = f"{prefix}overlong_buffer" + ("_cfg" if "kwargs" in prefix else "")
        if source.flag(f"{name}.enable"):
            factor = source.number(f"{name}.penalty_factor", default=1.0)
            found.overlong(source.integer(f"{name}.len"), factor, f"{name}.penalty_factor")


def trl(source: Settings) -> Variants:
    """The variants of GRPO that TRL's ``GRPOConfig`` asks for."""
    found = Variants(source, "--")
    losses = {"grpo": "sequence", "dapo": "token", "bnpo": "token", "cispo": "token", "dr_grpo": "dr_grpo"}
    losses |= {"sapo": "sequence", "luspo": "sequence_sum"}
    found.choose("grpo.aggregation", losses, "loss_type")
    found.choose("grpo.ratio", {"token": "token", "sequence": "sequence"}, "importance_sampling_level")
    if source.text("loss_type").lower() == "cispo":
        found.found["grpo.ratio"] = "cispo"
    scales = {"group": "standard", "true": "standard", "none": "centered", "false": "centered"}
    found.choose("grpo.advantage", scales, "scale_rewards")
    found.found |= {"grpo.clip_low": 0.2, "grpo.filter_zero_std": False}
    found.number("grpo.clip_low", "epsilon")
    found.found["grpo.clip_high"] = found.found["grpo.clip_low"]
    found.number("grpo.clip_high", "epsilon_high")
    found.number("grpo.dual_clip", "delta")
    if source.text("loss_type").lower() == "sapo":
        for key in ("grpo.clip_low", "grpo.clip_high", "grpo.dual_clip"):
            found.found.pop(key, None)  # nothing is clipped
        found.found["grpo.ratio"] = "sapo"
        found.number("grpo.sapo_temperature_positive", "sapo_temperature_pos")
        found.number("grpo.sapo_temperature_negative", "sapo_temperature_neg")
    if source.text("multi_objective_aggregation") == "normalize_then_sum":
        found.found["grpo.advantage"] = "gdpo"
    if source.flag("mask_truncated_completions"):
        found.found["grpo.mask_truncated"] = True
    modes = {"token_truncate": "cap", "token_mask": "mask", "sequence_truncate": "sequence_product"}
    modes["sequence_mask"] = "sequence_mask"
    found.choose("grpo.importance", modes, "vllm_importance_sampling_mode")
    found.number("grpo.importance_cap", "vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap")
    if "mask" in str(found.found.get("grpo.importance")):
        found.found["grpo.importance_low"] = 0.0
        found.number("grpo.importance_low", "vllm_importance_sampling_clip_min")
    found.number("grpo.top_entropy_quantile", "top_entropy_quantile")
    if source.flag("vllm_importance_sampling_correction", default=True) is False:
        found.found["grpo.importance"] = "off"
    return found


def open_instruct(source: Settings) -> Variants:
    """Variants of open-instruct's ``grpo_fast.py``, of this year and the last."""
    found = Variants(source, "--")
    found.choose("grpo.ratio", {"dapo": "token", "cispo": "cispo"}, "loss_fn")
    estimators = {"0": "k1", "1": "k2", "2": "k3", "kl1": "k1", "kl2": "k2", "kl3": "k3"}
    found.choose("grpo.kl_estimator", estimators, "kl_estimator")
    per = {"token": "token", "sequence": "sequence"}
    length = source.number("response_length", default=256.0)
    if source.has("loss_denominator") and length is not None and source.number("loss_denominator") == length:
        found.found["grpo.aggregation"] = "dr_grpo"
    else:
        found.choose("grpo.aggregation", per, "loss_denominator")
    if source.flag("mask_truncated_completions"):
        found.found["grpo.mask_truncated"] = True
    if source.flag("active_sampling"):
        found.refilled(None, "active_sampling")
    _open_instruct_importance(found)
    return found


def _open_instruct_importance(found: Variants) -> None:
    source = found.source
    low, high = (source.number(f"rho_mask_{side}_bound", default=0.0) for side in ("lower", "upper"))
    if source.has("truncated_importance_sampling_ratio_cap"):  # before the correction had a switch
        cap = source.number("truncated_importance_sampling_ratio_cap")
        if cap is not None:
            found.found |= {"grpo.importance": "cap", "grpo.importance_cap": cap} if cap else {"grpo.importance": "off"}
    words = {"none": "off", "clipped": "cap"}
    found.choose("grpo.importance", words, "rollout_importance_correction")
    switch = source.flag("use_rho_correction", default=None)
    if switch is not None:
        found.found["grpo.importance"] = "cap" if switch else "off"
    found.number("grpo.importance_cap", "rho_clamp_upper_bound")
    if high and found.found.get("grpo.importance") != "off":
        found.found |= {"grpo.importance": "mask", "grpo.importance_low": low or 0.0, "grpo.importance_cap": high}
    if source.number("rho_clamp_lower_bound"):
        found.note(("rho_clamp_lower_bound",), source.number("rho_clamp_lower_bound"))
    if source.flag("rho_mask_sequence_level") or source.text("rho_mask_level") == "sequence":
        found.notes.append("--rho_mask_level: a mask of whole samples has no place in a layout")


def openrlhf(source: Settings, algorithm: str) -> Variants:
    """Variants of OpenRLHF, by underscored and by dotted names."""
    found, section = Variants(source, "--"), "ppo" if algorithm == "ppo" else "grpo"
    found.found |= {"grpo.filter_zero_std": False, "grpo.importance": "off"}
    found.choose("grpo.ratio", {"ppo": "token", "gspo": "sequence"}, "policy_loss_type", "actor.policy_loss_type")
    clip = source.number("eps_clip", "actor.eps_clip", default=0.2)
    if clip is not None:
        found.found |= {"ppo.clip": clip, "grpo.clip_low": clip, "grpo.clip_high": clip}
    found.number("grpo.dual_clip", "dual_clip", "actor.dual_clip")
    found.number("ppo.value_clip", "value_clip", "critic.value_clip")
    estimator = source.text("advantage_estimator", "algo.advantage.estimator")
    if estimator == "dr_grpo" or source.flag("no_advantage_std_norm", "algo.advantage.no_std_norm"):
        found.found["grpo.advantage"] = "centered"
    names = {"reinforce": "reinforce_plus_plus", "reinforce_baseline": "reinforce_plus_plus_baseline", "rloo": "rloo"}
    if estimator in names:
        found.found["grpo.advantage"] = names[estimator]
    in_loss = source.flag("use_kl_loss", "algo.kl.use_loss")
    found.found |= {f"{section}.kl": "loss" if in_loss else "reward", f"{section}.kl_estimator": "k1"}
    found.choose(f"{section}.kl_estimator", _KL, "kl_estimator", "algo.kl.estimator")
    coefficient = source.number("init_kl_coef", "algo.kl.init_coef", default=0.01)
    if coefficient is not None:
        found.found[f"{section}.kl_coefficient"] = coefficient
    found.number("ppo.kl_target", "kl_target", "algo.kl.target")
    _openrlhf_importance(found)
    _openrlhf_sampling(found)
    return found


def _openrlhf_importance(found: Variants) -> None:
    source = found.source
    if not source.flag("enable_vllm_is_correction", "algo.advantage.is_correction_enable"):
        return
    found.found["grpo.importance"] = "cap"
    kinds = {"tis": "cap", "icepop": "mask"}
    found.choose("grpo.importance", kinds, "vllm_is_correction_type", "algo.advantage.is_correction_type")
    bounds = _numbers(source.words("vllm_is_truncated_threshold", "algo.advantage.is_correction_threshold"))
    if bounds:
        found.found["grpo.importance_cap"] = bounds[-1]
        if len(bounds) == 2 and found.found["grpo.importance"] == "mask":
            found.found["grpo.importance_low"] = bounds[0]


def _openrlhf_sampling(found: Variants) -> None:
    source = found.source
    if source.flag("dynamic_filtering", "algo.dynamic_filtering_enable"):
        found.refilled(None, "dynamic_filtering")
    length = source.number("overlong_buffer_len", "reward.overlong_buffer_len")
    factor = source.number("overlong_penalty_factor", "reward.overlong_penalty_factor", default=1.0)
    found.overlong(int(length) if length else None, factor, "overlong_penalty_factor")
    if source.flag("async_train", "train.async_enable"):
        found.found["train.async_steps"] = source.integer("async_queue_size", "train.async_queue_size", default=1)
