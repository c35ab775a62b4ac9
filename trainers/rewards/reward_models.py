"""The reward that a sequence classifier gives, which replicas of the run's role ``reward_model`` serve."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from rltui.layout.grading import Scoring
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.rewards.answers import Answer
from trainers.rewards.verdicts import question_of
from trainers.rewards.workers import Failures
from trainers.roles.fleet import Fleet
from trainers.roles.reward_model import RewardModel
from trainers.session import Session

TOO_LONG = "question and answer have more tokens than roles.reward_model.context, or none"


class RewardModels:
    """The reward of ``data.reward: reward_model``: the worth of each answer's score, all of a call scored at once.

    Replicas share the answers, and so do ranks that divide the weights. A replica that dies is started again and asked
    again; safe to call from several threads.

    Args:
        session: The attempt.
        fleet: Its roles, of which some are reward models.

    Raises:
        ValueError: The model has no chat template, and the layout wants one.
    """

    def __init__(self, session: Session, fleet: Fleet) -> None:
        role = session.layout.roles.reward_model
        assert role is not None
        self._settings, self._fleet, self._context = session.layout.data.scoring, fleet, role.context
        self._codec = Codec(fleet.model_paths["reward_model"])
        self._renderer = Renderer(self._codec, self._settings.chat, self._settings.system)
        if self._settings.chat:  # a model without chat template, or with one that takes no system, is found now
            self._renderer.conversation([{"role": "user", "content": ""}, {"role": "assistant", "content": ""}])
        self._failures = Failures("reward", f"no score, and such answers earn {self._settings.failed:g}", session.event)
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._divided = "reward_model" in session.layout.divided
        self._scores: list[float] = []
        self._failed = 0

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The worth of each score; ``failed`` for answers that are too long.

        Raises:
            RoleError: A reward model failed, or died once too often.
            ValueError: Its chat template does not take the messages.
        """
        rows = [self._tokens_of(answer) for answer in answers]
        fits = [1 <= len(row) <= self._context for row in rows]
        answered = iter(self._ask([row for row, one in zip(rows, fits, strict=True) if one]))
        scores = [next(answered) if one else None for one in fits]
        return [
            self._settings.failed if one is None else reward_of_score(one, self._settings)
            for one in self._noted(scores)
        ]

    def _noted(self, scores: Sequence[float | None]) -> list[float | None]:
        """``scores`` without those that are no finite numbers, counted; the first failures of each kind are events."""
        found = [one if one is not None and math.isfinite(one) else None for one in scores]
        for one, score in zip(found, scores, strict=True):
            if one is None:
                self._failures.tell(TOO_LONG if score is None else f"the score is {score}")
        with self._lock:
            self._scores += [one for one in found if one is not None]
            self._failed += found.count(None)
        return found

    def measures(self) -> dict[str, float]:
        """Of the answers since the last call, as metrics; none where there were none."""
        with self._lock:
            scores, failed = self._scores, self._failed
            self._scores, self._failed = [], 0
        if not scores and not failed:
            return {}
        found = {"reward_model_failed_fraction": failed / (failed + len(scores))}
        return found | ({"reward_model_score": math.fsum(scores) / len(scores)} if scores else {})

    def close(self) -> None:
        """The fleet ends the processes."""

    def _tokens_of(self, answer: Answer) -> list[int]:
        if not self._settings.chat:
            return self._codec.encode(question_of(answer.prompt) + answer.text, special=True)
        asked = answer.prompt.messages or ({"role": "user", "content": answer.prompt.text},)
        said = [*asked, {"role": "assistant", "content": answer.text}]
        return self._codec.encode(self._renderer.conversation(said))  # the template has written special tokens out

    def _ask(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """The score of each row of tokens; replicas get equal shares of all lengths.

        Ranks that divide the weights pass a layer together: all make as many passes, in the same order of calls.
        """
        replicas = len(self._fleet.of("reward_model"))
        order = sorted(range(len(rows)), key=lambda place: len(rows[place]))
        if self._divided:
            order += order[:1] * (-len(order) % replicas)
        shares = [order[number::replicas] for number in range(replicas)]
        with self._asking:
            own = [[rows[place] for place in share] for share in shares]
            asked = self._fleet.begin("reward_model", RewardModel.score, own)
        answered = self._fleet.finish(asked, "scoring answers")
        found = dict[int, float]()
        for share, scores in zip(shares, answered, strict=True):
            found |= zip(share, scores, strict=True)
        return [found[place] for place in range(len(rows))]


def reward_of_score(score: float, settings: Scoring) -> float:
    """What ``score`` is worth: (score - center) / spread, or the sigmoid of that.

    By Bradley and Terry (1952) the sigmoid is the chance that the answer is preferred to one of score ``center``.
    """
    value = (score - settings.center) / settings.spread
    # the sigmoid by tanh: math.exp of a large score is an OverflowError
    return 0.5 * (1.0 + math.tanh(0.5 * value)) if settings.bounded else value
