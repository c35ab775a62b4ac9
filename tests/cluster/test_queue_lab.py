"""Everybody's queue on a real Slurm: who holds which GPUs, whose place is which, names that do no harm."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from slurm_support import LabTransport

from rltui.cluster.profile import Profile
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.service.cluster_queue import QueueReader
from rltui.service.context import Context
from rltui.service.review import outlook
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from lab import Lab

FOUR_CARDS = "open-instruct/grpo-1.5b-1x4-generation"
EVIL = "\x1b]0;owned\x07\x1b[31mevil|^x^\n12 RUNNING"


def sbatch(lab: Lab, user: str, *words: str) -> str:
    argv = ["sbatch", "--parsable", "--output=/dev/null", *words, "--wrap=sleep 600"]
    return lab.exec("login", argv, user=user).stdout.strip()


def fill(lab: Lab) -> dict[str, str]:
    """bob holds node1 and waits for all; alice waits behind him, once by a debug job that has room."""
    ids = {"held": sbatch(lab, "bob", "--nodelist=node1", "--gpus-per-node=4", "--time=30", f"--job-name={EVIL}")}
    wait_for(lab, ids["held"])
    ids["first"] = sbatch(lab, "bob", "--nodes=3", "--gpus-per-node=h100:4", "--time=60")
    ids["mine"] = sbatch(
        lab, "alice", "--nodes=3", "--gres=gpu:h100:4", "--exclusive", "--time=60", "--job-name=my-run"
    )
    ids["on_hold"] = sbatch(lab, "alice", "--hold", "--gpus=2", "--time=60")
    return ids


def wait_for(lab: Lab, job_id: str) -> None:
    state = ["squeue", "-h", "-o", "%T", "-j", job_id]
    eventually(lambda: "RUNNING" in lab.exec("login", state).stdout, f"the start of job {job_id}")


def test_who_holds_what_and_whose_place_is_which(slurm_cluster: Lab) -> None:
    ids = fill(slurm_cluster)
    cluster = SlurmCluster(Profile(name="lab", scheduler="slurm", host="login"), LabTransport(slurm_cluster))
    reader = QueueReader(cluster)
    try:
        found = reader.look()
        rpcs = cluster.slurm.runner.rpcs_per_minute()
        assert reader.look() is found, "the next look is not due"
        assert cluster.slurm.runner.rpcs_per_minute() == rpcs <= 6
        ahead = outlook(Context(cluster=cluster), FOUR_CARDS, ("slurm.time=00:30:00",), ())
        nowhere = outlook(Context(cluster=cluster), FOUR_CARDS, ("slurm.partition=nowhere",), ())
    finally:
        cluster.close()
    assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d by the cluster's clock on 1 node$", ahead.start), ahead
    assert (ahead.problem, ahead.refusal, nowhere.start) == ("", "", "")
    assert "partition" in nowhere.refusal
    jobs = {job.job_id: job for job in found.jobs}
    held = jobs[ids["held"]]
    assert (held.user, held.is_mine, held.state, held.gpus, held.nodes) == ("bob", False, "running", 4, ("node1",))
    assert held.left_s is not None
    assert 1500 < held.left_s <= 1800
    assert held.name.isprintable()
    assert held.name.startswith("evil")
    assert (jobs[ids["first"]].position, jobs[ids["first"]].gpus) == (1, 12)
    mine = jobs[ids["mine"]]
    assert (mine.is_mine, mine.position, mine.waiting, mine.gpus, mine.name) == (True, 2, 2, 12, "my-run")
    assert (jobs[ids["on_hold"]].position, jobs[ids["on_hold"]].reason) == (None, "JobHeldUser")
    assert (found.gpus_free, found.gpus, found.free_by_type) == (8, 12, {"h100": (8, 12)})
    assert set(found.partitions) >= {"gpu", "debug", "low"}


def test_the_verb_over_ssh(
    slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = fill(slurm_cluster)
    folder = tmp_path / "rltui"
    folder.mkdir()
    (folder / "clusters.yaml").write_text("lab: {scheduler: slurm, transport: paramiko, host: lab}\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("RLTUI_SSH_CONFIG", str(slurm_cluster.ssh_settings().config))
    words = [sys.executable, "-m", "rltui", "queue"]
    assert subprocess.run([*words, "--json", "--mine"], check=False, cwd=tmp_path).returncode == 0
    told: dict[str, Any] = json.loads(capfd.readouterr().out)
    assert {job["job_id"] for job in told["queue"]["jobs"]} == {ids["mine"], ids["on_hold"]}
    assert subprocess.run([*words, "lab", "--partition", "gpu"], check=False, cwd=tmp_path).returncode == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == f"lab: 8 of 12 GPUs free, 3 waiting, 1 running with 4 GPUs, you are #2 ({ids['mine']})"
    assert any(line.split()[:4] == ["#2", ids["mine"], "you", "12"] for line in lines)
    assert "\x1b" not in "".join(lines)
    with slurm_cluster.controller_away():
        assert subprocess.run(words, check=False, cwd=tmp_path).returncode == 3
    assert "Unable to contact slurm controller" in capfd.readouterr().err
