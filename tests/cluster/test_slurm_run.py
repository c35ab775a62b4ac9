"""The whole way over SSH, on a real Slurm: a GRPO run on three hosts is watched, killed, and goes on elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from workstation import Workstation

from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

# Two learner bundles, each on a host of its own, and the engine on the third.
LAYOUT = ("local/grpo-tiny", "hardware.nodes=3", "hardware.gpus_per_node=1", "roles.learner.gpus=[1,1]")
SETTINGS = ("train.steps=100000", "checkpoint.every=10", "slurm.time=00:30:00", "slurm.requeue=false")
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def workstation(four_nodes: Lab, tmp_path: Path) -> Workstation:
    return Workstation(four_nodes, tmp_path)


def test_a_run_on_three_hosts_is_watched_dies_with_one_and_goes_on_elsewhere(workstation: Workstation) -> None:
    lab = workstation.lab
    workstation.rltui("launch", *LAYOUT, *SETTINGS, "--cluster", "lab")
    eventually(lambda: workstation.step() > 25, "the 25th step", 400)
    run = workstation.only_run()
    assert (run["state"], run["job"]["nodes"]) == ("running", ["node1", "node2", "node3"])

    shown = workstation.show(run["run_id"])
    assert [(host["host"], len(host["gpus"])) for host in shown["hosts"]] == [(f"node{n}", 4) for n in (1, 2, 3)]
    assert all(host["processes"] for host in shown["hosts"])
    assert len(shown["metrics"]["steps"]) > 20
    placed = workstation.hosts_of_roles(run["path"], 1)
    assert placed.keys() == {"learner 0", "learner 1", "engine 0"}
    assert set(placed.values()) == {"node1", "node2", "node3"}

    lab.crash("node2")
    eventually(lambda: workstation.only_run()["state"] == "failed", "the end of the run", 240)
    # the run says that it failed before Slurm has done with the job
    eventually(lambda: workstation.only_run()["job"]["word"] == "NODE_FAIL", "the end of the job")
    dead = workstation.only_run()
    assert "node" in dead["scheduler_says"]
    saved = workstation.newest_checkpoint(run["path"])
    assert saved >= 20

    lab.boot("node2")  # back, and to be kept away from all the same
    steps = saved + 10
    workstation.rltui("resubmit", run["run_id"], "--exclude", "node2", f"train.steps={steps}", "-y")
    eventually(lambda: workstation.only_run()["end"], "the end of the second attempt", 400)
    again = workstation.only_run()
    assert (again["run_id"], again["attempt"], again["state"]) == (run["run_id"], 2, "finished")
    metrics = workstation.read(f"{run['path']}/attempts/02/metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(saved + 1, steps + 1))
    assert set(workstation.hosts_of_roles(run["path"], 2).values()) == {"node1", "node3", "node4"}
    for node in lab.spec.compute:
        assert lab.exec(node, ["pgrep", "-u", "alice", "-f", "ray|rltui"], check=False).stdout == ""
