"""What AReaL's configuration refuses, and what its engines cannot hold."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least, never
from rltui.check.frameworks.terms import Constant, Setting, at_most, one_of

FRAMEWORK = Framework("areal", "https://github.com/inclusionAI/AReaL/tree/4aef98d8d")

_CLI = "areal/api/cli_args.py"

_RATIO = Setting("actor.rejection_sampling.upper")
_CONTEXT = Setting("sglang.context_length", "vllm.max_model_len")

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
        _CONTEXT,
        severity="warning",
    ),
)
