"""The whole way over SSH, on a real Slurm: a GRPO run on three hosts is watched, killed, and goes on elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from lab import Lab, why_not
from slurm_support import profile_file

from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# Two learner bundles, each on a host of its own, and the engine on the third.
LAYOUT = ("local/grpo-tiny", "hardware.nodes=3", "hardware.gpus_per_node=1", "roles.learner.gpus=[1,1]")
SETTINGS = ("train.steps=100000", "checkpoint.every=10", "slurm.time=00:30:00", "slurm.requeue=false")
STAGES = "runs/*/attempts/*/stage.json"
pytestmark = [pytest.mark.trainers, pytest.mark.slow, pytest.mark.timeout(1500)]


class Workstation:
    """A user's machine outside the cluster: rltui there knows the lab as an SSH host."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        (folder / "config").mkdir()
        (folder / "config/clusters.yaml").write_text(profile_file())
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RLTUI_CONFIG_DIR": str(folder / "config"),
            "RLTUI_STATE_DIR": str(folder / "state"),
            "RLTUI_SSH_CONFIG": str(lab.ssh_settings().config),
        }

    def rltui(self, *words: str, timeout_s: float = 240) -> str:
        """Run a verb that has to succeed; returns what it printed."""
        argv = [sys.executable, "-m", "rltui", *words]
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False,
            env=self._environment, cwd=ROOT, stdin=subprocess.DEVNULL, timeout=timeout_s,
        )  # fmt: skip
        assert done.returncode == 0, f"rltui {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def only_run(self) -> dict[str, Any]:
        """The one run of the lab, as ``ps`` tells it."""
        (run,) = json.loads(self.rltui("ps", "--cluster", "lab", "--json"))["runs"]
        return dict(run)

    def show(self, run_id: str) -> dict[str, Any]:
        """All that ``show`` tells of a run."""
        return dict(json.loads(self.rltui("show", run_id, "--cluster", "lab", "--json"))["run"])

    def step(self) -> int:
        """The last step that the run has reported: read on the spot, as a look through SSH costs more than a step."""
        home = Path(self.lab.folder, "home", "alice")
        return max((int(json.loads(path.read_text()).get("step") or 0) for path in home.glob(STAGES)), default=0)

    def read(self, path: str) -> list[dict[str, Any]]:
        """The records of a JSON lines file in the lab."""
        return [json.loads(line) for line in self.lab.exec("login", ["cat", path]).stdout.splitlines()]

    def newest_checkpoint(self, run_path: str) -> int:
        """The step of the newest checkpoint that is complete."""
        done = self.lab.exec("login", ["find", f"{run_path}/checkpoints", "-name", "COMPLETE"]).stdout.splitlines()
        return max(int(Path(path).parent.name.removeprefix("step-")) for path in done)

    def hosts_of_roles(self, run_path: str, attempt: int) -> dict[str, str]:
        """Where Ray says that each role of an attempt was placed."""
        events = self.read(f"{run_path}/attempts/{attempt:02d}/events.jsonl")
        (placed,) = [event["roles"] for event in events if event["kind"] == "roles"]
        return {role["role"]: role["host"] for role in placed}


@pytest.fixture(scope="module")
def four_nodes() -> Iterator[Lab]:
    """A lab with one node more than the run needs."""
    if reason := why_not():
        pytest.skip(reason)
    lab = Lab(compute_nodes=4).start()
    yield lab
    lab.stop()


@pytest.fixture
def workstation(four_nodes: Lab, tmp_path: Path) -> Workstation:
    return Workstation(four_nodes, tmp_path)


def test_a_run_on_three_hosts_is_watched_dies_with_one_and_goes_on_elsewhere(workstation: Workstation) -> None:
    lab = workstation.lab
    workstation.rltui("launch", *LAYOUT, *SETTINGS, "--cluster", "lab")
    eventually(lambda: workstation.step() > 25, "the 25th step", 400)
    run = workstation.only_run()
    assert (run["state"], run["job"]["nodes"]) == ("running", ["node1", "node2", "node3"])

    shown = workstation.show(run["run_id"])
    assert [(host["host"], len(host["gpus"])) for host in shown["hosts"]] == [(f"node{n}", 4) for n in (1, 2, 3)]
    assert all(host["processes"] for host in shown["hosts"])
    assert len(shown["metrics"]["steps"]) > 20
    placed = workstation.hosts_of_roles(run["path"], 1)
    assert placed.keys() == {"learner 0", "learner 1", "engine 0"}
    assert set(placed.values()) == {"node1", "node2", "node3"}

    lab.crash("node2")
    eventually(lambda: workstation.only_run()["state"] == "failed", "the end of the run", 240)
    # the run says that it failed before Slurm has done with the job
    eventually(lambda: workstation.only_run()["job"]["word"] == "NODE_FAIL", "the end of the job")
    dead = workstation.only_run()
    assert "node" in dead["scheduler_says"]
    saved = workstation.newest_checkpoint(run["path"])
    assert saved >= 20

    lab.boot("node2")  # back, and to be kept away from all the same
    steps = saved + 10
    workstation.rltui("resubmit", run["run_id"], "--exclude", "node2", f"train.steps={steps}", "-y")
    eventually(lambda: workstation.only_run()["end"], "the end of the second attempt", 400)
    again = workstation.only_run()
    assert (again["run_id"], again["attempt"], again["state"]) == (run["run_id"], 2, "finished")
    metrics = workstation.read(f"{run['path']}/attempts/02/metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(saved + 1, steps + 1))
    assert set(workstation.hosts_of_roles(run["path"], 2).values()) == {"node1", "node3", "node4"}
    for node in lab.spec.compute:
        assert lab.exec(node, ["pgrep", "-u", "alice", "-f", "ray|rltui"], check=False).stdout == ""
