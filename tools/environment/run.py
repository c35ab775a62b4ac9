"""Run one step of the set-up: show that it moves, keep what it says, end it when it takes for ever."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from environment.failures import RETRY, SetupError, explain

if TYPE_CHECKING:
    from pathlib import Path

DEADLINE_S = float(os.environ.get("RLTUI_SETUP_DEADLINE_S", "3600"))
HEARTBEAT_S = 10.0
WORTH_SHOWING = re.compile(r"^(Resolved|Downloading|Building|Prepared|Installed|Bytecode compiled)\b")


@dataclass
class Runner:
    """Runs the commands of one set-up.

    Attributes:
        log: File that takes all output.
        lock: Descriptor that children inherit, so that the lock on the folder outlives a killed set-up.
        environ: Environment of the commands.
        output: What the latest command has said so far.
    """

    log: Path
    lock: int
    environ: Mapping[str, str]
    output: list[str] = field(default_factory=list)

    def step(self, title: str, command: Sequence[str]) -> str:
        """Run ``command`` under ``title``, with progress and duration printed.

        Raises:
            SetupError: It failed or took longer than DEADLINE_S.
        """
        print(f"  {title} ...", flush=True)
        began = time.monotonic()
        code, output = self.run(command, show=True)
        if code:
            self.fail(title, output)
        print(f"  {title}: {time.monotonic() - began:.1f} s", flush=True)
        return output

    def fail(self, title: str, output: str) -> None:
        """Raise the error that ``output`` of the step ``title`` amounts to."""
        cause, hint = explain(output)
        where = f"\n  All output: {self.log}" if self.log.exists() else ""
        raise SetupError(f"{title}: {cause}.", hint + where)

    def run(self, command: Sequence[str], *, show: bool = False, deadline_s: float = DEADLINE_S) -> tuple[int, str]:
        """Return (exit code, output) of ``command``; with ``show``, print its progress.

        Raises:
            SetupError: It did not end within ``deadline_s``.
        """
        self._note(f"$ {' '.join(command)}\n")
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=self.environ,
            pass_fds=(self.lock,),
            start_new_session=True,  # one group, so that what pip and venv start ends with them
        )
        try:
            output = self._follow(process, show, time.monotonic() + deadline_s)
        except BaseException:
            end(process)
            raise
        return process.returncode, output

    def _follow(self, process: subprocess.Popen[str], show: bool, deadline: float) -> str:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_pump, args=(process, lines), daemon=True).start()
        self.output = []
        began = time.monotonic()
        while True:
            try:
                line = lines.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                if show:
                    print(f"    ... {time.monotonic() - began:.0f} s", flush=True)
                line = ""
            if line is None:
                process.wait()
                return "".join(self.output)
            if time.monotonic() > deadline:
                raise SetupError(f"no end after {time.monotonic() - began:.0f} s: {process.args!r}.", RETRY)
            self.output.append(line)
            self._note(line)
            if show and WORTH_SHOWING.match(line):
                print(f"    {line.rstrip()}", flush=True)

    def _note(self, text: str) -> None:
        """Append ``text`` to the log; a log that cannot be written is no reason to stop."""
        try:
            with self.log.open("a") as stream:
                stream.write(text)
        except OSError:
            return


def _pump(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    """Move the lines of ``process`` to ``lines``; None marks the end."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put(None)


def end(process: subprocess.Popen[str]) -> None:
    """End ``process`` and all it started: ask, then kill after five seconds."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
