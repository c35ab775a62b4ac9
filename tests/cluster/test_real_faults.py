"""One real run on Slurm in hands-off mode, under each fault that a cluster has: what is said of it, and when."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from workstation import Workstation

from rltui.onnode.progress import SCALE
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lab import Lab

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(2400)]
SETTINGS = ("train.steps=100000", "checkpoint.every=10", "tracking.wandb=disabled", "slurm.time=00:30:00")
BY_SCALE = "0.2"
"""A standstill is one after two minutes instead of ten."""
TELLING = ("error", "evidence", "restart", "warning", "end")
"""Kinds of events that say that something is wrong."""


class Faulty(Workstation):
    """A run in hands-off mode, and what its files say after a fault."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__(lab, folder, f'env: {{{SCALE}: "{BY_SCALE}"}}')
        self.rltui("launch", "local/grpo-tiny", *SETTINGS, "--cluster", "lab", "--auto")
        self.run = str(eventually(self.only_run, "the run")["run_id"])
        self.told: list[str] = []
        self.wrong: list[str] = []

    @property
    def attempt(self) -> int:
        return max(int(path.name) for path in self.home.glob("attempts/[0-9]*"))

    @property
    def node(self) -> str:
        return str(self.lines("slurm.json", self.attempt)[0]["head"])

    @property
    def job(self) -> str:
        return str(self.lines("slurm.json", self.attempt)[0]["job_id"])

    def pid(self, role: str) -> str:
        """Of a role, as its node counts."""
        (placed,) = [event["roles"] for event in self.lines("events.jsonl", self.attempt) if event["kind"] == "roles"]
        return next(str(one["pid"]) for one in placed if one["role"] == role)

    def send(self, signal: str, role: str) -> None:
        self.lab.exec(self.node, ["kill", f"-{signal}", self.pid(role)], user="root")

    def decisions(self) -> list[dict[str, Any]]:
        return self.lines("../../hands-off.jsonl", 1)

    def after(self, fault: str, inject: Callable[[], object]) -> tuple[int, float]:
        """Do a fault once the attempt has steps to lose; returns the attempt, and when it was done."""
        number = self.attempt
        eventually(lambda: len(self.lines("metrics.jsonl", number)) > 12, f"steps before: {fault}")
        at = time.time()
        inject()
        return number, at

    def evidence_s(self, number: int, at: float) -> float:
        """Until the attempt's files said first that something is wrong."""

        def first() -> float:
            events = self.lines("events.jsonl", number)
            return min((one["time"] for one in events if one["time"] > at and one["kind"] in TELLING), default=0.0)

        return float(eventually(first, "the first evidence")) - at

    def goes_on(self, fault: str, number: int, at: float, cause: str, *, alone: bool = True) -> None:
        """See that one more attempt goes on from where the one before was saved, and why."""
        evidence_s = self.evidence_s(number, at)
        eventually(lambda: self.lines("metrics.jsonl", number + 1), f"a step after: {fault}")
        first, last = self.lines("metrics.jsonl", number + 1)[0], self.lines("metrics.jsonl", number)[-1]
        assert last["step"] - 25 < first["step"] <= last["step"] + 1, fault
        (end,) = self.lines("end.json", number)
        decided = [one for one in self.decisions() if one["attempt"] == number]
        verdict_s = (decided[0]["time"] if decided else end["at"]) - at
        if [one["cause"] for one in decided] != ([cause] if alone else []):
            self.wrong.append(f"{fault}: {decided}")
        found = [one["id"] for one in self.says("why", self.run, "--attempt", str(number))["diagnoses"]]
        queue = self.lab.exec("login", ["squeue", "-h", "-u", "alice", "-o", "%i"]).stdout.split()
        self.told.append(
            f"{fault:<24}{evidence_s:6.1f}{verdict_s:6.1f}{first['time'] - at:6.1f} {found} {end['reason']}"
        )
        print(self.told[-1], flush=True)
        if queue != [self.job]:
            self.wrong.append(f"{fault}: doubled, or lost: {queue}")
        assert self.attempt == number + 1


def test_a_real_run_goes_on_after_every_fault_that_a_cluster_has(slurm_cluster: Lab, tmp_path: Path) -> None:
    user, lab = Faulty(slurm_cluster, tmp_path), slurm_cluster

    number, at = user.after("engine killed", lambda: user.send("KILL", "engine 0"))
    print("engine killed", user.evidence_s(number, at), user.lines("events.jsonl", number)[-1], flush=True)
    step = user.step()
    eventually(lambda: user.step() > step + 5, "steps after the engine was killed")
    assert user.attempt == number

    number, at = user.after("learner killed", lambda: user.send("KILL", "learner 1"))
    user.goes_on("learner killed", number, at, "gloo_timeout")

    number, at = user.after("learner stopped", lambda: user.send("STOP", "learner 1"))
    user.goes_on("learner stopped", number, at, "run_stalled")

    number, at = user.after("engine stopped", lambda: user.send("STOP", "engine 0"))
    user.goes_on("engine stopped", number, at, "run_stalled")

    def torn() -> None:
        newest = max(user.home.glob("checkpoints/step-*/COMPLETE"), key=lambda path: int(path.parent.name[5:]))
        largest = max(newest.parent.rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
        largest.write_bytes(largest.read_bytes()[:1000])
        user.send("KILL", "learner 1")

    number, at = user.after("checkpoint torn", torn)
    user.goes_on("checkpoint torn", number, at, "ray_actor_died")

    number, at = user.after(
        "time limit", lambda: lab.exec("login", ["scontrol", "update", f"JobId={user.job}", "TimeLimit=1"])
    )
    user.goes_on("time limit", number, at, "slurm_time_limit")

    def lost() -> None:
        lab.gpus(user.node, xid=79, lost=True, only=0)
        eventually(lambda: "Xid" in str(user.lines("events.jsonl", user.attempt)), "the driver's word")
        user.send("KILL", "learner 1")

    number, at = user.after("GPU lost", lost)
    user.goes_on("GPU lost", number, at, "xid_79_fell_off_bus")

    number, at = user.after("slurmd dead", lambda: lab.service(user.node, "slurmd", "stop"))
    user.goes_on("slurmd dead", number, at, "", alone=False)

    number, at = user.after("node cut off", lambda: lab.cut(user.node))
    user.goes_on("node cut off", number, at, "", alone=False)
    assert user.wrong == []
