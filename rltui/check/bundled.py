"""What the trainers that come with this version cannot run, however sound the layout is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rltui.layout.grading import REWARDS
from rltui.layout.settings import rewards_of, sources
from rltui.layout.variants import is_own

if TYPE_CHECKING:
    from rltui.layout.schema import Layout

TASKS = ("builtin/sort-digits", "builtin/read-digits", "builtin/read-digits-blank")
AGENTS = ("builtin/guess-order-agent",)
ENVIRONMENTS = ("builtin/guess-order", "builtin/calculator", "builtin/python", *AGENTS)


def unsupported(layout: Layout) -> tuple[str, ...]:
    """Reasons why ``trainers`` cannot run ``layout``, each a few words; empty where it can.

    The bundled trainers are GRPO, PPO and OPD: learners (and a critic) under DeepSpeed ZeRO, engines that run ahead of
    them or take turns, beside them or colocated.
    """
    return (*_algorithm(layout), *_roles(layout), *_learner(layout), *_training(layout), *_environment(layout))


def _algorithm(layout: Layout) -> Iterator[str]:
    if needs_reference(layout) and layout.roles.reference is None:
        yield "a KL penalty without the role reference"
    sets = [one for _, _, one in sources(layout.data)]
    for name in (*(one.train for one in sets), layout.data.eval):
        if name.startswith("builtin/") and name not in TASKS:
            yield f"the task {name}"
    needs_none = layout.algorithm == "opd" or layout.data.environment
    known = (*REWARDS, "none") if needs_none else REWARDS
    for reward in rewards_of(layout.data):
        if not is_own(reward) and reward not in known:
            yield f"the reward {reward}"


def needs_reference(layout: Layout) -> bool:
    """Whether the trainer asks a reference for log-probabilities."""
    if layout.algorithm == "grpo":
        return layout.grpo.penalises_kl
    return layout.algorithm == "ppo" and layout.ppo.kl != "none" and bool(layout.ppo.kl_coefficient)


def _roles(layout: Layout) -> Iterator[str]:
    if layout.hardware.gpus_outside_ray:
        yield "a server on GPUs outside Ray"


def _learner(layout: Layout) -> Iterator[str]:
    learner = layout.roles.learner
    for way in ("tensor_parallel", "pipeline_parallel", "expert_parallel"):
        if (size := getattr(learner, way)) > 1:
            yield f"learner {way} {size}"


def _training(layout: Layout) -> Iterator[str]:
    if layout.lengths.images and layout.algorithm == "ppo":
        yield "images with a critic"
    if layout.lengths.images and layout.lengths.pack:
        yield "images in packed rows"
    if layout.lengths.images and layout.roles.learner.lora_rank:
        yield "images with LoRA"
    if layout.lengths.images and layout.roles.learner.sequence_parallel > 1:
        yield "images with sequence_parallel"
    if layout.roles.rollout.quantization != "none" and layout.hardware.on_cpu:
        yield "quantization on CPU"
    yield from _routing(layout)


def _routing(layout: Layout) -> Iterator[str]:
    """What replays no routes: vLLM tells those of answers that it ends itself, not our texts, and on cards only."""
    rollout = layout.roles.rollout
    if rollout.router_replay and layout.lengths.images:
        yield "images with router_replay"
    if rollout.router_replay and rollout.engine == "vllm" and layout.hardware.on_cpu:
        yield "router_replay with vLLM on CPU"
    if rollout.router_replay and rollout.engine == "vllm" and layout.train.stop:
        yield "router_replay with vLLM and train.stop"


def _environment(layout: Layout) -> Iterator[str]:
    environment = layout.data.environment
    if not environment:
        return
    if layout.algorithm == "opd":
        yield "an environment in distillation"
    if layout.algorithm == "ppo" and layout.data.environment_kind == "agent":
        yield "an agent with a critic"
    if layout.lengths.images:
        yield "images in an environment"
    if environment.startswith("builtin/") and environment not in ENVIRONMENTS:
        yield f"the environment {environment}"
