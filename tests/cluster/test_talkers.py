"""Every dialect as a program: launched, watched, run out of memory, explained, and gone on with by its own words."""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from test_script_runs import TALKERS, User, end_attempts, eventually

from rltui.dialects.load import load_dialects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(120)]


class Spoken(Struct, frozen=True):
    """A system's command, and what a user of it must see.

    Attributes:
        command: What the script runs; ``{python}`` and ``{talkers}`` are filled in.
        steps: The option for the last step.
        resume: The words that go on, as the preview says them; empty: by itself.
        knows_checkpoints: Whether the step it goes on from can be told.
        values: Metrics of a step by our names, the step's number aside.
    """

    command: str
    steps: str
    resume: str = ""
    knows_checkpoints: bool = True
    values: dict[str, float] = {}


SPOKEN = {
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
OUT_OF_MEMORY = """Traceback (most recent call last):
  File "/opt/train/worker.py", line 812, in update_policy
    loss.backward()
  File "/opt/torch/_tensor.py", line 647, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 0 has a total capacity of 79.11 GiB of which
1.20 GiB is free. Process 1234 has 77.90 GiB memory in use.
"""


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    yield User(tmp_path)
    end_attempts(tmp_path)


def test_every_dialect_has_a_program_that_speaks_it() -> None:
    assert set(SPOKEN) | {"verl", "trl", "generic"} == set(load_dialects())  # test_script_runs has these


@pytest.mark.slow
@pytest.mark.parametrize("name", SPOKEN)
def test_a_run_is_watched_explained_and_gone_on_with_in_its_systems_own_words(user: User, name: str) -> None:
    spoken = SPOKEN[name]
    command = spoken.command.format(python=sys.executable, talkers=TALKERS)
    batch = load_dialects()[name].words.get("roles.learner.micro_batch", "")
    batch = batch and (f"{batch} 4" if batch.startswith("--") else f"{batch}=4")
    user.script.write_text(f'#!/bin/bash\nexport PYTHONPATH={TALKERS}\n{command} {batch} "$@"\n')
    user.rltui("launch", "run_verl.sh", "--gpus-per-node", "0")
    run = eventually(lambda: (found := user.only_run())["stage"]["step"] and found, "a step")
    assert (run["algorithm"], run["state"], run["stage"]["stage"]) == (name, "running", "training")
    eventually(lambda: user.only_run()["stage"]["step"] > 7, "the first checkpoint")
    shown = json.loads(user.rltui("show", run["run_id"], "--json"))["run"]["metrics"]
    steps, series = shown["steps"], shown["series"]
    known = {step: reward for step, reward in zip(steps, series["reward"], strict=True) if reward is not None}
    assert known == pytest.approx({step: step / 8 for step in known}, abs=1e-4)
    assert len(known) > 5
    assert {key: series[key][3] for key in spoken.values} == pytest.approx(spoken.values)

    (user.folder / "out-of-memory").write_text(OUT_OF_MEMORY)
    ended = eventually(lambda: (found := user.only_run())["end"] and found, "its end")
    assert (ended["state"], ended["end"]["exit_code"]) == ("failed", 1)
    why = user.rltui("why", run["run_id"], expect=1)
    assert "memory" in why.splitlines()[0]
    assert "roles." not in why
    own = load_dialects()[name].words.get("roles.learner.micro_batch")
    assert own is None or f"{own}=2" in why  # what to change, as the system itself calls it, in its command's numbers

    words = _gone_on(user, spoken, ended)
    user.rltui("resubmit", run["run_id"], "--wait", "--", *words)
    again = user.only_run()
    assert (again["attempt"], again["state"]) == (2, "finished")


def _gone_on(user: User, spoken: Spoken, ended: dict[str, Any]) -> list[str]:
    """What the preview of the next attempt says, and the words that let it make three more steps."""
    preview = user.rltui("resubmit", ended["run_id"], "--dry-run")
    if not spoken.knows_checkpoints:
        assert spoken.resume in preview
        return [spoken.steps.format(ended["stage"]["step"] + 3)]
    told = re.search(r"goes on from step (\d+)(.*)", preview)
    assert told is not None, preview
    # the step that a run shows may be one ahead of what its trainer has done
    assert int(told[1]) in {step // 5 * 5 for step in (ended["stage"]["step"], ended["stage"]["step"] - 1)}
    assert spoken.resume in told[2]
    return [spoken.steps.format(int(told[1]) + 3)]
