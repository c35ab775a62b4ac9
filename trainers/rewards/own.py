"""The reward of a user's own function, in processes that are ended when it takes too long."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trainers.rewards.answers import Answer
from trainers.rewards.own_worker import JUDGE
from trainers.rewards.parts import Failed, SumOfParts
from trainers.rewards.workers import Failures, WorkerError, Workers

WORKER = "trainers.rewards.own_worker"

ASKING = 16
"""Functions that are called at once where they may ask a judge, which works on many questions together."""


class JudgeClient(Protocol):
    """Whom functions may ask: the run's judge, or who passes questions on to it; see ``model_judge.Judges``."""

    def verdicts(self, prompts: Sequence[Any], max_tokens: int = 0) -> list[str | None]:
        """What the judge says to each prompt."""

    def likelihoods(self, pairs: Sequence[Any]) -> list[float | None]:
        """How likely the judge finds each continuation after its prompt."""


class Own:
    """What ``module:function`` says of each answer; 0 where it fails, takes too long or says no finite number.

    Args:
        name: The function, called as ``function(prompt, response, answer, row)``: three texts, and the dataset's row.
        workers: Processes that call it.
        timeout_s: Longest time for one answer.
        event: Called with kind and text of the first few different failures.
        judges: The layout's judge, for a function with an argument ``judge``; None where there are none.

    Raises:
        ValueError: The function cannot be imported, or wants a judge where there is none.
    """

    def __init__(
        self,
        name: str,
        workers: int,
        timeout_s: float,
        event: Callable[[str, str], None],
        judges: JudgeClient | None = None,
    ) -> None:
        self._name, self._timeout_s, self._judges = name, timeout_s, judges
        self._failures = Failures("reward", f"the reward {name} failed, and such answers earn 0", event)
        try:
            self._workers = Workers(WORKER, workers, name, *([JUDGE] if judges else []))
        except WorkerError as error:
            raise ValueError(f"the reward {name} cannot start: {error}") from error

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """What the function says of each answer."""
        questions = [[one.prompt.text, one.text, one.prompt.answer, plain(one.prompt.row)] for one in answers]
        return [self._number(found) for found in self._workers.ask(questions, self._timeout_s, self._consult)]

    def _number(self, found: Any) -> float:
        if isinstance(found, dict) and found and all(map(math.isfinite, found.values())):
            return SumOfParts({name: (value, 1.0) for name, value in found.items()})
        if isinstance(found, int | float) and math.isfinite(found):
            return float(found)
        late = f"took more than {self._timeout_s:g} s, or ended its process"
        self._failures.tell(late if found is None else str(found))
        return Failed(0.0)

    def _consult(self, asked: Any) -> dict[str, Any]:
        """The judge's answer to a function; what it does not take is an error of that function alone."""
        assert self._judges is not None
        method, *arguments = asked
        try:
            [found] = getattr(self._judges, method)(*arguments)
        except (TypeError, ValueError) as error:
            return {"error": str(error)}
        return {"found": found}

    def close(self) -> None:
        """End the processes that run the user's function."""
        self._workers.close()


def plain(row: Any) -> dict[str, Any]:
    """What of a dataset's row JSON can carry."""
    return {name: value for name, value in row.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_plain(item) for name, item in value.items())
    return value is None or isinstance(value, str | int | float | bool)
