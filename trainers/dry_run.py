"""What a run would do, in words: placement, batch arithmetic and memory of a layout, without Ray, torch or a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from rltui.check.bundled import unsupported
from rltui.layout.roles import SERVED
from rltui.layout.schema import Critic, Layout, Learner
from rltui.layout.settings import MIXTURE_BLOCK, prompts_per_block, sources
from rltui.memory import estimate_layout
from rltui.memory.bars import lines as memory_lines
from rltui.placement.draw import draw
from rltui.placement.simulate import place
from trainers.rollouts import prompts_per_chunk, sequences_per_engine


def dry_run(layout: Layout) -> list[str]:
    """What ``--dry-run`` prints: placement, batches and estimated memory, without Ray or torch."""
    drawn = draw(layout, place(layout))
    refused = [f"not yet run by these trainers (E390): {reason}" for reason in unsupported(layout)]
    return [*drawn, "", *arithmetic(layout), "", *memory_lines(estimate_layout(layout)), *refused]


def arithmetic(layout: Layout) -> list[str]:
    """The integers that follow from ``layout``, as lines for people; every remainder is named."""
    train = layout.train
    samples, sequences = train.samples_per_step, sequences_per_engine(layout)
    prompts = prompts_per_chunk(train.prompts_per_step, train.samples_per_prompt, layout.num_engines, sequences)
    updates = train.optimizer_steps * train.epochs
    return [
        f"steps        {train.steps} × {train.prompts_per_step} prompts × {train.samples_per_prompt} samples"
        f" = {samples} samples a step, {samples * train.steps} in all",
        f"engines      {layout.num_engines}, each asked for at most {prompts} prompts"
        f" ({prompts * train.samples_per_prompt} samples) at once",
        *_mixture(layout),
        *_scoring(layout),
        *_trained(layout),
        f"optimizer    {train.steps * updates} steps at most, {updates} a batch",
        f"checkpoints  {_num_saves(layout)} saves, the newest {layout.checkpoint.keep} kept",
        *evaluations(layout),
        f"tokens       at most {samples * (layout.lengths.prompt + layout.lengths.response)} a step",
    ]


def _mixture(layout: Layout) -> Iterator[str]:
    """The line of the training sets, where there are several."""
    if layout.data.mixture:
        counts = prompts_per_block(layout.data)
        shares = (f"{name} {count}" for (name, *_), count in zip(sources(layout.data), counts, strict=True))
        yield f"mixture      of each {MIXTURE_BLOCK} prompts {', '.join(shares)}"


def evaluations(layout: Layout) -> list[str]:
    """The line of the evaluations, where there are any."""
    data = layout.data
    if not data.eval or not data.eval_every:
        return []
    prompts = f"{data.eval_prompts} prompts" if data.eval_prompts else "all prompts"
    return [
        f"evaluations  before step 1, every {data.eval_every} steps and at the end: {prompts} of {data.eval}"
        f" × {data.eval_samples} samples"
    ]


def _scoring(layout: Layout) -> Iterator[str]:
    """Who else reads the samples: replicas of a frozen model, each with its share."""
    samples, roles = layout.train.samples_per_step, layout.roles
    counts = {"references": layout.slots_of("reference")}
    for name in SERVED:
        served = getattr(roles, name)
        if served is not None:
            counts[f"{name}s"] = layout.slots_of(name) // served.tensor_parallel
    for name, count in counts.items():
        if count:
            yield f"{name:<12} {count} × {-(-samples // count)} samples at most"


def _trained(layout: Layout) -> Iterator[str]:
    """Ranks of what is trained, and how an optimizer step's samples are divided among them."""
    yield _division(layout, "learners", layout.num_ranks, layout.roles.learner)
    if layout.roles.critic is not None:
        yield _division(layout, "critics", layout.slots_of("critic"), layout.roles.critic)


def _division(layout: Layout, name: str, ranks: int, role: Learner | Critic) -> str:
    samples = -(-layout.train.samples_per_step // layout.train.optimizer_steps)
    per_rank = -(-samples // ranks)
    micro = role.micro_batch or per_rank
    batches = f"{-(-per_rank // micro)} micro-batches of at most {micro}"
    if layout.lengths.pack:
        batches = f"rows of at most {layout.lengths.pack} tokens, {role.micro_batch or 'all of them'} at once"
    left_out = " (groups without signal are left out)" if _leaves_groups_out(layout) else ""
    return (
        f"{name:<12} {ranks} × {per_rank} samples an optimizer step in {batches},"
        f" {per_rank * ranks - samples} to fill up{left_out}"
    )


def _leaves_groups_out(layout: Layout) -> bool:
    """Whether fewer samples may be trained on than are drawn: where GRPO's groups without signal do not count."""
    return layout.algorithm == "grpo" and layout.grpo.filter_zero_std


def _num_saves(layout: Layout) -> int:
    """Periodic saves, and the one at the end where it is none of them."""
    every, steps = layout.checkpoint.every, layout.train.steps
    periodic = steps // every if every else 0
    return periodic + (1 if steps and (not every or steps % every) else 0)
