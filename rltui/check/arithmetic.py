"""The batch arithmetic of a layout, resolved to integers and put into words."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.layout.schema import Layout

_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<first>\d+)(?::(?P<second>\d{1,2}))?(?::(?P<third>\d{1,2}))?")


class Arithmetic(Struct, frozen=True, kw_only=True):
    """Integers that follow from a layout.

    Attributes:
        learners: Data-parallel ranks of the learner.
        padding_samples_per_step: Rows without weight that fill up ranks where samples do not divide; none is dropped.
        optimizer_steps_per_rollout: Optimizer steps made from the samples of one training step.
        samples_per_optimizer_step: Samples of all ranks in one of them.
        checkpoints: Checkpoints written, the final one included.
        evals: Evaluations.
        checkpoint_bytes: Bytes of one checkpoint; None where the model's size is not known here.
        gpu_hours_asked: GPUs × time limit of the job; None on CPU slots or where the limit cannot be read.
    """

    steps: int
    samples_per_step: int
    samples_total: int
    learners: int
    samples_per_rank: int
    padding_samples_per_step: int
    micro_batches_per_rank: int
    optimizer_steps_per_rollout: int
    samples_per_optimizer_step: int
    engines: int
    samples_per_engine: int
    checkpoints: int
    evals: int
    tokens_per_step_max: int
    checkpoint_bytes: int | None = None
    gpu_hours_asked: float | None = None


def resolve(layout: Layout) -> Arithmetic:
    """Resolve ``layout`` to integers; what does not divide shows as padding, never silently."""
    train, learner, data = layout.train, layout.roles.learner, layout.data
    ranks, engines = max(1, layout.num_ranks), layout.num_engines
    rank = -(-train.samples_per_step // ranks)
    every = layout.checkpoint.every
    periodic = (train.steps - 1) // every if every and train.steps else 0
    return Arithmetic(
        steps=train.steps,
        samples_per_step=train.samples_per_step,
        samples_total=train.samples_per_step * train.steps,
        learners=layout.num_ranks,
        samples_per_rank=rank,
        padding_samples_per_step=rank * ranks - train.samples_per_step,
        micro_batches_per_rank=-(-rank // (learner.micro_batch or rank or 1)),
        optimizer_steps_per_rollout=train.optimizer_steps * train.epochs,
        samples_per_optimizer_step=train.samples_per_step // train.optimizer_steps,
        engines=engines,
        samples_per_engine=-(-train.samples_per_step // max(1, engines)),
        checkpoints=periodic + (1 if train.steps else 0),
        evals=train.steps // data.eval_every if data.eval and data.eval_every else 0,
        tokens_per_step_max=train.samples_per_step * (layout.lengths.prompt + layout.lengths.response),
        gpu_hours_asked=_gpu_hours(layout),
    )


def time_limit_s(text: str) -> int | None:
    """Seconds of a Slurm time limit; None where it is not one.

    Slurm reads one number as minutes, two as MM:SS, three as HH:MM:SS, and after ``D-`` as HH, HH:MM or HH:MM:SS.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, first, second, third = match.group("days", "first", "second", "third")
    numbers = [int(part) for part in (first, second, third) if part is not None]
    if days is not None:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60
    padded = [0, *numbers] if len(numbers) == 2 else numbers
    return padded[0] * 3600 + padded[1] * 60 + padded[2]


def _gpu_hours(layout: Layout) -> float | None:
    seconds = time_limit_s(layout.slurm.time)
    if layout.hardware.on_cpu or seconds is None:
        return None
    return layout.hardware.nodes * layout.hardware.gpus_per_node * seconds / 3600


def lines(layout: Layout) -> tuple[str, ...]:
    """The arithmetic as lines for people."""
    numbers, train = resolve(layout), layout.train
    micro = numbers.micro_batches_per_rank
    words = [
        f"{train.prompts_per_step} prompts × {train.samples_per_prompt} samples = "
        f"{numbers.samples_per_step} samples a step",
        f"{numbers.samples_per_rank} samples a rank in {micro} micro-batch{'es' if micro != 1 else ''}, "
        f"{numbers.padding_samples_per_step} rows of padding",
        f"{numbers.steps} steps = {numbers.samples_total} samples, {numbers.checkpoints} checkpoints",
        f"at most {numbers.tokens_per_step_max} tokens a step",
    ]
    if numbers.optimizer_steps_per_rollout > 1:
        each = numbers.samples_per_optimizer_step
        words.append(f"{numbers.optimizer_steps_per_rollout} optimizer steps a step, of {each} samples")
    if layout.data.eval:
        words.append(f"{numbers.evals} evaluations")
    if numbers.gpu_hours_asked is not None:
        words.append(f"{numbers.gpu_hours_asked:g} GPU-hours asked for")
    return tuple(words)
