"""The whole way over SSH, on a real Slurm: a GRPO run on three hosts is watched, killed, and goes on elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from workstation import Workstation

from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

# Two learner bundles, each on a host of its own, and the engine on the third.
LAYOUT = ("local/grpo-tiny", "hardware.nodes=3", "hardware.gpus_per_node=1", "roles.learner.gpus=[1,1]")
SETTINGS = ("train.steps=100000", "checkpoint.every=10", "slurm.time=00:30:00")
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def workstation(four_nodes: Lab, tmp_path: Path) -> Workstation:
    return Workstation(four_nodes, tmp_path)


def test_a_run_on_three_hosts_is_watched_and_slurm_starts_it_again_without_the_one_that_dies(
    workstation: Workstation,
) -> None:
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

    # as on a real cluster, the trainer has failed long before Slurm gives up the node
    slow = "sed -i s/^SlurmdTimeout=.*/SlurmdTimeout=50/ /etc/slurm/slurm.conf && scontrol reconfigure"
    lab.exec("ctl", ["sh", "-c", slow], user="root")
    lab.crash("node2")
    first = f"{run['path']}/attempts/01"
    eventually(lambda: workstation.only_run()["attempt"] == 2, "the second start", 240)
    saved = workstation.newest_checkpoint(run["path"])
    assert saved >= 20
    lab.boot("node2")  # back, and kept away from all the same
    [end] = workstation.read(f"{first}/end.json")
    assert (end["slurm"], list(end["bad_nodes"]), end["kept_away"]) == ("NODE FAILURE", ["node2"], ["node2"])
    events = workstation.read(f"{first}/events.jsonl")
    assert any("node2: no answer; waiting for Slurm" in event["text"] for event in events), events
    assert end["reason"].startswith("node failure on node2; "), end
    assert "the job keeps away from node2" in workstation.rltui("show", run["run_id"])

    metrics = Path(f"{lab.folder}{run['path']}", "attempts/02/metrics.jsonl")
    eventually(lambda: metrics.exists() and metrics.read_text().count("\n") > 5, "steps of the second start", 400)
    again = workstation.only_run()
    assert (again["run_id"], again["attempt"], again["job_id"]) == (run["run_id"], 2, run["job_id"])
    assert lab.exec("login", ["squeue", "-h", "-j", run["job_id"], "-o", "%x"]).stdout.strip() == "node2"
    assert set(workstation.hosts_of_roles(run["path"], 2).values()) == {"node1", "node3", "node4"}
    workstation.rltui("cancel", run["run_id"], "--yes")
    eventually(lambda: workstation.only_run()["end"], "the end of the second start", 100)
    steps = [line["step"] for line in workstation.read(f"{run['path']}/attempts/02/metrics.jsonl")]
    assert steps == list(range(saved + 1, saved + 1 + len(steps)))
    find = ["pgrep", "-u", "alice", "-f", "ray|rltui"]
    eventually(
        lambda: not any(lab.exec(node, find, check=False).stdout for node in lab.spec.compute), "no process left"
    )
