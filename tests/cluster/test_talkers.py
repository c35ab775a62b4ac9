"""Every dialect as a program on Slurm: launched, watched, fixed, explained, and gone on with by its own words."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from test_script_runs import OUT_OF_MEMORY, PROFILE, TALKERS, User

from rltui.dialects.load import load_dialects
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = [pytest.mark.trainers]
WHERE = ("--cluster", "lab")


class Spoken(Struct, frozen=True):
    """A system's command, and what a user of it must see.

    Attributes:
        command: What the script runs; ``{python}`` and ``{talkers}`` are filled in.
        steps: The option for the last step.
        resume: The words that go on, as the preview says them; empty: by itself.
        knows_checkpoints: Whether the step it goes on from can be told.
        values: Metrics of a step by our names, the step's number aside.
        reward: The reward of a step is this times its number.
    """

    command: str
    steps: str
    resume: str = ""
    knows_checkpoints: bool = True
    values: dict[str, float] = {}
    reward: float = 1 / 8


SPOKEN = {
    "verl": Spoken(
        "{python} -m verl.trainer.main_ppo trainer.default_local_dir=$PWD/checkpoints trainer.resume_mode=disable "
        "trainer.total_training_steps=100000",
        "trainer.total_training_steps={}",
        "trainer.resume_mode=auto",
        values={"time/total": 0.25, "loss": -0.5},
        reward=1 / 1000,
    ),
    "slime": Spoken(
        "{python} {talkers}/slime/train.py --rollout-num-gpus 4 --actor-num-gpus-per-node 4 --save $PWD/checkpoints",
        "--num-rollout={}",
        "--load=",
        values={"time/total": 4.5, "time/generate": 3.0, "loss": -0.5, "response_length": 801.5},
    ),
    "prime-rl": Spoken(
        "PATH={talkers}/bin:$PATH rl @ rl.toml --output-dir $PWD/outputs --run.name mine",
        "--max-steps={}",
        "--resume",
        values={"time/total": 4.5, "loss": -1 / 3, "entropy": 0.5, "learner_memory_gib": 61.5},
    ),
    "open-instruct": Spoken(
        "{python} {talkers}/open_instruct/grpo_fast.py --checkpoint_state_dir $PWD/checkpoints",
        "--steps={}",
        values={"time/total": 4.5, "loss": -0.5},
    ),
    "nemo-rl": Spoken(
        "{python} {talkers}/nemo/examples/run_grpo_math.py checkpointing.checkpoint_dir=$PWD/checkpoints",
        "grpo.max_num_steps={}",
        values={"time/total": 4.5, "time/train": 1.25, "time/generate": 3.0, "response_length": 801.5, "loss": -0.5},
    ),
    "skyrl": Spoken(
        "{python} -m skyrl_train.entrypoints.main_base trainer.ckpt_path=$PWD/checkpoints trainer.resume_mode=none",
        "trainer.steps={}",
        "trainer.resume_mode=latest",
        values={"time/total": 4.5, "grad_norm": 0.125},
    ),
    "openrlhf": Spoken(
        "{python} -m openrlhf.cli.train_ppo_ray --actor.num_gpus_per_node 8 --ckpt.path $PWD/checkpoints",
        "--steps={}",
        "--ckpt.load_enable",
        values={"time/total": 4.5, "loss": -0.5, "grad_norm": 0.25},
    ),
    "openrlhf-flat": Spoken(
        "{python} -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 8 --ckpt_path $PWD/checkpoints",
        "--steps={}",
        "--load_checkpoint",
        values={"time/total": 4.5, "loss": -0.5, "grad_norm": 0.25},
    ),
    "areal": Spoken(
        "{python} -m areal.launcher.local train.py --config grpo.yaml cluster.fileroot=$PWD/checkpoints",
        "steps={}",
        "recover.mode=on",
        knows_checkpoints=False,
        values={"time/generate": 3.0},
    ),
}


FIXED = ("verl", "prime-rl", "areal")
"""Systems whose runs are ended and fixed before they fail: one goes on by its words, one by an option, one blindly."""


def test_every_dialect_has_a_program_that_speaks_it() -> None:
    assert set(SPOKEN) | {"trl", "generic"} == set(load_dialects())  # TRL itself speaks, and so does any program


@pytest.mark.slow
def test_runs_of_all_systems_are_watched_fixed_explained_and_gone_on_with_in_their_own_words(
    slurm_cluster: Lab, tmp_path: Path
) -> None:
    user = Talks(slurm_cluster, tmp_path)
    for name, spoken in SPOKEN.items():
        user.launch(name, spoken)
    user.await_all("a checkpoint", lambda run: (run["stage"]["step"] or 0) > 7)
    for run in user.runs(*WHERE):
        assert (run["algorithm"], run["state"]) == (run["name"], "running")
        assert run["stage"]["stage"] in ("training", "saving")
        user.see_metrics(run, SPOKEN[run["name"]])
    told = json.loads(user.rltui("queues", user.ids["open-instruct"], *WHERE, "--json"))
    assert {"name": "Prompt Queue", "current": 3, "maxsize": 32} in told["status"]["queues"]

    user.plant("standstill", "", FIXED)
    for name in FIXED:
        eventually(lambda name=name: user.causes(name) == ["run_stalled"], f"the verdict on {name}")
        fixed = user.rltui("fix", user.ids[name], "--yes", *WHERE)
        assert "was not the run's own doing" in fixed
        assert SPOKEN[name].resume in fixed, name
    user.await_all("a step of the next attempt", lambda run: run["attempt"] == attempts(run) and run["stage"]["step"])
    for run in user.runs(*WHERE):
        assert not SPOKEN[run["name"]].knows_checkpoints or run["stage"]["step"] > 5, "it went on from its checkpoint"

    user.plant("out-of-memory", OUT_OF_MEMORY, SPOKEN)
    user.await_all("the end", lambda run: run["end"])
    for run in user.runs(*WHERE):
        assert (run["state"], run["end"]["exit_code"]) == ("failed", 1)
        why = user.rltui("why", run["run_id"], *WHERE, expect=1)
        assert "memory" in why.splitlines()[0]
        assert "roles." not in why
        own = load_dialects()[run["name"]].words.get("roles.learner.micro_batch")
        assert own is None or f"{own}=2" in why  # as the system itself calls it, in its command's numbers
        words = _gone_on(user, SPOKEN[run["name"]], run)
        user.rltui("resubmit", run["run_id"], *WHERE, "--", *words)
    user.await_all(
        "the last attempt's end", lambda run: (run["attempt"], run["state"]) == (attempts(run) + 1, "finished")
    )


def attempts(run: dict[str, Any]) -> int:
    """How many a run has had when it runs out of memory."""
    return 1 + (run["name"] in FIXED)


class Talks(User):
    """One whose scripts of all systems run at once on a cluster, each in a folder of its own there."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        super().__init__(folder, RLTUI_SSH_CONFIG=str(lab.ssh_settings().config), RLTUI_DEADLINE_SCALE="0.02")
        (folder / "config").mkdir()
        (folder / "config/clusters.yaml").write_text(PROFILE)
        self._lab = lab
        self._home = lab.exec("login", ["pwd"]).stdout.strip()
        self.ids: dict[str, str] = {}

    def launch(self, name: str, spoken: Spoken) -> None:
        """Launch the program of a system, whose run has the system's name."""
        command = spoken.command.format(python=sys.executable, talkers=TALKERS)
        batch = load_dialects()[name].words.get("roles.learner.micro_batch", "")
        batch = batch and (f"{batch} 4" if batch.startswith("--") else f"{batch}=4")
        (self.folder / f"{name}.sh").write_text(f'#!/bin/bash\nexport PYTHONPATH={TALKERS}\n{command} {batch} "$@"\n')
        self._lab.exec("login", ["mkdir", f"{self._home}/{name}"])
        where = ("--folder", f"{self._home}/{name}", "--gpus-per-node", "1", "--anyway", *WHERE)
        told = self.rltui("launch", f"{name}.sh", "--nodes", "1", "--on-first-node", *where, "--json")
        self.ids[name] = json.loads(told.partition("\n}")[0] + "}")["run_id"]

    def await_all(self, what: str, condition: Callable[[dict[str, Any]], object]) -> None:
        """Wait until a condition holds for every run."""
        eventually(lambda: all(map(condition, self.runs(*WHERE))), f"{what} of all")

    def plant(self, name: str, text: str, folders: Iterable[str]) -> None:
        """Write a file into the folders of runs."""
        for folder in folders:
            path = f"{self._home}/{folder}/{name}"
            # in one step: a talker that finds half of it would say half of it
            self._lab.exec("login", ["sh", "-c", 'cat >"$0.new" && mv "$0.new" "$0"', path], input=text)

    def causes(self, name: str) -> list[str]:
        """What `why` says of a run, first to last."""
        return [one["id"] for one in self.diagnoses(self.ids[name], *WHERE)]

    def see_metrics(self, run: dict[str, Any], spoken: Spoken) -> None:
        """The metrics of a run are those that its program tells."""
        shown = json.loads(self.rltui("show", run["run_id"], *WHERE, "--json"))["run"]["metrics"]
        steps, series = shown["steps"], shown["series"]
        known = {step: reward for step, reward in zip(steps, series["reward"], strict=True) if reward is not None}
        assert known == pytest.approx({step: step * spoken.reward for step in known}, abs=1e-4)
        assert len(known) > 5
        assert {key: series[key][3] for key in spoken.values} == pytest.approx(spoken.values)


def _gone_on(user: User, spoken: Spoken, ended: dict[str, Any]) -> list[str]:
    """What the preview of the next attempt says, and the words that let it make three more steps."""
    preview = user.rltui("resubmit", ended["run_id"], *WHERE, "--dry-run")
    if not spoken.knows_checkpoints:
        assert spoken.resume in preview
        return [spoken.steps.format(ended["stage"]["step"] + 3)]
    told = re.search(r"goes on from step (\d+)(.*)", preview)
    assert told is not None, preview
    # the step that a run shows may be one ahead of what its trainer has done
    assert int(told[1]) in {step // 5 * 5 for step in (ended["stage"]["step"], ended["stage"]["step"] - 1)}
    assert spoken.resume in told[2]
    return [spoken.steps.format(int(told[1]) + 3)]
