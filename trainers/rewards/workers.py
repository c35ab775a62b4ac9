"""Processes that are asked one question at a time and are replaced when they take too long or die."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

MOST_TOLD = 5
"""Different failures that become events."""

START_S = 120.0
"""Most that a worker may take to import its libraries from a cold shared file system."""
LAST_WORDS_S = 1.0
"""How long what a process that has ended wrote to stderr is waited for."""


class WorkerError(RuntimeError):
    """A worker cannot be started."""


class Failures:
    """Makes the first few different failures of somebody's own code events, for whichever thread.

    Args:
        kind: Of the events.
        who: What failed and what that costs, before the colon.
        event: Called with kind and text.
    """

    def __init__(self, kind: str, who: str, event: Callable[[str, str], None]) -> None:
        self._kind, self._who, self._event = kind, who, event
        self._lock, self._told = threading.Lock(), set[str]()

    def tell(self, why: str) -> None:
        """Make a failure with these words an event, the first time."""
        with self._lock:
            is_new = why not in self._told and len(self._told) < MOST_TOLD
            if is_new:
                self._told.add(why)
        if is_new:
            self._event(self._kind, f"{self._who}: {why}")


class Worker:
    """``python -m module arguments…``: says a JSON line when it is ready, and then answers each JSON line with one."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module, self._arguments = module, arguments
        self._process: subprocess.Popen[str] | None = None
        self._said: queue.Queue[str] = queue.Queue()

    def ask(self, question: Any, timeout_s: float, consult: Callable[[Any], Any] | None = None) -> Any:
        """The answer; None where it did not come in time or the worker died of the question.

        Args:
            question: What it is asked.
            timeout_s: Longest time that it may work.
            consult: Answers what the worker itself asks on the way, which is a list; that takes none of its time.

        Raises:
            WorkerError: The worker does not start.
        """
        process, left_s = self._started(), timeout_s
        try:
            assert process.stdin is not None
            while True:
                # a process and not a thread: a question may never end, and only a process can be killed from outside
                process.stdin.write(json.dumps(question) + "\n")
                process.stdin.flush()
                began = time.monotonic()
                line = self._said.get(timeout=max(0.0, left_s))
                left_s -= time.monotonic() - began
                answer = json.loads(line) if line else None
                if consult is None or not isinstance(answer, list):
                    break
                question = consult(answer)
        except (OSError, queue.Empty):
            line = ""
        if not line:
            self.close()
            return None
        return answer

    def start(self) -> None:
        """Start it before the first question."""
        self._started()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        self._said = queue.Queue()
        command = [sys.executable, "-m", self._module, *self._arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        last = deque[str](maxlen=1)
        threading.Thread(target=_listen, args=(self._process, self._said), daemon=True).start()
        overhears = threading.Thread(target=_overhear, args=(self._process, last), daemon=True)
        overhears.start()
        try:
            ready = self._said.get(timeout=START_S)
        except queue.Empty:
            ready = ""
        if not ready:
            self.close()
            overhears.join(LAST_WORDS_S)  # no longer: what it has started may live on and hold its stderr
            raise WorkerError(f"python -m {self._module} does not start: {last[0] if last else 'it says nothing'}")
        return self._process

    def close(self) -> None:
        """Kill the process: it may be in code of a model or a user that never ends."""
        process, self._process = self._process, None  # who asks and who ends all may come here at the same time
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                with contextlib.suppress(OSError):  # what was not sent to it is lost
                    process.stdin.close()


def _listen(process: subprocess.Popen[str], said: queue.Queue[str]) -> None:
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            said.put(line)
    # the end of the pipe as an answer, so that who waits for one need not wait for a deadline
    said.put("")


def _overhear(process: subprocess.Popen[str], last: deque[str]) -> None:
    """Keep the last line of stderr, and empty that: a full pipe would hold up a library that warns of much."""
    assert process.stderr is not None
    with process.stderr as lines:
        last.extend(line.strip() for line in lines if line.strip())


class Workers:
    """Several workers that share the questions.

    Raises:
        WorkerError: They do not start.
    """

    def __init__(self, module: str, count: int, *arguments: str) -> None:
        self._is_closed = False
        self._all = [Worker(module, *arguments) for _ in range(count)]
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="reward")
        self._free: queue.Queue[Worker] = queue.Queue()
        for worker in self._all:
            self._free.put(worker)
        try:
            list(self._threads.map(Worker.start, self._all))
        except WorkerError:
            self.close()
            raise

    def ask(self, questions: Sequence[Any], timeout_s: float, consult: Callable[[Any], Any] | None = None) -> list[Any]:
        """The answer to each question; None for those that none came to in time.

        Raises:
            WorkerError: They are being ended.
        """
        return list(self._threads.map(lambda question: self._ask(question, timeout_s, consult), questions))

    def _ask(self, question: Any, timeout_s: float, consult: Callable[[Any], Any] | None) -> Any:
        worker = self._free.get()
        try:
            found = None if self._is_closed else worker.ask(question, timeout_s, consult)
            if found is None and self._is_closed:  # that is nobody's fault, and no answer's reward
                raise WorkerError("the processes are being ended")
            return found
        finally:
            self._free.put(worker)

    def close(self) -> None:
        """End all workers, those that are at an answer among them."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in self._all:
            worker.close()
        self._threads.shutdown()
