"""What another system's trainers keep on the card: its own way, and no error where that is not known well enough."""

from __future__ import annotations

from pathlib import Path

import pytest

from rltui.check.script import check_script_text
from rltui.cli.main import main
from rltui.importers.layout_of import as_yaml
from rltui.importers.read import import_text
from rltui.layout.load import load_text
from rltui.memory.estimate import RoleEstimate
from rltui.memory.layouts import estimate_roles

CARD = ["hardware.gpu=H100"]
HERE = Path("run.sh")
VERL = {
    "algorithm.adv_estimator": "gae",
    "data.train_batch_size": "512",
    "data.max_prompt_length": "1024",
    "data.max_response_length": "2048",
    "actor_rollout_ref.model.path": "Qwen/Qwen3-8B",
    "critic.model.path": "Qwen/Qwen3-8B",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "4",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "2",
    "actor_rollout_ref.rollout.gpu_memory_utilization": "0.6",
    "trainer.n_gpus_per_node": "8",
    "trainer.nnodes": "1",
}
ROLL = """\
{num_nodes: 1, num_gpus_per_node: 8, rollout_batch_size: 64, num_return_sequences_in_group: SAMPLES,
 prompt_length: 512, response_length: 512, adv_estimator: WORD, pretrain: Qwen/Qwen3-0.6B,
 actor_train: {device_mapping: "list(range(0,4))"},
 actor_infer: {device_mapping: "list(range(0,DEVICES))", strategy_args: {strategy_name: vllm}}}
"""
PRIME = """\
seq_len = 2048
[model]
name = "Qwen/Qwen3-0.6B"
[orchestrator]
batch_size = 32
group_size = 1
[orchestrator.algo]
type = "WORD"
[orchestrator.train.sampling]
max_completion_tokens = 512
[trainer]
[inference]
"""
AREAL = """\
experiment_name: one
cluster: {n_nodes: 1, n_gpus_per_node: 8}
rollout: {backend: "vllm:d1"}
actor: {backend: "fsdp:d1", path: Qwen/Qwen3-0.6B}
teacher: TEACHER
"""
SKYRL = (
    "python -m skyrl.train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen2.5-0.5B-Instruct"
    " trainer.placement.colocate_all=false trainer.placement.policy_num_gpus_per_node=4"
    " generator.inference_engine.tensor_parallel_size=1 generator.inference_engine.num_engines=4"
)
OFFLOAD = "actor_rollout_ref.actor.fsdp_config"


def verl(**changes: str) -> str:
    settings = VERL | {key.replace("__", "."): value for key, value in changes.items()}
    return "python3 -m verl.trainer.main_ppo " + " ".join(f"{key}={value}" for key, value in settings.items() if value)


def codes(text: str, severity: str = "error", name: str = "run.sh") -> set[str]:
    found = check_script_text(text, Path(name), given=CARD).findings
    return {one.code for one in found if one.severity == severity}


def role(text: str, name: str) -> RoleEstimate:
    found = import_text(text, HERE, CARD)
    assert found.layout is not None
    estimate = estimate_roles(load_text(as_yaml(found.layout), "run.sh", ["hardware.gpu=H100"]).layout).role(name)
    assert estimate is not None
    return estimate


def parts(estimate: RoleEstimate, moment: str) -> dict[str, float]:
    return next(one.parts_gib for one in estimate.moments if one.moment == moment)


def test_an_engine_wakes_up_beside_states_whose_gradients_are_gone() -> None:
    """FSDP frees them after each step; with DeepSpeed's ZeRO-3 this run would be called impossible."""
    assert "trainer gradients" not in parts(role(verl(), "rollout"), "generate")
    assert not codes(verl())


def test_what_is_offloaded_comes_back_to_train() -> None:
    text = verl(**{f"{OFFLOAD}.param_offload": "True", f"{OFFLOAD}.optimizer_offload": "True"})
    learner = role(text, "learner")
    assert not parts(learner, "load").get("optimizer")
    assert not parts(learner, "load").get("weights")
    assert parts(learner, "log-probs")["weights"] > 3
    assert not parts(learner, "log-probs").get("optimizer")
    assert parts(learner, "backward")["optimizer"] > 7  # 8 bytes of 8.2 billion parameters over 8 GPUs


def test_the_bar_of_a_system_without_a_recipe_is_wider() -> None:
    slime = (
        "python3 train.py --hf-checkpoint Qwen/Qwen3-4B --actor-num-gpus-per-node 8 --colocate"
        " --rollout-num-gpus-per-engine 2"
    )
    assert role(slime, "learner").error.above > role(verl(), "learner").error.above


def test_samples_that_come_one_by_one_are_trained_on_by_mini_batches() -> None:
    batch = {"data.train_batch_size": "0", "actor_rollout_ref.actor.ppo_mini_batch_size": "32"}
    pools = {"async_training.require_batches": "4", "rollout.nnodes": "1", "rollout.n_gpus_per_node": "8"}
    layout = import_text(verl(**batch, **pools), HERE).layout
    assert layout is not None
    train = layout["train"]
    assert (train["prompts_per_step"], train["optimizer_steps"], train["async_steps"]) == (128, 4, 1)


def test_rows_that_are_not_padded_are_no_error_until_one_of_full_length_is_too_much() -> None:
    rows = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
    many = verl(**{rows: "128"})
    assert "M301" not in codes(many)
    assert "M302" in codes(many, "warning")
    assert "M301" in codes(verl(**{rows: "128", "data.max_response_length": "300000"}))


def test_what_is_on_the_card_at_once_is_no_error_but_who_sits_where_is() -> None:
    one_row = {"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "1", "data.max_response_length": "30000"}
    large = {"actor_rollout_ref.model.path": "Qwen/Qwen3-32B", "critic.model.path": "Qwen/Qwen3-32B", **one_row}
    kept = verl(**large)
    moved = verl(**large, **{f"{OFFLOAD}.param_offload": "True", f"{OFFLOAD}.optimizer_offload": "True"})
    assert "M301" in codes(kept)
    assert "M301" not in codes(moved)
    assert "M301" in codes(moved, "note")
    teacher = {
        "distillation.enabled": "True",
        "distillation.n_gpus_per_node": "4",
        "distillation.nnodes": "1",
        "distillation.teacher_models.teacher_model.model_path": "Qwen/Qwen3-8B",
    }
    alone = verl(**teacher, **{f"{OFFLOAD}.param_offload": "True"})
    assert "P101" in codes(alone, "note"), "how many GPUs Ray has beside the trainer's pool is not in the script"
    assert "P101" in codes(f"#SBATCH --nodes=1 --gpus-per-node=8\n{alone}")


@pytest.mark.parametrize(("utilization", "severity"), [("0.62", "warning"), ("0.9", "error")])
def test_over_the_card_within_the_estimates_error_is_a_warning(utilization: str, severity: str) -> None:
    kept = verl(
        **{"critic.model.path": "Qwen/Qwen3-14B", "actor_rollout_ref.rollout.gpu_memory_utilization": utilization}
    )
    found = [one for one in check_script_text(kept, HERE, given=CARD).findings if "rollout" in one.message]
    assert severity in {one.severity for one in found if one.code in ("M302", "M306")}


def test_a_baseline_without_siblings_needs_none() -> None:
    alone = {"actor_rollout_ref.rollout.n": "1"}
    grpo = verl(**alone, **{"algorithm.adv_estimator": "grpo"})
    assert "B204" not in codes(grpo)  # verl takes the raw score then, and learns
    assert "F119" in codes(grpo, "warning")
    assert not codes(verl(**alone, **{"algorithm.adv_estimator": "rloo"}), "warning") & {"B204", "F119"}


@pytest.mark.parametrize("devices", [8, 16])
def test_rolls_engines_may_have_more_devices_than_its_trainer_on_as_many_nodes_as_these_take(devices: int) -> None:
    text = ROLL.replace("DEVICES", str(devices)).replace("SAMPLES", "8").replace("WORD", "grpo")
    assert not codes(text, name="rlvr.yaml")
    found = import_text(text, Path("rlvr.yaml"), CARD)
    assert (found.trainer_gpus, found.rollout_engines, found.declared_gpus) == (4, devices, devices)
    assert found.layout is not None
    assert sum(found.layout["pools"]["shared"]["gpus"]) == devices


@pytest.mark.parametrize(("word", "wrong"), [("grpo", True), ("rae", False), ("reinforce", False)])
def test_only_an_advantage_over_siblings_needs_them(word: str, wrong: bool) -> None:
    roll = ROLL.replace("DEVICES", "8").replace("SAMPLES", "1").replace("WORD", word)
    assert ("B204" in codes(roll, name="rlvr.yaml")) is wrong
    assert ("B204" in codes(PRIME.replace("WORD", word), name="rl.toml")) is wrong


@pytest.mark.parametrize(
    ("teacher", "needed"),
    [
        ('{engine_type: rollout, path: Qwen/Qwen3-8B, rollout: {backend: "vllm:d1t2"}}', 4),
        ('{backend: "fsdp:d1", path: Qwen/Qwen3-8B}', 2),
    ],
)
def test_areals_teacher_is_one_wherever_it_scores(teacher: str, needed: int) -> None:
    text = AREAL.replace("TEACHER", teacher)
    assert "B223" not in codes(text, name="grpo.yaml")
    assert import_text(text, Path("grpo.yaml")).needed_gpus == needed


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        ("", 16),
        ("scheduler: {type: slurm}\n", 24),
        ("scheduler: {type: slurm}\nref.kl: 0\n", 16),
        ("scheduler: {type: ray}\nref.place: colocation\n", 16),
    ],
)
def test_areals_reference_is_apart_where_a_cluster_places_it_and_a_penalty_asks_for_it(words: str, needed: int) -> None:
    coefficient = "kl_ctl: 0.0, " if "ref.kl" in words else ""
    place = "scheduling_strategy: {type: colocation, target: actor}, " if "ref.place" in words else ""
    text = (
        "experiment_name: e\ncluster: {n_nodes: 4, n_gpus_per_node: 8}\nrollout: {backend: 'sglang:d8'}\n"
        f"actor: {{{coefficient}backend: 'fsdp:d8', path: Qwen/Qwen3-8B}}\n"
        f"ref: {{{place}backend: 'fsdp:d8', path: Qwen/Qwen3-8B}}\n" + words.partition("ref.")[0]
    )
    assert import_text(text, Path("grpo.yaml")).needed_gpus == needed


def test_an_actor_of_areal_may_be_the_one_that_is_placed_on_the_engines() -> None:
    text = (
        "experiment_name: e\ncluster: {n_nodes: 1, n_gpus_per_node: 8}\nrollout: {backend: 'sglang:d8'}\n"
        "actor: {backend: 'fsdp:d8', path: Qwen/Qwen3-8B, lora_rank: 16,\n"
        "  scheduling_strategy: {type: colocation, target: rollout}}\n"
    )
    found = import_text(text, Path("grpo.yaml"))
    assert found.needed_gpus == 8
    assert found.layout is not None
    assert "lora_rank" not in found.layout["roles"]["learner"], "use_lora switches it on"
    lora = import_text(text.replace("lora_rank: 16", "use_lora: true"), Path("grpo.yaml")).layout
    assert lora is not None
    assert lora["roles"]["learner"]["lora_rank"] == 32


def test_engines_on_other_machines_take_none_of_this_one() -> None:
    assert not codes(f"{SKYRL} generator.inference_engine.run_engines_locally=true")
    assert import_text(f"{SKYRL} generator.inference_engine.run_engines_locally=False", HERE, CARD).layout is None


def test_a_system_built_on_verl_may_count_siblings_in_a_setting_of_its_own() -> None:
    alone = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.rollout.n": "1"}
    assert "F119" in codes(verl(**alone, **{"+data.shuffle": "True"}), "warning")
    built_on = verl(**alone, **{"env.rollout.n": "8"})
    assert "F119" not in codes(built_on, "warning")


def test_no_steps_at_all_are_an_evaluation_and_no_mistake() -> None:
    assert not codes(verl(**{"trainer.total_training_steps": "0"}))


@pytest.mark.parametrize(("utilization", "wrong"), [("0.12", False), ("0.08", True)])
def test_an_engine_whose_weights_fit_is_no_error_in_others_scripts(utilization: str, wrong: bool) -> None:
    """The profile run's part depends on how many tokens the engine passes at once: 7.6 GiB of weights, 79.2 a card."""
    share = {"actor_rollout_ref.rollout.gpu_memory_utilization": utilization}
    assert ("M303" in codes(verl(**share))) == wrong


@pytest.mark.parametrize(
    ("said", "rank", "reference"),
    [
        ("", 8, False),
        ("--lora_rank 32", 32, False),
        ("--tuner_type full", None, True),
        ("--train_type full", None, True),
    ],
)
def test_swift_trains_adapters_unless_it_is_told_otherwise(said: str, rank: int | None, reference: bool) -> None:
    command = "NPROC_PER_NODE=8 swift rlhf --rlhf_type grpo --model Qwen/Qwen3-8B --use_vllm true --vllm_mode colocate"
    found = import_text(f"{command} --deepspeed zero3_offload {said}\n", HERE)
    assert found.layout is not None
    roles = found.layout["roles"]
    assert roles["learner"].get("lora_rank") == rank
    assert ("reference" in roles) is reference
    assert (roles["learner"]["zero_stage"], roles["learner"]["offload"]) == (3, "all")
    assert roles["learner"]["gradient_checkpointing"] is True


def test_an_imported_layout_is_for_the_bundled_trainers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "run.sh"
    script.write_text(verl())
    assert main(["import", str(script)]) == 0
    assert "system:" not in capsys.readouterr().out
