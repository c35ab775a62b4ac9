"""GPUs that sections of a configuration count by role, and those that a script counts where it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=m"
ON_RAY = """
rlhf_type: {kind}
model: Qwen/Qwen3-4B
lr: 5e-5
micro_batch_size: 2
num_generations: 8
use_vllm: true
{more}
train: {{gpus: 4, tuner_type: lora, lora_rank: 8, tensor_model_parallel_size: 2}}
rollout: {{gpus: 4, vllm_tensor_parallel_size: 2, vllm_gpu_memory_utilization: 0.4}}
"""


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("grpo", "colocate_groups: [[train, rollout]]", (4, None, 4, 4, 2, 2)),
        ("grpo", "", (8, None, 4, 4, 2, 2)),
        ("gkd", "teacher: {gpus: 4, model: Qwen/Qwen3-8B}", (12, None, 4, 4, 2, 2)),
        ("gkd", "teacher_model: Qwen/Qwen3-8B\ncolocate_groups: [[train, rollout]]", (4, None, 4, 4, 2, 2)),
        ("gkd", "teacher: {gpus: 4, model: Qwen/Qwen3-8B}\ncolocate_groups: [[rollout, teacher]]",
         (8, None, 4, 4, 2, 2)),
    ],
)  # fmt: skip
def test_swift_on_ray_counts_the_gpus_of_each_role(
    tmp_path: Path, kind: str, more: str, expected: tuple[int | None, ...]
) -> None:
    alone = read(tmp_path, ON_RAY.format(kind=kind, more=more), "ray.yaml")
    started = read(tmp_path, 'megatron rlhf --use_ray true --config "$HERE/ray.yaml"\n')
    assert counts(alone) == counts(started) == expected
    assert started.layout is not None
    assert started.layout["train"]["learning_rate"] == 5e-5
    assert started.layout["roles"]["learner"]["lora_rank"] == 8
    assert started.layout["roles"]["learner"]["micro_batch"] == 2
    assert started.layout["roles"]["rollout"]["memory_utilization"] == 0.4


@pytest.mark.parametrize(
    ("body", "gpus"),
    [
        ("N=8", 8),
        ("N=8; echo none found", None),
        ("M=8", None),
    ],
)
def test_what_a_script_sets_where_a_run_finds_nothing_is_taken(tmp_path: Path, body: str, gpus: int | None) -> None:
    found = "N=$(nvidia-smi -L | wc -l)\n"
    guard = f'if [ -z "$N" ] || [ "$N" -le 0 ]; then\n  {body}\nfi\n'
    imported = read(tmp_path, f"{found}{guard}{VERL} trainer.nnodes=1 trainer.n_gpus_per_node=$N\n")
    assert imported.trainer_gpus == gpus
    noted = [note for note in imported.unmapped if "where a run finds nothing" in note]
    assert len(noted) == (gpus is not None)
