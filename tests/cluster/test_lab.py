"""The test cluster itself: what other tests take for granted of it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import paramiko
import pytest
from lab.spec import BY_KEY_AND_PASSWORD, BY_PASSWORD, PASSWORD

from waiting import DEADLINE_S, eventually

if TYPE_CHECKING:
    from lab import Lab

GPU_QUESTION = """
import json, pynvml as nvml
nvml.nvmlInit()
gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
first = gpus[0]
print(json.dumps({
    "names": [nvml.nvmlDeviceGetName(gpu) for gpu in gpus],
    "utilization": nvml.nvmlDeviceGetUtilizationRates(first).gpu,
    "used_mib": nvml.nvmlDeviceGetMemoryInfo(first).used >> 20,
    "pids": [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(first)],
}))
"""


OWNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from lab import Lab
lab = Lab(compute_nodes=1, accounting=False).start()
print(lab.folder, lab.status()["node1"]["pid"], flush=True)
time.sleep(600)
"""


def job_state(lab: Lab, job: str) -> str:
    return lab.exec("login", ["squeue", "-h", "-j", job, "-o", "%T"], check=False).stdout.strip()


def submit(lab: Lab, script: str, *options: str) -> str:
    text = f"#!/bin/bash\n{script}\n"
    return lab.exec("login", ["sbatch", "--parsable", *options], input=text).stdout.strip()


def over_ssh(lab: Lab, command: str, node: str = "lab") -> subprocess.CompletedProcess[str]:
    words = ["ssh", "-F", str(lab.ssh_settings().config), node, command]
    return subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def test_a_job_gets_hosts_of_its_own_and_their_gpus(slurm_cluster: Lab) -> None:
    script = "srun bash -c 'echo $(hostname) $CUDA_VISIBLE_DEVICES $(id -un) $(hostname -I)'"
    job = submit(slurm_cluster, script, "--wait", "-N3", "--gres=gpu:h100:4", "-o", "out")
    lines = sorted(slurm_cluster.exec("login", ["cat", "out"]).stdout.splitlines())
    assert lines == [f"node{number} 0,1,2,3 alice 10.77.0.{10 + number}" for number in (1, 2, 3)]

    def seen() -> str:
        return slurm_cluster.exec("login", ["sacct", "-nXP", "-j", job, "-o", "State,Account,NNodes"]).stdout.strip()

    eventually(lambda: seen() == "COMPLETED|rlteam|3", "what the accounting says", saw=seen)  # it lags a little


def test_ssh_leads_to_the_login_node_and_through_it_to_the_others(slurm_cluster: Lab) -> None:
    assert over_ssh(slurm_cluster, "hostname; id -un; sinfo -h -p debug -o %P").stdout.split() == [
        "login",
        "alice",
        "debug",
    ]
    assert over_ssh(slurm_cluster, "hostname", node="node2").stdout.strip() == "node2"


def interactive(lab: Lab, user: str, password: str) -> tuple[paramiko.Transport, list[str]]:
    """Log in with what the server asks for; returns the connection and its questions."""
    ssh, asked = lab.ssh_settings(user), []
    transport = paramiko.Transport((ssh.host, ssh.port))
    transport.start_client(timeout=DEADLINE_S)
    if user == BY_KEY_AND_PASSWORD:
        assert transport.auth_publickey(user, paramiko.Ed25519Key(filename=str(ssh.key))) == ["keyboard-interactive"]

    def answer(_title: str, _instructions: str, prompts: list[tuple[str, bool]]) -> list[str]:
        asked.extend(prompt for prompt, _echo in prompts)
        return [password] * len(prompts)

    transport.auth_interactive(user, answer)
    return transport, asked


@pytest.mark.parametrize("user", [BY_PASSWORD, BY_KEY_AND_PASSWORD])
def test_two_accounts_are_asked_for_a_password(slurm_cluster: Lab, user: str) -> None:
    transport, asked = interactive(slurm_cluster, user, PASSWORD)
    with transport:
        assert transport.is_authenticated()
    assert asked == ["Password: "]
    with pytest.raises(paramiko.AuthenticationException):
        interactive(slurm_cluster, user, "wrong")


def test_pynvml_answers_on_a_node_what_the_test_says(slurm_cluster: Lab) -> None:
    slurm_cluster.gpus("node2", util=97, mem=70_000, procs=[(0, 4242, 69_000)], only=0)
    answer = json.loads(slurm_cluster.exec("node2", [sys.executable, "-c", GPU_QUESTION]).stdout)
    assert answer == {"names": ["NVIDIA H100 80GB HBM3"] * 4, "utilization": 97, "used_mib": 70_000, "pids": [4242]}
    assert slurm_cluster.exec("node2", ["nvidia-smi", "-L"]).stdout.count("H100") == 4
    slurm_cluster.gpus("node2", lost=True, only=0)
    lost = slurm_cluster.exec("node2", [sys.executable, "-c", GPU_QUESTION], check=False)
    assert "NVMLError_GpuIsLost" in lost.stderr


@pytest.mark.trainers
def test_users_run_the_trainers_environment_on_nodes(slurm_cluster: Lab) -> None:
    code = "import torch, ray, deepspeed, rltui, trainers; print(rltui.__file__)"
    environment = ["env", f"PYTHONPATH={Path(__file__).parents[2]}", "DS_ACCELERATOR=cpu"]
    done = slurm_cluster.exec("node3", [*environment, sys.executable, "-c", code])
    assert Path(done.stdout.splitlines()[-1]).is_relative_to(Path(__file__).parents[2])


def test_a_crashed_node_comes_back_with_its_disk_and_nothing_running(slurm_cluster: Lab) -> None:
    slurm_cluster.exec("node1", ["sh", "-c", "echo kept > /var/tmp/file; setsid sleep 600 >/dev/null 2>&1 &"])
    slurm_cluster.crash("node1")
    assert slurm_cluster.status()["node1"] == {"pid": 0, "services": []}
    slurm_cluster.boot("node1")
    left = slurm_cluster.exec("node1", ["sh", "-c", "cat /var/tmp/file; pgrep -u alice sleep"], check=False).stdout
    assert left == "kept\n"
    submit(slurm_cluster, "true", "-w", "node1", "--wait")


def test_a_node_that_was_cut_off_for_long_is_back_after_a_reset(slurm_lab: Lab) -> None:
    slurm_lab.cut("node2")
    states = ["sinfo", "-hN", "-p", "gpu", "-o", "%T"]
    eventually(lambda: "down*" in slurm_lab.exec("login", states).stdout, "the node's loss")
    slurm_lab.reset()
    assert slurm_lab.exec("login", states).stdout.split() == ["idle"] * 3


def test_reset_makes_the_lab_as_new(slurm_lab: Lab) -> None:
    slurm_lab.exec("login", ["sh", "-c", "echo x > left; scontrol show job"], check=False)
    deaf = submit(slurm_lab, "trap '' TERM; setsid sleep 600 & sleep 600", "-N3")
    eventually(lambda: job_state(slurm_lab, deaf) == "RUNNING", "the job's start")
    slurm_lab.exec("ctl", ["scontrol", "update", "nodename=node3", "state=drain", "reason=x"], user="root")
    slurm_lab.service("node2", "slurmd", "kill")
    slurm_lab.cut("node3")
    slurm_lab.ssh.stop()
    slurm_lab.clock("login", 600)
    slurm_lab.reset()
    nodes = slurm_lab.exec("login", ["sinfo", "-hN", "-p", "gpu", "-o", "%T"]).stdout.split()
    assert nodes == ["idle"] * 3
    assert over_ssh(slurm_lab, "ls; squeue -h").stdout == ""
    assert slurm_lab.exec("node1", ["pgrep", "-u", "alice", "sleep"], check=False).stdout == ""


def test_the_way_to_the_login_node_breaks_at_a_chosen_byte(slurm_cluster: Lab) -> None:
    path = slurm_cluster.ssh
    before = path.count()
    path.cut_after(5_000, "from_cluster", "refuse")
    assert over_ssh(slurm_cluster, "head -c 100000 /dev/zero").returncode == 255
    after = path.count()
    assert after["from_cluster"] - before["from_cluster"] == 5_000
    assert after["cuts"] - before["cuts"] == 1
    assert "Connection refused" in over_ssh(slurm_cluster, "true").stderr
    path.start()
    assert over_ssh(slurm_cluster, "true").returncode == 0


def test_a_nodes_clock_can_be_wrong(slurm_cluster: Lab) -> None:
    slurm_cluster.clock("login", -600)
    ahead_s = time.time() - float(slurm_cluster.exec("login", ["date", "+%s"]).stdout)
    assert 590 < ahead_s < 1200
    assert submit(slurm_cluster, "true", "--wait").isdigit()


def test_the_lab_ends_with_the_process_that_started_it() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout
    folder, node_pid = owner.stdout.readline().split()
    assert Path(folder).is_dir()
    assert Path("/proc", node_pid).exists()
    owner.kill()
    owner.wait()
    owner.stdout.close()
    eventually(lambda: not Path(folder).exists() and not Path("/proc", node_pid).exists(), "the lab's end")
    assert str(folder) not in Path("/proc/mounts").read_text()
