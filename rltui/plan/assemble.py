"""The layout of a setup, and its YAML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from rltui.layout.document import dump
from rltui.layout.schema import (
    Checkpoint,
    Critic,
    Data,
    Hardware,
    Layout,
    Learner,
    Lengths,
    Pool,
    Ppo,
    Reference,
    Roles,
    Rollout,
    Teacher,
    Train,
)

if TYPE_CHECKING:
    from rltui.plan.request import Request
    from rltui.plan.setup import Setup, Training

PROPOSED = "Proposed by `rltui plan`. Set data, train.steps and slurm before a long run."
DIVIDED_ANEW = "{} as it stands, divided anew by `rltui plan`: nothing but the division is changed."

STEPS = 200
LEARNING_RATE = 1e-6
HOMES = {"apart": ("", ""), "standard": ("all", "all"), "split": ("policy", "value")}
"""Pools of the policy and of the critic, by placement; an empty name: GPUs of the policy's own, the critic a guest."""


def layout_of(request: Request, setup: Setup) -> Layout:
    """The whole layout of a setup."""
    roles = Roles(
        learner=learner_role(request, setup.learner, HOMES[setup.placement][0]),
        rollout=_rollout(request, setup),
        reference=_reference(request, setup),
        critic=None if setup.critic is None else _critic(request, setup, setup.critic),
        teacher=_teacher(request, setup),
    )
    plain = setup.placement == "apart" and setup.critic is None
    return assemble(request, roles, _pools(setup), "" if plain else setup.placement)


def learner_role(request: Request, choice: Training, home: str = "") -> Learner:
    """The learner that trains so, in the pool ``home`` or on GPUs of its own."""
    return Learner(
        model=request.model_name,
        gpus=[] if home else list(choice.gpus),
        pool=home,
        tensor_parallel=choice.tensor_parallel,
        sequence_parallel=choice.sequence_parallel,
        pipeline_parallel=choice.pipeline_parallel,
        expert_parallel=choice.expert_parallel,
        zero_stage=choice.zero_stage,
        offload="none" if not choice.offload else "all" if choice.trains_on_card else "optimizer",
        micro_batch=choice.micro_batch,
        gradient_checkpointing=choice.gradient_checkpointing,
        precision=request.precision,
    )


def _rollout(request: Request, setup: Setup) -> Rollout:
    return Rollout(
        engines=setup.engines,
        pool=HOMES[setup.placement][0],
        tensor_parallel=setup.engine.tensor_parallel,
        memory_utilization=setup.utilization,
        sleep_while_training=setup.sleeps,
        precision=request.precision,
    )


def _critic(request: Request, setup: Setup, choice: Training) -> Critic:
    return Critic(
        model=request.critic_name,
        pool=HOMES[setup.placement][1],
        zero_stage=choice.zero_stage,
        offload="optimizer" if choice.offload else "none",
        micro_batch=choice.micro_batch,
        gradient_checkpointing=choice.gradient_checkpointing,
        precision=request.precision,
    )


def _reference(request: Request, setup: Setup) -> Reference | None:
    if not request.kl_coefficient:
        return None
    return Reference(pool=HOMES[setup.placement][0], precision=request.precision)


def _teacher(request: Request, setup: Setup) -> Teacher | None:
    if setup.teacher is None:
        return None
    return Teacher(
        model=request.teacher_name,
        engines=setup.teachers,
        tensor_parallel=setup.teacher.tensor_parallel,
        precision=request.precision,
    )


def _pools(setup: Setup) -> dict[str, Pool]:
    policy, value = HOMES[setup.placement]
    pools = {policy: setup.learner.gpus, value: setup.critic.gpus if setup.critic else setup.learner.gpus}
    return {name: Pool(gpus=list(gpus)) for name, gpus in pools.items() if name}


def assemble(request: Request, roles: Roles, pools: dict[str, Pool] | None = None, placement: str = "") -> Layout:
    """A layout of ``request`` with these roles."""
    algorithm = request.algorithm
    penalty = {"kl": "loss", "kl_coefficient": request.kl_coefficient} if request.kl_coefficient else {}
    layout = Layout(
        layout=1,
        name="planned",
        algorithm=algorithm,
        hardware=Hardware(nodes=request.nodes, gpus_per_node=request.gpus_per_node, gpu=request.gpu.name),
        pools=pools or {},
        roles=roles,
        train=Train(
            steps=STEPS,
            prompts_per_step=request.prompts,
            samples_per_prompt=request.samples,
            optimizer_steps=request.optimizer_steps,
            epochs=request.epochs,
            learning_rate=LEARNING_RATE,
            async_steps=request.async_steps,
        ),
        lengths=Lengths(prompt=request.prompt_tokens, response=request.response_tokens, pack=request.packed_tokens),
        ppo=msgspec.convert(penalty, Ppo) if algorithm == "ppo" else Ppo(),
        data=Data(train=request.data, reward=request.reward),
        checkpoint=Checkpoint(every=50, keep=3),
        system=request.system,
    )
    named = _name(request, layout, placement)
    return msgspec.structs.replace(layout, name=named, summary=_summary(layout, placement))


def _name(request: Request, layout: Layout, placement: str) -> str:
    model = re.sub(r"[^a-z0-9.]+", "-", request.model_name.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-.")
    shape = _shape(request, layout, placement)
    return f"{model[: 63 - len(shape)] or 'model'}-{shape}"


def _shape(request: Request, layout: Layout, placement: str) -> str:
    roles = layout.roles
    words = ["" if request.algorithm == "grpo" else request.algorithm, f"{request.nodes}x{request.gpus_per_node}"]
    words += [placement, f"l{layout.slots_of('learner')}"]
    if placement == "split":
        words.append(f"c{layout.slots_of('critic')}")
    words.append(f"e{roles.rollout.engines}x{roles.rollout.tensor_parallel}")
    if roles.teacher is not None:
        words.append(f"t{roles.teacher.engines}x{roles.teacher.tensor_parallel}")
    return "-".join(filter(None, words))


def _summary(layout: Layout, placement: str) -> str:
    roles = layout.roles
    words = [f"{layout.slots_of('learner')} learners"]
    if placement == "split":
        words.append(f"critic on {layout.slots_of('critic')}")
    words.append(f"{roles.rollout.engines} engines of {roles.rollout.tensor_parallel}")
    if roles.teacher is not None:
        words.append(f"{roles.teacher.engines} teachers of {roles.teacher.tensor_parallel}")
    where = {"apart": "; engines apart", "standard": " on the same GPUs", "split": "; split placement"}
    return f"Planned: {', '.join(words)}{where.get(placement, '')}."


def as_text(layout: Layout, comment: str = PROPOSED) -> str:
    """The layout as YAML without what it does not have or read, below ``comment``; equal when loaded."""
    unread = {"grpo", "ppo", "opd"} - {layout.algorithm}
    values: dict[str, Any] = msgspec.to_builtins(layout)
    values["roles"] = {name: role for name, role in values["roles"].items() if role is not None}
    kept = {key: value for key, value in values.items() if key not in unread and value != {}}
    return f"# {comment}\n{dump(kept)}"
