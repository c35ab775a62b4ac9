"""Settings of other systems by their names: nearly known, of two versions, added twice, behind a command's end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rltui.check.frameworks.spelling import table_of
from rltui.check.script import check_script_text

sys.path.insert(0, str(Path(__file__).parents[1] / "truth"))

import corrected
from mistakes import BASES


def _codes(text: str, name: str = "run.sh") -> dict[str, str]:
    return {finding.code: finding.message for finding in check_script_text(text, Path(name)).findings}


def _verl(*settings: str) -> str:
    return " \\\n    ".join(["python3 -m verl.trainer.main_ppo", "trainer.n_gpus_per_node=8", *settings]) + "\n"


@pytest.mark.parametrize(
    ("setting", "meant"),
    [
        ("actor_rollout_ref.actor.ppo_mini_batchsize=64", "actor_rollout_ref.actor.ppo_mini_batch_size"),
        ("+actor_rollout_ref.model.enable_activation_offloading=True", "enable_activation_offload is"),
        ("actor_rollout_ref.critic.optim.lr=1e-5", "critic.optim.lr is"),
        ("algorithm.train_batch_size=64", "data.train_batch_size is"),
        ("algorithm.strategy=fsdp", None),  # at home in many sections
        ("trainer.remove_previous_ckpt=1", None),  # near nothing
        ("actor_rollout_ref.rollout.engine_kwargs.vllm.anything=1", None),  # free
    ],
)
def test_a_setting_that_is_nearly_known_is_named(setting: str, meant: str | None) -> None:
    said = _codes(_verl(setting)).get("F991", "")
    assert (meant in said) if meant else not said


def test_a_fork_with_settings_of_its_own_is_not_judged() -> None:
    near = "actor_rollout_ref.actor.ppo_mini_batchsize=64"
    assert "F991" in _codes(_verl(near))
    assert "F991" not in _codes(_verl(near, "agent.of_the_fork=1"))


@pytest.mark.parametrize(
    ("command", "setting", "meant"),
    [
        ("swift rlhf --rlhf_type grpo", "num_generation_s", "num_generations"),
        ("swift rlhf --rlhf_type grpo", "learnng_rate", "learning_rate"),
        ("swift sft", "deepsped", "deepspeed"),
        ("trl grpo --model_name_or_path a", "gradient_acumulation_steps", "gradient_accumulation_steps"),
        ("llamafactory-cli train --stage sft", "finetuning_typ_e", "finetuning_type"),
        ("torchrun --nproc_per_node 2 grpo_trl.py", "training_args.max_steps", None),  # a parser of one's own
        ("llamafactory-cli train --stage sft", "learning_rat", None),  # argparse takes a beginning for the name
    ],
)
def test_settings_of_trainers_made_from_transformers_are_known(command: str, setting: str, meant: str | None) -> None:
    said = _codes(f"{command} --output_dir a --{setting} 1\n").get("F991", "")
    assert (f"{meant} is" in said) if meant else not said


def test_a_critic_that_megatron_cannot_hold_is_named_without_a_fix_that_no_layout_knows() -> None:
    report = check_script_text(
        _verl("algorithm.adv_estimator=gae", "actor_rollout_ref.actor.strategy=megatron", "critic.strategy=megatron",
              "actor_rollout_ref.model.path=Qwen/Qwen2.5-72B", "critic.model.path=Qwen/Qwen2.5-72B"),
        Path("run.sh"), given=["hardware.gpu=H100"],
    )  # fmt: skip
    assert any("critic" in finding.message for finding in report.findings if finding.code.startswith("M"))


def test_words_that_are_not_known_may_override_what_a_recipe_says(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "policy: {model_name: Qwen/Qwen2.5-7B, generation: {colocated: {enabled: false, resources: "
        "{gpus_per_node: 1, num_nodes: 1}}}}\ngrpo: {num_prompts_per_step: 8}\n"
        "cluster: {gpus_per_node: 1, num_nodes: 1}\n"
    )
    run = "uv run python examples/run_grpo.py --config a.yaml"
    alone = check_script_text(f"{run}\n", tmp_path / "run.sh").findings
    assert any(finding.severity == "error" for finding in alone)
    more = check_script_text(f'source cluster.env\n{run} "${{OF_THE_CLUSTER[@]}}"\n', tmp_path / "run.sh").findings
    assert not any(finding.severity == "error" for finding in more)


def test_settings_of_two_versions_are_named_with_their_days() -> None:
    old, new = "critic.model.fsdp_config.param_offload=True", "critic.fsdp.param_offload=True"
    assert "F992" not in _codes(_verl(old))
    assert "F992" not in _codes(_verl(new))
    assert _codes(_verl(old, new))["F992"].count("2026-04-03") == 2


def test_a_plus_before_what_is_there_is_a_note() -> None:
    newer = "critic.fsdp.param_offload=True"
    assert "F993" in _codes(_verl("+trainer.val_before_train=False", newer))
    assert "F993" not in _codes(_verl("++trainer.val_before_train=False", newer))
    assert "F993" not in _codes(_verl("+trainer.val_before_train=False"))  # of a time when it had to be added


def test_an_option_behind_a_line_that_ends_is_named() -> None:
    broken = "python3 -m verl.trainer.main_ppo trainer.nnodes=1\n    trainer.n_gpus_per_node=8\n"
    assert "line 2 begins with trainer.n_gpus_per_node" in _codes(broken)["F994"]
    assert "F994" not in _codes(broken.replace("=1\n", "=1 \\\n"))


@pytest.mark.parametrize(
    "dialect", ["areal", "nemo-rl", "open-instruct", "openrlhf", "prime-rl", "roll", "skyrl", "slime", "trl", "verl"]
)
def test_a_table_knows_what_published_recipes_set(dialect: str) -> None:
    known = table_of(dialect)
    base = {name.replace("-", "_"): value for name, value in BASES.get(dialect, {}).items()}
    assert known.sections
    assert [name for name in base if not known.knows(name)] == []


def test_the_score_of_corrections_counts_what_is_found() -> None:
    found, blind, alarms = corrected.score().figures
    assert found.cases == len(corrected.CORRECTIONS) >= 60
    assert blind.cases >= 30
    assert alarms.value <= alarms.bound
