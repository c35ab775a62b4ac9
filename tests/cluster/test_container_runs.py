"""Runs in a container on a real Slurm: what is inside, what stays outside, and that nothing is left.

The runtimes are `lab/container_runtime`, of the interfaces of Apptainer, pyxis, Docker and Podman: only their image has
the trainers' python.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from slurm_attempts import FIND
from slurm_support import profile_file
from verbs import rltui
from workstation import FEW_ANSWERS, give_model

from rltui.onnode import rundir
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
INSIDE = "/opt/trainers/bin/python"
PROGRAMS = {"apptainer": "apptainer", "docker": "docker", "podman": "podman", "pyxis": "srun"}
LAYOUT = (
    "local/grpo-tiny", "hardware.nodes=2", "hardware.gpus_per_node=1", "roles.learner.gpus=[1]",
    "tracking.wandb=disabled",
)  # fmt: skip
SETTINGS = ("train.steps=100000", "checkpoint.every=5", "slurm.time=00:30:00", "slurm.requeue=false", *FEW_ANSWERS)
SCRIPT = f"""#!/bin/bash
#SBATCH --time=00:20:00
trap 'echo was told; exit 3' TERM
[ -x {INSIDE} ] && [ ! -e /var/log ] && echo "inside: $LAB_WORD, $PWD, $LAB_CONTAINER"
for step in $(seq 100000); do echo "step $step/100000 loss: 0.5"; sleep 0.2 & wait; done
"""
ON_EACH = f"""#!/bin/bash
[ -x {INSIDE} ] && echo "inside: $NODE_RANK of $NNODES, $LAB_CONTAINER"
"""
pytestmark = [pytest.mark.trainers, pytest.mark.slow]


class Workstation:
    """A user's machine outside the lab, and the runtime and image that its profile names."""

    def __init__(self, lab: Lab, folder: Path, runtime: str) -> None:
        self.lab, self.home, self.program = lab, Path(lab.folder, "home/alice"), PROGRAMS[runtime]
        # daemons are told names of images, not files
        image = "trainers.image" if runtime in {"docker", "podman"} else "~/trainers.image"
        profile = profile_file(
            INSIDE,
            "env: {LAB_WORD: from the profile, RAY_worker_niceness: '0'}",
            """setup_lines: ['export PATH="$HOME/bin:$PATH"']""",
            f"container: {{runtime: {runtime}, image: {image}, outer_python: /usr/bin/python3}}",
        )
        (folder / "clusters.yaml").write_text(profile)
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT), "RLTUI_CONFIG_DIR": str(folder)}
        self.environment |= {"RLTUI_STATE_DIR": str(folder), "RLTUI_SSH_CONFIG": str(lab.ssh_settings().config)}
        self._put(f"bin/{self.program}", Path(__file__).with_name("lab").joinpath("container_runtime").read_text())
        lab.exec("login", ["chmod", "755", f"bin/{self.program}"])
        content = {"/usr": "/usr", "/etc": "/etc", sys.prefix: "/opt/trainers"}
        if not sys.base_prefix.startswith("/usr"):
            content[os.path.realpath(sys.base_prefix)] = os.path.realpath(sys.base_prefix)
        self._put("trainers.image/content", "".join(f"{source} {target}\n" for source, target in content.items()))
        # what an image sets must not win over what the attempt needs
        self._put("trainers.image/environment", "PYTHONPATH=/nowhere\nRLTUI_ATTEMPT=image\nLAB_WORD=from the image\n")

    def _put(self, path: str, text: str) -> None:
        self.lab.exec("login", ["mkdir", "-p", os.path.dirname(path)])
        self.lab.exec("login", ["tee", path], input=text)

    def rltui(self, *words: str, code: int = 0) -> str:
        done = rltui(words, ROOT, self.environment, codes=(code,))
        return done.stdout + done.stderr

    def attempt(self) -> Path:
        (found,) = self.home.glob("runs/*/attempts/01")
        return found

    def read(self, name: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.attempt() / name).read_text()))
        except (OSError, ValueError):
            return {}

    def step(self) -> int:
        assert not self.read(rundir.END), self.told()
        return int(self.read(rundir.STAGE).get("step") or 0)

    def told(self) -> str:
        paths = [*self.attempt().glob("*.log"), *self.attempt().glob("slurm-*"), *self.attempt().glob("end.json")]
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in paths)

    def processes(self, uuid: str) -> dict[str, list[str]]:
        """What runs of the attempt, by node."""
        found = {
            node: self.lab.exec(node, ["/usr/bin/python3", "-c", FIND, uuid], user="root").stdout.splitlines()
            for node in self.lab.spec.compute
        }
        return {node: lines for node, lines in found.items() if lines}

    def left_in_tmp(self) -> list[str]:
        """Folders of ours in the nodes' own /tmp; torch's cache stays for the next attempt."""
        listed = [self.lab.exec(node, ["ls", "/tmp"]).stdout.split() for node in self.lab.spec.compute]
        return [name for names in listed for name in names if name.startswith("rltui")]


@pytest.fixture
def workstation(slurm_cluster: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Workstation:
    return Workstation(slurm_cluster, tmp_path, getattr(request, "param", "apptainer"))


def test_a_run_on_two_nodes_trains_in_the_container_and_leaves_nothing(workstation: Workstation) -> None:
    give_model(workstation.lab)
    workstation.rltui("launch", *LAYOUT, *SETTINGS, "--cluster", "lab")
    eventually(lambda: workstation.step() > 5, "the sixth step")
    uuid = workstation.read(rundir.JOB)["uuid"]
    running = workstation.processes(uuid)
    lines = [line.split(" ", 1)[1] for lines in running.values() for line in lines]
    assert len(running) == 2
    assert any(line.startswith(f"{INSIDE} -m trainers.grpo") for line in lines)
    assert any("raylet" in line for line in lines)
    assert all(line.startswith("/usr/bin/python3") for line in lines if "-m rltui.onnode" in line)
    versions = [node["versions"]["torch"] for node in workstation.read(rundir.PREFLIGHT)["nodes"].values()]
    assert len(versions) == 2  # which no python outside could tell
    eventually(lambda: len(list(workstation.attempt().glob("gpu-node*.jsonl"))) == 2, "samples of both nodes")
    workstation.rltui("cancel", workstation.attempt().parents[1].name, "--cluster", "lab", "--yes")
    eventually(lambda: workstation.read(rundir.END), "end.json")
    end = workstation.read(rundir.END)
    assert (end["outcome"], end.get("bad_nodes")) == ("cancelled", None), workstation.told()
    assert "SIGTERM: saving, then ending" in (workstation.attempt() / rundir.OUT_LOG).read_text()
    eventually(lambda: not workstation.processes(uuid), "that nothing runs")
    eventually(lambda: not workstation.left_in_tmp(), "that Ray's folders are gone")
    assert list(workstation.attempt().parents[1].glob("checkpoints/step-*/COMPLETE"))


@pytest.mark.parametrize("workstation", ["docker", "podman", "pyxis"], indirect=True)
def test_a_script_runs_inside_and_is_told_to_end(workstation: Workstation, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT)
    workstation.rltui("launch", str(script), "--cluster", "lab", "--gpus-per-node", "1")
    eventually(lambda: workstation.step() > 3, "the fourth step")
    log = workstation.attempt() / rundir.OUT_LOG
    assert f"inside: from the profile, /home/alice, trainers.image in {workstation.program}\n" in log.read_text()
    uuid = workstation.read(rundir.JOB)["uuid"]
    # to the driver alone: whatever reaches the script goes through the container's walls
    job = str(workstation.read(rundir.SLURM)["job_id"])
    workstation.lab.exec("login", ["scancel", "--batch", "--signal=TERM", job])
    eventually(lambda: workstation.read(rundir.END), "end.json")
    assert (workstation.read(rundir.END)["outcome"], "was told\n" in log.read_text()) == ("cancelled", True)
    eventually(lambda: not workstation.processes(uuid), "that nothing runs")


@pytest.mark.parametrize("workstation", ["pyxis"], indirect=True)
def test_a_script_on_each_node_is_inside_on_each(workstation: Workstation, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(ON_EACH)
    words = ("--nodes", "2", "--gpus-per-node", "1", "--on-each-node")
    workstation.rltui("launch", str(script), "--cluster", "lab", *words)
    eventually(lambda: workstation.read(rundir.END), "end.json")
    assert workstation.read(rundir.END)["outcome"] == "finished", workstation.told()
    said = (workstation.attempt() / rundir.OUT_LOG).read_text().splitlines()
    inside = sorted(line for line in said if line.startswith("inside"))
    assert inside == [f"inside: {rank} of 2, trainers.image in srun" for rank in (0, 1)]


def test_what_is_missing_is_said_before_the_queue_and_else_by_each_node(workstation: Workstation) -> None:
    gone = "slurm.container.image=/home/alice/gone.sif"
    said = workstation.rltui("launch", *LAYOUT, gone, "--cluster", "lab", code=1)
    assert "S634" in said
    assert "the image /home/alice/gone.sif is not there on the login node" in said
    doctor = workstation.rltui("doctor", "lab").split()
    assert doctor[doctor.index("container") + 1] == "apptainer,"
    workstation.rltui("launch", *LAYOUT, *SETTINGS, gone, "--cluster", "lab", "--unchecked")
    eventually(lambda: workstation.read(rundir.END), "end.json")
    end = workstation.read(rundir.END)
    assert set(end["bad_nodes"]) == {"node1", "node2"}
    assert "the image /home/alice/gone.sif is not there" in end["reason"]
