"""A script that was edited after its launch: what of it the next attempt takes, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs
from test_scripts import SLURM, VERL, prepared

from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.layout.presets import resolve
from rltui.onnode import rundir
from rltui.service.edited_script import Edited, edited, newer_words
from rltui.service.resubmit import changed, command
from rltui.service.scripts import Prepared

CLOSED = VERL.replace(' "$@"', "")
SMALLER = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"


def change(folder: Path, before: Prepared, text: str) -> Edited:
    path = folder / "new.sh"
    path.write_text(text)
    return edited(before.job, before.text, str(path), SLURM)


def test_what_the_script_says_anew_holds_and_else_what_the_launch_said(tmp_path: Path) -> None:
    before = prepared(tmp_path, CLOSED, settings=("slurm.partition=small", "slurm.time=1:00:00"))
    before = structs.replace(before, job=structs.replace(before.job, folder="/code"))
    found = change(tmp_path, before, VERL.replace("4:00:00", "8:00:00").replace("/data/ckpt", "/data/other"))
    assert (found.job.slurm.time, found.job.slurm.partition, found.job.folder) == ("8:00:00", "small", "/code")
    assert (found.job.checkpoints, found.job.passes_words) == ("/data/other", True)
    assert (found.job.name, found.job.source) == (before.job.name, str(tmp_path / "new.sh"))
    assert found.lines[:2] == ("- #SBATCH --time=4:00:00", "+ #SBATCH --time=8:00:00")


def test_gpus_that_only_the_launch_named_stay(tmp_path: Path) -> None:
    before = prepared(tmp_path, "#!/bin/bash\npython3 train.py\n", gpus_per_node=4)
    job = change(tmp_path, before, "#!/bin/bash\npython3 train.py --fast\n").job
    assert job.hardware == before.job.hardware
    job = change(tmp_path, before, "#!/bin/bash\n#SBATCH --nodes=2\npython3 train.py\n").job
    assert (job.hardware.nodes, job.hardware.gpus_per_node) == (2, 4)


def test_what_a_check_says_anew_is_told(tmp_path: Path) -> None:
    before = prepared(tmp_path, VERL)
    assert not change(tmp_path, before, VERL).findings
    odd = VERL.replace('"$@"', 'data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=16 "$@"')
    assert any("ppo_mini_batch_size" in one.message for one in change(tmp_path, before, odd).findings)


def test_words_that_would_be_lost_and_roles_without_gpus_are_refused(tmp_path: Path) -> None:
    before = prepared(tmp_path, VERL, words=("data.seed=3",))
    with pytest.raises(UsageError, match=r"data\.seed=3 would not reach the training"):
        change(tmp_path, before, CLOSED)
    with pytest.raises(UsageError, match="its roles need 32 GPUs, and 16 are asked for"):
        change(tmp_path, before, VERL.replace("trainer.nnodes=2", "trainer.nnodes=4"))
    with pytest.raises(UsageError, match="cannot be read"):
        edited(before.job, before.text, str(tmp_path / "none.sh"), SLURM)


def test_a_resubmit_says_that_the_script_has_changed_and_takes_it_if_asked(tmp_path: Path, client: RelayClient) -> None:
    found = prepared(tmp_path, CLOSED)
    assert newer_words(found.job, found.text) == ""
    attempt = tmp_path / "attempts" / "01"
    attempt.mkdir(parents=True)
    attempt.joinpath("script.sh").write_bytes(found.text)
    attempt.joinpath(rundir.SCRIPT_RUN).write_bytes(msgspec.json.encode(structs.replace(found.job, checkpoints="")))
    cluster = SimpleNamespace(client=client, profile=SLURM)
    context: Any = SimpleNamespace(cluster=cluster, require_own=lambda _: None)
    run: Any = SimpleNamespace(run_id="r", path=str(tmp_path), attempt=1, archived=None, is_live=False)
    source = tmp_path / "run.sh"
    source.write_text(VERL)
    same = changed(context, run, [], [])
    assert same.text == found.text
    assert f"--script {source} takes it" in same.start
    with pytest.raises(UsageError, match="does not hand its arguments on"):
        changed(context, run, [f"{SMALLER}=2"], [])
    new = changed(context, run, [f"{SMALLER}=2"], [], str(source))
    assert new.text == VERL.encode()
    assert isinstance(new.layout, type(found.job))
    assert new.layout.words[0] == f"{SMALLER}=2"
    assert "--script" not in new.start
    assert command(run, [], [], new.script) == f"rltui resubmit r --script {source}"


def test_a_layout_is_no_script(tmp_path: Path, client: RelayClient) -> None:
    attempt = tmp_path / "attempts" / "01"
    attempt.mkdir(parents=True)
    attempt.joinpath(rundir.LAYOUT).write_text(resolve("local/grpo-tiny").read_text())
    context: Any = SimpleNamespace(cluster=SimpleNamespace(client=client, profile=SLURM), require_own=lambda _: None)
    run: Any = SimpleNamespace(run_id="r", path=str(tmp_path), attempt=1, archived=None, is_live=False)
    with pytest.raises(UsageError, match="a run of a layout, not of a script"):
        changed(context, run, [], [], str(tmp_path / "run.sh"))
