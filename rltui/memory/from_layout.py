"""A layout's roles in the words of the estimate: sharding, states, workload and engine settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from rltui.hardware.models import stored_bytes
from rltui.layout.roles import (
    SERVED,
    RewardModel,
    Rollout,
    Served,
    accumulates_in_float32,
    effective_stage,
    has_8_bit_moments,
)
from rltui.memory import settings as s
from rltui.memory.engine import (
    TEACHER_BATCHED_TOKENS,
    estimate_engine,
    estimate_transformers_classifier,
    estimate_transformers_engine,
    estimate_transformers_scorer,
    prompt_logits_gib,
    vllm_batching,
)
from rltui.memory.estimate import GIB, EngineEstimate
from rltui.memory.recipes import RECIPES
from rltui.memory.states import DEFERRED_GRADIENT, slice_of

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu
    from rltui.layout.schema import Critic, Layout, Learner

ENGINE_SEQUENCES = 256
"""Sequences that an engine of the trainers runs at once."""

TRANSFORMERS_SEQUENCES = 512
"""Sequences that the trainers' transformers engine samples at once, unless ``max_concurrency`` says otherwise."""

SYNC_BUCKET_GIB = 1.0
"""Buckets in which the trainers send weights: two of half of it, one filling while one travels."""

ITEM_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
FP8_BYTES = 1.0


class Training(Struct, frozen=True, kw_only=True):
    """What ``estimate_training`` is told of a learner or critic."""

    sharding: s.Sharding
    workload: s.Workload
    states: s.States
    adapter: s.Adapter | None = None
    sync: s.WeightSync | None = None
    freeze_vision: bool = False


def states_of(role: Learner | Critic, system: str = "rltui") -> s.States:
    """Bytes of a parameter that DeepSpeed holds; without ZeRO, float32 needs no master weights.

    Trainers of another ``system`` hold what its recipe says.

    8-bit Adam (Dettmers et al. 2022) has moments of a byte each, and DeepSpeed keeps its float32 master weights beside.
    Where gradients are float32 already, ZeRO-3 still copies those that it steps with into one tensor.
    """
    if system != "rltui":
        return RECIPES[system].states
    states = s.DEEPSPEED_BF16
    if accumulates_in_float32(role):
        states = s.DEEPSPEED_BF16_FP32_GRADIENTS
        states = structs.replace(states, step_copy=4.0) if role.zero_stage == 3 else states
    if role.precision == "fp32":
        states = s.DEEPSPEED_FP32 if role.zero_stage else s.FP32
    if has_8_bit_moments(role):
        return structs.replace(states, moments=2.0, step_temporary=0.0)
    return states


def sharding_of(layout: Layout, name: str) -> s.Sharding:
    """How the learner or critic called ``name`` is divided over its GPUs or its pool's."""
    role: Learner | Critic = getattr(layout.roles, name)
    recipe, cut = RECIPES[layout.system], layout.cut_of(role)
    return s.Sharding(
        gpus=max(1, layout.slots_of(name)),
        backend=recipe.backend,
        zero_stage=effective_stage(role),
        trains_on_card=recipe.trains_on_card,
        tensor_parallel=getattr(cut, "tensor_parallel", 1),
        context_parallel=getattr(cut, "sequence_parallel", 1),
        pipeline_parallel=getattr(cut, "pipeline_parallel", 1),
        expert_parallel=getattr(cut, "expert_parallel", 1),
        hpz=max(1, getattr(role, "hpz_partition", 1)),
        offload="" if role.offload == "none" else role.offload,
        buckets_by_width=layout.system == "rltui",
    )


def workload_of(layout: Layout, name: str) -> s.Workload:
    """What a rank of ``name`` passes through its model at once.

    Samples are padded to the longest of their micro-batch; the worst is that all are longest. Packed rows hold
    ``lengths.pack`` tokens without a mask, all of which may be responses but for one prompt. Rows that GPUs share the
    tokens of are packed as well.
    """
    role: Learner | Critic = getattr(layout.roles, name)
    lengths, split = layout.lengths, sharding_of(layout, name)
    # ranks that share a sequence have the same samples
    ranks = max(1, split.replicas // split.context_parallel)
    samples = max(1, -(-layout.train.samples_per_step // (layout.train.optimizer_steps * ranks)))
    length = lengths.prompt + lengths.response
    available = -(-samples * length // lengths.pack) if lengths.pack else samples
    rows = min(available, role.micro_batch or available)
    recipe = RECIPES[layout.system]
    head = recipe.head if getattr(role, "chunked_logits", True) else "full"
    return s.Workload(
        tokens=rows * (lengths.pack or length),
        head_tokens=rows * (lengths.pack or lengths.response),
        sequences=rows,
        checkpointing="full" if role.gradient_checkpointing else "none",
        kernels=recipe.kernels,
        head="none" if name == "critic" else head,
        delta_rule="torch" if layout.system == "rltui" else "fused",  # the trainers do without its kernels
        mask=not lengths.pack and split.context_parallel == 1,
        pipeline_micro_batches=-(-available // rows) if split.pipeline_parallel > 1 else 0,
    )


def learner_training(layout: Layout) -> Training:
    """How the layout's learner trains: its states, sharding and kernels, as an estimate takes them."""
    learner, states = layout.roles.learner, states_of(layout.roles.learner, layout.system)
    own, adapter = layout.system == "rltui", None
    item = ITEM_BYTES[learner.precision] if own else RECIPES[layout.system].base_bytes
    if learner.lora_rank:
        targets: Literal["peft", "linear"] = "peft" if own else "linear"
        adapter = s.Adapter(rank=learner.lora_rank, targets=targets, base_bytes=item, states=states)
    return Training(
        sharding=sharding_of(layout, "learner"),
        workload=workload_of(layout, "learner"),
        states=states,
        freeze_vision=learner.freeze_vision,
        adapter=adapter,
        sync=s.WeightSync(
            gather="whole" if learner.gather_whole_model else "layer",
            bucket_gib=SYNC_BUCKET_GIB,
            item_bytes=ITEM_BYTES[layout.roles.rollout.precision],
        ),
    )


def deferred_gradients_gib(layout: Layout, model: Architecture) -> float:
    """GiB more of each learner GPU where gradients are reduced with a step's last micro-batch alone.

    verl does so since July 2026 (its pull request 7095), scripts say no version: 0 for other systems, under adapters,
    and where a step has one micro-batch.
    """
    learner, train = layout.roles.learner, layout.train
    told = learner_training(layout)
    ranks = max(1, told.sharding.replicas // told.sharding.context_parallel)
    rows = -(-train.samples_per_step // (train.optimizer_steps * ranks))
    several = 0 < learner.micro_batch < rows
    if not layout.system.startswith("verl") or told.adapter is not None or not several:
        return 0.0
    part = slice_of(model, told.sharding)
    # the shard of gradients is counted already, and whole ones come in its place
    return (part.whole * DEFERRED_GRADIENT - part.shard * told.states.gradients) / GIB


def critic_training(layout: Layout, critic: Critic) -> Training:
    """The critic: a second trained model, with a head of one number and nobody to send weights to."""
    return Training(
        sharding=sharding_of(layout, "critic"),
        workload=workload_of(layout, "critic"),
        states=states_of(critic, layout.system),
    )


def reference_training(layout: Layout, precision: str) -> Training:
    """The frozen reference as weights alone, divided over its GPUs or not, that pass the learner's batches."""
    item = ITEM_BYTES[precision]
    return Training(
        sharding=s.Sharding(
            gpus=layout.slots_of("reference") if "reference" in layout.divided else 1,
            backend=RECIPES[layout.system].backend,
            zero_stage=3,
        ),
        workload=workload_of(layout, "learner"),
        states=s.States(weights=item, gradients=0.0, compute=item),
    )


def rollout_engine(layout: Layout, model: Architecture, gpu: Gpu | None) -> EngineEstimate:
    """One GPU of a rollout engine, with the settings that the trainers give vLLM."""
    rollout, lengths = layout.roles.rollout, layout.lengths
    if rollout.engine != "hf":
        return _vllm(layout, rollout, model, gpu, "rollout")
    return estimate_transformers_engine(
        model,
        sequences=rollout_sequences(layout),
        max_model_len=lengths.prompt + lengths.response,
        item_bytes=ITEM_BYTES[rollout.precision],
    )


def rollout_sequences(layout: Layout) -> int:
    """Most samples that an engine by transformers works on at once: whole groups, or a part of one that is larger."""
    group, limit = layout.train.samples_per_prompt, layout.roles.rollout.max_concurrency or TRANSFORMERS_SEQUENCES
    share = -(-layout.train.prompts_per_step // max(1, layout.num_engines))
    return min(share, max(1, limit // group)) * min(group, limit)


def longest_of(layout: Layout, name: str) -> int:
    """Tokens of the longest sequence that an engine of a role takes."""
    own: int = getattr(getattr(layout.roles, name), "context", 0)
    return own or layout.lengths.prompt + layout.lengths.response


def judge_sequences(layout: Layout) -> int:
    """Most questions that a judge by transformers works on at once."""
    role = layout.roles.judge
    assert role is not None
    return min(role.max_concurrency or ENGINE_SEQUENCES, -(-layout.train.samples_per_step // role.engines))


def served_engine(layout: Layout, name: str, model: Architecture, gpu: Gpu | None) -> EngineEstimate:
    """One GPU of a teacher's, judge's or reward model's engine.

    With transformers, as many samples pass through a teacher at once as through the learner, and a judge samples.
    """
    role: Served | RewardModel = getattr(layout.roles, name)
    length, item = longest_of(layout, name), ITEM_BYTES[role.precision]
    if isinstance(role, RewardModel):
        rows = min(role.micro_batch, -(-layout.train.samples_per_step // role.engines))
        divided = role.engines if name in layout.divided else 1
        return estimate_transformers_classifier(
            model, rows=rows, max_model_len=length, item_bytes=item, role=name, gpus=divided
        )
    if role.engine == "hf" and name == "judge":
        return estimate_transformers_engine(
            model, sequences=judge_sequences(layout), max_model_len=length, item_bytes=item, role=name
        )
    if role.engine == "hf":
        share = -(-layout.train.samples_per_step // role.engines)
        rows = min(share, layout.roles.learner.micro_batch or share)
        return estimate_transformers_scorer(model, rows=rows, max_model_len=length, item_bytes=item)
    found = _vllm(layout, role, model, gpu, name)
    tokens = min(TEACHER_BATCHED_TOKENS, length)
    hidden = tokens * model.hidden * item / GIB
    return structs.replace(found, scoring_gib=prompt_logits_gib(model, tokens, item) + hidden)


def number_bytes(role: Rollout | Served, key: str, usual: float) -> float:
    """Bytes of a number that ``key`` of an engine's role may have in fp8; ``usual`` where it does not."""
    return FP8_BYTES if isinstance(role, Rollout) and key in role.fp8_keys else usual


def _vllm(layout: Layout, role: Rollout | Served, model: Architecture, gpu: Gpu | None, name: str) -> EngineEstimate:
    item = ITEM_BYTES[role.precision]
    # Teachers and judges serve their checkpoint as it is stored; rollouts serve what the learner sends.
    is_served = name in SERVED
    stored = stored_bytes(getattr(layout.roles, name).model) if is_served else None
    layers, experts = stored or (number_bytes(role, "quantization", item),) * 2
    settings = s.EngineSettings(
        tensor_parallel=role.tensor_parallel,
        memory_utilization=role.memory_utilization,
        max_model_len=longest_of(layout, name),
        max_num_seqs=getattr(role, "max_concurrency", 0) or ENGINE_SEQUENCES,
        max_num_batched_tokens=TEACHER_BATCHED_TOKENS if is_served else vllm_batching(gpu, server=False).tokens,
        concurrent_batches=2,  # vLLM schedules one step ahead
        weight_bytes=layers,
        expert_weight_bytes=experts,
        kv_bytes=number_bytes(role, "kv_cache_dtype", item),
        graphs=not getattr(role, "enforce_eager", False),
        prefix_caching=name != "teacher",
    )
    return estimate_engine(model, settings, gpu.usable_gib if gpu else None, name)
