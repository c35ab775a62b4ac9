"""Runs in an allocation that is there: what it has, which nodes a run gets, and what its end means for the run."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rltui.cli.main import main
from rltui.cluster.cluster import Attempt
from rltui.cluster.jobs import AllocationShare, JobSnapshot
from rltui.cluster.profile import Profile
from rltui.cluster.slurm.steps import Allocation, read_allocations, read_steps, start_argv
from rltui.errors import RltuiError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.onnode import allocation_step, rundir
from rltui.onnode.allocation_step import CancelFile, end_of_allocation
from rltui.runs.script import render_script
from rltui.service.allocations import chosen_nodes, held_nodes
from rltui.watch.jobs import job_facts, last_word, of_share
from rltui.watch.snapshots import EndSnapshot, RunSummary

# as Slurm 22.05 says it, with nodes that have unlike parts of the job
TOLD = (
    "JobId=7 JobName=interactive UserId=alice(2001) GroupId=alice(2001) JobState=RUNNING Reason=None Requeue=1 "
    "Restarts=2 SubmitTime=1795445782 StartTime=1795445783 EndTime=1795449383 TimeLimit=01:00:00 Partition=gpu "
    "NodeList=node[1-3] BatchHost=node1 NumNodes=3 NumCPUs=20 TRES=cpu=20,mem=16000M,node=3,gres/gpu=5 "
    "JOB_GRES=gpu:h100:5   Nodes=node[1-2] CPU_IDs=0-5,8-9 Mem=8000 GRES=gpu:h100:2(IDX:0-1)   Nodes=node3 "
    "CPU_IDs=0-3 Mem=4000 GRES=gpu:h100:1(IDX:0) MinCPUsNode=4 Command=(null) WorkDir=/home/alice\n"
)
RUN = RunSummary(
    run_id="a-1", name="a", algorithm="verl", cluster="lab", state="running", attempt=1, created_at=0.0,
    nodes=1, gpus_per_node=1, gpu="H100", job_id="7", share=AllocationShare(job_id="7", nodes=("node1",)),
)  # fmt: skip
JOB = JobSnapshot(
    job_id="7", state="running", nodes=("node1", "node2"), started_at=100.0, time_limit_s=3600.0, restarts=2
)
SHARE = AllocationShare(job_id="7", nodes=("node2",), restarts=2)


def of(*words: str, preset: str = "local/grpo-tiny") -> Any:
    return load_layout(resolve(preset), ["hardware.cpus_per_node=4", *words]).layout


def allocation() -> Allocation:
    return read_allocations(TOLD)[0]


def test_what_an_allocation_has_is_what_its_poorest_node_has() -> None:
    found = allocation()
    assert (found.nodes, found.cpus, found.gpus) == (("node1", "node2", "node3"), 4, 1)
    assert (found.uid, found.end_at, found.job.restarts, found.job.state) == ("2001", 1795449383.0, 2, "running")


def test_without_details_of_nodes_all_of_them_have_the_same() -> None:
    (found,) = read_allocations(TOLD.partition("   Nodes=")[0].replace("gres/gpu=5", "gres/gpu=6"))
    assert (found.cpus, found.gpus) == (6, 2)
    assert read_allocations("slurm_load_jobs error: Invalid job id specified\n") == ()


def test_a_run_gets_the_first_nodes_that_nobody_has() -> None:
    assert chosen_nodes(allocation(), of(), {}) == ("node1",)
    assert chosen_nodes(allocation(), of(), {"node1": "a-1"}) == ("node2",)
    assert chosen_nodes(allocation(), of("slurm.exclude=[node1]"), {"node2": "a-1"}) == ("node3",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("hardware.nodes=4",), "4 nodes are asked for; job 7 has 3"),
        (("hardware.more={b: {roles: [rollout], nodes: 1, gpus_per_node: 1}}",), "has nodes of several kinds"),
        (("hardware.cpus_per_node=8",), "8 CPUs a node are asked for; job 7 has 4"),
        (("hardware.gpu=H100-SXM-80GB", "hardware.gpus_per_node=2"), "2 GPUs a node are asked for; job 7 has 1"),
        (("hardware.nodes=2", "slurm.exclude=[node3]"), "1 are free: node1 is a-1's, node3 is excluded"),
    ],
)
def test_too_much_is_refused_with_what_there_is(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(RltuiError, match=said):
        chosen_nodes(allocation(), of(*words), {"node1": "a-1"})


def test_nodes_are_held_by_runs_that_have_not_ended_in_this_allocation() -> None:
    ended = replace(RUN, run_id="b-2", end=EndSnapshot(outcome="finished", reason="", at=1.0))
    elsewhere = replace(RUN, run_id="c-3", share=AllocationShare(job_id="8", nodes=("node1",)))
    own_job = replace(RUN, run_id="d-4", share=None)
    assert held_nodes([RUN, ended, elsewhere, own_job], "7") == {"node1": "a-1"}
    assert held_nodes([RUN], "7", besides="a-1") == {}


def test_the_allocation_of_a_run_is_shown_as_far_as_it_is_the_runs() -> None:
    job = of_share(JOB, SHARE, 700.0)
    assert (job.nodes, job.node_count, job.restarts) == (("node2",), 1, 0)
    assert (job.started_at, job.time_limit_s) == (700.0, 3000.0)  # it ends when the allocation does
    assert job_facts(None, None, job, 0).state == "starting"


@pytest.mark.parametrize(
    ("change", "outcome", "word"),
    [
        ({"state": "completed"}, "cancelled", "allocation that it ran in ended"),
        ({"restarts": 3}, "cancelled", "without this run"),
        ({"state": "pending"}, "cancelled", "without this run"),
        ({"state": "failed", "word": "TIMEOUT"}, "failed", "time limit"),
        ({"state": "cancelled", "word": "CANCELLED"}, "cancelled", "was cancelled"),
    ],
)
def test_the_end_of_the_allocation_is_the_runs(change: dict[str, Any], outcome: str, word: str) -> None:
    end = last_word(of_share(replace(JOB, **change), SHARE, None))
    assert end.outcome == outcome
    assert word in end.reason


@pytest.mark.parametrize(
    ("left_s", "outcome"), [(5.0, "time-limit"), (-20.0, "time-limit"), (900.0, "cancelled"), (None, "cancelled")]
)
def test_a_step_that_slurm_ends_says_why_by_the_clock(left_s: float | None, outcome: str) -> None:
    found, reason = end_of_allocation(7, None if left_s is None else time.time() + left_s)
    assert found == outcome
    assert "job 7, its allocation" in reason


def test_a_run_is_asked_to_end_by_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation_step, "LOOK_S", 0.0)
    asked = CancelFile(str(tmp_path))
    assert not asked.is_there()
    (tmp_path / rundir.CANCEL).touch()
    assert asked.is_there()


def script(tmp_path: Path, **changes: Any) -> str:
    attempt = Attempt(run_id="r", number=1, uuid="0" * 32, path=str(tmp_path), code="/code")
    share = replace(AllocationShare(job_id="7", nodes=("node2", "node3"), cpus=8), **changes)
    return render_script(of("hardware.nodes=2"), Profile(name="lab", python="/usr/bin/env"), attempt, share)


def test_the_script_of_a_step_sees_its_own_nodes_and_asks_slurm_for_nothing(tmp_path: Path) -> None:
    text = script(tmp_path)
    assert "#SBATCH" not in text
    done = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    # what is left of the driver's command prints the variables that it would see
    text = text.rpartition('exec "$python"')[0] + 'exec "$python"\n'
    given = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "SLURM_NODELIST": "node[1-3]", "SLURM_RESTART_COUNT": "1"}
    (tmp_path / "job.sbatch").write_text(text)
    run = ["bash", str(tmp_path / "job.sbatch")]
    subprocess.run(run, check=True, env=given)
    told = dict(line.split("=", 1) for line in (tmp_path / "slurm-7.out").read_text().splitlines() if "=" in line)
    assert (told["SLURM_JOB_NODELIST"], told["SLURM_NODELIST"]) == ("node2,node3", "node2,node3")
    assert (told["SLURM_NNODES"], told["SLURM_JOB_CPUS_PER_NODE"], told["SLURM_NTASKS"]) == ("2", "8(x2)", "2")
    assert "SLURM_RESTART_COUNT" not in told
    (lock,) = tmp_path.glob(".lock-*")
    assert (lock / "job").read_text() == "7\n"
    # a second copy of the same step
    subprocess.run(run, check=True, env=given)
    assert "nothing to do" in (tmp_path / "slurm-7.out").read_text()


@pytest.mark.parametrize(("left_s", "lead_s"), [(0.0, 600), (10_000.0, 600), (1000.0, 200), (100.0, 60)])
def test_it_saves_in_time_for_the_allocations_end(tmp_path: Path, left_s: float, lead_s: int) -> None:
    assert script(tmp_path, left_s=left_s).rstrip().endswith(f"--lead-s {lead_s}")


def start(folder: Path, srun: str, squeue: str, sleep: str = "") -> list[str]:
    """What is in the log once all that was started has ended; two scripts stand in for Slurm's tools."""
    for name, text in (("srun", srun), ("squeue", squeue), ("sleep", sleep)):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    argv = start_argv(str(folder), str(folder / "log"), "r-0000", "7", "node1", 4, ["bash", "job.sbatch"])
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_NNODES": "9", "SLURM_CONF": "/etc/slurm.conf"}
    ours, theirs = os.pipe()
    with subprocess.Popen(argv, env=environment, pass_fds=(theirs,)) as process, os.fdopen(ours, "rb") as until:
        os.close(theirs)
        assert process.wait(60) == 0
        assert until.read() == b""
    return (folder / "log").read_text().splitlines()


def test_srun_sees_nothing_of_the_shell_that_it_is_started_in(tmp_path: Path) -> None:
    said = start(tmp_path, 'echo "$@"; env | grep ^SLURM', "exit 1")
    assert said[1:] == ["SLURM_CONF=/etc/slurm.conf", "rltui: srun ended with code 0"]
    assert said[0].startswith("--overlap --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist=node1 --cpus-per-task=4 ")
    assert said[0].endswith(" --jobid=7 --job-name=r-0000 --immediate=30 bash job.sbatch")


def test_steps_are_found_by_their_names() -> None:
    assert read_steps("7.0^x^r-00000000^x^\n7.1^x^python^x^\n", "^x^") == {"7.0": "r-00000000", "7.1": "python"}


@pytest.mark.parametrize(
    ("lists", "has_started", "is_lost"),
    [("echo other", True, True), ("echo other", False, False), ("echo r-0000", True, False), ("exit 1", True, False)],
)
def test_a_step_is_said_to_be_lost_only_where_slurm_has_it_no_more(
    tmp_path: Path, lists: str, has_started: bool, is_lost: bool
) -> None:
    if has_started:
        (tmp_path / "slurm.json").write_text("{}")
    start(tmp_path, "exit 137", lists)
    end = tmp_path / "end.json"
    assert json.loads(end.read_text())["outcome"] == "lost" if is_lost else not end.exists()


def test_a_step_that_still_writes_is_not_lost_whatever_slurm_lists(tmp_path: Path) -> None:
    (tmp_path / "slurm.json").write_text("{}")
    start(tmp_path, "exit 137", "echo other", f"touch -d tomorrow {tmp_path}/slurm.json")
    assert not (tmp_path / "end.json").exists()


def test_what_a_run_said_of_its_end_stays(tmp_path: Path) -> None:
    (tmp_path / "slurm.json").write_text("{}")
    start(tmp_path, f"echo mine >{tmp_path}/end.json", "echo other")
    assert (tmp_path / "end.json").read_text() == "mine\n"


@pytest.mark.parametrize("words", [["--auto"], ["--chain", "2"], ["--sweep", "a=1,2"], ["--until-done"]])
def test_what_an_allocation_cannot_do_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["launch", "local/grpo-tiny", "--jobid", "7", *words]) == 2
    assert "goes without --sweep" in capsys.readouterr().err


def test_here_is_nowhere_outside_a_job(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert main(["launch", "local/grpo-tiny", "--here"]) == 2
    assert "SLURM_JOB_ID is not set" in capsys.readouterr().err
