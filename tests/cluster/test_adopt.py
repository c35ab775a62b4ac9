"""Jobs and processes that rltui did not start: adopted, watched, cancelled, released, and never touched otherwise."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from slurm_support import LabTransport, context_on, profile
from test_script_runs import PROFILE, TALKERS, User

from rltui.onnode import processes
from rltui.service.adopt import adopt_job, open_jobs, release_run
from rltui.service.all_clusters import ClusterReader
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

    from rltui.cluster.slurm_cluster import SlurmCluster
    from rltui.watch.snapshots import RunSummary

pytestmark = [pytest.mark.trainers]

VERL = f"""#!/bin/bash
#SBATCH --job-name=my-grpo
export VERL_FILE_LOGGER_PATH=$PWD/verl.jsonl
PYTHONPATH={TALKERS} {sys.executable} -m verl.trainer.main_ppo trainer.default_local_dir=$PWD/checkpoints \\
    trainer.resume_mode=disable trainer.total_training_steps=100000 "$@"
"""
STEPS = "i=0; while [ $i -lt {last} ]; do i=$((i+1)); echo step $i/{last} loss: 0.5; sleep {step_s}; done"


class Shell(User):
    """One who starts things without rltui."""

    def __init__(self, folder: Path, **environment: str) -> None:
        super().__init__(folder, **environment)
        self.started: list[subprocess.Popen[bytes]] = []

    def begin(self, command: str) -> int:
        one = subprocess.Popen(["bash", "-c", command], cwd=self.folder, start_new_session=True)
        self.started.append(one)
        return one.pid


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    for one in made.started:
        for process in processes.tree(one.pid):
            processes.send(process.pid, process.start_time, 9)
        one.wait()


def at_step(user: User, *where: str) -> dict[str, Any]:
    return dict(eventually(lambda: (found := user.only_run(*where))["stage"]["step"] and found, "a step"))


def sampled(user: User, run_id: str) -> list[str]:
    """What runs on each node, as its sampler tells."""
    hosts = json.loads(user.rltui("gpus", run_id, "--json"))["hosts"]
    return [" ".join(process["title"] for process in host["processes"]) for host in hosts]


def samplers() -> list[str]:
    """The directories of the attempts that are sampled on this machine and in the lab's nodes."""
    found = (processes.words_of(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [words[words.index("--attempt") + 1] for words in found if "rltui.onnode.sampler" in words]


def test_a_process_is_adopted_watched_through_tee_and_cancelled_with_its_children(user: Shell) -> None:
    (user.folder / "run.sh").write_text(VERL)
    pid = user.begin("bash run.sh 2>&1 | tee train.log; true")
    eventually((user.folder / "train.log").exists, "the log")
    user.rltui("adopt", "--pid", str(pid))
    run = at_step(user)
    assert (run["algorithm"], run["state"], run["is_adopted"]) == ("verl", "running", True)
    assert "is the run" in user.rltui("adopt", "--pid", str(pid), expect=1)
    assert "actor/pg_loss" in user.rltui("logs", run["run_id"], "-n", "5")
    latest = json.loads(user.rltui("show", run["run_id"], "--json"))["run"]["metrics"]["latest"]
    assert latest["time/total"] == 0.25
    tree = processes.tree(pid)
    assert len(tree) > 2
    assert "no sampler" in user.rltui("gpus", run["run_id"])
    assert "1 node is sampled for 5 min" in user.rltui("gpus", run["run_id"], "--sample", "5")
    assert "sampled already" in user.rltui("gpus", run["run_id"], "--sample", "5", expect=1)
    eventually(lambda: "main_ppo" in " ".join(sampled(user, run["run_id"])), "a sample")
    assert "takes 1 to" in user.rltui("gpus", run["run_id"], "--sample", "0", expect=2)
    assert "cancelled" in user.rltui("cancel", run["run_id"], "--yes")
    eventually(lambda: not any(processes.alive(one.pid, one.start_time) for one in tree), "the end of all of it")
    eventually(lambda: f"{run['path']}/attempts/01" not in samplers(), "the end of its sampler")
    assert user.only_run()["end"]["reason"] == "cancelled by the user"
    assert "adopted without its script" in user.rltui("resubmit", run["run_id"], "--yes", expect=1)


HANGS = """import time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()

def load_batch(step):
    time.sleep(1000 if rank == 1 and step == 5 else 0.3)

for step in range(1, 1000):
    load_batch(step)
    dist.all_reduce(torch.ones(4))
    if rank == 0:
        print(f"step {step}/1000", flush=True)
"""


@pytest.mark.slow
def test_where_a_job_of_torchrun_hangs_is_said_though_rltui_did_not_start_it(user: Shell) -> None:
    user.environment["RLTUI_DEADLINE_SCALE"] = "0.01"
    (user.folder / "train.py").write_text(HANGS)
    (user.folder / "train.log").touch()
    launcher = f"{sys.executable} -m torch.distributed.run --nproc_per_node 3"
    pid = user.begin(f"exec > train.log 2>&1; OMP_NUM_THREADS=1 {launcher} train.py")
    eventually(lambda: "step 4/" in (user.folder / "train.log").read_text(), "the fourth step")
    user.rltui("adopt", "--pid", str(pid))
    run = at_step(user)
    user.rltui("gpus", run["run_id"], "--sample", "5")

    def said() -> list[tuple[str, str]]:
        return [(one["id"], one["summary"]) for one in user.diagnoses(run["run_id"]) if not one["secondary"]]

    # where nobody has looked into the processes yet, that it stands still is all there is to say
    held_up = re.compile(r"is in load_batch \(\S*train\.py:8\), while .* are in all_reduce")
    eventually(
        lambda: [name for name, words in said()[:1] if held_up.search(words)] == ["process_awaited"],
        "the word for it", saw=said,
    )  # fmt: skip


def test_a_process_that_ends_by_itself_is_read_to_its_last_line(user: Shell) -> None:
    (user.folder / "train.log").touch()
    waits = "until [ $i -lt 10 ] || [ -e adopted ]; do sleep 0.1; done; echo"  # before its last line
    pid = user.begin(f"exec > train.log 2>&1; {STEPS.format(last=10, step_s=0.2).replace('echo', waits)}")
    user.rltui("adopt", "--pid", str(pid), "--name", "counted")
    (user.folder / "adopted").touch()
    run = eventually(lambda: (found := user.only_run())["end"] and found, "the end")
    assert (run["state"], run["stage"]["step"], run["stage"]["steps"]) == ("finished", 10, 10)
    lines = (Path(run["path"]) / "attempts/01/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 11))


def test_what_is_nobodys_or_anothers_is_refused(user: Shell) -> None:
    assert "no process" in user.rltui("adopt", "--pid", "4194300", expect=2)
    assert "Name one job" in user.rltui("adopt", expect=2)
    other = subprocess.Popen(["sleep", "600"], user=65534)
    try:
        assert "not yours" in user.rltui("adopt", "--pid", str(other.pid), expect=2)
    finally:
        other.kill()
        other.wait()


def test_a_job_of_plain_sbatch_becomes_a_run_and_goes_on_when_it_is_released(
    slurm_cluster: Lab, tmp_path: Path
) -> None:
    user = User(tmp_path, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(PROFILE)
    where = ("--cluster", "lab")
    folder = slurm_cluster.exec("login", ["pwd"]).stdout.strip()
    slurm_cluster.exec("login", ["tee", f"{folder}/mine.sh"], input=VERL)
    options = [
        "--parsable",
        "--partition=gpu",
        "--nodes=2",
        "--gpus-per-node=h100:2",
        "--output=slurm-%x-%j.out",
        f"--chdir={folder}",
    ]
    options.append("--comment=ours; StdOut=/etc/passwd UserId=bob(2002)")
    job = slurm_cluster.exec("login", ["sbatch", *options, "mine.sh"]).stdout.strip()

    (listed,) = json.loads(user.rltui("ps", "--jobs", *where, "--json").partition("\n{")[0])["jobs"]
    assert (listed["cluster"], listed["job"]["job_id"], listed["job"]["name"]) == ("lab", job, "my-grpo")
    told = user.rltui("adopt", job)  # there is one Slurm cluster only
    assert "my-grpo-" in told
    assert user.rltui("ps", "--jobs").strip() == "No jobs beside the runs."
    run = at_step(user, *where)
    assert (run["algorithm"], run["job_id"], run["job"]["state"]) == ("verl", job, "running")
    assert run["job"]["nodes"][0] in user.rltui("show", run["run_id"])

    assert "2 nodes are sampled for 5 min" in user.rltui("gpus", run["run_id"], *where, "--sample", "5")
    eventually(
        lambda: sorted("main_ppo" in titles for titles in sampled(user, run["run_id"])) == [False, True], "both samples"
    )
    assert any(run["run_id"] in path for path in samplers())

    assert f"{job} goes on" in user.rltui("release-run", run["run_id"])
    assert slurm_cluster.exec("login", ["squeue", "-h", "-j", job, "-o", "%T"]).stdout.strip() == "RUNNING"

    eventually(lambda: not any(run["run_id"] in path for path in samplers()), "the end of its samplers")
    user.rltui("adopt", job, *where)
    run = at_step(user, *where)
    assert "is the run" in user.rltui("adopt", job, expect=1)
    mark = f"{folder}/checkpoints/latest_checkpointed_iteration.txt"
    saved = eventually(lambda: slurm_cluster.exec("login", ["cat", mark]).stdout.strip(), "a checkpoint")
    user.rltui("cancel", run["run_id"], "--yes")
    ended = eventually(lambda: (found := user.only_run(*where))["end"] and found, "the end")
    assert ended["state"] == "cancelled"
    script = json.loads(slurm_cluster.exec("login", ["cat", f"{run['path']}/attempts/01/script.json"]).stdout)
    assert (script["slurm"]["partition"], script["slurm"]["time"]) == ("gpu", "0-01:00:00")
    preview = user.rltui("resubmit", run["run_id"], "--dry-run")
    assert "goes on from step" in preview
    assert int(saved) > 0
    assert "has ended" in user.rltui("adopt", job, *where, expect=1)
    assert "knows no job" in user.rltui("adopt", "99999", *where, expect=2)


def test_another_users_job_is_refused(slurm_cluster: Lab, tmp_path: Path) -> None:
    user = User(tmp_path, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(PROFILE)
    job = slurm_cluster.exec("login", ["sbatch", "--parsable", "--wrap=sleep 600"], user="bob").stdout.strip()
    try:
        assert "belongs to bob" in user.rltui("adopt", job, "--cluster", "lab", expect=1)
    finally:
        slurm_cluster.exec("login", ["scancel", job], user="bob")


@pytest.mark.slow
def test_fifty_jobs_are_watched_and_left_for_six_calls_a_minute(
    slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter(f"job.sh-{number // 2:04x}" for number in range(100))  # each id but the first is one that a run has
    monkeypatch.setattr("rltui.runs.directory.new_run_id", lambda _: next(drawn))
    context = context_on(LabTransport(slurm_cluster), tmp_path / "state", profile(python=sys.executable))
    script = "#!/bin/bash\n" + STEPS.format(last=100_000, step_s=5) + "\n"  # each step starts a process, in fifty jobs
    one = "sbatch --parsable -n1 -c1 --mem=100M --gres=none --output=fifty-%j.out"
    told = slurm_cluster.exec(
        "login", ["sh", "-c", f"cat >job.sh; for i in $(seq 50); do {one} job.sh; done"], input=script
    )
    jobs = told.stdout.split()
    eventually(lambda: len([job for job in open_jobs(context) if job.job.state == "running"]) == 50, "50 running jobs")

    forget_calls(slurm_cluster)
    runs = [adopt_job(context, job).run_id for job in jobs]
    assert calls(slurm_cluster) <= 3 * 50  # what Slurm knows of each, its script, and whether it is a run: once
    reader = ClusterReader(context)
    eventually(lambda: sum((run.stage.step or 0) > 0 for run in reader.fresh().runs) == 50, "a step of each")

    forget_calls(slurm_cluster)
    began = time.monotonic()
    while time.monotonic() - began < 15:
        seen = reader.fresh().runs
        assert {run.state for run in seen} == {"running"}
        time.sleep(4)  # the cockpit's pace
    assert calls(slurm_cluster) <= (time.monotonic() - began) / 10 + 1  # six a minute, and one at the beginning
    for run in seen:
        release_run(context, run)
    assert calls(slurm_cluster) <= (time.monotonic() - began) / 10 + 3
    assert {run.run_id for run in seen} == set(runs)
    assert not reader.fresh().runs
    queue = slurm_cluster.exec("login", ["squeue", "-h", "-t", "running", "-o", "%A"]).stdout.split()
    assert set(queue) == set(jobs)
    context.close()


def forget_calls(lab: Lab) -> None:
    lab.exec("ctl", ["sdiag", "--reset"], user="root")


def calls(lab: Lab) -> int:
    """Calls of alice to the controller, by its own count."""
    by_user = lab.exec("ctl", ["sdiag"], user="root").stdout.partition("statistics by user")[2]
    return sum(
        int(line.split("count:")[1].split()[0]) for line in by_user.splitlines() if line.split()[:1] == ["alice"]
    )


def test_a_job_that_ends_while_it_is_adopted_is_a_run_that_has_ended(
    slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_on(LabTransport(slurm_cluster), tmp_path / "state", profile(python=sys.executable))
    command = ["sbatch", "--parsable", "--wrap", STEPS.format(last=100_000, step_s=0.2)]
    job = slurm_cluster.exec("login", command).stdout.strip()
    eventually(lambda: [one for one in open_jobs(context) if one.job.state == "running"], "the job")
    slurm = cast("SlurmCluster", context.cluster).slurm
    ask = slurm.batch_script

    def ends(job_id: str) -> str:
        slurm_cluster.exec("login", ["scancel", job_id])
        return ask(job_id)

    monkeypatch.setattr(slurm, "batch_script", ends)
    made = adopt_job(context, job)

    def found() -> RunSummary | None:
        """The run once its job is over and that is written down."""
        seen = context.find(made.run_id)
        return seen if seen.state == "cancelled" and seen.end is not None else None

    run = eventually(found, "its end")
    assert run.end is not None
    assert (run.job_id, run.end.reason) == (job, "The job was cancelled.")  # the scheduler's word
    release_run(context, run)
    context.close()
