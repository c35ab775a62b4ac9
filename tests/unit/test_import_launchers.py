"""What launchers, environments and servers around a training say about its GPUs, in scripts that nobody runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts, read

from rltui.check.run import check_text
from rltui.check.script import check_script
from rltui.errors import UsageError
from rltui.importers.layout_of import as_yaml
from rltui.importers.read import import_file, read_facts

VERL = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=m"


RECIPE = """
policy:
  model_name: Qwen/Qwen3-8B
  generation: {backend: vllm, vllm_cfg: {tensor_parallel_size: 2}, colocated: {enabled: true}}
grpo: {num_prompts_per_step: 64}
cluster: {gpus_per_node: 8, num_nodes: 1}
"""


def test_the_command_of_a_submitted_ray_job_is_followed(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    imported = read(
        tmp_path,
        "NODES=3\n"
        'COMMAND="uv run examples/run_grpo.py --config recipe.yaml cluster.num_nodes=${NODES}" CONTAINER=/c \\\n'
        "    sbatch --nodes=$NODES --gres=gpu:8 --partition=long ray.sub\n",
    )
    assert counts(imported) == (24, 24, 24, 24, 2, 12)
    assert imported.layout is not None
    assert imported.layout["slurm"]["partition"] == "long"


def test_a_program_without_a_configuration_reads_its_own_in_the_repository_above(tmp_path: Path) -> None:
    for folder in ("examples/configs", "tests/functional"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "examples/configs/grpo_math_1B.yaml").write_text(RECIPE)
    command = "uv run coverage run $ROOT/examples/run_grpo.py cluster.gpus_per_node=2"
    imported = read(tmp_path / "tests/functional", f"ROOT=$(realpath $HERE/../..)\n{command}\n")
    assert counts(imported) == (2, 2, 2, 2, 2, 1)


def test_a_configuration_with_settings_of_hydra_is_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("defaults: [model]\nhydra: {run: {dir: .}}\ncluster: {num_nodes: 1}\n")
    with pytest.raises(UsageError, match="no training system"):
        import_file(path)


@pytest.mark.parametrize(
    ("text", "dialect", "algorithm"),
    [
        ("{stage: sft, finetuning_type: lora, model_name_or_path: m}", "llama-factory", "sft of LLaMA-Factory"),
        ("{model_name_or_path: m, per_device_train_batch_size: 4, num_generations: 8}", "trl", "grpo"),
        ("{model_name_or_path: m, per_device_train_batch_size: 4}", "trl", "a training of TRL"),
    ],
)
def test_arguments_in_a_file_of_their_own_say_all_but_gpus(
    tmp_path: Path, text: str, dialect: str, algorithm: str
) -> None:
    (tmp_path / "one.yaml").write_text(text)
    facts, _ = read_facts(text, tmp_path / "one.yaml")
    assert (facts.dialect, facts.algorithm, facts.model, facts.trainer_gpus) == (dialect, algorithm, "m", None)
    assert check_script(tmp_path / "one.yaml").ok


def test_a_learning_rate_of_nothing_is_left_open(tmp_path: Path) -> None:
    imported = read(tmp_path, f"{VERL} trainer.nnodes=1 trainer.n_gpus_per_node=8 actor_rollout_ref.actor.optim.lr=0\n")
    assert imported.layout is not None
    assert "train.learning_rate" in imported.layout["unsure"]
    assert not [finding for finding in check_text(as_yaml(imported.layout), "it").findings if finding.code[0] == "L"]


def test_without_its_command_a_submitted_ray_job_says_what_slurm_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, "sbatch --nodes=2 --gres=gpu:8 ray.sub\n")


@pytest.mark.parametrize(
    ("before", "gpus"),
    [
        ("export NPROC_PER_NODE=4\n", 4),
        ("NPROC_PER_NODE=4\n", None),
        ("NPROC_PER_NODE=4\nexport NPROC_PER_NODE\n", 4),
        ("export NPROC_PER_NODE=4\nNPROC_PER_NODE=2 ", 2),
        ("export NNODES=2\nNPROC_PER_NODE=3 ", 6),
        ("NNODES=$COUNT NPROC_PER_NODE=3 ", None),
        ("CUDA_VISIBLE_DEVICES=5 ", 1),
        ("CUDA_VISIBLE_DEVICES=5,6 ", None),
    ],
)
def test_only_what_is_exported_reaches_a_launcher(tmp_path: Path, before: str, gpus: int | None) -> None:
    imported = read(tmp_path, f"{before}swift rlhf --rlhf_type grpo --model m --use_vllm true --vllm_mode colocate\n")
    assert (imported.dialect, imported.trainer_gpus, imported.rollout_gpus) == ("ms-swift", gpus, gpus)


def test_an_engine_in_the_trainer_is_a_layout_too(tmp_path: Path) -> None:
    imported = read(tmp_path, "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-4B\n")
    assert counts(imported) == (4, 4, 4, 0, None, None)
    assert imported.layout is not None
    assert imported.layout["roles"]["rollout"] | {"engine": "hf", "engines": 4} == imported.layout["roles"]["rollout"]
    assert any("the trainer itself generates" in line for line in imported.unmapped)
    assert not [finding for finding in check_text(as_yaml(imported.layout), "it").findings if finding.code[0] == "P"]


def test_where_swift_puts_its_engine_is_unknown_without_a_mode(tmp_path: Path) -> None:
    imported = read(tmp_path, "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model m --use_vllm true\n")
    assert counts(imported) == (None, None, 4, None, None, None)


def test_a_server_takes_what_its_engine_takes_and_not_all_that_it_sees(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        "CUDA_VISIBLE_DEVICES=0,1,2,3 trl vllm-serve --model m --tensor_parallel_size 2 &\n"
        "CUDA_VISIBLE_DEVICES=4,5,6,7 accelerate launch --num_processes 3 grpo.py --model_name_or_path m\n",
    )
    assert counts(imported) == (5, 8, 3, 2, 2, 1)


def test_a_judge_beside_the_training_is_counted_apart(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        "vllm serve judge --tensor-parallel-size 2 &\n"
        "accelerate launch --num_processes 4 grpo.py --model_name_or_path m --use_vllm true --vllm_mode colocate\n",
    )
    assert counts(imported) == (6, 6, 4, 4, 1, 4)


def test_attention_in_parallel_over_data_takes_no_further_gpus(tmp_path: Path) -> None:
    script = "python3 -m sglang.launch_server --model-path t --tp 4 --dp 4{}\npython3 train.py --actor-num-nodes 1"
    flags = " --actor-num-gpus-per-node 2 --rollout-num-gpus 2 --use-opd\n"
    assert read(tmp_path, script.format(" --enable-dp-attention") + flags).needed_gpus == 8
    assert read(tmp_path, script.format("") + flags).needed_gpus == 20


def test_the_processes_of_a_configuration_that_is_not_there_are_unknown(tmp_path: Path) -> None:
    line = "CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --config_file zero3.yaml grpo.py --use_vllm false\n"
    assert read(tmp_path, line).trainer_gpus is None
    (tmp_path / "zero3.yaml").write_text("distributed_type: DEEPSPEED\nnum_processes: 2\n")
    assert read(tmp_path, line).trainer_gpus == 2


def test_settings_in_a_file_of_trl_count(tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text("use_vllm: true\nvllm_mode: colocate\nvllm_tensor_parallel_size: 2\n")
    imported = read(tmp_path, "accelerate launch --num_processes 8 grpo.py --config grpo.yaml\n")
    assert counts(imported) == (8, 8, 8, 8, 2, 4)


@pytest.mark.parametrize(("slots", "gpus"), [("localhost:0,1,3", 3), ("a:0,1@b:0,1", 4), ("a@b", None)])
def test_deepspeed_counts_the_slots_it_includes(tmp_path: Path, slots: str, gpus: int | None) -> None:
    assert read(tmp_path, f"deepspeed --include {slots} grpo.py --use_vllm false\n").trainer_gpus == gpus


def test_a_launcher_without_a_program_trains_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, "accelerate launch --num_processes=2\n\npython3 other.py\n")


def test_an_array_that_an_unread_file_sets_leaves_defaults_unknown(tmp_path: Path) -> None:
    line = f'{VERL} trainer.n_gpus_per_node=8 actor_rollout_ref.rollout.tensor_model_parallel_size=1 "${{SIZES[@]}}"\n'
    assert read(tmp_path, "source common.sh\n" + line).trainer_gpus is None
    assert read(tmp_path, line).trainer_gpus == 8, "no file could set it, so it is empty"
    assert read(tmp_path, "source venv/bin/activate\n" + line).trainer_gpus == 8
    assert read(tmp_path, "source common.sh\n" + line.replace("SIZES", "MODEL_SHAPE")).trainer_gpus == 8
    (tmp_path / "common.sh").write_text("SIZES=(trainer.nnodes=3)\n")
    assert read(tmp_path, "source common.sh\n" + line).trainer_gpus == 24


@pytest.mark.parametrize(
    ("pools", "declared", "machine"),
    [
        ("trainer.nnodes=1 trainer.n_gpus_per_node=2 rollout.nnodes=1 rollout.n_gpus_per_node=2", 4, (1, 4)),
        ("trainer.nnodes=2 trainer.n_gpus_per_node=6 rollout.nnodes=2 rollout.n_gpus_per_node=2", 16, (2, 8)),
        ("trainer.nnodes=2 trainer.n_gpus_per_node=8 rollout.nnodes=1 rollout.n_gpus_per_node=8", 24, (3, 8)),
    ],
)
def test_the_pool_of_engines_is_declared_beside_the_trainers(
    tmp_path: Path, pools: str, declared: int, machine: tuple[int, int]
) -> None:
    line = VERL.replace("trainer.main_ppo", "experimental.one_step_off_policy.main_ppo")
    imported = read(tmp_path, f"{line} actor_rollout_ref.rollout.tensor_model_parallel_size=1 {pools}\n")
    assert (imported.needed_gpus, imported.declared_gpus) == (declared, declared)
    assert imported.layout is not None
    hardware = imported.layout["hardware"]
    assert (hardware["nodes"], hardware["gpus_per_node"]) == machine


@pytest.mark.parametrize("setting", ["judge.n_gpus_per_node=4", "+teacher.num_inference_engines=2", "x.nnodes=1"])
def test_roles_that_are_not_known_leave_the_sum_unknown(tmp_path: Path, setting: str) -> None:
    imported = read(tmp_path, f"{VERL} trainer.nnodes=1 trainer.n_gpus_per_node=8 {setting}\n")
    assert (imported.needed_gpus, imported.trainer_gpus) == (None, 8)


def test_a_program_built_on_verl_has_defaults_that_are_not_known(tmp_path: Path) -> None:
    line = "python3 -m rooms.train actor_rollout_ref.model.path=m trainer.n_gpus_per_node=8"
    assert read(tmp_path, f"{line}\n").trainer_gpus is None
    assert read(tmp_path, f"{line} trainer.nnodes=2\n").trainer_gpus == 16


def test_slime_engines_that_share_span_actor_and_critic(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 4 --colocate --critic-num-nodes 1"
        " --advantage-estimator ppo\n",
    )
    assert counts(imported) == (8, 8, 4, 8, 1, 8)
    assert imported.layout is None, "a layout has no word for it"


def test_an_allocation_on_the_command_line_counts_without_its_file(tmp_path: Path) -> None:
    imported = read(
        tmp_path,
        "python3 -m areal.launcher.local go.py --config not_there.yaml allocation_mode=sglang.d2p1t2+d4p1t1\n",
    )
    assert counts(imported) == (None, None, 4, 4, 2, 2)


@pytest.mark.parametrize(
    ("allocation", "expected"),
    [("sglang.d8m8p1+d4p4m4", (128, 128, 64, 64, 8, 8)), ("sglang.d8x8+d4p4m4", (None, 128, 64, None, None, None))],
)
def test_elder_letters_of_an_allocation_count_and_unknown_ones_are_unknown(
    tmp_path: Path, allocation: str, expected: tuple[int | None, ...]
) -> None:
    elder = "n_nodes: 16\nn_gpus_per_node: 8\ncluster: {n_nodes: 32, n_gpus_per_node: 8}\n"
    imported = read(
        tmp_path, f"experiment_name: e\nallocation_mode: {allocation}\nactor: {{path: m}}\n{elder}", "e.yaml"
    )
    assert counts(imported) == expected


def test_swift_reads_its_file_and_the_engine_bounds_the_prompt(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "rlhf_type: grpo\nmodel: Qwen/Qwen2.5-Math-7B\nuse_vllm: true\nvllm_mode: colocate\nmax_length: 4096\n"
        "vllm_max_model_len: 4096\nmax_completion_length: 1024\n"
    )
    imported = read(tmp_path, "NPROC_PER_NODE=4 swift rlhf --config g.yaml\n")
    assert counts(imported) == (4, 4, 4, 4, 1, 4)
    assert imported.layout is not None
    assert imported.layout["lengths"]["prompt"] == 3072


def test_an_allocation_of_engines_alone_evaluates(tmp_path: Path) -> None:
    imported = read(tmp_path, "experiment_name: e\nallocation_mode: sglang:d4p1t1\nactor: {path: m}\n", "e.yaml")
    assert counts(imported) == (4, None, None, 4, 1, 4)
    assert imported.layout is None


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [
        ("list(range(0, 6))", 6),
        ("list(range(2)) + list(range(4, 6))", 4),
        ("[0, 1, 2]", 3),
        ("'[0,1]'", 2),
        ("list(range(0, N))", None),
        ("${devices}", None),
        ("list(range(0, 99999999999))", None),
    ],
)
def test_devices_of_a_role(tmp_path: Path, devices: str, gpus: int | None) -> None:
    text = f"pretrain: m\nactor_train:\n  device_mapping: {devices}\n"
    assert read(tmp_path, text, "roll.yaml").trainer_gpus == gpus


def test_a_critic_that_no_advantage_needs_takes_no_gpus(tmp_path: Path) -> None:
    text = (
        "pretrain: m\nadv_estimator: {}\nactor_train: {{device_mapping: [0]}}\n"
        "actor_infer: {{device_mapping: [1], strategy_args: {{strategy_name: vllm}}}}\n"
        "critic: {{device_mapping: [2]}}\n"
    )
    assert read(tmp_path, text.format("grpo"), "roll.yaml").needed_gpus == 2
    assert read(tmp_path, text.format("gae"), "roll.yaml").needed_gpus == 3


@pytest.mark.parametrize(
    ("before", "gpus"),
    [
        ("CUDA_VISIBLE_DEVICES=0", 1),
        ("CUDA_VISIBLE_DEVICES=0,1,2", 3),
        ("FORCE_TORCHRUN=1 NPROC_PER_NODE=4 NNODES=2", 8),
        ("FORCE_TORCHRUN=1 NNODES=2", None),
        ("", None),
    ],
)
def test_llama_factory_starts_a_process_for_each_gpu(tmp_path: Path, before: str, gpus: int | None) -> None:
    imported = read(tmp_path, f"{before} llamafactory-cli train sft.yaml\n")
    assert (imported.dialect, imported.trainer_gpus, imported.rollout_gpus) == ("llama-factory", gpus, 0)


@pytest.mark.parametrize(
    ("before", "after", "needed"),
    [
        ("vllm serve judge --tensor-parallel-size 2 &", "", 10),
        ("CUDA_VISIBLE_DEVICES=8 python3 -m sglang.launch_server --model-path judge &", "", 9),
        ('if [ -n "$JUDGE" ]; then vllm serve judge & fi', "", None),
        ("for card in 8 9 10; do CUDA_VISIBLE_DEVICES=$card vllm serve judge & done", "", 11),
        ("", "vllm serve checkpoint &", 8),
    ],
)
def test_servers_beside_a_training_are_counted_and_later_ones_not(
    tmp_path: Path, before: str, after: str, needed: int | None
) -> None:
    line = f"{VERL} trainer.nnodes=1 trainer.n_gpus_per_node=8"
    assert read(tmp_path, f"{before}\n{line}\n{after}\n").needed_gpus == needed


@pytest.mark.parametrize(
    ("before", "nodes", "gpus"),
    [
        ("", "$((NODES))", None),
        ("", "$((NODES + 1))", None),
        ("NODES=2", "$((NODES))", 16),
        ("NODES=$ELSEWHERE", "$((NODES * 1))", None),
        ("HOSTS=($(scontrol show hostnames))", "${#HOSTS[@]}", None),
        ("", "$((${#HOSTS[@]} + 1))", None),
        ("HOSTS=(a b c)", "${#HOSTS[@]}", 24),
        ("#SBATCH --nodes=3", "$((SLURM_NNODES))", 24),
    ],
)
def test_a_count_that_the_environment_gives_is_not_zero(
    tmp_path: Path, before: str, nodes: str, gpus: int | None
) -> None:
    line = f"{VERL} trainer.n_gpus_per_node=8 trainer.nnodes={nodes}"
    assert read(tmp_path, f"{before}\n{line}\n").trainer_gpus == gpus


def test_a_command_in_a_text_stays_known_where_a_branch_adds_to_it(tmp_path: Path) -> None:
    script = (
        f'CMD="{VERL} trainer.nnodes=2 trainer.n_gpus_per_node=8"\n'
        'if [ "$SMALL" = true ]; then\n    CMD="$CMD actor_rollout_ref.rollout.tensor_model_parallel_size=2"\nfi\n'
        'CMD="$CMD $@"\neval $CMD\n'
    )
    assert counts(read(tmp_path, script)) == (16, 16, 16, 16, None, None)
    other = 'if [ "$SMALL" = true ]; then CMD="python3 other.py --nothing"; fi\neval $CMD\n'
    with pytest.raises(UsageError):
        read(tmp_path, script.replace("eval $CMD\n", other))


def test_a_count_of_nothing_is_not_known(tmp_path: Path) -> None:
    text = f"#!/bin/bash\n#SBATCH --gres=gpu:1\n{VERL} trainer.n_gpus_per_node=1 trainer.nnodes=$((SLURM_NNODES - 1))\n"
    assert counts(read(tmp_path, text)) == (None, 1, None, None, None, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("recipe.yaml", RECIPE.replace("gpus_per_node: 8", "gpus_per_node: 0")),
        ("run.sh", "torchrun --nproc_per_node=0 grpo.py --use_vllm false\n"),
        ("rl.toml", "[deployment]\nnum_train_gpus = 0\nnum_infer_gpus = 0\n[orchestrator]\n[trainer]\n"),
    ],
)
def test_no_gpus_at_all_is_no_layout(tmp_path: Path, name: str, text: str) -> None:
    if name.endswith("toml"):
        pytest.importorskip("tomllib")
    imported = read(tmp_path, text, name)
    assert (imported.needed_gpus, imported.declared_gpus, imported.trainer_gpus) == (None, None, None)
    assert imported.layout is None


def test_the_size_of_an_engine_is_known_where_their_number_is_not(tmp_path: Path) -> None:
    line = "python3 -m openrlhf.cli.train_ppo_ray --actor_num_gpus_per_node 4 --vllm_tensor_parallel_size 2"
    assert counts(read(tmp_path, f"{line} --vllm_num_engines $N --colocate_all_models\n"))[3:] == (None, 2, None)
    assert counts(read(tmp_path, f"{line} --colocate_all_models\n"))[4:] == (None, None)


def test_a_file_beside_the_script_is_under_what_the_command_sets(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("vllm_num_engines: 4\nnum_learners_per_node: [7]\nlearning_rate: 1.0e-5\n")
    text = "python open_instruct/grpo_fast.py conf.yaml --num_learners_per_node 2 --model_name_or_path org/m"
    facts, _ = read_facts(text, tmp_path / "run.sh")
    assert (facts.trainer_gpus, facts.rollout_engines, facts.model) == (2, 4, "org/m")
    assert facts.settings["train.learning_rate"] == 1e-5
    alone, _ = read_facts(text.replace("conf.yaml", "none.yaml"), tmp_path / "run.sh")
    assert (alone.trainer_gpus, alone.rollout_engines) == (2, 1)


def test_fine_tuning_takes_the_processes_of_its_launcher(tmp_path: Path) -> None:
    text = "deepspeed --num_nodes 2 --num_gpus 4 --module openrlhf.cli.train_sft --pretrain org/m"
    facts, _ = read_facts(text, tmp_path / "run.sh")
    assert (facts.algorithm, facts.nodes, facts.gpus_per_node, facts.model) == ("sft", 2, 4, "org/m")
    assert (facts.trainer_gpus, facts.declared_gpus, facts.rollout_gpus) == (8, 8, 0)
    inside, _ = read_facts(f"#SBATCH --nodes=3\n#SBATCH --gpus-per-node=2\n{text}", tmp_path / "run.sh")
    assert inside.declared_gpus == 6
    alone, _ = read_facts("python -m verl.trainer.main_generation model.path=org/m", tmp_path / "run.sh")
    assert (alone.algorithm, alone.trainer_gpus) == ("generation", 8)
    single, _ = read_facts(text.replace("--num_nodes 2 ", ""), tmp_path / "run.sh")
    assert (single.nodes, single.trainer_gpus) == (1, 4)
    launched = "accelerate launch --num_processes 8 open_instruct/finetune.py --num_processes 3 --model_name_or_path m"
    assert read_facts(launched, tmp_path / "run.sh")[0].trainer_gpus == 8
    launched = "accelerate launch --num_processes 8 open_instruct/finetune.py --model_name_or_path m"
    assert read_facts(launched, tmp_path / "run.sh")[0].trainer_gpus == 8
