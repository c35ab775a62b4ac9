"""What RLinf asserts of a configuration for reasoning before it places its components."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.frameworks.assertion import Framework, at_least, choice, multiple, never
from rltui.check.frameworks.terms import Constant, Fact, Setting, fact, off, one_of

if TYPE_CHECKING:
    from rltui.check.frameworks.terms import Asked

FRAMEWORK = Framework("rlinf", "https://github.com/RLinf/RLinf/tree/a3816b596")

_CONFIG = "rlinf/config.py"
_REASONS = one_of("runner.task_type", "reasoning", "coding_online_rl")


def _overlap(asked: Asked) -> bool:
    """Whether trainer and engines share some of their GPUs, and not all."""
    facts = asked.facts
    if facts.together is None or facts.trainer_gpus is None or facts.rollout_gpus is None:
        return False
    return facts.colocated is None and facts.together < facts.trainer_gpus + facts.rollout_gpus


TABLE = (
    at_least(
        "F971",
        "A sequence leaves no room behind the longest prompt.",
        f"{_CONFIG}, validate_reasoning_cfg",
        (Setting("runner.seq_length"), Setting("data.max_prompt_length") + Constant(1)),
        when=(_REASONS,),
    ),
    choice(
        "F972",
        "RLinf generates with no such engine.",
        f"{_CONFIG}, validate_rollout_cfg",
        Setting("rollout.rollout_backend"),
        ("sglang", "vllm"),
        (_REASONS,),
    ),
    choice(
        "F973",
        "RLinf trains with no such backend.",
        f"{_CONFIG}, validate_cfg",
        Setting("actor.training_backend"),
        ("megatron", "fsdp"),
        (_REASONS,),
    ),
    never(
        "F974",
        "Nobody computes the log-probs of the policy that sampled: neither the engine nor the trainer.",
        f"{_CONFIG}, validate_reasoning_cfg",
        (
            _REASONS,
            off("algorithm.recompute_logprobs", default=None),
            off("rollout.return_logprobs", default=None),
        ),
        Setting("algorithm.recompute_logprobs"),
        "true",
    ),
    multiple(
        "F975",
        "The samples of an optimizer step do not divide over the trainer's ranks.",
        f"{_CONFIG}, validate_cfg",
        (
            Setting("data.rollout_batch_size")
            * Setting("algorithm.group_size")
            // Setting("algorithm.n_minibatches", default=1),
            Setting("algorithm.training_batch_size_per_gpu", default=1) * Fact("trainer_gpus", "GPUs of the trainer"),
        ),
        change=Setting("data.rollout_batch_size"),
        when=(_REASONS, one_of("actor.training_backend", "fsdp")),
        severity="warning",
    ),
    never(
        "F976",
        "Trainer and engines share some of their GPUs and not all, which is neither of the two placements.",
        "rlinf/utils/placement.py, ModelParallelComponentPlacement",
        (_REASONS, _overlap, fact("dialect", "rlinf")),
        Setting("cluster.component_placement"),
    ),
)
