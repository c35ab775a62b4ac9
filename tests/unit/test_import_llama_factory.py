"""LLaMA-Factory's command and programs, and what counts their processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

from rltui.importers.read import read_facts

CONFIG = "model_name_or_path: Qwen/Qwen3-4B\nstage: sft\nfinetuning_type: full\nray_num_workers: 4\n"
FLAGS = "--stage sft --finetuning_type lora --model_name_or_path Qwen/Qwen3-4B --learning_rate 1e-4"


@pytest.mark.parametrize(
    ("script", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train sft.yaml", 2),
        ("CUDA_VISIBLE_DEVICES=0,1 USE_V1=1 llamafactory-cli sft sft.yaml", 2),
        ("USE_RAY=1 llamafactory-cli train sft.yaml", 4),
        ("USE_RAY=1 llamafactory-cli train sft.yaml ray_num_workers=2", 2),
        ("CUDA_VISIBLE_DEVICES=0,1,2,3 USE_KT=1 llamafactory-cli train sft.yaml", 1),
        (f"deepspeed --num_gpus 8 src/train.py {FLAGS}", 8),
        ("torchrun --nnodes 2 --nproc_per_node 8 src/llamafactory/launcher.py sft.yaml", 16),
        ("accelerate launch --num_processes 2 src/train.py sft.yaml", 2),
        (f"CUDA_VISIBLE_DEVICES=0 python src/train_bash.py {FLAGS}", 1),
    ],
)
def test_processes_are_counted_as_the_way_it_is_started_counts_them(tmp_path: Path, script: str, gpus: int) -> None:
    (tmp_path / "sft.yaml").write_text(CONFIG)
    facts, _ = read_facts(script + "\n", tmp_path / "run.sh")
    assert (facts.dialect, facts.algorithm) == ("llama-factory", "sft of LLaMA-Factory")
    assert (facts.trainer_gpus, facts.rollout_gpus, facts.needed_gpus) == (gpus, 0, gpus)


def test_words_behind_the_file_go_over_it(tmp_path: Path) -> None:
    (tmp_path / "sft.yaml").write_text(CONFIG)
    facts, _ = read_facts("llamafactory-cli train sft.yaml stage=dpo learning_rate=1e-5\n", tmp_path / "run.sh")
    assert facts.algorithm == "dpo of LLaMA-Factory"
    assert facts.source is not None
    assert facts.source.number("learning_rate") == 1e-5


def test_a_program_of_the_same_name_with_other_arguments_is_somebody_elses(tmp_path: Path) -> None:
    found = read(
        tmp_path, "torchrun --nproc_per_node 4 src/train.py --num_generations 8 --use_vllm --vllm_mode colocate\n"
    )
    assert found.dialect == "trl"
    assert counts(found)[2] == 4
