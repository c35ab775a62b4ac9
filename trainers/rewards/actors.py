"""Rewards by workers of their own: each judges one answer at a time, and none of them can hold the training up."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor

from rltui.layout.grading import SERVED_REWARDS
from rltui.layout.settings import rewards_of
from rltui.onnode import rundir
from trainers.rewards.answers import Answer, Reward
from trainers.rewards.composed import make_reward
from trainers.rewards.model_judge import Judges, ModelJudge, make_judges
from trainers.rewards.own import JudgeClient
from trainers.rewards.parts import has_failed
from trainers.rewards.reward_models import RewardModels
from trainers.rewards.workers import START_S as IMPORT_S
from trainers.roles.calls import NotLoadedError, Role, RoleError, call_all
from trainers.roles.fleet import Fleet
from trainers.roles.reward_worker import Question, Reply, Verdict
from trainers.session import Session

GRACE_S = 5.0
"""What a worker may take beyond its limit, in which it ends a program by itself, before it is ended."""
START_S = 300.0
"""Most that a worker may take to come back, imports from a cold shared file system included."""
TRIES = 3
"""Times that the worker of an answer may be found dead before the answer is taken for the culprit."""


class RewardActors:
    """Shares answers out to workers; safe to call from several threads, whose answers then take turns.

    An answer that takes too long earns 0, as one does whose worker dies again and again; the worker is started again,
    and both are events. Ray starts workers again where they were (``max_restarts``).

    Args:
        workers: The workers, loaded.
        timeout_s: Longest time for one answer.
        event: Called with a kind and a text.
        grace_s: See ``GRACE_S``.
        judges: Who answers what functions in workers ask, which takes none of their time.
    """

    def __init__(
        self,
        workers: Sequence[Role],
        timeout_s: float,
        event: Callable[[str, str], None],
        grace_s: float = GRACE_S,
        judges: JudgeClient | None = None,
    ) -> None:
        self._timeout_s, self._grace_s, self._event, self._judges = timeout_s, grace_s, event, judges
        self._free: queue.Queue[Role] = queue.Queue()
        for worker in workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(len(workers), thread_name_prefix="reward")
        self._lock = threading.Lock()
        self._seconds: list[float] = []

    def score(self, answers: Sequence[Answer], name: str) -> list[float]:
        """The reward ``name`` of each answer.

        Raises:
            RoleError: A worker cannot judge at all, or did not come back.
        """
        return list(self._threads.map(lambda answer: self._score(answer, name), answers))

    def measures(self) -> dict[str, float]:
        """Latencies since the last call, as metrics; none where nothing was judged."""
        with self._lock:
            seconds, self._seconds = sorted(self._seconds), []
        if not seconds:
            return {}
        late = sum(each >= self._timeout_s for each in seconds)
        return {
            "reward_latency_p99_s": seconds[math.ceil(0.99 * len(seconds)) - 1],
            "reward_timeout_fraction": late / len(seconds),
        }

    def close(self) -> None:
        """Judge no more; the fleet ends the processes."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _score(self, answer: Answer, name: str) -> float:
        began = time.monotonic()
        reward = 0.0
        for number in range(1, TRIES + 1):
            worker = self._free.get()
            try:
                found = self._ask(worker, answer, name, is_last=number == TRIES)
            finally:
                self._free.put(worker)
            if found is not None:
                reward = found
                break
        with self._lock:
            self._seconds.append(time.monotonic() - began)
        return reward

    def _ask(self, worker: Role, answer: Answer, name: str, *, is_last: bool) -> float | None:
        """What ``worker`` says; None where it died, which may have had other reasons than the answer."""
        import ray
        from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

        asked = worker.actor.score.remote(answer, name)
        try:
            while isinstance(said := ray.get(asked, timeout=self._timeout_s + self._grace_s), Question):
                asked = worker.actor.go_on.remote(self._reply(said))
            verdict: Verdict = said
            return verdict.reward
        except GetTimeoutError:
            # killed by ray.kill an actor stays dead by default, whatever max_restarts says
            ray.kill(worker.actor, no_restart=False)
            why = f"judged an answer for more than {self._timeout_s:g} s, which therefore earns 0"
            come_back(worker, why, self._event)
            return 0.0
        except RayTaskError as error:
            if not isinstance(error.cause, NotLoadedError):
                raise RoleError(f"{worker.title} failed while judging: {error.cause or error}") from error
        except RayActorError:
            pass
        why = "died" + (" once more with an answer, which therefore earns 0" if is_last else "")
        come_back(worker, why, self._event)
        return None

    def _reply(self, question: Question) -> Reply:
        """The judge's; what it does not take is an error of the function that asked."""
        try:
            return Reply(getattr(self._judges, question.method)(*question.arguments))
        except (TypeError, ValueError) as error:
            return Reply(error=str(error))


def grace_of(names: Collection[str]) -> float:
    """What a worker may take beyond its limit for rewards of these names.

    More where it may first have to start a process of its own again, which an answer before took with it.
    """
    return GRACE_S + (IMPORT_S if any(name == "math" or ":" in name for name in names) else 0.0)


class ByWorkers:
    """One reward, which workers compute.

    Args:
        actors: The workers.
        name: The reward.
    """

    def __init__(self, actors: RewardActors, name: str) -> None:
        self._actors, self._name = actors, name

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The reward of each answer; see ``RewardActors``."""
        return self._actors.score(answers, self._name)

    def close(self) -> None:
        """Judge no more; the fleet ends the processes."""
        self._actors.close()


def come_back(worker: Role, why: str, event: Callable[[str, str], None]) -> None:
    """Wait until Ray has started ``worker`` again, and make it ready; ``event`` is told why.

    Raises:
        RoleError: It did not come back.
    """
    import ray
    from ray.exceptions import RayActorError

    from trainers.placement import process_location

    before, deadline = worker.title, time.monotonic() + START_S
    while True:
        calls = [(worker, worker.actor.load.remote(prove=False))]
        try:
            call_all(calls, max(1.0, deadline - time.monotonic()), "coming back")
            place = ray.get(worker.actor.__ray_call__.remote(process_location), timeout=START_S)
        except (RoleError, RayActorError):
            # a call may still reach the process that is being ended
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            continue
        break
    worker.settle(place)
    event(rundir.RESTART, f"{before} {why}; {worker.title} goes on in its place")


class RunRewards:
    """The rewards of a run: those that its workers compute, those that its roles give, and those of this process.

    Args:
        session: The attempt.
        fleet: Its roles, loaded.

    Attributes:
        judges: The engines of a language model that grades; None where there is none.
    """

    def __init__(self, session: Session, fleet: Fleet) -> None:
        layout, workers = session.layout, fleet.of("reward")
        self.judges = make_judges(session, fleet)
        self._measured: list[RewardModels | Judges | RewardActors] = [self.judges] if self.judges else []
        served: dict[str, Reward] = {"judge": ModelJudge(self.judges)} if self.judges else {}
        if fleet.of("reward_model"):
            models = RewardModels(session, fleet)
            self._measured.append(models)
            served["reward_model"] = models
        if workers and layout.roles.reward is not None:
            elsewhere = [name for name in rewards_of(layout.data) if name not in (*SERVED_REWARDS, "none")]
            limit_s, grace_s = layout.roles.reward.timeout_s, grace_of(elsewhere)
            actors = RewardActors(workers, limit_s, session.event, grace_s, judges=self.judges)
            self._measured.append(actors)
            served |= {name: ByWorkers(actors, name) for name in elsewhere}
        self._reward = make_reward(layout, session.event, served=served, judges=self.judges)
        self._has_own = any(":" in name for name in rewards_of(layout.data))
        self._lock, self._scored, self._failed = threading.Lock(), 0, 0

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The reward of each answer; from any thread.

        Raises:
            RoleError: Somebody cannot judge at all, or did not come back.
        """
        rewards = self._reward.score(answers)
        with self._lock:
            self._scored += len(rewards)
            self._failed += sum(map(has_failed, rewards))
        return rewards

    def measures(self) -> dict[str, float]:
        """What was noted since the last call, as metrics."""
        found = {name: value for each in self._measured for name, value in each.measures().items()}
        with self._lock:
            scored, failed, self._scored, self._failed = self._scored, self._failed, 0, 0
        return found | ({"reward_failed_fraction": failed / scored} if self._has_own and scored else {})

    def close(self) -> None:
        """Judge no more; the fleet ends the processes of roles."""
        self._reward.close()
