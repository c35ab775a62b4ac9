"""A real run on the lab: preempted, it goes on once each time; a full disk is said of it; asked to end, it saves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from slurm_support import take_node
from workstation import ROOT, Workstation

from rltui.onnode import rundir
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

SETTINGS = (
    "roles.learner.gpus=[1]", "train.steps=100000", "checkpoint.every=10", "tracking.wandb=disabled",
    "slurm.time=00:30:00", "slurm.partition=low",
)  # fmt: skip
PREEMPTED = "preempted by Slurm for another job; its newest checkpoint is of step "
FULL_IN_THE_MIDDLE = """
until ls -d "$0"/.saving-step-*/deepspeed; do :; done 2> /dev/null
exec mount -t tmpfs -o size=16k,uid=2001,mode=0700 tmpfs "$0"
"""
"""Puts a disk without room in the place of a folder while a checkpoint is being written there."""
ENDS_ON_A_FULL_DISK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from rltui.onnode import relay_files, rundir
had_room = not relay_files.is_full("/tmp/full")
attempt = "/tmp/full/run/attempts/01"
os.makedirs(attempt)
rundir.keep_room(attempt)
try:
    with open("/tmp/full/rest", "wb", buffering=0) as rest:
        while True:
            rest.write(bytes(4096))
except OSError:
    pass
try:
    rundir.write_json(attempt + "/other.json", {"some": "thing"})
except OSError:
    rundir.write_end(attempt, "failed", 1, "the disk is full")
    print(rundir.read_json(attempt + "/end.json")["reason"], os.listdir(attempt))
print(had_room, relay_files.is_full("/tmp/full"))
"""
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1800)]


class Preempted(Workstation):
    """One run in a partition that others go before."""

    def missed(self, attempt: int) -> list[str]:
        """What is said of checkpoints that could not be written."""
        return [one["text"] for one in self.lines("events.jsonl", attempt) if "was not saved" in one["text"]]

    def preempted(self, attempt: int, grace_s: int) -> int:
        """Have the node of a training attempt taken, which gets some time to leave; how many steps are done again."""
        eventually(lambda: len(self.lines("metrics.jsonl", attempt)) > 15, f"steps of attempt {attempt}")
        self.lab.exec("login", ["scontrol", "update", "PartitionName=low", f"GraceTime={grace_s}"], user="root")
        take_node(self.lab, self.lines("slurm.json", attempt)[0]["head"], 60)
        (end,) = eventually(lambda: self.lines("end.json", attempt), f"the end of attempt {attempt}")
        assert (end["outcome"], end["slurm"], end["reason"][: len(PREEMPTED)]) == ("cancelled", "PREEMPTION", PREEMPTED)
        last = self.lines("metrics.jsonl", attempt)[-1]
        eventually(lambda: self.lines("metrics.jsonl", attempt + 1), f"a step of attempt {attempt + 1}")
        first = self.lines("metrics.jsonl", attempt + 1)[0]["step"]
        assert f"{PREEMPTED}{first - 1}" == end["reason"]
        # ten steps, and while they were being saved ten more
        assert last["step"] - 20 <= first - 1 <= last["step"]
        return int(last["step"] - first + 1)


def test_a_run_goes_on_after_preemptions_and_with_a_full_disk_and_saves_when_asked_to_end(
    slurm_cluster: Lab, tmp_path: Path
) -> None:
    user = Preempted(slurm_cluster, tmp_path)
    user.rltui("launch", "local/grpo-tiny", *SETTINGS, "--cluster", "lab", "--auto")
    run = eventually(user.only_run, "the run")["run_id"]

    assert user.preempted(1, grace_s=180) == 0, "it was told in time, has saved, and had itself queued again"
    job = user.lines("slurm.json", 1)[0]["job_id"]
    assert [user.lines("slurm.json", 2)[0][name] for name in ("job_id", "restart")] == [job, 1]
    assert user.lines("../../hands-off.jsonl", 2) == [], "Slurm starts it again by itself"
    user.lab.exec("login", ["scontrol", "update", f"JobId={job}", "Requeue=0"])
    user.preempted(2, grace_s=0)
    assert user.lines("slurm.json", 3)[0]["job_id"] != job
    (decision,) = user.lines("../../hands-off.jsonl", 3)
    assert (decision["cause"], decision["decision"], decision["next_attempt"]) == ("slurm_preempted", "restart", 3)

    shown = user.show(run)["summary"]
    assert (shown["state"], shown["attempt"]) == ("running", 3)
    assert "slurm_preempted" not in {one["id"] for one in user.says("why", run)["diagnoses"]}, "that is past"
    history = user.says("history", run)["history"]
    assert [one["cause"] for one in history["attempts"]] == ["slurm_preempted", "slurm_preempted", ""]
    assert history["lost_h"].keys() == {"slurm_preempted"}

    def queue() -> list[str]:
        return user.lab.exec("login", ["squeue", "-h", "-u", "alice", "-o", "%i"]).stdout.split()

    # the job before may still be listed, as its node is being tidied up
    third = [str(user.lines("slurm.json", 3)[0]["job_id"])]
    eventually(lambda: queue() == third, "nothing that is doubled", saw=queue)

    folder = f"{shown['path']}/checkpoints"
    goes_on_with_a_full_disk(user, run, folder)
    user.rltui("auto", run, "--off", "--cluster", "lab")

    before = user.lines("metrics.jsonl", 3)[-1]["step"]
    user.lab.exec("login", ["scancel", "--batch", "--signal=USR2", *third])
    (end,) = eventually(lambda: user.lines("end.json", 3), "the end that was asked for")
    saved = user.newest_checkpoint(shown["path"])
    assert end["reason"] == f"asked to save and end by SIGUSR2; its newest checkpoint is of step {saved}"
    assert saved >= before
    assert end["exit_code"] == 143
    find = ["pgrep", "-u", "alice", "-f", "ray|rltui"]
    eventually(
        lambda: not any(user.lab.exec(host, find, check=False).stdout for host in user.lab.spec.compute),
        "no process left",
    )


def goes_on_with_a_full_disk(user: Preempted, run: str, folder: str) -> None:
    """Fill the disk below the third attempt's checkpoints: it is told, and training goes on."""
    node = user.lines("slurm.json", 3)[0]["head"]
    user.lab.exec(node, ["bash", "-c", FULL_IN_THE_MIDDLE, folder], user="root")

    def said() -> list[str]:
        return [one["id"] for one in user.says("why", run)["diagnoses"]]

    def seen() -> object:
        return said(), user.missed(3), [user.lines(name, 3)[-3:] for name in ("end.json", "events.jsonl")]

    try:
        step = user.step()
        eventually(lambda: len(user.missed(3)) > 1, "checkpoints that were not saved", saw=seen)
        eventually(lambda: "disk_full" in said(), "disk_full", saw=seen)
        eventually(lambda: user.step() > step + 20, "steps, as a full disk ends no training", saw=seen)
    finally:
        user.lab.exec(node, ["umount", "-l", folder], user="root")


def test_the_end_of_an_attempt_has_its_room_where_the_disk_is_full(slurm_cluster: Lab) -> None:
    mounted = 'mkdir -p /tmp/full && mount -t tmpfs -o size=512k tmpfs /tmp/full && exec "$@"'
    words = ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, "-c", ENDS_ON_A_FULL_DISK, str(ROOT)]
    said = slurm_cluster.exec("login", words, user="root").stdout
    assert said.startswith("the disk is full [")
    assert rundir.ROOM not in said, "what was kept is given back"
    assert said.splitlines()[-1] == "True True", "the list of runs says that the disk is full, as soon as it is"
