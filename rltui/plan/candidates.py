"""Which learners and which engines a model could have on GPUs of their own: all choices, with what they take."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Literal

from msgspec import structs

from rltui.layout.schema import Learner, Roles, Rollout, Teacher
from rltui.memory.layouts import estimate_roles
from rltui.memory.recipes import RECIPES
from rltui.plan.assemble import assemble, learner_role
from rltui.plan.setup import EngineChoice, LearnerChoice, Training
from rltui.plan.training import kept_parameters, train_s

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.memory.estimate import LayoutEstimate, RoleEstimate
    from rltui.plan.request import Request

ZERO_STAGES: tuple[Literal[2], Literal[3]] = (2, 3)
"""Stages 0 and 1 hold more than stage 2 and are no faster at one optimizer step a batch."""

MICRO_BATCHES = (1, 2, 4, 8, 16)
TENSOR_PARALLEL = (1, 2, 4, 8, 16, 32, 64)
PIPELINE_PARALLEL = (1, 2, 4, 8, 16)
EXPERT_PARALLEL = (1, 2, 4, 8, 16, 32, 64)
CUT_WORTH = 1.5
"""A model is cut otherwise than its script cuts it where that makes training shorter by more than this factor: times of
cuts are known no better."""

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
    for count in range(1, min(request.total_gpus - 1, request.most_learners) + 1):
        whole = count % request.means.sequence_parallel == 0
        if is_megatron(request.system):  # every rank of a group of layers or experts needs its fellows
            whole = whole and (count % request.gpus_per_node == 0 or count in TENSOR_PARALLEL)
        if whole and (count <= EVERY_SIZE_UP_TO or count % request.gpus_per_node == 0):
            yield count


def training_ways(request: Request, gpus: tuple[int, ...]) -> Iterator[Training]:
    """Every way for bundles of ``gpus`` to train; offloaded or with shared sequences, ZeRO-3 alone."""
    if is_megatron(request.system):
        yield from _megatron_ways(request, gpus)
        return
    means = request.means
    rows = -(-request.most_learners // sum(gpus))
    for zero_stage in ZERO_STAGES if means.sequence_parallel == 1 and not means.offload else ZERO_STAGES[1:]:
        for micro_batch in (size for size in MICRO_BATCHES if size <= rows):
            for recompute in (False, True):
                yield trained_by(
                    request.system,
                    Training(
                        gpus=gpus,
                        zero_stage=zero_stage,
                        micro_batch=micro_batch,
                        gradient_checkpointing=recompute,
                        offload=means.offload,
                        sequence_parallel=means.sequence_parallel,
                        packed_tokens=request.packed_tokens,
                    ),
                )


def is_megatron(system: str) -> bool:
    """Whether the trainers of ``system`` cut a model as Megatron does."""
    return RECIPES[system].backend == "megatron"


def trained_by(system: str, way: Training) -> Training:
    """``way`` with the kernels of the trainers of ``system``, and where what they offload is stepped."""
    return structs.replace(
        way,
        megatron=is_megatron(system),
        trains_on_card=RECIPES[system].trains_on_card,
    )


def _megatron_ways(request: Request, gpus: tuple[int, ...]) -> Iterator[Training]:
    """Every cut of the model into tensor, pipeline and expert parallel parts that divides its GPUs, one row at a time.

    Matrices are divided within a node, the context as the means say, and experts by whole ones over a node at least, as
    published recipes have them: what NVLink carries hides behind their products.
    """
    model, means, ranks = request.model, request.means, sum(gpus)
    experts = model.experts.count if model.experts is not None else 1
    own = {request.cut[:2]} if request.cut else set()  # whoever chose it need not have taken a power of two
    for tensor, pipeline in sorted({*product(TENSOR_PARALLEL, PIPELINE_PARALLEL), *own}):
        sharing = tensor * pipeline * means.sequence_parallel
        torn = any(bundle % tensor for bundle in gpus) or pipeline > model.layers
        if torn or not _heads_divide(model, tensor) or ranks % sharing or ranks // sharing > request.samples_per_step:
            continue
        whole = [each for each in EXPERT_PARALLEL if experts % each == 0 and (ranks // pipeline) % each == 0]
        widest = max(each for each in whole if each <= request.gpus_per_node)
        for expert, recompute in product((each for each in whole if each >= widest), (False, True)):
            yield trained_by(
                request.system,
                Training(
                    gpus=gpus,
                    zero_stage=1,
                    micro_batch=1,
                    gradient_checkpointing=recompute,
                    offload=means.offload,
                    sequence_parallel=means.sequence_parallel,
                    tensor_parallel=tensor,
                    pipeline_parallel=pipeline,
                    expert_parallel=expert,
                    packed_tokens=request.packed_tokens,
                ),
            )


def preferred_s(request: Request, way: Training) -> float:
    """Seconds in which ``way`` trains, longer by a half where it cuts the model otherwise than was chosen already."""
    seconds, _ = train_s(request, way)
    is_own = request.cut in ((), (way.tensor_parallel, way.pipeline_parallel, way.expert_parallel))
    return seconds if is_own else CUT_WORTH * seconds


def sparest_way(request: Request, gpus: tuple[int, ...]) -> Training:
    """The way to train that takes least."""
    if is_megatron(request.system):
        ways = [way for way in training_ways(request, gpus) if way.gradient_checkpointing]
        return min(ways, key=lambda way: (kept_parameters(request.model, way), -way.tensor_parallel))
    return next(
        way for way in training_ways(request, gpus) if way.zero_stage == ZERO_STAGES[-1] and way.gradient_checkpointing
    )


def learner_choices(request: Request, count: int) -> Iterator[LearnerChoice]:
    """Every way for ``count`` learners to train, whether it fits or not."""
    for way in training_ways(request, packed(count, request.gpus_per_node)):
        yield with_its_memory(request, way)


def with_its_memory(request: Request, way: Training) -> LearnerChoice:
    """A way to train on GPUs of its own, with what it takes of them."""
    roles = Roles(learner=learner_role(request, way), rollout=Rollout(engines=1, precision=request.precision))
    memory = role_of(estimate_roles(assemble(request, roles)), "learner")
    return LearnerChoice(**structs.asdict(way), memory=memory)


def engine_choices(request: Request) -> Iterator[EngineChoice]:
    """Every width of a rollout engine that a node (or whole nodes, where wanted) can hold, whether it fits or not."""
    return _choices(request.model, request, "rollout")


def engine_of(request: Request, width: int) -> EngineChoice:
    """A rollout engine of ``width`` GPUs, whether it fits or not."""
    return _choice(request, "rollout", width)


def teacher_choices(request: Request) -> Iterator[EngineChoice]:
    """The same of a teacher."""
    assert request.teacher is not None, "distillation has a teacher"
    return _choices(request.teacher, request, "teacher")


def _choices(model: Architecture, request: Request, role: Literal["rollout", "teacher"]) -> Iterator[EngineChoice]:
    """Widths beyond the key-value heads copy them and so waste cache: they come only where nothing narrower fits."""
    nothing_fits = True
    for width in TENSOR_PARALLEL:
        if not (_has_room(request, width) and _heads_divide(model, width)):
            continue
        if _copies_heads(model, width) and not nothing_fits:
            return
        choice = _choice(request, role, width)
        nothing_fits = nothing_fits and choice.memory.verdict == "no"
        yield choice


def _has_room(request: Request, width: int) -> bool:
    if width <= request.gpus_per_node:
        return True
    return request.means.wide_engines and width % request.gpus_per_node == 0 and width <= request.total_gpus


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
    # fewer key heads than GPUs are copied, so that either number may divide the other; latent attention has none
    small, large = sorted((width, model.kv_heads))
    return model.heads % width == 0 and (model.latent is not None or large % max(1, small) == 0)


def _copies_heads(model: Architecture, width: int) -> bool:
    return model.latent is None and width > model.kv_heads


def engines_beside(request: Request, gpus: tuple[int, ...], width: int) -> int:
    """Engines of ``width`` that have room beside learner bundles of ``gpus``; no more than there are prompts."""
    rest = [request.gpus_per_node - bundle for bundle in gpus]
    rest += [request.gpus_per_node] * (request.nodes - len(gpus))
    if width > request.gpus_per_node:
        return min(request.prompts, rest.count(request.gpus_per_node) // (width // request.gpus_per_node))
    return min(request.prompts, sum(free // width for free in rest))
