"""``rltui render``: the script on stdout, the findings on stderr."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rltui.cli.main import main

PRESET = "open-instruct/grpo-7b-2x4-tp1"


def test_the_script_is_all_of_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "local/grpo-tiny", "slurm.time=01:00:00"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("#!/bin/bash\n#SBATCH --job-name=grpo-tiny-UUID\n")
    assert printed.out.endswith("--lead-s 600\n")
    assert "--time=01:00:00" in printed.out
    assert printed.err == ""
    assert subprocess.run(["bash", "-n"], input=printed.out, text=True).returncode == 0


def test_findings_go_to_stderr_and_errors_to_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "local/grpo-tiny", "roles.rollout.engines=9"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("#!/bin/bash\n")
    assert "P101" in printed.err
    assert main(["render", "no-such-layout"]) == 2
    assert capsys.readouterr().out == ""


def test_the_clusters_profile_fills_in(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = Path.home() / ".config" / "rltui"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "clusters.yaml"
    file.write_text("big:\n  scheduler: slurm\n  partition: long\n  gres: gpu:h100\n  gpus_per_node: 4\n")
    try:
        assert main(["render", PRESET, "--cluster", "big", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["schema"] == 1
        assert answer["cluster"] == "big"
        assert "#SBATCH --partition=long\n" in answer["script"]
        assert "#SBATCH --gres=gpu:h100:4\n" in answer["script"]
        assert main(["render", PRESET, "--cluster", "bog"]) == 2
        assert "Did you mean 'big'?" in capsys.readouterr().err
    finally:
        file.unlink()


def test_the_job_around_another_systems_script_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/bash\n#SBATCH --time=2:00:00\npython3 -m verl.trainer.main_ppo trainer.nnodes=2 $@\n")
    asked = ["render", str(script), "--nodes", "2", "--gpus-per-node", "8"]
    assert main(asked) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("#!/bin/bash\n#SBATCH --job-name=run-UUID\n")
    assert "#SBATCH --nodes=2" in printed.out
    assert "#SBATCH --time=2:00:00" in printed.out
    assert subprocess.run(["bash", "-n"], input=printed.out, text=True).returncode == 0
    assert "RAY_ADDRESS is a Ray cluster of all 2" in printed.err
    assert main([*asked, "--json", "slurm.partition=big"]) == 0
    assert "--partition=big" in json.loads(capsys.readouterr().out)["script"]
