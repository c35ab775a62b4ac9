"""Memory rules: does every role fit its card at every moment, beside all that share it?

They read the estimate that `rltui mem` prints; an unknown card or model silences them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import structs

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.memory_fix import cure, cure_engine
from rltui.check.rules.placement import mem_gib_key, mem_gib_of, part_key
from rltui.errors import UsageError
from rltui.hardware.models import model_if_understood
from rltui.layout.roles import SERVED
from rltui.layout.schema import Layout
from rltui.memory.estimate import EngineEstimate, LayoutEstimate, RoleEstimate
from rltui.memory.from_layout import ENGINE_SEQUENCES
from rltui.memory.layouts import ENGINE_ERROR, estimate_roles, host_of
from rltui.memory.recipes import RECIPES

ENGINES = ("rollout", *SERVED)


def _estimate(subject: Subject) -> LayoutEstimate:
    """The estimate; an empty one on CPU slots, and where a local model cannot be read (M309 says so)."""
    if subject.layout.hardware.on_cpu:
        return LayoutEstimate()
    try:
        return estimate_roles(subject.layout)
    except UsageError:
        return LayoutEstimate()


def _shares(subject: Subject, role: RoleEstimate) -> bool:
    """Whether other roles are on the same GPUs."""
    pool = getattr(subject.layout.roles, role.role).pool
    return bool(pool) and sum(other.pool == pool for _, other in subject.roles()) > 1


def _room(role: RoleEstimate) -> str:
    return f"{role.peak_gib:.1f} GiB at {role.peak.moment}, of {role.capacity_gib:.1f} GiB that a card has"


def _in_doubt(subject: Subject, role: RoleEstimate) -> bool:
    """Whether another system's role is over its card by no more than the estimate may be off: that is no error."""
    if not subject.layout.unsure or role.verdict != "no":
        return False
    return min(_at_least_gib(role), _with_short_rows_gib(subject.layout, role.role)) <= (role.capacity_gib or 0.0)


def _at_least_gib(role: RoleEstimate) -> float:
    return role.peak_gib * (1 - role.error.below)


def _with_short_rows_gib(layout: Layout, name: str) -> float:
    """What a role takes at least where its rows are not padded: their tokens are then counted as of one full row."""
    trained = getattr(layout.roles, name)
    recipe = RECIPES.get(layout.system)
    if recipe is None or recipe.pads or name not in ("learner", "critic") or trained.micro_batch < 2:
        return math.inf
    one_row = structs.replace(layout.roles, **{name: structs.replace(trained, micro_batch=1)})
    found = estimate_roles(structs.replace(layout, roles=one_row)).role(name)
    return math.inf if found is None else _at_least_gib(found)


def _is_over(subject: Subject, role: RoleEstimate) -> bool:
    """Whether a role that could start is over its card, beyond doubt."""
    return role.verdict == "no" and not role.blocked and not _in_doubt(subject, role)


def _largest(role: RoleEstimate) -> str:
    name, size = max(role.peak.parts_gib.items(), key=lambda part: part[1])
    return f"{size:.1f} GiB are {name}"


@rule("M301", "error")
def does_not_fit(subject: Subject) -> Iterator[Trouble]:
    """A role needs more memory than its card has.

    The message names the moment of the peak, because each moment has its own lever: activations and logits shrink with
    the micro-batch and with gradient checkpointing, weights, gradients and optimizer with a higher ZeRO stage or more
    learner GPUs, the weight sync with gathering layer by layer. A smaller batch does not touch 16 bytes a parameter.
    `rltui mem` shows all moments and what they are made of.
    """
    for role in _estimate(subject).roles:
        if _is_over(subject, role) and not (role.role in ENGINES and _shares(subject, role)):
            yield Trouble(
                f"{role.role} needs {_room(role)}: {role.reason or _largest(role)}",
                f"roles.{role.role}",
                cure(subject.layout, role.role, ("fits", "tight")),
            )


@rule("M302", "warning")
def tight(subject: Subject) -> Iterator[Trouble]:
    """Less than 8 % of a card is free at the peak, or none until torch gives back the blocks that it caches.

    The estimate is off by as much as that, and a fragmented allocator takes more. An engine on GPUs of its own is
    exempt: it fills its share of the card with KV cache on purpose. In another system's script a role counts as tight
    until it is over its card, or an engine short of its start, by more than the estimate may be off. Where rows are not
    padded (verl, EasyR1, SkyRL) it does so until one row of full length is too much: how long the others are, only a
    run shows.
    """
    for role in _estimate(subject).roles:
        tight = role.verdict == "tight" or (_in_doubt(subject, role) and not role.blocked)
        if tight and (role.role not in ENGINES or _shares(subject, role)):
            yield Trouble(
                f"{role.role} takes {_room(role)}: {role.reason or _largest(role)}",
                f"roles.{role.role}",
                cure(subject.layout, role.role, ("fits",)),
            )
    for role, engine in _engines(subject):
        if role.blocked and _may_start(subject, engine):
            path = f"roles.{role.role}.memory_utilization"
            yield Trouble(f"{role.role}: {role.blocked}", path, cure_engine(subject.layout, role.role))


def _engines(subject: Subject) -> Iterator[tuple[RoleEstimate, EngineEstimate]]:
    """Engines whose KV cache is what their budget leaves."""
    estimate = _estimate(subject)
    for engine in estimate.engines:
        role = estimate.role(engine.role)
        if role is not None and engine.budget_gib is not None and engine.kv_gib is not None:
            yield role, engine


def _may_start(subject: Subject, engine: EngineEstimate) -> bool:
    """Whether another system's engine lacks no more for its weights, or for a first sequence, than is uncertain."""
    budget, room = engine.budget_gib or 0.0, engine.kv_gib or 0.0
    if room <= 0:
        return bool(subject.layout.unsure) and engine.weights_gib < budget * (1 + ENGINE_ERROR)
    wanted = room / engine.max_concurrency if engine.max_concurrency else math.inf
    return bool(subject.layout.unsure) and wanted - room <= budget * ENGINE_ERROR


@rule("M303", "error")
def weights_over_budget(subject: Subject) -> Iterator[Trouble]:
    """An engine's weights and activations do not fit the share of the card that it may take.

    The KV cache is what `memory_utilization` × card leaves after weights, activations and CUDA graphs; where nothing is
    left, vLLM stops at start. On GPUs of its own the engine may take 0.9; else divide it over more GPUs. Lowering the
    share makes it worse. In another system's script it is no error where the weights fit (M302): what the profile run
    takes beside them depends on how many tokens its engine passes at once.
    """
    for role, engine in _engines(subject):
        if (engine.kv_gib or 0.0) <= 0 and not _may_start(subject, engine):
            fix = cure_engine(subject.layout, role.role)
            yield Trouble(f"{role.role}: {role.blocked}", f"roles.{role.role}.memory_utilization", fix)


@rule("M304", "error")
def no_room_for_one_sequence(subject: Subject) -> Iterator[Trouble]:
    """The KV cache does not hold one sequence of full length.

    vLLM refuses to start when prompt and response together are longer than the cache. More GPUs an engine, or a larger
    share of a card that nobody else uses, make room. In another system's script it is no error where what lacks is
    less than the estimate may be off (M302).
    """
    for role, engine in _engines(subject):
        if role.blocked and (engine.kv_gib or 0.0) > 0 and not _may_start(subject, engine):
            fix = cure_engine(subject.layout, role.role)
            yield Trouble(f"{role.role}: {role.blocked}", "lengths.response", fix)


@rule("M305", "note")
def generates_in_waves(subject: Subject) -> Iterator[Trouble]:
    """The KV cache holds fewer sequences of full length than an engine runs at once.

    When responses grow to their full length, vLLM puts sequences back into its queue and computes them anew: a step
    then takes several waves. Nothing breaks; more engines, or more GPUs an engine, make it faster.
    """
    layout = subject.layout
    engine = next((engine for _, engine in _engines(subject) if engine.role == "rollout"), None)
    if engine is None or not engine.max_concurrency or engine.max_concurrency < 1:
        return
    samples = -(-layout.train.samples_per_step // max(1, layout.num_engines))
    wanted = min(samples, layout.roles.rollout.max_concurrency or ENGINE_SEQUENCES)
    if engine.max_concurrency < wanted:
        yield Trouble(
            f"an engine runs {wanted} sequences at once, its KV cache of {engine.kv_gib:.1f} GiB a GPU holds "
            f"{engine.max_concurrency:.1f} of full length",
            "roles.rollout.engines",
        )


@rule("M306", "error")
def wakes_up_on_a_full_card(subject: Subject) -> Iterator[Trouble]:
    """An engine does not fit beside the roles that share its GPU.

    Weights of a sleeping engine wake beside the trainer's states and a bucket of new weights, its KV cache beside what
    the trainer keeps on the card. Here, and only here, a lower `memory_utilization` is the lever, as long as weights
    and a KV cache fit it; else the optimizer can move to host memory.
    """
    for role in _estimate(subject).roles:
        if role.role in ENGINES and _is_over(subject, role) and _shares(subject, role):
            yield Trouble(
                f"{role.role} needs {_room(role)}: {role.reason}",
                f"roles.{role.role}.memory_utilization",
                cure(subject.layout, role.role, ("fits", "tight")),
            )


@rule("M307", "warning")
def gathered_whole(subject: Subject) -> Iterator[Trouble]:
    """The learner's peak is the weight sync, because it gathers the whole model.

    With `gather_whole_model` every ZeRO-3 rank holds all parameters at once: 60 GiB more for 32 billion in bf16, at the
    first sync, after minutes of training that went well. Neither a smaller batch nor `memory_utilization` helps.
    Gathering layer by layer takes a little longer.
    """
    learner = _estimate(subject).role("learner")
    if learner is None or not subject.layout.roles.learner.gather_whole_model:
        return
    if learner.peak.moment == "weight sync" and learner.peak.parts_gib.get("gathered"):
        gathered = learner.peak.parts_gib["gathered"]
        yield settled_by(
            f"the learner's peak of {learner.peak_gib:.1f} GiB is the weight sync: {gathered:.1f} GiB are the whole "
            "model, gathered on every rank",
            "roles.learner.gather_whole_model",
            "false",
        )


@rule("M308", "error")
def host_memory(subject: Subject) -> Iterator[Trouble]:
    """The fullest node needs more host memory than it has, or than the job asks for.

    Counted are processes, models that are read before they are divided (below ZeRO-3 every rank reads all of it),
    offloaded states with their pinned buffers, and weights of sleeping engines. Linux ends the largest process without
    a word, and Slurm a job that outgrows its `slurm.mem_gib`. Silent where neither that nor
    `hardware.memory_gib_per_node` is known.
    """
    layout, first = subject.layout, 0
    for number, hardware in enumerate(layout.hardware.parts):
        key = part_key(layout, number)
        asked_key, asked = mem_gib_key(layout, number), mem_gib_of(layout, number)
        there = min(hardware.memory_gib_per_node or asked, asked or hardware.memory_gib_per_node)
        nodes, first = range(first, first + hardware.nodes), first + hardware.nodes
        if not there or not _estimate(subject).roles:
            continue
        host = host_of(layout, subject.placement, nodes)
        if host is None or host.ram_gib <= there:
            continue
        parts = ", ".join(f"{name} {size:.0f}" for name, size in host.ram_parts_gib.items())
        may_ask = there == asked and host.ram_gib <= (hardware.memory_gib_per_node or host.ram_gib)
        yield Trouble(
            f"the fullest node needs {host.ram_gib:.0f} GiB of host memory ({parts}), {there:g} are "
            + ("asked for" if there == asked else "there"),
            asked_key if there == asked else f"{key}.memory_gib_per_node",
            (f"{asked_key}={math.ceil(host.ram_gib)}",) if may_ask else (),
        )


@rule("M309", "note")
def unknown_model(subject: Subject) -> Iterator[Trouble]:
    """A model's shape is not known, so nothing is said about its memory.

    Known are published names and local folders with a config.json. A path of the cluster is not seen from here, and is
    known where its last part is a published name. (For a card that is not known, see H403.)
    """
    if subject.layout.hardware.on_cpu:
        return
    for name in ("learner", "reference", "critic", *SERVED):
        role = getattr(subject.layout.roles, name)
        if role is None or not role.model:
            continue
        if model_if_understood(role.model) is None:
            yield Trouble(f"memory is not checked: the shape of {role.model} is not known", f"roles.{name}.model")
            return
