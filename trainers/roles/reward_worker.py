"""A reward worker: judges one answer, or plays one step, at a time on CPU cores of its own, as a Ray actor class."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltui.layout.schema import Layout
    from trainers.rewards.answers import Answer, Reward
    from trainers.rewards.workers import Worker


@dataclass(frozen=True)
class Verdict:
    """What a worker says of an answer: its reward, and the seconds that it took to find."""

    reward: float
    seconds: float


class NotLoadedError(RuntimeError):
    """The process is another one than the one that was loaded."""


class RewardWorker:
    """One process that computes rewards, or keeps one that environments run in.

    Args:
        layout: The layout.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._reward: Reward | None = None
        self._player: Worker | None = None

    def load(self, prove: bool = True) -> list[tuple[str, str]]:
        """Make the environment or the reward function ready; kinds and texts of what is worth an event of the attempt.

        Args:
            prove: Whether to try out the sandbox first; needed once on each node.

        Raises:
            ValueError: A package or a setting that it needs is missing.
            RuntimeError: The sandbox is open, and the layout does not allow that.
        """
        from trainers.rewards.judge import make_reward

        if self._layout.data.environment:
            return self._load_player(prove=prove)
        role = self._layout.roles.reward
        assert role is not None
        events: list[tuple[str, str]] = []
        self._reward = make_reward(
            self._layout, lambda kind, text: events.append((kind, text)), workers=1, prove=prove, limit_s=role.timeout_s
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

    def score(self, answer: Answer) -> Verdict:
        """Judge one answer.

        Raises:
            NotLoadedError: ``load`` was not called, as Ray does not where it starts an actor again.
        """
        if self._reward is None:
            raise NotLoadedError("call load() first")
        began = time.monotonic()
        [reward] = self._reward.score([answer])
        return Verdict(reward, time.monotonic() - began)

    def play(self, question: Any, timeout_s: float) -> Any:
        """What the environment's process answers; None where it does not in time, or dies of the question.

        Raises:
            NotLoadedError: ``load`` was not called, as Ray does not where it starts an actor again.
        """
        if self._player is None:
            raise NotLoadedError("call load() first")
        return self._player.ask(question, timeout_s)
