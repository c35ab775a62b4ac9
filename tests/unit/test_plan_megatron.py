"""What is planned of learners that Megatron divides: what scripts say, what a step takes, what is proposed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from import_support import read
from msgspec import structs

from rltui.check.bundled import unsupported
from rltui.check.run import check_text
from rltui.cli.main import main
from rltui.importers.layout_of import as_yaml
from rltui.layout.load import load_layout, load_text
from rltui.layout.presets import resolve
from rltui.memory.from_layout import sharding_of, workload_of
from rltui.plan.candidates import is_megatron, training_ways
from rltui.plan.of_layout import predict, training_way, wanted_of_layout
from rltui.plan.training import train_terms

ACTOR = "actor_rollout_ref.actor"
VERL = (
    "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.model.path=Qwen/Qwen3-30B-A3B"
    " data.train_batch_size=64 data.max_prompt_length=1024 data.max_response_length=4096"
    " actor_rollout_ref.rollout.n=8 actor_rollout_ref.rollout.tensor_model_parallel_size=4"
    f" {ACTOR}.strategy=megatron {ACTOR}.use_dynamic_bsz=True {ACTOR}.ppo_max_token_len_per_gpu=16384"
    f" {ACTOR}.megatron.override_transformer_config.recompute_granularity=full"
    f" {ACTOR}.megatron.param_offload=True {ACTOR}.megatron.optimizer_offload=True"
    " trainer.n_gpus_per_node=8 trainer.nnodes=4"
)
CUT = f" {ACTOR}.megatron.tensor_model_parallel_size=2 {ACTOR}.megatron.pipeline_model_parallel_size=2"
ON_HOST = " ".join(
    f"+{ACTOR}.optim.override_optimizer_config.{setting}"
    for setting in ("optimizer_cpu_offload=True", "optimizer_offload_fraction=")
)
HELD = {
    "run.sh": f"{VERL} {ON_HOST}1.0",
    "sky.sh": "uv run -m skyrl.train.entrypoints.main_base trainer.strategy=megatron generator.num_engines=1"
    " trainer.policy.model.path=Qwen/Qwen3-30B-A3B trainer.placement.policy_num_gpus_per_node=8"
    " trainer.policy.megatron_config.optimizer_config_kwargs.optimizer_cpu_offload=true",
    "recipe.yaml": "{policy: {model_name: Qwen/Qwen3-30B-A3B, megatron_cfg: {enabled: true, optimizer: "
    "{optimizer_cpu_offload: true, optimizer_offload_fraction: 1.0}}, generation: {backend: vllm}}, "
    "grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 8}, cluster: {gpus_per_node: 8, num_nodes: 1}}",
}
"""Scripts whose optimizer stays in host memory, by the name of their file."""
EXPERTS = f" {ACTOR}.megatron.expert_model_parallel_size=8"


def layout_of(tmp_path: Path, text: str) -> Any:
    found = read(tmp_path, text)
    assert found.layout is not None
    return load_text(as_yaml(found.layout), "run.sh", ["hardware.gpu=H100"]).layout


@pytest.mark.parametrize(
    "text",
    [
        VERL + CUT + EXPERTS,
        "python3 train.py --actor-num-nodes 4 --actor-num-gpus-per-node 8 --colocate --rollout-num-gpus-per-engine 4"
        " --hf-checkpoint Qwen/Qwen3-30B-A3B --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
        " --expert-model-parallel-size 8 --rollout-batch-size 8 --n-samples-per-prompt 8",
        "uv run --extra mcore -m skyrl.train.entrypoints.main_base trainer.strategy=megatron"
        " trainer.policy.model.path=Qwen/Qwen3-30B-A3B trainer.placement.policy_num_nodes=4"
        " trainer.placement.policy_num_gpus_per_node=8 generator.inference_engine.num_engines=8"
        " generator.inference_engine.tensor_parallel_size=4 trainer.policy.megatron_config.tensor_model_parallel_size=2"
        " trainer.policy.megatron_config.pipeline_model_parallel_size=2"
        " trainer.policy.megatron_config.expert_model_parallel_size=8",
    ],
)
def test_a_scripts_own_cuts_are_a_layouts(tmp_path: Path, text: str) -> None:
    layout = layout_of(tmp_path, text)
    learner = layout.roles.learner
    assert (learner.tensor_parallel, learner.pipeline_parallel, learner.expert_parallel) == (2, 2, 8)
    assert (learner.zero_stage, is_megatron(layout.system), layout.num_ranks) == (1, True, 8)
    sharding = sharding_of(layout, "learner")
    assert (sharding.backend, sharding.pipeline_parallel, sharding.expert_parallel) == ("megatron", 2, 8)
    assert workload_of(layout, "learner").pipeline_micro_batches > 1
    assert "learner pipeline_parallel 2" in unsupported(layout)


def test_a_recipe_of_nemo_rl_and_an_allocation_of_areal_say_it_too(tmp_path: Path) -> None:
    nemo = """
grpo: {num_prompts_per_step: 8, num_generations_per_prompt: 8}
policy:
  model_name: Qwen/Qwen3-30B-A3B
  max_total_sequence_length: 4096
  megatron_cfg: {enabled: true, tensor_model_parallel_size: 2, pipeline_model_parallel_size: 2,
                 expert_model_parallel_size: 8, context_parallel_size: 2}
  generation: {backend: vllm, colocated: {enabled: true}, vllm_cfg: {tensor_parallel_size: 4}}
cluster: {gpus_per_node: 8, num_nodes: 4}
"""
    areal = """
experiment_name: one
allocation_mode: sglang:d4t4+megatron:(attn:d2p2t2c2|ffn:d2p2e8)
cluster: {n_nodes: 4, n_gpus_per_node: 8}
actor: {path: Qwen/Qwen3-30B-A3B}
train_dataset: {batch_size: 8}
gconfig: {n_samples: 8}
"""
    for text in (nemo, areal):
        learner = (read(tmp_path, text, "recipe.yaml").layout or {})["roles"]["learner"]
        ways = ("tensor", "pipeline", "sequence", "expert")
        assert [learner[f"{way}_parallel"] for way in ways] == [2, 2, 2, 8]


def test_a_step_counts_the_pipeline_and_what_experts_wait_for(tmp_path: Path) -> None:
    def terms(text: str) -> tuple[int, float, float, str]:
        layout = layout_of(tmp_path, text)
        return train_terms(wanted_of_layout(layout), training_way(layout, layout.roles.learner))

    plain, piped, spread = terms(VERL), terms(VERL + CUT), terms(VERL + CUT + EXPERTS)
    assert piped[0] == 4 * plain[0]  # a quarter of the replicas
    assert piped[1] < plain[1]
    assert spread[1] > piped[1]  # each layer waits for its all-to-all
    assert spread[2] < piped[2]  # fewer gradients of each rank's are added up


def test_states_that_come_back_to_the_card_are_moved_and_not_stepped_in_host_memory(tmp_path: Path) -> None:
    layout = layout_of(tmp_path, VERL + CUT)
    assert layout.roles.learner.offload == "all"
    request, way = wanted_of_layout(layout), training_way(layout, layout.roles.learner)
    moved, kept = (train_terms(request, each)[2] for each in (way, structs.replace(way, offload=False)))
    stepped = train_terms(request, structs.replace(way, trains_on_card=False))[2]
    assert kept < moved < stepped
    assert predict(layout).time.train_s > 0


def test_proposals_are_cut_as_megatron_cuts_and_check_as_the_script_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    script.write_text(VERL + CUT + EXPERTS, encoding="utf-8")
    assert main(["plan", str(script), "--gpu", "H100", "--json", "--save", str(tmp_path / "plans")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["now"]["step_s"] > 0
    for proposal in told["proposals"]:
        learner = proposal["layout"]["roles"]["learner"]
        ranks = sum(proposal["learner_gpus"])
        assert learner["zero_stage"] == 1
        assert ranks % (learner["tensor_parallel"] * learner["pipeline_parallel"]) == 0
        assert ranks // learner["pipeline_parallel"] % learner["expert_parallel"] == 0
        assert proposal["layout"]["lengths"]["pack"] == 16_384  # the script's own budget, above the longest sample
    for path in told["saved"]:
        text = Path(path).read_text(encoding="utf-8")
        assert text.startswith(f"# {script} as it stands, divided anew")
        assert check_text(text, path).ok
    assert main(["plan", str(script), "--gpu", "H100", "--save", str(tmp_path / "plans")]) == 0
    out = capsys.readouterr().out
    assert " Megatron TP" in out
    assert "rltui launch" not in out  # the bundled trainers have no such learner


def test_the_bundled_trainers_are_proposed_none_of_it() -> None:
    layout = load_layout(resolve("open-instruct/grpo-7b-2x4-uneven")).layout
    ways = list(training_ways(wanted_of_layout(layout), (4,)))
    assert {(way.tensor_parallel, way.pipeline_parallel, way.expert_parallel) for way in ways} == {(1, 1, 1)}
    assert not any(way.megatron for way in ways)


def test_groups_that_do_not_divide_the_learner_are_an_error() -> None:
    words = ["roles.learner.pipeline_parallel=4", "roles.learner.gpus=[6]", "roles.rollout.engines=1"]
    layout = load_layout(resolve("opd/text-8"), words)
    from rltui.plan.assemble import as_text

    report = check_text(as_text(layout.layout), "one.yaml")
    found = next(finding for finding in report.findings if finding.code == "P118")
    assert found.key == "roles.learner.pipeline_parallel"
    assert "pipeline_parallel 4" in found.message


@pytest.mark.parametrize("name", HELD)
def test_an_optimizer_that_steps_in_host_memory_leaves_the_card(tmp_path: Path, name: str) -> None:
    layout = read(tmp_path, HELD[name], name).layout
    assert layout is not None
    assert (layout["system"], layout["roles"]["learner"]["offload"]) == ("megatron", "optimizer")


def test_half_an_optimizer_is_not_said_to_leave(tmp_path: Path) -> None:
    layout = read(tmp_path, f"{VERL} {ON_HOST}0.5").layout
    assert layout is not None
    assert layout["system"] == "megatron in turns"


def test_adapters_of_megatron_are_adapters(tmp_path: Path) -> None:
    layout = read(tmp_path, f"{VERL} actor_rollout_ref.model.lora.rank=32").layout
    assert layout is not None
    assert layout["roles"]["learner"]["lora_rank"] == 32


def test_a_cut_that_is_no_power_of_two_is_among_the_proposals(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f"{VERL} {CUT}".replace("nnodes=4", "nnodes=12") + f" {ACTOR}.megatron.pipeline_model_parallel_size=12",
    )
    assert found.layout is not None
    layout = load_text(as_yaml(found.layout), "run.sh", ["hardware.gpu=H100"]).layout
    assert layout is not None
    request = wanted_of_layout(layout)
    cuts = {(way.tensor_parallel, way.pipeline_parallel) for way in training_ways(request, (8,) * 12)}
    assert {(2, 12), (2, 4)} <= cuts


@pytest.mark.parametrize("gpus", [3, 6])
@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_experts_are_planned_on_nodes_whose_gpus_are_no_power_of_two(gpus: int, algorithm: str, tmp_path: Path) -> None:
    words = VERL.replace(
        "trainer.n_gpus_per_node=8 trainer.nnodes=4", f"trainer.n_gpus_per_node={gpus} trainer.nnodes=1"
    )
    script = tmp_path / "run.sh"
    script.write_text(words.replace("adv_estimator=grpo", f"adv_estimator={'gae' if algorithm == 'ppo' else 'grpo'}"))
    assert main(["plan", str(script), "--gpu", "H200"]) in (0, 1)
