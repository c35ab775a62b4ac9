"""Who generates where a script does not say it: TRL by default, its engine on the next GPU, PPO without Ray."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

ROWS = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 8"
FIVE = "CUDA_VISIBLE_DEVICES=0,1,2,3,4 torchrun --nproc_per_node=4 grpo.py --use_vllm true"
TOGETHER = "deepspeed {} --module openrlhf.cli.train_ppo --pretrain m --reward_pretrain r --rollout_batch_size 64\n"


@pytest.mark.parametrize("name", ["num_generations 8", "max_completion_length 512", "max_prompt_length 512"])
def test_a_program_that_takes_trls_arguments_has_its_default(tmp_path: Path, name: str) -> None:
    imported = read(tmp_path, f"torchrun --nproc_per_node=8 src/mine/grpo.py {ROWS} --{name}\n")
    assert counts(imported) == (8, 8, 8, 0, None, None)
    assert imported.layout is not None
    assert imported.layout["roles"]["rollout"]["engine"] == "hf"


def test_the_default_counts_behind_a_file_that_is_there_only(tmp_path: Path) -> None:
    line = f"accelerate launch --num_processes 4 grpo.py {ROWS} --num_generations 8 --config one.yaml\n"
    assert read(tmp_path, line).rollout_gpus is None
    (tmp_path / "one.yaml").write_text("learning_rate: 1.0e-6\nmax_steps: -1\n")
    imported = read(tmp_path, line)
    assert counts(imported) == (4, 4, 4, 0, None, None)
    assert imported.layout is not None
    assert imported.layout["train"]["steps"] > 0, "-1 is TRL's word for not set"


@pytest.mark.parametrize(
    ("line", "rollout"),
    [
        (FIVE, 1),
        (FIVE.replace("0,1,2,3,4", "0,1,2,3"), None),
        (FIVE.replace("0,1,2,3,4", "0,1,2,3,4,5"), None),
        ("torchrun --nproc_per_node=4 grpo.py --use_vllm true --vllm_device auto", 1),
        ("torchrun --nproc_per_node=4 grpo.py --use_vllm true --vllm_device cuda:4", 1),
        ("torchrun --nproc_per_node=4 grpo.py --use_vllm true --vllm_device cuda:0", None),
        (f"{FIVE} --vllm_mode colocate", 4),
    ],
)
def test_an_engine_of_early_trl_sits_behind_the_trainers_gpus(tmp_path: Path, line: str, rollout: int | None) -> None:
    imported = read(tmp_path, f"{line} {ROWS}\n")
    assert (imported.trainer_gpus, imported.rollout_gpus) == (4, rollout)
    if rollout == 1:
        assert counts(imported) == (5, 5, 4, 1, 1, 1)


def test_ppo_without_ray_holds_all_models_in_each_process(tmp_path: Path) -> None:
    assert counts(read(tmp_path, TOGETHER.format("--num_gpus 8"))) == (8, 8, 8, 0, None, None)
    assert counts(read(tmp_path, TOGETHER.format(""))) == (None, None, None, 0, None, None)
    assert counts(read(tmp_path, TOGETHER.format("--include localhost:0,1,4,5"))) == (4, 4, 4, 0, None, None)
    assert counts(read(tmp_path, TOGETHER.format("--include a:0,1@b:2,3"))) == (4, 4, 4, 0, None, None)
    assert read(tmp_path, TOGETHER.format("--include a")).trainer_gpus is None, "all of its GPUs, however many"


def test_a_placeholder_hides_no_flag_behind_it(tmp_path: Path) -> None:
    line = f"torchrun --nproc_per_node=8 grpo.py --output_dir <OUT> {ROWS} --dataset_name <PATH-TO-DATA> \\\n"
    imported = read(tmp_path, f"{line}  --max_prompt_length 1024 2>errors.txt >out.txt <in.txt\n")
    assert counts(imported) == (8, 8, 8, 0, None, None)
    assert imported.layout is not None
    assert imported.layout["lengths"]["prompt"] == 1024
    assert [note for note in imported.unmapped if "<OUT> is a placeholder" in note]
