"""The process that all agents of a run are forks of, as the trainer talks to it."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from concurrent.futures import Future
from typing import Any

from trainers.environments.pool import class_of
from trainers.rewards.workers import Worker, WorkerError

HOST = "trainers.environments.agent_host"
END_S = 10.0
"""Most that it may take to end the agents before it is ended without."""
DIED = "the process that agents are started from ended"


class AgentProcess(Worker):
    """Has agents played by ``trainers.environments.agent_host``, many at once; safe to call from several threads.

    Where that process ends, the samples under way fail, and the next one starts it again.

    Args:
        name: As ``data.environment`` has it.

    Raises:
        ValueError: The agent cannot be imported.
    """

    def __init__(self, name: str) -> None:
        super().__init__(HOST, class_of(name))
        self._under_way: dict[int, tuple[queue.Queue[str], Future[dict[str, Any]]]] = {}
        self._lock, self._questions = threading.Lock(), queue.Queue[str]()
        self._heard: Any = None
        self._over: Any = None
        try:
            with self._lock:
                self._listening()
        except WorkerError as error:
            raise ValueError(f"the agent {name} cannot start: {error}") from error

    def play(self, question: dict[str, Any]) -> Future[dict[str, Any]]:
        """What comes of a sample, ``reward`` or ``error``, when it is over.

        Args:
            question: With a ``key`` unlike any other's.

        Raises:
            WorkerError: The process does not start.
        """
        future: Future[dict[str, Any]] = Future()
        with self._lock:
            if self._over is self._said:  # its pipes are closed a moment before it counts as ended
                self.close()
            self._listening()
            self._under_way[question["key"]] = self._said, future
            self._questions.put(json.dumps(question) + "\n")
        return future

    def close(self) -> None:
        """End it, and with it the agents: it ends them when nothing more can come."""
        said, process = self._said, self._process
        if process is None:
            return
        self._questions.put("")
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        process.kill()
        process.wait()
        if process is self._process:  # another one may be there: several that waited as long come here at once
            self._process = None
        said.put("")  # not left to the end of its stdout: what the agents' module has started may keep that open

    def _listening(self) -> Any:
        """The process, with a thread that hears what it says, and one that asks: that waits where it does not read."""
        process = self._started()
        if process is not self._heard:
            self._heard, self._questions = process, queue.Queue()
            threading.Thread(target=self._hear, args=(self._said,), name="agents", daemon=True).start()
            asks = threading.Thread(target=_ask, args=(process, self._questions), name="questions", daemon=True)
            asks.start()
        return process

    def _hear(self, said: queue.Queue[str]) -> None:
        while line := said.get():
            found = json.loads(line)
            with self._lock:
                _, future = self._under_way.pop(found.pop("key"), (said, None))
            if future is not None:
                future.set_result(found)
        with self._lock:  # another process may be there already, which plays what was asked since
            self._over = said
            lost = [key for key, (of, _) in self._under_way.items() if of is said]
            futures = [self._under_way.pop(key)[1] for key in lost]
        for future in futures:
            future.set_result({"error": DIED})


def _ask(process: subprocess.Popen[str], questions: queue.Queue[str]) -> None:
    """Pass questions on until an empty one comes; then the process hears that nothing more will."""
    assert process.stdin is not None
    with contextlib.suppress(OSError), process.stdin as asked:
        while line := questions.get():
            asked.write(line)
            asked.flush()
