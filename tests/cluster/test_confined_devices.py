"""Jobs whose devices are confined, as on most real clusters: each of two runs on one node sees its own cards alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from slurm_attempts import SlurmAttempt, tiny, write_python

from forks import forking_python
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

FOLDER = "/sys/fs/cgroup/devices"
MOUNT = f"mkdir {FOLDER} && mount -t cgroup -o devices lab {FOLDER}"
CONF = "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\nCgroupAutomount=no\nCgroupMountpoint=/sys/fs/cgroup\n"
TASKS = "sed -i s,^TaskPlugin=.*,TaskPlugin=task/%s, /etc/slurm/slurm.conf"
EMPTY = f"! test -d {FOLDER}/slurm_node1 || find {FOLDER}/slurm_node1 -depth -type d -exec rmdir {{}} +"
SHAPE = (
    *("hardware.gpu=H100-SXM-80GB", "hardware.gpus_per_node=2", "hardware.cpus_per_node=4", "roles.learner.gpus=[1]"),
    *("slurm.exclusive=false", "slurm.mem_gib=4", "slurm.partition=debug", "slurm.time=00:10:00"),
)


@pytest.fixture
def confined(slurm_cluster: Lab) -> Iterator[bool]:
    """Whether node1 confines jobs to their devices by the kernel's cgroups, which it does where it may mount them.

    By those of version 1: Slurm 22.05 refuses version 2 where version 1 is mounted anywhere ("Hybrid mode is not
    supported").
    """

    def on_node(*lines: str) -> int:
        return slurm_cluster.exec("node1", ["sh", "-c", " && ".join(lines)], user="root", check=False).returncode

    on_node("mount -t tmpfs lab /sys/fs/cgroup")
    if on_node(MOUNT):
        yield False
        return
    before = slurm_cluster.exec("node1", ["cat", "/etc/slurm/cgroup.conf"]).stdout
    slurm_cluster.service("node1", "slurmd", "stop")
    slurm_cluster.exec("node1", ["tee", "/etc/slurm/cgroup.conf"], user="root", input=CONF)
    assert not on_node(TASKS % "cgroup", "slurmd </dev/null >/dev/null 2>&1")
    yield True
    on_node("pid=$(cat /run/slurmd.pid)", "kill $pid", "tail --pid=$pid -f /dev/null")
    slurm_cluster.exec("node1", ["tee", "/etc/slurm/cgroup.conf"], user="root", input=before)
    assert not on_node(TASKS % "none")
    eventually(lambda: not on_node(EMPTY), "that no process is left in the jobs' groups")
    assert not on_node("umount -R /sys/fs/cgroup")
    slurm_cluster.service("node1", "slurmd", "start")


def test_two_runs_on_one_node_see_two_cards_each(confined: bool, slurm_cluster: Lab) -> None:
    python = write_python(slurm_cluster, forking_python(sys.executable))  # what is forked is in no group of the job's
    layout = tiny(*SHAPE, nodes=1)
    runs = [SlurmAttempt(slurm_cluster, layout, "wait", run=name, python=python) for name in ("first", "second")]
    for one in runs:
        one.submit()
    cards = []
    for one in runs:
        one.wait(lambda: one.text("ready"), "the trainer's start")  # noqa: B023 (used before the next)
        one.wait(lambda: "\n" in one.text("gpu-node1.jsonl"), "the first sample")  # noqa: B023
        assert one.read("preflight.json")["nodes"]["node1"]["gpus"] == 2
        cards.append(re.findall(r'"i":(\d).*?"uuid":"GPU-00000001-0000-4000-8000-0*(\d)"', one.text("gpu-node1.jsonl")))
    if confined:
        assert [[index for index, _ in mine[:2]] for mine in cards] == [["0", "1"], ["0", "1"]]
        assert sorted(number for mine in cards for _, number in mine[:2]) == ["0", "1", "2", "3"]
    for one in runs:
        slurm_cluster.exec("login", ["scancel", one.job_id])
        assert one.end()["outcome"] == "cancelled"
        one.wait(lambda: not one.processes(["node1"]), "the end of all processes")  # noqa: B023
