"""What AReaL's configuration refuses, and what its engines cannot hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.frameworks.assertion import Framework, at_least, choice, never
from rltui.check.frameworks.terms import Constant, Setting, at_most, on, one_of
from rltui.importers.areal import experts_fit

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked, Condition

FRAMEWORK = Framework("areal", "https://github.com/inclusionAI/AReaL/tree/4aef98d8d")

_CLI = "areal/api/cli_args.py"

_RATIO = Setting("actor.rejection_sampling.upper")
_CONTEXT = Setting("sglang.context_length", "vllm.max_model_len")

_CHOICES = (
    ("F909", "level", ("token", "sequence")),
    ("F910", "action", ("mask", "clamp")),
    ("F911", "metric", ("ratio", "kl_k1", "kl_k2", "kl_k3")),
    ("F912", "agg", ("sum", "mean", "max")),
)


def _unfit(name: str) -> Condition:
    """The GPUs of experts are not those of attention in the allocation that a setting has."""

    def is_unfit(asked: Asked) -> bool:
        return asked.settings.has(name) and not experts_fit(asked.settings.text(name))

    return is_unfit


TABLE = (
    never(
        "F901",
        "Rejection by a ratio leaves only samples on which trainer and engine agree exactly.",
        f"{_CLI}, RejectionSamplingConfig",
        (one_of("actor.rejection_sampling.metric", "ratio"), at_most(_RATIO, 1)),
        _RATIO,
        2.0,
    ),
    at_least(
        "F902",
        "The engine's length is below what a sample may have.",
        "the engine's own limit",
        (_CONTEXT, Setting("gconfig.max_new_tokens") + Constant(1)),
        severity="warning",
    ),
    choice(
        "F903",
        "AReaL centres advantages by no such part of a batch.",
        f"{_CLI}, NormConfig",
        Setting("actor.adv_norm.mean_level"),
        ("batch", "group"),
    ),
    choice(
        "F904",
        "AReaL scales advantages by no such part of a batch.",
        f"{_CLI}, NormConfig",
        Setting("actor.adv_norm.std_level"),
        ("batch", "group"),
    ),
    never(
        "F905",
        "SAPO's loss is to be decoupled from the policy that sampled.",
        f"{_CLI}, PPOActorConfig",
        (on("actor.use_sapo_loss"), on("actor.use_decoupled_loss")),
        Setting("actor.use_decoupled_loss"),
        "false",
    ),
    never(
        "F906",
        "SAPO's temperature is not above zero.",
        f"{_CLI}, PPOActorConfig",
        (on("actor.use_sapo_loss"), at_most(Setting("actor.sapo_tau_pos"), 0)),
        Setting("actor.sapo_tau_pos"),
        1.0,
    ),
    choice(
        "F907",
        "AReaL reshards weights by no such policy.",
        f"{_CLI}, ArchonEngineConfig",
        Setting("actor.archon.reshard_after_forward_policy"),
        ("default", "always", "never"),
    ),
    *(
        never(
            code,
            "The GPUs of experts are not those of attention.",
            "areal/api/alloc_mode.py, ParallelStrategy",
            (_unfit(name),),
            Setting(name),
        )
        for code, name in (("F908", "actor.backend"), ("F915", "allocation_mode"))
    ),
    *(
        choice(
            code,
            "AReaL filters stale samples by no such word.",
            f"{_CLI}, RejectionSamplingConfig",
            Setting(f"actor.rejection_sampling.{word}"),
            words,
        )
        for code, word, words in _CHOICES
    ),
    never(
        "F913",
        "Only a ratio can be clamped; what is measured otherwise is masked.",
        f"{_CLI}, RejectionSamplingConfig",
        (
            one_of("actor.rejection_sampling.action", "clamp"),
            one_of("actor.rejection_sampling.metric", "kl_k1", "kl_k2", "kl_k3"),
        ),
        Setting("actor.rejection_sampling.action"),
        "mask",
    ),
    at_least(
        "F914",
        "The bounds of stale samples are the wrong way round.",
        f"{_CLI}, RejectionSamplingConfig",
        (_RATIO, Setting("actor.rejection_sampling.lower")),
    ),
)
