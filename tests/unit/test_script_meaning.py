"""Words behind a script's name: what its command means with them, and words that it does not heed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs
from test_scripts import SLURM, prepared

from rltui.cli.auto import policy_of_words
from rltui.cluster.relay_client import RelayClient
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.service.resubmit import changed
from rltui.service.script_asks import Reading, meaning_of, read_again, with_arguments
from rltui.service.script_changes import changed_script

VERL = """#!/bin/bash
#SBATCH --nodes=2 --gpus-per-node=8
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen3-8B \\
    data.train_batch_size=128 data.max_prompt_length=1024 data.max_response_length=4096 \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 actor_rollout_ref.rollout.n=8 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.8 trainer.nnodes=2 trainer.n_gpus_per_node=8 {behind}
"""
UTILIZATION = "actor_rollout_ref.rollout.gpu_memory_utilization"


def reading(folder: Path, overrides: list[str], behind: str = '"$@"') -> Reading:
    text = VERL.format(behind=behind)
    before = prepared(folder, text).job
    return read_again(text, before, changed_script(before, overrides), overrides)


@pytest.mark.parametrize("word", [f"{UTILIZATION}=0.4", "roles.rollout.memory_utilization=0.4"])
def test_a_change_says_what_the_command_then_means(tmp_path: Path, word: str) -> None:
    found = reading(tmp_path, [word])
    assert found.lines == ("- roles.rollout.memory_utilization: 0.8", "+ roles.rollout.memory_utilization: 0.4")
    assert not found.findings


def test_a_change_that_breaks_the_batch_is_warned_of(tmp_path: Path) -> None:
    found = reading(tmp_path, ["actor_rollout_ref.actor.ppo_mini_batch_size=256"])
    assert any("ppo_mini_batch_size" in one.message for one in found.findings), found.findings


@pytest.mark.parametrize("word", [f"{UTILIZATION}=0.4", "roles.rollout.memory_utilization=0.4"])
def test_a_change_that_the_command_does_not_heed_is_refused(tmp_path: Path, word: str) -> None:
    with pytest.raises(UsageError, match=r"would change nothing: the command still means .*=0\.8"):
        reading(tmp_path, [word], f'"$@" {UTILIZATION}=0.8')
    assert not reading(tmp_path, [f"{UTILIZATION}=0.8"]).lines  # it is so already


@pytest.mark.parametrize("value", ["@x", "[a", "2026-13-01"])
def test_a_value_that_is_no_yaml_is_text(tmp_path: Path, value: str) -> None:
    assert reading(tmp_path, [f"{UTILIZATION}={value}"]).job.words[-1] == f"{UTILIZATION}={value}"
    with pytest.raises(UsageError, match="Expected `int"):
        reading(tmp_path, [f"slurm.signal_lead_s={value}"])
    with pytest.raises(UsageError, match="Expected `int"):
        policy_of_words([f"max_restarts={value}"])


def test_more_gpus_than_there_are_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"With trainer\.nnodes=4 its roles need 32 GPUs, and 16 are asked for"):
        reading(tmp_path, ["trainer.nnodes=4"])
    assert reading(tmp_path, ["trainer.nnodes=1"]).job.needed_gpus == 8


def test_launch_reads_the_words_behind_the_script_too(tmp_path: Path) -> None:
    found = prepared(tmp_path, VERL.format(behind='"$@"'), SLURM, words=("trainer.nnodes=4",))
    assert found.job.needed_gpus == 32
    assert found.problems == ("its roles need 32 GPUs, and 16 are asked for.",)


@pytest.mark.parametrize("word", ["$(touch never)", "a'b", "; exit 1", "x\ny"])
def test_hostile_words_are_words_and_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.chdir(tmp_path)
    found = prepared(tmp_path, VERL.format(behind='"$@"'), SLURM, words=(f"{UTILIZATION}=0.3", word))
    report = meaning_of(found.text.decode(), found.job).report
    assert report is not None
    assert report.loaded is not None
    assert report.loaded.layout.roles.rollout is not None
    assert report.loaded.layout.roles.rollout.memory_utilization == 0.3
    assert not (tmp_path / "never").exists()


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    text = with_arguments("#!/bin/sh\ntrain\n", tmp_path / "run.sh", ["a", "b c"])
    assert text == "set -- a 'b c' #!/bin/sh\ntrain\n"
    assert with_arguments("train\n", tmp_path / "run.sh", ["a"]) == "set -- a; train\n"
    assert with_arguments("import os\n", tmp_path / "train.py", ["a"]) == "import os\n"


def test_that_the_next_attempt_keeps_away_from_a_node_is_among_the_words_whose_origin_is_kept(
    tmp_path: Path, client: RelayClient
) -> None:
    found = prepared(tmp_path)
    attempt = tmp_path / "attempts" / "01"
    attempt.mkdir(parents=True)
    slurm = structs.replace(found.job.slurm, exclude=["n1"])
    job = structs.replace(found.job, script="script.sh", slurm=slurm)
    attempt.joinpath("script.sh").write_bytes(found.text)
    attempt.joinpath(rundir.SCRIPT_RUN).write_bytes(msgspec.json.encode(job))
    context: Any = SimpleNamespace(cluster=SimpleNamespace(client=client), require_own=lambda _: None)
    run: Any = SimpleNamespace(run_id="r", path=str(tmp_path), attempt=1, archived=None)
    change = changed(context, run, ["slurm.time=8:00:00"], ["n7"])
    assert change.words == ("slurm.time=8:00:00", "slurm.exclude=[n1, n7]")
