"""The reward for a program that passes tests, run in the sandbox."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from trainers.rewards.answers import Answer, code_of
from trainers.rewards.sandbox import Outcome, Running, Sandbox, Trial


class Code:
    """The share of the tests that an answer passes, or 1 for all of them only.

    Args:
        sandbox: Where programs run.
        workers: How many at once.
        all_or_nothing: Whether only all tests count.
    """

    def __init__(self, sandbox: Sandbox, workers: int, all_or_nothing: bool) -> None:
        self._running, self._all = Running(), all_or_nothing
        self._sandbox = replace(sandbox, running=self._running)
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="code")

    def score(self, answers: Sequence[Answer]) -> list[float]:
        """The reward of each answer; equal programs with equal tests run once."""
        prompts = {id(answer.prompt): answer.prompt for answer in answers}
        # not by a prompt's tokens: rows of a dataset may ask the same and have other tests
        tests = {number: tuple(trials_of(prompt.row)) for number, prompt in prompts.items()}
        jobs = [(code_of(answer.text), tests[id(answer.prompt)]) for answer in answers]
        found = dict.fromkeys(jobs)
        scores = dict(zip(found, self._threads.map(lambda job: self._score(*job), found), strict=True))
        return [scores[job] for job in jobs]

    def _score(self, code: str, tests: Sequence[tuple[Trial, str | None]]) -> float:
        if not code.strip() or not tests:
            return 0.0
        outcomes = self._sandbox.run(code, [test for test, _ in tests])
        passed = [passes(outcome, wanted) for outcome, (_, wanted) in zip(outcomes, tests, strict=True)]
        return float(all(passed)) if self._all else sum(passed) / len(passed)

    def close(self) -> None:
        """End the programs that run, start no more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._running.end()
        self._threads.shutdown()


def passes(outcome: Outcome, wanted: str | None) -> bool:
    """Whether a test is passed: the program came to its end, and printed what is ``wanted``, spaces at line ends aside.

    What is wanted is compared here, outside the sandbox, so that a program can't look it up.
    """
    if not outcome.finished:
        return False
    return wanted is None or _lines(outcome.output) == _lines(wanted)


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def trials_of(row: Any) -> list[tuple[Trial, str | None]]:
    """The tests of a dataset's row, each with the output that it wants, if it looks at that.

    Known forms of ``tests``: a list of assertions (MBPP), with ``test_setup_code`` or ``test_imports`` of the row run
    before; a list of ``{"input": …, "output": …}``; ``{"inputs": […], "outputs": […]}`` (APPS, TACO), with ``fn_name``
    the arguments and results of a function or of a method of ``Solution``; each of them also as JSON text.

    Raises:
        ValueError: The row has no tests, or in no known form.
    """
    tests = row.get("tests")
    if isinstance(tests, str) and tests.lstrip().startswith(("[", "{")):
        tests = json.loads(tests)
    if isinstance(tests, str):
        tests = [tests]
    if isinstance(tests, dict) and {"inputs", "outputs"} <= set(tests):
        pairs, name = list(zip(tests["inputs"], tests["outputs"], strict=True)), tests.get("fn_name")
        tests = [_call(name, given, out) if name else {"input": given, "output": out} for given, out in pairs]
    if not isinstance(tests, (list, tuple)) or not tests:
        raise ValueError("the reward code needs tests in each row of the dataset: name their key as data.tests_key")
    setup = "\n".join([*(row.get("test_imports") or ()), row.get("test_setup_code") or ""])
    return [_test(test, setup) for test in tests]


def _call(name: str, given: Any, due: Any) -> str:
    """An assertion that the function, called with ``given``, says ``due``, which some rows have in a list."""
    return _CALL % (repr(name), repr(json.dumps([given, due])))


_CALL = """
import json as _json
_name, (_given, _due) = %s, _json.loads(%s)
_function = globals()[_name] if _name in globals() else getattr(Solution(), _name)
_said = _json.loads(_json.dumps(_function(*_given)))  # tuples are lists there
assert _said == _due or [_said] == _due, _said
"""


def _test(test: Any, setup: str) -> tuple[Trial, str | None]:
    if isinstance(test, str):
        return Trial(check=f"{setup}\n{test}"), None
    if isinstance(test, dict) and {"input", "output"} <= set(test):
        return Trial(stdin=str(test["input"])), str(test["output"])
    raise ValueError(f"a test is neither an assertion nor has 'input' and 'output': {str(test)[:100]}")
