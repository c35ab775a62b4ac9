"""The estimate of a whole layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rltui.hardware.gpus import find_gpu, nearest_gpus
from rltui.hardware.models import find_model, nearest_models
from rltui.memory import settings as s
from rltui.memory.engine import estimate_engine, estimate_transformers_engine, vllm_batching
from rltui.memory.estimate import CUDA_CONTEXT_GIB, EngineEstimate, Moment, RoleEstimate
from rltui.memory.host import HostEstimate, checkpoint_gib, estimate_host
from rltui.memory.knobs import engine_knob
from rltui.memory.training import estimate_training

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu
    from rltui.layout.schema import Layout, Learner, Rollout

SCHEMA = 1

ENGINE_ERROR = 0.05
"""KV tokens of logged engines lie within this share of the estimate where activations had to be estimated."""

ENGINE_SEQUENCES = 256
"""Sequences that an engine of the trainers runs at once."""

TRANSFORMERS_SEQUENCES = 512
"""Sequences that the trainers' transformers engine samples at once."""

SYNC_BUCKET_GIB = 1.0
"""Bucket in which the trainers send weights."""

ITEM_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


class LayoutEstimate(Struct, frozen=True, kw_only=True):
    """Memory of all roles of a layout.

    Attributes:
        roles: One estimate a role; empty where nothing can be said.
        engines: What each engine's GPUs hold.
        host: The fullest node's host memory; None where nothing can be said.
        checkpoint_gib: One checkpoint on disk; None where the model is not known.
        notes: What is not known, and what the nearest known is.
    """

    roles: tuple[RoleEstimate, ...] = ()
    engines: tuple[EngineEstimate, ...] = ()
    host: HostEstimate | None = None
    checkpoint_gib: float | None = None
    notes: tuple[str, ...] = ()

    def role(self, name: str) -> RoleEstimate | None:
        """The estimate of the role called ``name``."""
        return next((role for role in self.roles if role.role == name), None)


def estimate_layout(layout: Layout) -> LayoutEstimate:
    """Estimate the memory of every role of ``layout``, on the card it names.

    Raises:
        UsageError: The learner's model is a local folder whose config.json cannot be read.
    """
    model = find_model(layout.roles.learner.model)
    if model is None:
        return LayoutEstimate(notes=(_unknown_model(layout.roles.learner.model),))
    checkpoint = checkpoint_gib(model, states_of(layout.roles.learner))
    if layout.pools:
        return LayoutEstimate(checkpoint_gib=checkpoint, notes=("Roles that share a pool are not estimated yet.",))
    if layout.hardware.on_cpu:
        note = "This layout runs on CPU slots: there is no card to fill."
        return LayoutEstimate(checkpoint_gib=checkpoint, notes=(note,))
    gpu = find_gpu(layout.hardware.gpu)
    engine = engine_of(layout, model, gpu)
    roles = (learner_of(layout, model, gpu), rollout_of(layout, model, gpu, engine))
    notes = _notes(layout, model, gpu)
    return LayoutEstimate(
        roles=roles, engines=(engine,), host=_host(layout, model), checkpoint_gib=checkpoint, notes=notes
    )


def states_of(learner: Learner) -> s.States:
    """Bytes of a parameter that the learner's DeepSpeed holds; without ZeRO, float32 needs no master weights."""
    if learner.precision != "fp32":
        return s.DEEPSPEED_BF16
    return s.DEEPSPEED_FP32 if learner.zero_stage else s.FP32


def _notes(layout: Layout, model: Architecture, gpu: Gpu | None) -> tuple[str, ...]:
    notes = [] if gpu else [_unknown_gpu(layout.hardware.gpu)]
    if model.caveat:
        notes.append(f"The shape of {model.name} is doubtful: {model.caveat}.")
    return tuple(notes)


def learner_of(layout: Layout, model: Architecture, gpu: Gpu | None) -> RoleEstimate:
    """Estimate the learner. The trainers pad a micro-batch to its longest sample; the worst is that all are longest."""
    learner, lengths = layout.roles.learner, layout.lengths
    states = states_of(learner)
    samples = max(1, layout.train.samples_per_step // learner.num_learners)
    rows = min(samples, learner.micro_batch or samples)
    workload = s.Workload(
        tokens=rows * (lengths.prompt + lengths.response),
        head_tokens=rows * lengths.response,
        sequences=rows,
        checkpointing="full" if learner.gradient_checkpointing else "none",
        kernels="eager",
        head="streamed",
        mask=True,
    )
    return estimate_training(
        model,
        s.Sharding(gpus=learner.num_learners, backend="deepspeed", zero_stage=learner.zero_stage),
        workload,
        states,
        sync=s.WeightSync(bucket_gib=SYNC_BUCKET_GIB, item_bytes=ITEM_BYTES[layout.roles.rollout.precision]),
        log_probs=True,
        capacity_gib=gpu.usable_gib if gpu else None,
    )


def engine_of(layout: Layout, model: Architecture, gpu: Gpu | None) -> EngineEstimate:
    """Estimate one GPU of an engine, with the settings that the trainers give vLLM."""
    rollout, lengths = layout.roles.rollout, layout.lengths
    item = ITEM_BYTES[rollout.precision]
    if rollout.engine == "hf":
        group = layout.train.samples_per_prompt
        prompts = min(-(-layout.train.prompts_per_step // rollout.engines), max(1, TRANSFORMERS_SEQUENCES // group))
        return estimate_transformers_engine(
            model, sequences=prompts * group, max_model_len=lengths.prompt + lengths.response, item_bytes=item
        )
    settings = s.EngineSettings(
        tensor_parallel=rollout.tensor_parallel,
        memory_utilization=rollout.memory_utilization,
        max_model_len=lengths.prompt + lengths.response,
        max_num_seqs=ENGINE_SEQUENCES,
        max_num_batched_tokens=vllm_batching(gpu, server=False).tokens,
        concurrent_batches=2,  # vLLM schedules one step ahead
        weight_bytes=item,
        kv_bytes=item,
    )
    return estimate_engine(model, settings, gpu.usable_gib if gpu else None)


def rollout_of(layout: Layout, model: Architecture, gpu: Gpu | None, engine: EngineEstimate) -> RoleEstimate:
    """The engines' moments on one GPU, and whether one sequence of full length fits at all."""
    rollout = layout.roles.rollout
    context = {"context": engine.non_torch_gib or CUDA_CONTEXT_GIB, "weights": engine.weights_gib}
    working = {"activation": engine.activation_gib, "graphs": engine.graphs_gib, "kv": max(0.0, engine.kv_gib or 0.0)}
    running = {**context, **working}
    moments = (
        Moment(moment="load", parts_gib=context),
        Moment(moment="generate", parts_gib=running),
        Moment(moment="weight sync", parts_gib={**running, "bucket": SYNC_BUCKET_GIB, "activation": 0.0}),
    )
    blocked = _blocked(rollout, engine, layout.lengths.prompt + layout.lengths.response)
    return RoleEstimate(
        role="rollout",
        gpus=rollout.engines * rollout.tensor_parallel,
        capacity_gib=gpu.usable_gib if gpu else None,
        moments=moments,
        error=ENGINE_ERROR,
        knob=_rollout_knob(layout, model, blocked=bool(blocked)),
        reason=blocked or f"{engine.kv_gib or 0.0:.1f} GiB are KV cache",
        blocked=blocked,
    )


def _rollout_knob(layout: Layout, model: Architecture, *, blocked: bool) -> str:
    rollout = layout.roles.rollout
    if rollout.engine == "hf":
        return f"roles.rollout.engines={2 * rollout.engines}"
    if not blocked:
        return "roles.rollout.memory_utilization=0.9"
    most = layout.hardware.gpus_per_node
    return engine_knob(model, rollout.tensor_parallel, most, rollout.memory_utilization, shared=False)


def _blocked(rollout: Rollout, engine: EngineEstimate, length: int) -> str:
    if engine.kv_gib is None or engine.max_concurrency is None or engine.budget_gib is None:
        return ""
    if engine.kv_gib <= 0:
        return (
            f"weights and activations take {engine.budget_gib - engine.kv_gib:.1f} GiB, more than the "
            f"{engine.budget_gib:.1f} GiB that memory_utilization={rollout.memory_utilization:g} allows"
        )
    if engine.max_concurrency < 1:
        return f"the KV cache of {engine.kv_gib:.1f} GiB holds {engine.kv_tokens} tokens, not one sequence of {length}"
    return ""


def _host(layout: Layout, model: Architecture) -> HostEstimate:
    learner, rollout = layout.roles.learner, layout.roles.rollout
    free = layout.hardware.gpus_per_node - min(learner.gpus)
    engines = max(0, min(rollout.engines, free // rollout.tensor_parallel))
    return estimate_host(
        model,
        s.Sharding(gpus=learner.num_learners, zero_stage=learner.zero_stage),
        states_of(learner),
        learners=max(learner.gpus),
        engines=engines,
        engine_gpus=engines * rollout.tensor_parallel,
    )


def _unknown_model(name: str) -> str:
    near = nearest_models(name)
    hint = f"; the nearest known are {', '.join(near)}" if near else ""
    return f"The architecture of {name!r} is not known{hint}. A local folder with a config.json is read."


def _unknown_gpu(name: str) -> str:
    near = nearest_gpus(name)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"The card {name!r} is not known, so nothing is said about what fits{hint}"


def as_json(estimate: LayoutEstimate) -> dict[str, Any]:
    """The estimate as builtins, in the form that ``rltui mem --json`` prints."""
    return {
        "schema": SCHEMA,
        "roles": [_role_json(role) for role in estimate.roles],
        "engines": [_engine_json(engine) for engine in estimate.engines],
        "host": None if estimate.host is None else _host_json(estimate.host),
        "checkpoint_gib": None if estimate.checkpoint_gib is None else round(estimate.checkpoint_gib, 3),
        "notes": list(estimate.notes),
    }


def _rounded(parts: dict[str, float]) -> dict[str, float]:
    return {name: round(size, 3) for name, size in parts.items()}


def _role_json(role: RoleEstimate) -> dict[str, Any]:
    return {
        "role": role.role,
        "gpus": role.gpus,
        "capacity_gib": role.capacity_gib,
        "moments": [
            {"moment": m.moment, "total_gib": round(m.total_gib, 3), "parts_gib": _rounded(m.parts_gib)}
            for m in role.moments
        ],
        "peak_gib": round(role.peak_gib, 3),
        "peak_moment": role.peak.moment,
        "error": role.error,
        "verdict": role.verdict,
        "knob": role.knob,
        "reason": role.reason,
    }


def _engine_json(engine: EngineEstimate) -> dict[str, Any]:
    return {
        "role": engine.role,
        "weights_gib": round(engine.weights_gib, 3),
        "activation_gib": round(engine.activation_gib, 3),
        "kv_gib": None if engine.kv_gib is None else round(engine.kv_gib, 3),
        "kv_tokens": engine.kv_tokens,
        "max_concurrency": None if engine.max_concurrency is None else round(engine.max_concurrency, 2),
        "graphs_gib": round(engine.graphs_gib, 3),
        "non_torch_gib": round(engine.non_torch_gib, 3),
    }


def _host_json(host: HostEstimate) -> dict[str, Any]:
    return {"ram_gib": round(host.ram_gib, 3), "ram_parts_gib": _rounded(host.ram_parts_gib), "shm_gib": host.shm_gib}
