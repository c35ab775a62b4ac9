"""The reward for a mathematical answer: equal in value to the right one, however it is written."""

from __future__ import annotations

from collections.abc import Sequence

from trainers.rewards.answers import Answer, boxed, last_number, plain_number, same_number
from trainers.rewards.workers import WorkerError, Workers

WORKER = "trainers.rewards.math_worker"


class Math:
    """1 where the boxed answer, or else the last number, equals the right one; anything else, and a hang, is 0.

    Args:
        workers: Processes that compare what is not plainly equal.
        timeout_s: Longest time for one answer.

    Raises:
        ValueError: math-verify is not installed.
    """

    def __init__(self, workers: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        try:
            self._workers = Workers(WORKER, workers)
        except WorkerError as error:
            hint = " : pip install math-verify==0.8.0" if "math_verify" in str(error) else ""
            raise ValueError(f"the reward math cannot start: {error}{hint}") from error

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """1 or 0 for each answer."""
        scores = [quick(answer.prompt.answer, answer.text) for answer in answers]
        open_ones = [number for number, score in enumerate(scores) if score is None]
        questions = [[gold_of(answers[number].prompt.answer), _result(answers[number].text)] for number in open_ones]
        for number, found in zip(open_ones, self._workers.ask(questions, self._timeout_s), strict=True):
            scores[number] = found
        return [float(score or 0.0) for score in scores]

    def close(self) -> None:
        """End the processes that compare formulas."""
        self._workers.close()


def _result(text: str) -> str:
    """The last boxed value alone, so that no earlier one counts; without any, the whole text."""
    found = boxed(text)
    return text if found is None else f"\\boxed{{{found}}}"


def gold_of(answer: str) -> str:
    r"""The value in a dataset's answer: in the last ``\boxed{}``, behind GSM8K's ``####``, or all of it."""
    found = boxed(answer)
    if found is not None:
        return found
    # GSM8K's mark is on the last line; elsewhere it is a heading of Markdown
    _, mark, value = answer.rstrip().rpartition("\n")[2].rpartition("####")
    return plain_number(value) if mark else answer.strip()


def quick(answer: str, text: str) -> float | None:
    """What needs no algebra: 1 where both are plainly equal, 0 where there is nothing to compare, else None."""
    gold, said = gold_of(answer), boxed(text)
    if not gold or not text.strip():
        return 0.0
    if said is None:
        said = last_number(text)
    if said is not None and (said == gold or same_number(said, gold)):
        return 1.0
    return None
