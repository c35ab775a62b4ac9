"""The estimate of a layout, its table and its JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from model_support import shape_of
from msgspec import structs

from rltui.check.arithmetic import resolve
from rltui.hardware.models import find_model
from rltui.hardware.parameters import count_parameters
from rltui.layout.load import load_layout, load_text
from rltui.layout.schema import Layout
from rltui.memory import estimate_layout
from rltui.memory.bars import lines
from rltui.memory.estimate import GIB
from rltui.memory.host import checkpoint_gib, estimate_host
from rltui.memory.json_form import as_json
from rltui.memory.settings import DEEPSPEED_BF16, FP32, Adapter, Sharding

LAYOUTS = Path(__file__).parents[2] / "layouts"
BASE: dict[str, Any] = {
    "layout": 1,
    "name": "olmo-7b-2x4",
    "algorithm": "grpo",
    "hardware": {"nodes": 2, "gpus_per_node": 4, "gpu": "H100-SXM-80GB", "cpus_per_node": 64},
    "roles": {
        "learner": {
            "model": "allenai/OLMo-2-1124-7B-Instruct", "gpus": [2, 1], "zero_stage": 3, "micro_batch": 1,
            "gradient_checkpointing": True,
        },
        "rollout": {"engines": 5},
    },
    "train": {"steps": 10, "prompts_per_step": 32, "samples_per_prompt": 8, "learning_rate": 1e-6},
    "lengths": {"prompt": 2048, "response": 8192},
    "data": {"train": "math"},
}  # fmt: skip


def layout(**overrides: Any) -> Layout:
    """``BASE`` with values set at dotted keys; dots are written as two underscores."""
    data = json.loads(json.dumps(BASE))
    for key, value in overrides.items():
        *path, last = key.split("__")
        place = data
        for name in path:
            place = place[name]
        place[last] = value
    return msgspec.convert(data, Layout)


def apply(knob: str, **overrides: Any) -> Layout:
    key, value = knob.split("=")
    return layout(**{**overrides, key.replace(".", "__"): json.loads(value)})


def test_json_has_the_promised_form() -> None:
    answer = json.loads(msgspec.json.encode(as_json(estimate_layout(layout()))))
    assert answer["schema"] == 1
    assert [role["role"] for role in answer["roles"]] == ["learner", "rollout"]
    for role, gpus in zip(answer["roles"], (3, 5), strict=True):
        assert role["gpus"] == gpus
        assert role["capacity_gib"] == 79.18
        assert role["verdict"] == "fits"
        totals = [moment["total_gib"] for moment in role["moments"]]
        assert role["peak_gib"] == max(totals)
        for moment in role["moments"]:
            assert moment["total_gib"] == pytest.approx(sum(moment["parts_gib"].values()), abs=0.01)
    (engine,) = answer["engines"]
    assert set(engine) >= {"role", "weights_gib", "activation_gib", "kv_gib", "kv_tokens", "max_concurrency"}
    assert engine["kv_tokens"] == pytest.approx(engine["max_concurrency"] * 10240, rel=0.01)


def test_olmo_holds_few_long_sequences_for_it_has_no_grouped_heads() -> None:
    (olmo,) = estimate_layout(layout()).engines
    (llama,) = estimate_layout(layout(roles__learner__model="meta-llama/Llama-3.1-8B-Instruct")).engines
    assert olmo.kv_tokens is not None
    assert llama.kv_tokens is not None
    assert 9 < (olmo.max_concurrency or 0) < 12
    assert 3.7 < llama.kv_tokens / olmo.kv_tokens < 4.1


def test_whole_batch_at_once_is_what_micro_batch_zero_means() -> None:
    few, all_at_once = layout(roles__learner__micro_batch=86), layout(roles__learner__micro_batch=0)
    assert estimate_layout(all_at_once).roles[0].peak_gib == estimate_layout(few).roles[0].peak_gib
    fewer = layout(roles__learner__micro_batch=85)  # a rank of three has 85 of the 256 samples, or 86
    assert estimate_layout(all_at_once).roles[0].peak_gib > estimate_layout(fewer).roles[0].peak_gib


@pytest.mark.parametrize(
    "overrides",
    [
        {"roles__learner__gradient_checkpointing": False, "roles__learner__micro_batch": 8},
        {"roles__learner__micro_batch": 32},
        {"roles__learner__zero_stage": 2, "roles__learner__gpus": [4], "lengths__response": 512},
        {"roles__learner__zero_stage": 0, "roles__learner__gpus": [4], "lengths__response": 512},
    ],
)
def test_applied_knob_lowers_the_peak(overrides: dict[str, Any]) -> None:
    before = estimate_layout(layout(**overrides)).roles[0]
    assert before.knob
    after = estimate_layout(apply(before.knob, **overrides)).roles[0]
    assert after.peak_gib < before.peak_gib


def test_32b_engine_needs_the_share_of_the_card_that_a_guide_takes_away() -> None:
    """At 0.55 a 32B model cannot start on one card; at 0.9 it can. Lowering the share is no lever here."""
    overrides = {
        "roles__learner__model": "allenai/OLMo-2-0325-32B-Instruct", "hardware__gpu": "GH200-96GB",
        "roles__rollout__memory_utilization": 0.55,
    }  # fmt: skip
    before = estimate_layout(layout(**overrides)).roles[1]
    assert before.verdict == "no"
    assert "memory_utilization=0.55" in before.blocked
    after = estimate_layout(apply(before.knob, **overrides)).roles[1]
    assert after.verdict == "fits"


def test_cache_too_small_for_one_sequence_blocks_the_engine() -> None:
    role = estimate_layout(layout(lengths__response=200_000)).roles[1]
    assert role.verdict == "no"
    assert "not one sequence of 202048" in role.blocked
    assert role.knob == "roles.rollout.tensor_parallel=2"


def test_cpu_layout_has_no_card_to_fill() -> None:
    estimate = estimate_layout(layout(hardware__gpu="cpu"))
    assert estimate.roles == ()
    assert any("no card to fill" in note for note in estimate.notes)


def test_unknown_card_is_said_and_not_guessed() -> None:
    estimate = estimate_layout(layout(hardware__gpu="GH200"))
    assert {role.verdict for role in estimate.roles} == {"unknown"}
    assert "GH200-96GB or GH200-144GB" in estimate.notes[0]


def test_unknown_model_is_said_with_the_nearest() -> None:
    estimate = estimate_layout(layout(roles__learner__model="Qwen/Qwen3-7B"))
    assert estimate.roles == ()
    assert "Qwen3-8B" in estimate.notes[0]


def test_transformers_engine_on_a_card() -> None:
    role = estimate_layout(layout(roles__rollout__engine="hf")).roles[1]
    assert role.verdict == "no"  # 56 sequences of 10k tokens, half a MiB each
    assert role.knob == "roles.rollout.max_concurrency=28"


def test_v100_cannot_train_3b_without_division() -> None:
    """A guide's plan: full fine-tuning of 3 billion parameters, replicated on two 32 GB cards."""
    overrides = {
        "roles__learner__model": "Qwen/Qwen2.5-3B", "roles__learner__gpus": [2], "roles__learner__zero_stage": 0,
        "roles__learner__precision": "fp16", "hardware__gpu": "V100-32GB", "lengths__response": 1024,
        "lengths__prompt": 512,
    }  # fmt: skip
    learner = estimate_layout(layout(**overrides)).roles[0]
    assert learner.verdict == "no"
    assert learner.knob == "roles.learner.zero_stage=3"


def test_lines_fit_a_terminal_and_name_the_verdict() -> None:
    text = list(lines(estimate_layout(layout())))
    assert any("✓ fits" in line for line in text)
    assert any("sequences of full length" in line for line in text)
    assert max(map(len, text)) <= 110
    full = list(lines(estimate_layout(layout(roles__learner__micro_batch=64))))
    assert any("▶" in line for line in full)
    assert any("✗ no" in line for line in full)
    assert any(line.strip() == "roles.learner.micro_batch=32" for line in full)


@pytest.mark.parametrize(
    "overrides",
    [
        {"roles__learner__gpus": [1024], "roles__rollout__tensor_parallel": 1024},
        {"lengths__response": 10**9, "lengths__prompt": 10**9},
        {"train__prompts_per_step": 10**9, "train__samples_per_prompt": 10**9, "roles__learner__micro_batch": 0},
        {"train__prompts_per_step": 1, "train__samples_per_prompt": 1, "roles__learner__gpus": [4, 4]},
        {"roles__rollout__memory_utilization": 0.0},
    ],
)
def test_absurd_layouts_are_estimated_all_the_same(overrides: dict[str, Any]) -> None:
    estimate = estimate_layout(layout(**overrides))
    assert {role.verdict for role in estimate.roles} <= {"fits", "tight", "no"}
    assert list(lines(estimate))
    assert estimate.host is not None
    assert estimate.host.ram_gib > 0


def test_host_memory_by_cause() -> None:

    model = shape_of("Llama-3.1-8B")
    bytes_16 = 8_030_261_248 * 2 / GIB
    plain = estimate_host(model, Sharding(gpus=4, zero_stage=2), DEEPSPEED_BF16, learners=4)
    assert plain.ram_parts_gib["loading"] == pytest.approx(4 * bytes_16)
    offload = estimate_host(model, Sharding(gpus=4, offload="optimizer"), DEEPSPEED_BF16, learners=4)
    assert "loading" not in offload.ram_parts_gib
    assert offload.ram_parts_gib["offload"] == pytest.approx(8_030_261_248 * 16 * 1.5 / GIB)
    asleep = estimate_host(model, Sharding(gpus=4), DEEPSPEED_BF16, learners=4, engines=2, engine_gpus=4, sleeping=True)
    assert asleep.ram_parts_gib["sleeping engines"] == pytest.approx(2 * bytes_16)
    assert asleep.shm_gib == 10


def test_checkpoint_on_disk() -> None:

    model = shape_of("Llama-3.1-8B")
    assert checkpoint_gib(model, DEEPSPEED_BF16) == pytest.approx(14 * 8_030_261_248 / GIB)
    assert checkpoint_gib(model, FP32) == pytest.approx(12 * 8_030_261_248 / GIB)


def test_a_checkpoint_of_adapters_holds_them_alone() -> None:
    whole = layout(roles__learner__model="Qwen/Qwen3-8B")
    adapted = layout(roles__learner__model="Qwen/Qwen3-8B", roles__learner__lora_rank=16)
    each_layer = 2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 12288)  # q and o, k and v, gate, up and down
    assert estimate_layout(adapted).checkpoint_gib == pytest.approx(14 * 36 * 16 * each_layer / GIB)
    assert resolve(adapted).checkpoint_bytes == 14 * 36 * 16 * each_layer
    assert resolve(whole).checkpoint_bytes == 14 * 8_190_735_360


def test_a_checkpoint_has_the_weights_alone_of_a_frozen_tower() -> None:
    name = "Qwen/Qwen2.5-VL-7B-Instruct"
    model = find_model(name)
    assert model is not None
    whole = resolve(layout(roles__learner__model=name)).checkpoint_bytes
    frozen = resolve(layout(roles__learner__model=name, roles__learner__freeze_vision=True)).checkpoint_bytes
    assert whole is not None
    assert frozen == pytest.approx(whole - 12 * model.vision_params, abs=2)


def test_check_and_estimate_know_one_size_of_a_checkpoint_with_an_8_bit_optimizer_and_a_critic() -> None:
    split = load_layout(LAYOUTS / "verl-ppo" / "ppo-1x4-split.yaml", ["roles.learner.optimizer=adamw_8bit"]).layout
    model = find_model(split.roles.learner.model)
    assert model is not None
    assert resolve(split).checkpoint_bytes == (8 + 14) * count_parameters(model).total
    assert estimate_layout(split).checkpoint_gib == pytest.approx((8 + 14) * count_parameters(model).total / GIB)


def test_offloaded_states_are_those_of_what_is_trained() -> None:
    whole = offload_gib(roles__learner__offload="optimizer")
    adapters = offload_gib(roles__learner__offload="optimizer", roles__learner__lora_rank=16)
    assert whole > 100
    assert adapters < 1
    with_base = offload_gib(roles__learner__offload="all", roles__learner__lora_rank=16)
    assert with_base == pytest.approx(adapters + 1.5 * 2 * 7_298_621_440 / GIB * 2 / 3, rel=0.01)


def offload_gib(**overrides: Any) -> float:
    host = estimate_layout(layout(**overrides)).host
    assert host is not None
    return host.ram_parts_gib["offload"]


def mem(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rltui", "mem", *words], capture_output=True, text=True, timeout=60, check=False
    )


def test_verb_prints_a_table_and_exits_by_the_verdict(tmp_path: Path) -> None:
    file = tmp_path / "l.yaml"
    file.write_text(json.dumps(BASE))  # JSON is YAML
    fits = mem(str(file))
    assert (fits.returncode, fits.stderr) == (0, "")
    assert "learner   3 GPUs" in fits.stdout
    assert fits.stdout.startswith("policy    OLMo-2-1124-7B: 7.3 B parameters, 13.6 GiB in 16 bits\n")
    too_much = mem(str(file), "roles.learner.micro_batch=64", "--json")
    assert too_much.returncode == 1
    assert json.loads(too_much.stdout)["roles"][0]["verdict"] == "no"


def test_models_of_other_roles_are_named_with_all_their_experts() -> None:
    teacher = {"model": "Qwen/Qwen3-VL-30B-A3B-Thinking", "engines": 1}
    text = "\n".join(lines(estimate_layout(layout(roles__teacher=teacher, algorithm="opd"))))
    assert "teacher   Qwen3-VL-30B-A3B: 31.1 B parameters (3.4 B a token), 57.9 GiB in 16 bits" in text
    assert "policy" not in text.partition("\n")[2], "engines have the policy's"


def test_verb_on_the_shipped_cpu_layout() -> None:
    done = mem("local/grpo-tiny")
    assert done.returncode == 0
    assert "no card to fill" in done.stdout


def test_estimates_import_nothing_heavy() -> None:
    code = (
        "import sys; import rltui.memory; "
        "heavy = {'torch', 'ray', 'numpy', 'transformers', 'textual', 'paramiko', 'yaml'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_checkpoint_holds_the_critic_too() -> None:
    split = load_layout(LAYOUTS / "verl-ppo" / "ppo-1x4-split.yaml").layout
    alone = structs.replace(split, roles=structs.replace(split.roles, critic=None))
    both, policy = estimate_layout(split).checkpoint_gib, estimate_layout(alone).checkpoint_gib
    assert both is not None
    assert policy is not None
    assert both == pytest.approx(2 * policy)


def test_a_vllm_teacher_holds_the_logits_of_a_step_beside_its_budget() -> None:
    text = (LAYOUTS / "opd" / "text-8.yaml").read_text()
    teacher = estimate_layout(load_text(text, "vllm.yaml").layout).role("teacher")
    assert teacher is not None
    generate, scoring = (next(m for m in teacher.moments if m.moment == name) for name in ("generate", "log-probs"))
    # 1024 tokens, 151,936 logits each as bf16, as float32 and as float32 log-probs; 5,120 hidden numbers of 2 bytes
    assert scoring.parts_gib["logits"] == pytest.approx(1024 * (151_936 * (2 + 4 + 4) + 5_120 * 2) / 2**30)
    assert scoring.parts_gib["kv"] == generate.parts_gib["kv"] > 0
    greedy = text.replace("tensor_parallel: 2}", "tensor_parallel: 2, memory_utilization: 1.0, precision: fp32}")
    crowded = estimate_layout(load_text(greedy.replace("Qwen3-32B", "Qwen3-8B"), "greedy.yaml").layout).role("teacher")
    assert crowded is not None
    assert crowded.peak.moment == "generate"  # in float32 nothing is converted: 8 bytes are less than the sampler's 40
    assert crowded.knob == "roles.teacher.memory_utilization=0.9"


def test_a_transformers_teacher_holds_activations_and_neither_cache_nor_all_logits() -> None:
    text = (LAYOUTS / "opd" / "text-8.yaml").read_text().replace("tensor_parallel: 2}", "engine: hf}")
    small = estimate_layout(load_text(text.replace("Qwen3-32B", "Qwen3-8B"), "hf.yaml").layout)
    teacher = small.role("teacher")
    assert teacher is not None
    assert teacher.verdict == "fits"
    generate = next(moment for moment in teacher.moments if moment.moment == "generate")
    # two samples of 4096 response tokens, 151,936 logits of 2 bytes each, are not among them
    assert 0.3 < generate.parts_gib["activation"] < 2 * 4096 * 151_936 * 2 / 2**30
    assert generate.parts_gib["kv"] == 0
    large = estimate_layout(load_text(text.replace("micro_batch: 2", "micro_batch: 32"), "hf.yaml").layout)
    crowded = large.role("teacher")
    assert crowded is not None
    assert crowded.verdict == "no"
    assert crowded.knob == "roles.learner.micro_batch=16"


@pytest.mark.parametrize("engine", ["vllm", "hf"])
def test_a_judge_is_estimated_by_the_length_of_what_it_is_asked(engine: str) -> None:
    words = ["roles.rollout.engines=1", f"roles.judge={{model: Qwen/Qwen3-8B, engine: {engine}, context: 16384}}"]
    words += ["data.reward=judge", "roles.judge.max_concurrency=64"]
    layout = load_layout(LAYOUTS / "opd" / "text-8.yaml", ["algorithm=grpo", "roles.teacher=null", *words]).layout
    found = estimate_layout(layout)
    judge = found.role("judge")
    assert judge is not None
    moments = [moment.moment for moment in judge.moments]
    assert moments == (["load", "generate", "log-probs"] if engine == "vllm" else ["load", "generate"])
    (estimated,) = (each for each in found.engines if each.role == "judge")
    assert estimated.weights_gib == pytest.approx(2 * 8.19e9 / 2**30, rel=0.01)
    if engine == "hf":  # 36 layers of 8 key-value heads of 128, two bytes each, for 64 questions of full length
        assert estimated.kv_gib == pytest.approx(64 * 16384 * 36 * 8 * 128 * 2 * 2 / 2**30)
        assert judge.verdict == "no"
        assert judge.knob == "roles.judge.max_concurrency=32"


def test_a_reward_model_is_estimated_by_what_passes_at_once_without_logits() -> None:
    words = ["algorithm=grpo", "roles.teacher=null", "roles.rollout.engines=1", "data.reward=reward_model"]
    words.append("roles.reward_model={model: Qwen/Qwen3-8B, context: 4096, micro_batch: 8}")
    layout = load_layout(LAYOUTS / "opd" / "text-8.yaml", words).layout
    found = estimate_layout(layout)
    scores = found.role("reward_model")
    assert scores is not None
    assert [moment.moment for moment in scores.moments] == ["load", "generate"]
    (estimated,) = (each for each in found.engines if each.role == "reward_model")
    headless = 8.19e9 - 151936 * 4096
    assert estimated.weights_gib == pytest.approx(2 * headless / 2**30, rel=0.01)
    half = load_layout(LAYOUTS / "opd" / "text-8.yaml", [*words, "roles.reward_model.micro_batch=4"]).layout
    (fewer,) = (each for each in estimate_layout(half).engines if each.role == "reward_model")
    assert estimated.activation_gib == pytest.approx(2 * fewer.activation_gib)
    assert scores.knob == "roles.reward_model.micro_batch=4"


def test_a_teacher_is_served_as_its_checkpoint_is_stored() -> None:
    text = (LAYOUTS / "opd" / "text-8.yaml").read_text()
    stored, plain = (
        estimate_layout(load_text(text, "opd", [f"roles.teacher.model=Qwen/Qwen3-14B{word}"]).layout)
        for word in ("-FP8", "")
    )
    weights = [next(e.weights_gib for e in each.engines if e.role == "teacher") for each in (stored, plain)]
    assert weights[0] / weights[1] == pytest.approx(0.553, abs=0.002)  # embedding and head stay in 16 bits


def test_a_quantised_base_is_offloaded_as_it_is_stored() -> None:
    model = find_model("Llama-2-70B")
    assert model is not None
    whole, packed = (
        estimate_host(
            model, Sharding(gpus=2, offload="all"), DEEPSPEED_BF16, learners=2, adapter=Adapter(base_bytes=size)
        ).ram_parts_gib["offload"]
        for size in (2.0, 0.516)
    )
    assert whole - packed == pytest.approx(1.5 * (2.0 - 0.516) * count_parameters(model).total / GIB)
