"""Runs agents: a JSON line with a task in, a JSON line with what it earned out, in whatever order they end.

``python -m trainers.environments.agent_host MODULE:FUNCTION`` imports the function once and forks itself for each
sample, so that a library that loads for seconds costs nothing per sample, and a fault, a hang or a changed environment
is nobody else's. A sample's process leads a session, which is ended with it: nothing that it started outlives it,
unless it left the session. The key of the policy comes by stdin, so it stands in no list of processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import inspect
import json
import math
import os
import random
import resource
import selectors
import signal
import sys
import time
import urllib.request  # noqa: F401 - for ``Policy.chat``, here because forks need not import it then
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from trainers.environments import Policy, Task
from trainers.rewards.own_worker import find, mute, stream_apart

LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1
MOST_FILES = 1 << 16
"""More are no use, and programs that close all that they may have had open would take long."""


@dataclass
class Running:
    """A sample's process.

    Attributes:
        key: Of the sample.
        pipe: Where it says what came of it.
        deadline: By ``time.monotonic``, when it is ended.
    """

    key: int
    pipe: int
    deadline: float
    limit_s: float = field(repr=False)


class AgentHost:
    """Forks for each sample, and says what came of it.

    Args:
        play: The agent.
        answers: Where answers go, one a line.
    """

    def __init__(self, play: Callable[[Task, Policy], Any], answers: TextIO) -> None:
        self._play, self._answers = play, answers
        self._running: dict[int, Running] = {}

    def run(self) -> None:
        """Until stdin ends; then every sample's process is ended."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        # the descriptor is written to only for signals with a handler of Python's, and SIGCHLD is ignored by default
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector = selectors.DefaultSelector()
        for descriptor in (0, woken):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        asked = b""
        while True:
            soonest = min((one.deadline for one in self._running.values()), default=math.inf)
            wait_s = None if math.isinf(soonest) else max(0.0, soonest - time.monotonic())
            ready = {key.fd for key, _ in selector.select(wait_s)}
            if woken in ready:
                os.read(woken, 4096)
            if 0 in ready:
                came = os.read(0, 1 << 16)
                if not came:
                    break
                *lines, asked = (asked + came).split(b"\n")
                for line in lines:
                    self._start(json.loads(line))
            self._reap()
            self._end_late()
        for process in self._running:
            end(process)

    def _start(self, question: dict[str, Any]) -> None:
        limit_s, ends, host = question["limit_s"], tuple[int, ...](), os.getpid()
        try:
            reading, writing = ends = os.pipe()
            process = os.fork()
        except OSError as error:  # the node has no more processes, memory or files: others may end soon
            for descriptor in ends:
                os.close(descriptor)
            say(self._answers, {"key": question["key"], "error": f"it could not be started: {error}"})
            return
        if not process:
            self._answers.close()  # else who reads them would not hear of this process's end while a sample goes on
            in_fork(self._play, question, writing, host)
        os.set_blocking(reading, False)
        os.close(writing)
        self._running[process] = Running(question["key"], reading, time.monotonic() + limit_s, limit_s)

    def _reap(self) -> None:
        for process in list(self._running):
            if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                self._answer(process, "it ended its process")

    def _end_late(self) -> None:
        now = time.monotonic()
        for process, one in list(self._running.items()):
            if one.deadline <= now:
                self._answer(process, f"it took more than {one.limit_s:g} s")

    def _answer(self, process: int, otherwise: str) -> None:
        """End the process and what it started, and say what it said, or else why it said nothing."""
        one = self._running.pop(process)
        end(process)
        _, status = os.waitpid(process, 0)  # not before: the number of its session is its own until then
        if os.WIFEXITED(status) and os.WEXITSTATUS(status):
            otherwise += f", exit code {os.WEXITSTATUS(status)}"
        said = b""
        with contextlib.suppress(BlockingIOError):  # somebody that it started holds the other end
            said = os.read(one.pipe, 1 << 16)
        os.close(one.pipe)
        found = json.loads(said) if said else {"error": otherwise}
        say(self._answers, {"key": one.key, **found})


def in_fork(play: Callable[[Task, Policy], Any], question: dict[str, Any], writing: int, host: int) -> None:
    """Play a sample in the process that was forked for it, and end that; the kernel ends it where ``host`` is killed.

    Its sample is lost then, and it would go on asking the engines for what nobody hears.
    """
    try:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != host:  # killed before the kernel was told
            return
        # a fork has its parent's descriptor, and a signal to it would wake that
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        mute(0)
        random.seed(question["seed"])  # else all samples would draw alike
        found = outcome(play, Task(**question["task"]), Policy(**question["policy"]))
        os.write(writing, json.dumps(found).encode())
    finally:
        os._exit(0)


def outcome(play: Callable[[Task, Policy], Any], task: Task, policy: Policy) -> dict[str, Any]:
    """What an agent earned, or why it earned nothing."""
    os.environ |= policy.environment
    try:
        found = play(task, policy)
        if inspect.isawaitable(found):
            found = asyncio.run(_awaited(found))
        reward = math.fsum(found) if isinstance(found, (list, tuple)) else float(found)
        if not math.isfinite(reward):
            raise ValueError(f"the reward is {reward}")
    except BaseException as error:  # noqa: BLE001 - it is the user's, SystemExit included, and costs its own sample only
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    return {"reward": reward}


async def _awaited(found: Any) -> Any:
    return await found


def allow_files() -> None:
    """Let this process have more files open than shells leave it: each sample takes some, and there may be thousands.

    Most are given 1024, of which a server that runs out can neither answer nor write down why.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def end(process: int) -> None:
    """End a sample's process and what it started; before it leads its session there is only itself."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(process, signal.SIGKILL)


def say(answers: TextIO, what: Any) -> None:
    """Send a line of JSON."""
    print(json.dumps(what), file=answers, flush=True)


def main() -> None:
    """Play the agent named on the command line, one request a line, until stdin ends."""
    answers = stream_apart()
    allow_files()
    play = find(sys.argv[1])
    say(answers, "ready")
    mute(2)  # nobody reads it from here on, and a full pipe would hold agents up
    gc.freeze()  # forks share what is there already, as long as nobody writes to it
    AgentHost(play, answers).run()


if __name__ == "__main__":
    main()
