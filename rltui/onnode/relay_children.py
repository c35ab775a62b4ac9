"""The relay's operation ``run``: one program to its end, in its own process group, which never outlives the relay."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO, TYPE_CHECKING, Any, Callable, Dict, List, Tuple

from rltui.onnode.relay_request import (
    MIB,
    Answer,
    Refusal,
    Request,
    bytes_of,
    count_of,
    number_of,
    pack,
    table_of,
    texts_of,
)

if TYPE_CHECKING:
    Child = subprocess.Popen[bytes]
else:
    Child = subprocess.Popen  # not a generic class before Python 3.9

MAX_OUTPUT = 4 * MIB
"""Bytes of each of the two outputs; JSON can make six characters of one byte, and a line has its limit too."""
MOST_OUTPUT = 16 * MIB
"""Bytes of output that a request may want with ``limit``; it is packed then."""
END_GRACE_S = 0.5
"""Time between SIGTERM and SIGKILL for a child that overran or outlived the relay."""
DRAIN_S = 0.2
"""How long output is still awaited after a child ended: a grandchild may hold its pipe open for ever."""


class Children:
    """The running children, each the leader of its own process group."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Dict[int, Child] = {}
        self._closed = False

    def run(self, request: Request) -> Answer:
        """Run a program to its end, or to ``timeout_s``; what it left in its process group is ended with it."""
        argv, timeout_s = texts_of(request, "argv"), number_of(request, "timeout_s", 60)
        data, limit = bytes_of(request, "input"), min(count_of(request, "limit", 0), MOST_OUTPUT)
        child = self._start(argv, table_of(request, "env"))
        out, err, readers = _attend(child, data, limit or MAX_OUTPUT)
        in_time = _await_end(child, time.monotonic() + timeout_s)
        if in_time:
            drained_by = time.monotonic() + DRAIN_S
            for reader in readers:
                reader.join(max(0.0, drained_by - time.monotonic()))
        code = self._end(child)
        if not in_time:
            raise Refusal("timeout", "%s did not end within %g s" % (argv[0], timeout_s))
        truncated = len(out) >= (limit or MAX_OUTPUT) or len(err) >= MAX_OUTPUT
        answer: Answer = {"rc": code, "truncated": truncated, "err": err.decode("utf-8", "surrogateescape")}
        if limit:
            answer["data"], answer["packed"] = pack(bytes(out))
            return answer
        return {**answer, "out": out.decode("utf-8", "surrogateescape")}

    def end_all(self) -> None:
        """End every child and its group; none can be started any more."""
        with self._lock:
            self._closed = True
            for child in self._running.values():
                _signal_group(child, signal.SIGTERM)
        deadline = time.monotonic() + END_GRACE_S
        while self._running and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._lock:
            for child in self._running.values():
                _signal_group(child, signal.SIGKILL)

    def _start(self, argv: List[str], environment: Dict[str, str]) -> Child:
        with self._lock:
            if self._closed:
                raise Refusal("failed", "the relay is ending")
            pipe = subprocess.PIPE
            variables = {**os.environ, **environment}
            child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=variables, start_new_session=True)
            self._running[child.pid] = child
            return child

    def _end(self, child: Child) -> int:
        """End what is left of the child's group, gently first where the child itself runs; returns its exit status."""
        if not _ended(child):
            _signal_group(child, signal.SIGTERM)
            _await_end(child, time.monotonic() + END_GRACE_S)
        with self._lock:
            # before it is reaped: from then on its number may be another group's
            _signal_group(child, signal.SIGKILL)
            del self._running[child.pid]
            return child.wait()


def _attend(child: Child, data: bytes, limit: int) -> Tuple[bytearray, bytearray, List[threading.Thread]]:
    """Feed a child and take its output in threads; returns output, error output, and the two threads that fill them."""
    out, err = bytearray(), bytearray()
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    readers = [_thread(_take, child.stdout, out, limit), _thread(_take, child.stderr, err, MAX_OUTPUT)]
    _thread(_feed, child.stdin, data)
    return out, err, readers


def _thread(work: Callable[..., None], *words: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=words, daemon=True)
    thread.start()
    return thread


def _feed(stream: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), stream:  # a child need not want its input
        stream.write(data)


def _take(stream: IO[bytes], into: bytearray, limit: int) -> None:
    """Take what a child says; what is over ``limit`` is read, so that the child goes on, and dropped."""
    with stream:
        while True:
            # what is there by now: the stream's own read waits until it has as much as was asked for
            chunk = os.read(stream.fileno(), 65536)
            if not chunk:
                return
            into += chunk[: max(0, limit - len(into))]


def _ended(child: Child) -> bool:
    """Whether a child ended, without reaping it: until then its pid, and so its group, cannot be anybody else's."""
    if not hasattr(os, "waitid"):  # macOS
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _await_end(child: Child, deadline: float) -> bool:
    """Wait for a child until ``deadline`` (monotonic); returns whether it ended."""
    # polled: waitpid(2) has no deadline, and would reap it
    pause = 0.0005
    while not _ended(child):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(0.02, pause * 2)
    return True


def _signal_group(child: Child, number: int) -> None:
    # nobody may be left of it, or only a program that changed its user
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)
