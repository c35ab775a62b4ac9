"""Agents beside the reward workers, on whatever nodes these are: Ray's own channel is between them and the policy.

What a worker played that dies is played again by another. Where Ray starts it again, it goes on; else the others do.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rltui.onnode import rundir
from trainers.chat_endpoint import Answer
from trainers.environments.agent_place import GRACE_S
from trainers.rewards.actors import come_back
from trainers.roles.agent_relay import Over, heard
from trainers.roles.calls import POLL_S, NotLoadedError, Role, RoleError
from trainers.roles.reward_worker import LISTENERS

DIED = "the worker that it ran beside died"


class AgentWorkers:
    """Shares samples out to workers; safe to call from several threads. In the place of ``AgentPlace``.

    Args:
        workers: The workers, loaded.
        most: Samples that each takes at once, see ``most_samples``.
        event: Called with a kind and a text where one died.
        check: Called now and then while nobody can play; raises where the run is to end.
    """

    def __init__(
        self, workers: Sequence[Role], most: int, event: Callable[[str, str], None], check: Callable[[], None]
    ) -> None:
        self._most = most
        self._event, self._check, self._keys = event, check, itertools.count()
        self._changed = threading.Condition()
        self._ready, self._coming_back = list(workers), list[Any]()
        self._under_way: Counter[str] = Counter()
        self._is_closed = False

    def play(self, question: dict[str, Any], answer: Answer) -> dict[str, Any]:
        """As ``AgentPlace.play`` by the worker that has least to do.

        Raises:
            RoleError: No worker is left.
        """
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        worker, hangs = self._taken(), False
        process = worker.pid
        try:
            return self._played(worker, question, answer)
        except RayTaskError as error:
            if not isinstance(error.cause, NotLoadedError):
                raise RoleError(f"{worker.title} failed while playing: {error.cause or error}") from error
        except GetTimeoutError:  # with all its agents, whose limits it does not heed any more
            hangs = True
        except RayActorError:
            pass
        finally:
            with self._changed:
                self._under_way[worker.name] -= 1
                self._changed.notify()
        self._lost(worker, process, hangs=hangs)
        return {"error": DIED}

    def close(self) -> None:
        """Begin no more; the fleet ends the workers, and these their agents."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _played(self, worker: Role, question: dict[str, Any], answer: Answer) -> dict[str, Any]:
        import ray

        key, limit_s = next(self._keys), question["limit_s"] + 2 * GRACE_S
        ray.get(worker.actor.begin_sample.remote(key, question), timeout=GRACE_S)
        while True:
            listening = worker.actor.listen.options(concurrency_group=LISTENERS).remote(key)
            told = ray.get(listening, timeout=limit_s)
            if isinstance(told, Over):
                return told.found

            def reply(number: int = told.number, request: dict[str, Any] = told.request) -> None:
                worker.actor.answer.remote(key, number, heard(answer, request))

            threading.Thread(target=reply, daemon=True, name="answer").start()

    def _taken(self) -> Role:
        with self._changed:
            while not (free := [one for one in self._ready if self._under_way[one.name] < self._most]):
                if not self._ready and not self._coming_back:
                    raise RoleError("no worker is left beside which agents could run")
                self._changed.wait(POLL_S)
                self._check()
            worker = min(free, key=lambda one: self._under_way[one.name])
            self._under_way[worker.name] += 1
            return worker

    def _lost(self, worker: Role, process: int, *, hangs: bool) -> None:
        """Have nobody play there until it has come back; the first to notice the end of ``process`` sees to it."""
        import ray

        with self._changed:
            if self._is_closed or worker not in self._ready or worker.pid != process:
                return
            self._ready.remove(worker)
            self._coming_back.append(worker)
        if hangs:
            ray.kill(worker.actor, no_restart=False)
        threading.Thread(target=self._bring_back, args=(worker,), daemon=True, name="worker").start()

    def _bring_back(self, worker: Role) -> None:
        try:
            come_back(worker, "died beside its agents", self._event)
        except Exception as error:  # noqa: BLE001 - the outermost edge of a thread; its node may be gone for good
            self._event(rundir.RESTART, f"{worker.title} did not come back, agents go on without it: {error}")
        else:
            with self._changed:
                self._ready.append(worker)
        with self._changed:
            self._coming_back.remove(worker)
            self._changed.notify_all()
