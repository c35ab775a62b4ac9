"""Starting a process for each role in its bundle, and proving that it is where it was planned."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rltui.layout.roles import SERVED
from rltui.layout.schema import Layout
from rltui.onnode import rundir
from trainers.placement import (
    PlannedRole,
    ProcessLocation,
    actor_resources,
    bundle_nodes,
    guest_cards,
    planned_roles,
    process_location,
    verify,
)
from trainers.roles.calls import Role, RoleError, call_all
from trainers.roles.checkpoint_writer import SAVE_GROUP
from trainers.roles.critic import Critic
from trainers.roles.endings import end_process
from trainers.roles.engine import WEIGHTS_GROUP, EngineActor
from trainers.roles.engine_environment import engine_environment
from trainers.roles.judge import Judge
from trainers.roles.learner import Learner
from trainers.roles.reference import Reference
from trainers.roles.reward_model import RewardModel
from trainers.roles.reward_worker import LISTENERS, RewardWorker, most_samples
from trainers.roles.teacher import Teacher

NAME_POLL_S = 0.1
ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""What torch reads its allocator's settings from."""
GROWING = re.compile(r"(expandable_segments\s*:\s*)True")


class RoleProcesses:
    """Starts the role processes of a layout.

    Args:
        layout: The layout.
        reserved: Its placement groups, see ``trainers.placement.reserve``.
        model_paths: Folder of each kind of role's model; kinds without one have the learner's.
        deadline_s: Most seconds for all processes to start.
        check: Called while waiting; what it raises ends the wait.
    """

    def __init__(
        self,
        layout: Layout,
        reserved: Mapping[str, Any],
        model_paths: Mapping[str, str],
        deadline_s: float,
        check: Callable[[], None],
    ) -> None:
        self._layout, self._reserved, self._deadline_s, self._check = layout, reserved, deadline_s, check
        self._model_paths = model_paths
        self._places: dict[str, ProcessLocation] = {}

    def start(self) -> list[Role]:
        """Start all processes, hosts first, because guests are told the cards of their hosts.

        Raises:
            PlacementError: A role is not where it was planned.
            RoleError: A process did not start.
        """
        planned = planned_roles(self._layout)
        roles = {plan.name: role for plan, role in self._start([plan for plan in planned if not plan.is_guest], {})}
        guests = [plan for plan in planned if plan.is_guest]
        on_cpu = self._layout.hardware.on_cpu
        cards = {plan.name: () if on_cpu else guest_cards(plan, planned, self._places) for plan in guests}
        roles |= {plan.name: role for plan, role in self._start(guests, cards)}
        verify(planned, bundle_nodes(self._reserved), [self._places[plan.name] for plan in planned], on_cpu)
        return [roles[plan.name] for plan in planned]

    def start_again(self, names: Sequence[str]) -> list[Role]:
        """Start other processes for roles whose processes have ended, in the same bundles.

        Args:
            names: Of the roles.

        Raises:
            PlacementError: One is not where it was planned.
            RoleError: One did not start.
        """
        planned, on_cpu = planned_roles(self._layout), self._layout.hardware.on_cpu
        wanted = [plan for name in names for plan in planned if plan.name == name]
        guests = [] if on_cpu else [plan for plan in wanted if plan.is_guest]
        cards = {plan.name: guest_cards(plan, planned, self._places) for plan in guests}
        roles = [role for _, role in self._start(wanted, cards)]
        verify(planned, bundle_nodes(self._reserved), [self._places[plan.name] for plan in planned], on_cpu)
        return roles

    def end(self, roles: Sequence[Role]) -> None:
        """Have processes killed that may hang, where they are, and wait until they hold no memory any more.

        Raises:
            RoleError: One is still there after the deadline.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        calls = []
        for role in roles:
            assert role.place is not None
            where = NodeAffinitySchedulingStrategy(role.place.node_id, soft=False)
            # no CPU: a node whose cores are all reserved would never start it; elsewhere the pid is another process
            options = {"num_cpus": 0, "scheduling_strategy": where, "runtime_env": {"env_vars": _code_path()}}
            calls.append((role, ray.remote(end_process).options(**options).remote(role.pid, self._deadline_s)))
        gone = call_all(calls, 2 * self._deadline_s, "being killed", check=self._check)
        for role, is_gone in zip(roles, gone, strict=True):
            if not is_gone:
                raise RoleError(f"{role.title} is still there {self._deadline_s:g} s after it was killed")

    def _start(
        self, wanted: Sequence[PlannedRole], cards: Mapping[str, tuple[str, ...]]
    ) -> list[tuple[PlannedRole, Role]]:
        roles = [Role(plan.name, self._actor(plan, cards.get(plan.name, ())), kind=plan.role) for plan in wanted]
        calls = [(role, role.actor.__ray_call__.remote(process_location)) for role in roles]
        places = call_all(calls, self._deadline_s, "starting its process", check=self._check)
        for role, place in zip(roles, places, strict=True):
            role.settle(place)
            self._places[role.name] = place
        return list(zip(wanted, roles, strict=True))

    def _actor(self, plan: PlannedRole, cards: tuple[str, ...]) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        on_cpu = self._layout.hardware.on_cpu or plan.role == "reward"
        environment = {**_code_path(), **role_environment(self._layout, plan.role)}
        # Processes that vLLM starts for itself carry the engine's, teacher's or judge's name in their titles.
        environment["VLLM_PROCESS_NAME_PREFIX"] = f"VLLM::{plan.name}"
        environment |= _flight_record(plan)
        if not on_cpu:
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML and nvidia-smi number cards
        if cards:
            # Ray leaves the variable alone where an actor asks for no card.
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(cards)
        options = {
            "name": plan.name,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._reserved[plan.group], placement_group_bundle_index=plan.bundle
            ),
            "runtime_env": {"env_vars": environment},
            **actor_resources(0 if plan.is_guest else plan.slots, on_cpu),
        }
        if plan.role == "reward":
            options["max_restarts"] = -1  # it keeps nothing that a new process would lack
        return _named(self._remote(plan).options(**options), self._arguments(plan), self._deadline_s)

    def _remote(self, plan: PlannedRole) -> Any:
        """The class of actors for ``plan``; what they do beside their work has a thread of its own."""
        import ray

        if plan.role in ("learner", "critic"):
            return ray.remote(concurrency_groups={SAVE_GROUP: 1})(self._class(plan))
        if plan.role == "engine" and self._layout.train.takes_weights_in_flight:
            return ray.remote(concurrency_groups={WEIGHTS_GROUP: 1})(self._class(plan))
        if plan.role == "reward" and self._layout.data.environment_kind == "agent":
            return ray.remote(concurrency_groups={LISTENERS: most_samples(self._layout)})(self._class(plan))
        return ray.remote(self._class(plan))

    def _class(self, plan: PlannedRole) -> type:
        classes: dict[str, type] = {
            "learner": Learner,
            "engine": EngineActor,
            "reference": Reference,
            "critic": Critic,
            "teacher": Teacher,
            "judge": Judge,
            "reward_model": RewardModel,
            "reward": RewardWorker,
        }
        return classes[plan.role]

    def _arguments(self, plan: PlannedRole) -> tuple[Any, ...]:
        layout = self._layout
        path = self._model_paths.get(plan.role, self._model_paths["learner"])
        if plan.role == "reward":
            return (layout,)
        if plan.role == "engine":
            return layout.roles.rollout, path, layout.lengths, plan.index
        return layout, plan.index, path


def _named(actor_class: Any, arguments: tuple[Any, ...], deadline_s: float) -> Any:
    """Create the actor; Ray frees the name of one that died a little later than it tells of the death."""
    deadline = time.monotonic() + deadline_s
    while time.monotonic() < deadline:
        with contextlib.suppress(ValueError):
            return actor_class.remote(*arguments)
        time.sleep(NAME_POLL_S)
    return actor_class.remote(*arguments)


def role_environment(layout: Layout, kind: str) -> dict[str, str]:
    """Environment variables that the process of a role of this kind needs from its start."""
    on_cpu = layout.hardware.on_cpu
    if kind == "engine":
        return engine_environment(layout.roles.rollout, on_cpu)
    if kind in SERVED:
        return engine_environment(getattr(layout.roles, kind), on_cpu)
    variables = learner_environment(on_cpu or kind == "reward")
    if kind == "reward" and layout.roles.reward is not None:
        variables["OMP_NUM_THREADS"] = str(layout.roles.reward.cpus_per_worker)
    if kind in ("learner", "critic") and not on_cpu:
        variables |= _segments(are_shared=_shares_memory(layout, kind))
    return variables


def _shares_memory(layout: Layout, kind: str) -> bool:
    """Whether an engine on the same card opens memory of this role, see ``shared_channel``."""
    learner, rollout = layout.roles.learner, layout.roles.rollout
    return kind == "learner" and bool(learner.pool) and learner.pool == rollout.pool


def _segments(*, are_shared: bool) -> dict[str, str]:
    """Let torch's allocator grow its segments, so that passes of different lengths leave no holes between them.

    Memory of such segments is no ``cudaMalloc`` block: another process opens it through file descriptors, which
    containers forbid, and slowly. So those that are shared never grow. What the user has set else stands.
    """
    told = {name: os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ}
    if are_shared:
        return {name: GROWING.sub(r"\1False", value) for name, value in told.items() if GROWING.search(value)}
    return {} if told else {ALLOCATOR_VARIABLES[0]: "expandable_segments:True"}


def learner_environment(on_cpu: bool) -> dict[str, str]:
    """Environment variables that a learner's process needs from its start."""
    # DeepSpeed and torch warn about each other's deprecations, which is no news to who trains with them.
    # tokenizers' threads do not survive a fork: where a role starts a subprocess, it would warn each time
    variables = {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore::FutureWarning"}
    if on_cpu:
        # Each slot is one CPU process: more threads than cores make every rank wait for the slowest.
        variables |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    return variables


def _flight_record(plan: PlannedRole) -> dict[str, str]:
    """Where torch writes the record of the role's collectives: roles count their ranks each from zero."""
    path = os.environ.get(rundir.FLIGHT_RECORD_VARIABLE, "")
    if not path.endswith(rundir.FLIGHT_RECORD):  # there is none, or it is the user's own
        return {}
    # learners are one group, and so are critics and references; an engine's ranks are its own
    whose = plan.role if plan.role in ("learner", "critic", "reference") else plan.name.replace(" ", "_")
    prefix = path.removesuffix(rundir.FLIGHT_RECORD)
    return {rundir.FLIGHT_RECORD_VARIABLE: prefix + rundir.FLIGHT_RECORD.replace("rank", f"{whose}_rank")}


def _code_path() -> dict[str, str]:
    """The driver's own code, also where Ray was started with another search path."""
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": path} if path else {}
