"""Batch arithmetic: everything that must be a whole number is one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rltui.check.rule import Subject, Trouble, rule

if TYPE_CHECKING:
    from collections.abc import Iterator


@rule("B201", "error")
def no_steps(subject: Subject) -> Iterator[Trouble]:
    """The run would end before its first step.

    Zero steps is what a budget given in episodes becomes when it is smaller than one batch: the job queues for hours
    and ends at once.
    """
    if subject.layout.train.steps == 0:
        yield Trouble("train.steps is 0: nothing would be trained", "train.steps")


@rule("B202", "warning")
def uneven_ranks(subject: Subject) -> Iterator[Trouble]:
    """The samples of a step do not divide evenly over the learners.

    All ranks must work on equally many rows, or collectives of the last micro-batch wait for ever. The bundled trainers
    fill the shorter ranks up with rows that weigh nothing: right, but paid for. Other systems stop, or drop samples.
    """
    train, learners = subject.layout.train, subject.layout.roles.learner.num_learners
    if train.samples_per_step % learners:
        step = learners // math.gcd(learners, train.samples_per_prompt)
        prompts = math.ceil(train.prompts_per_step / step) * step
        yield Trouble(
            f"{train.prompts_per_step} prompts × {train.samples_per_prompt} samples = {train.samples_per_step} do not "
            f"divide over {learners} learners",
            "train.prompts_per_step",
            (f"train.prompts_per_step={prompts}",),
        )


@rule("B203", "note")
def uneven_micro_batches(subject: Subject) -> Iterator[Trouble]:
    """The samples of a rank are no multiple of the micro-batch.

    The last micro-batch is smaller than the others. The bundled trainers weigh it by its tokens; systems that average
    micro-batches would give its samples more weight, or drop them.
    """
    train, learner = subject.layout.train, subject.layout.roles.learner
    rank, remainder = divmod(train.samples_per_step, learner.num_learners)
    if remainder or not learner.micro_batch or rank % learner.micro_batch == 0:
        return
    best = max(size for size in range(1, min(rank, learner.micro_batch) + 1) if rank % size == 0)
    yield Trouble(
        f"{rank} samples of a rank are no multiple of micro_batch {learner.micro_batch}",
        "roles.learner.micro_batch",
        (f"roles.learner.micro_batch={best}",),
    )


@rule("B204", "error")
def lonely_samples(subject: Subject) -> Iterator[Trouble]:
    """A group of one sample has no advantage.

    GRPO compares the samples of one prompt with each other (Shao et al. 2024). With one sample each, every advantage
    is zero and nothing is learned.
    """
    if subject.layout.train.samples_per_prompt < 2:
        yield Trouble(
            "samples_per_prompt is 1: a sample alone has advantage 0 in GRPO",
            "train.samples_per_prompt",
            ("train.samples_per_prompt=8",),
        )


@rule("B205", "warning")
def checkpoints_never(subject: Subject) -> Iterator[Trouble]:
    """No checkpoint is written before the end.

    A run that dies then starts again from nothing. The final checkpoint is always written.
    """
    every, steps = subject.layout.checkpoint.every, subject.layout.train.steps
    if steps and (every == 0 or every >= steps):
        what = "checkpoint.every is 0" if every == 0 else f"checkpoint.every {every} is not below {steps} steps"
        yield Trouble(
            f"{what}: the only checkpoint is the final one",
            "checkpoint.every",
            (f"checkpoint.every={steps // 4 or 1}",),
        )


@rule("B206", "warning")
def starving_engines(subject: Subject) -> Iterator[Trouble]:
    """There are more engines than prompts in a step, so some engines are idle in every step."""
    train, engines = subject.layout.train, subject.layout.roles.rollout.engines
    if train.prompts_per_step < engines:
        yield Trouble(
            f"{engines} engines share {train.prompts_per_step} prompts a step; "
            f"{engines - train.prompts_per_step} get none",
            "train.prompts_per_step",
            (f"roles.rollout.engines={train.prompts_per_step}",),
        )


@rule("B207", "warning")
def warm_up_too_long(subject: Subject) -> Iterator[Trouble]:
    """The learning rate is still rising when the run ends."""
    train = subject.layout.train
    if train.steps and train.warmup_steps >= train.steps:
        yield Trouble(
            f"warm-up takes {train.warmup_steps} of {train.steps} steps: the full learning rate is never reached",
            "train.warmup_steps",
            (f"train.warmup_steps={train.steps // 20}",),
        )
