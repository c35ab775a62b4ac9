"""A verb of the shell, run beside the cockpit: what it prints, its exit code, its duration, and its end on demand."""

from __future__ import annotations

import codecs
import math
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

MAX_LINES = 10_000
"""Lines that are kept, the last ones: what ``logs --follow`` prints has no end."""
_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.2
_GRACE_S = 2.0


class ShellCommand:
    """``rltui VERB …`` in a process of its own without a terminal, so that nothing can ask, or draw over the screen.

    Args:
        words: The verb and its words.
        columns: Width to print for.

    Attributes:
        exit_code: None while it runs; negative where a signal ended it.
        began_at: Epoch seconds.
        took_s: Seconds that it ran.
    """

    def __init__(self, words: Sequence[str], columns: int = 80) -> None:
        self.words = tuple(words)
        self.columns = columns
        self.exit_code: int | None = None
        self.began_at = 0.0
        self.took_s = 0.0
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._rest = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """What was printed so far, on both streams in the order of coming; callable from any thread."""
        with self._lock:
            return (*self._lines, self._rest) if self._rest else tuple(self._lines)

    def stop(self) -> None:
        """End it, if it still runs; returns at once."""
        with self._lock:
            self._stopped.set()
            if self._process is not None:
                self._process.send_signal(signal.SIGINT)

    def run(self, heard: Callable[[], object]) -> None:
        """Run it to its end; blocks.

        Args:
            heard: Called when there is more to see, and once at the end.
        """
        self.began_at, began = time.time(), time.monotonic()
        argv = [sys.executable, "-m", "rltui", *self.words]
        environment = {**os.environ, "COLUMNS": str(self.columns), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        with self._lock:
            self._process = process
            if self._stopped.is_set():  # meanwhile, when there was nobody to tell
                process.send_signal(signal.SIGINT)
        try:
            self._listen(process, heard)
        finally:
            _end(process)
            self.took_s = time.monotonic() - began
            self.exit_code = process.returncode
            heard()

    def _listen(self, process: subprocess.Popen[bytes], heard: Callable[[], object]) -> None:
        assert process.stdout is not None
        with process.stdout as stream, selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            last_words_until = math.inf
            while time.monotonic() < last_words_until:
                if self._stopped.is_set():
                    last_words_until = min(last_words_until, time.monotonic() + _GRACE_S)
                if not selector.select(_LOOK_S):
                    continue
                data = os.read(stream.fileno(), _CHUNK_BYTES)
                if not data:
                    return
                self._take(self._decoder.decode(data))
                heard()

    def _take(self, text: str) -> None:
        with self._lock:
            *whole, self._rest = (self._rest + text).split("\n")
            self._lines.extend(whole)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that has closed its output, or was told to stop; first asked, then made to end."""
    for sign in (0, signal.SIGINT, signal.SIGKILL):
        try:
            if sign:
                os.killpg(process.pid, sign)
            process.wait(_GRACE_S if sign != signal.SIGKILL else None)
        except ProcessLookupError:
            process.wait()
        except subprocess.TimeoutExpired:
            continue
        return
