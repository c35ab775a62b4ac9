"""A user's machine beside the lab, for tests of whole runs over SSH."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from json_lines import records
from slurm_attempts import python_forked_by_server
from slurm_support import profile_file
from verbs import rltui

from tiny_model import tiny_model

if TYPE_CHECKING:
    from lab import Lab

ROOT = Path(__file__).parents[2]
FEW_ANSWERS = ("train.prompts_per_step=4", "train.samples_per_prompt=4", "grpo.filter_zero_std=false")
"""A step of half the CPU seconds, for runs in which nobody looks at what is learned."""
STAGES = "runs/*/attempts/*/stage.json"


def give_model(lab: Lab) -> None:
    """Put the tiny model into alice's new home: a trainer that has to make it takes 7 CPU seconds more."""
    made = tiny_model()
    owner = os.stat(home := Path(lab.folder, "home/alice"))
    shutil.copytree(made, home / ".cache/rltui/models" / made.name)
    for path in (home / ".cache").rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid)
    os.chown(home / ".cache", owner.st_uid, owner.st_gid)


def python_that_forks(lab: Lab) -> str:
    """Python on the nodes whose Ray forks the roles of layouts, whose tiny model is there."""
    give_model(lab)
    return python_forked_by_server(lab)


class Workstation:
    """A user's machine outside the cluster: rltui knows the lab there as an SSH host, with ``more`` in its profile.

    Its jobs' Ray forks roles, but where another ``python`` is given.
    """

    def __init__(self, lab: Lab, folder: Path, *more: str, python: str = "") -> None:
        self.lab = lab
        (folder / "config").mkdir()
        (folder / "config/clusters.yaml").write_text(profile_file(python or python_that_forks(lab), *more))
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "RLTUI_CONFIG_DIR": str(folder / "config"),
            "RLTUI_STATE_DIR": str(folder / "state"),
            "RLTUI_SSH_CONFIG": str(lab.ssh_settings().config),
        }

    def rltui(self, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a verb that has to exit with one of ``codes``; returns what it printed."""
        done = rltui(words, ROOT, self._environment, codes=codes)
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
        return records(self.lab.exec("login", ["cat", path]).stdout)

    @property
    def home(self) -> Path:
        """The directory of the one run, as this machine sees it."""
        (found,) = Path(self.lab.folder).glob("home/alice/runs/grpo-*")
        return found

    @property
    def attempt(self) -> int:
        """The number of the newest attempt of the one run."""
        return max(int(path.name) for path in self.home.glob("attempts/[0-9]*"))

    def lines(self, name: str, attempt: int) -> list[dict[str, Any]]:
        """The records of a file of an attempt of the one run; none where it is not there."""
        path = self.home / f"attempts/{attempt:02d}" / name
        return records(path.read_text()) if path.exists() else []

    def says(self, verb: str, run: str, *words: str) -> dict[str, Any]:
        """What a verb says of the run."""
        return dict(json.loads(self.rltui(verb, run, *words, "--cluster", "lab", "--json", codes=(0, 1))))

    def newest_checkpoint(self, run_path: str) -> int:
        """The step of the newest checkpoint that is complete; 0: none is."""
        done = self.lab.exec("login", ["find", f"{run_path}/checkpoints", "-name", "COMPLETE"]).stdout.splitlines()
        return max((int(Path(path).parent.name.removeprefix("step-")) for path in done), default=0)

    def hosts_of_roles(self, run_path: str, attempt: int) -> dict[str, str]:
        """Where Ray says that each role of an attempt was placed."""
        events = self.read(f"{run_path}/attempts/{attempt:02d}/events.jsonl")
        (placed,) = [event["roles"] for event in events if event["kind"] == "roles"]
        return {role["role"]: role["host"] for role in placed}
