"""What verl's trainer refuses of Trinity-RFT's configuration."""

from __future__ import annotations

from rltui.check.frameworks.assertion import Framework, at_least
from rltui.check.frameworks.terms import Setting

FRAMEWORK = Framework("trinity-rft", "https://github.com/agentscope-ai/Trinity-RFT")

_BUDGET = Setting(
    "trainer.max_token_len_per_gpu", "trainer.trainer_config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
)
_ULYSSES = Setting("trainer.ulysses_sequence_parallel_size", default=1)
_LENGTH = Setting("model.max_model_len")

TABLE = (
    at_least(
        "F161",
        "A pass takes fewer tokens than a sample may have, and one that is longer ends the training.",
        "verl/utils/seqlen_balancing.py, rearrange_micro_batches",
        (_BUDGET * _ULYSSES, _LENGTH),
        change=_BUDGET,
        severity="warning",
    ),
)
