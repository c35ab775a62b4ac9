"""The estimate of a whole layout: each role on its cards, and the host memory of the fullest node."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.hardware.gpus import find_gpu, nearest_gpus
from rltui.hardware.models import find_model, nearest_models
from rltui.hardware.parameters import count_parameters
from rltui.layout.roles import SERVED, RewardModel, Served
from rltui.layout.scalars import UNNAMED_GPU
from rltui.memory.estimate import (
    CUDA_CONTEXT_GIB,
    GIB,
    Doubt,
    EngineEstimate,
    HostEstimate,
    LayoutEstimate,
    Moment,
    RoleEstimate,
)
from rltui.memory.from_layout import (
    SYNC_BUCKET_GIB,
    Training,
    critic_training,
    deferred_gradients_gib,
    judge_sequences,
    learner_training,
    longest_of,
    reference_training,
    rollout_engine,
    rollout_sequences,
    served_engine,
    sharding_of,
    states_of,
)
from rltui.memory.host import PROCESS_GIB, SHM_PER_PROCESS_GIB, checkpoint_gib, estimate_host
from rltui.memory.knobs import engine_knob
from rltui.memory.sharing import ColocatedRole, share
from rltui.memory.training import OTHERS_ERROR, estimate_training

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture
    from rltui.layout.schema import Layout, Rollout
    from rltui.placement.result import Placement, RoleInstance

LEAST_NAMED_GIB = 0.1
"""Less is not worth a note."""

ENGINE_ERROR = 0.05
"""KV tokens of logged engines lie within this share of the estimate where activations had to be estimated."""


def estimate_layout(layout: Layout) -> LayoutEstimate:
    """Estimate the memory of every role of ``layout``, on the card it names, with all that share its GPUs.

    Raises:
        UsageError: A model is a local folder whose config.json cannot be read.
    """
    from rltui.placement.simulate import place

    found = estimate_roles(layout)
    if not found.roles:
        return found
    return structs.replace(found, host=host_of(layout, place(layout)))


def estimate_roles(layout: Layout) -> LayoutEstimate:
    """The same without host memory, for which the layout must be placed.

    Raises:
        UsageError: A model is a local folder whose config.json cannot be read.
    """
    model = find_model(layout.roles.learner.model)
    checkpoint = _checkpoint_gib(layout, model)
    if layout.hardware.on_cpu:
        note = "This layout runs on CPU slots: there is no card to fill."
        unknown = () if model else (_unknown_model(layout.roles.learner.model),)
        return LayoutEstimate(checkpoint_gib=checkpoint, notes=(note, *unknown))
    models = {"learner": model, "rollout": model, **_other_models(layout, model)}
    known = {name: found for name, found in models.items() if found is not None}
    doubtful = {_site(layout, name) for name, found in models.items() if found is None}
    colocated = list(_colocated_roles(layout, known))
    shared = zip(colocated, share(colocated, SYNC_BUCKET_GIB), strict=True)
    return LayoutEstimate(
        roles=tuple(_unjudged(role) if alone.site in doubtful else role for alone, role in shared),
        engines=tuple(role.engine for role in colocated if role.engine is not None),
        checkpoint_gib=checkpoint,
        models=tuple((name, _in_words(found)) for name, found in known.items() if name == "learner" or found != model),
        notes=tuple(_notes(layout, models)),
    )


def _in_words(model: Architecture) -> str:
    """What a model is and weighs: cards hold every expert, whichever a token visits."""
    count = count_parameters(model)
    visited = f" ({count.active / 1e9:.1f} B a token)" if model.experts is not None else ""
    size = f"{2 * count.total / GIB:.1f} GiB in 16 bits"
    return f"{model.name}: {count.total / 1e9:.1f} B parameters{visited}, {size}"


def layout_checkpoint_gib(layout: Layout) -> float | None:
    """One checkpoint on disk: what the policy and a critic train; None where one of them is not known.

    Raises:
        UsageError: A model is a local folder whose config.json cannot be read.
    """
    return _checkpoint_gib(layout, find_model(layout.roles.learner.model))


def _checkpoint_gib(layout: Layout, model: Architecture | None) -> float | None:
    critic = layout.roles.critic
    if model is None:
        return None
    training = learner_training(layout)
    size = checkpoint_gib(model, training.states, training.adapter, freeze_vision=training.freeze_vision)
    if critic is None:
        return size
    value = find_model(critic.model) if critic.model else model
    return None if value is None else size + checkpoint_gib(value, states_of(critic, layout.system))


def host_of(layout: Layout, placement: Placement, nodes: range | None = None) -> HostEstimate | None:
    """Host memory of the fullest node, of all or of ``nodes``; None where the learner's model is not known.

    Raises:
        UsageError: A model is a local folder whose config.json cannot be read.
    """
    model = find_model(layout.roles.learner.model)
    if model is None:
        return None
    instances = [one for one in placement.instances if nodes is None or one.node in nodes]
    return fullest_node(layout, model, _other_models(layout, model).get("critic"), instances)


def _other_models(layout: Layout, learner: Architecture | None) -> dict[str, Architecture | None]:
    roles = {name: getattr(layout.roles, name) for name in ("reference", "critic", *SERVED)}
    return {name: find_model(role.model) if role.model else learner for name, role in roles.items() if role is not None}


def _notes(layout: Layout, models: dict[str, Architecture | None]) -> Iterator[str]:
    for card in dict.fromkeys(part.gpu for part in layout.hardware.parts):
        if find_gpu(card) is None:
            yield _unknown_gpu(card)
    missing: dict[str, list[str]] = {}
    for name, model in models.items():
        if model is None:
            own = getattr(getattr(layout.roles, name), "model", "") or layout.roles.learner.model
            missing.setdefault(own, []).append(name)
    for own, names in missing.items():
        left_out = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        yield f"The {left_out} {'are' if len(names) > 1 else 'is'} left out. {_unknown_model(own)}"
    sites = {_site(layout, name) for name, model in models.items() if model is None}
    beside = [name for name, model in models.items() if model is not None and _site(layout, name) in sites]
    if beside:
        yield f"Whether {' and '.join(beside)} would fit beside that is not known."
    for found in {model.name: model for model in models.values() if model is not None}.values():
        if found.caveat:
            yield f"The shape of {found.name} is doubtful: {found.caveat}."
    learner = models["learner"]
    if learner is not None and (more := deferred_gradients_gib(layout, learner)) >= LEAST_NAMED_GIB:
        yield (
            f"verl since July 2026 keeps the gradients of a step's micro-batches whole until the last of them: "
            f"{more:.1f} GiB more on each learner GPU than is counted here."
        )
    if not layout.slots_of("learner"):
        yield "The learner has no GPUs: it is estimated as if it had one."


def _colocated_roles(layout: Layout, models: dict[str, Architecture]) -> Iterator[ColocatedRole]:
    """Every role as if it were alone on the card of its kind of node, in the order of the table."""
    roles = layout.roles
    cards = {name: find_gpu(layout.hardware_of(name).gpu) for name in models}
    capacities = {name: gpu.usable_gib if gpu else None for name, gpu in cards.items()}
    if "learner" in models:
        alone = _train(layout, models["learner"], learner_training(layout), "learner", capacities["learner"])
        yield ColocatedRole(site=_site(layout, "learner"), estimate=alone)
        engine = rollout_engine(layout, models["rollout"], cards["rollout"])
        yield _engine(layout, models["rollout"], roles.rollout, engine, capacities["rollout"])
    if roles.reference is not None and "reference" in models:
        alone = _frozen(layout, models["reference"], roles.reference.precision, capacities["reference"])
        yield ColocatedRole(site=_site(layout, "reference"), estimate=alone)
    if roles.critic is not None and "critic" in models:
        told = critic_training(layout, roles.critic)
        alone = _train(layout, models["critic"], told, "critic", capacities["critic"])
        yield ColocatedRole(site=_site(layout, "critic"), estimate=alone)
    for name in SERVED:
        served: Served | RewardModel | None = getattr(roles, name)
        if served is not None and name in models:
            engine = served_engine(layout, name, models[name], cards[name])
            yield _engine(layout, models[name], served, engine, capacities[name])


def _unjudged(role: RoleEstimate) -> RoleEstimate:
    """A role beside one of unknown size: whether it fits is known only where it does not."""
    return role if role.verdict == "no" else structs.replace(role, capacity_gib=None)


def _site(layout: Layout, role: str) -> str:
    """What names the GPUs of ``role``; reference and critic without a pool sit with the learner."""
    pool: str = getattr(layout.roles, role).pool
    if not pool and role in ("reference", "critic"):
        return _site(layout, "learner")
    return f"pool {pool}" if pool else role


def _train(layout: Layout, model: Architecture, told: Training, role: str, capacity_gib: float | None) -> RoleEstimate:
    found = estimate_training(
        model,
        told.sharding,
        told.workload,
        told.states,
        adapter=told.adapter,
        sync=told.sync,
        log_probs=True,
        freeze_vision=told.freeze_vision,
        capacity_gib=capacity_gib,
        role=role,
    )
    # what was imported from a system without a recipe of its own is trained by code that nobody measured here
    strange = layout.unsure and layout.system == "rltui"
    error = found.error.or_more(OTHERS_ERROR) if strange else found.error
    word = found.knob.replace("roles.learner.", f"roles.{role}.")
    # a critic has no words for how Megatron cuts it
    known = hasattr(getattr(layout.roles, role, None), word.partition("=")[0].rpartition(".")[2])
    return structs.replace(found, knob=word if known else "", error=error)


def _frozen(layout: Layout, model: Architecture, precision: str, capacity_gib: float | None) -> RoleEstimate:
    """The reference: its weights, and the forward pass of its log-probs.

    It has a context where it has GPUs of its own; beside others the figure is that of one more process.
    """
    told = reference_training(layout, precision)
    found = _train(layout, model, told, "reference", capacity_gib)
    moments = tuple(moment for moment in found.moments if moment.moment in ("load", "log-probs"))
    rows, reason = told.workload.sequences, "all rows of a micro-batch pass at once"
    knob = f"roles.learner.micro_batch={rows // 2}" if rows > 1 else ""
    if layout.slots_of("reference") > 1 and "reference" not in layout.divided:
        knob, reason = "roles.reference.zero_stage=3", "each of its GPUs has the whole model"
    return structs.replace(found, moments=moments, knob=knob, reason=reason)


def _engine(
    layout: Layout,
    model: Architecture,
    role: Rollout | Served | RewardModel,
    engine: EngineEstimate,
    capacity_gib: float | None,
) -> ColocatedRole:
    """An engine's moments on one GPU, and whether one sequence of full length fits at all."""
    context = {"context": engine.non_torch_gib or CUDA_CONTEXT_GIB, "weights": engine.weights_gib}
    working = {"activation": engine.activation_gib, "graphs": engine.graphs_gib, "kv": max(0.0, engine.kv_gib or 0.0)}
    running = {**context, **working}
    moments = [Moment(moment="load", parts_gib=context), Moment(moment="generate", parts_gib=running)]
    if engine.scoring_gib:
        scoring = {**running, "activation": 0.0, "logits": engine.scoring_gib}
        moments.append(Moment(moment="log-probs", parts_gib=scoring))
    if engine.role == "rollout":
        synced = {**running, "bucket": SYNC_BUCKET_GIB, "activation": 0.0}
        moments.append(Moment(moment="weight sync", parts_gib=synced))
    blocked = _blocked(role, engine, longest_of(layout, engine.role))
    engines = layout.num_engines if engine.role == "rollout" else layout.slots_of(engine.role) // role.tensor_parallel
    estimate = RoleEstimate(
        role=engine.role,
        gpus=engines * role.tensor_parallel,
        capacity_gib=capacity_gib,
        moments=tuple(moments),
        error=Doubt(ENGINE_ERROR, ENGINE_ERROR),
        knob=_engine_knob(layout, model, role, engine.role, blocked=bool(blocked)),
        reason=blocked or _largest(engine),
        blocked=blocked,
    )
    return ColocatedRole(
        site=_site(layout, engine.role),
        estimate=estimate,
        engine=engine,
        sleeps=getattr(role, "sleep_while_training", False),
        utilization=role.memory_utilization,
    )


def _largest(engine: EngineEstimate) -> str:
    if engine.kv_gib is not None and not engine.kv_gib:
        return f"{engine.activation_gib:.1f} GiB are logits and activations of all samples that pass at once"
    return f"{engine.kv_gib or 0.0:.1f} GiB are KV cache"


def _engine_knob(
    layout: Layout, model: Architecture, role: Rollout | Served | RewardModel, name: str, *, blocked: bool
) -> str:
    if isinstance(role, RewardModel):
        if role.engines > 1 and not role.zero_stage:
            return "roles.reward_model.zero_stage=3"
        return f"roles.reward_model.micro_batch={role.micro_batch // 2}" if role.micro_batch > 1 else ""
    if role.engine == "hf" and name == "judge":
        return f"roles.judge.max_concurrency={max(1, judge_sequences(layout) // 2)}"
    if role.engine == "hf" and name == "teacher":
        rows = layout.roles.learner.micro_batch or layout.train.samples_per_step
        return f"roles.learner.micro_batch={rows // 2}" if rows > 1 else ""
    if role.engine == "hf":
        sequences = rollout_sequences(layout)
        return f"roles.rollout.max_concurrency={sequences // 2}" if sequences > 1 else ""
    if not blocked:
        return f"roles.{name}.memory_utilization=0.9" if role.memory_utilization > 0.9 else ""
    gpus = layout.hardware_of(name).gpus_per_node
    knob = engine_knob(model, role.tensor_parallel, gpus, role.memory_utilization, shared=bool(role.pool))
    return knob.replace("roles.rollout.", f"roles.{name}.")


def _blocked(role: Rollout | Served | RewardModel, engine: EngineEstimate, length: int) -> str:
    if engine.kv_gib is None or engine.max_concurrency is None or engine.budget_gib is None:
        return ""
    if engine.kv_gib <= 0:
        return (
            f"weights and activations take {engine.budget_gib - engine.kv_gib:.1f} GiB, more than the "
            f"{engine.budget_gib:.1f} GiB that memory_utilization={role.memory_utilization:g} allows"
        )
    if engine.max_concurrency < 1:
        return f"the KV cache of {engine.kv_gib:.1f} GiB holds {engine.kv_tokens} tokens, not one sequence of {length}"
    return ""


def _unknown_model(name: str) -> str:
    near = nearest_models(name)
    hint = f"; the nearest known are {', '.join(near)}" if near else ""
    return f"The architecture of {name!r} is not known{hint}. A local folder with a config.json is read."


def _unknown_gpu(name: str) -> str:
    if name == UNNAMED_GPU:
        return "No card is named, so nothing is said about what fits: hardware.gpu=H100-SXM-80GB would name one."
    near = nearest_gpus(name)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    return f"The card {name!r} is not known, so nothing is said about what fits{hint}"


def fullest_node(
    layout: Layout, model: Architecture, critic: Architecture | None, instances: Iterable[RoleInstance]
) -> HostEstimate:
    """Host memory of the node that needs most.

    Args:
        layout: The layout.
        model: The learner's model, which the engines serve too.
        critic: The critic's; None: there is none, or it is not known.
        instances: Where the placement puts every role.
    """
    found = [_node(layout, model, critic, Counter(dict(node))) for node in _distinct_nodes(instances)]
    return max(found, key=lambda host: host.ram_gib)


def _distinct_nodes(instances: Iterable[RoleInstance]) -> set[tuple[tuple[str, int], ...]]:
    """Processes of each role by node, equal nodes once; an empty node where nothing finds a place."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for one in instances:
        node = counts[one.node]
        node[f"{one.role} instances"] += 1
        node[one.role] += len(one.slots)
    return {tuple(sorted(node.items())) for node in counts.values()} or {()}


def _node(layout: Layout, model: Architecture, critic: Architecture | None, node: Counter[str]) -> HostEstimate:
    training = learner_training(layout)
    host = estimate_host(
        model,
        training.sharding,
        training.states,
        learners=node["learner"],
        engines=node["engine instances"],
        engine_gpus=node["engine"] + sum(node[role] for role in SERVED),
        # vLLM drops its weights (level 2: the learner sends them again); transformers moves them to host memory
        sleeping=layout.roles.rollout.sleep_while_training and layout.roles.rollout.engine == "hf",
        adapter=training.adapter,
        freeze_vision=training.freeze_vision,
    )
    role, ranks = layout.roles.critic, node["critic"]
    if critic is None or role is None:
        return host
    more = estimate_host(
        critic, sharding_of(layout, "critic"), states_of(role, layout.system), learners=ranks
    ).ram_parts_gib
    parts = dict(host.ram_parts_gib)
    parts["processes"] += PROCESS_GIB * ranks
    for name in ("loading", "offload"):
        if name in more:
            parts[name] = parts.get(name, 0.0) + more[name]
    return structs.replace(host, ram_parts_gib=parts, shm_gib=host.shm_gib + SHM_PER_PROCESS_GIB * ranks)
