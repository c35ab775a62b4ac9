"""What a plan is wanted for."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from rltui.memory.from_layout import ENGINE_SEQUENCES
from rltui.plan.measured import Measured

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu
    from rltui.layout.scalars import System
    from rltui.plan.rates import Rates

Algorithm = Literal["grpo", "ppo", "opd"]


class Means(Struct, frozen=True, kw_only=True):
    """What a plan may use where nothing fits without it.

    Attributes:
        pack: Samples share rows of as many tokens as the longest takes, so that no mask is as large as its square.
        offload: Learners keep the optimizer's states in host memory.
        sequence_parallel: GPUs that share one sequence while they train (Ulysses).
        wide_engines: Engines may take several whole nodes; no layout can say so.
    """

    pack: bool = False
    offload: bool = False
    sequence_parallel: int = 1
    wide_engines: bool = False


class Request(Struct, frozen=True, kw_only=True):
    """What a plan is wanted for.

    Attributes:
        model_name: The model as the trainers load it.
        model: Its shape.
        gpu: The card.
        nodes: Nodes.
        gpus_per_node: Cards of each node.
        algorithm: GRPO, PPO with a critic, or on-policy distillation.
        critic_name: The critic of PPO as the trainers load it; empty: the model.
        critic: Its shape; None: the model's.
        kl_coefficient: Weight of PPO's KL penalty; 0: none, and no reference.
        reference_stage: ZeRO stage of that: 3 divides it over the learner's GPUs, with 0 each has it whole.
        teacher_name: The teacher of distillation as the trainers load it.
        teacher: Its shape; None where there is none.
        prompt_tokens: Longest prompt.
        response_tokens: Longest response.
        response_mean: Tokens of a response in the mean; 0: half of the longest.
        response_spread: Their standard deviation in tokens; None: as of lengths evenly spread around the mean.
        rates: What the cards reach; None: what published runs of the model's family reached.
        measured: What a self-test of the cluster measured of its cards and links.
        prompts: Prompts of a step.
        samples: Samples of a prompt.
        optimizer_steps: Optimizer steps made from the samples of one step.
        epochs: Passes over these samples.
        old_log_probs: Whether the policy scores all samples before it trains on them, though nothing of GRPO asks for
            it: other systems' do, and ours where a penalty compares what engines did not draw from it.
        async_steps: Steps that rollouts may run ahead.
        engine_sequences: Most sequences in flight on an engine.
        eager: Whether engines launch each kernel by themselves (``enforce_eager``), without CUDA graphs.
        weight_bytes: Bytes of a parameter of the engines' layers: 2, or 1 in fp8.
        kv_bytes: Of a number in their KV cache.
        means: What may be used beyond the ordinary.
        row_tokens: Tokens of a packed row as somebody chose them; never fewer than the longest sample takes.
        cut: Tensor, pipeline and expert parallelism of the learner as somebody chose them; empty: nobody did.
        system: Whose trainers: how they can divide a model, and what they keep of it.
        data: What is trained on.
        reward: Its reward.
    """

    model_name: str
    model: Architecture
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    algorithm: Algorithm = "grpo"
    critic_name: str = ""
    critic: Architecture | None = None
    kl_coefficient: float = 0.0
    reference_stage: Literal[0, 3] = 3
    teacher_name: str = ""
    teacher: Architecture | None = None
    prompt_tokens: int = 1024
    response_tokens: int = 2048
    response_mean: float = 0.0
    response_spread: float | None = None
    rates: Rates | None = None
    measured: Measured = Measured()
    prompts: int = 64
    samples: int = 8
    optimizer_steps: int = 1
    epochs: int = 1
    old_log_probs: bool = False
    async_steps: int = 0
    engine_sequences: int = ENGINE_SEQUENCES
    eager: bool = False
    weight_bytes: float = 2.0
    kv_bytes: float = 2.0
    means: Means = Means()
    row_tokens: int = 0
    cut: tuple[int, ...] = ()
    system: System = "rltui"
    data: str = "builtin/sort-digits"
    reward: Literal["exact", "coin", "math", "code", "none"] = "exact"

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes together: the budget."""
        return self.nodes * self.gpus_per_node

    @property
    def mean_tokens(self) -> float:
        """Tokens of a response in the mean."""
        return self.response_mean or self.response_tokens / 2

    @property
    def spread_tokens(self) -> float:
        """Standard deviation of a response's tokens; evenly spread lengths have half their range over √3."""
        if self.response_spread is not None:
            return self.response_spread
        return min(self.mean_tokens, self.response_tokens - self.mean_tokens) / math.sqrt(3)

    def longest_of(self, count: float) -> float:
        """Tokens of the longest of ``count`` responses, at most the limit.

        Gumbel's bound of 1954, mean + deviation × (n − 1) / √(2n − 1): exact for two evenly spread lengths.
        """
        above = self.spread_tokens * (count - 1) / math.sqrt(2 * count - 1) if count > 1 else 0.0
        return min(self.response_tokens, self.mean_tokens + above)

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.prompts * self.samples

    @property
    def updates(self) -> int:
        """Optimizer steps of one step, over all its passes."""
        return self.optimizer_steps * self.epochs

    @property
    def log_prob_passes(self) -> int:
        """Passes before training: none where the policy that trains is still the one that sampled."""
        return int(self.old_log_probs or self.updates > 1 or self.algorithm == "ppo")

    @property
    def most_learners(self) -> int:
        """Ranks of which each still has a sample, alone or with those it shares sequences with."""
        return self.samples_per_step * self.means.sequence_parallel

    @property
    def packed_tokens(self) -> int:
        """Length of the rows in which samples lie one behind the other; 0: a row a sample."""
        return max(self.row_tokens, self.prompt_tokens + self.response_tokens) if self.means.pack else 0

    @property
    def precision(self) -> Literal["bf16", "fp16"]:
        """The 16-bit format that the card computes in."""
        return "bf16" if self.gpu.bf16 else "fp16"
