"""The whole way over SSH, on a real Slurm: a GRPO run on two hosts is watched, loses one, and goes on elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from workstation import FEW_ANSWERS, Workstation

from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

# Two learner bundles, each on a host of its own, and the engine beside one of them.
LAYOUT = ("local/grpo-tiny", "hardware.nodes=2", "hardware.gpus_per_node=2", "roles.learner.gpus=[1,1]")
SETTINGS = ("train.steps=100000", "checkpoint.every=10", "tracking.wandb=disabled", "slurm.time=00:30:00", *FEW_ANSWERS)
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1500)]


SLURMD_TIMEOUT = "sed -i s/^SlurmdTimeout=.*/SlurmdTimeout={}/ /etc/slurm/slurm.conf && scontrol reconfigure"


class Patient:
    """The lab, whose Slurm does not give up a node that is silent, as on a real cluster: the trainer fails long before.

    Until it ``gives_up``, as soon as all that is about the time before was seen.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self._before = lab.exec("ctl", ["cat", "/etc/slurm/slurm.conf"]).stdout
        lab.exec("ctl", ["sh", "-c", SLURMD_TIMEOUT.format(600)], user="root")

    def gives_up(self) -> None:
        """Have the times of the other tests again."""
        self.lab.exec("ctl", ["tee", "/etc/slurm/slurm.conf"], user="root", input=self._before)
        self.lab.exec("ctl", ["scontrol", "reconfigure"], user="root")


@pytest.fixture
def patient(slurm_cluster: Lab) -> Iterator[Patient]:
    made = Patient(slurm_cluster)
    yield made
    made.gives_up()


def test_a_run_on_two_hosts_is_watched_and_slurm_starts_it_again_without_the_one_that_dies(
    patient: Patient, tmp_path: Path
) -> None:
    lab, workstation = patient.lab, Workstation(patient.lab, tmp_path)
    workstation.rltui("launch", *LAYOUT, *SETTINGS, "--cluster", "lab")
    eventually(lambda: workstation.step() > 25, "the 25th step")
    run = workstation.only_run()
    assert (run["state"], run["job"]["nodes"]) == ("running", ["node1", "node2"])

    def sampled() -> dict[str, Any] | None:
        seen = workstation.show(run["run_id"])
        return seen if [bool(host["processes"]) for host in seen["hosts"]] == [True] * 2 else None

    shown = eventually(sampled, "samples of all hosts")
    assert [(host["host"], len(host["gpus"])) for host in shown["hosts"]] == [(f"node{n}", 4) for n in (1, 2)]
    assert len(shown["metrics"]["steps"]) > 20
    placed = workstation.hosts_of_roles(run["path"], 1)
    assert placed.keys() == {"learner 0", "learner 1", "engine 0"}
    assert {placed["learner 0"], placed["learner 1"]} == {"node1", "node2"}

    eventually(lambda: workstation.newest_checkpoint(run["path"]) >= 20, "the second checkpoint")
    lab.crash("node2")
    waiting = "node2: no answer; waiting for Slurm"
    eventually(lambda: waiting in str(workstation.lines("events.jsonl", 1)), "word of the silent node")
    patient.gives_up()
    eventually(lambda: workstation.attempt == 2, "the second start")
    saved = workstation.newest_checkpoint(run["path"])
    assert saved >= 20
    lab.boot("node2")  # back, and kept away from all the same
    # the second start adds to it what Slurm said
    [end] = eventually(
        lambda: [one for one in workstation.lines("end.json", 1) if "kept_away" in one], "the first's end"
    )
    assert (end["slurm"], list(end["bad_nodes"]), end["kept_away"]) == ("NODE FAILURE", ["node2"], ["node2"])
    assert end["reason"].startswith("node failure on node2; "), end
    assert "the job keeps away from node2" in workstation.rltui("show", run["run_id"])

    eventually(lambda: len(workstation.lines("metrics.jsonl", 2)) > 5, "steps of the second start")
    again = workstation.only_run()
    assert (again["run_id"], again["attempt"], again["job_id"]) == (run["run_id"], 2, run["job_id"])
    assert lab.exec("login", ["squeue", "-h", "-j", run["job_id"], "-o", "%x"]).stdout.strip() == "node2"
    assert set(workstation.hosts_of_roles(run["path"], 2).values()) == {"node1", "node3"}
    workstation.rltui("cancel", run["run_id"], "--yes")
    eventually(lambda: workstation.lines("end.json", 2), "the end of the second start")
    steps = [line["step"] for line in workstation.read(f"{run['path']}/attempts/02/metrics.jsonl")]
    assert steps == list(range(saved + 1, saved + 1 + len(steps)))
    find = ["pgrep", "-u", "alice", "-f", "ray|rltui"]
    eventually(
        lambda: not any(lab.exec(node, find, check=False).stdout for node in lab.spec.compute), "no process left"
    )
