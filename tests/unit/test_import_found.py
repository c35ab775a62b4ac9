"""GPUs that sections of a configuration count by role, and those that a script counts where it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

from rltui.importers.read import import_file

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


ON_N = f"{VERL} trainer.nnodes=1 trainer.n_gpus_per_node=$N"


@pytest.mark.parametrize(
    "place",
    ["$REPO/scripts/common.sh", "/home/me/project/scripts/common.sh", "~/project/scripts/common.sh", "$DIR/common.sh"],
)
def test_a_sourced_file_is_found_by_the_end_of_its_place(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "project" / "scripts"
    folder.mkdir(parents=True)
    (folder / "common.sh").write_text("N=4\n")
    (folder / "train.sh").write_text(f"source {place}\n{ON_N}\n")
    assert import_file(folder / "train.sh").trainer_gpus == 4


def test_a_file_of_that_name_alone_is_another(tmp_path: Path) -> None:
    """Of a place on another machine a folder is to agree as well."""
    (tmp_path / "common.sh").write_text("N=4\n")
    (tmp_path / "train.sh").write_text(f"source /etc/common.sh\n{ON_N}\n")
    assert import_file(tmp_path / "train.sh").trainer_gpus is None


def test_tasks_of_a_job_may_differ_by_their_number(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n"
        'srun bash -c \'if [ "${SLURM_PROCID:-0}" = "1" ]; then '
        f"{ON_N.replace('$N', '4')}; else ray start --block; fi'\n"
    )
    assert import_file(script).trainer_gpus == 4


def test_a_copy_of_trls_server_is_one(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "CUDA_VISIBLE_DEVICES=2 python src/vllm_server.py --model a --port $PORT --tensor_parallel_size 1 &\n"
        "accelerate launch --num_processes 2 grpo.py --num_generations 4 --use_vllm true --model_name_or_path a\n"
    )
    found = import_file(script)
    assert (found.trainer_gpus, found.rollout_gpus, found.needed_gpus) == (2, 1, 3)


@pytest.mark.parametrize(("mode", "rollout"), [("--vllm_mode colocate", 4), ("", None)])
def test_a_file_that_is_not_there_may_switch_vllm_on(tmp_path: Path, mode: str, rollout: int | None) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"accelerate launch --num_processes 4 grpo.py --config gone.yaml --max_prompt_length 9 {mode}\n")
    found = import_file(script)
    assert (found.rollout_gpus, found.rollout_tp) == (rollout, None)


ROLL = """
pretrain: a
adv_estimator: grpo
actor_train: {device_mapping: "list(range(0,4))"}
actor_infer: {strategy_args: {strategy_name: vllm}, device_mapping: "list(range(0,4))"}
memory: {embedding: {device_mapping: "list(range(4,6))"}}
"""


@pytest.mark.parametrize("folder", ["$(basename $(dirname $0))", "math"])
def test_a_script_of_roll_names_its_file_in_two_words(tmp_path: Path, folder: str) -> None:
    own = tmp_path / "examples" / "math"
    own.mkdir(parents=True)
    (own / "run.yaml").write_text(ROLL)
    script = own / "run.sh"
    script.write_text(f"F={folder}\npython examples/start_rlvr_pipeline.py --config_path $F --config_name run\n")
    found = import_file(script)
    assert (found.dialect, found.trainer_gpus, found.rollout_engines, found.needed_gpus) == ("roll", 4, 4, 6)


@pytest.mark.parametrize(("copies", "engines"), [("", 4), ("dp = 4", 4), ("dp = 3", None)])
def test_copies_of_an_engine_that_fill_its_gpus_are_the_usual_ones(
    tmp_path: Path, copies: str, engines: int | None
) -> None:
    file = tmp_path / "rl.toml"
    file.write_text(f"[deployment]\nnum_infer_gpus = 4\n[inference.parallel]\n{copies}\n[orchestrator]\n")
    assert import_file(file).rollout_engines == engines


def test_gpus_of_a_judge_that_nemo_rl_does_not_know_leave_the_sum_open(tmp_path: Path) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text(
        "policy: {model_name: a, generation: {backend: vllm, vllm_cfg: {tensor_parallel_size: 1}}}\n"
        "cluster: {num_nodes: 1, gpus_per_node: 4}\ngrpo: {num_prompts_per_step: 4}\nenv: {metric: {num_gpus: 8}}\n"
    )
    assert (import_file(file).trainer_gpus, import_file(file).needed_gpus) == (4, None)


def test_the_elder_ppo_of_open_instruct_has_a_critic(tmp_path: Path) -> None:
    script = tmp_path / "ppo.sh"
    script.write_text("python open_instruct/ppo_fast.py --model_name_or_path a --total_episodes 8 --single_gpu_mode\n")
    layout = import_file(script).layout
    assert layout is not None
    assert "critic" in layout["roles"]
    assert layout["train"].get("steps") != 0


@pytest.mark.parametrize(("nodes", "processes"), [("#SBATCH --nodes=3", 8), ("# nodes are said to sbatch", None)])
def test_the_nodes_of_a_job_are_counted_by_their_names(tmp_path: Path, nodes: str, processes: int | None) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        f"#!/bin/bash\n{nodes}\nNAMES=$(scontrol show hostnames $SLURM_JOB_NODELIST)\nLIST=($NAMES)\n"
        "N=$(((${#LIST[@]} - 1) * 4))\n"
        "srun -w ${LIST[0]} accelerate launch --num_processes $N grpo.py --num_generations 4\n"
    )
    assert import_file(script).trainer_gpus == processes


def test_a_judge_of_another_task_leaves_the_sum_open(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\nexport N=4\n"
        f"srun bash -c 'if [ $SLURM_PROCID = 1 ]; then {ON_N}; else vllm serve judge -tp 4; fi'\n"
    )
    found = import_file(script)
    assert (found.trainer_gpus, found.needed_gpus) == (4, None)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [("--trainer-gpus 2 --inference-gpus 6", (2, 6)), ("--trainer-gpu-ids 6,7 --inference-gpu-ids 0,1,2", (2, 3))],
)
def test_an_elder_prime_rl_counts_gpus_on_its_command_line(
    tmp_path: Path, gpus: str, expected: tuple[int, int]
) -> None:
    for name in ("train", "orch", "infer"):
        (tmp_path / f"{name}.toml").write_text("[model]\nname = 'Qwen/Qwen3-4B'\n")
    files = "--trainer @ train.toml --orchestrator @ orch.toml --inference @ infer.toml"
    found = read(tmp_path, f"uv run rl {files} {gpus}\n")
    assert (found.trainer_gpus, found.rollout_gpus) == expected
