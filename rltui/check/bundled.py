"""What the trainers that come with this version cannot run, however sound the layout is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.layout.schema import Layout

TASKS = ("builtin/sort-digits",)
REWARDS = ("exact", "coin")


def unsupported(layout: Layout) -> tuple[str, ...]:
    """Reasons why ``trainers`` cannot run ``layout``, each a few words; empty where it can.

    The bundled trainer is synchronous GRPO: learners on GPUs of their own under DeepSpeed ZeRO, engines on theirs, one
    optimizer step for each batch of samples.
    """
    return (*_algorithm(layout), *_roles(layout), *_learner(layout), *_training(layout))


def _algorithm(layout: Layout) -> Iterator[str]:
    if layout.algorithm != "grpo":
        yield f"algorithm {layout.algorithm}"
    elif layout.grpo.kl_coefficient:
        yield f"grpo.kl_coefficient {layout.grpo.kl_coefficient:g}"
    if layout.data.train not in TASKS:
        yield f"the task {layout.data.train}"
    if layout.data.reward not in REWARDS:
        yield f"the reward {layout.data.reward}"
    if layout.data.eval:
        yield "an evaluation set"


def _roles(layout: Layout) -> Iterator[str]:
    if layout.pools:
        yield "pools"
    for key in ("reference", "critic", "teacher", "reward"):
        if getattr(layout.roles, key) is not None:
            yield f"the role {key}"
    if layout.hardware.gpus_outside_ray:
        yield "GPUs outside Ray"
    if layout.roles.rollout.sleep_while_training:
        yield "engines that sleep while training"
    if layout.roles.rollout.max_concurrency:
        yield f"max_concurrency {layout.roles.rollout.max_concurrency}"


def _learner(layout: Layout) -> Iterator[str]:
    learner = layout.roles.learner
    if not learner.gpus:
        yield "a learner without GPUs of its own"
    for key in ("tensor_parallel", "sequence_parallel"):
        if getattr(learner, key) > 1:
            yield f"learner {key} {getattr(learner, key)}"
    if learner.offload != "none":
        yield f"offload {learner.offload}"
    if learner.lora_rank:
        yield "LoRA"
    if learner.optimizer != "adamw":
        yield f"optimizer {learner.optimizer}"
    if learner.hpz_partition > 1:
        yield f"hpz_partition {learner.hpz_partition}"
    if learner.gather_whole_model:
        yield "gather_whole_model"


def _training(layout: Layout) -> Iterator[str]:
    train = layout.train
    if train.async_steps:
        yield f"async_steps {train.async_steps}"
    if train.optimizer_steps > 1 or train.epochs > 1:
        yield f"{train.optimizer_steps * train.epochs} optimizer steps a batch"
    if layout.lengths.pack:
        yield "packed rows"
    if layout.lengths.images:
        yield "images"
