"""The batch arithmetic of a layout, resolved to integers and put into words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.layout.schema import Layout


class Arithmetic(Struct, frozen=True, kw_only=True):
    """Integers that follow from a layout."""

    steps: int
    samples_per_step: int
    samples_total: int
    learners: int
    samples_per_rank: int
    padding_samples_per_step: int
    """Rows without weight that fill up ranks where the samples do not divide; nothing is dropped."""
    micro_batches_per_rank: int
    engines: int
    checkpoints: int
    tokens_per_step_max: int


def resolve(layout: Layout) -> Arithmetic:
    """Resolve ``layout`` to integers; what does not divide shows as padding, never silently."""
    train, learner = layout.train, layout.roles.learner
    rank = -(-train.samples_per_step // learner.num_learners)
    every = layout.checkpoint.every
    periodic = (train.steps - 1) // every if every and train.steps else 0
    return Arithmetic(
        steps=train.steps,
        samples_per_step=train.samples_per_step,
        samples_total=train.samples_per_step * train.steps,
        learners=learner.num_learners,
        samples_per_rank=rank,
        padding_samples_per_step=rank * learner.num_learners - train.samples_per_step,
        micro_batches_per_rank=-(-rank // (learner.micro_batch or rank or 1)),
        engines=layout.roles.rollout.engines,
        checkpoints=periodic + (1 if train.steps else 0),
        tokens_per_step_max=train.samples_per_step * (layout.lengths.prompt + layout.lengths.response),
    )


def lines(layout: Layout) -> tuple[str, ...]:
    """The arithmetic as lines for people."""
    numbers, train = resolve(layout), layout.train
    return (
        f"{train.prompts_per_step} prompts × {train.samples_per_prompt} samples = "
        f"{numbers.samples_per_step} samples a step",
        f"{numbers.samples_per_rank} samples a rank in {numbers.micro_batches_per_rank} micro-batch"
        f"{'es' if numbers.micro_batches_per_rank != 1 else ''}, {numbers.padding_samples_per_step} rows of padding",
        f"{numbers.steps} steps = {numbers.samples_total} samples, {numbers.checkpoints} checkpoints",
        f"at most {numbers.tokens_per_step_max} tokens a step",
    )
