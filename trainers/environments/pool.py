"""The processes that environments run in, and what they are asked: to begin, and to take an answer.

A sample stays with one process, which keeps its instance. Where that process had to be ended because of another sample,
the next question makes a new instance and gives it the answers so far, so that a fault costs its own sample only.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from rltui.layout.settings import Data
from trainers.environments import Task
from trainers.rewards.workers import Failures, Worker, WorkerError

WORKER = "trainers.environments.worker"
BUILTIN = {
    "builtin/guess-order": "trainers.environments.guess_order:GuessOrder",
    "builtin/calculator": "trainers.environments.calculator:Calculator",
    "builtin/python": "trainers.environments.python:Python",
    "builtin/guess-order-agent": "trainers.environments.guess_order:play",
}
"""The classes and agents that come with the trainers."""


@dataclass
class Episode:
    """One sample as its environment knows it.

    Attributes:
        key: By which it is known; unlike any other's.
        task: What it is about.
        answers: What the model answered, the newest last.
        process: Which start of its process has its instance; -1: none yet.
    """

    key: int
    task: Task
    answers: list[str] = field(default_factory=list)
    process: int = -1


@dataclass(frozen=True)
class EpisodeStep:
    """What an environment made of an answer.

    Attributes:
        messages: What it says; empty where the sample is over.
        reward: What it adds.
        done: Whether the sample is over by its word.
        failed: It failed, took too long or ended its process.
    """

    messages: list[dict[str, Any]]
    reward: float = 0.0
    done: bool = True
    failed: bool = False


class EnvironmentProcess(Protocol):
    """A process that is asked one question at a time."""

    def ask(self, question: Any, timeout_s: float) -> Any:
        """The answer; None where it did not come in time, or the process died of the question."""

    def close(self) -> None:
        """End the process with all environments in it."""


class Environments:
    """Shares samples out to processes; safe to call from several threads.

    Args:
        name: As ``data.environment`` has it.
        processes: Those that play.
        limit_s: Longest time for a reset or a step.
        event: Called with kind and text of the first few different failures.

    Attributes:
        keys: Those of samples to come.
    """

    def __init__(
        self, name: str, processes: Sequence[EnvironmentProcess], limit_s: float, event: Callable[[str, str], None]
    ) -> None:
        self._name, self._processes, self._limit_s = name, list(processes), limit_s
        self._failures = Failures("environment", f"the environment {name} failed, and such samples earn 0", event)
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix="environment") for _ in self._processes]
        self._starts = [0] * len(self._processes)
        self.keys = itertools.count()
        self._over: list[list[int]] = [[] for _ in self._processes]
        self._lock, self._is_closed = threading.Lock(), False

    def tools(self) -> list[dict[str, Any]]:
        """The schemas of the environment's tools.

        Raises:
            ValueError: It cannot say.
        """
        found = self._processes[0].ask({"do": "tools"}, self._limit_s)
        if not isinstance(found, dict) or "tools" not in found:
            raise ValueError(f"the environment {self._name} does not name its tools: {found}")
        tools: list[dict[str, Any]] = found["tools"]
        return tools

    def open(self, tasks: Sequence[Task]) -> list[list[dict[str, Any]] | None]:
        """The messages that each task's prompt is made of; None where the environment failed."""
        count = len(self._processes)
        futures = [self._threads[n % count].submit(self._open, n % count, task) for n, task in enumerate(tasks)]
        return [future.result() for future in futures]

    def step(self, play: Episode, last: bool) -> Future[EpisodeStep]:
        """What the environment makes of the newest answer of ``play``, when that is known.

        Args:
            play: The sample.
            last: Whether the sample is over with this answer, whatever the environment says.
        """
        number = play.key % len(self._processes)
        return self._threads[number].submit(self._step, number, play, last)

    def forget(self, play: Episode) -> None:
        """``play`` is over, and its environment was not told."""
        with self._lock:
            self._over[play.key % len(self._processes)].append(play.key)

    def close(self) -> None:
        """End all processes, with every environment in them."""
        self._is_closed = True
        for threads in self._threads:
            threads.shutdown(wait=False, cancel_futures=True)
        for process in self._processes:
            process.close()

    def _open(self, number: int, task: Task) -> list[dict[str, Any]] | None:
        found = self._ask(number, {"do": "open", "task": plain_task(task)}, 1)
        return None if "error" in found else found["messages"]

    def _step(self, number: int, play: Episode, last: bool) -> EpisodeStep:
        with self._lock:
            over, self._over[number] = self._over[number], []
        # a new instance makes a reset and all steps so far
        calls = 1 if play.process == self._starts[number] else 1 + len(play.answers)
        play.process = self._starts[number]
        question = {"do": "step", "key": play.key, "task": plain_task(play.task), "answers": play.answers, "last": last}
        found = self._ask(number, {**question, "over": over}, calls)
        return EpisodeStep([], failed=True) if "error" in found else EpisodeStep(**found)

    def _ask(self, number: int, question: dict[str, Any], calls: int) -> dict[str, Any]:
        found = self._processes[number].ask(question, self._limit_s * calls)
        if not isinstance(found, dict):
            self._starts[number] += 1
            found = {"error": f"it took more than {self._limit_s:g} s, or ended its process"}
        if "error" in found and not self._is_closed:  # else it was ended in the middle of a step
            self.tell(found["error"])
        return found

    def tell(self, why: str) -> None:
        """Make the first failure with these words an event."""
        self._failures.tell(why)


def class_of(name: str) -> str:
    """``module:Class``, or for an agent ``module:function``, of an environment.

    Raises:
        ValueError: There is no such bundled one.
    """
    if name.startswith("builtin/") and name not in BUILTIN:
        raise ValueError(f"there is no environment {name!r}; bundled are: {', '.join(BUILTIN)}")
    return BUILTIN.get(name, name)


def ensure_walls(data: Data, event: Callable[[str, str], None]) -> None:
    """Where the environment runs what a model wrote, try out the sandbox.

    Args:
        data: The layout's.
        event: Called with a kind and a text.

    Raises:
        RuntimeError: The sandbox is open, and the layout does not allow that.
    """
    if data.environment == "builtin/python":
        from trainers.environments.python import sandbox
        from trainers.rewards.escape_attempts import ensure_contained

        ensure_contained(sandbox(), data.allow_open_sandbox, event)


def start_worker(name: str) -> Worker:
    """A process for the environment ``name``, ready.

    Raises:
        ValueError: It cannot be imported.
    """
    worker = Worker(WORKER, class_of(name))
    try:
        worker.start()
    except WorkerError as error:
        raise ValueError(f"the environment {name} cannot start: {error}") from error
    return worker


def plain_task(task: Task) -> dict[str, Any]:
    """A task as JSON carries it."""
    return {"messages": task.messages, "answer": task.answer, "row": task.row, "seed": task.seed}
