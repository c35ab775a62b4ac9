"""How much of the cards' peak a step used: model FLOPs utilization (Chowdhery et al. 2022, PaLM), in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rltui.hardware.architecture import Architecture
from rltui.hardware.flops import forward_flops_per_token, training_flops_per_token
from rltui.hardware.gpus import Gpu, find_gpu
from rltui.hardware.models import model_if_understood
from rltui.layout.schema import Layout
from trainers.data.prompts import Prompt
from trainers.roles.completions import Completion


@dataclass(frozen=True)
class Lengths:
    """Tokens of one sequence: what the engine read, and what it wrote."""

    prompt: int
    response: int


@dataclass(frozen=True)
class MfuMeter:
    """What a step's work is measured by.

    Attributes:
        model: The policy's architecture.
        learner_gpu: The card that trains.
        engine_gpu: The card that generates.
        learner_cards: How many train.
        engine_cards: How many generate.
    """

    model: Architecture
    learner_gpu: Gpu
    engine_gpu: Gpu
    learner_cards: int
    engine_cards: int

    def measure(self, samples: Sequence[Lengths], generate_s: float, train_s: float) -> dict[str, float]:
        """``actor_mfu`` and ``learner_mfu`` of a step that generated and trained on ``samples``, in percent.

        Recomputed activations do not count, nor does the share of samples that a filter left out of training: the
        figure is that of the step's useful work.
        """
        generated = sum(self._prefill(one) + self._decode(one) for one in samples)
        trained = sum(
            (one.prompt + one.response) * training_flops_per_token(self.model, one.prompt + one.response)
            for one in samples
        )
        return {
            "actor_mfu": self._percent(generated, generate_s, self.engine_gpu, self.engine_cards),
            "learner_mfu": self._percent(trained, train_s, self.learner_gpu, self.learner_cards),
        }

    def _prefill(self, one: Lengths) -> float:
        # causal attention looks back over half the prompt in the mean; only its last token needs logits
        return one.prompt * forward_flops_per_token(self.model, one.prompt / 2, head=False)

    def _decode(self, one: Lengths) -> float:
        return one.response * forward_flops_per_token(self.model, one.prompt + one.response / 2)

    @staticmethod
    def _percent(flops: float, seconds: float, gpu: Gpu, cards: int) -> float:
        return 100.0 * flops / (seconds * gpu.peak_flops * cards) if seconds > 0 and cards else 0.0


def mfu_meter(layout: Layout, model_path: str) -> MfuMeter | None:
    """The meter of ``layout``; None on CPU slots, for an unknown card, or for a model whose shape is unknown.

    Args:
        layout: The layout.
        model_path: Folder of the policy, whose ``config.json`` is read.
    """
    if layout.hardware.on_cpu:
        return None
    learner_gpu, engine_gpu = (find_gpu(layout.hardware_of(role).gpu) for role in ("learner", "rollout"))
    if learner_gpu is None or engine_gpu is None:
        return None
    model = model_if_understood(layout.roles.learner.model) or model_if_understood(model_path)
    if model is None:
        return None
    rollout = layout.roles.rollout
    learners, engines = layout.slots_of("learner"), layout.num_engines * rollout.tensor_parallel
    return MfuMeter(model, learner_gpu, engine_gpu, learners, engines)


def lengths_of(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> list[Lengths]:
    """Tokens of each sequence and of its prompt."""
    return [
        Lengths(len(part.asked(prompt.token_ids)), len(part.token_ids))
        for prompt, group in zip(prompts, groups, strict=True)
        for sample in group
        for part in sample.sequences
    ]
