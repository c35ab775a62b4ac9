"""The transport to the machine that rltui runs on: a child process."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO

from rltui.cluster.relay_program import relay_argv
from rltui.errors import ClusterError
from rltui.onnode.rundir import ATTEMPT_VARIABLE
from rltui.paths import home_dir

CLOSE_GRACE_S = 2.0
"""How long a relay may take to end its children and itself."""

SSH_LOST = 255
"""The status of an ssh that lost its host, or never got there; of a program there it returns that one's own."""

OURS = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH", "__PYVENV_LAUNCHER__"),
    *(ATTEMPT_VARIABLE, "WANDB_SERVICE"),
)
"""Variables meant for the Python that rltui runs in, or the run that it was started from; not for what it starts.

By the last, two attempts would share W&B's process of the program that started rltui: the second one's run is refused
there, as that of the first is still open.
"""


class LocalTransport:
    """Opens a relay as a child of this process.

    The child has its own session, so that Ctrl-C in the terminal does not reach it, and ends when this process does,
    however that happens: its standard input is then at its end.
    """

    place = "this machine"

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python

    def open(self) -> LocalStream:
        """Start the relay's interpreter.

        Raises:
            ClusterError: It cannot be started.
        """
        # a file: a pipe that nobody reads fills up, and the relay would wait
        said = tempfile.TemporaryFile()  # noqa: SIM115 (kept by the stream)
        try:
            process = subprocess.Popen(
                relay_argv(self._python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
                cwd=home_dir() if home_dir().is_dir() else "/",
                env=cleaned_environment(os.environ),
                start_new_session=True,
            )
        except OSError as error:
            said.close()
            raise ClusterError(
                f"Cannot start {self._python} on this machine: {error.strerror}.",
                "Check that the interpreter is there and that the limit of processes is not reached.",
            ) from error
        return LocalStream(process, said)


class LocalStream:
    """The standard streams of a child process as a ``ByteStream``."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._said = said
        self._stdin = process.stdin
        self._stdout = process.stdout
        # a write into a full pipe would wait without a deadline; like this it returns None
        os.set_blocking(self._stdin.fileno(), False)

    def send(self, data: bytes, timeout_s: float) -> None:
        """Send all of ``data``; see ``ByteStream``."""
        deadline = time.monotonic() + timeout_s
        left = memoryview(data)
        try:
            while left:
                left = left[self._stdin.write(left) or 0 :]
                if left and not select.select([], [self._stdin], [], max(0.0, deadline - time.monotonic()))[1]:
                    raise TimeoutError("the relay does not take requests")
        except ValueError as error:  # another thread may close it at any moment
            raise BrokenPipeError("the stream is closed") from error

    def receive(self, limit: int) -> bytes:
        """Wait for bytes; see ``ByteStream``. Only the reader closes what it reads from, when it is at its end."""
        if self._stdout.closed:
            return b""
        data = self._stdout.read(limit)
        if not data:
            self._stdout.close()
        return data or b""

    def close(self) -> None:
        """Let the relay end, and end it if it does not."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        try:
            self._process.wait(CLOSE_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            # one in uninterruptible sleep (a dead network file system) cannot be waited for
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(CLOSE_GRACE_S)

    def complaint(self) -> str:
        """The last lines that the relay wrote to standard error."""
        with contextlib.suppress(OSError, ValueError):
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, size - 2000))
            return self._said.read().decode("utf-8", "replace").strip()
        return ""

    def was_cut(self) -> bool:
        """Whether the process was an ssh that lost its host; a relay that ends has another status."""
        try:
            return self._process.wait(CLOSE_GRACE_S) == SSH_LOST
        except subprocess.TimeoutExpired:
            return False


def cleaned_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` without what was meant for this Python and this process alone."""
    return {name: value for name, value in environment.items() if name not in OURS}
