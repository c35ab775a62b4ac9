"""Where environments run: in the layout's reward workers, or in processes beside the trainer where it has none."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from trainers.environments.pool import EnvironmentProcess, Environments, ensure_walls, start_worker
from trainers.rewards.actors import GRACE_S, TRIES, come_back
from trainers.rewards.workers import START_S
from trainers.roles.calls import NotLoadedError, Role, RoleError
from trainers.roles.fleet import Fleet
from trainers.session import Session


def make_environments(session: Session, fleet: Fleet) -> Environments | None:
    """The environments of the layout, their processes ready; None where it names none.

    Raises:
        ValueError: The environment cannot be imported.
        RuntimeError: It runs what a model wrote, the sandbox is open, and the layout does not allow that.
    """
    layout = session.layout
    name, limit_s = layout.data.environment, layout.deadlines.environment_s
    if not name:
        return None
    workers = fleet.of("reward")
    processes: list[EnvironmentProcess] = [WorkerProcess(worker, session.event) for worker in workers]
    if not workers:
        ensure_walls(layout.data, session.event)
        processes = [start_worker(name) for _ in range(len(os.sched_getaffinity(0)))]
    return Environments(name, processes, limit_s, session.event)


class WorkerProcess:
    """The process that a reward worker keeps for environments.

    Args:
        worker: The worker, loaded.
        event: Called with kind and text where it had to be started again.
    """

    def __init__(self, worker: Role, event: Callable[[str, str], None]) -> None:
        self._worker, self._event = worker, event

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The answer; None where it did not come in time, or the worker died of the question again and again.

        Raises:
            RoleError: The worker cannot play at all, or did not come back.
        """
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        worker = self._worker
        for _ in range(TRIES):
            asked = worker.actor.play.remote(question, timeout_s)
            try:
                return ray.get(asked, timeout=timeout_s + START_S + GRACE_S)
            except GetTimeoutError:
                ray.kill(worker.actor, no_restart=False)
                come_back(worker, f"played a step for more than {timeout_s:g} s", self._event)
                return None
            except RayTaskError as error:
                if not isinstance(error.cause, NotLoadedError):
                    raise RoleError(f"{worker.title} failed while playing: {error.cause or error}") from error
            except RayActorError:
                pass
            come_back(worker, "died", self._event)
        return None

    def close(self) -> None:
        """The fleet ends the worker."""
