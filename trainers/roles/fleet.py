"""All roles of a run as one: placed, loaded, asked, started again and ended together."""

from __future__ import annotations

import functools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rltui.layout.schema import Layout
from rltui.onnode import rundir
from trainers.placement import planned_roles, reserve
from trainers.roles.calls import Role, RoleDiedError, RoleHungError, call_all
from trainers.roles.checkpoint_writer import SAVE_GROUP, Written
from trainers.roles.deepspeed_rank import import_training
from trainers.roles.processes import RoleProcesses
from trainers.roles.reshard import forget_resharded
from trainers.roles.restarts import FROZEN, Restarts
from trainers.roles.sleep import EngineSleep, kinds_that_load_first, plan_engine_sleep

TRAINED = ("learner", "critic")
"""Kinds of roles that DeepSpeed trains and checkpoints hold."""

LOOPBACK = "127.0.0.1"

log = logging.getLogger("trainers")


@dataclass(frozen=True)
class RoleCall:
    """A call that is under way, and how to make it again.

    Attributes:
        role: Who was asked.
        method: What for.
        arguments: With what.
        reference: Ray's, of the answer.
        actor: Ray's handle of the process that was asked.
    """

    role: Role
    method: str
    arguments: tuple[Any, ...]
    reference: Any
    actor: Any

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken the place of the one that was asked."""
        return self.actor is not self.role.actor

    def again(self) -> RoleCall:
        """The same, asked of the role's process of now."""
        return ask(self.role, self.method, *self.arguments)


class EngineMemory:
    """The resident memory of engines, as far as they have said; never waits for one that is at work."""

    def __init__(self) -> None:
        self._asked: dict[str, Any] = {}
        self._gib: dict[str, float] = {}

    def largest_gib(self, engines: Sequence[Role]) -> float:
        """The largest that is known of ``engines``, which are asked again for the next time."""
        import ray
        from ray.exceptions import RayError

        for role in engines:
            asked = self._asked.pop(role.name, None)
            if asked is not None and not ray.wait([asked], timeout=0)[0]:
                self._asked[role.name] = asked
                continue
            self._asked[role.name] = role.actor.describe.remote()
            try:
                if asked is not None:
                    self._gib[role.name] = float(ray.get(asked)["resident_gib"])
            except RayError:
                continue  # it died; whoever needs it will find out
        return max(self._gib.values(), default=0.0)


class Fleet:
    """The roles of a layout, as Ray actors in its placement groups.

    Args:
        layout: The layout.
        check: Called in waits that may be given up; what it raises ends them.
        tell: Called with kind and text of an event, and with what else it has by name.

    Attributes:
        roles: All roles: learners by rank, then engines, references, critics, teachers, judges and reward workers, all
            by number.
        deadlines: How long to wait for what: the layout's.
        engine_sleep: Whether engines sleep, once all roles are loaded.
        engine_memory: What engines have said of their memory.
        model_paths: Folder of each kind of role's model, once they run.
    """

    engine_sleep: EngineSleep

    def __init__(
        self,
        layout: Layout,
        check: Callable[[], None],
        tell: Callable[..., None],
    ) -> None:
        self._layout, self.deadlines, self._check = layout, layout.deadlines, check
        self._reserved: dict[str, Any] = {}
        self._meeting = (*TRAINED, *layout.divided)
        self._frozen = tuple(kind for kind in FROZEN if kind not in layout.divided)
        self._tell, self._restarts = tell, Restarts(self._frozen)
        self._processes: RoleProcesses | None = None
        self.engine_memory = EngineMemory()
        self.roles: list[Role] = []
        self.model_paths: Mapping[str, str] = {}
        self._restarting = threading.Lock()

    def of(self, kind: str) -> list[Role]:
        """The roles of a kind, see ``Role.kind``."""
        return [role for role in self.roles if role.kind == kind]

    @property
    def learners(self) -> list[Role]:
        """The policy's ranks, by rank."""
        return self.of("learner")

    @property
    def engines(self) -> list[Role]:
        """The rollout engines, by number."""
        return self.of("engine")

    def reserve(self) -> None:
        """Reserve the layout's bundles.

        Raises:
            PlacementError: They found no place.
        """
        self._reserved = reserve(self._layout, self.deadlines.place_s, self._check)

    def start(self, model_paths: Mapping[str, str]) -> None:
        """Start a process for each role and verify where it is.

        Args:
            model_paths: Folder of each kind of role's model; kinds without one have the learner's.

        Raises:
            PlacementError: A role is not where it was planned.
            RoleError: A process did not start.
        """
        self._processes = RoleProcesses(self._layout, self._reserved, model_paths, self.deadlines.place_s, self._check)
        self.roles, self.model_paths = self._processes.start(), model_paths

    def map(self) -> list[dict[str, Any]]:
        """Each role with its process, host, Ray node and cards."""
        return [
            {
                "role": role.name,
                "pid": role.pid,
                "host": role.host,
                "node": role.place.node_id,
                "gpus": role.place.gpu_ids,
            }
            for role in self.roles
            if role.place is not None
        ]

    def load(self, on_ready: Callable[[Role], None]) -> None:
        """Load all models; ``on_ready`` hears of each role that has loaded.

        All load at once, but those of ``kinds_that_load_first``, and engines that sleep, which must leave the card.
        """
        planned = planned_roles(self._layout)
        self.engine_sleep = plan_engine_sleep(self._layout, planned, self.roles, self.deadlines.sync_s)
        first = kinds_that_load_first(self._layout, engines_sleep=self.engine_sleep.is_used)
        for role in [role for role in self.roles if role.kind in self._meeting] if first else ():
            role.actor.__ray_call__.remote(import_training)  # what goes wrong there goes wrong again as it loads
        for kind in first:
            self._await_load([(role, role.actor.load.remote()) for role in self.of(kind)], on_ready)
            self.engine_sleep.begin()
        rest = [role for role in self.roles if role.kind not in (*self._meeting, "reward", *first)]
        calls = [(role, role.actor.load.remote()) for role in rest] + self._prove_and_load()
        for kind in self._meeting:
            ranks = self.of(kind)
            if ranks:
                where = (meeting_host(ranks), self._call_first("free_port", kind))
                calls += [(role, role.actor.load.remote(*where)) for role in ranks]
        for (role, _), notes in zip(calls, self._await_load(calls, on_ready), strict=True):
            for kind, text in notes if role.kind == "reward" else ():
                self._tell(kind, text)

    def _prove_and_load(self) -> list[tuple[Role, Any]]:
        """Load the reward workers; the first on each node tries out its sandbox, which is that of all others there."""
        workers = self.of("reward")
        # reversed: of equal keys the last one stays, so this is each node's first worker
        first = {role.place.node_id: role.name for role in reversed(workers) if role.place is not None}
        return [(role, role.actor.load.remote(prove=role.name in first.values())) for role in workers]

    def _await_load(self, calls: Sequence[tuple[Role, Any]], on_ready: Callable[[Role], None]) -> list[Any]:
        deadline_s = self.deadlines.load_s
        return call_all(calls, deadline_s, "loading", on_answer=lambda role, _: on_ready(role), check=self._check)

    def _call_first(self, method: str, kind: str = "learner") -> Any:
        """Call a short ``method`` of rank 0."""
        first = self.of(kind)[0]
        reference = getattr(first.actor, method).remote()
        return call_all([(first, reference)], self.deadlines.place_s, f"answering {method}", check=self._check)[0]

    def begin(self, kind: str, method: Callable[..., Any], arguments: Sequence[Any]) -> list[RoleCall]:
        """Start ``method`` on all roles of a kind, each with its own argument; ``finish`` waits for them."""
        return [ask(role, method.__name__, argument) for role, argument in zip(self.of(kind), arguments, strict=True)]

    def finish(self, requests: Sequence[RoleCall], doing: str) -> list[Any]:
        """Wait for requests that were begun; the answers in their order.

        A role of frozen weights that dies, or does not answer in time, is started again and asked again: what it says
        depends on nothing but its model and the question.

        Raises:
            RoleError: A role failed; another one died or did not answer in time, or a frozen one did so too often.
        """
        answers: dict[Role, Any] = {}
        waiting = [request.again() if request.is_lost else request for request in requests]
        while waiting:
            calls = [(request.role, request.reference) for request in waiting]
            try:
                call_all(calls, self.deadlines.train_s, doing, on_answer=answers.__setitem__)
            except RoleDiedError as death:
                gone = {one.role for one in (death, *death.others)}
                if any(role.kind not in self._frozen for role in gone):
                    raise
                self.restart([death, *death.others])
                left = [request for request in waiting if request.role not in answers]
                waiting = [request.again() if request.role in gone else request for request in left]
            else:
                break
        return [answers[request.role] for request in requests]

    def restart(self, deaths: Sequence[RoleDiedError]) -> list[Role]:
        """Start the roles that ``deaths`` are about again, as far as that was not done; any thread may ask for it.

        Returns:
            The engines among them, which have initial weights.

        Raises:
            RoleError: They cannot be, or one died once too often.
        """
        with self._restarting:
            return self._restart(deaths)

    def _restart(self, deaths: Sequence[RoleDiedError]) -> list[Role]:
        assert self._processes is not None
        gone = {death.role: death for death in deaths if death.role.actor is death.actor}
        if not gone:
            return []
        self._check()
        for death in gone.values():
            text = self._restarts.grant(death)
            self._tell(rundir.RESTART, text)
            log.warning(text)
        self._end(gone.values())
        if any(role.kind == "engine" for role in gone):
            self.engine_sleep.make_room()  # vLLM does not load where less than its share of the card is free
        successors = self._processes.start_again([role.name for role in gone])
        calls = [(role, role.actor.load.remote()) for role in successors]
        call_all(calls, self.deadlines.load_s, "loading its model", check=self._check)
        for role, successor in zip(gone, successors, strict=True):
            role.become(successor)
        for role in gone:
            if role.kind in self._frozen:
                text = f"{role.title} has loaded its model and goes on"
                self._tell(rundir.RESTART, text, roles=self.map())
                log.warning(text)
        return [role for role in gone if role.kind == "engine"]

    def _end(self, deaths: Collection[RoleDiedError]) -> None:
        """Make sure that no process comes back, or holds memory, beside its successor."""
        import ray

        assert self._processes is not None
        self._processes.end([death.role for death in deaths if isinstance(death, RoleHungError)])
        for death in deaths:
            ray.kill(death.actor)  # it may only have lost its connection

    def begin_save(self, folder: str, *, in_background: bool) -> Callable[[], Written]:
        """Begin to write the parts of a checkpoint that learners and critics have into ``folder``.

        Args:
            folder: The checkpoint.
            in_background: Whether they copy what they write, and can train on before it is written.

        Returns:
            What waits until all parts are on the disk, for another thread; raises ``RoleError``.
        """
        roles = [role for kind in TRAINED for role in self.of(kind)]
        copying = Counter(role.host for role in roles if in_background)
        begun = [(role, role.actor.begin_save.remote(folder, copying[role.host])) for role in roles]
        call_all(begun, self.deadlines.save_s, "saving a checkpoint")
        calls = [(role, role.actor.finish_save.options(concurrency_group=SAVE_GROUP).remote()) for role in roles]
        return functools.partial(self._finish_save, calls)

    def _finish_save(self, calls: Sequence[tuple[Role, Any]]) -> Written:
        parts: list[Written] = call_all(calls, self.deadlines.save_s, "writing a checkpoint")
        return Written(sum(part.size for part in parts), max(part.seconds for part in parts))

    def restore(self, folder: str, step: int, changed: Collection[str] = ()) -> None:
        """Bring learners and critics back to the checkpoint in ``folder``; the engines need the weights then.

        Args:
            folder: The checkpoint.
            step: Its training step.
            changed: Kinds of roles of which another number wrote it; they load it resharded.
        """
        first = [self.of(kind)[0] for kind in changed]
        calls = [(role, role.actor.reshard.remote(folder)) for role in first]
        call_all(calls, self.deadlines.load_s, "resharding a checkpoint", check=self._check)
        calls = [
            (role, role.actor.restore_resharded.remote(folder, step))
            if kind in changed
            else (role, role.actor.restore.remote(folder))
            for kind in TRAINED
            for role in self.of(kind)
        ]
        call_all(calls, self.deadlines.load_s, "loading a checkpoint", check=self._check)
        forget_resharded(folder)

    def checkpoint_bytes(self) -> int:
        """About the bytes of a checkpoint."""
        return sum(int(self._call_first("checkpoint_bytes", kind)) for kind in TRAINED if self.of(kind))

    def check_trained(self) -> None:
        """Raise ``RoleError`` if a learner or critic has died; for waits in which they have nothing to do."""
        for kind in TRAINED:
            for role in self.of(kind):
                role.check_alive()

    def close(self) -> None:
        """End all role processes and give their places back."""
        import ray
        from ray.util.placement_group import remove_placement_group

        for role in self.roles:
            ray.kill(role.actor)
        for handle in self._reserved.values():
            remove_placement_group(handle)


def ask(role: Role, method: str, *arguments: Any) -> RoleCall:
    """Ask ``role`` something; ``Fleet.finish`` waits for the answer."""
    actor = role.actor
    return RoleCall(role, method, arguments, getattr(actor, method).remote(*arguments), actor)


def meeting_host(roles: Sequence[Role]) -> str:
    """Address of the first of ``roles`` that all of them can reach: loopback where they are on one node."""
    places = [role.place for role in roles if role.place is not None]
    return LOOPBACK if len({place.node_id for place in places}) == 1 else places[0].address
