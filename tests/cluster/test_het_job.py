"""A run on two kinds of node over SSH, as one het job of a real Slurm: placed as drawn, killed, gone on elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from slurm_support import LabTransport, profile
from workstation import FEW_ANSWERS, Workstation

from rltui.cluster.relay_client import RelayClient
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm.ids import comment_of, job_name_of, read_id
from rltui.cluster.slurm.poller import JobPoller
from rltui.cluster.slurm.queries import by_id
from rltui.cluster.slurm.steps import shell_argv
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.runs.script import preview_script
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]

# The learner on a host of one partition, and an engine on each of two hosts of another.
KINDS = "hardware.more={rollouts: {roles: [rollout], nodes: 2, gpus_per_node: 1, partition: low}}"
LAYOUT = ("local/grpo-tiny", "hardware.gpus_per_node=1", "roles.learner.gpus=[1]", "roles.rollout.engines=2", KINDS)
SETTINGS = ("train.steps=100000", "checkpoint.every=5", "slurm.time=00:30:00", "slurm.requeue=false",
            "slurm.exclusive=true", "tracking.wandb=disabled", *FEW_ANSWERS)  # fmt: skip
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def workstation(four_nodes: Lab, tmp_path: Path) -> Iterator[Workstation]:
    yield Workstation(four_nodes, tmp_path)
    four_nodes.reset()


def drawn(workstation: Workstation) -> dict[str, int]:
    """The number of each role's node in the picture."""
    seats = json.loads(workstation.rltui("draw", *LAYOUT, "--json"))["placement"]["seats"]
    return {f"{seat['role']} {seat['index']}": seat["node"] for seat in seats}


def test_a_run_on_two_kinds_of_node_dies_with_one_node_and_goes_on_elsewhere(workstation: Workstation) -> None:
    lab = workstation.lab
    assert drawn(workstation) == {"learner 0": 0, "engine 0": 1, "engine 1": 2}
    workstation.rltui("launch", *LAYOUT, *SETTINGS, "--cluster", "lab")
    eventually(lambda: workstation.step() > 8, "the eighth step")
    run = workstation.only_run()
    assert (run["state"], sorted(run["job"]["nodes"])) == ("running", ["node1", "node2", "node3"])
    parts = lab.exec("login", ["squeue", "--me", "-h", "-o", "%i %P %D"]).stdout.split("\n")
    assert [part.partition("+")[2] for part in sorted(parts) if part] == ["0 gpu 1", "1 low 2"]
    placed = workstation.hosts_of_roles(run["path"], 1)
    assert placed["learner 0"] == "node1"
    assert {placed["engine 0"], placed["engine 1"]} == {"node2", "node3"}

    lab.crash("node3")
    [end] = eventually(lambda: workstation.lines("end.json", 1), "the end of the run")
    assert "node3" in end["bad_nodes"]

    def ended() -> tuple[str, str]:
        run = workstation.only_run()
        return (run["job"] or {}).get("word", ""), run["state"]

    eventually(lambda: ended() == ("NODE_FAIL", "failed"), "the end of the job", saw=ended)
    saved = workstation.newest_checkpoint(run["path"])

    lab.boot("node3")  # back, and to be kept away from all the same
    steps = saved + 5
    workstation.rltui("resubmit", run["run_id"], "--exclude", "node3", f"train.steps={steps}", "-y")
    eventually(lambda: workstation.lines("end.json", 2), "the end of the second attempt")
    again = workstation.only_run()
    assert (again["run_id"], again["attempt"], again["state"]) == (run["run_id"], 2, "finished")
    placed = workstation.hosts_of_roles(run["path"], 2)
    assert {placed["engine 0"], placed["engine 1"]} == {"node1", "node2", "node4"} - {placed["learner 0"]}
    find = ["pgrep", "-u", "alice", "-f", "ray|rltui"]
    eventually(
        lambda: not any(lab.exec(node, find, check=False).stdout for node in lab.spec.compute), "no process left"
    )


# What the driver of a job does that Slurm starts again without a node that it lost.
KEEP_AWAY = """
import sys
from rltui.onnode.allocation import Allocation, Part
from rltui.onnode.keep_away import keep_away
job, lost, *nodes = sys.argv[1:]
allocation = Allocation(int(job), 0, nodes, 4, None, (Part(nodes[:1], 4), Part(nodes[1:], 4)))
print(*keep_away("/home/alice", allocation, {lost: "node failure on " + lost}))
"""


def kept_away(lab: Lab, job_id: str, lost: str, nodes: Sequence[str]) -> str:
    """Have the job queued again, away from a node that it lost and from no other; the node, if Slurm has taken it."""
    for words in (["requeuehold", job_id], ["update", f"JobId={job_id}", "ExcNodeList="]):
        lab.exec("login", ["scontrol", *words])
    kinds = ["SLURM_JOB_PARTITION_HET_GROUP_0=gpu", "SLURM_JOB_PARTITION_HET_GROUP_1=low", f"PYTHONPATH={ROOT}"]
    said = lab.exec("login", ["env", *kinds, sys.executable, "-c", KEEP_AWAY, job_id, lost, *nodes]).stdout
    lab.exec("login", ["scontrol", "release", job_id])
    return said.strip()


def sleeping(uuid: str) -> str:
    """The job script of the layout, which only sleeps."""
    words = [*LAYOUT[1:], *SETTINGS, "slurm.requeue=true"]
    script = preview_script(load_layout(resolve(LAYOUT[0]), words).layout, profile()).replace("UUID", uuid)
    return script.partition("# Attempt 1")[0].replace("#SBATCH --output", "##") + "sleep 600 &\nwait\n"


def test_a_het_job_is_found_requeued_and_cancelled_as_one(workstation: Workstation) -> None:
    lab, uuid = workstation.lab, uuid4().hex
    lab.exec("login", ["tee", "sleeps"], input=sleeping(uuid))
    client = SlurmClient(RelayClient(LabTransport(lab)), settle_s=0)
    assert client.test_only("/home/alice/sleeps").accepted
    words = {"job_name": job_name_of("run", uuid), "comment": comment_of(uuid), "chdir": "/home/alice"}
    job_id = client.submit("/home/alice/sleeps", **words)
    poller = JobPoller(client)

    def nodes() -> set[str]:
        job = by_id([one for _, one in client.queue([job_id])])[job_id]
        return set(job.nodes) if job.state == "running" and len(job.nodes) == 3 else set()

    assert "node3" in eventually(nodes, "all components")
    assert client.find_by_comment(uuid, client.now()) == job_id
    client.requeue_without(job_id, ["node3"])
    eventually(lambda: nodes() == {"node1", "node2", "node4"}, "the job on other nodes")
    assert kept_away(lab, job_id, "node4", ["node1", "node2", "node4"]) == "node4"
    eventually(lambda: nodes() == {"node1", "node2", "node3"}, "the job away from the node that it lost")
    for _, component in client.queue([job_id]):
        identity, node = read_id(component.job_id), component.nodes[-1]
        assert identity is not None
        shell = [word for word in shell_argv(job_id, node, "/", identity.part) if word != "--pty"]
        assert lab.exec("login", shell, input="hostname\n").stdout.split()[-1] == node
    assert poller.jobs([job_id]).jobs[job_id].state == "running"
    assert client.cancel(job_id, uuid=uuid)
    eventually(lambda: not client.living(job_id, uuid=uuid), "the end of all components")
    client.runner.relay.close()
