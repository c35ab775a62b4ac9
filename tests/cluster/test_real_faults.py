"""One real run on Slurm in hands-off mode, under each fault that a cluster has: what is said of it, and when."""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from slurm_support import take_node
from workstation import Workstation

from rltui.onnode.progress import SCALE
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from lab import Lab

pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(2400)]
SETTINGS = (
    "train.steps=100000", "checkpoint.every=10", "tracking.wandb=disabled",
    "slurm.time=00:30:00", "slurm.partition=low",
)  # fmt: skip
BY = "0.1"
"""A standstill is one after a minute instead of ten."""
TELLING = ("error", "evidence", "restart", "warning", "end")
"""Kinds of events that say that something is wrong."""
DEATH_S, STANDSTILL_S = 30.0, 90.0
"""The first word on a death, and the verdict on a standstill, have to be there after these."""
DIED = ("ray_actor_died", "gloo_timeout")
"""What is said of a learner that was killed: by Ray, or by the one that waited for it, whoever is the first."""
PREEMPTED = "preempted by Slurm for another job; saved at step "


class Faulty(Workstation):
    """A run in hands-off mode, in a partition that others go before, and what its files say after a fault."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__(lab, folder, f'env: {{{SCALE}: "{BY}"}}')
        self.rltui("launch", "local/grpo-tiny", *SETTINGS, "--cluster", "lab", "--auto")
        self.run = str(eventually(self.only_run, "the run")["run_id"])

    @property
    def attempt(self) -> int:
        return max(int(path.name) for path in self.home.glob("attempts/[0-9]*"))

    def slurm(self, name: str) -> str:
        """Of the newest attempt's job."""
        return str(self.lines("slurm.json", self.attempt)[0][name])

    def send(self, signal: str, role: str) -> None:
        """Send a signal to a role, whose pid is as its node counts."""
        (placed,) = [event["roles"] for event in self.lines("events.jsonl", self.attempt) if event["kind"] == "roles"]
        pid = next(str(one["pid"]) for one in placed if one["role"] == role)
        self.lab.exec(self.slurm("head"), ["kill", f"-{signal}", pid], user="root")

    def decisions(self, number: int) -> list[dict[str, Any]]:
        return [one for one in self.lines("../../hands-off.jsonl", 1) if one["attempt"] == number]

    def causes(self, *words: str) -> list[str]:
        return [one["id"] for one in self.says("why", self.run, *words)["diagnoses"]]

    def first_word(self, fault: str, inject: Callable[[], object], within_s: float) -> tuple[int, float]:
        """Do a fault once the attempt has steps to lose, and wait for the first word on it in its files.

        Returns:
            The attempt, and when it was done.
        """
        number = self.attempt
        eventually(lambda: len(self.lines("metrics.jsonl", number)) > 15, f"steps before: {fault}")
        at = time.time()
        inject()

        def told() -> list[float]:
            events = self.lines("events.jsonl", number)
            return [one["time"] - at for one in events if one["time"] > at and one["kind"] in TELLING]

        first_s = min(eventually(told, f"a word on: {fault}"))
        print(f"{fault}: the first word after {first_s:.1f} s", end="", flush=True)
        assert first_s < within_s
        return number, at

    def goes_on(
        self, fault: str, inject: Callable[[], object], cause: Sequence[str], within_s: float = DEATH_S
    ) -> None:
        """See that one more attempt goes on after a fault, from what was saved, by whose decision, and that it is one.

        Args:
            fault: Its name.
            inject: Does it.
            cause: On one of which hands-off mode decides; none: Slurm starts the job again by itself.
            within_s: As the first word has to come.
        """
        number, at = self.first_word(fault, inject, within_s)
        first = eventually(lambda: self.lines("metrics.jsonl", number + 1), f"a step after: {fault}")[0]
        (end,), decided = self.lines("end.json", number), self.decisions(number)
        verdict_s = (decided[0]["time"] if decided else end["at"]) - at
        print(f", the verdict after {verdict_s:.1f} s, a step after {first['time'] - at:.1f} s: {end['reason'][:60]}")
        assert [one["cause"] for one in decided if one["cause"] not in cause] == []
        assert len(decided) == bool(cause), decided
        last = self.lines("metrics.jsonl", number)[-1]["step"]
        assert last - 25 < first["step"] <= last + 1
        self.is_alone(number + 1)

    def is_alone(self, number: int) -> None:
        """Nothing is doubled, and nothing is left of the attempts before."""
        assert self.attempt == number
        queue = self.lab.exec("login", ["squeue", "-h", "-u", "alice", "-o", "%i"]).stdout.split()
        assert queue == [self.slurm("job_id")]

    def preempted(self, grace_s: int) -> int:
        """Have the node taken, which gets some time to leave; how many steps are done again."""
        number, node = self.attempt, self.slurm("head")
        eventually(lambda: len(self.lines("metrics.jsonl", number)) > 15, f"steps of attempt {number}")
        self.lab.exec("login", ["scontrol", "update", "PartitionName=low", f"GraceTime={grace_s}"], user="root")
        take_node(self.lab, node, 60)
        (end,) = eventually(lambda: self.lines("end.json", number), f"the end of attempt {number}")
        assert (end["outcome"], end["slurm"], end["reason"][: len(PREEMPTED)]) == ("cancelled", "PREEMPTION", PREEMPTED)
        last = self.lines("metrics.jsonl", number)[-1]
        first = eventually(lambda: self.lines("metrics.jsonl", number + 1), f"a step of attempt {number + 1}")[0][
            "step"
        ]
        assert f"{PREEMPTED}{first - 1}" == end["reason"]
        assert last["step"] - 10 <= first - 1 <= last["step"]
        self.is_alone(number + 1)
        return int(last["step"] - first + 1)


def test_a_real_run_goes_on_after_each_fault_of_a_cluster(four_nodes: Lab, tmp_path: Path) -> None:
    user, lab = Faulty(four_nodes, tmp_path), four_nodes

    number, _ = user.first_word("engine killed", lambda: user.send("KILL", "engine 0"), DEATH_S)
    step = user.step()
    eventually(lambda: user.step() > step + 5, "steps with another engine in its place")
    assert user.attempt == number

    user.goes_on("learner killed", lambda: user.send("KILL", "learner 1"), DIED)
    for role in ("learner 1", "engine 0"):
        number = user.attempt
        user.goes_on(f"{role} stopped", partial(user.send, "STOP", role), ["run_stalled"], STANDSTILL_S)
        said = user.says("why", user.run, "--attempt", str(number))["diagnoses"]
        assert f"{role} (pid " in str(said), "who held up the others is told of the end, too"

    def torn() -> None:
        newest = max(user.home.glob("checkpoints/step-*/COMPLETE"), key=lambda path: int(path.parent.name[5:]))
        newest.unlink()
        user.send("KILL", "learner 1")

    user.goes_on("checkpoint torn", torn, DIED)
    limit = ["scontrol", "update", f"JobId={user.slurm('job_id')}", "TimeLimit=1"]
    user.goes_on("time limit", lambda: lab.exec("login", limit), ["slurm_time_limit"], 90.0)

    assert user.preempted(grace_s=180) == 0, "it was told in time, has saved, and had itself queued again"
    job, number = user.slurm("job_id"), user.attempt
    assert user.slurm("restart") == "1"
    assert user.decisions(number - 1) == [], "Slurm starts it again by itself"
    lab.exec("login", ["scontrol", "update", f"JobId={job}", "Requeue=0"])
    user.preempted(grace_s=0)
    assert user.slurm("job_id") != job
    (decision,) = user.decisions(number)
    assert (decision["cause"], decision["decision"]) == ("slurm_preempted", "restart")
    assert "slurm_preempted" not in user.causes(), "that is past"

    def lost() -> None:
        lab.gpus(user.slurm("head"), xid=79, lost=True, only=0)
        eventually(lambda: "Xid" in str(user.lines("events.jsonl", user.attempt)), "the driver's word")
        user.send("KILL", "learner 1")

    node = user.slurm("head")
    user.goes_on("GPU lost", lost, ["xid_79_fell_off_bus"])
    assert user.slurm("head") != node, "it keeps away from the card"
    number = user.attempt
    user.goes_on("slurmd dead", lambda: lab.service(user.slurm("head"), "slurmd", "stop"), (), 60.0)
    words = [event["text"] for event in user.lines("events.jsonl", number)]
    assert any("it was taken for dead" in one for one in words), "both would write into the same checkpoints"
    user.goes_on("node cut off", lambda: lab.cut(user.slurm("head")), (), 60.0)

    remembered = (user.home.parent / ".bad-nodes.jsonl").read_text().splitlines()
    assert {json.loads(line)["reason"] for line in remembered} == {"gpu-lost", "node-lost"}

    folder = f"{user.home}/checkpoints".removeprefix(str(lab.folder))
    mount = ["mount", "-t", "tmpfs", "-o", "size=16k,uid=2001,mode=0700", "tmpfs", folder]
    lab.exec(user.slurm("head"), mount, user="root")
    try:
        step = user.step()
        eventually(lambda: "disk_full" in user.causes(), "the full disk")
        eventually(lambda: user.step() > step + 20, "steps, as a full disk ends no training")
    finally:
        lab.exec(user.slurm("head"), ["umount", "-l", folder], user="root")

    history = user.says("history", user.run)["history"]
    assert {"run_stalled", "slurm_preempted", "xid_79_fell_off_bus"} < history["lost_h"].keys()
    number = user.attempt
    lab.exec("login", ["scancel", user.slurm("job_id")], user="root")
    (decision,) = eventually(lambda: user.decisions(number), "the decision on a job that somebody else cancelled")
    assert decision["decision"] == "stop"
    assert "cancelled_by_other" in user.causes()
    assert not lab.exec("login", ["squeue", "-h", "-u", "alice", "-o", "%i"]).stdout.split()
