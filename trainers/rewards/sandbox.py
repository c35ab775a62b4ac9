"""Runs code that a model wrote, behind the best walls that the machine offers.

The ladder, best first: ``namespaces`` (processes, network, mounts and users of its own, by system calls), ``bwrap``
(the same by bubblewrap, for hosts that grant them only to it), ``rlimits`` (resource limits and a clean environment:
**no sandbox**, code can read the user's files and use the network). ``trainers.rewards.escape_attempts`` shows
which walls hold.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

Level = Literal["namespaces", "bwrap", "rlimits"]
LADDER: tuple[Level, ...] = ("namespaces", "bwrap", "rlimits")
WORDS = {
    "namespaces": "namespaces of its own: no network, no files of yours, no other processes",
    "bwrap": "bubblewrap: no network, no files of yours, no other processes",
    "rlimits": "resource limits only: the code can read your files, use the network and signal your processes",
}
CHILD = Path(__file__).with_name("sandbox_child.py")
FIRST_UID, NUM_UIDS = 1_900_000_000, 4096
"""User ids that no distribution gives out (systemd's table of ids has a hole there), of which each sandbox that root
starts takes one, so that its processes count alone and it owns nothing."""
_BEGIN = "import sys; del sys.path[0]; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))"
"""Runs a program without its folder among those of modules, where ours would stand before Python's own ``math``."""
OVERHEAD_S = 10.0
"""Most that starting and ending may take beside the tests, on a busy machine."""
MIB = 2**20

_numbers = itertools.count(os.getpid())


@dataclass(frozen=True)
class Limits:
    """What one test may use.

    Attributes:
        wall_s: Seconds of the clock.
        memory_mib: Address space of each process.
        processes: Processes and threads at once.
        output_bytes: Output that is kept; more ends the test.
        tmp_mib: Size of /tmp.
        files: Open files.
        all_s: Seconds of the clock for all tests of a program together.
    """

    wall_s: float = 10.0
    memory_mib: int = 1024
    processes: int = 32
    output_bytes: int = 65536
    tmp_mib: int = 64
    files: int = 64
    all_s: float = math.inf

    def for_child(self) -> dict[str, int]:
        """The limits in the units of ``sandbox_child``."""
        return {
            "wall_ms": int(self.wall_s * 1000),
            "cpu": int(self.wall_s) + 1,
            "memory": self.memory_mib * MIB,
            "processes": self.processes,
            "file": self.tmp_mib * MIB,
            "files": self.files,
            "tmp": self.tmp_mib * MIB,
            "output": self.output_bytes,
        }


@dataclass(frozen=True)
class Trial:
    """One test of a program: text for its standard input, or Python source that is run after it in the same place."""

    stdin: str = ""
    check: str = ""


@dataclass(frozen=True)
class Outcome:
    """What one test came to.

    Attributes:
        finished: The program, and the check where there is one, ran to their end without an exception.
        timed_out: It took longer than it may.
        output: What it printed, errors included.
    """

    finished: bool
    timed_out: bool = False
    output: str = ""


class SandboxError(RuntimeError):
    """The sandbox itself does not work."""


class Running:
    """The programs that run, so that all of them can be ended from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """Note a program that has begun; after ``end``, it ends at once."""
        with self._lock:
            self._processes.add(process)
            if self._ended:
                _signal_group(process)

    def discard(self, process: subprocess.Popen[bytes]) -> None:
        """Note that a program is over."""
        with self._lock:
            self._processes.discard(process)

    def end(self) -> None:
        """End all programs, and those that are still to begin."""
        with self._lock:
            self._ended = True
            for process in self._processes:
                _signal_group(process)


@dataclass(frozen=True)
class Sandbox:
    """A way to run programs.

    Attributes:
        level: The walls.
        limits: Of each test.
        running: The programs that run.
    """

    level: Level
    limits: Limits = Limits()
    running: Running = field(default_factory=Running, compare=False, repr=False)

    @property
    def words(self) -> str:
        """The level in plain words."""
        return WORDS[self.level]

    def with_limits(self, limits: Limits) -> Sandbox:
        """The same walls with other limits."""
        return replace(self, limits=limits)

    def run(self, code: str, tests: list[Trial]) -> list[Outcome]:
        """Run ``code`` afresh for each of ``tests``; safe to call from several threads.

        Raises:
            SandboxError: The walls could not be built; the code was not run.
        """
        base = tempfile.mkdtemp(prefix="rltui-sandbox-")
        try:
            report = self._run_child(code, tests, base)
        finally:
            shutil.rmtree(base, ignore_errors=True)
        if report is None:
            return [Outcome(finished=False, timed_out=True) for _ in tests]
        if report["walls"]:
            raise SandboxError(f"the sandbox ({self.level}) cannot be built here: {report['walls']}")
        return [Outcome(r["finished"], r["status"] == "timeout", r["output"]) for r in report["tests"]]

    def _run_child(self, code: str, tests: list[Trial], base: str) -> dict[str, Any] | None:
        """The report of ``sandbox_child``; None where it did not come in time."""
        job = {
            "level": self.level,
            "base": base,
            "uid": _uid(),
            "limits": self.limits.for_child(),
            "code": code,
            "tests": [{"stdin": test.stdin, "check": test.check} for test in tests],
        }
        process = subprocess.Popen(
            self._command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", "PYTHONHASHSEED": "0"},
            cwd=base,
            # a session is a process group, too: one killpg reaches all of it, and never us
            start_new_session=True,
        )
        self.running.add(process)
        try:
            out, err = process.communicate(json.dumps(job).encode(), self._deadline_s(len(tests)))
        except subprocess.TimeoutExpired:
            return None
        finally:
            self.running.discard(process)
            _kill_group(process)
        try:
            report: dict[str, Any] = json.loads(out)
        except ValueError:
            last = err.decode(errors="replace").strip().splitlines()
            return {"walls": last[-1] if last else f"it ended with status {process.returncode}", "tests": []}
        return report

    def _deadline_s(self, tests: int) -> float:
        return min(self.limits.wall_s * tests + OVERHEAD_S, self.limits.all_s)

    def _command(self) -> list[str]:
        # not -I: it would ignore the seed too, so that a program which prints a set passes one time and fails the next
        python = [sys.executable, "-s", "-S", "-c", _BEGIN, str(CHILD)]
        return python if self.level != "bwrap" else _bwrap(python)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and its group, and wait for it."""
    _signal_group(process)
    process.communicate()


def _signal_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)


def _bwrap(python: list[str]) -> list[str]:
    """Bubblewrap with the same root as ``sandbox_child`` builds."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bwrap is not installed")
    # as process 1: else bwrap's own helper is it, and the child could not end all others by kill(-1)
    words = [program, "--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    for folder in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if Path(folder).is_symlink():
            words += ["--symlink", str(Path(folder).readlink()), folder]
        elif Path(folder).is_dir():
            words += ["--ro-bind", folder, folder]
    real = str(Path(sys.executable).resolve())
    words += ["--ro-bind", sys.base_prefix, sys.base_prefix, "--ro-bind", str(CHILD), "/child.py"]
    words += ["--tmpfs", "/tmp", "--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom"]
    return [*words, "--chdir", "/tmp", "--", real, *python[1:-1], "/child.py"]


def _uid() -> int:
    """The user to become where root runs this and has other users to become; 0: stay who we are."""
    if os.geteuid():
        return 0
    wanted = FIRST_UID + next(_numbers) % NUM_UIDS
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, count = map(int, line.split())
        if first <= wanted < first + count:
            return wanted
    return 0


def best_sandbox(limits: Limits) -> Sandbox:
    """The first rung of the ladder on which an honest program runs.

    Raises:
        SandboxError: None does.
    """
    reasons = []
    for level in LADDER:
        sandbox = Sandbox(level, limits)
        try:
            (outcome,) = sandbox.run("print(6 * 7)", [Trial()])
        except (SandboxError, OSError) as error:
            reasons.append(str(error))
            continue
        if outcome.finished and outcome.output == "42\n":
            return sandbox
        reasons.append(f"{level}: an honest program printed {outcome.output[:200]!r}")
    raise SandboxError("; ".join(reasons))
