"""axolotl's words for what TRL does."""

from __future__ import annotations

from pathlib import Path

from rltui.importers.read import import_text

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
