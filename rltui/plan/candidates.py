"""Which learners and which engines a model could have on GPUs of their own: all choices, with what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rltui.layout.schema import Learner, Roles, Rollout, Teacher
from rltui.memory.layouts import estimate_roles
from rltui.plan.assemble import assemble
from rltui.plan.setup import EngineChoice, LearnerChoice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.hardware.architecture import Architecture
    from rltui.memory.estimate import LayoutEstimate, RoleEstimate
    from rltui.plan.request import Request

ZERO_STAGES: tuple[Literal[2], Literal[3]] = (2, 3)
"""Stages 0 and 1 hold more than stage 2 and are no faster at one optimizer step a batch."""

MICRO_BATCHES = (1, 2, 4, 8, 16)
TENSOR_PARALLEL = (1, 2, 4, 8, 16)
EVERY_SIZE_UP_TO = 256
"""Up to so many learners every number is tried; beyond that, whole nodes only."""


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


def training_ways(request: Request, ranks: int) -> Iterator[tuple[Literal[2, 3], int, bool]]:
    """ZeRO stage, micro-batch and recomputation of every way for ``ranks`` to train."""
    rows = -(-request.samples_per_step // ranks)
    for zero_stage in ZERO_STAGES:
        for micro_batch in (size for size in MICRO_BATCHES if size <= rows):
            for recompute in (False, True):
                yield zero_stage, micro_batch, recompute


def learner_choices(request: Request, count: int) -> Iterator[LearnerChoice]:
    """Every way for ``count`` learners to train, whether it fits or not."""
    gpus = packed(count, request.gpus_per_node)
    for zero_stage, micro_batch, recompute in training_ways(request, count):
        learner = Learner(
            model=request.model_name,
            gpus=list(gpus),
            zero_stage=zero_stage,
            micro_batch=micro_batch,
            gradient_checkpointing=recompute,
            precision=request.precision,
        )
        roles = Roles(learner=learner, rollout=Rollout(engines=1, precision=request.precision))
        yield LearnerChoice(
            gpus=gpus,
            zero_stage=zero_stage,
            micro_batch=micro_batch,
            gradient_checkpointing=recompute,
            memory=role_of(estimate_roles(assemble(request, roles)), "learner"),
        )


def engine_choices(request: Request) -> Iterator[EngineChoice]:
    """Every width of a rollout engine that a node can hold, whether it fits the cards or not."""
    return _choices(request.model, request, "rollout")


def teacher_choices(request: Request) -> Iterator[EngineChoice]:
    """The same of a teacher."""
    assert request.teacher is not None, "distillation has a teacher"
    return _choices(request.teacher, request, "teacher")


def _choices(model: Architecture, request: Request, role: Literal["rollout", "teacher"]) -> Iterator[EngineChoice]:
    """Widths beyond the key-value heads copy them and so waste cache: they come only where nothing narrower fits."""
    nothing_fits = True
    for width in TENSOR_PARALLEL:
        if width > request.gpus_per_node or not _heads_divide(model, width):
            continue
        if _copies_heads(model, width) and not nothing_fits:
            return
        choice = _choice(request, role, width)
        nothing_fits = nothing_fits and choice.memory.verdict == "no"
        yield choice


def _choice(request: Request, role: Literal["rollout", "teacher"], width: int) -> EngineChoice:
    kind = request.precision
    roles = Roles(
        learner=Learner(model=request.model_name, gpus=[1], precision=kind),
        rollout=Rollout(engines=1, tensor_parallel=width if role == "rollout" else 1, precision=kind),
        teacher=Teacher(model=request.teacher_name, tensor_parallel=width, precision=kind)
        if role == "teacher"
        else None,
    )
    estimate = estimate_roles(assemble(request, roles))
    engine = next(each for each in estimate.engines if each.role == role)
    return EngineChoice(tensor_parallel=width, engine=engine, memory=role_of(estimate, role))


def role_of(estimate: LayoutEstimate, name: str) -> RoleEstimate:
    """The estimate of the role called ``name``, which a layout of a request always has."""
    found = estimate.role(name)
    assert found is not None, "the request's models and card are known, so every role has an estimate"
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
