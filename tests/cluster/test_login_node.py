"""rltui on the login node itself, as most users work: this machine and Slurm's profiles share one run root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from verbs import rltui_at_login

if TYPE_CHECKING:
    import subprocess

    from lab import Lab

PROFILES = """
lab: {scheduler: slurm, partition: gpu, python: /bin/true, setup_lines: [sleep 600]}
lab-debug: {scheduler: slurm, partition: debug, python: /bin/true}
"""
WAITS = "slurm.options=['--begin=now+1hour']"
ACTS = {
    "cancel": ["--yes"],
    "resubmit": ["--cancel", "--yes"],
    "hold": [],
    "release": [],
    "requeue": ["--yes"],
    "update": ["--time", "00:10:00"],
}


class Alice:
    """A user at the login node."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        lab.exec("login", ["mkdir", "-p", ".config/rltui"])
        lab.exec("login", ["tee", ".config/rltui/clusters.yaml"], input=PROFILES)

    def run(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        return rltui_at_login(self._lab, words, codes=(expect,))

    def json(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words, "--json").stdout)
        return answer

    def jobs(self) -> list[str]:
        return self._lab.exec("login", ["squeue", "--me", "-h", "-o", "%A|%T"]).stdout.split()


@pytest.fixture
def alice(slurm_cluster: Lab) -> Alice:
    return Alice(slurm_cluster)


def test_only_its_own_profile_changes_a_queued_run_and_every_profile_shows_it_once(
    alice: Alice, slurm_cluster: Lab
) -> None:
    launched = alice.json("launch", "local/grpo-tiny", WAITS, "--cluster", "lab")
    run_id, waiting = launched["run_id"], [f"{launched['job_id']}|PENDING"]
    [row] = alice.json("ps")["runs"]
    assert (row["run_id"], row["cluster"], row["state"]) == (run_id, "lab", "queued")
    for other in ("local", "lab-debug"):
        for verb, words in ACTS.items():
            said = alice.run(verb, run_id, *words, "--cluster", other, expect=2).stderr
            assert "belongs to cluster 'lab'" in said, verb
            assert "--cluster lab" in said, verb
        for verb in ("show", "events", "metrics", "gpus", "actors", "queues"):
            alice.run(verb, run_id, "--cluster", other)
        assert alice.jobs() == waiting
    said = alice.run("resubmit", run_id, expect=1).stderr
    assert "still queued" in said
    assert "Nobody is there to confirm" in alice.run("resubmit", run_id, "--cancel", expect=2).stderr
    assert alice.jobs() == waiting
    assert slurm_cluster.exec("login", ["pgrep", "-u", "alice", "-f", "raylet|supervise"], check=False).stdout == ""
    alice.run("hold", run_id)
    alice.run("release", run_id)
    alice.run("update", run_id, "--time", "00:10:00")
    assert alice.jobs() == waiting
    alice.run("cancel", run_id, "--yes")
    assert alice.jobs() == []


@pytest.mark.parametrize("what", ["local/grpo-tiny", "run.sh"])
def test_a_job_without_enough_nodes_left_is_warned_of(alice: Alice, slurm_cluster: Lab, what: str) -> None:
    slurm_cluster.exec("login", ["tee", "run.sh"], input="#!/bin/bash\n#SBATCH --time=00:10:00\nsleep 100\n")
    run_id = alice.json("launch", what, WAITS, "--cluster", "lab")["run_id"]
    without = [word for node in slurm_cluster.spec.compute for word in ("--exclude", node)]
    said = alice.run("update", run_id, *without, expect=2)
    assert "0 of 3 nodes of gpu are left, 1 are needed: it would never start" in said.stdout + said.stderr


def test_nothing_is_started_on_a_login_node_unasked(alice: Alice) -> None:
    said = alice.run("launch", "local/grpo-tiny", expect=2).stderr
    assert "this machine has Slurm" in said
    assert "--cluster lab" in said
    assert "Add --yes" in said
    assert "this machine has Slurm" in alice.run("demo", "--no-screen", expect=2).stderr
    assert alice.json("ps")["runs"] == []
