"""Which learners and which engines a model could have on given GPUs: all that fit, and nothing that does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rltui.layout.schema import Checkpoint, Data, Hardware, Layout, Learner, Lengths, Roles, Rollout, Train
from rltui.memory.layouts import estimate_layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Literal

    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu
    from rltui.memory.estimate import EngineEstimate, RoleEstimate
    from rltui.memory.layouts import LayoutEstimate

ZERO_STAGES: tuple[Literal[2], Literal[3]] = (2, 3)
"""Stages 0 and 1 hold more than stage 2 and are no faster at one optimizer step a batch."""

MICRO_BATCHES = (1, 2, 4, 8, 16)
TENSOR_PARALLEL = (1, 2, 4, 8, 16)
EVERY_SIZE_UP_TO = 256
"""Up to so many learners every number is tried; beyond that, whole nodes only."""

STEPS = 200
LEARNING_RATE = 1e-6


class Request(Struct, frozen=True, kw_only=True):
    """What a plan is wanted for.

    Attributes:
        model_name: The model as the trainers load it.
        model: Its shape.
        gpu: The card.
        nodes: Nodes.
        gpus_per_node: Cards of each node.
        prompt_tokens: Longest prompt.
        response_tokens: Longest response.
        prompts: Prompts of a step.
        samples: Samples of a prompt.
        async_steps: Steps that rollouts may run ahead.
        data: What is trained on.
        reward: Its reward.
    """

    model_name: str
    model: Architecture
    gpu: Gpu
    nodes: int
    gpus_per_node: int
    prompt_tokens: int = 1024
    response_tokens: int = 2048
    prompts: int = 64
    samples: int = 8
    async_steps: int = 0
    data: str = "builtin/sort-digits"
    reward: Literal["exact", "coin", "math", "code", "none"] = "exact"

    @property
    def total_gpus(self) -> int:
        """Cards in all."""
        return self.nodes * self.gpus_per_node

    @property
    def samples_per_step(self) -> int:
        """Samples that one step trains on."""
        return self.prompts * self.samples


class LearnerChoice(Struct, frozen=True, kw_only=True):
    """One way to train, and what it takes of each card."""

    gpus: tuple[int, ...]
    zero_stage: Literal[2, 3]
    micro_batch: int
    gradient_checkpointing: bool
    memory: RoleEstimate

    @property
    def ranks(self) -> int:
        """Learners in all."""
        return sum(self.gpus)


class EngineChoice(Struct, frozen=True, kw_only=True):
    """One width of an engine, and what it takes of each card."""

    tensor_parallel: int
    engine: EngineEstimate
    memory: RoleEstimate


def packed(learners: int, gpus_per_node: int) -> tuple[int, ...]:
    """Bundles of ``learners`` that fill node after node.

    Spreading them is never faster here: ZeRO's traffic would leave the node, and each node's rest would be split into
    pieces that hold fewer engines.
    """
    full, rest = divmod(learners, gpus_per_node)
    return (gpus_per_node,) * full + ((rest,) if rest else ())


def learner_counts(request: Request) -> Iterator[int]:
    """Numbers of learners that leave at least one GPU and give each rank a sample."""
    for count in range(1, min(request.total_gpus - 1, request.samples_per_step) + 1):
        if count <= EVERY_SIZE_UP_TO or count % request.gpus_per_node == 0:
            yield count


def learner_choices(request: Request, count: int) -> Iterator[LearnerChoice]:
    """Every way for ``count`` learners to train, whether it fits or not."""
    rows = -(-request.samples_per_step // count)
    for zero_stage in ZERO_STAGES:
        for micro_batch in (size for size in MICRO_BATCHES if size <= rows):
            for recompute in (False, True):
                learner = Learner(
                    model=request.model_name,
                    gpus=list(packed(count, request.gpus_per_node)),
                    zero_stage=zero_stage,
                    micro_batch=micro_batch,
                    gradient_checkpointing=recompute,
                    precision=precision(request.gpu),
                )
                layout = assemble(request, learner, Rollout(engines=1, precision=precision(request.gpu)))
                yield LearnerChoice(
                    gpus=tuple(learner.gpus),
                    zero_stage=zero_stage,
                    micro_batch=micro_batch,
                    gradient_checkpointing=recompute,
                    memory=_role(estimate_layout(layout), "learner"),
                )


def engine_choices(request: Request) -> Iterator[EngineChoice]:
    """Every width that divides the model's heads and a node can hold, whether it fits the cards or not.

    Widths beyond the key-value heads copy them and so waste cache: they come only where nothing narrower fits.
    """
    nothing_fits = True
    for width in TENSOR_PARALLEL:
        if width <= request.gpus_per_node and _heads_divide(request.model, width):
            if _copies_heads(request.model, width) and not nothing_fits:
                return
            choice = _engine_choice(request, width)
            nothing_fits = nothing_fits and choice.memory.verdict == "no"
            yield choice


def _engine_choice(request: Request, width: int) -> EngineChoice:
    rollout = Rollout(engines=1, tensor_parallel=width, precision=precision(request.gpu))
    learner = Learner(model=request.model_name, gpus=[1], precision=precision(request.gpu))
    layout = assemble(request, learner, rollout)
    estimate = estimate_layout(layout)
    return EngineChoice(tensor_parallel=width, engine=estimate.engines[0], memory=_role(estimate, "rollout"))


def _role(estimate: LayoutEstimate, name: str) -> RoleEstimate:
    found = estimate.role(name)
    assert found is not None, "the request's model and card are known, so every role has an estimate"
    return found


def _heads_divide(model: Architecture, width: int) -> bool:
    small, large = sorted((width, model.kv_heads))
    return model.heads % width == 0 and (model.latent is not None or large % max(1, small) == 0)


def _copies_heads(model: Architecture, width: int) -> bool:
    return model.latent is None and width > model.kv_heads


def engines_beside(request: Request, gpus: tuple[int, ...], width: int) -> int:
    """Engines of ``width`` that have room beside learner bundles of ``gpus``; no more than there are prompts."""
    rest = [request.gpus_per_node - bundle for bundle in gpus]
    rest += [request.gpus_per_node] * (request.nodes - len(gpus))
    return min(request.prompts, sum(free // width for free in rest))


def precision(gpu: Gpu) -> Literal["bf16", "fp16"]:
    """The 16-bit format that the card computes in."""
    return "bf16" if gpu.bf16 else "fp16"


def layout_of(request: Request, learner: LearnerChoice, engine: EngineChoice, engines: int) -> Layout:
    """The whole layout of a choice."""
    return assemble(
        request,
        Learner(
            model=request.model_name,
            gpus=list(learner.gpus),
            zero_stage=learner.zero_stage,
            micro_batch=learner.micro_batch,
            gradient_checkpointing=learner.gradient_checkpointing,
            precision=precision(request.gpu),
        ),
        Rollout(engines=engines, tensor_parallel=engine.tensor_parallel, precision=precision(request.gpu)),
    )


def as_text(layout: Layout) -> str:
    """The layout as YAML without the sections of other algorithms, which GRPO does not read; and equal when loaded."""
    import yaml

    values = {key: value for key, value in msgspec.to_builtins(layout).items() if key not in ("ppo", "opd")}
    dumped = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=120)
    return f"# Proposed by `rltui plan`. Set data, train.steps and slurm before a long run.\n{dumped}"


def assemble(request: Request, learner: Learner, rollout: Rollout) -> Layout:
    """A GRPO layout of ``request`` with these two roles."""
    width = rollout.tensor_parallel
    return Layout(
        layout=1,
        name=_name(request, learner.num_learners, rollout.engines, width),
        summary=f"Planned: {learner.num_learners} learners, {rollout.engines} engines of {width}.",
        algorithm="grpo",
        hardware=Hardware(nodes=request.nodes, gpus_per_node=request.gpus_per_node, gpu=request.gpu.name),
        roles=Roles(learner=learner, rollout=rollout),
        train=Train(
            steps=STEPS,
            prompts_per_step=request.prompts,
            samples_per_prompt=request.samples,
            learning_rate=LEARNING_RATE,
            async_steps=request.async_steps,
        ),
        lengths=Lengths(prompt=request.prompt_tokens, response=request.response_tokens),
        data=Data(train=request.data, reward=request.reward),
        checkpoint=Checkpoint(every=50, keep=3),
    )


def _name(request: Request, learners: int, engines: int, width: int) -> str:
    model = re.sub(r"[^a-z0-9.]+", "-", request.model_name.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-.")
    shape = f"{request.nodes}x{request.gpus_per_node}-l{learners}-e{engines}x{width}"
    return f"{model[: 63 - len(shape)] or 'model'}-{shape}"
