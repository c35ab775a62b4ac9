"""Rules about the machines themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.check.rule import Subject, Trouble, rule

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule("H401", "error")
def no_bf16(subject: Subject) -> Iterator[Trouble]:
    """The card has no bf16.

    Volta (V100) and Turing (T4) lack bf16 arithmetic. Train in fp16 with loss scaling.
    """
    gpu = subject.layout.hardware.gpu.upper()
    if not any(card in gpu for card in ("V100", "T4")):
        return
    for role in ("learner", "rollout"):
        if getattr(subject.layout.roles, role).precision == "bf16":
            key = f"roles.{role}.precision"
            yield Trouble(f"{subject.layout.hardware.gpu} has no bf16", key, (f"{key}=fp16",))


@rule("H402", "error")
def no_fp16_on_cpu(subject: Subject) -> Iterator[Trouble]:
    """fp16 is not trained on CPUs.

    Most CPU kernels have no fp16 path, and loss scaling has nothing to gain there. Use fp32, or bf16.
    """
    if not subject.layout.hardware.on_cpu:
        return
    for role in ("learner", "rollout"):
        if getattr(subject.layout.roles, role).precision == "fp16":
            key = f"roles.{role}.precision"
            yield Trouble("fp16 does not run on CPU slots", key, (f"{key}=fp32",))
