"""Layouts whose roles share GPUs, and what offload, LoRA, 8-bit Adam, packing and a critic do to the estimate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rltui.check.rules.memory_fix import cure, cure_engine, with_word
from rltui.cli.main import main
from rltui.hardware.models import known_model
from rltui.hardware.parameters import count_parameters
from rltui.layout.load import load_layout, load_text
from rltui.layout.presets import preset_files, resolve
from rltui.layout.schema import Layout
from rltui.memory import estimate_layout
from rltui.memory.estimate import LayoutEstimate, RoleEstimate
from rltui.memory.json_form import as_json

SHARED = """
layout: 1
name: shared
algorithm: ppo
hardware: {nodes: 1, gpus_per_node: 8, gpu: A100-SXM4-80GB, memory_gib_per_node: 500}
pools: {all: {gpus: [4]}, value: {gpus: [4]}}
roles:
  learner: {model: Qwen/Qwen2.5-7B, pool: all, zero_stage: 3, micro_batch: 4, gradient_checkpointing: true}
  rollout: {pool: all, memory_utilization: 0.4, sleep_while_training: true}
  reference: {pool: all}
  critic: {pool: all, zero_stage: 3, micro_batch: 4, gradient_checkpointing: true}
train: {steps: 10, prompts_per_step: 64, samples_per_prompt: 1, learning_rate: 1.0e-6}
lengths: {prompt: 512, response: 1024}
data: {train: org/math, reward: math}
"""


def layout(*words: str) -> Layout:
    return load_text(SHARED, "shared.yaml", words).layout


def estimate(*words: str) -> LayoutEstimate:
    return estimate_layout(layout(*words))


def role(name: str, *words: str) -> RoleEstimate:
    found = estimate(*words).role(name)
    assert found is not None
    return found


def at(role_: RoleEstimate, moment: str) -> float:
    return next(each.total_gib for each in role_.moments if each.moment == moment)


def test_all_roles_are_there_in_the_order_of_the_table() -> None:
    answer = as_json(estimate("roles.teacher={model: Qwen/Qwen3-8B, pool: value}"))
    assert [each["role"] for each in answer["roles"]] == ["learner", "rollout", "reference", "critic", "teacher"]
    assert [each["role"] for each in answer["engines"]] == ["rollout", "teacher"]
    assert [each["gpus"] for each in answer["roles"]] == [4, 4, 4, 4, 4]
    json.dumps(answer)


def test_a_critic_elsewhere_leaves_its_whole_share_of_the_card_to_the_learner() -> None:
    beside, alone = role("learner"), role("learner", "roles.critic.pool=value")
    critic = role("critic", "roles.critic.pool=value")
    assert beside.peak_gib - alone.peak_gib == pytest.approx(critic.moments[0].total_gib)
    assert not any("beside" in part for part in critic.peak.parts_gib)


def test_an_engine_that_stays_awake_keeps_its_whole_budget() -> None:
    asleep, awake = role("learner"), role("learner", "roles.rollout.sleep_while_training=false")
    budget = 0.4 * (awake.capacity_gib or 0.0)
    assert awake.peak.parts_gib["rollout beside"] == pytest.approx(budget)
    assert asleep.peak.parts_gib["rollout beside"] < 3
    assert awake.knob == "roles.rollout.sleep_while_training=true"


def test_a_sleeping_engine_takes_host_memory_only_where_its_weights_go_there() -> None:
    def parts(engine: str) -> set[str]:
        host = estimate_layout(layout(f"roles.rollout.engine={engine}")).host
        assert host is not None
        return set(host.ram_parts_gib)

    assert "sleeping engines" in parts("hf")
    assert "sleeping engines" not in parts("vllm")


def test_gpus_that_divide_a_reward_model_have_a_share_of_it_each() -> None:
    words = ["data.reward=reward_model", "roles.reward_model={model: Qwen/Qwen3-32B, engines: 4, context: 8192}"]
    whole, divided = (
        role("reward_model", *words, f"roles.reward_model.zero_stage={stage}").peak.parts_gib for stage in (0, 3)
    )
    assert divided["weights"] == pytest.approx(whole["weights"] / 4)
    gathered = divided["activation"] - whole["activation"]  # DeepSpeed keeps up to 10⁹ parameters
    assert gathered == pytest.approx(2e9 / 2**30)
    assert role("reward_model", *words).knob == "roles.reward_model.zero_stage=3"


def test_a_frozen_vision_tower_has_weights_and_nothing_else() -> None:
    words = ["roles.learner.model=Qwen/Qwen3-VL-4B-Thinking", "lengths.images=2"]
    trained, frozen = (
        role("learner", *words, f"roles.learner.freeze_vision={value}").peak.parts_gib for value in ("false", "true")
    )
    count = count_parameters(known_model("Qwen/Qwen3-VL-4B-Thinking"))
    assert frozen["weights"] == trained["weights"]
    for name in ("gradients", "optimizer"):
        assert frozen[name] == pytest.approx(trained[name] * count.text / count.total), name


def test_a_sleeping_engine_wakes_beside_the_states_of_learner_and_critic() -> None:
    rollout, learner = role("rollout"), role("learner", "roles.critic.pool=value")
    assert [moment.moment for moment in rollout.moments] == ["wake-up", "generate"]
    generate = rollout.moments[1].parts_gib
    assert generate["trainer optimizer"] == pytest.approx(learner.moments[0].parts_gib["optimizer"])
    assert generate["trainer gradients"] == pytest.approx(learner.moments[0].parts_gib["gradients"])
    assert generate["critic beside"] > 20
    assert "bucket" in rollout.moments[0].parts_gib


def test_the_share_of_the_card_is_lowered_only_where_that_leads_to_a_fit() -> None:
    full = layout("roles.learner.model=Qwen/Qwen2.5-3B", "roles.rollout.memory_utilization=0.8")
    (word,) = cure(full, "rollout", ("fits", "tight"))
    assert word.startswith("roles.rollout.memory_utilization=0.")
    settled = estimate_layout(with_word(full, word)).role("rollout")
    assert settled is not None
    assert settled.verdict == "fits"
    assert not settled.blocked


@pytest.mark.parametrize(("share", "knob"), [("0.9", ""), ("0.95", "roles.rollout.memory_utilization=0.9")])
def test_an_engine_alone_is_not_told_the_share_that_it_has(share: str, knob: str) -> None:
    words = ["hardware.gpu=L40S", "roles.learner.model=Qwen/Qwen3-0.6B", f"roles.rollout.memory_utilization={share}"]
    found = load_layout(resolve("open-instruct/grpo-7b-1x4-even"), words).layout
    role = estimate_layout(found).role("rollout")
    assert role is not None
    assert role.knob == knob


def test_transformers_are_not_told_a_share_of_the_card() -> None:
    many = ("roles.rollout.engine=hf", "train.prompts_per_step=4096", "lengths.response=16384")
    role = estimate_layout(layout(*many)).role("rollout")
    assert role is not None
    assert (role.verdict, role.knob) == ("no", "roles.learner.offload=optimizer")


def test_engine_by_transformers_works_on_as_many_samples_as_it_is_told() -> None:
    many = ("roles.rollout.engine=hf", "train.prompts_per_step=4096", "train.samples_per_prompt=8")

    def cache(*words: str) -> float:
        role = estimate_layout(layout(*many, *words)).role("rollout")
        assert role is not None
        return next(moment for moment in role.moments if moment.moment == "generate").parts_gib["kv"]

    assert cache("roles.rollout.max_concurrency=128") == pytest.approx(cache() / 4)
    assert cache("roles.rollout.max_concurrency=4") == pytest.approx(cache() / 128)  # a part of one group


def test_offloaded_states_leave_the_card_and_appear_in_host_memory() -> None:
    plain, offloaded = estimate(), estimate("roles.learner.offload=optimizer", "roles.critic.offload=all")
    assert plain.host is not None
    assert offloaded.host is not None
    assert at(offloaded.roles[1], "generate") < at(plain.roles[1], "generate") - 40
    assert "offload" not in plain.host.ram_parts_gib
    assert offloaded.host.ram_parts_gib["offload"] == pytest.approx(1.5 * 7.6 * (16 + 18) / 1.0737, rel=0.03)


def test_reference_weights_are_divided_over_their_pool() -> None:
    four, eight = role("reference"), role("reference", "pools={all: {gpus: [8]}}")
    assert four.moments[0].parts_gib["weights"] == pytest.approx(2 * eight.moments[0].parts_gib["weights"])
    whole = role("reference", "roles.reference.zero_stage=0")
    assert whole.moments[0].parts_gib["weights"] == pytest.approx(4 * four.moments[0].parts_gib["weights"])
    assert whole.knob == "roles.reference.zero_stage=3"
    assert [moment.moment for moment in four.moments] == ["load", "log-probs"]


def test_lora_and_8_bit_adam_take_less() -> None:
    full = role("learner").moments[0].parts_gib
    adapters = role("learner", "roles.learner.lora_rank=16").moments[0].parts_gib
    small = role("learner", "roles.learner.optimizer=adamw_8bit").moments[0].parts_gib
    assert adapters["adapters"] < 1
    assert "optimizer" not in adapters
    assert small["optimizer"] == pytest.approx(full["optimizer"] / 2)  # 4 + 2 bytes for 4 + 8


def test_sequences_and_layers_are_divided_by_their_degrees() -> None:
    whole = role("learner").moments[2].parts_gib
    half = role("learner", "roles.learner.sequence_parallel=2").moments[2].parts_gib
    assert half["layer"] == pytest.approx(whole["layer"] / 2)
    # DeepSpeed's tensor parallelism divides matrices, not norms and what is kept of a recomputed layer
    cut = role("learner", "roles.learner.tensor_parallel=2").moments[2].parts_gib
    assert cut["activations"] == pytest.approx(whole["activations"])
    assert whole["layer"] / 2 < cut["layer"] < 0.65 * whole["layer"]
    hpz = role("learner", "roles.learner.hpz_partition=2").moments[0].parts_gib
    assert hpz["weights"] > 2 * role("learner").moments[0].parts_gib["weights"]


def test_packed_rows_are_as_long_as_the_pack_and_have_no_mask() -> None:
    rows = ("roles.learner.micro_batch=1", "roles.learner.chunked_logits=false")
    padded = role("learner", *rows).moments[2].parts_gib
    packed = role("learner", *rows, "lengths.pack=6144").moments[2].parts_gib
    assert packed["layer"] == pytest.approx(4 * padded["layer"])
    assert packed["logits"] == pytest.approx(6 * padded["logits"])  # 6144 tokens for 1024 of a response


def test_whole_gathering_and_whole_logits() -> None:
    gathered = role("learner", "roles.learner.gather_whole_model=true").moments[-1].parts_gib
    assert gathered["gathered"] == pytest.approx(2 * 7.6156 / 1.0737, rel=0.01)
    logits = role("learner", "roles.learner.chunked_logits=false").moments[2].parts_gib["logits"]
    assert logits > 4 * role("learner").moments[2].parts_gib["logits"]


def test_engine_settings_of_the_layout_reach_the_engine() -> None:
    (plain,) = estimate().engines
    (eager,) = estimate("roles.rollout.enforce_eager=true").engines
    (few,) = estimate("roles.rollout.max_concurrency=8").engines
    assert (eager.graphs_gib, eager.kv_gib) == (0, pytest.approx((plain.kv_gib or 0) + plain.graphs_gib))
    assert few.activation_gib <= plain.activation_gib


def test_an_engine_that_cannot_start_is_divided_over_the_gpus_it_has() -> None:
    words = ["roles.learner.model=Qwen/Qwen2.5-32B", "pools={all: {gpus: [8]}}", "roles.rollout.memory_utilization=0.5"]
    found = layout(*words)
    fix = cure_engine(found, "rollout")
    assert fix == ("roles.rollout.tensor_parallel=2",)


def test_what_no_setting_cures_has_no_fix() -> None:
    assert cure(layout("roles.learner.model=Qwen/Qwen2.5-72B"), "critic", ("fits",)) == ()


def test_an_unknown_critic_is_left_out_and_named() -> None:
    found = estimate("roles.critic.model=org/unheard-of")
    assert found.role("critic") is None
    assert any("The critic is left out" in note for note in found.notes)


@pytest.mark.parametrize("path", [path for _, path in preset_files()], ids=[name for name, _ in preset_files()])
def test_every_preset_fits_and_mem_says_so(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mem", str(path)]) == 0
    text = capsys.readouterr().out
    loaded = load_layout(path).layout
    assert "no card to fill" in text if loaded.hardware.on_cpu else "✓ fits" in text
    assert "✗" not in text


def test_what_sits_beside_an_unknown_model_is_not_said_to_fit() -> None:
    unheard = "roles.critic.model=org/unheard-of"
    assert {role.verdict for role in estimate(unheard).roles} == {"unknown"}
    larger = estimate(unheard, "roles.learner.model=Qwen/Qwen2.5-72B")
    assert "no" in {role.verdict for role in larger.roles}, "what is too large alone stays so"


def test_an_unknown_learner_leaves_the_estimates_of_others() -> None:
    found = estimate_layout(load_layout(resolve("opd/text-8"), ["roles.learner.model=org/unheard-of"]).layout)
    assert [(role.role, role.verdict) for role in found.roles] == [("teacher", "fits")]
    assert [engine.role for engine in found.engines] == ["teacher"]
    assert any(note.startswith("The learner and rollout are left out") for note in found.notes)
    assert found.checkpoint_gib is None


def test_rollouts_in_fp8_leave_room_for_a_cache_of_twice_the_tokens() -> None:
    words = ["roles.rollout.quantization=fp8_per_block", "roles.rollout.kv_cache_dtype=fp8"]
    plain, weights, both = (estimate_layout(layout(*words[:count])).engines[0] for count in range(3))
    assert weights.weights_gib < 0.65 * plain.weights_gib
    assert both.weights_gib == weights.weights_gib
    assert weights.kv_tokens
    assert both.kv_tokens == pytest.approx(2 * weights.kv_tokens, rel=0.01)


def test_verls_deferred_gradients_are_told_where_a_step_has_several_micro_batches() -> None:
    told, model = "keeps the gradients of a step's micro-batches whole", known_model("Qwen2.5-7B")
    assert model is not None
    (note,) = [note for note in estimate("system=verl").notes if told in note]
    assert f"{4 * count_parameters(model).total * 3 / 4 / 2**30:.1f} GiB more" in note  # of four GPUs that divide them
    for words in ([], ["system=verl", "roles.learner.micro_batch=0"], ["system=verl", "roles.learner.lora_rank=8"]):
        assert not any(told in note for note in estimate(*words).notes)
