"""Calls a user's reward function: a JSON line ``[prompt, response, answer, row]`` in, a JSON number or several out.

A function with an argument ``judge`` may ask the run's judge: a list goes out, and the judge's answer comes in. What
the function raises is said as text instead of a number. What it prints goes nowhere: stdout is for answers.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO


def find(name: str) -> Callable[..., Any]:
    """The user's function ``module:function``, imported in this process."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


JUDGE = "judge"
"""The argument of a reward function that stands for the run's judge; and this program's, where there is one."""


class JudgeOfRun:
    """The run's judge as a reward function knows it.

    Args:
        say: Sends what is asked.
        hear: Waits for the answer.
    """

    def __init__(self, say: Callable[[Any], None], hear: Callable[[], Any]) -> None:
        self._say, self._hear = say, hear

    def ask(self, prompt: str | list[dict[str, Any]], max_tokens: int = 0) -> str | None:
        """What the judge says to a text or to messages; None where that is too long.

        Args:
            prompt: The question.
            max_tokens: Longest answer; 0: ``data.judge.max_tokens``.
        """
        found: str | None = self._consult("verdicts", [prompt], max_tokens)
        return found

    def likelihood(self, prompt: str | list[dict[str, Any]], continuation: str) -> float | None:
        """How likely the judge finds ``continuation`` after ``prompt``, 0 to 1; None where that is too long."""
        found: float | None = self._consult("likelihoods", [[prompt, continuation]])
        return found

    def _consult(self, *asked: Any) -> Any:
        self._say(list(asked))
        answer = self._hear()
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["found"]


def wants_judge(function: Callable[..., Any]) -> bool:
    """Whether ``function`` has an argument for the judge."""
    try:
        return JUDGE in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return False


def verdict(function: Callable[..., Any], question: list[Any]) -> float | dict[str, float] | str:
    """What ``function`` says, or why it says nothing."""
    try:
        found = function(*question)
        if isinstance(found, dict):
            return {str(name): float(value) for name, value in found.items()}
        return float(found)
    except Exception as error:  # noqa: BLE001 - it is the user's, and costs its own answer only
        return f"{type(error).__name__}: {error}"[:300]


def stream_apart() -> TextIO:
    """What goes to who started this process; what own code prints from here on goes nowhere."""
    answers = os.fdopen(os.dup(1), "w")
    mute(1)
    return answers


def questions_apart() -> TextIO:
    """What who started this process asks; own code, and what that starts, finds an empty input from here on.

    A program that reads its input, as ffmpeg and ssh do, would else wait for the next question, and take it.
    """
    questions = os.fdopen(os.dup(0))
    mute(0)
    return questions


def mute(descriptor: int) -> None:
    """Let the descriptor be of nothing: empty to read, and without end to write."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def main() -> None:
    """Call the user's function, one answer a line, until stdin ends."""
    questions, answers = questions_apart(), stream_apart()

    def say(what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    function = find(sys.argv[1])
    if wants_judge(function):
        if JUDGE not in sys.argv[2:]:
            raise SystemExit(f"{sys.argv[1]} has an argument {JUDGE!r}, and there is no roles.judge here")
        function = functools.partial(function, judge=JudgeOfRun(say, lambda: json.loads(questions.readline())))
    say("ready")
    mute(2)  # nobody reads it from here on, and a full pipe would hold the function up
    for line in questions:
        say(verdict(function, json.loads(line)))


if __name__ == "__main__":
    main()
