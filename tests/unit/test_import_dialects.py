"""Launch scripts in the dialects of other systems: their GPUs are right, or said to be unknown."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import counts

from rltui.check.run import check_text
from rltui.importers.layout_of import as_yaml
from rltui.importers.read import Imported, import_file, import_text, read_facts
from rltui.layout.load import LoadedLayout, load_text

FIXTURES = Path(__file__).parents[1] / "fixtures" / "import"

# file: dialect, needed, declared, trainer, rollout, tensor parallel, engines; None: the reading has to say unknown
EXPECTED = {
    "open_instruct_mason.sh": ("open-instruct", 32, 32, 16, 16, 2, 8),
    "open_instruct_one_gpu.sh": ("open-instruct", 1, 1, 1, 0, 1, 1),
    "open_instruct.yaml": ("open-instruct", 32, 32, 8, 24, 4, 6),
    "verl_devices.sh": ("verl", 16, 16, 16, 16, 2, 8),
    "verl_teacher.sh": ("verl", 14, 8, 8, 8, 1, 8),
    "verl_split.sh": ("verl", 4, 4, 2, 2, 2, 1),
    "verl_tight.sh": ("verl", 8, 8, 8, 8, 2, 4),
    "verl_async.sh": ("verl", 20, 20, 8, 12, 2, 6),
    "verl_built_on.sh": ("verl", 8, 8, 8, 8, 2, 4),
    "easyr1/run.sh": ("easyr1", 12, 12, 12, 12, 2, 6),
    "easyr1/no_file.sh": ("easyr1", None, None, None, None, 1, None),
    "roll_apart.yaml": ("roll", 16, 16, 8, 6, 2, 3),
    "roll_student.yaml": ("roll", 8, 8, 4, 4, 2, 2),
    "swift_colocated.sh": ("ms-swift", 16, 16, 16, 16, 4, 4),
    "swift_server.sh": ("ms-swift", 8, 8, 4, 4, 2, 2),
    "llama_factory_sft.sh": ("llama-factory", 8, 8, 8, 0, None, None),
    "slime_critic.sh": ("slime", 16, 16, 4, 8, 2, 4),
    "trl_devices.sh": ("trl", 7, 8, 4, 2, 2, 1),
    "slime_teacher.sh": ("slime", 8, 8, 2, 4, 2, 2),
    "slime_sft.sh": ("slime", 8, 8, 8, 0, None, None),
    "miles_ranks.sh": ("slime", 48, 48, 16, 32, 16, 2),
    "miles_open.sh": ("slime", None, None, None, None, None, None),
    "openrlhf_slurm.sh": ("openrlhf", 16, 16, 4, 8, 2, 4),
    "openrlhf_async.sh": ("openrlhf", 8, 8, 4, 4, 2, 2),
    "skyrl_async.sh": ("skyrl", 7, 7, 4, 3, 1, 3),
    "skyrl_colocated.sh": ("skyrl", 16, 16, 16, 16, 4, 4),
    "trl_server.sh": ("trl", 24, 24, 16, 8, 4, 2),
    "trl_colocated.sh": ("trl", 2, 2, 2, 2, 1, 2),
    "areal_roles.yaml": ("areal", 32, 32, 16, 16, 4, 4),
    "areal_shared.yaml": ("areal", 8, 8, 8, 8, 2, 4),
    "areal_over.yaml": ("areal", 2, 1, 1, 1, 1, 1),
    "nemo/grpo-8b-2n8g.yaml": ("nemo-rl", 16, 16, 16, 16, 2, 8),
    "nemo/grpo-8b-4n8g-apart.yaml": ("nemo-rl", 32, 32, 24, 8, 2, 4),
    "nemo/grpo-1b-1n8g-apart.yaml": ("nemo-rl", 8, 8, 5, 3, 1, 3),
    "nemo/grpo-gym.yaml": ("nemo-rl", 32, 32, 8, 8, 2, 4),
    "nemo/grpo-orphan.yaml": ("nemo-rl", 16, 16, None, None, 4, None),
}
TOML = {
    "prime_nodes.toml": ("prime-rl", 40, 40, 16, 24, 8, 3),
    "prime_split.toml": ("prime-rl", 48, 48, 16, 32, 1, 2),
}


def numbers(imported: Imported) -> tuple[str | int | None, ...]:
    return imported.dialect, *counts(imported)


def layout_in(name: str) -> LoadedLayout:
    imported = import_file(FIXTURES / name)
    assert imported.layout is not None, imported.unmapped
    return load_text(as_yaml(imported.layout), name)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_gpus_are_right_or_said_to_be_unknown(name: str) -> None:
    assert numbers(import_file(FIXTURES / name)) == EXPECTED[name]


def test_what_skyrl_trains_leaves_the_card_for_engines_on_it() -> None:
    offloads = {}
    for name in ("skyrl_colocated.sh", "skyrl_async.sh"):
        found = layout_in(name).layout
        assert found is not None
        offloads[name] = found.roles.learner.offload
    assert offloads == {"skyrl_colocated.sh": "all", "skyrl_async.sh": "none"}


@pytest.mark.parametrize("name", TOML)
def test_the_gpus_of_toml_files(name: str) -> None:
    pytest.importorskip("tomllib")
    assert numbers(import_file(FIXTURES / name)) == TOML[name]


def test_a_system_built_on_verl_may_say_its_algorithm_in_a_section_of_its_own(tmp_path: Path) -> None:
    script = (FIXTURES / "verl_built_on.sh").read_text()
    path = tmp_path / "run.sh"
    path.write_text(script.replace("algorithm.adv_estimator=grpo", "rooms.algorithm.adv_estimator=grpo"))
    built_on, verls = import_file(path).layout, import_file(FIXTURES / "verl_built_on.sh").layout
    assert built_on is not None
    assert verls is not None
    assert built_on == {**verls, "name": "run", "summary": "Imported from run.sh (verl)"}


def test_every_fixture_is_expected_to_be_something() -> None:
    # the tables of gate/ are scripts in the making, which tests/truth/import_scripts.py judges
    files = {str(path.relative_to(FIXTURES)) for path in FIXTURES.rglob("*.*") if path.parent.name != "gate"}
    assert files == EXPECTED.keys() | TOML.keys() | {
        "nemo/base.yaml",
        "nemo/circle-a.yaml",
        "nemo/circle-b.yaml",
        "easyr1/settings/vision.yaml",
    }


@pytest.mark.parametrize("name", [name for name, row in EXPECTED.items() if row[1] is not None and "sft" not in name])
def test_a_layout_that_loads_needs_what_the_script_needs(name: str) -> None:
    imported = import_file(FIXTURES / name)
    if imported.trainer_gpus is None:
        assert imported.layout is None
        return
    layout = layout_in(name).layout
    assert layout.slots_of("learner") == imported.trainer_gpus
    assert layout.roles.rollout.tensor_parallel == imported.rollout_tp
    assert layout.num_engines == imported.rollout_engines
    assert layout.hardware.nodes * layout.hardware.gpus_per_node >= (imported.declared_gpus or 0)


def test_open_instruct_settings_reach_the_layout() -> None:
    layout = layout_in("open_instruct_mason.sh").layout
    assert layout.roles.learner.gpus == [8, 8]
    assert layout.roles.learner.zero_stage == 3
    assert layout.roles.learner.gradient_checkpointing
    assert (layout.train.prompts_per_step, layout.train.samples_per_prompt, layout.train.steps) == (32, 8, 200)
    assert (layout.lengths.prompt, layout.lengths.response, layout.lengths.pack) == (1024, 4096, 8192)
    assert layout.data.train == "example/sums"


def test_split_placement_gives_the_critic_a_pool_of_its_own() -> None:
    layout = layout_in("verl_split.sh").layout
    assert layout.algorithm == "ppo"
    assert layout.roles.critic is not None
    assert layout.roles.critic.pool != layout.roles.learner.pool
    assert layout.slots_of("critic") == 2


def test_a_teacher_outside_ray_is_taken_off_the_node() -> None:
    layout = layout_in("slime_teacher.sh").layout
    assert layout.algorithm == "opd"
    assert layout.hardware.gpus_outside_ray == 2
    assert layout.roles.teacher is None, "its GPUs would be counted twice"
    assert layout.roles.rollout.memory_utilization == 0.7


def test_a_teacher_in_a_pool_of_its_own_is_a_role() -> None:
    layout = layout_in("verl_teacher.sh").layout
    assert layout.roles.teacher is not None
    assert (layout.roles.teacher.model, layout.slots_of("teacher")) == ("Qwen/Qwen3-32B", 6)


def test_the_check_finds_what_is_wrong_with_a_script() -> None:
    codes = {
        name: {
            finding.code for finding in check_text(as_yaml(import_file(FIXTURES / name).layout or {}), name).findings
        }
        for name in ("areal_over.yaml", "verl_teacher.sh", "open_instruct_mason.sh")
    }
    assert "P101" in codes["areal_over.yaml"], "one GPU is declared, two are needed"
    assert "P101" in codes["verl_teacher.sh"], "the teacher's pool is beside the trainer's number"
    assert "P101" not in codes["open_instruct_mason.sh"]


def test_slurm_lines_give_partition_time_and_card() -> None:
    layout = layout_in("openrlhf_slurm.sh").layout
    assert (layout.slurm.partition, layout.slurm.time, layout.hardware.gpu) == ("long", "12:00:00", "H100")


def test_references_reach_through_bases_and_parents() -> None:
    layout = layout_in("nemo/grpo-8b-4n8g-apart.yaml").layout
    assert layout.roles.learner.model == "Qwen/Qwen3-8B"
    assert (layout.lengths.prompt, layout.lengths.response) == (256, 256)
    assert (layout.train.async_steps, layout.train.learning_rate) == (1, 5e-6)
    assert layout.data.train == "example-sums"


def test_a_missing_base_is_named() -> None:
    imported = import_file(FIXTURES / "nemo/grpo-orphan.yaml")
    assert any("else.yaml is not there" in line for line in imported.unmapped)
    assert imported.layout is None


def test_what_is_not_mapped_is_listed() -> None:
    lines = import_file(FIXTURES / "open_instruct_mason.sh").unmapped
    assert "--stop_strings: has no place in a layout" in lines
    assert any("comment inside a continued command" in line for line in lines)
    assert any(line.startswith("hardware.gpu:") for line in lines)


def test_two_trainings_that_differ_leave_their_numbers_unknown(tmp_path: Path) -> None:
    script = tmp_path / "two.sh"
    line = "python open_instruct/grpo_fast.py --model_name_or_path m --num_learners_per_node {} --vllm_num_engines 2\n"
    script.write_text(line.format(2) + line.format(4))
    imported = import_file(script)
    assert (imported.needed_gpus, imported.trainer_gpus, imported.rollout_gpus) == (None, None, 2)
    assert imported.layout is None


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("--num_learners_per_node $N", None),
        ("--num_learners_per_node $(nproc)", None),
        ("--num_learners_per_node ${N:-3}", 3),
        ("--num_learners_per_node=6", 6),
        ("--num_learners_per_node 2 --num_learners_per_node 5", 5),
    ],
)
def test_a_count_that_only_a_run_would_show_is_unknown(tmp_path: Path, extra: str, expected: int | None) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"python open_instruct/grpo_fast.py --model_name_or_path m {extra}\n")
    imported = import_file(script)
    assert imported.trainer_gpus == expected
    assert (imported.needed_gpus is None) == (expected is None)


@pytest.mark.parametrize(
    "command",
    [
        "accelerate launch --num_processes 4 my_grpo.py",
        "accelerate launch --num_processes 4 my_grpo.py --use_vllm",
        "accelerate launch --num_processes 4 -m trl.scripts.grpo --config grpo.yaml",
        "python3 -m verl.trainer.main_ppo --config-name=mine actor_rollout_ref.model.path=m",
        "python3 -m recipe.one_step_off_policy.main_ppo trainer.nnodes=1 trainer.n_gpus_per_node=4",
        "python train.py --actor-num-nodes 1 --colocate --debug-rollout-only",
        "uv run -m skyrl.x generator.inference_engine.run_engines_locally=false trainer.placement.colocate_all=false "
        "trainer.placement.policy_num_gpus_per_node=4 generator.inference_engine.tensor_parallel_size=2",
    ],
)
def test_needs_that_the_command_does_not_settle_are_unknown(tmp_path: Path, command: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(command + "\n")
    imported = import_file(script)
    assert imported.needed_gpus is None
    assert imported.layout is None


def test_a_job_of_an_unknown_program_still_declares_its_gpus(tmp_path: Path) -> None:
    script = tmp_path / "job.slurm"
    script.write_text("#!/bin/bash\n#SBATCH --nodes=3\n#SBATCH --gpus-per-node=a100:4\nsrun ./my_program\n")
    imported = import_file(script)
    assert numbers(imported) == ("slurm", None, 12, None, None, None, None)
    assert imported.layout is None


VERL_CONFIG = """\
data: {train_batch_size: 64, max_prompt_length: 512, max_response_length: 512}
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-7B}
  actor: {ppo_mini_batch_size: 32, ppo_micro_batch_size_per_gpu: 4}
  rollout: {tensor_model_parallel_size: 2, n: 8}
algorithm: {adv_estimator: grpo}
trainer: {nnodes: 2, n_gpus_per_node: 8}
"""
EASYR1_CONFIG = """\
data: {rollout_batch_size: 64}
algorithm: {adv_estimator: grpo}
worker:
  actor: {global_batch_size: 32, model: {model_path: Qwen/Qwen2.5-7B}}
  rollout: {n: 8, tensor_parallel_size: 2}
trainer: {nnodes: 2, n_gpus_per_node: 8}
"""


@pytest.mark.parametrize(
    ("text", "name", "dialect", "trainer", "engines"),
    [
        (VERL_CONFIG, "ppo_trainer.yaml", "verl", 16, 8),
        (VERL_CONFIG, "ppo_trainer_split.yaml", "verl", 8, 4),
        (EASYR1_CONFIG, "vision.yaml", "easyr1", 16, 8),
    ],
)
def test_a_composed_configuration_is_read_without_its_command(
    text: str, name: str, dialect: str, trainer: int, engines: int
) -> None:
    found = import_text(text, Path(name), ["hardware.gpu=H100"])
    assert (found.dialect, found.trainer_gpus, found.rollout_engines) == (dialect, trainer, engines)
    assert found.needed_gpus == 16
    assert found.layout is not None


@pytest.mark.parametrize(
    ("name", "section", "defaults", "algorithm"),
    [
        ("recipe.yaml", "grpo", "ppo_math.yaml", "ppo"),
        ("recipe.yaml", "dpo", "grpo_math.yaml", "dpo"),
        ("ppo.yaml", "grpo", "", "grpo"),
        ("ppo.yaml", "grpo", "base.yaml", "ppo"),
        ("recipe.yaml", "grpo", "base.yaml", "grpo"),
    ],
)
def test_a_recipe_that_only_changes_grpo_is_what_the_file_below_it_says(
    tmp_path: Path, name: str, section: str, defaults: str, algorithm: str
) -> None:
    """NeMo-RL's PPO has settings in the section ``grpo`` too."""
    file = tmp_path / name
    below = f"defaults: {defaults}\n" if defaults else ""
    file.write_text(f"{below}policy: {{model_name: m}}\n{section}: {{seed: 1}}\ncluster: {{num_nodes: 1}}\n")
    facts, _ = read_facts(file.read_text(), file)
    assert facts.algorithm == algorithm
