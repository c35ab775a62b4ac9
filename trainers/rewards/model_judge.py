"""The reward that a language model gives, which engines of the run's role ``judge`` serve."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

from rltui.layout.grading import Judging
from trainers.data.chat import Renderer
from trainers.data.codec import Codec
from trainers.dispatch import DispatchClosedError
from trainers.rewards.answers import Answer
from trainers.rewards.verdicts import filled, reward_of_verdict
from trainers.rewards.workers import Failures
from trainers.roles.completions import Completion, derive_seed
from trainers.roles.fleet import Fleet
from trainers.roles.sampling import SamplingSettings
from trainers.rollouts import SEQUENCES_PER_ENGINE, QueueDepth, Rollouts, spare_of
from trainers.session import Session

Asked: TypeAlias = "str | Sequence[dict[str, Any]]"
"""What the judge is asked: a text, or messages."""

Question = tuple[tuple[int, ...], SamplingSettings]
"""The tokens of a question, and how its verdict is sampled."""


class Judges:
    """The judge's engines: all questions of all threads share them, and each is full as long as any wait.

    An engine that dies is started again, and the others answer what it was at meanwhile.

    Args:
        session: The attempt.
        fleet: Its roles, of which some are judges.
        model_path: Folder of the judge's model.

    Attributes:
        settings: ``data.judge``.
        queue: How many questions wait for an engine.

    Raises:
        ValueError: The model has no chat template, and the layout wants one.
    """

    def __init__(self, session: Session, fleet: Fleet, model_path: str) -> None:
        role = session.layout.roles.judge
        assert role is not None
        self.settings: Judging = session.layout.data.judge
        self._stop, self._fleet, self._context = session.stop, fleet, role.context
        self._codec = Codec(model_path)
        self._renderer = Renderer(
            self._codec, self.settings.chat, self.settings.system, options=self.settings.template_options
        )
        self._tokens_of("")  # a model without chat template, or with one that takes no system, is found now
        slots = role.max_concurrency or SEQUENCES_PER_ENGINE
        self._rollouts = Rollouts(
            fleet.of("judge"),
            session.layout.train.samples_per_step,
            fleet.deadlines.generate_s,
            slots=slots,
            spare=spare_of(slots, role.engine),
        )
        self.queue: QueueDepth = self._rollouts.prompts
        why = f"no verdict, and such answers earn {self.settings.failed:g}"
        self._failures = Failures("reward", why, session.event)
        self._lock, self._closed = threading.Lock(), False
        self._asked = self._failed = self._tokens = 0

    def verdicts(self, prompts: Sequence[Asked], max_tokens: int = 0) -> list[str | None]:
        """What the judge says to each prompt, a text or messages; None where it is too long, or what it says is cut.

        Raises:
            RoleError: The judge failed, or died once too often.
            ValueError: Its chat template does not take the messages.
        """
        limit = max_tokens or self.settings.max_tokens
        stops, temperature = self._codec.stop_token_ids, self.settings.temperature
        # a seed of the question's own: a step that is repeated after a resume is judged alike
        questions = [
            (tokens, SamplingSettings(temperature, limit, 1, stops, derive_seed(*tokens)))
            for tokens in map(self._tokens_of, prompts)
        ]
        return [self._text(one) for one in self._ask(questions)]

    def likelihoods(self, pairs: Sequence[tuple[Asked, str]]) -> list[float | None]:
        """How likely the judge finds each continuation after its prompt, token by token: their geometric mean, 0 to 1.

        None where there are no tokens, or too many. Errors are those of ``verdicts``.
        """
        questions = []
        for prompt, continuation in pairs:
            forced = tuple(self._codec.encode(continuation))
            sampling = SamplingSettings(0.0, max(1, len(forced)), 1, (), 0, forced=forced)
            questions.append((self._tokens_of(prompt), sampling))
        found = self._ask(questions)
        return [None if one is None else math.exp(math.fsum(one.log_probs) / len(one.log_probs)) for one in found]

    def failed(self, why: str) -> float:
        """What an answer without a verdict earns; the first few different reasons are events."""
        self._failures.tell(why)
        with self._lock:
            self._failed += 1
        return self.settings.failed

    def measures(self) -> dict[str, float]:
        """Of the questions since the last call, as metrics; none where nothing was asked."""
        with self._lock:
            asked, failed, tokens = self._asked, self._failed, self._tokens
            self._asked = self._failed = self._tokens = 0
        if not asked:
            return {}
        return {"judge_failed_fraction": failed / asked, "judge_verdict_length": tokens / asked}

    def close(self) -> None:
        """Hand no further question to the judges' engines."""
        self._closed = True
        self._rollouts.close()

    def _tokens_of(self, prompt: Asked) -> tuple[int, ...]:
        return self._renderer.tokens(self._renderer.text(prompt))

    def _ask(self, questions: Sequence[Question]) -> list[Completion | None]:
        """The completion of each question; None for those that are too long or ask for nothing."""
        # vLLM samples a token even where it only scores
        fits = [
            1 <= len(tokens) < self._context - sampling.max_tokens and (sampling.has_stops or bool(sampling.forced))
            for tokens, sampling in questions
        ]
        asked = [(list(tokens), sampling) for (tokens, sampling), one in zip(questions, fits, strict=True) if one]
        found = iter(self._rollouts.collect(self._rollouts.submit_each(asked), self._check) if asked else ())
        completions = [next(found)[0] if one else None for one in fits]
        with self._lock:
            self._asked += len(questions)
            self._tokens += sum(len(one.token_ids) for one in completions if one is not None)
        return completions

    def _check(self) -> None:
        """Called while questions are answered: start engines that died again; end the wait where the run ends."""
        self._stop.check_patience()
        if self._closed:
            raise DispatchClosedError
        failures = self._rollouts.dispatch.failures
        if failures:
            self._fleet.restart(failures)
            self._rollouts.dispatch.mend()

    def _text(self, found: Completion | None) -> str | None:
        return None if found is None or found.finish_reason == "length" else self._codec.decode(found.token_ids)


class ModelJudge:
    """The reward of ``data.reward: judge``: what the verdict about each answer is worth, all asked at once.

    Args:
        judges: The engines.
    """

    def __init__(self, judges: Judges) -> None:
        self._judges, self._settings = judges, judges.settings

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The worth of each verdict; ``failed`` for those without one that can be read."""
        prompts = [filled(self._settings.prompt, answer) for answer in answers]
        if self._settings.verdict == "likelihood":
            continuations = [filled(self._settings.continuation, answer) for answer in answers]
            found = self._judges.likelihoods(list(zip(prompts, continuations, strict=True)))
            return [self._judges.failed(NOT_SCORED) if one is None else one for one in found]
        return [self._reward(verdict) for verdict in self._judges.verdicts(prompts)]

    def _reward(self, verdict: str | None) -> float:
        if verdict is None:
            return self._judges.failed(CUT)
        found = reward_of_verdict(verdict, self._settings)
        return self._judges.failed(UNREADABLE) if found is None else found

    def close(self) -> None:
        """There is nothing of its own to end."""


CUT = "the verdict is longer than data.judge.max_tokens, or question and verdict than roles.judge.context"
UNREADABLE = "the verdict has no number or choice that data.judge knows"
NOT_SCORED = "there is nothing to score, or more than roles.judge.context takes"


def make_judges(session: Session, fleet: Fleet) -> Judges | None:
    """The engines of the layout's judge; None where it has none."""
    return Judges(session, fleet, fleet.model_paths["judge"]) if fleet.of("judge") else None
