"""All roles of a run as one: placed, loaded, trained, synchronised and ended together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainers.placement import actor_resources, bundle_nodes, reserve, seats, verify, whereabouts
from trainers.roles.calls import Role, call_all
from trainers.roles.engine import EngineActor, engine_environment
from trainers.roles.learner import Learner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rltui.layout.schema import Layout
    from trainers.data.batch import Shard
    from trainers.placement import Seat, Whereabouts
    from trainers.roles.tally import StepReport

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Deadlines:
    """Most seconds for each thing that is waited for."""

    place_s: float = 300.0
    load_s: float = 1800.0
    generate_s: float = 3600.0
    train_s: float = 3600.0
    sync_s: float = 300.0
    save_s: float = 1800.0


class Fleet:
    """The learners and engines of a layout, as Ray actors in its placement groups.

    Args:
        layout: The layout.
        deadlines: How long to wait for what.
        check: Called in waits that may be given up; what it raises ends them.

    Attributes:
        learners: By rank.
        engines: By number.
        places: Where each role is, learners first.
        deadlines: How long to wait for what.
    """

    def __init__(self, layout: Layout, deadlines: Deadlines, check: Callable[[], None]) -> None:
        self._layout, self.deadlines, self._check = layout, deadlines, check
        self._reserved: dict[str, Any] = {}
        self._manifest: Any = None
        self.learners: list[Role] = []
        self.engines: list[Role] = []
        self.places: list[Whereabouts] = []

    @property
    def roles(self) -> list[Role]:
        """All roles, learners first."""
        return self.learners + self.engines

    def reserve(self) -> None:
        """Reserve the layout's bundles.

        Raises:
            PlacementError: They found no place.
        """
        self._reserved = reserve(self._layout, self.deadlines.place_s, self._check)

    def start(self, model_path: str) -> None:
        """Start a process for each role and verify where it is.

        Raises:
            PlacementError: A role is not where it was planned.
            RoleError: A process did not start.
        """
        planned = seats(self._layout)
        roles = [self._start(seat, number, model_path) for number, seat in enumerate(planned)]
        num_learners = self._layout.roles.learner.num_learners
        self.learners, self.engines = roles[:num_learners], roles[num_learners:]
        calls = [(role, role.actor.__ray_call__.remote(whereabouts)) for role in roles]
        self.places = call_all(calls, self.deadlines.place_s, "starting its process", check=self._check)
        for role, place in zip(roles, self.places, strict=True):
            role.pid, role.host = place.pid, place.host
        verify(planned, bundle_nodes(self._reserved), self.places, self._layout.hardware.on_cpu)

    def _start(self, seat: Seat, number: int, model_path: str) -> Role:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        layout, on_cpu = self._layout, self._layout.hardware.on_cpu
        learner = seat.role == "learner"
        environment = learner_environment(on_cpu) if learner else engine_environment(layout.roles.rollout, on_cpu)
        options = {
            "name": seat.name,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(
                self._reserved[seat.role], placement_group_bundle_index=seat.bundle
            ),
            "runtime_env": {"env_vars": {**_code_path(), **environment}},
            **actor_resources(seat.slots, on_cpu),
        }
        if learner:
            return Role(seat.name, ray.remote(Learner).options(**options).remote(layout, number, model_path))
        arguments = (layout.roles.rollout, model_path, layout.lengths, seat.bundle)
        return Role(seat.name, ray.remote(EngineActor).options(**options).remote(*arguments))

    def map(self) -> list[dict[str, Any]]:
        """Each role with its process, host, Ray node and cards."""
        return [
            {"role": role.name, "pid": place.pid, "host": place.host, "node": place.node_id, "gpus": place.gpu_ids}
            for role, place in zip(self.roles, self.places, strict=True)
        ]

    def load(self, on_ready: Callable[[Role], None]) -> None:
        """Load all models at once and open the weight transfer; ``on_ready`` hears of each role that has loaded."""
        host = self._meeting_host(self.learners)
        engines = [(role, role.actor.load.remote()) for role in self.engines]
        port = self._call_first("free_port")
        learners = [(role, role.actor.load.remote(host, port)) for role in self.learners]
        call_all(
            learners + engines,
            self.deadlines.load_s,
            "loading its model",
            on_answer=lambda role, _: on_ready(role),
            check=self._check,
        )
        self._manifest = self._call_first("manifest")
        self._open_weight_group()

    def _open_weight_group(self) -> None:
        from trainers.weights import WeightGroup

        width, timeout_s = self._layout.roles.rollout.tensor_parallel, self.deadlines.sync_s
        world_size = 1 + width * len(self.engines)
        group = WeightGroup(
            self._meeting_host(self.roles), self._call_first("free_port"), world_size, timeout_s=timeout_s
        )
        first = self.learners[0]
        calls = [(first, first.actor.join_weight_group.remote(group, timeout_s))]
        for number, engine in enumerate(self.engines):
            calls.append((engine, engine.actor.join_weight_group.remote(group, 1 + number * width)))
        call_all(calls, timeout_s, "opening the weight transfer", check=self._check)

    def _meeting_host(self, roles: Sequence[Role]) -> str:
        """Address of learner rank 0 that ``roles`` can reach: loopback where they are all on one node."""
        nodes = {place.node_id for place in self.places[: len(roles)]}
        return LOOPBACK if len(nodes) == 1 else self.places[0].address

    def _call_first(self, method: str) -> Any:
        """Call a short ``method`` of learner rank 0."""
        first = self.learners[0]
        reference = getattr(first.actor, method).remote()
        return call_all([(first, reference)], self.deadlines.place_s, f"answering {method}", check=self._check)[0]

    def train(self, shards: Sequence[Shard]) -> list[StepReport]:
        """One optimizer step on all ranks; the reports by rank."""
        calls = [(role, role.actor.train.remote(mine)) for role, mine in zip(self.learners, shards, strict=True)]
        return call_all(calls, self.deadlines.train_s, "training")

    def send_weights(self, version: int) -> None:
        """Bring all engines to the learners' weights, which are ``version`` from here on.

        Raises:
            RoleError: A role failed, or an engine acknowledged another version.
        """
        calls = [(role, role.actor.send_weights.remote(version)) for role in self.learners]
        calls += [(role, role.actor.receive_weights.remote(self._manifest, version)) for role in self.engines]
        answers = call_all(calls, self.deadlines.sync_s, f"taking part in the transfer of weight version {version}")
        for role, answer in zip(self.engines, answers[len(self.learners) :], strict=True):
            if answer != version:
                raise RuntimeError(f"{role.title} acknowledged weight version {answer} instead of {version}")

    def save(self, folder: str) -> None:
        """Write the learners' parts of a checkpoint into ``folder``."""
        calls = [(role, role.actor.save.remote(folder)) for role in self.learners]
        call_all(calls, self.deadlines.save_s, "saving a checkpoint")

    def restore(self, folder: str) -> None:
        """Bring the learners back to the checkpoint in ``folder``; the engines need ``send_weights`` then."""
        calls = [(role, role.actor.restore.remote(folder)) for role in self.learners]
        call_all(calls, self.deadlines.load_s, "loading a checkpoint", check=self._check)

    def checkpoint_bytes(self) -> int:
        """About the bytes of a checkpoint."""
        return int(self._call_first("checkpoint_bytes"))

    def engine_memory_gib(self) -> float:
        """Resident memory of the largest engine."""
        calls = [(role, role.actor.describe.remote()) for role in self.engines]
        descriptions = call_all(calls, self.deadlines.place_s, "describing itself")
        return max(float(description["resident_gib"]) for description in descriptions)

    def check_learners(self) -> None:
        """Raise ``RoleError`` if a learner has died; for waits in which learners have nothing to do."""
        for role in self.learners:
            role.check_alive()

    def close(self) -> None:
        """End all role processes and give their places back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for role in self.roles:
            ray.kill(role.actor)
        for handle in self._reserved.values():
            remove_placement_group(handle)


def learner_environment(on_cpu: bool) -> dict[str, str]:
    """Environment variables that a learner's process needs from its start."""
    # DeepSpeed and torch warn about each other's deprecations, which is no news to who trains with them.
    variables = {"TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore::FutureWarning"}
    if on_cpu:
        # Each slot is one CPU process: more threads than cores make every rank wait for the slowest.
        variables |= {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    return variables


def _code_path() -> dict[str, str]:
    """The driver's own code, also where Ray was started with another search path."""
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": path} if path else {}
