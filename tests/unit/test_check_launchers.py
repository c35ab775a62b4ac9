"""Options of Slurm and launchers that they refuse, and those on the wrong side of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.check.frameworks.spelling import table_of
from rltui.check.script import check_script_text

TRAINING = "accelerate launch --num_processes 4 train_grpo.py --num_generations 8 --per_device_train_batch_size 8"


def _found(text: str) -> list[tuple[str, str, str, int]]:
    report = check_script_text(text + "\n", Path("run.sh"))
    return [
        (one.code, one.key, one.message, one.line) for one in report.findings if one.code in ("F996", "F997", "F998")
    ]


@pytest.mark.parametrize(
    ("line", "key", "meant"),
    [
        ("#SBATCH --gpus_per_node=8", "gpus_per_node", "--gpus-per-node is one"),
        ("#SBATCH --ntask-per-node=8", "ntask-per-node", "--ntasks-per-node is one"),
        ("#SBATCH --cpu-per-task=8", "cpu-per-task", "--cpus-per-task is one"),
        ("#SBATCH --overlap", "overlap", "it is one of srun"),
    ],
)
def test_what_sbatch_refuses_is_named_at_its_line(line: str, key: str, meant: str) -> None:
    ((code, found, message, at),) = _found(f"#!/bin/bash\n#SBATCH --nodes=1\n{line}\n{TRAINING}")
    assert (code, found, at) == ("F996", key, 3)
    assert meant in message


@pytest.mark.parametrize(
    "line",
    [
        "#SBATCH --gpus-per-node=8 --mem=0 --exclusive --container-image=x --time 1:00:00 -p gpu",
        "#SBATCH --gpus-per-n=8",  # getopt takes the beginning of a name
        "#SBATCH --nvmps",  # a plugin of a site
    ],
)
def test_sbatchs_own_options_their_beginnings_and_plugins_are_none_of_it(line: str) -> None:
    assert _found(f"#!/bin/bash\n{line}\n{TRAINING}") == []


@pytest.mark.parametrize(
    ("launcher", "code", "key"),
    [
        ("torchrun --nproc_per_nodes 4", "F996", "nproc_per_nodes"),
        ("accelerate launch --num_process 4", None, ""),  # argparse takes the beginning of a name
        ("accelerate launch --num_procesess 4", "F996", "num_procesess"),
        ("deepspeed --num_gpu 4", None, ""),
        ("torchrun --nproc-per-node 4 --rdzv-backend c10d", None, ""),
        ("torchrun --nproc_per_node 4 --use_vllm --learning_rate 1e-6", "F997", "learning_rate"),
        ("torchrun --nproc_per_node 4 --max_steps 9", "F997", "max_steps"),
        ("accelerate launch --num_processes 4 --mixed_precision bf16", None, ""),
    ],
)
def test_what_a_launcher_refuses_is_named(launcher: str, code: str | None, key: str) -> None:
    found = _found(f"{launcher} train_grpo.py --num_generations 8 --output_dir x")
    assert ((code, key) in [(one, name) for one, name, _, _ in found]) if code else found == []


def test_a_launchers_option_behind_the_program_is_told() -> None:
    ((code, key, message, _),) = _found(
        "torchrun --nproc_per_node 4 train_grpo.py --num_generations 8 --rdzv_backend c10d"
    )
    assert (code, key) == ("F998", "rdzv_backend")
    assert "only torchrun knows it" in message
    assert _found("torchrun --nproc_per_node 4 main.py --rdzv_backend c10d") == []  # a program of somebody's own


def test_the_tables_have_what_their_programs_document() -> None:
    expected = {
        "sbatch": ("gpus-per-node", "ntasks-per-node", "wrap", "srun.overlap"),
        "accelerate": ("num_processes", "zero_stage", "config_file"),
        "deepspeed": ("num_gpus", "num_accelerators", "include"),
        "torchrun": ("nproc_per_node", "rdzv_endpoint", "use_env"),
    }
    for program, names in expected.items():
        assert set(names) <= table_of(program).sections[""]
