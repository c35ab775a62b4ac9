"""A reward worker, as a Ray actor class: judges one answer, or plays one step, at a time, or has agents beside it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rltui.layout.grading import SERVED_REWARDS
from rltui.layout.schema import Layout
from trainers.rewards.answers import Answer, Reward
from trainers.rewards.workers import Worker
from trainers.roles.agent_relay import AgentRelay, Asked, Over, Said
from trainers.roles.calls import NotLoadedError

LISTENERS = "listeners"
"""Ray's concurrency group for calls that wait for what an agent asks."""


def most_samples(layout: Layout) -> int:
    """Samples that agents beside one worker play at once at most: twice its share, where others are away.

    A thread of the worker waits for each.
    """
    most, workers = layout.data.max_episodes, max(1, layout.num_reward_workers)
    return min(most, 2 * -(-most // workers))


@dataclass(frozen=True)
class Verdict:
    """What a worker says of an answer: its reward, and the seconds that it took to find."""

    reward: float
    seconds: float


@dataclass(frozen=True)
class Question:
    """What a worker asks the run's judge before it goes on: a method of ``Judges``, and with what."""

    method: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Reply:
    """The judge's answers to a question, or why it takes none."""

    found: Any = None
    error: str = ""


class RemoteJudge:
    """The run's judge, which the trainer's own process asks: a question is what the worker's call returns meanwhile.

    Work that may ask runs in a thread of its own, and one at a time.
    """

    def __init__(self) -> None:
        self._said: queue.Queue[Verdict | Question | BaseException] = queue.Queue()
        self._heard: queue.Queue[Reply] = queue.Queue()

    def verdicts(self, prompts: Sequence[Any], max_tokens: int = 0) -> list[str | None]:
        """As in ``Judges``, asked through the driver, which knows the judges."""
        return self._ask(Question("verdicts", (list(prompts), max_tokens)))

    def likelihoods(self, pairs: Sequence[Any]) -> list[float | None]:
        """As in ``Judges``, asked through the driver, which knows the judges."""
        return self._ask(Question("likelihoods", (list(pairs),)))

    def begin(self, work: Callable[[], Verdict]) -> Verdict | Question:
        """Do ``work`` until it is done, or asks; what it raises is raised."""

        def run() -> None:
            try:
                self._said.put(work())
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self._said.put(error)

        threading.Thread(target=run, daemon=True, name="reward").start()
        return self._next()

    def go_on(self, reply: Reply) -> Verdict | Question:
        """Go on with the work whose question ``reply`` answers."""
        self._heard.put(reply)
        return self._next()

    def _next(self) -> Verdict | Question:
        said = self._said.get()
        if isinstance(said, BaseException):
            raise said
        return said

    def _ask(self, question: Question) -> Any:
        self._said.put(question)
        reply = self._heard.get()
        if reply.error:
            raise ValueError(reply.error)
        return reply.found


class RewardWorker:
    """One process that computes rewards, or keeps one that environments run in.

    Args:
        layout: The layout.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._rewards: dict[str, Reward] = {}
        self._judge = RemoteJudge() if layout.roles.judge is not None else None
        self._is_asking = False
        self._player: Worker | None = None
        self._agents: AgentRelay | None = None

    def load(self, prove: bool = True) -> list[tuple[str, str]]:
        """Make the environment or the reward function ready; kinds and texts of what is worth an event of the attempt.

        Args:
            prove: Whether to try out the sandbox first; needed once on each node.

        Raises:
            ValueError: A package or a setting that it needs is missing.
            RuntimeError: The sandbox is open, and the layout does not allow that.
        """
        from trainers.rewards.composed import make_rewards_of

        if self._layout.data.environment and self._layout.data.environment_kind == "agent":
            from trainers.roles.agent_relay import AgentRelay

            self._agents = self._agents or AgentRelay(self._layout.data.environment)
            return []
        if self._layout.data.environment:
            return self._load_player(prove=prove)
        role = self._layout.roles.reward
        assert role is not None
        events: list[tuple[str, str]] = []
        self._rewards = make_rewards_of(
            self._layout,
            lambda kind, text: events.append((kind, text)),
            workers=1,
            prove=prove,
            limit_s=role.timeout_s,
            judges=self._judge,
            without=SERVED_REWARDS,
        )
        return events

    def _load_player(self, *, prove: bool) -> list[tuple[str, str]]:
        from trainers.environments.pool import ensure_walls, start_worker

        events: list[tuple[str, str]] = []
        if prove:
            ensure_walls(self._layout.data, lambda kind, text: events.append((kind, text)))
        if self._player is None:
            self._player = start_worker(self._layout.data.environment)
        return events

    def score(self, answer: Answer, name: str) -> Verdict | Question:
        """Judge one answer by the reward ``name``; a question to the run's judge waits for ``go_on``.

        Raises:
            NotLoadedError: ``load`` was not called, as Ray does not where it starts an actor again.
        """
        if name not in self._rewards:
            raise NotLoadedError("call load() first")
        began = time.monotonic()

        def work() -> Verdict:
            [reward] = self._rewards[name].score([answer])
            return Verdict(reward, time.monotonic() - began)

        return work() if self._judge is None else self._note(self._judge.begin(work))

    def go_on(self, reply: Reply) -> Verdict | Question:
        """Go on with what asked the judge.

        Raises:
            NotLoadedError: Nothing did: Ray has started the actor again meanwhile.
        """
        if self._judge is None or not self._is_asking:
            raise NotLoadedError("call load() and score() first")
        return self._note(self._judge.go_on(reply))

    def _note(self, said: Verdict | Question) -> Verdict | Question:
        self._is_asking = isinstance(said, Question)
        return said

    def play(self, question: Any, timeout_s: float) -> Any:
        """What the environment's process answers; None where it does not in time, or dies of the question.

        Raises:
            NotLoadedError: ``load`` was not called, as Ray does not where it starts an actor again.
        """
        if self._player is None:
            raise NotLoadedError("call load() first")
        return self._player.ask(question, timeout_s)

    def begin_sample(self, key: int, question: dict[str, Any]) -> None:
        """Have an agent play a sample beside this worker; see ``AgentRelay.begin``."""
        self._relay().begin(key, question)

    def listen(self, key: int) -> Asked | Over:
        """What comes next of a sample, when it comes; waits in the concurrency group for that."""
        return self._relay().listen(key)

    def answer(self, key: int, number: int, said: Said) -> None:
        """Answer what a sample asked the policy."""
        self._relay().answer(key, number, said)

    def _relay(self) -> AgentRelay:
        if self._agents is None:
            raise NotLoadedError("call load() first")
        return self._agents
