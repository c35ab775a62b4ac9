"""axolotl's words for what TRL does."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.importers.read import import_text, read_facts

BASE = "base_model: Qwen/Qwen2.5-3B\nrl: grpo\nmicro_batch_size: 4\ngradient_accumulation_steps: 4\n"


def test_an_engine_beside_the_trainer_is_sized_by_the_section_of_vllm(tmp_path: Path) -> None:
    text = f"{BASE}trl: {{use_vllm: true, vllm_mode: colocate}}\nvllm: {{tensor_parallel_size: 2}}\n"
    (tmp_path / "grpo.yaml").write_text(text)
    script = "accelerate launch --num_processes 4 -m axolotl.cli.train grpo.yaml\n"
    found = import_text(script, tmp_path / "run.sh")
    assert (found.rollout_tp, found.rollout_engines) == (2, 2)
    assert found.layout is not None
    assert found.layout["roles"]["rollout"]["sleep_while_training"] is False


def test_the_variants_and_the_batch_of_a_generation_are_trls(tmp_path: Path) -> None:
    trl = "trl: {num_generations: 8, generation_batch_size: 256, loss_type: dr_grpo, epsilon_high: 0.28}\n"
    (tmp_path / "grpo.yaml").write_text(f"{BASE}rl_beta: 0.01\n{trl}")
    found = import_text("accelerate launch --num_processes 4 -m axolotl.cli.train grpo.yaml\n", tmp_path / "run.sh")
    assert found.layout is not None
    assert found.layout["train"]["prompts_per_step"] == 32
    grpo = found.layout["grpo"]
    assert (grpo["aggregation"], grpo["clip_high"], grpo["kl_coefficient"]) == ("dr_grpo", 0.28, 0.01)
    assert "reference" in found.layout["roles"]


@pytest.mark.parametrize(
    ("command", "nodes", "per_node", "trainer"),
    [
        ("accelerate launch --num_machines 2 --num_processes 16 -m axolotl.cli.train grpo.yaml", 2, 8, 16),
        ("torchrun --nnodes 2 --nproc_per_node 4 -m axolotl.cli.train grpo.yaml", 2, 4, 8),
        ("axolotl train grpo.yaml --launcher torchrun -- --nproc_per_node=2", 1, 2, 2),
        ("CUDA_VISIBLE_DEVICES=0,1 axolotl train grpo.yaml", 1, 2, 2),
        ("CUDA_VISIBLE_DEVICES=0,1 python -m axolotl.cli.train grpo.yaml", 1, 1, 1),
    ],
)
def test_every_launcher_counts_its_processes_in_its_own_words(
    tmp_path: Path, command: str, nodes: int, per_node: int, trainer: int
) -> None:
    (tmp_path / "grpo.yaml").write_text(BASE)
    facts, _ = read_facts(command + "\n", tmp_path / "run.sh")
    assert (facts.nodes, facts.gpus_per_node, facts.trainer_gpus) == (nodes, per_node, trainer)


def test_options_of_the_command_go_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text(f"{BASE}trl: {{num_generations: 8, max_completion_length: 512, beta: 0.0}}\n")
    script = "axolotl train grpo.yaml --num-processes 4 --micro-batch-size 2 --trl.beta 0.1\n"
    settings = read_facts(script, tmp_path / "run.sh")[0].settings
    assert (settings["roles.learner.micro_batch"], settings["grpo.kl_coefficient"]) == (2, 0.1)


@pytest.mark.parametrize(
    ("before", "colocated", "rollout"), [("axolotl vllm-serve grpo.yaml &\n", False, 1), ("", None, None)]
)
def test_where_the_engine_runs_is_not_known_unless_somebody_says(
    tmp_path: Path, before: str, colocated: bool | None, rollout: int | None
) -> None:
    (tmp_path / "grpo.yaml").write_text(f"{BASE}trl: {{use_vllm: true}}\n")
    facts, _ = read_facts(f"{before}axolotl train grpo.yaml --num-processes 4\n", tmp_path / "run.sh")
    assert (facts.colocated, facts.rollout_gpus) == (colocated, rollout)


def test_what_a_section_does_not_say_axolotl_and_trl_say(tmp_path: Path) -> None:
    more = "lora_r: 16\nfsdp_config: {reshard_after_forward: false, offload_params: true}\ncontext_parallel_size: 2\n"
    (tmp_path / "grpo.yaml").write_text(f"{BASE}{more}trl: {{num_generations: 8}}\n")
    facts, _ = read_facts("axolotl train grpo.yaml --num-processes 4\n", tmp_path / "run.sh")
    assert "lengths.response" in facts.unsure
    assert "roles.learner.lora_rank" not in facts.settings  # no adapter is named
    assert facts.settings["roles.learner.zero_stage"] == 2
    assert facts.settings["roles.learner.offload"] == "all"
    assert facts.settings["train.prompts_per_step"] == 4 * 4 * 2 // 8
    assert facts.settings["roles.rollout.memory_utilization"] == 0.9


@pytest.mark.parametrize(("rl", "algorithm"), [("", "sft"), ("rl: dpo\n", "dpo")])
def test_a_training_without_rollouts_counts_its_processes(tmp_path: Path, rl: str, algorithm: str) -> None:
    (tmp_path / "sft.yaml").write_text(f"base_model: Qwen/Qwen2.5-3B\ndatasets: [{{path: a/b}}]\n{rl}")
    facts, _ = read_facts("axolotl train sft.yaml --num-processes 4\n", tmp_path / "run.sh")
    assert (facts.dialect, facts.algorithm, facts.needed_gpus) == ("axolotl", algorithm, 4)
