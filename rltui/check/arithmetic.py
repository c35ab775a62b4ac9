"""The batch arithmetic of a layout, resolved to integers and put into words."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.layout.time_limit import time_limit_s

if TYPE_CHECKING:
    from rltui.layout.schema import Layout


class Arithmetic(Struct, frozen=True, kw_only=True):
    """Integers that follow from a layout.

    Attributes:
        learners: Data-parallel ranks of the learner.
        samples_per_rank: Samples, or rows that fill up, of a rank in all its optimizer steps.
        padding_samples_per_step: Rows without weight that fill up ranks where samples do not divide; none is dropped.
        micro_batches_per_rank: Forward passes over them; where rows are packed, at most as many.
        optimizer_steps_per_rollout: Optimizer steps made from the samples of one training step.
        samples_per_optimizer_step: Samples of all ranks in one of them.
        checkpoints: Checkpoints written, the final one included.
        evals: Evaluations, those before the first step and after the last one included.
        checkpoint_bytes: Bytes of one checkpoint; None where the model's size is not known here.
        gpu_hours_asked: GPUs × time limit of the job; None on CPU slots or where no limit can be read.
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
    checkpoints: int
    evals: int
    tokens_per_step_max: int
    checkpoint_bytes: int | None = None
    gpu_hours_asked: float | None = None


def resolve(layout: Layout) -> Arithmetic:
    """Resolve ``layout`` to integers; what does not divide shows as padding, never silently."""
    train, data = layout.train, layout.data
    ranks, engines = max(1, layout.num_ranks), layout.num_engines
    rows = _rows_of_a_rank(train.samples_per_step, train.optimizer_steps, ranks)
    every = layout.checkpoint.every
    periodic = (train.steps - 1) // every if every and train.steps else 0
    return Arithmetic(
        steps=train.steps,
        samples_per_step=train.samples_per_step,
        samples_total=train.samples_per_step * train.steps,
        learners=layout.num_ranks,
        samples_per_rank=sum(rows),
        padding_samples_per_step=sum(rows) * ranks - train.samples_per_step,
        micro_batches_per_rank=micro_batches_of(layout, "learner"),
        optimizer_steps_per_rollout=train.optimizer_steps * train.epochs,
        samples_per_optimizer_step=train.samples_per_step // train.optimizer_steps,
        engines=engines,
        checkpoints=periodic + (1 if train.steps else 0),
        evals=2 + (train.steps - 1) // data.eval_every if data.eval and data.eval_every and train.steps else 0,
        tokens_per_step_max=train.samples_per_step * (layout.lengths.prompt + layout.lengths.response),
        checkpoint_bytes=_checkpoint_bytes(layout),
        gpu_hours_asked=_gpu_hours(layout),
    )


def micro_batches_of(layout: Layout, name: str) -> int:
    """Forward passes of a rank of the learner or critic called ``name`` over the samples of one training step."""
    train, micro_batch = layout.train, getattr(layout.roles, name).micro_batch
    ranks = layout.num_ranks if name == "learner" else layout.slots_of(name)
    rows = _rows_of_a_rank(train.samples_per_step, train.optimizer_steps, max(1, ranks))
    return sum(-(-each // (micro_batch or each)) for each in rows)


def _rows_of_a_rank(samples: int, optimizer_steps: int, ranks: int) -> list[int]:
    """Rows of a rank in each optimizer step, all of which are as full as can be."""
    bounds = [samples * step // optimizer_steps for step in range(optimizer_steps + 1)]
    return [-(-(stop - start) // ranks) for start, stop in pairwise(bounds) if stop > start]


def _checkpoint_bytes(layout: Layout) -> int | None:
    """Bytes of one checkpoint to resume from; None where a model is not known."""
    from rltui.errors import UsageError
    from rltui.memory.estimate import GIB
    from rltui.memory.layouts import layout_checkpoint_gib

    try:
        size = layout_checkpoint_gib(layout)
    except UsageError:
        return None
    return None if size is None else round(size * GIB)


def _gpu_hours(layout: Layout) -> float | None:
    seconds = time_limit_s(layout.slurm.time)
    if layout.hardware.on_cpu or seconds is None or math.isinf(seconds):
        return None
    return layout.hardware.all_gpus * seconds / 3600


def _each(numbers: Arithmetic) -> str:
    """What one checkpoint takes on the disk, where a preset's model is large enough to think about it."""
    gib = (numbers.checkpoint_bytes or 0) / 2**30
    return f" of {gib:.0f} GiB" if gib >= 1 else ""


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def lines(layout: Layout) -> tuple[str, ...]:
    """The arithmetic as lines for people."""
    numbers, train = resolve(layout), layout.train
    micro = numbers.micro_batches_per_rank
    passes = f"in {micro} micro-batch{'es' if micro != 1 else ''}"
    if layout.lengths.pack:
        together = layout.roles.learner.micro_batch or "all of them"
        passes = f"in rows of at most {layout.lengths.pack} tokens, {together} at once"
    words = [
        f"{_many(train.prompts_per_step, 'prompt')} × {_many(train.samples_per_prompt, 'sample')} = "
        f"{_many(numbers.samples_per_step, 'sample')} a step",
        f"{_many(numbers.samples_per_rank, 'sample')} a rank {passes}, "
        f"{_many(numbers.padding_samples_per_step, 'row')} of padding",
        f"{_many(numbers.steps, 'step')} = {_many(numbers.samples_total, 'sample')}, "
        f"{_many(numbers.checkpoints, 'checkpoint')}{_each(numbers)}"
        f"{'' if layout.checkpoint.every or not numbers.checkpoints else ', at the end'}",
        f"at most {_many(numbers.tokens_per_step_max, 'token')} a step",
    ]
    if numbers.optimizer_steps_per_rollout > 1:
        each = numbers.samples_per_optimizer_step
        words.append(f"{numbers.optimizer_steps_per_rollout} optimizer steps a step, of {each} samples")
    if layout.data.eval:
        words.append(_many(numbers.evals, "evaluation"))
    if numbers.gpu_hours_asked is not None:
        words.append(f"{numbers.gpu_hours_asked:g} GPU-hours asked for")
    return tuple(words)
