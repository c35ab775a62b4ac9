"""Programs whose GRPO stands in Python: TRL's ``GRPOConfig`` and unsloth's loader."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

from rltui.errors import UsageError
from rltui.importers.read import import_file

UNSLOTH = """
from unsloth import FastLanguageModel
from trl import GRPOConfig, GRPOTrainer
max_seq_length, prompt = 1024, 256
length = 1024
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name="Qwen/Qwen2.5-3B-Instruct", max_seq_length=length, fast_inference={fast}, gpu_memory_utilization=0.6
)
model = FastLanguageModel.get_peft_model(model, r=32)
args = GRPOConfig(
    learning_rate=5e-6, per_device_train_batch_size=1, gradient_accumulation_steps=4, num_generations=8,
    max_prompt_length=256, max_completion_length=length - 256, max_steps=250,
)
trainer = GRPOTrainer(model=model, args=args)
"""
PLAIN = """
import sys
from trl import GRPOConfig, GRPOTrainer
vllm = {vllm}
def train(lr, batch=4):
    batch = int(sys.argv[1])
    args = GRPOConfig(use_vllm=vllm, {more} num_generations=4, per_device_train_batch_size=batch, learning_rate=lr)
    GRPOTrainer(model="Qwen/Qwen2.5-0.5B-Instruct", args=args).train()
"""


@pytest.mark.parametrize(("fast", "expected"), [("True", (1, 1, 1, 1, 1, 1)), ("False", (1, 1, 1, 0, None, None))])
def test_unsloth_runs_on_one_gpu(tmp_path: Path, fast: str, expected: tuple[int | None, ...]) -> None:
    found = read(tmp_path, UNSLOTH.format(fast=fast), "train.py")
    assert counts(found) == expected
    assert found.layout is not None
    assert found.layout["lengths"]["response"] == 768
    assert found.layout["train"]["prompts_per_step"] == 4
    assert found.layout["roles"]["learner"]["lora_rank"] == 32


@pytest.mark.parametrize(
    ("vllm", "more", "expected"),
    [
        ("False", "", (2, 2, 2, 0, None, None)),
        ("True", "vllm_mode='colocate',", (2, 2, 2, 2, 1, 2)),
        ("True", "", (None, None, 2, None, None, None)),
        ("sys.argv[2]", "vllm_mode='colocate',", (None, None, 2, None, None, None)),
    ],
)
def test_a_command_counts_the_processes_of_its_program(
    tmp_path: Path, vllm: str, more: str, expected: tuple[int | None, ...]
) -> None:
    (tmp_path / "train.py").write_text(PLAIN.format(vllm=vllm, more=more))
    found = read(tmp_path, "accelerate launch --num_processes 2 train.py\n")
    assert (found.needed_gpus, found.trainer_gpus, found.rollout_gpus) == (expected[0], expected[2], expected[3])
    assert (found.rollout_tp, found.rollout_engines) == expected[4:]
    assert import_file(tmp_path / "train.py").trainer_gpus is None


def test_what_a_command_says_is_not_looked_for_in_its_program(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN.format(vllm="True", more="vllm_mode='colocate',"))
    found = read(tmp_path, "accelerate launch --num_processes 2 train.py --use_vllm false --num_generations 4\n")
    assert found.rollout_gpus == 0


@pytest.mark.parametrize("text", ["x = GRPOConfig(", "GRPOConfig = 3\nprint(GRPOConfig)", "import sys  # GRPOConfig"])
def test_python_without_a_config_is_not_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, text, "train.py")
