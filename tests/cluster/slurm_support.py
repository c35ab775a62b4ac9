"""Ways into the lab for tests of submissions, and links that break at a chosen byte."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.cluster.local_transport import LocalStream
from rltui.cluster.profile import Profile
from rltui.cluster.relay_program import relay_argv
from rltui.cluster.slurm.queries import EVERY_STATE
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.errors import ClusterError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.runs.journal import Journal
from rltui.service.context import Context

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

    from rltui.cluster.transport import ByteStream, Transport
    from rltui.layout.schema import Layout

NOTHING = "/bin/true"
"""A python that ends at once: the job script takes its lock and is done."""


def fault_seeds() -> list[int]:
    """A seed for each hundred of ``FAULT_TRIALS``, one hundred where it is not set.

    Each is a test of its own: where hundreds of runs are listed before each trial, that costs more than the trial.
    """
    first, hundreds = 1000 * int(os.environ.get("FAULT_SEED", "0")), int(os.environ.get("FAULT_TRIALS", "100")) // 100
    return list(range(first, first + max(1, hundreds)))


class LabTransport:
    """A relay on the lab's login node as alice, without SSH in between."""

    place = "login"

    def __init__(self, lab: Lab) -> None:
        self._argv = lab.command("login", relay_argv("python3"))

    def open(self) -> ByteStream:
        said = tempfile.TemporaryFile()  # noqa: SIM115 (kept by the stream)
        process = subprocess.Popen(
            self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, bufsize=0, start_new_session=True
        )
        return LocalStream(process, said)


class Link:
    """A cable that can be cut after so many bytes, in either direction, and mended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: int | None = None
        self._direction = ""
        self._mends_itself = True
        self.is_down = False
        self.cuts = 0
        self.passed = {"to": 0, "from": 0}

    def cut_after(self, n_bytes: int, direction: str, *, mends_itself: bool) -> None:
        """Let ``n_bytes`` more pass ``to`` or ``from`` the cluster, then break every connection."""
        with self._lock:
            self._left, self._direction, self._mends_itself = n_bytes, direction, mends_itself

    def mend(self) -> None:
        with self._lock:
            self._left, self.is_down = None, False

    def passes(self, n_bytes: int, direction: str) -> int:
        """How many of ``n_bytes`` still get through."""
        with self._lock:
            if self.is_down:
                return 0
            self.passed[direction] += n_bytes
            if self._left is None or direction != self._direction:
                return n_bytes
            if n_bytes < self._left:
                self._left -= n_bytes
                return n_bytes
            through, self._left = self._left, None
            self.is_down, self.cuts = not self._mends_itself, self.cuts + 1
            return through


class CutStream:
    """A stream over a ``Link``; once cut it stays cut, as a TCP connection does."""

    def __init__(self, stream: ByteStream, link: Link) -> None:
        self._stream, self._link, self._broken = stream, link, False

    def send(self, data: bytes, timeout_s: float) -> None:
        through = 0 if self._broken else self._link.passes(len(data), "to")
        if through:
            self._stream.send(data[:through], timeout_s)
        if through < len(data):
            self._break()
            raise ConnectionResetError("the link was cut")

    def receive(self, limit: int) -> bytes:
        data = self._stream.receive(limit)
        through = 0 if self._broken else self._link.passes(len(data), "from")
        if through < len(data):
            self._break()
        return data[:through]

    def close(self) -> None:
        self._stream.close()

    def complaint(self) -> str:
        return self._stream.complaint()

    def was_cut(self) -> bool:
        return self._broken

    def _break(self) -> None:
        self._broken = True
        # nobody waits for the other end of a broken line
        threading.Thread(target=self._stream.close, daemon=True).start()


class CutTransport:
    """A transport over a ``Link``."""

    def __init__(self, transport: Transport, link: Link) -> None:
        self.place, self._transport, self._link = transport.place, transport, link

    def open(self) -> ByteStream:
        if self._link.is_down:
            raise ClusterError("login cannot be reached: the link is down.")
        return CutStream(self._transport.open(), self._link)


def profile(python: str = NOTHING, setup_lines: Sequence[str] = (), **keys: object) -> Profile:
    """The lab as a profile."""
    values = {"partition": "gpu", "gpu": "H100-SXM-80GB", "gpus_per_node": 4, "gres": "gpu:h100", **keys}
    return Profile(
        name="lab",
        run_root="~/runs",
        python=python,
        setup_lines=list(setup_lines),
        **values,  # type: ignore[arg-type]
    )


def profile_file(python: str = sys.executable, *more: str) -> str:
    """The lab as a user's file of profiles, reached over SSH; ``more`` are further lines of it."""
    keys = ["host: lab", "transport: paramiko", "scheduler: slurm", "partition: gpu", "gres: gpu:h100"]
    keys += ["gpus_per_node: 4", "run_root: ~/runs", f"python: {python}", *more]
    return "\n".join(["", "lab:", *(f"  {key}" for key in keys), ""])


SLEEPS = profile(setup_lines=["sleep 600"])
"""The same with a job that goes on until it is ended."""


def context_on(
    transport: Transport, state: Path, told: Profile | None = None, journal: Journal | None = None
) -> Context:
    """An rltui with its state in ``state``."""
    return Context(cluster=SlurmCluster(told or profile(), transport), journal=journal or Journal(state))


def small_layout(*overrides: str) -> Layout:
    """A layout whose job is one node and no GPU."""
    return load_layout(resolve("local/grpo-tiny"), ["hardware.cpus_per_node=4", *overrides]).layout


def jobs_by_mark(lab: Lab) -> dict[str, list[str]]:
    """Ids of all jobs that Slurm has ever had, by the last eight characters of their names."""
    queue = ["squeue", "--me", "-h", "-t", "all", "-o", "%A|%j"]  # accounting lags a little
    ever = [
        "-S",
        "now-2hours",
        "-E",
        "now",
        "-s",
        EVERY_STATE,
    ]  # without states it leaves out jobs cancelled while held
    past = ["sacct", "-n", "-P", "-X", "-D", *ever, "-o", "JobIDRaw,JobName%80"]
    rows: set[tuple[str, str]] = set()
    for command in (queue, past):
        # a name with a line feed, such as another test gives its job, goes on in a line that begins with no id
        rows |= set(re.findall(r"(?m)^(\d+)\|(.*)$", lab.exec("login", command).stdout))
    found: dict[str, list[str]] = {}
    for job, name in sorted(rows):
        found.setdefault(name[-8:], []).append(job)
    return found


def take_node(lab: Lab, node: str, seconds: int = 5) -> None:
    """Take the whole node for a job of bob's, in a partition before ``low``: Slurm preempts what runs there."""
    words = ["sbatch", "--parsable", "-p", "gpu", "-w", node, "--exclusive", "--time=5", f"--wrap=sleep {seconds}"]
    lab.exec("login", words, user="bob")
