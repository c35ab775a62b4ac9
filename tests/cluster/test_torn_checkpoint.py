"""A real run in hands-off mode whose newest checkpoint is damaged goes on from the one before; nothing is deleted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from json_lines import records
from test_local_cluster import NO_WANDB, Shell

from rltui.onnode import processes, rundir
from rltui.onnode.checkpoints import newest_checkpoint, step_of
from waiting import DEADLINE_S, eventually, slowness

pytestmark = [pytest.mark.trainers, pytest.mark.timeout(1800)]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    for uuid in shell.uuids():
        processes.end_all(uuid, grace_s=0.5)


def whole(run: Path) -> list[int]:
    """Steps of the complete checkpoints, the oldest first."""
    done = run.glob(f"checkpoints/*/{rundir.CHECKPOINT_COMPLETE}")
    return sorted(step for path in done if (step := step_of(path.parent.name)) is not None)


def decided(run: Path) -> list[dict[str, Any]]:
    file = run / rundir.DECISIONS
    return records(file.read_text()) if file.exists() else []


def stop_trainer(run: Path) -> int:
    """Stop the trainer, so that no newer checkpoint can come; its pid."""
    uuid = json.loads((run / "attempts/01" / rundir.JOB).read_text())["uuid"]
    (pid,) = [one.pid for one in processes.by_attempt(uuid) if "trainers.grpo" in processes.words_of(one.pid)]
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: (stat := processes.read_stat(pid)) and stat.state == "T", "a trainer that stands")
    return pid


def test_a_run_whose_newest_checkpoint_is_damaged_goes_on_from_the_one_before(shell: Shell) -> None:
    words = ("roles.learner.gpus=[1]", "train.steps=100000", "checkpoint.every=5", NO_WANDB)
    start_s = DEADLINE_S * slowness()  # of two starts: models are loaded by several processes at once
    shell.run("launch", "local/grpo-tiny", *words, "--auto")
    (run,) = shell.runs.glob("grpo-*")
    eventually(lambda: len(whole(run)) > 1, "two checkpoints", start_s)
    trainer = stop_trainer(run)
    *_, before, newest = whole(run)
    torn = Path(str(newest_checkpoint(str(run))))
    assert step_of(torn.name) == newest
    os.truncate(torn / "state.json", 9)
    os.kill(trainer, signal.SIGKILL)
    eventually(lambda: decided(run), "the decision on a killed trainer")
    eventually(lambda: decided(run)[1:], "the decision on a checkpoint that cannot be read")
    assert eventually(lambda: shell.steps(3), "a step without a person", start_s)[0] == before + 1
    _, second = decided(run)
    assert (second["decision"], second["cause"], second["set_aside"]) == ("restart", "ckpt_broken", torn.name)
    assert (torn.parent / f"{torn.name}-damaged" / rundir.CHECKPOINT_COMPLETE).is_file()
    journal = shell.json("journal", run.name)["actions"]
    assert [one["outcome"] for one in journal if one["action"] == "set-aside"] == ["done"]
    shell.run("cancel", run.name, "--yes")
