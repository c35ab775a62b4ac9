"""Engine rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.rule import Subject, Trouble, rule

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule("E301", "error")
def hf_cannot_split(subject: Subject) -> Iterator[Trouble]:
    """The hf engine runs on one GPU only.

    `engine: hf` generates with transformers, where vLLM cannot run. It has no tensor parallelism.
    """
    rollout = subject.layout.roles.rollout
    if rollout.engine == "hf" and rollout.tensor_parallel > 1:
        yield Trouble(
            f"engine hf runs on one slot, not on tensor_parallel {rollout.tensor_parallel}",
            "roles.rollout.tensor_parallel",
            ("roles.rollout.tensor_parallel=1",),
        )


@rule("E302", "warning")
def greedy_engine(subject: Subject) -> Iterator[Trouble]:
    """The engine is to take nearly the whole card.

    vLLM's `memory_utilization` is a share of the card's total. CUDA context, graphs and NCCL buffers live outside it;
    above 0.95 the engine often fails at start or at the first weight sync.
    """
    rollout = subject.layout.roles.rollout
    if rollout.engine == "vllm" and not subject.layout.hardware.on_cpu and rollout.memory_utilization > 0.95:
        yield Trouble(
            f"memory_utilization {rollout.memory_utilization:g} leaves no room for CUDA context and graphs",
            "roles.rollout.memory_utilization",
            ("roles.rollout.memory_utilization=0.9",),
        )


@rule("E303", "note")
def precision_mismatch(subject: Subject) -> Iterator[Trouble]:
    """Trainer and engine compute in different precisions.

    The same weights then give different log-probs (6e-2 between bf16 and fp32 on a tiny model). Truncated importance
    sampling corrects for it; the parity bound of 1e-4 holds for fp32 on both sides only.
    """
    learner, rollout = subject.layout.roles.learner, subject.layout.roles.rollout
    if learner.precision != rollout.precision:
        yield Trouble(
            f"learner computes in {learner.precision}, engine in {rollout.precision}: log-probs will differ",
            "roles.rollout.precision",
            (f"roles.rollout.precision={learner.precision}",),
        )
