"""Rules about pools, and about roles that share GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rltui.check.rule import Subject, Trouble, rule, settled_by
from rltui.check.rules.widths import widest
from rltui.layout.convert import nearest
from rltui.layout.roles import SERVED, Hardware, Pool
from rltui.layout.schema import Layout
from rltui.placement.bundles import ROLE_KEYS, ROLES, pool_members


def colocated(subject: Subject) -> bool:
    """Whether engines share their GPUs with the learner."""
    pool = subject.layout.roles.rollout.pool
    return bool(pool) and subject.layout.roles.learner.pool == pool


@rule("P108", "error")
def unknown_pool(subject: Subject) -> Iterator[Trouble]:
    """A role names a pool that the layout does not have."""
    pools = subject.layout.pools
    for name, role in subject.roles(*ROLES):
        if role.pool and role.pool not in pools:
            hint = nearest(role.pool, pools) if pools else "the layout has no pools"
            yield Trouble(f"there is no pool {role.pool!r} ({hint})", f"roles.{name}.pool")


@rule("P109", "error")
def pool_and_own_gpus(subject: Subject) -> Iterator[Trouble]:
    """The learner has a pool and GPUs of its own.

    A role sits in its pool or on GPUs of its own. Which of the two is meant cannot be guessed.
    """
    learner = subject.layout.roles.learner
    if learner.pool and learner.gpus:
        yield settled_by(
            f"the learner sits in pool {learner.pool!r} and also lists {learner.num_learners} GPUs of its own",
            "roles.learner.gpus",
            "[]",
        )


@rule("P110", "error")
def learner_without_gpus(subject: Subject) -> Iterator[Trouble]:
    """The learner has neither GPUs nor a pool."""
    learner = subject.layout.roles.learner
    if not learner.pool and not learner.gpus:
        yield settled_by("the learner has no GPUs and no pool", "roles.learner.gpus", "[1]")


@rule("P111", "error")
def no_engines(subject: Subject) -> Iterator[Trouble]:
    """There is no engine to generate samples.

    `roles.rollout.engines` may be 0 only in a pool, where it means as many as the pool holds.
    """
    rollout = subject.layout.roles.rollout
    if not rollout.pool and rollout.engines == 0:
        message = "roles.rollout has no engines and no pool"
        yield settled_by(message, "roles.rollout.engines", 1)


@rule("P112", "warning")
def unused_pool(subject: Subject) -> Iterator[Trouble]:
    """A pool reserves GPUs that no role uses."""
    for name, pool in subject.layout.pools.items():
        if not pool_members(subject.layout, name):
            yield Trouble(
                f"pool {name!r} reserves {pool.total} {subject.unit}, but no role sits in it", f"pools.{name}"
            )


def pool_hardware(layout: Layout, pool: str) -> Hardware:
    """The kind of node that a pool is on: that of the roles in it."""
    members = pool_members(layout, pool)
    return layout.hardware_of(ROLE_KEYS[members[0]]) if members else layout.hardware.parts[0]


@rule("P113", "error")
def pool_longer_than_nodes(subject: Subject) -> Iterator[Trouble]:
    """A pool has more entries than there are nodes; each entry is a bundle on a node of its own."""
    for name, pool in subject.layout.pools.items():
        nodes = pool_hardware(subject.layout, name).nodes
        if len(pool.gpus) > nodes:
            yield Trouble(f"pool {name!r} needs {len(pool.gpus)} nodes, {nodes} are there", f"pools.{name}.gpus")


@rule("P114", "error")
def pool_entry_larger_than_node(subject: Subject) -> Iterator[Trouble]:
    """A pool asks for more GPUs on one node than a node has."""
    for name, pool in subject.layout.pools.items():
        size = pool_hardware(subject.layout, name).ray_gpus_per_node
        if max(pool.gpus) > size:
            yield Trouble(
                f"pool {name!r} wants {max(pool.gpus)} {subject.unit} on one node, a node has {size}",
                f"pools.{name}.gpus",
            )


@rule("P115", "error")
def engine_larger_than_entry(subject: Subject) -> Iterator[Trouble]:
    """No entry of the pool is large enough for an engine (or teacher, or judge) of that tensor parallelism."""
    for name, role, pool in _engines_in_pools(subject):
        largest, width = max(pool.gpus), role.tensor_parallel
        if width > largest:
            model = subject.layout.roles.learner.model if name == "rollout" else role.model
            message = f"tensor_parallel {width} does not fit into the largest entry of its pool, {largest}"
            yield settled_by(message, f"roles.{name}.tensor_parallel", widest(largest, model))


def _engines_in_pools(subject: Subject) -> Iterator[tuple[str, Any, Pool]]:
    """Name, settings and pool of engines, teachers and judges that sit in one."""
    for name, role in subject.roles("rollout", *SERVED):
        if role.pool in subject.layout.pools:
            yield name, role, subject.layout.pools[role.pool]


@rule("P116", "error")
def more_engines_than_pool(subject: Subject) -> Iterator[Trouble]:
    """There are more engines (or teachers, or judges) than their pool holds."""
    for name, role, pool in _engines_in_pools(subject):
        held = sum(gpus // role.tensor_parallel for gpus in pool.gpus)
        if role.engines > held > 0:
            yield settled_by(
                f"{role.engines} engines of {role.tensor_parallel} {subject.unit} are asked for, the pool holds {held}",
                f"roles.{name}.engines",
                held,
            )


@rule("P117", "warning")
def pool_idle_while_generating(subject: Subject) -> Iterator[Trouble]:
    """Part of the pool is idle while engines generate.

    The pool's other roles use all of its GPUs, its engines do not: their tensor parallelism does not divide an entry,
    or there are fewer engines than the pool holds.
    """
    layout, rollout = subject.layout, subject.layout.roles.rollout
    pool = layout.pools.get(rollout.pool)
    if pool is None or rollout.tensor_parallel > max(pool.gpus):
        return
    used = layout.num_engines * rollout.tensor_parallel
    if used < pool.total:
        yield Trouble(
            f"engines use {used} of the pool's {pool.total} {subject.unit}; the others wait while they generate",
            "roles.rollout.engines",
        )


_WAYS = ("tensor_parallel", "sequence_parallel", "pipeline_parallel")
_MEGATRONS = ("pipeline_parallel",)
"""Named where they are used only: the bundled trainers have none."""


@rule("P118", "error")
def learner_group_spans_nodes(subject: Subject) -> Iterator[Trouble]:
    """The learner's tensor, sequence or pipeline parallel groups do not divide its GPUs.

    World size = bundles' GPUs; it must be a multiple of tensor_parallel × sequence_parallel × pipeline_parallel, and
    each bundle a multiple of tensor_parallel, or a layer would be split over the network.
    """
    layout, learner = subject.layout, subject.layout.roles.learner
    slots = layout.slots_of("learner")
    told = {way: size for way in _WAYS if (size := getattr(learner, way)) > 1 or way not in _MEGATRONS}
    pool = layout.pools.get(learner.pool)
    bundles = pool.gpus if pool else learner.gpus
    torn = [size for size in bundles if size % learner.tensor_parallel]
    if slots and (slots % learner.ranks_of_a_row or torn):
        groups = " × ".join(f"{way} {size}" for way, size in told.items())
        yield Trouble(
            f"{slots} learner {subject.unit} in bundles {bundles} do not divide into groups of {groups}",
            "roles.learner." + next((way for way, size in told.items() if size > 1), _WAYS[0]),
            tuple(f"roles.learner.{way}=1" for way in told),
        )


@rule("P130", "error")
def colocated_cannot_run_ahead(subject: Subject) -> Iterator[Trouble]:
    """Engines that share the learner's GPUs cannot run ahead of it.

    Colocated roles take turns. `train.async_steps` needs engines on GPUs of their own; several frameworks silently
    ignore one of the two settings.
    """
    train = subject.layout.train
    if colocated(subject) and train.async_steps:
        yield Trouble(
            f"async_steps is {train.async_steps}, but engines and learner share pool "
            f"{subject.layout.roles.learner.pool!r} and take turns",
            "train.async_steps",
            ("train.async_steps=0", *(["train.inflight_updates=false"] if train.inflight_updates else [])),
        )


@rule("P131", "warning")
def colocated_without_sleep(subject: Subject) -> Iterator[Trouble]:
    """Engine and learner share GPUs, and the engine keeps its memory while the learner trains.

    Without `sleep_while_training` the KV cache of vLLM stays allocated: the learner gets only what `memory_utilization`
    leaves. An engine of transformers keeps weights and what torch caches of a batch; M301 weighs these.
    """
    rollout = subject.layout.roles.rollout
    if rollout.engine != "vllm" or subject.layout.hardware.on_cpu:
        return
    if colocated(subject) and not rollout.sleep_while_training:
        yield settled_by(
            f"the engine keeps {rollout.memory_utilization:.0%} of the card while the learner trains on it",
            "roles.rollout.sleep_while_training",
            "true",
        )


@rule("P132", "warning")
def sleep_for_nobody(subject: Subject) -> Iterator[Trouble]:
    """Engines with GPUs of their own are told to sleep while the learner trains.

    Nobody else uses the memory they free, and waking up costs seconds in every step.
    """
    if subject.layout.roles.rollout.sleep_while_training and not colocated(subject):
        yield settled_by(
            "sleep_while_training frees memory for nobody: the engines do not share the learner's GPUs",
            "roles.rollout.sleep_while_training",
            "false",
        )


@rule("P133", "note")
def split_critic_on_fewer(subject: Subject) -> Iterator[Trouble]:
    """The critic's pool is smaller than the learner's, though its model is as large.

    Its states are sharded over fewer GPUs, so its peak per GPU is the higher one; the learner's pool waits for it
    unless both update at the same time.
    """
    layout, critic = subject.layout, subject.layout.roles.critic
    if critic is None or not critic.pool or critic.pool == layout.roles.learner.pool:
        return
    mine, policy = layout.slots_of("critic"), layout.slots_of("learner")
    if 0 < mine < policy and critic.model in ("", layout.roles.learner.model):
        yield Trouble(
            f"the critic has {mine} {subject.unit} for a model that the learner spreads over {policy}",
            f"pools.{critic.pool}.gpus",
        )
