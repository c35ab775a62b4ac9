"""Runs in somebody's salloc on a real Slurm: side by side, one after the other, and never more than their steps."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from slurm_support import SLEEPS, CutTransport, LabTransport, Link, context_on, small_layout
from test_script_runs import PROFILE as OVER_SSH
from test_script_runs import TALKERS, User
from test_submit_faults import Measured, look_again
from verbs import rltui_at_login
from workstation import python_that_forks

from rltui.errors import ClusterError
from rltui.runs.journal import LOOK_UP_FOR_S
from rltui.service.allocations import share_of
from rltui.service.submit import submit_new
from waiting import DEADLINE_S, eventually, slowness

if TYPE_CHECKING:
    from lab import Lab

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

pytestmark = [pytest.mark.trainers]

ROOT = Path(__file__).parents[2]
PROFILE = """
lab: {{scheduler: slurm, partition: gpu, gres: gpu:h100, gpus_per_node: 4, run_root: ~/runs, python: {}}}
"""
SCRIPT = f"""#!/bin/bash
env | grep ^SLURM_ > $PWD/seen-$1
shift
PYTHONPATH={TALKERS} {sys.executable} -m verl.trainer.main_ppo trainer.default_local_dir=$PWD/checkpoints \\
    trainer.n_gpus_per_node=2 trainer.resume_mode=disable trainer.total_training_steps=100000 "$@"
"""
ROOM = ["--nodes=2", "--cpus-per-task=8", "--gpus-per-node=h100:2", "--time=20"]


class Alice:
    """A user at the login node."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.home = Path(lab.folder, "home", "alice")
        lab.exec("login", ["mkdir", "-p", ".config/rltui"])
        lab.exec("login", ["tee", ".config/rltui/clusters.yaml"], input=PROFILE.format(python_that_forks(lab)))
        lab.exec("login", ["tee", "run.sh"], input=SCRIPT)
        self.shells: list[subprocess.Popen[bytes]] = []

    def rltui(self, *words: str, expect: int = 0) -> str:
        done = rltui_at_login(self.lab, words, codes=(expect,))
        return done.stdout if "--json" in words else done.stdout + done.stderr

    def argv(self, *words: str) -> list[str]:
        return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "rltui", *words]

    def salloc(self, *words: str) -> str:
        """The id of an allocation whose shell runs ``words`` and stays."""
        command = " ".join([*words, ">launched 2>&1;" if words else "", "sleep 600"])
        argv = self.lab.command("login", ["salloc", *ROOM, "bash", "-c", command])
        self.shells.append(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE))
        return str(eventually(lambda: self.squeue("-h", "-t", "R", "-o", "%A"), "the allocation")).split()[-1]

    def squeue(self, *words: str) -> str:
        return self.lab.exec("login", ["squeue", "--me", *words]).stdout.strip()

    def runs(self) -> dict[str, dict[str, Any]]:
        return {run["name"]: run for run in json.loads(self.rltui("ps", "--cluster", "lab", "--json"))["runs"]}

    def read(self, name: str, file: str) -> dict[str, Any]:
        """A file of the newest attempt of the run of this name: read on the spot, as ``ps`` costs more than a step."""
        found = sorted(self.home.glob(f"runs/{name}-*/attempts/*"))
        path = found[-1] / file if found else self.home / "none"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def said_by_srun(self, name: str) -> str:
        """What srun and its shell wrote of the newest attempt of the run of this name, and the processes that are."""
        logs = sorted(self.home.glob(f"runs/{name}-*/attempts/*/slurm-*.out"))
        there = self.lab.exec("login", ["ps", "-o", "pid,ppid,stat,args", "-u", "alice"], check=False).stdout
        return f"{logs[-1].read_text() if logs else 'no log'}\n{there}"

    def step(self, name: str) -> int:
        assert not self.read(name, "end.json"), name
        return self.read(name, "stage.json").get("step") or 0

    def at_step(self, name: str, step: int = 1) -> dict[str, Any]:
        def listed() -> dict[str, Any] | None:
            """The run once Slurm's list has its step, too: a list may lack one that has just begun."""
            run = self.runs().get(name)
            return run if run is not None and run["state"] == "running" and run["job"] and run["job"]["nodes"] else None

        eventually(lambda: self.step(name) >= step, f"step {step} of {name}")
        return dict(eventually(listed, f"{name} among the running", saw=self.runs))

    def ended(self, name: str) -> dict[str, Any]:
        return dict(eventually(lambda: (run := self.runs()[name])["end"] and run, f"the end of {name}"))


@pytest.fixture
def alice(slurm_cluster: Lab) -> Iterator[Alice]:
    made = Alice(slurm_cluster)
    yield made
    for shell in made.shells:
        shell.kill()
        shell.wait()


def launch(alice: Alice, name: str, job: str, *words: str, expect: int = 0) -> str:
    gpus = ["--gpus-per-node", "2"] * ("--gpus-per-node" not in words)
    arguments = ["--", name] * ("--" not in words)
    return alice.rltui("launch", "run.sh", "--jobid", job, "--name", name, *gpus, *words, *arguments, expect=expect)


def test_runs_share_an_allocation_that_stays_when_they_end(alice: Alice) -> None:
    own = alice.argv("launch", "run.sh", "--here", "--name", "first", "--gpus-per-node", "2", "--", "first")
    job = alice.salloc(*own)
    first = alice.at_step("first")
    eventually(lambda: f"in job {job} on node1" in (alice.home / "launched").read_text(), "what the launch says")
    assert (first["job_id"], first["job"]["nodes"], first["state"]) == (job, ["node1"], "running")
    told = dict(line.split("=", 1) for line in (alice.home / "seen-first").read_text().splitlines())
    assert (told["SLURM_JOB_NODELIST"], told["SLURM_NNODES"], told["SLURM_JOB_ID"]) == ("node1", "1", job)

    said = launch(alice, "large", job, "--nodes", "3", expect=1)
    assert f"3 nodes are asked for; job {job} has 2" in said
    assert "has 2" in launch(alice, "wide", job, "--gpus-per-node", "4", expect=1)
    assert f"1 are free: node1 is {first['run_id']}'s" in launch(alice, "both", job, "--nodes", "2", expect=1)
    assert alice.runs().keys() == {"first"}

    launch(alice, "second", job)
    second = alice.at_step("second")
    assert second["job"]["nodes"] == ["node2"]
    shown = alice.rltui("show", second["run_id"])
    assert f"job {job}  RUNNING on node2" in shown
    assert "stays when the run ends" in shown
    for verb in ("hold", "requeue", "update"):
        words = ["--time", "00:10:00"] if verb == "update" else ["--yes"] if verb == "requeue" else []
        assert "left as it is" in alice.rltui(verb, second["run_id"], *words, expect=1)
    assert "cannot go on by itself" in alice.rltui("auto", second["run_id"], expect=1)

    assert "which stays" in alice.rltui("cancel", first["run_id"], expect=2)
    alice.rltui("cancel", first["run_id"], "--yes")
    assert alice.ended("first")["end"]["reason"].startswith("cancelled by the user")
    assert alice.squeue("-h", "-o", "%A %T") == f"{job} RUNNING"
    left = ["pgrep", "-u", "alice", "-f", "rltui|main_ppo"]
    eventually(lambda: not alice.lab.exec("node1", left, check=False).stdout, "no process of the first")

    # nothing of the run hangs on srun, but the second of its processes ends the step where it sees the first one die
    killed = alice.lab.exec("login", ["sh", "-c", "pkill -STOP srun; pkill -KILL srun"], check=False)
    assert not killed.returncode, alice.said_by_srun("second")
    alice.at_step("second", alice.step("second") + 3)

    alice.rltui("resubmit", first["run_id"])
    again = alice.at_step("first")
    assert (again["attempt"], again["job_id"], again["job"]["nodes"]) == (2, job, ["node1"])
    for run in (first, second):
        alice.rltui("cancel", run["run_id"], "--yes")
    alice.ended("first"), alice.ended("second")

    launch(alice, "both", job, "--nodes", "2", "--", "both", "trainer.nnodes=2")
    both = alice.at_step("both")
    assert both["job"]["nodes"] == ["node1", "node2"]
    alice.lab.exec("login", ["scancel", job])
    end = alice.ended("both")["end"]
    assert (end["outcome"], "its allocation" in end["reason"]) == ("cancelled", True), end
    eventually(lambda: not alice.squeue("-h"), "the end of the allocation")
    said = alice.rltui("resubmit", first["run_id"], expect=2)
    assert f"job {job}, the allocation that it ran in, has ended: this is submitted as a job of its own" in said
    assert "has ended (CANCELLED)" in launch(alice, "late", job, expect=1)
    alice.rltui("resubmit", first["run_id"], "--yes")
    assert alice.at_step("first")["job_id"] != job
    alice.rltui("cancel", first["run_id"], "--yes")
    attempts = json.loads(alice.rltui("history", first["run_id"], "--json"))["history"]["attempts"]
    assert [one["outcome"] for one in attempts[:2]] == ["cancelled", "cancelled"]


def test_of_two_launches_at_once_none_takes_the_others_nodes(alice: Alice) -> None:
    job = alice.salloc()
    words = ["launch", "run.sh", "--jobid", job, "--gpus-per-node", "2", "--nodes", "2", "--name"]
    argvs = [alice.argv(*words, name, "--", name, "trainer.nnodes=2") for name in ("one", "two")]
    started = [
        subprocess.Popen(alice.lab.command("login", argv), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for argv in argvs
    ]
    said = [process.communicate(timeout=DEADLINE_S)[1] for process in started]
    refused = [words for words, process in zip(said, started, strict=True) if process.returncode]
    assert refused
    assert all("Another launch was faster" in words or "are free" in words for words in refused), said
    assert len(alice.runs()) + len(refused) == 2
    assert all(run["end"] is None for run in alice.runs().values())


def test_a_step_that_was_killed_is_said_to_be_lost_and_leaves_its_nodes(alice: Alice) -> None:
    job = alice.salloc()
    launch(alice, "killed", job)
    alice.at_step("killed")
    alice.lab.exec("login", ["scancel", f"{job}.0"])
    end = alice.ended("killed")["end"]
    assert (end["outcome"], end["reason"]) == ("lost", f"its step in job {job} ended without a word")
    launch(alice, "next", job)
    assert alice.at_step("next")["job"]["nodes"] == ["node1"]


def test_a_link_that_breaks_leaves_one_step_or_none(alice: Alice, slurm_cluster: Lab, tmp_path: Path) -> None:
    job, link, layout = alice.salloc(), Link(), small_layout()
    raised, found = [], []

    def tried(name: str) -> Measured:
        journal, cut = Measured(tmp_path, link), CutTransport(LabTransport(slurm_cluster), link)
        with contextlib.closing(context_on(cut, tmp_path, SLEEPS, journal)) as ours:
            before = link.passed["from"]
            try:
                submit_new(ours, structs.replace(layout, name=name), share=share_of(ours, job, layout))
            except ClusterError:
                raised.append(name)
            journal.passed = {phase: {"from": passed["from"] - before} for phase, passed in journal.passed.items()}
        return journal

    def steps() -> list[str]:
        return alice.squeue("--steps", "-h", "-o", "%i %j").splitlines()

    def settled(context: Context) -> tuple[list[RunSummary]] | None:
        """The run that is there; what the cut one had asked for may still be on its way."""
        look_again(context, LOOK_UP_FOR_S + 1)
        runs = [run for run in context.runs().runs if run.end is None and run.job_id == job]
        return (runs,) if len(runs) == len([step for step in steps() if " cut-" in step]) <= 1 else None

    def made_as_new() -> None:
        for step in steps():
            slurm_cluster.exec("login", ["scancel", step.split()[0]], check=False)
        eventually(lambda: not any("-" in step for step in steps()), "free nodes")
        # Slurm lists a step no more while its processes still write.
        emptied = ["sh", "-c", "rm -rf runs/[a-z]*"]
        eventually(lambda: slurm_cluster.exec("login", emptied, check=False).returncode == 0, "an empty run root")

    for _ in range(2):  # the first one also uploads the code
        passed = tried("measured").passed
        made_as_new()
    first, last = passed["submit submitting"]["from"], passed["submit done"]["from"]
    for part in (0.02, 0.3, 0.6, 0.9):
        link.cut_after(int(first + part * (last - first)), "from", mends_itself=False)
        tried("cut")
        link.mend()
        with contextlib.closing(context_on(LabTransport(slurm_cluster), tmp_path, SLEEPS)) as context:
            found += eventually(partial(settled, context), "a run with its step, or neither", saw=steps)[0]
        made_as_new()
    print(f"{link.cuts} cuts, {len(raised)} errors, {len(found)} runs")
    assert link.cuts == 4
    assert len(raised) == 4
    assert found


def test_what_cannot_be_run_in_is_refused_before_anything_is_there(alice: Alice) -> None:
    bobs = alice.lab.exec("login", ["sbatch", "--parsable", "--wrap=sleep 600"], user="bob").stdout.strip()
    pending = alice.lab.exec("login", ["sbatch", "--parsable", "--hold", "--wrap=sleep 600"]).stdout.strip()
    try:
        assert "belongs to bob" in launch(alice, "x", bobs, expect=1)
        assert "does not run yet" in launch(alice, "x", pending, expect=1)
        assert "knows no job" in launch(alice, "x", "99999", expect=2)
        assert "SLURM_JOB_ID is not set" in alice.rltui("launch", "run.sh", "--here", "--gpus-per-node", "1", expect=2)
        assert "without --sweep" in launch(alice, "x", pending, "--auto", expect=2)
        assert alice.runs() == {}
    finally:
        alice.lab.exec("login", ["scancel", bobs], user="bob")


def test_an_allocation_is_a_place_over_ssh_too(alice: Alice, slurm_cluster: Lab, tmp_path: Path) -> None:
    user = User(tmp_path, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(OVER_SSH)
    (tmp_path / "run.sh").write_text(SCRIPT)
    job = alice.salloc()
    words = ("launch", "run.sh", "--cluster", "lab", "--jobid", job, "--gpus-per-node", "2", "--", "seen")
    assert "1 node with 2 GPUs, by" in user.rltui(*words[:-2], "--dry-run", *words[-2:])
    user.rltui(*words)

    def listed() -> dict[str, Any] | None:
        """The run at its first step, once Slurm's list has its step, too."""
        found = user.only_run("--cluster", "lab")
        return found if found["stage"]["step"] and found["job"] and found["job"]["nodes"] else None

    run = eventually(listed, "a step", saw=lambda: user.only_run("--cluster", "lab"))
    assert (run["job_id"], run["job"]["nodes"]) == (job, ["node1"])
    user.rltui("cancel", run["run_id"], "--yes")
    eventually(lambda: user.only_run("--cluster", "lab")["end"], "the end")
    assert alice.squeue("-h", "-o", "%A %T") == f"{job} RUNNING"


@pytest.mark.slow
def test_a_layout_trains_in_an_allocation_and_a_run_ends_before_its_time_limit(alice: Alice) -> None:
    job = alice.salloc()
    settings = ["train.steps=100000", "checkpoint.every=0", "tracking.wandb=disabled", "roles.learner.gpus=[1]"]
    alice.rltui("launch", "local/grpo-tiny", *settings, "hardware.cpus_per_node=4", "--jobid", job)
    run = alice.at_step("grpo-tiny", 2)
    alice.rltui("cancel", run["run_id"], "--yes")
    assert "its newest checkpoint is of step" in alice.ended("grpo-tiny")["end"]["reason"]

    # it is told to end a minute before the limit, and has that minute more where this machine takes long to start it
    left_s = round(80 * slowness())
    alice.lab.exec("login", ["scontrol", "update", f"JobId={job}", f"EndTime=now+{left_s}"])
    launch(alice, "limited", job)
    end = eventually(lambda: alice.read("limited", "end.json"), "its end")
    assert end["outcome"] == "time-limit", end
    assert alice.squeue("-h", "-o", "%A %T") == f"{job} RUNNING"
