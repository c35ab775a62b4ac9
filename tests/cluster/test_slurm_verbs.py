"""The verbs against the real Slurm over real SSH, as a user's scripts would use them."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from slurm_support import LabTransport, profile
from terminal import Terminal
from verbs import rltui

from rltui.cluster.relay_client import RelayClient
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.service.live_facts import facts_through
from waiting import eventually

if TYPE_CHECKING:
    import subprocess

    from lab import Lab

ROOT = Path(__file__).parents[2]
NO_PYTHON = "S632 lab.python: /opt/none/python is not there on the login node"
PROFILE = """
lab:
  host: lab
  scheduler: slurm
  partition: gpu
  run_root: ~/runs
  python: /bin/true
  setup_lines: [sleep 600]
"""


class Laptop:
    """rltui on a machine that reaches the lab by SSH."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.folder = folder
        (folder / "config").mkdir()
        (folder / "config" / "clusters.yaml").write_text(PROFILE)
        names = {"CONFIG_DIR": "config", "STATE_DIR": "state", "CACHE_DIR": "cache", "RUN_ROOT": "runs"}
        self.environment = {
            **os.environ,
            **{f"RLTUI_{name}": str(folder / value) for name, value in names.items()},
            "RLTUI_SSH_CONFIG": str(lab.ssh_settings().config),
        }

    def run(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = rltui(words, ROOT, self.environment, codes=(expect,))
        return done

    def json(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words, "--json").stdout)
        assert answer["schema"] == 1
        return answer

    def row(self) -> dict[str, Any]:
        [row] = self.json("ps")["runs"]
        return dict(row)


@pytest.fixture
def laptop(slurm_cluster: Lab, tmp_path: Path) -> Laptop:
    return Laptop(slurm_cluster, tmp_path)


def states(lab: Lab) -> dict[str, str]:
    lines = lab.exec("login", ["squeue", "--me", "-h", "-o", "%A|%T|%r"]).stdout.split()
    return {line.split("|", 1)[0]: line.split("|", 1)[1] for line in lines}


def a_shell_opens_inside_the_job(laptop: Laptop, run_id: str, node: str, job: str) -> None:
    command = shlex.join([sys.executable, "-m", "rltui", "shell", run_id])
    terminal = Terminal(command, {**laptop.environment, "PYTHONPATH": str(ROOT)}, width=160)
    try:
        terminal.until("--overlap --pty")
        terminal.keys("echo on-$SLURMD_NODENAME-in-$SLURM_JOB_ID", "Enter")
        terminal.until(f"on-{node}-in-{job}")
        terminal.keys("C-d")
        terminal.until("EXIT-0")
    finally:
        terminal.close()


def test_a_run_that_waits_long_for_its_next_start_has_not_ended(laptop: Laptop, slurm_cluster: Lab) -> None:
    that_works = PROFILE.replace("/bin/true", sys.executable).replace("  setup_lines: [sleep 600]\n", "")
    (laptop.folder / "config/clusters.yaml").write_text(that_works)
    script = laptop.folder / "run.sh"
    script.write_text("#!/bin/bash\n#SBATCH --time=00:20:00\nsleep 1000\n")
    words = ("--cluster", "lab", "--nodes", "1", "--gpus-per-node", "1", "--folder", "/home/alice")
    run_id = laptop.json("launch", str(script), *words)["run_id"]
    [path] = (Path(slurm_cluster.folder) / "home/alice/runs").glob("*/attempts/01")
    eventually(lambda: (path / "supervisor.json").exists(), "the start")
    without = [word for node in slurm_cluster.spec.compute for word in ("--exclude", node)]
    laptop.run("requeue", run_id, *without, "--yes")
    end = path / "end.json"
    # what the driver writes, or has not come to write: whichever is there first stays
    ended = {"schema": 1, "outcome": "cancelled", "reason": "requeued", "slurm": "JOB REQUEUE"}
    end.write_text(json.dumps({**ended, "at": time.time() - 7200}))
    assert laptop.row()["state"] == "queued"
    assert "still queued" in laptop.run("resubmit", run_id, "--yes", expect=1).stderr
    assert laptop.json("cancel", run_id, "--yes")["state"] == "cancelled"

    def seen() -> tuple[str, bool]:
        return laptop.row()["state"], "over" in json.loads(end.read_text())

    eventually(lambda: seen() == ("cancelled", True), "the word that it is over", saw=seen)


def test_a_run_is_launched_held_changed_cancelled_and_resubmitted_elsewhere(laptop: Laptop, slurm_cluster: Lab) -> None:
    launched = laptop.json("launch", "local/grpo-tiny", "slurm.options=['--begin=now+1hour']", "--cluster", "lab")
    run_id, job = launched["run_id"], launched["job_id"]
    row = laptop.row()
    assert (row["cluster"], row["state"], row["job_id"]) == ("lab", "queued", job)
    assert row["job"]["reason"] == "BeginTime"
    assert "It may not start yet" in laptop.run("ps").stdout
    assert laptop.json("hold", run_id)["done"].startswith(f"{run_id} is held")
    assert states(slurm_cluster)[job] == "PENDING|JobHeldUser"
    laptop.run("update", run_id, "--time", "00:30:00", "--exclude", "node2")
    laptop.run("update", run_id, expect=2)
    too_many = ("update", run_id, "--exclude", "node1", "--exclude", "node3")
    assert "0 of 3 nodes of gpu are left, 1 are needed" in laptop.run(*too_many, expect=2).stderr
    laptop.run("cancel", run_id, expect=2)  # nobody is there to confirm
    assert laptop.json("cancel", run_id, "--yes")["state"] == "cancelled"
    eventually(lambda: job not in states(slurm_cluster), "the end of the job")
    laptop.run("cancel", run_id, "--yes", expect=1)

    shown = laptop.run("resubmit", run_id, "slurm.options=[]", "--exclude", "node1", "--dry-run").stderr
    assert "keeps away from node1: 2 of 3 nodes of gpu are left" in shown
    assert "+ slurm.exclude: [node1]" in shown
    asked = laptop.run("resubmit", run_id, "slurm.qos=none-such", "--dry-run", expect=1).stderr
    assert "qualities of service: normal, high" in asked
    laptop.run("resubmit", run_id, "slurm.options=[]", "train.steps=none", expect=2)
    again = laptop.json("resubmit", run_id, "slurm.options=[]", "--exclude", "node1")
    assert (again["attempt"], again["run_id"]) == (2, run_id)
    eventually(lambda: laptop.row()["state"] == "starting", "the start")
    assert laptop.row()["job"]["nodes"] == ["node2"]
    assert again["job_id"] in laptop.run("show", run_id).stdout
    a_shell_opens_inside_the_job(laptop, run_id, "node2", again["job_id"])
    laptop.run("resubmit", run_id, expect=1)  # it is alive
    third = laptop.json("resubmit", run_id, "--cancel", "--yes")
    assert third["attempt"] == 3
    laptop.run("cancel", run_id, "--yes")
    eventually(lambda: not states(slurm_cluster), "the end of all jobs")


def test_a_chain_waits_behind_itself_and_is_cancelled_whole(laptop: Laptop, slurm_cluster: Lab) -> None:
    launched = laptop.json("launch", "local/grpo-tiny", "--chain", "3", "--cluster", "lab")
    eventually(lambda: laptop.row()["state"] == "starting", "the start")
    row = laptop.row()
    assert (row["attempt"], row["last_attempt"], row["job_id"]) == (1, 3, launched["job_id"])
    waiting = ["PENDING|Dependency", "PENDING|Dependency", "RUNNING|None"]
    eventually(lambda: sorted(states(slurm_cluster).values()) == waiting, "one that runs and two behind it")
    laptop.run("cancel", row["run_id"], "--yes")
    eventually(lambda: not states(slurm_cluster), "the end of all jobs")
    assert laptop.row()["state"] == "cancelled"
    laptop.run("launch", "local/grpo-tiny", "--chain", "2", expect=2)


def test_a_sweep_is_that_many_runs_of_which_so_many_run_at_once(laptop: Laptop, slurm_cluster: Lab) -> None:
    sweep = ("launch", "local/grpo-tiny", "--sweep", "train.seed=1,2,3", "--at-once", "1", "--cluster", "lab")
    laptop.run(*sweep, expect=2)  # nobody is there to confirm
    assert not states(slurm_cluster)
    first, second, third = laptop.json(*sweep, "--yes")["runs"]
    eventually(lambda: states(slurm_cluster)[first["job_id"]].startswith("RUNNING"), "the first one's start")
    assert [states(slurm_cluster)[one["job_id"]] for one in (second, third)] == ["PENDING|Dependency"] * 2
    assert second["run_id"].startswith("grpo-tiny-seed-2-")
    laptop.run("cancel", first["run_id"], "--yes")
    eventually(lambda: states(slurm_cluster)[second["job_id"]].startswith("RUNNING"), "the second one's start")
    assert states(slurm_cluster)[third["job_id"]] == "PENDING|Dependency"
    laptop.run("cancel", "--where", "name:grpo-tiny-seed", "--yes")
    eventually(lambda: not states(slurm_cluster), "the end of all jobs")
    assert {row["state"] for row in laptop.json("ps")["runs"]} == {"cancelled"}


def test_what_slurm_refuses_is_one_clear_line_and_leaves_no_run(laptop: Laptop, slurm_cluster: Lab) -> None:
    bad = ("launch", "local/grpo-tiny", "slurm.partition=nosuch", "--cluster", "lab")
    assert "no partition 'nosuch'; it has gpu, debug, low" in laptop.run(*bad, expect=1).stderr
    assert "invalid partition" in laptop.run(*bad, "--unchecked", expect=1).stderr.lower()
    assert laptop.json("ps")["runs"] == []
    assert slurm_cluster.exec("login", ["ls", "runs"]).stdout == ""


def test_a_cluster_that_cannot_be_reached_is_said_with_its_own_exit_code(laptop: Laptop, slurm_cluster: Lab) -> None:
    laptop.run("launch", "local/grpo-tiny", "--cluster", "lab")
    assert laptop.row()["cluster"] == "lab"
    slurm_cluster.ssh.stop()
    away = laptop.run("ps", "--cluster", "lab", expect=3)
    assert "as of" in away.stdout
    assert "lab" in away.stderr
    laptop.run("ps")
    laptop.run("cancel", "grpo-tiny", "--yes", expect=3)
    laptop.run("launch", "local/grpo-tiny", "--cluster", "lab", expect=3)
    slurm_cluster.ssh.start()
    laptop.run("cancel", "grpo-tiny", "--yes")
    eventually(lambda: not states(slurm_cluster), "the end of all jobs")


def test_files_are_read_while_the_controller_is_away(laptop: Laptop, slurm_cluster: Lab) -> None:
    run_id = laptop.json("launch", "local/grpo-tiny", "slurm.options=['--begin=now+1hour']", "--cluster", "lab")[
        "run_id"
    ]
    assert laptop.row()["job_as_of"] == 0
    with slurm_cluster.controller_away():
        for verb in ("show", "logs", "events", "metrics", "why", "gpus", "queues"):
            laptop.run(verb, run_id)
        assert "the scheduler does not answer: this is what it said " in laptop.run("show", run_id).stdout
        listed = laptop.json("ps", "--cluster", "lab")
        [row] = listed["runs"]
        assert (row["state"], row["job"]["reason"], row["as_of"]) == ("queued", "BeginTime", 0)
        assert row["job_as_of"] > 0
        assert row["job"]["expected_start_at"] > row["created_at"] + 3000, "BeginTime has its time"
        heard_min = int((time.time() - row["job_as_of"]) // 60)
        assert any(
            f"last heard {min_ago} min ago" in listed["scheduler_problem"] for min_ago in (heard_min, heard_min - 1)
        )
        refused = laptop.run("launch", "local/grpo-tiny", "--cluster", "lab", expect=3).stderr
        assert "by itself" not in refused
        assert len(laptop.json("ps")["runs"]) == 1
    laptop.run("cancel", run_id, "--yes")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["slurm.time=9-00:00:00"], "S615 slurm.time: 9-00:00:00 is asked for; partition gpu allows 2-00:00:00"),
        (["slurm.partition=debug", "slurm.time=01:00:00"], "partition debug allows 00:30:00"),
        (["slurm.qos=platinum"], "Invalid qos specification; qualities of service: normal, high"),
        (["slurm.account=nobody"], "'nobody' is none of your accounts: "),
        (["slurm.constraint=nosuch"], "Invalid feature specification"),
        (["slurm.options=['--reservation=nosuch']"], "; there are no reservations"),
        (["slurm.reservation=nosuch"], "; there are no reservations"),
        (["slurm.licenses=nosuch:1"], "; licences: data"),
        (["hardware.nodes=9"], "S619 hardware.nodes: 9 nodes are asked for, 3 are usable"),
    ],
)
def test_a_launch_is_refused_before_the_queue_with_what_is_valid(
    laptop: Laptop, slurm_cluster: Lab, words: list[str], says: str
) -> None:
    said = laptop.run("launch", "local/grpo-tiny", *words, "--cluster", "lab", expect=1).stderr
    assert says in said
    assert laptop.json("ps")["runs"] == []
    assert not states(slurm_cluster)


def test_a_launch_looks_at_python_and_secrets_first_within_a_second(laptop: Laptop, slurm_cluster: Lab) -> None:
    profiles = laptop.folder / "config" / "clusters.yaml"
    slurm_cluster.exec("login", ["sh", "-c", "echo A=b > secrets; chmod 644 secrets"])
    launch = ("launch", "local/grpo-tiny", "slurm.options=['--hold']", "--cluster", "lab")
    own = laptop.folder / "own.sh"
    own.write_text("#!/bin/sh\n#SBATCH --time=02:00:00\necho step 1\n")
    script = ("launch", str(own), "--cluster", "lab")
    for verb, keys, says in (
        (script, "{python: /opt/none/python}", "/opt/none/python is not there on the login node"),
        (script, "{python: /bin/true, max_time: '01:00:00'}", "02:00:00 is asked for; lab accepts at most 01:00:00"),
        (launch, "{python: /bin/true, env_file: ~/secrets}", "S633 lab.env_file: ~/secrets has mode 644"),
        (launch, "{python: /bin/true, env_file: ~/none}", "S633 lab.env_file: ~/none is not there"),
        (launch, "{python: python3, setup_lines: ['cd /tmp']}", "lacks torch"),
        (launch, "{python: python3, setup_lines: [module load x]}", "S632 lab.python: the profile's setup_lines end"),
        (script, "{python: python3, setup_lines: ['true', module load x]}", "module: command not found"),
        (launch, """{python: /opt/none/python, setup_lines: ['[ -z "$SLURM_JOB_ID" ] || module load x']}""", NO_PYTHON),
        (launch, "{python: /opt/none/python}", NO_PYTHON),
    ):
        body = "host: lab, scheduler: slurm, partition: gpu, run_root: ~/runs, "
        profiles.write_text("lab: {" + body + keys.removeprefix("{") + "\n")
        assert says in laptop.run(*verb, expect=1).stderr
    assert not states(slurm_cluster)
    laptop.run(*launch, "--unchecked")
    [waiting] = states(slurm_cluster).values()
    assert waiting.startswith("PENDING")
    told = profile("python3")
    relay = RelayClient(LabTransport(slurm_cluster))
    layout = load_layout(resolve("local/grpo-tiny")).layout
    relay.hello()
    began = time.monotonic()
    found = facts_through(relay, told, layout)
    took_s = time.monotonic() - began
    relay.close()
    print(f"live checks: {took_s:.2f} s")
    assert "lacks torch" in found.python_problem
    # a second on a machine of one's own; minutes where one question waits for the other's time-out
    assert took_s < 10.0 * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def test_reservations_are_listed_and_taken_and_licences_held(laptop: Laptop, slurm_cluster: Lab) -> None:
    words = ["reservation=rl", "nodes=node2", "users=alice", "starttime=now", "duration=60"]
    slurm_cluster.exec("ctl", ["scontrol", "create", *words], user="root")
    [kept] = laptop.json("nodes", "lab")["reservations"]
    assert (kept["name"], kept["nodes"], kept["users"], kept["is_active"]) == ("rl", "node2", ["alice"], True)
    assert kept["ends_at"] - kept["starts_at"] == 3600
    assert "node2  " in next(line for line in laptop.run("nodes", "lab").stdout.splitlines() if line.startswith("rl "))
    settings = ["slurm.reservation=rl", "slurm.licenses=data:2"]
    laptop.run("launch", "local/grpo-tiny", "--cluster", "lab", "hardware.cpus_per_node=4", *settings)
    eventually(lambda: laptop.row()["state"] in ("starting", "running"), "the job to start")
    job = slurm_cluster.exec("login", ["scontrol", "-o", "show", "job", laptop.row()["job_id"]]).stdout
    assert "Reservation=rl" in job
    assert "Licenses=data:2" in job
    assert "NodeList=node2" in job


def test_what_a_job_cannot_use_is_the_cause_of_its_end(laptop: Laptop, slurm_cluster: Lab) -> None:
    profiles = laptop.folder / "config" / "clusters.yaml"
    slurm_cluster.exec("login", ["sh", "-c", "echo A=b > secrets; chmod 644 secrets"])
    expected = {}
    for keys, cause, says in (
        ("python: /bin/true, setup_lines: [module load nosuch]", "setup_line_failed", "module: command not found"),
        ("python: /opt/none/python", "profile_unusable", "the python of the cluster's profile was not found on node"),
        (f"python: {sys.executable}, env_file: ~/secrets", "profile_unusable", "secrets can be read by others"),
    ):
        body = f"host: lab, scheduler: slurm, partition: gpu, run_root: ~/runs, {keys}"
        profiles.write_text("lab: {" + body + "}\n")
        words = ("hardware.cpus_per_node=4", "--cluster", "lab", "--unchecked")
        expected[laptop.json("launch", "local/grpo-tiny", *words)["run_id"]] = cause, says

    def is_over() -> bool:
        return {run["state"] for run in laptop.json("ps")["runs"]} == {"failed"}

    eventually(is_over, "the end of all three", poll_s=1.0)
    for run_id, (cause, says) in expected.items():
        found = json.loads(laptop.run("why", run_id, "--json", expect=1).stdout)["diagnoses"]
        assert [one["id"] for one in found] == [cause]
        assert says in found[0]["summary"]
