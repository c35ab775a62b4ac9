"""TRL itself, its script unchanged, over SSH on two nodes; test_script_runs.py has how it goes on."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from test_script_runs import PROFILE, TRL, User
from workstation import give_model

from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from lab import Lab

pytestmark = [pytest.mark.trainers, pytest.mark.slow]

SCRIPT = f"""#!/bin/bash
#SBATCH --time=00:20:00
export HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
{sys.executable} -m torch.distributed.run --nproc_per_node 1 train.py "$@"
"""
WHERE = ("--cluster", "lab")

NUMBERS = {"reward", "loss", "time/total"}


def test_trl_trains_on_two_nodes(slurm_cluster: Lab, tmp_path: Path) -> None:
    pytest.importorskip("trl")
    user = User(tmp_path, RLTUI_SSH_CONFIG=str(slurm_cluster.ssh_settings().config))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/clusters.yaml").write_text(PROFILE)
    give_model(slurm_cluster)
    folder = slurm_cluster.exec("login", ["pwd"]).stdout.strip()
    script = TRL.replace('["wandb"]', "[]").replace('"max_steps"', '"per_device_train_batch_size": 64, "max_steps"')
    slurm_cluster.exec("login", ["tee", f"{folder}/train.py"], input=script)
    (tmp_path / "train.sh").write_text(SCRIPT)

    words = ("--nodes", "2", "--gpus-per-node", "1", "--folder", folder, "--dialect", "trl", *WHERE)
    assert "started on each node" in user.rltui("launch", "--script", "train.sh", *words)
    run = eventually(lambda: (found := user.only_run(*WHERE))["stage"]["step"] and found, "a step")
    assert (run["algorithm"], run["state"], run["job"]["nodes"]) == ("trl", "running", ["node1", "node2"])
    eventually(lambda: _saved(slurm_cluster, folder) >= 10, "the tenth step's checkpoint")
    look = ("show", run["run_id"], *WHERE, "--json")
    shown = eventually(
        # a step and its checkpoint are seen in the output and on the disk, its numbers once the node has read them
        lambda: (found := json.loads(user.rltui(*look))["run"])["metrics"]["latest"].keys() >= NUMBERS and found,
        "the numbers of a step",
    )
    assert sorted(host["host"] for host in shown["hosts"]) == ["node1", "node2"]

    user.rltui("cancel", run["run_id"], *WHERE, "--yes")
    assert user.only_run(*WHERE)["state"] == "cancelled"


def _saved(lab: Lab, folder: str) -> int:
    """Step of the newest checkpoint that is whole."""
    done = lab.exec("login", ["sh", "-c", f"ls -d {folder}/out/checkpoint-*/trainer_state.json 2>/dev/null || true"])
    return max((int(line.split("checkpoint-")[1].split("/")[0]) for line in done.stdout.split()), default=0)
