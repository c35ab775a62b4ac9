"""What a run would do, in words: placement and batch arithmetic of a layout, without Ray or torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.placement.draw import draw
from rltui.placement.simulate import place
from trainers.queues import prompts_per_chunk

if TYPE_CHECKING:
    from rltui.layout.schema import Layout


def dry_run(layout: Layout) -> list[str]:
    """The lines of ``--dry-run``."""
    return [*draw(layout, place(layout)), "", *arithmetic(layout)]


def arithmetic(layout: Layout) -> list[str]:
    """The integers that follow from ``layout``, as lines for people; every remainder is named."""
    train, learner = layout.train, layout.roles.learner
    samples, ranks = train.samples_per_step, learner.num_learners
    per_rank = -(-samples // ranks)
    micro = learner.micro_batch or per_rank
    muted = per_rank * ranks - samples
    prompts = prompts_per_chunk(train.prompts_per_step, train.samples_per_prompt, layout.roles.rollout.engines)
    return [
        f"steps        {train.steps} × {train.prompts_per_step} prompts × {train.samples_per_prompt} samples"
        f" = {samples} samples a step, {samples * train.steps} in all",
        f"engines      {layout.roles.rollout.engines}, each asked for at most {prompts} prompts"
        f" ({prompts * train.samples_per_prompt} samples) at once",
        f"learners     {ranks} × {per_rank} samples in {-(-per_rank // micro)} micro-batches of at most {micro},"
        f" {muted} rows to fill up (groups without signal are left out)",
        f"optimizer    {train.steps} steps at most, one a batch",
        f"checkpoints  {_num_saves(layout)} saves, the newest {layout.checkpoint.keep} kept",
        f"tokens       at most {samples * (layout.lengths.prompt + layout.lengths.response)} a step",
    ]


def _num_saves(layout: Layout) -> int:
    """Periodic saves, and the one at the end where it is none of them."""
    every, steps = layout.checkpoint.every, layout.train.steps
    periodic = steps // every if every else 0
    return periodic + (1 if steps and (not every or steps % every) else 0)
