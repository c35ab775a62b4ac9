"""The job script on a real Slurm: Ray over real hosts, bad nodes named, signals heeded, nothing left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_attempts import FIND, SlurmAttempt, python_forked_by_server, tiny

from waiting import slowness

if TYPE_CHECKING:
    from lab import Lab

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

CANARY = "canary-7f3a-not-for-any-file"
HOSTILE = "- $(touch ~/pwned) `touch ~/pwned`; touch ~/pwned & 100% #"


def test_three_nodes_join_under_hostile_names_a_second_copy_does_nothing_and_scancel_leaves_no_process(
    slurm_cluster: Lab,
) -> None:
    stranger = "RLTUI_ATTEMPT=another setsid bash -c 'sleep 600 & exec -a raylet sleep 600' >/dev/null 2>&1 &"
    slurm_cluster.exec("node2", ["bash", "-c", stranger])
    slurm_cluster.exec("login", ["sh", "-c", f"umask 077; echo 'export MY_SECRET=\"{CANARY}\"' > secrets"])
    layout = tiny()
    hostile_env = {"TRICK": "'; touch ~/pwned; '\n$(touch ~/pwned)\n"}
    attempt = SlurmAttempt(
        slurm_cluster, layout, "wait", HOSTILE, env=hostile_env, env_file="~/secrets", setup_lines=["true && :"]
    )
    attempt.submit()
    attempt.wait(lambda: attempt.read("slurm.json"), "the start")
    second = slurm_cluster.exec("login", ["sbatch", "--parsable", "--wait", f"{attempt.path}/job.sbatch"])
    assert f"is job {attempt.job_id} already" in attempt.text(f"slurm-{second.stdout.strip()}.out")
    attempt.wait(lambda: attempt.text("ready"), "the trainer's start")
    assert {line.split(":")[0] for line in attempt.processes()} == {"node1", "node2", "node3"}
    assert sorted(attempt.read("preflight.json")["nodes"]) == ["node1", "node2", "node3"]
    assert attempt.read("ray.json")["address"].startswith("10.77.0.11:")
    for number in (1, 2, 3):
        name = f"gpu-node{number}.jsonl"
        attempt.wait(lambda: "\n" in attempt.text(name), f"a sample of node{number}")  # noqa: B023 (used before the next)
        assert json.loads(attempt.text(name).splitlines()[0])["host"] == f"node{number}"
    slurm_cluster.exec("login", ["scancel", attempt.job_id])
    assert attempt.end()["outcome"] == "cancelled", attempt.told()
    history = [entry["stage"] for entry in attempt.read("stage.json")["history"]]
    assert history == ["preflight", "ray-up", "training", "ended"]
    nothing_is_left(slurm_cluster, attempt)
    others = slurm_cluster.exec("node2", [sys.executable, "-c", FIND, "another"], user="root").stdout
    assert len(others.splitlines()) == 2
    home = Path(slurm_cluster.folder, "home", "alice")
    assert not (home / "pwned").exists()
    (home / "secrets").unlink()
    found = slurm_cluster.exec("login", ["grep", "-rlF", CANARY, "."], check=False).stdout
    assert found == "", "the secret is in a file"
    for name in ("ray.json", "ray.token"):
        assert Path(f"{slurm_cluster.folder}{attempt.path}", name).stat().st_mode & 0o77 == 0


def nothing_is_left(lab: Lab, attempt: SlurmAttempt) -> None:
    """Neither a process of the attempt nor Ray's folder on any node."""
    attempt.wait(lambda: not attempt.processes(), "the end of all processes")
    listing = ["sh", "-c", "ls -d /tmp/rltui-* 2>/dev/null"]
    for node in lab.spec.compute:
        attempt.wait(
            lambda: not lab.exec(node, listing, check=False).stdout,  # noqa: B023 (used before the next)
            f"the removal of Ray's folder on {node}",
        )


def test_a_node_that_lost_a_gpu_is_named_before_ray_starts(slurm_cluster: Lab) -> None:
    slurm_cluster.gpus("node2", lost=True, only=1)
    layout = tiny("hardware.gpu=H100-SXM-80GB", "hardware.gpus_per_node=4")
    attempt = SlurmAttempt(slurm_cluster, layout, "finish")
    attempt.submit()
    end = attempt.end()
    assert end["outcome"] == "failed"
    assert list(end["bad_nodes"]) == ["node2"]
    assert "1 of 3 nodes cannot run this job; node2: 1 of 4 GPUs: Unable to determine" in end["reason"]
    assert not attempt.text("ray.log")
    words = ["sacct", "-nXP", "-j", attempt.job_id, "-o", "State,ExitCode"]
    attempt.wait(lambda: slurm_cluster.exec("login", words).stdout.strip() == "FAILED|1:0", "the job's end")


def test_a_node_that_does_not_join_is_named_at_the_deadline(slurm_cluster: Lab) -> None:
    hangs = 'case "$*" in *ray.scripts*) [ "$(hostname)" = node3 ] && exec sleep 600;; esac'
    python = python_forked_by_server(slurm_cluster, hangs)
    within_s = round(25 * slowness())
    deadlines_s = {"rendezvous": within_s}
    attempt = SlurmAttempt(slurm_cluster, tiny(), "finish", python=python, deadlines_s=deadlines_s)
    attempt.submit()
    end = attempt.end()
    assert end["reason"] == f"2/3 nodes, missing node3: did not join Ray within {within_s} s"
    assert list(end["bad_nodes"]) == ["node3"]
    attempt.wait(lambda: not attempt.processes(), "the end of all processes")


def test_each_start_of_a_job_has_a_folder_of_its_own_and_one_on_a_node_lost_before_makes_room_elsewhere(
    slurm_cluster: Lab,
) -> None:
    attempt = SlurmAttempt(slurm_cluster, tiny("roles.learner.gpus=[1]", "slurm.exclude=[node3]", nodes=1), "wait")
    attempt.submit()
    attempt.wait(lambda: attempt.text("ready"), "the trainer's start")
    slurm_cluster.crash("node1")
    attempt.wait(lambda: attempt.state() == "PENDING", "the requeue")
    slurm_cluster.exec("login", ["scontrol", "hold", attempt.job_id])
    slurm_cluster.boot("node1")
    idle = ["sinfo", "-h", "-n", "node1", "-p", "gpu", "-o", "%T"]
    attempt.wait(lambda: slurm_cluster.exec("login", idle).stdout.strip() == "idle", "the node's return")
    slurm_cluster.exec("login", ["scontrol", "release", attempt.job_id])
    attempt.wait(lambda: attempt.text("ready", 3), "the trainer's start elsewhere")
    assert list(attempt.end(1)["bad_nodes"]) == ["node1"]
    second = attempt.end(2)
    assert (second["outcome"], second["kept_away"], attempt.read("slurm.json", 2)["nodes"]) == (
        *("lost", ["node1"]), ["node1"],
    )  # fmt: skip
    assert attempt.read("slurm.json", 3)["nodes"] == ["node2"]
    excluded = ["squeue", "-h", "-j", attempt.job_id, "-o", "%x"]
    assert slurm_cluster.exec("login", excluded).stdout.strip() == "node[1,3]"

    slurm_cluster.exec("login", ["scontrol", "requeue", attempt.job_id])
    third = attempt.end(3)
    assert third["reason"].startswith("requeued"), third
    attempt.wait(lambda: attempt.text("ready", 4), "the trainer's start after the requeue")
    assert attempt.read("end.json", 3) == third
    assert [attempt.read("slurm.json", number)["restart"] for number in (3, 4)] == [2, 3]
    slurm_cluster.exec("login", ["scancel", attempt.job_id])
    attempt.wait(lambda: not attempt.processes(), "the end of all processes")
