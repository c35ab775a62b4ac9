"""Shells where runs are: which command, on which node, and for whose jobs only."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_slurm import UUID, ScriptedSlurm

from rltui.cli.main import main
from rltui.cluster.hosts import LocalCluster
from rltui.cluster.jobs import AllocationShare
from rltui.cluster.profile import Profile
from rltui.cluster.slurm.client import SlurmClient
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.runs.journal import Journal, actions
from rltui.service.node_shell import NodeShell, node_shell
from rltui.watch.snapshots import RunSummary

ROW = {"id": "7", "state": "RUNNING", "nodes": "node[1-2]", "comment": f"rltui:{UUID}"}
STEP = (
    "srun --jobid=7 --overlap --pty --nodes=1 --ntasks=1 --nodelist=node2 --cpu-bind=none --mem=0 --mpi=none "
    "--immediate=30 --chdir=/runs/a-1 bash -l"
)


def run_of(**keys: Any) -> RunSummary:
    given = {"run_id": "a-1", "name": "a", "algorithm": "grpo", "cluster": "lab", "state": "running", "attempt": 1}
    given |= {"created_at": 0.0, "nodes": 2, "gpus_per_node": 8, "gpu": "H100", "path": "/runs/a-1", "job_id": "7"}
    return RunSummary(**{**given, **keys})


class Scripted(ScriptedSlurm):
    """The same with the files of an attempt."""

    def collect(self, folder: str, names: list[str]) -> list[Any]:
        return [SimpleNamespace(path=rundir.JOB, text=json.dumps({"uuid": UUID}))]


def context_of(tmp_path: Path, host: str = "", row: dict[str, str] | None = None) -> Any:
    cluster = SlurmCluster(Profile(name="lab", host=host, user="alice" if host else ""), SimpleNamespace())  # type: ignore[arg-type]
    slurm = Scripted()
    slurm.queue = [row or ROW]
    cluster.client, cluster.slurm = slurm, SlurmClient(slurm)  # type: ignore[assignment, arg-type]
    return SimpleNamespace(cluster=cluster, journal=Journal(tmp_path), require_own=lambda _: None)


def test_a_shell_is_a_step_that_overlaps_on_a_node_of_the_job(tmp_path: Path) -> None:
    context = context_of(tmp_path)
    assert " ".join(node_shell(context, run_of(), "node2").argv) == STEP
    assert "--nodelist=node1" in node_shell(context, run_of()).argv
    share = AllocationShare(job_id="7", nodes=("node2",))
    assert "--nodelist=node2" in node_shell(context, run_of(share=share)).argv


def test_elsewhere_it_goes_through_the_users_own_ssh(tmp_path: Path) -> None:
    argv = node_shell(context_of(tmp_path, host="login"), run_of(), "node2").argv
    assert argv[1] == "-t"
    assert argv[-5:] == ["-o", "RemoteCommand=none", "--", "login", STEP]
    assert "alice" in argv


@pytest.mark.parametrize(
    ("run", "node", "row", "words"),
    [
        ({}, "node3", {}, "has no node 'node3'"),
        ({}, "", {"uid": "2002", "user": "bob"}, "has no node now"),
        ({}, "", {"comment": "rltui:of-another-run"}, "has no node now"),
        ({}, "", {"state": "COMPLETED"}, "has no node now"),
        ({"state": "queued"}, "", {}, "has no node now"),
        ({"state": "finished"}, "", {}, "has no node now"),
    ],
    ids=["no such node", "somebody's", "id given out again", "over", "waits", "ended"],
)
def test_only_where_a_job_of_the_run_is(
    tmp_path: Path, run: dict[str, Any], node: str, row: dict[str, str], words: str
) -> None:
    with pytest.raises(RltuiError, match=words):
        node_shell(context_of(tmp_path, row={**ROW, **row}), run_of(**run), node)


def test_on_this_machine_it_is_a_shell_in_the_folder_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (shell := tmp_path / "shell").write_text("#!/bin/sh\npwd\necho ${SLURM_JOB_ID-none}\nexit 7\n")
    shell.chmod(0o700)
    monkeypatch.setenv("SHELL", str(shell))
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("SLURM_JOB_ID", "9")
    (tmp_path / "runs").mkdir(mode=0o700)
    journal = Journal(tmp_path / "state")
    context: Any = SimpleNamespace(cluster=LocalCluster(), journal=journal, require_own=lambda _: None)
    assert node_shell(context, run_of(cluster="local", path=str(tmp_path))).run() == 7
    said = capfd.readouterr()
    assert said.out.splitlines() == [str(tmp_path), "none"]
    assert f"$ cd {tmp_path} && {shell}" in said.err
    [told] = actions(journal.entries())
    assert (told.action, told.outcome, told.words) == ("shell", "done", (f"cd {tmp_path} && {shell}",))


def test_a_command_that_is_not_there_is_said_and_noted(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    problem = NodeShell(run_of(), journal, "node1", ["no-such-program", "-x"]).run_beside()
    assert "no-such-program cannot be started" in problem
    assert [entry["phase"] for entry in journal.entries()] == ["intent", "failed"]


def test_without_a_terminal_there_is_no_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", "no-such-run"]) == 2
    assert "no-such-run" in capsys.readouterr().err
