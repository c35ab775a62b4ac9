"""What an importer takes from a script, where the framework's own source says it differently than its words suggest."""

from __future__ import annotations

from pathlib import Path

import pytest
from import_support import read

from rltui.check.script import check_script
from rltui.errors import UsageError

VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen3-8B data.train_batch_size=256"
    " actor_rollout_ref.rollout.tensor_model_parallel_size=2 trainer.n_gpus_per_node=8"
)


def test_verls_evaluation_of_a_file_is_no_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        read(tmp_path, "python3 -m verl.trainer.main_eval data.path=gen.parquet\n")


@pytest.mark.parametrize(("word", "critics"), [("True", 1), ("False", 0), ("null", 0)])
def test_verls_critic_is_what_its_switch_says(tmp_path: Path, word: str, critics: int) -> None:
    """``need_critic`` of verl/trainer/ppo/utils.py asks the switch before the estimator."""
    imported = read(tmp_path, f"{VERL} algorithm.adv_estimator=grpo critic.enable={word}\n")
    assert imported.layout
    assert len([role for role in imported.layout["roles"] if role == "critic"]) == critics


def test_verls_critic_offloads_by_its_engines_newer_name(tmp_path: Path) -> None:
    imported = read(tmp_path, f"{VERL} algorithm.adv_estimator=gae critic.fsdp.param_offload=True\n")
    assert imported.layout
    assert imported.layout["roles"]["critic"]["offload"] == "all"


OPENRLHF = "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen3-8B --vllm.num_engines 8"


def test_openrlhfs_dotted_names_say_as_much_as_its_elder_ones(tmp_path: Path) -> None:
    words = "--critic.model_name_or_path a/b --ds.lora.rank 16 --algo.advantage.lambd 0.9 --actor.max_norm 2"
    layout = read(tmp_path, f"{OPENRLHF} --train.colocate_all --reward.remote_url x {words} --train.seed 3\n").layout
    assert layout
    assert (layout["roles"]["critic"]["model"], layout["roles"]["learner"]["lora_rank"]) == ("a/b", 16)
    assert (layout["ppo"]["gae_lambda"], layout["train"]["seed"], layout["train"]["gradient_clip"]) == (0.9, 3, 2.0)
    assert layout["train"]["optimizer_steps"] == 8  # 1024 samples of a rollout over OpenRLHF's 128 of a step


SKYRL = (
    "uv run -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen3-8B"
    " trainer.placement.colocate_all=false trainer.placement.colocate_policy_ref=false"
    " trainer.placement.policy_num_gpus_per_node=4 trainer.placement.ref_num_gpus_per_node=2"
    " generator.inference_engine.num_engines=2 generator.inference_engine.tensor_parallel_size=1"
)


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("", 8),
        ("trainer.algorithm.use_kl_loss=false", 6),
        ("trainer.algorithm.use_kl_loss=false trainer.algorithm.use_kl_in_reward=true", 8),
        ("trainer.algorithm.use_kl_loss=$KL", 8),
    ],
)
def test_skyrl_holds_a_reference_where_a_penalty_asks_for_it(tmp_path: Path, words: str, gpus: int) -> None:
    """``build_models`` of its trainer: in the loss, which is its default, or in the reward."""
    assert read(tmp_path, f"{SKYRL} {words}\n").needed_gpus == gpus


ROLL = (
    "pretrain: Qwen/Qwen2.5-7B\nrollout_batch_size: 64\nprompt_length: 2048\nsequence_length: 8192\n"
    "adv_estimator: grpo\n"
    "actor_train: {device_mapping: 'list(range(0,8))', strategy_args: {strategy_name: megatron_train}}\n"
    "actor_infer: {device_mapping: 'list(range(0,8))', strategy_args: {strategy_name: vllm, strategy_config:"
    " {tensor_parallel_size: 2, pipeline_parallel_size: 2}}}\n"
)


def test_rolls_engines_take_their_stages_and_its_workers_leave_the_card(tmp_path: Path) -> None:
    imported = read(
        tmp_path, f"{ROLL}use_kl_loss: true\nkl_loss_coef: 0.001\nreference: {{device_mapping: '[0]'}}\n", "a.yaml"
    )
    assert (imported.rollout_tp, imported.rollout_engines) == (2, 2)
    layout = imported.layout
    assert layout
    assert (layout["lengths"]["response"], layout["train"]["steps"]) == (6144, 500)
    assert (layout["grpo"]["kl"], layout["grpo"]["kl_coefficient"]) == ("loss", 0.001)
    assert layout["roles"]["learner"]["offload"] == "all"
    found = check_script(tmp_path / "a.yaml").findings
    assert {"B221", "E305"}.isdisjoint(finding.code for finding in found)


def test_rolls_teachers_may_be_several_with_devices_of_their_own(tmp_path: Path) -> None:
    first = "{device_mapping: '[8, 9]', model_args: {model_name_or_path: x/y}}"
    teachers = f"teacher:\n  a: {first}\n  b: {{device_mapping: '[10]'}}\n"
    imported = read(tmp_path, f"{ROLL}{teachers}", "opd.yaml")
    assert (imported.needed_gpus, imported.layout and imported.layout["roles"]["teacher"]["model"]) == (11, "x/y")


@pytest.mark.parametrize(
    ("nodes", "data", "trainer"), [(1, "reward_model", 6), (3, "reward_model", 16), (1, "math", 8)]
)
def test_nemo_rls_reward_model_takes_some_of_the_cluster(tmp_path: Path, nodes: int, data: str, trainer: int) -> None:
    """``setup`` of its grpo.py: GPUs of the only node, whole nodes of several, none where no data ask for it."""
    text = (
        "grpo: {num_prompts_per_step: 8}\npolicy: {model_name: a/b, generation: {colocated: {enabled: true}}}\n"
        f"data: {{default: {{env_name: {data}}}}}\ncluster: {{num_nodes: {nodes}, gpus_per_node: 8}}\n"
        "env: {reward_model: {resources: {gpus_per_node: 2, num_nodes: 1}}}\n"
    )
    imported = read(tmp_path, text, "grpo.yaml")
    assert (imported.trainer_gpus, imported.rollout_gpus) == (trainer, trainer)
    assert (imported.needed_gpus, imported.declared_gpus) == (8 * nodes, 8 * nodes)
    assert "P106" not in [finding.code for finding in check_script(tmp_path / "grpo.yaml").findings]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (r"{\"env_vars\": {\"A\": \"$A\", \"B\": \"1\"}}", ""),
        (r"{\"env_vars\": {\"A\": \"$A\" \"B\": \"1\"}}", "delimiter"),
        (r"{\"env_vars\": {\"A\": \"$A\",}}", "near"),
        (r"{working_dir: /repo}", "double quotes"),
        (r"{\"env_vars\": {$MORE}}", ""),  # what stands outside quotes may be anything
        (r"$RUNTIME_ENV", ""),
    ],
)
def test_rays_environment_is_json(tmp_path: Path, text: str, fault: str) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f'ray job submit --runtime-env-json="{text}" -- {OPENRLHF} --reward.remote_url x\n')
    found = [finding.message for finding in check_script(script).findings if finding.code == "F995"]
    assert bool(found) == bool(fault)
    assert all(fault in message for message in found)


@pytest.mark.parametrize(("words", "gpus", "shares"), [("", 8, True), ("--critic-num-nodes 1", 12, False)])
def test_slimes_critic_shares_the_actors_gpus_unless_flags_count_its_own(
    tmp_path: Path, words: str, gpus: int, shares: bool
) -> None:
    """``create_placement_groups`` of slime gives it the actor's since April 2026, and the flags are gone."""
    command = "python3 train.py --actor-num-gpus-per-node 4 --rollout-num-gpus 4 --hf-checkpoint Qwen/Qwen3-4B"
    imported = read(tmp_path, f"{command} --advantage-estimator ppo {words}\n")
    assert imported.needed_gpus == gpus
    assert imported.layout
    roles = imported.layout["roles"]
    assert (roles["critic"]["pool"] == roles["learner"].get("pool", "")) == shares
