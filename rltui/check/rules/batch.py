"""Batch arithmetic: everything that must be a whole number is one."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.layout.schema import Train
from rltui.layout.variants import is_own

SEARCH = 10_000
"""Candidates that a fix is looked for among; beyond that 1 is offered, which always divides."""


def divisor_below(number: int, limit: int) -> int:
    """A large divisor of ``number`` that is at most ``limit``."""
    first = max(1, min(number, limit))
    return next((each for each in range(first, max(0, first - SEARCH), -1) if number % each == 0), 1)


def whole_prompts(train: Train, ranks: int) -> int:
    """The fewest prompts, no fewer than now, of which every rank has equally many samples in each optimizer step."""
    parts = ranks * train.optimizer_steps
    step = parts // math.gcd(parts, train.samples_per_prompt)
    return math.ceil(train.prompts_per_step / step) * step


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
    train, learners = subject.layout.train, subject.layout.num_ranks
    if learners and train.samples_per_step >= learners and train.samples_per_step % learners:
        yield settled_by(
            f"{train.prompts_per_step} prompts × {train.samples_per_prompt} samples = {train.samples_per_step} do not "
            f"divide over {learners} learners",
            "train.prompts_per_step",
            whole_prompts(train, learners),
        )


@rule("B203", "note")
def uneven_micro_batches(subject: Subject) -> Iterator[Trouble]:
    """The samples of a rank in an optimizer step are no multiple of the micro-batch.

    The last micro-batch is smaller than the others. The bundled trainers weigh it by its tokens; systems that average
    micro-batches would give its samples more weight, or drop them.
    """
    layout, size = subject.layout, subject.layout.roles.learner.micro_batch
    rows, remainder = divmod(layout.train.samples_per_step, max(1, layout.num_ranks) * layout.train.optimizer_steps)
    if remainder or layout.lengths.pack or not 0 < size < rows or rows % size == 0:
        return
    best = divisor_below(rows, size)
    yield settled_by(
        f"{rows} samples of a rank in an optimizer step are no multiple of micro_batch {size}",
        "roles.learner.micro_batch",
        best,
    )


@rule("B204", "error", "grpo")
def lonely_samples(subject: Subject) -> Iterator[Trouble]:
    """A group of one sample has no advantage.

    GRPO compares the samples of one prompt with each other (Shao et al. 2024). With one sample each, every advantage
    is zero and nothing is learned. REINFORCE++ compares with the batch instead.
    """
    layout, alone = subject.layout, ("reinforce_plus_plus", "reinforce_plus_plus_baseline")
    advantage = layout.grpo.advantage
    if layout.train.samples_per_prompt < 2 and advantage not in alone and not is_own(advantage):
        yield settled_by(
            f"samples_per_prompt is 1: a sample alone has advantage 0 in GRPO with advantage {advantage}",
            "train.samples_per_prompt",
            8,
        )


@rule("B205", "warning")
def checkpoints_never(subject: Subject) -> Iterator[Trouble]:
    """No checkpoint is written before the end.

    A run that dies then starts again from nothing. The final checkpoint is always written.
    """
    every, steps = subject.layout.checkpoint.every, subject.layout.train.steps
    if steps > 1 and (every == 0 or every >= steps):
        what = "checkpoint.every is 0" if every == 0 else f"checkpoint.every {every} is not below {steps} steps"
        yield settled_by(f"{what}: the only checkpoint is the final one", "checkpoint.every", max(1, steps // 4))


@rule("B206", "warning")
def starving_engines(subject: Subject) -> Iterator[Trouble]:
    """There are more engines than prompts in a step, so some engines are idle in every step."""
    train, engines = subject.layout.train, subject.layout.num_engines
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
        yield settled_by(
            f"warm-up takes {train.warmup_steps} of {train.steps} steps: the full learning rate is never reached",
            "train.warmup_steps",
            train.steps // 20,
        )


@rule("B208", "warning")
def evals_never(subject: Subject) -> Iterator[Trouble]:
    """The evaluation set is never evaluated, or only before the first step and after the last one.

    `data.eval_every` counts steps, not episodes or samples: an interval that is larger than the run never comes.
    """
    data, steps = subject.layout.data, subject.layout.train.steps
    if data.eval and steps > 1 and (data.eval_every == 0 or data.eval_every > steps):
        what = f"eval_every {data.eval_every} never comes in {steps} steps" if data.eval_every else "eval_every is 0"
        yield settled_by(what, "data.eval_every", max(1, steps // 4))


@rule("B209", "warning")
def nothing_to_evaluate(subject: Subject) -> Iterator[Trouble]:
    """Evaluations are asked for, but there is no evaluation set."""
    data = subject.layout.data
    if data.eval_every and not data.eval:
        message = f"eval_every is {data.eval_every}, but data.eval is empty"
        yield settled_by(message, "data.eval_every", 0)


@rule("B210", "error")
def pack_too_short(subject: Subject) -> Iterator[Trouble]:
    """A packed row is shorter than the longest sample.

    Rows of `lengths.pack` tokens must hold at least one prompt with its response, or the longest samples fit nowhere.
    """
    lengths = subject.layout.lengths
    longest = lengths.prompt + lengths.response
    if 0 < lengths.pack < longest:
        yield settled_by(
            f"pack {lengths.pack} is below prompt {lengths.prompt} + response {lengths.response} = {longest}",
            "lengths.pack",
            longest,
        )


@rule("B211", "error")
def uneven_optimizer_steps(subject: Subject) -> Iterator[Trouble]:
    """The samples of a rank do not divide over the optimizer steps.

    Some frameworks round down here without a word: 20 samples over 8 GPUs become 16, and 4 optimizer steps become 5.
    """
    layout, steps = subject.layout, subject.layout.train.optimizer_steps
    rank, remainder = divmod(layout.train.samples_per_step, max(1, layout.num_ranks))
    if remainder or rank % steps == 0:
        return
    best = divisor_below(rank, steps)
    yield settled_by(
        f"{rank} samples of a rank do not divide over {steps} optimizer steps", "train.optimizer_steps", best
    )


@rule("B212", "error")
def fewer_samples_than_ranks(subject: Subject) -> Iterator[Trouble]:
    """A step has fewer samples than there are learners: some ranks would have nothing to train on."""
    train, ranks = subject.layout.train, subject.layout.num_ranks
    if train.samples_per_step < ranks:
        yield settled_by(
            f"{train.samples_per_step} samples a step for {ranks} learner ranks",
            "train.prompts_per_step",
            whole_prompts(train, ranks),
        )


@rule("B213", "note")
def waves(subject: Subject) -> Iterator[Trouble]:
    """Engines generate a step in several waves.

    `max_concurrency` caps the sequences of an engine; the last wave is rarely full, and its longest sample sets the
    time.
    """
    layout, cap = subject.layout, subject.layout.roles.rollout.max_concurrency
    each = -(-layout.train.samples_per_step // max(1, layout.num_engines))
    if cap and each > cap:
        yield Trouble(
            f"{each} samples an engine at max_concurrency {cap}: {-(-each // cap)} waves",
            "roles.rollout.max_concurrency",
        )


@rule("B214", "note")
def uneven_engines(subject: Subject) -> Iterator[Trouble]:
    """The prompts of a step do not divide over the engines, so some engines have more to do than others."""
    train, engines = subject.layout.train, subject.layout.num_engines
    if engines and train.prompts_per_step > engines and train.prompts_per_step % engines:
        low = train.prompts_per_step // engines
        message = f"{train.prompts_per_step} prompts over {engines} engines: some get {low + 1}, others {low}"
        yield Trouble(message, "roles.rollout.engines")


@rule("B215", "warning")
def learning_rate_high(subject: Subject) -> Iterator[Trouble]:
    """The learning rate is higher than RL on all weights of a pretrained model usually survives.

    Common values are 1e-7 to 1e-5 for all weights; LoRA takes ten to a hundred times as much.
    """
    rate, learner = subject.layout.train.learning_rate, subject.layout.roles.learner
    if rate > 5e-5 and not learner.lora_rank and not learner.model.startswith("builtin/"):
        yield settled_by(f"learning_rate {rate:g} for all weights of {learner.model}", "train.learning_rate", "1e-6")


@rule("B247", "note")
def learning_rate_low_for_lora(subject: Subject) -> Iterator[Trouble]:
    """LoRA with a learning rate for all weights learns slowly.

    Adapters want about ten times the rate of all weights (Schulman et al. 2025, "LoRA without regret"): 1e-5 to 1e-4.
    """
    rate, learner = subject.layout.train.learning_rate, subject.layout.roles.learner
    if learner.lora_rank and rate < 5e-6:
        message = f"learning_rate {rate:g} for adapters of rank {learner.lora_rank}"
        yield settled_by(message, "train.learning_rate", f"{10 * rate:g}")


@rule("B216", "warning")
def far_off_policy(subject: Subject) -> Iterator[Trouble]:
    """Rollouts may run further ahead than importance weights correct for.

    Up to 4 to 8 steps of staleness have been reported to train well; beyond that most samples are clipped.
    """
    train = subject.layout.train
    if train.async_steps > 8:
        yield settled_by(f"rollouts may be {train.async_steps} steps old", "train.async_steps", 4)


@rule("B217", "note")
def single_checkpoint(subject: Subject) -> Iterator[Trouble]:
    """Only the newest checkpoint is kept: if it cannot be read, there is none before it."""
    checkpoint, steps = subject.layout.checkpoint, subject.layout.train.steps
    if checkpoint.keep == 1 and 0 < checkpoint.every < steps:
        yield settled_by("checkpoint.keep is 1", "checkpoint.keep", 2)
