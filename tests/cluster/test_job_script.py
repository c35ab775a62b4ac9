"""The job script on a real Slurm: Ray over real hosts, bad nodes named, signals heeded, nothing left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_attempts import FIND, SlurmAttempt, tiny

if TYPE_CHECKING:
    from lab import Lab

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

CANARY = "canary-7f3a-not-for-any-file"
HOSTILE = "- $(touch ~/pwned) `touch ~/pwned`; touch ~/pwned & 100% #"


def test_three_nodes_join_under_hostile_names_and_a_second_copy_does_nothing(slurm_cluster: Lab) -> None:
    slurm_cluster.exec("login", ["sh", "-c", f"umask 077; echo 'export MY_SECRET=\"{CANARY}\"' > secrets"])
    layout = tiny()
    hostile_env = {"TRICK": "'; touch ~/pwned; '\n$(touch ~/pwned)\n"}
    attempt = SlurmAttempt(
        slurm_cluster, layout, "finish", HOSTILE, env=hostile_env, env_file="~/secrets", setup_lines=["true && :"]
    )
    attempt.submit()
    attempt.wait(lambda: attempt.read("slurm.json"), "the start")
    second = slurm_cluster.exec("login", ["sbatch", "--parsable", "--wait", f"{attempt.path}/job.sbatch"])
    assert f"is job {attempt.job_id} already" in attempt.text(f"slurm-{second.stdout.strip()}.out")
    assert attempt.end()["outcome"] == "finished", attempt.told()
    history = [entry["stage"] for entry in attempt.read("stage.json")["history"]]
    assert history == ["preflight", "ray-up", "training", "ended"]
    assert sorted(attempt.read("preflight.json")["nodes"]) == ["node1", "node2", "node3"]
    assert attempt.read("ray.json")["address"].startswith("10.77.0.11:")
    for number in (1, 2, 3):
        line = json.loads(attempt.text(f"gpu-node{number}.jsonl").splitlines()[0])
        assert line["host"] == f"node{number}"
    attempt.wait(lambda: not attempt.processes(), "the end of all processes", 60)
    home = Path(slurm_cluster.folder, "home", "alice")
    assert not (home / "pwned").exists()
    (home / "secrets").unlink()
    found = slurm_cluster.exec("login", ["grep", "-rlF", CANARY, "."], check=False).stdout
    assert found == "", "the secret is in a file"
    for name in ("ray.json", "ray.token"):
        assert Path(f"{slurm_cluster.folder}{attempt.path}", name).stat().st_mode & 0o77 == 0


def test_a_node_that_lost_a_gpu_is_named_before_ray_starts(slurm_cluster: Lab) -> None:
    slurm_cluster.gpus("node2", lost=True, only=1)
    layout = tiny("hardware.gpu=H100-SXM-80GB", "hardware.gpus_per_node=4")
    attempt = SlurmAttempt(slurm_cluster, layout, "finish")
    attempt.submit()
    end = attempt.end(deadline_s=120)
    assert end["outcome"] == "failed"
    assert list(end["bad_nodes"]) == ["node2"]
    assert "1 of 3 nodes cannot run this job; node2: 1 of 4 GPUs: Unable to determine" in end["reason"]
    assert not attempt.text("ray.log")
    words = ["sacct", "-nXP", "-j", attempt.job_id, "-o", "State,ExitCode"]
    attempt.wait(lambda: slurm_cluster.exec("login", words).stdout.strip() == "FAILED|1:0", "the job's end", 60)


def test_a_node_that_does_not_join_is_named_at_the_deadline(slurm_cluster: Lab) -> None:
    hangs = 'case "$*" in *ray.scripts*) [ "$(hostname)" = node3 ] && exec sleep 600;; esac'
    wrapper = f'#!/bin/sh\n{hangs}\nexec {sys.executable} "$@"\n'
    slurm_cluster.exec("login", ["sh", "-c", "cat > python && chmod 755 python"], input=wrapper)
    attempt = SlurmAttempt(slurm_cluster, tiny(), "finish", python="/home/alice/python", deadlines_s={"rendezvous": 25})
    attempt.submit()
    end = attempt.end()
    assert end["reason"] == "2/3 nodes, missing node3: did not join Ray within 25 s"
    assert list(end["bad_nodes"]) == ["node3"]
    attempt.wait(lambda: not attempt.processes(), "the end of all processes", 60)


def test_scancel_leaves_no_process_of_ours_and_touches_no_other(slurm_cluster: Lab) -> None:
    stranger = "RLTUI_ATTEMPT=another setsid bash -c 'sleep 600 & exec -a raylet sleep 600' >/dev/null 2>&1 &"
    slurm_cluster.exec("node2", ["bash", "-c", stranger])
    attempt = SlurmAttempt(slurm_cluster, tiny(), "wait")
    attempt.submit()
    attempt.wait(lambda: attempt.text("ready"), "the trainer's start")
    assert {line.split(":")[0] for line in attempt.processes()} == {"node1", "node2", "node3"}
    slurm_cluster.exec("login", ["scancel", attempt.job_id])
    assert attempt.end()["outcome"] == "cancelled"
    attempt.wait(lambda: not attempt.processes(), "the end of all processes", 60)
    for node in ("node1", "node2", "node3"):
        listing = ["sh", "-c", "ls -d /tmp/rltui-* 2>/dev/null"]
        attempt.wait(
            lambda: not slurm_cluster.exec(node, listing, check=False).stdout,  # noqa: B023 (used before the next)
            f"the removal of Ray's folder on {node}",
            60,
        )
    others = slurm_cluster.exec("node2", [sys.executable, "-c", FIND, "another"], user="root").stdout
    assert len(others.splitlines()) == 2


@pytest.mark.timeout(1200)
def test_a_requeued_job_goes_on_in_a_folder_of_its_own_and_the_warning_makes_it_save(slurm_cluster: Lab) -> None:
    attempt = SlurmAttempt(slurm_cluster, tiny("train.steps=100000", "roles.learner.gpus=[1]", nodes=1))
    attempt.submit()
    attempt.wait(lambda: (attempt.read("stage.json").get("step") or 0) > 10, "the tenth step", 400)
    slurm_cluster.exec("login", ["scontrol", "requeue", attempt.job_id])
    first = attempt.end()
    assert first["restart"] == 0
    assert first["reason"].startswith("requeued"), first
    attempt.wait(
        lambda: (attempt.read("stage.json", 2).get("step") or 0) > 20, "a step of the second start", 400, number=2
    )
    assert attempt.read("end.json") == first
    resumed = [json.loads(line) for line in attempt.text("events.jsonl", 2).splitlines() if "resumed" in line]
    assert resumed[0]["step"] > 0
    assert attempt.read("slurm.json", 2)["restart"] == 1
    before = len(attempt.text("metrics.jsonl", 2).splitlines())
    slurm_cluster.exec("login", ["scancel", "--batch", "--signal=USR2", attempt.job_id])
    second = attempt.end(2)
    saved = max(
        int(path.parent.name[5:])
        for path in Path(str(slurm_cluster.folder) + attempt.run_path).glob("checkpoints/*/COMPLETE")
    )
    assert second["reason"] == f"asked to save and end by SIGUSR2; its newest checkpoint is of step {saved}"
    assert saved >= resumed[0]["step"] + before
    assert second["exit_code"] == 143
    attempt.wait(lambda: not attempt.processes(["node1"]), "the end of all processes", 60)


@pytest.mark.timeout(600)
def test_a_start_on_the_node_that_the_job_lost_before_makes_room_for_one_elsewhere(slurm_cluster: Lab) -> None:
    attempt = SlurmAttempt(slurm_cluster, tiny("roles.learner.gpus=[1]", "slurm.exclude=[node3]", nodes=1), "wait")
    attempt.submit()
    attempt.wait(lambda: attempt.text("ready"), "the trainer's start")
    slurm_cluster.crash("node1")
    attempt.wait(lambda: attempt.state() == "PENDING", "the requeue", 90)
    slurm_cluster.exec("login", ["scontrol", "hold", attempt.job_id])
    slurm_cluster.boot("node1")
    idle = ["sinfo", "-h", "-n", "node1", "-p", "gpu", "-o", "%T"]
    attempt.wait(lambda: slurm_cluster.exec("login", idle).stdout.strip() == "idle", "the node's return", 60)
    slurm_cluster.exec("login", ["scontrol", "release", attempt.job_id])
    attempt.wait(lambda: attempt.text("ready", 3), "the trainer's start elsewhere", 90)
    assert list(attempt.end(1)["bad_nodes"]) == ["node1"]
    second = attempt.end(2)
    assert (second["outcome"], second["kept_away"], attempt.read("slurm.json", 2)["nodes"]) == (
        *("lost", ["node1"]), ["node1"],
    )  # fmt: skip
    assert attempt.read("slurm.json", 3)["nodes"] == ["node2"]
    excluded = ["squeue", "-h", "-j", attempt.job_id, "-o", "%x"]
    assert slurm_cluster.exec("login", excluded).stdout.strip() == "node[1,3]"
    slurm_cluster.exec("login", ["scancel", attempt.job_id])
    attempt.wait(lambda: not attempt.processes(), "the end of all processes", 60)
