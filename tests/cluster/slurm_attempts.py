"""Attempts in the lab's home, as rltui makes them over its relay: files, script, submission."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from forks import forking_python, server_of_session
from rltui.cluster.profile import Profile
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.onnode import rundir
from rltui.runs.directory import Attempt, job
from rltui.runs.script import render_script
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

    from rltui.layout.schema import Layout

ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).parent / "ray_job.py"
FORKS = ".forks"
"""In alice's home, another name of the socket of the session's server: a node sees no folder of this machine."""

# Prints the pids on this node that belong to an attempt, whoever owns them.
FIND = """
import os, sys
mark = b"RLTUI_ATTEMPT=" + sys.argv[1].encode()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        if mark in open(f"/proc/{pid}/environ", "rb").read().split(b"\\0"):
            print(pid, open(f"/proc/{pid}/cmdline").read().replace("\\0", " ")[:100])
    except OSError:
        pass
"""


def tiny(*overrides: str, nodes: int = 3) -> Layout:
    """A layout that trains the tiny model on CPU slots, on one node or with a learner on each of two of three."""
    shape = [] if nodes == 1 else [f"hardware.nodes={nodes}", "hardware.gpus_per_node=1", "roles.learner.gpus=[1,1]"]
    words = [*shape, "tracking.wandb=disabled", "checkpoint.every=5", "slurm.time=00:30:00", *overrides]
    return load_layout(resolve("local/grpo-tiny"), words).layout


def write_python(lab: Lab, text: str) -> str:
    """Put a script that stands for Python into alice's home; its path there."""
    lab.exec("login", ["sh", "-c", "mkdir -p bin && cat >bin/python && chmod 755 bin/python"], input=text)
    return "/home/alice/bin/python"


def python_forked_by_server(lab: Lab, first: str = "") -> str:
    """Python on the nodes whose Ray, and the trainers and roles of layouts, are forked; its path there.

    Args:
        lab: The cluster.
        first: Lines of shell that are run before it.
    """
    with contextlib.suppress(FileExistsError):
        os.link(server_of_session(), Path(lab.folder, "home/alice", FORKS))
    return write_python(lab, f"#!/bin/sh\n{first}\n" + forking_python(sys.executable, f"/home/alice/{FORKS}"))


class SlurmAttempt:
    """One attempt of a run in alice's home.

    Args:
        lab: The cluster.
        layout: What to run.
        then: What the stand-in for the trainer does; empty: the real trainer.
        run: Name of the run's folder.
        python: The interpreter on the nodes; empty: this one, whose Ray is bare and forked, as the stand-in is.
        deadlines_s: Deadlines other than the usual ones.
        profile: Further keys of the cluster's profile.
    """

    def __init__(
        self, lab: Lab, layout: Layout, then: str = "", run: str = "run",
        python: str = "", deadlines_s: dict[str, float] | None = None, **profile: Any,
    ) -> None:  # fmt: skip
        self.lab, self.uuid = lab, uuid4().hex
        self.run_path = f"/home/alice/runs/{run}"
        self.path = rundir.attempt_folder(self.run_path, 1)
        attempt = Attempt(run_id=run, number=1, uuid=self.uuid, path=self.path, code=str(ROOT))
        python = python or python_forked_by_server(lab)
        known = Profile(name="lab", gres="gpu:h100", gpus_per_node=4, python=python, **profile)
        what = job(layout, attempt, python)
        what["deadlines_s"].update(deadlines_s or {})
        if then:
            what["argv"] = [python, str(STAND_IN), "--attempt", self.path, "--then", then]
            what["modules"] = ["ray"]
        lab.exec("login", ["mkdir", "-p", self.path, f"{self.run_path}/checkpoints", f"{self.run_path}/wandb"])
        record = {"schema": 1, "id": run, "name": layout.name, "algorithm": "grpo", "cluster": "lab"}
        record.update(created_at=time.time(), nodes=1, gpus_per_node=1, gpu="cpu", wandb_run_id="x")
        self.put(f"{self.run_path}/{rundir.RUN}", json.dumps(record))
        self.put(f"{self.path}/{rundir.LAYOUT}", dump_layout(layout))
        self.put(f"{self.path}/{rundir.JOB}", msgspec.json.encode(what).decode())
        self.put(f"{self.path}/job.sbatch", render_script(layout, known, attempt))

    def put(self, path: str, text: str) -> None:
        self.lab.exec("login", ["tee", "--", path], input=text)

    def submit(self) -> str:
        self.job_id = self.lab.exec("login", ["sbatch", "--parsable", f"{self.path}/job.sbatch"]).stdout.strip()
        return self.job_id

    def text(self, name: str, number: int = 1) -> str:
        path = Path(str(self.lab.folder) + rundir.attempt_folder(self.run_path, number), name)
        return path.read_text(errors="replace") if path.exists() else ""

    def read(self, name: str, number: int = 1) -> dict[str, Any]:
        try:
            return dict(json.loads(self.text(name, number)))
        except ValueError:
            return {}

    def end(self, number: int = 1) -> dict[str, Any]:
        self.wait(lambda: self.read("end.json", number), "end.json", number)
        return self.read("end.json", number)

    def wait(self, state: Callable[[], object], what: str, number: int = 1) -> None:
        def saw() -> str:
            queue = self.lab.exec("login", ["squeue"], check=False).stdout
            return f"{self.read('stage.json', number)} {self.read('end.json', number)} {queue}\n{self.told(number)}"

        eventually(state, what, poll_s=0.1, saw=saw)

    def told(self, number: int = 1) -> str:
        """The ends of all logs, for a failure's message."""
        names = (f"slurm-{self.job_id}.out", "out.log", "nodes.log", "preflight/step.err", "ray.log")
        return "\n".join(f"--- {name}\n{self.text(name, number)[-1500:]}" for name in names)

    def state(self) -> str:
        words = ["squeue", "-h", "-j", self.job_id, "-o", "%T"]
        return self.lab.exec("login", words, check=False).stdout.strip()

    def processes(self, nodes: Sequence[str] = ("node1", "node2", "node3")) -> list[str]:
        """What still runs of the attempt, as ``node: pid command``."""
        found = []
        for node in nodes:
            listing = self.lab.exec(node, [sys.executable, "-c", FIND, self.uuid], user="root").stdout
            found += [f"{node}: {line}" for line in listing.splitlines()]
        return found
