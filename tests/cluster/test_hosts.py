"""A lab's GPU box without a scheduler, behind its real sshd: what users of it see, and that they share it fairly."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from verbs import ROOT, rltui

from waiting import DEADLINE_S, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

SCRIPT = """#!/bin/bash
echo "cards $CUDA_VISIBLE_DEVICES" | tee -a ~/cards
if [ -e ~/quick ]; then
    held=()
    for card in ${CUDA_VISIBLE_DEVICES//,/ }; do
        if mkdir -m 777 /tmp/held-$card; then held+=(/tmp/held-$card); else echo "card $card is somebody's"; fi
    done
    sleep 1
    rmdir "${held[@]}"
    exit 0
fi
while [ ! -e ~/stop ]; do sleep 0.1; done
"""


class User:
    """Somebody at a laptop of their own, who knows the box by a profile."""

    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        self.lab, self.name, self.folder = lab, name, folder
        folder.mkdir()
        config = lab.ssh_settings().config.read_text().replace("User alice", f"User {name}")
        (folder / "ssh").write_text(config)
        self.knows("box", "host: node1")
        (folder / "job.sh").write_text(SCRIPT)
        variables = {"CONFIG_DIR": folder, "STATE_DIR": folder / "state", "CACHE_DIR": folder / "cache"}
        variables |= {"RUN_ROOT": folder / "runs", "SSH_CONFIG": folder / "ssh"}
        self.environment = {**os.environ, **{f"RLTUI_{key}": str(value) for key, value in variables.items()}}

    def knows(self, cluster: str, way: str) -> None:
        """Write the one profile that the user has."""
        keys = [way, "scheduler: hosts", f"python: {sys.executable}", "gpu: H100-SXM-80GB", "gpus_per_node: 4"]
        file = self.folder / "clusters.yaml"
        file.write_text(f"{cluster}:\n" + "".join(f"  {key}\n" for key in keys))
        file.chmod(0o600)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rltui", *words], env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def run(self, *words: str, expect: int = 0) -> str:
        done = rltui(words, ROOT, self.environment, codes=(expect,))
        return done.stdout + done.stderr

    def launch(self, gpus: int, cluster: str = "box") -> str:
        self.run("launch", str(self.folder / "job.sh"), "--cluster", cluster, "--gpus-per-node", str(gpus))
        return str(self.runs(cluster)[0]["run_id"])

    def runs(self, cluster: str = "box") -> list[dict[str, Any]]:
        return list(json.loads(self.run("ps", "--cluster", cluster, "--json"))["runs"])

    def row(self, run_id: str, cluster: str = "box") -> dict[str, Any]:
        return next(run for run in self.runs(cluster) if run["run_id"] == run_id)

    def state(self, run_id: str, cluster: str = "box") -> str:
        return str(self.row(run_id, cluster)["state"])

    def detail(self, run_id: str) -> str:
        """What its stage says beside its name; empty until it has one."""
        return str((self.row(run_id)["stage"] or {}).get("detail") or "")

    def held(self) -> list[str]:
        """Where the runs of the pool are, in words."""
        jobs = json.loads(self.run("queue", "pool", "--json"))["queue"]["jobs"]
        return sorted(f"{job['nodes'][0]} {job['cards']} {job['name']}" for job in jobs)

    def at_box(self, *argv: str) -> str:
        return self.lab.exec("node1", argv, user=self.name).stdout


@pytest.fixture
def users(slurm_cluster: Lab, tmp_path: Path) -> tuple[User, User]:
    slurm_cluster.exec("node1", ["sh", "-c", "rm -f /tmp/.rltui-ticket-*"], user="root")
    return User(slurm_cluster, tmp_path / "alice", "alice"), User(slurm_cluster, tmp_path / "bob", "bob")


@contextlib.contextmanager
def somebody_on(lab: Lab, gpu: int, user: str) -> Iterator[int]:
    """A process of ``user`` that has taken a card by hand; yields its pid as the box sees it."""
    command = lab.command("node1", ["sh", "-c", "echo $$; exec sleep 600"], user=user)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    lab.gpus("node1", mem=30_000, procs=[(gpu, pid, 29_000)], only=gpu)
    yield pid
    lab.gpus("node1")
    lab.exec("node1", ["kill", str(pid)], user="root", check=False)
    process.wait(30)


def test_a_run_waits_for_anothers_process_outlives_the_laptop_and_is_cancelled_and_resubmitted(
    slurm_cluster: Lab, users: tuple[User, User]
) -> None:
    alice, bob = users
    assert "4 × NVIDIA H100 80GB HBM3, 4 free" in alice.run("doctor", "box")
    with somebody_on(slurm_cluster, 2, "bob") as pid:
        big = alice.launch(4)
        waiting = f"waiting for 4 GPUs; in use without a ticket: GPU 2: bob's process {pid} (sleep)"
        eventually(lambda: alice.detail(big) == waiting, "its queueing", saw=lambda: alice.detail(big))
        shown = alice.run("queue", "box")
        assert "3 of 4 GPUs free, 1 waiting" in shown
        assert [str(pid), "bob", "1", "GPU", "2", "–", "sleep", "(without", "a", "ticket)"] in map(
            str.split, shown.splitlines()
        )
        told = json.loads(bob.run("queue", "box", "--json"))["queue"]
        assert [(job["user"], job["is_mine"]) for job in told["jobs"] if job["name"] == big] == [("alice", False)]
    eventually(lambda: "cards 0,1,2,3" in alice.run("logs", big), "its start on all cards")
    small = bob.launch(1)
    behind = f"behind alice's {big} for 1 GPUs"
    eventually(lambda: bob.detail(small) == behind, "bob's waiting", saw=lambda: bob.detail(small))
    bob.run("cancel", big, "--yes", "--cluster", "box", expect=2)  # it is none of his
    alice.run("cancel", big, "--yes")
    eventually(lambda: alice.state(big) == "cancelled", "the end of hers", saw=lambda: alice.state(big))
    eventually(lambda: bob.state(small) in ("starting", "running"), "bob's turn")
    alice.run("resubmit", big, expect=0)
    behind = f"behind bob's {small} for 4 GPUs"
    eventually(lambda: alice.detail(big).startswith(behind), "its waiting", saw=lambda: alice.detail(big))
    alice.at_box("touch", "stop")
    bob.at_box("touch", "stop")
    eventually(lambda: bob.state(small) == "finished", "bob's end")
    eventually(lambda: alice.state(big) == "finished", "alice's end")
    tickets = ["sh", "-c", "ls -A /tmp | grep ticket || true"]
    eventually(lambda: not slurm_cluster.exec("node1", tickets).stdout, "no ticket that is left")


def test_a_killed_supervisor_and_a_dead_box_hold_no_card_and_are_told(
    slurm_cluster: Lab, users: tuple[User, User]
) -> None:
    alice, bob = users
    first = alice.launch(4)
    eventually(lambda: "cards" in alice.run("logs", first), "its start")
    alice.at_box("kill", "-9", alice.row(first)["job_id"])
    end = eventually(lambda: alice.row(first)["end"], "its end")
    assert end["outcome"] == "lost"
    assert "the supervisor was killed" in end["reason"]
    second = bob.launch(4)
    eventually(lambda: "cards 0,1,2,3" in bob.run("logs", second), "bob's start")
    slurm_cluster.crash("node1")
    assert bob.start("ps", "--cluster", "box").wait(DEADLINE_S) == 3
    slurm_cluster.boot("node1")
    # one kernel serves all the lab: that it was started anew is what the box itself would say
    folder = f".local/share/rltui/runs/{second}/attempts/01/supervisor.json"
    bob.at_box("sed", "-i", 's/"boot":"[^"]*"/"boot":"before"/', folder)
    assert bob.row(second)["end"]["reason"] == "node1 was restarted while the attempt ran"
    assert "4 of 4 GPUs free, 0 waiting, 0 running" in bob.run("queue", "box")


def test_users_who_launch_at_once_never_share_a_card(slurm_cluster: Lab, users: tuple[User, User]) -> None:
    for user in users:
        user.at_box("touch", "quick")
    launches = [
        user.start("launch", str(user.folder / "job.sh"), "--cluster", "box", "--gpus-per-node", str(gpus))
        for gpus in (2, 1, 3) for user in users
    ]  # fmt: skip
    for launch in launches:
        assert launch.wait(DEADLINE_S) == 0, launch.communicate()

    def all_ended() -> bool:
        return all(run["state"] == "finished" for user in users for run in user.runs())

    eventually(all_ended, "the end of all runs")
    said = [
        user.at_box("cat", f".local/share/rltui/runs/{run['run_id']}/attempts/01/out.log")
        for user in users for run in user.runs()
    ]  # fmt: skip
    assert sorted(len(log.split("cards ")[1].split()[0].split(",")) for log in said) == [1, 1, 2, 2, 3, 3]
    assert not [log for log in said if "somebody's" in log]
    assert "held-" not in slurm_cluster.exec("node1", ["ls", "/tmp"]).stdout


def test_of_several_boxes_a_run_takes_the_one_that_is_free(slurm_cluster: Lab, users: tuple[User, User]) -> None:
    alice, _ = users
    alice.knows("pool", "hosts: [node1, node2]")
    first, second = alice.launch(3, "pool"), alice.launch(3, "pool")
    eventually(lambda: "cards" in alice.run("logs", second), "the start of the second")
    wanted = [f"node1 [0, 1, 2] {first}", f"node2 [0, 1, 2] {second}"]
    eventually(lambda: alice.held() == wanted, "a box for each", saw=alice.held)
    alice.run("cancel", second, "--yes")
    eventually(lambda: alice.state(second, "pool") == "cancelled", "its end")
    eventually(lambda: alice.held() == wanted[:1], "its cards, which are free again", saw=alice.held)
    third = alice.launch(4, "pool")
    eventually(lambda: "cards 0,1,2,3" in alice.run("logs", third), "the start of the third")
    slurm_cluster.exec("node2", ["kill", "-9", alice.row(third, "pool")["job_id"]], user="alice")
    eventually(lambda: alice.state(third, "pool") == "lost", "the word of its loss")
    slurm_cluster.crash("node2")
    told = alice.run("queue", "pool")
    assert "1 of 4 GPUs free, 0 waiting, 1 running with 3 GPUs" in told, "one that is off hides nothing of the others"
    assert "down" in told


def test_a_layout_that_the_box_cannot_hold_is_refused_before_anything_is_made(users: tuple[User, User]) -> None:
    alice, _ = users
    told = alice.run("check", "opd/text-16", "--cluster", "box", "--live", expect=1)
    assert "2 nodes; box is one machine" in told
    assert "8 GPUs a node; nodes of box have 4" in told
    assert "Not launched: " in alice.run("launch", "opd/text-16", "--cluster", "box", expect=1)
    assert alice.runs() == []
