"""TRL's side of ``bench_trl.py``: one of its trainers on the tiny task, in a process of its own.

Arguments: ``grpo`` or ``distillation``, threads, steps, the student's folder, the teacher's folder. The last line of
its output is JSON: when each step ended (seconds, and seconds of CPU), the reward reached, and TRL's version.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from typing import Any

PROMPTS, SAMPLES, DIGITS, MAX_TOKENS, LEARNING_RATE = 32, 8, 3, 4, 5e-4
JUDGED = 512
"""Prompts, none of them trained on, that the reward of a distilled model is measured with."""

SETTINGS: dict[str, Any] = {
    "per_device_train_batch_size": PROMPTS * SAMPLES, "max_completion_length": MAX_TOKENS, "temperature": 1.0,
    "learning_rate": LEARNING_RATE, "lr_scheduler_type": "constant", "weight_decay": 0.0, "max_grad_norm": 1.0,
    "use_cpu": True, "bf16": False, "gradient_checkpointing": False, "report_to": [], "save_strategy": "no",
    "disable_tqdm": True, "shuffle_dataset": False, "dataloader_pin_memory": False,
}  # fmt: skip


def texts(first: int, count: int) -> list[str]:
    """Prompts of the task, the same that our trainers draw."""
    from trainers.data.sort_digits import SortDigits

    return [prompt.text for prompt in SortDigits(DIGITS, 0, lambda _: [0]).prompts(first, count)]


def reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    """1 for the digits of the prompt in their order, else 0; in TRL's form."""
    return [float(answer == "".join(sorted(text[:-1]))) for text, answer in zip(prompts, completions, strict=True)]


def judge(model: Any, tokenizer: Any) -> float:
    """The mean reward of samples of ``model``."""
    import torch

    prompts = texts(1_000_000, JUDGED)
    ids = tokenizer(prompts, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        found = model.eval().generate(**ids, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=MAX_TOKENS)
    answers = tokenizer.batch_decode(found[:, ids["input_ids"].shape[1] :], skip_special_tokens=True)
    return statistics.fmean(reward(prompts, answers))


def build(kind: str, steps: int, student: str, teacher: str, folder: str) -> Any:
    """The trainer; distillation has no groups, so each prompt is there as often as it is to be answered."""
    from datasets import Dataset

    settings = SETTINGS | {"output_dir": folder, "max_steps": steps}
    prompts = texts(0, PROMPTS * steps)
    if kind == "grpo":
        from trl import GRPOConfig, GRPOTrainer

        config = GRPOConfig(
            **settings, num_generations=SAMPLES, beta=0.0, epsilon=0.2, epsilon_high=0.272, logging_steps=1
        )
        data = Dataset.from_dict({"prompt": prompts})
        return GRPOTrainer(student, reward_funcs=reward, args=config, train_dataset=data)
    from trl import DistillationConfig, DistillationTrainer

    data = Dataset.from_dict({"prompt": [text for text in prompts for _ in range(SAMPLES)]})
    config = DistillationConfig(**settings, beta=1.0)
    return DistillationTrainer(student, teacher_model=teacher, args=config, train_dataset=data)


def main() -> None:
    """Train, and print what came of it."""
    kind, threads, steps, student, teacher = sys.argv[1:]
    import torch
    import trl
    from transformers import TrainerCallback

    torch.set_num_threads(int(threads))
    ended: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            ended.append((time.monotonic(), time.process_time()))

    with tempfile.TemporaryDirectory() as folder:
        trainer = build(kind, int(steps), student, teacher, folder)
        trainer.add_callback(Clock())
        trainer.train()
        if kind == "grpo":
            seen = [line["reward"] for line in trainer.state.log_history if "reward" in line]
            reached = statistics.fmean(seen[-10:])
        else:
            reached = judge(trainer.model, trainer.processing_class)
    print(json.dumps({"ended": ended, "reward": reached, "version": trl.__version__}))


if __name__ == "__main__":
    main()
