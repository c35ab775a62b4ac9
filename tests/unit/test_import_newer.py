"""Systems that came later: oat, RLinf, Trinity-RFT and axolotl's GRPO."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from import_support import counts, read

from rltui.errors import UsageError
from rltui.importers.read import import_file, read_facts

OAT = """
python train_zero.py --critic_type drgrpo --gpus {gpus} {more} --vllm_gpu_ratio 0.35 \\
    --pretrain Qwen/Qwen2.5-Math-1.5B --prompt_data ./data --rollout_batch_size 128 \\
    --rollout_batch_size_per_device 16 --num_samples 8 \\
    --train_batch_size 128 --train_batch_size_per_device 1 --generate_max_length 3000 --beta 0
"""
RLINF = """
runner: {{task_type: reasoning, seq_length: 4096}}
cluster: {{num_nodes: 1, component_placement: {placement}}}
algorithm: {{group_size: 8, adv_type: grpo, n_minibatches: 4}}
data: {{rollout_batch_size: 64, max_prompt_length: 1024}}
rollout: {{tensor_parallel_size: 2, model: {{model_path: Qwen/Qwen2.5-1.5B}}}}
actor: {{training_backend: fsdp, optim: {{lr: 1e-6}}}}
"""
TRINITY = """
mode: {mode}
algorithm: {{algorithm_type: grpo, repeat_times: 8}}
model: {{model_path: Qwen/Qwen2.5-1.5B-Instruct, max_prompt_tokens: 1024, max_response_tokens: 1024}}
cluster: {{node_num: {nodes}, gpu_per_node: {gpus}}}
buffer: {{batch_size: 32}}
explorer:
  rollout_model: {{engine_num: 2, tensor_parallel_size: 1}}
  auxiliary_models: {others}
"""
AXOLOTL = """
base_model: Qwen/Qwen2.5-1.5B-Instruct
rl: grpo
trl: {{use_vllm: true, vllm_mode: {mode}, num_generations: 4, max_completion_length: 512}}
vllm: {{tensor_parallel_size: 2}}
micro_batch_size: 4
learning_rate: 1e-5
"""


@pytest.mark.parametrize(
    ("gpus", "more", "expected"),
    [
        (8, "--collocate", (8, 8, 8, 8, 1, 8)),
        (8, "", (8, 8, 4, 4, 1, 4)),
        (8, "--collocate --num_gpus_per_actor 2", (8, 8, 8, 8, 2, 4)),
        (5, "", (5, 5, 3, 3, 1, 3)),
        ("$GPUS", "--collocate", (None, None, None, None, 1, None)),
    ],
)
def test_oat_halves_its_gpus_unless_they_are_shared(
    tmp_path: Path, gpus: object, more: str, expected: tuple[int | None, ...]
) -> None:
    assert counts(read(tmp_path, OAT.format(gpus=gpus, more=more))) == expected


def test_oats_settings_reach_the_layout(tmp_path: Path) -> None:
    layout = read(tmp_path, OAT.format(gpus=8, more="--collocate")).layout
    assert layout is not None
    assert layout["train"]["prompts_per_step"] == 128
    assert layout["grpo"]["advantage"] == "centered"


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("{'actor,rollout,reward': 0-7}", (8, 8, 8, 8, 2, 4)),
        ("{rollout: 0-3, inference: 4-5, actor: 6-7, reward: all}", (8, 8, 2, 4, 2, 2)),
        ("{actor: 4-7, rollout: '0-3:0-1'}", (8, 8, 4, 4, 2, 2)),
        ("{'actor,rollout': all}", (None, None, None, None, 2, None)),
        ("{actor: {node_group: a, placement: 0}, rollout: 0-1}", (None, None, None, 2, 2, 1)),
    ],
)
def test_rlinf_places_each_component(tmp_path: Path, placement: str, expected: tuple[int | None, ...]) -> None:
    assert counts(read(tmp_path, RLINF.format(placement=placement), "run.yaml")) == expected


def test_all_gpus_of_rlinf_are_those_that_are_said_beside(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(RLINF.format(placement="{'actor,rollout': all}"))
    found = import_file(file, ["hardware.gpus_per_node=4"])
    assert (found.trainer_gpus, found.needed_gpus) == (4, 4)
    assert found.layout is not None


def test_rlinfs_program_names_its_file_in_two_words(tmp_path: Path) -> None:
    folder = tmp_path / "reasoning" / "config"
    folder.mkdir(parents=True)
    (folder / "one.yaml").write_text(RLINF.format(placement="{'actor,rollout': 0-3}"))
    script = folder.parent / "run.sh"
    script.write_text(
        'HERE="$(dirname $0)"\nif [ -z "$1" ]; then NAME=one; else NAME=$1; fi\n'
        "python $REPO/reasoning/main_grpo.py --config-path $HERE/config/ --config-name $NAME\n"
    )
    assert import_file(script).trainer_gpus == 4


@pytest.mark.parametrize(
    ("mode", "nodes", "gpus", "others", "expected"),
    [
        ("both", 1, 8, "[]", (8, 8, 6, 2, 1, 2)),
        ("both", 1, 8, "[{engine_num: 1, tensor_parallel_size: 2}]", (8, 8, 4, 2, 1, 2)),
        ("both", 2, 8, "[]", (16, 16, 14, 2, 1, 2)),
        ("both", 1, 2, "[]", (None, 2, None, 2, 1, 2)),
        ("train", 1, 8, "[]", (8, 8, 8, 0, None, None)),
    ],
)
def test_trinitys_trainer_takes_what_engines_leave(
    tmp_path: Path, mode: str, nodes: int, gpus: int, others: str, expected: tuple[int | None, ...]
) -> None:
    text = TRINITY.format(mode=mode, nodes=nodes, gpus=gpus, others=others)
    assert counts(read(tmp_path, text, "run.yaml")) == expected
    assert counts(read(tmp_path, "trinity run --config run.yaml\n")) == expected


@pytest.mark.parametrize(
    ("engine", "cluster", "expected"),
    [
        ("tensor_parallel_size: 2, pipeline_parallel_size: 2", "{node_num: 1, gpu_per_node: 8}", (8, 8, 4, 4, 4, 1)),
        ("data_parallel_size: 4", "{node_num: 1, gpu_per_node: 8}", (8, 8, 4, 4, 4, 1)),
        ("engine_type: external", "{node_num: 1, gpu_per_node: 8}", (8, 8, 8, 0, None, None)),
        ("tensor_parallel_size: 2", "{}", (None, None, None, 2, 2, 1)),
    ],
)
def test_an_engine_of_trinity_is_all_ways_of_parallelism_multiplied(
    tmp_path: Path, engine: str, cluster: str, expected: tuple[int | None, ...]
) -> None:
    text = (
        f"project: p\ncluster: {cluster}\nbuffer: {{batch_size: 32}}\nalgorithm: {{algorithm_type: grpo}}\n"
        f"explorer: {{rollout_model: {{{engine}}}}}\n"
    )
    assert counts(read(tmp_path, text, "run.yaml")) == expected


@pytest.mark.parametrize(("mode", "expected"), [("colocate", (4, 4, 4, 4, 2, 2)), ("server", (6, 6, 4, 2, 2, 1))])
def test_axolotls_processes_are_counted_by_its_command(tmp_path: Path, mode: str, expected: tuple[int, ...]) -> None:
    (tmp_path / "grpo.yaml").write_text(AXOLOTL.format(mode=mode))
    assert counts(read(tmp_path, "axolotl train grpo.yaml --num-processes 4\n")) == expected
    assert import_file(tmp_path / "grpo.yaml").trainer_gpus is None


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{accelerators: 'H100:8'}", (16, 16, 16, 16, 2, 8)),
        ("{accelerators: {H100: 8}}", (16, 16, 16, 16, 2, 8)),
        ("{any_of: [{accelerators: 'H100:8'}, {accelerators: 'H200:8'}]}", (16, 16, 16, 16, 2, 8)),
        ("{accelerators: ['H100:8', 'A100:4']}", (None, None, None, None, 2, None)),
    ],
)
def test_a_task_of_skypilot_runs_a_script(tmp_path: Path, resources: str, expected: tuple[int | None, ...]) -> None:
    text = (
        f"resources: {resources}\nnum_nodes: 2\nenvs: {{TP: 2}}\nrun: |\n  python3 -m verl.trainer.main_ppo "
        "trainer.nnodes=$SKYPILOT_NUM_NODES trainer.n_gpus_per_node=$SKYPILOT_NUM_GPUS_PER_NODE "
        "actor_rollout_ref.model.path=a actor_rollout_ref.rollout.tensor_model_parallel_size=$TP "
        "algorithm.adv_estimator=grpo\n"
    )
    found = read(tmp_path, text, "task.yaml")
    assert counts(found) == expected
    one_card = "any_of" not in resources and "A100" not in resources
    if found.layout is not None and one_card:
        assert found.layout["hardware"]["gpu"] == "H100"


VERL = "python3 -m verl.trainer.main_ppo trainer.nnodes=2 trainer.n_gpus_per_node=$GPUS algorithm.adv_estimator=grpo"
CONTAINER = (
    "{{image: a, {command}, env: [{{name: GPUS, value: '4'}}], resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}"
)
SHELL = f"command: [/bin/bash, -lc], args: ['cd /a && {VERL}']"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"entrypoint: {VERL}\nenv_vars: {{GPUS: 4}}\n", (8, 8)),
        ("tasks: [{replicas: 2, containers: [" + CONTAINER.format(command=SHELL, gpus=4) + "]}]\n", (8, 8)),
        ("spec: {a: {replicas: 2, b: " + CONTAINER.format(command=f"command: {VERL}", gpus=8) + "}}\n", (None, 16)),
        (
            "spec: {M: {replicas: 1, a: [" + CONTAINER.format(command=SHELL, gpus=4) + "]}, W: {replicas: 3, a: ["
            + CONTAINER.format(command=SHELL, gpus=4) + "]}}\n",
            (8, 16),
        ),
        (
            "tasks: [{replicas: 2, image: {b: c}, command: [sh, -c], arguments: ['accelerate launch --num_machines 2 "
            "--num_processes 16 open_instruct/finetune.py --model_name_or_path a'], resources: {gpuCount: 8}}]\n",
            (16, 16),
        ),
    ],
)  # fmt: skip
def test_a_task_of_containers_runs_a_command(tmp_path: Path, text: str, expected: tuple[int, int]) -> None:
    found = read(tmp_path, text, "task.yaml")
    assert (found.trainer_gpus, found.declared_gpus) == expected


def test_containers_that_run_different_things_are_no_task(tmp_path: Path) -> None:
    two = ", ".join(CONTAINER.format(command=f"command: {VERL} a={number}", gpus=4) for number in range(2))
    with pytest.raises(UsageError, match="no training system"):
        read(tmp_path, f"spec: [{two}]\n", "task.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "spec: {image: a, command: 'it''s', resources: 5, env: [1, {name: 2}]}\ntasks: [[{replicas: x}]]\n",
        "spec: [{image: a, command: [sh, -c], replicas: x}]\n",
        "entrypoint: ''\nenv_vars: [1]\n",
        RLINF.format(placement="{0: 1, actor: [3], rollout: '" + "9" * 5000 + "'}"),
        RLINF.format(placement="{actor: 5-2, rollout: 0--1}"),
        TRINITY.format(mode="[1]", nodes="x", gpus="-1", others="{a: 1}"),
        "rl: grpo\nbase_model: [1]\ntrl: 5\ndatasets: [{path: [1]}, 3]\ndeepspeed: {stage: 3}\n",
        "run: python x.py\nresources: {any_of: 5, accelerators: [1, {a: b}]}\nenvs: [1]\nnum_nodes: x\n",
    ],
)
def test_odd_values_are_no_crash(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_text(text)
    with contextlib.suppress(UsageError):
        import_file(file)


def test_adapters_need_no_reference_of_their_own(tmp_path: Path) -> None:
    """Without them it is the model; TRL, ms-swift and axolotl alike."""
    configuration = AXOLOTL.format(mode="colocate") + "adapter: lora\nlora_r: 16\n"
    (tmp_path / "grpo.yaml").write_text(configuration.replace("trl: {", "trl: {beta: 0.04, "))
    commands = {
        "axolotl train grpo.yaml --num-processes 4\n": "axolotl",
        "accelerate launch --num_processes 4 grpo.py --num_generations 8 --beta 0.04 --lora_r 16\n": "trl",
        "NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model m --beta 0.04 --train_type lora\n": "ms-swift",
    }
    for command, dialect in commands.items():
        script = tmp_path / "run.sh"
        script.write_text(command)
        facts, _ = read_facts(command, script)
        assert (facts.dialect, facts.reference) == (dialect, False)
        full = command.replace("--lora_r 16", "").replace("--train_type lora", "--train_type full")
        assert dialect == "axolotl" or read_facts(full, script)[0].reference


@pytest.mark.parametrize(
    ("inference", "rollout"),
    [
        ("", 32),
        ("num_prefill_nodes = 4\nnum_prefill_replicas = 2\nnum_decode_nodes = 2\n", 48),
        ("prefill_nodes_per_replica = 2\nnum_prefill_replicas = 2\n", 40),
    ],
)
def test_prime_rls_prefill_is_counted_by_the_engine_now_and_as_a_whole_before(
    tmp_path: Path, inference: str, rollout: int
) -> None:
    text = (
        "[deployment]\ntype = 'multi_node'\nnum_train_nodes = 1\n[orchestrator]\nbatch_size = 64\ngroup_size = 8\n"
        f"[inference.deployment]\ntype = 'disaggregated'\n{inference or 'num_decode_replicas = 3'}\n"
    )
    assert read(tmp_path, text, "rl.toml").rollout_gpus == rollout


def test_prime_rl_starts_no_engines_without_a_word_of_them(tmp_path: Path) -> None:
    text = "[deployment]\nnum_train_gpus = 4\n[orchestrator]\nbatch_size = 64\ngroup_size = 8\n"
    assert counts(read(tmp_path, text, "rl.toml")) == (4, 4, 4, 0, None, None)
    assert counts(read(tmp_path, f"{text}[inference]\n", "rl.toml")) == (5, 5, 4, 1, 1, 1)


def test_prime_rls_sides_have_settings_of_their_own_over_those_of_both(tmp_path: Path) -> None:
    text = (
        "max_steps = 10\nseq_len = 4096\n[inference.vllm]\nenforce_eager = true\n[trainer.model]\nseq_len = 8192\n"
        "[trainer.model.lora]\nrank = 8\n[orchestrator.train.sampling]\ntemperature = 0.7\n"
    )
    layout = read(tmp_path, text, "rl.toml").layout
    assert layout is not None
    assert (layout["lengths"]["pack"], layout["train"]["temperature"]) == (8192, 0.7)
    assert layout["roles"]["learner"]["lora_rank"] == 8
    assert layout["roles"]["rollout"]["enforce_eager"] is True


def test_open_instructs_switches_may_be_off_by_a_name_of_their_own(tmp_path: Path) -> None:
    line = (
        "python open_instruct/grpo_fast.py --num_learners_per_node 2 --vllm_num_engines 2 --deepspeed_stage 3 "
        "--model_name_or_path Q/q --vllm_top_p 0.95 --deepspeed_offload_optimizer"
    )
    found = read(tmp_path, f"{line}\n").layout
    assert found is not None
    assert (found["roles"]["learner"]["offload"], found["train"]["top_p"]) == ("optimizer", 0.95)
    assert "reference" in found["roles"]
    without = read(tmp_path, f"{line} --no_load_ref_policy --beta 0.0\n").layout
    assert without is not None
    assert "reference" not in without["roles"]


def test_a_limit_as_long_as_a_sample_does_not_say_how_long_responses_are(tmp_path: Path) -> None:
    text = "[inference]\n[orchestrator]\nseq_len = 6000\n[orchestrator.sampling]\nmax_tokens = {}\n"
    open_ended = read(tmp_path, text.format(6000), "rl.toml").layout
    assert open_ended is not None
    assert {"lengths.prompt", "lengths.response"} <= set(open_ended["unsure"])
    bound = read(tmp_path, text.format(5000), "rl.toml").layout
    assert bound is not None
    assert bound["lengths"] == {"pack": 6000, "prompt": 1000, "response": 5000}
    assert "lengths.response" not in bound["unsure"]


def test_trinitys_trainer_alone_is_trinitys(tmp_path: Path) -> None:
    text = "mode: train\ncluster: {node_num: 1, gpu_per_node: 4}\nbuffer: {train_batch_size: 64}\n"
    assert counts(read(tmp_path, text, "run.yaml")) == (4, 4, 4, 0, None, None)


@pytest.mark.parametrize(("words", "engines"), [("", 6), ("enable_expert_parallel = true\n", None)])
def test_a_node_of_prime_rl_starts_as_many_engines_as_it_holds(tmp_path: Path, words: str, engines: int | None) -> None:
    text = (
        "[deployment]\ntype = 'multi_node'\nnum_train_nodes = 1\nnum_infer_nodes = 3\n[orchestrator]\n"
        f"[inference.vllm]\ntensor_parallel_size = 4\n{words}"
    )
    assert read(tmp_path, text, "rl.toml").rollout_engines == engines


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("{actor: '0-1:0-3,2-3:4-5', rollout: 4-7}", (8, 8, 4, 4, 2, 2)),
        ("{actor: {placement: 0-3}, rollout: 4-7}", (8, 8, 4, 4, 2, 2)),
    ],
)
def test_processes_behind_any_colon_of_rlinf_are_no_gpus(
    tmp_path: Path, placement: str, expected: tuple[int | None, ...]
) -> None:
    assert counts(read(tmp_path, RLINF.format(placement=placement), "run.yaml")) == expected


def test_a_cluster_of_rlinf_that_counts_its_gpus_has_them_all(tmp_path: Path) -> None:
    text = RLINF.format(placement="{'actor,rollout': all}").replace(
        "num_nodes: 1", "num_nodes: 2, num_gpus_per_node: 8"
    )
    assert "num_gpus_per_node" in text
    assert counts(read(tmp_path, text, "run.yaml")) == (16, 16, 16, 16, 2, 8)


def test_rlinf_builds_on_the_files_of_hydras_defaults(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(RLINF.format(placement="{'actor,rollout': 0-7}"))
    (tmp_path / "engines").mkdir()
    (tmp_path / "engines" / "fsdp.yaml").write_text("strategy: fsdp\nsharding_strategy: shard_grad_op\n")
    listed = "defaults:\n  - base\n  - engines/fsdp@actor.fsdp_config\n  - override hydra/job_logging: stdout\n"
    text = f"{listed}actor: {{training_backend: fsdp}}\nalgorithm: {{clip_ratio_high: 0.28, ratio_clip_eps: 0.2}}\n"
    found = read(tmp_path, text, "run.yaml")
    assert counts(found) == (8, 8, 8, 8, 2, 4)
    assert found.layout is not None
    assert found.layout["roles"]["learner"]["zero_stage"] == 2
    assert (found.layout["grpo"]["clip_low"], found.layout["grpo"]["clip_high"]) == (0.2, 0.28)
    lost = read(tmp_path, f"defaults: [base, nowhere]\n{text.partition('stdout')[2]}", "run.yaml")
    assert any("nowhere is not there" in line for line in lost.unmapped)


@pytest.mark.parametrize(
    ("flags", "stage", "recomputes"),
    [
        ("--num_learners_per_node 4 --activation_memory_budget 0.5", 3, True),
        ("--num_learners_per_node 4 --fsdp_shard_degree 1", 0, None),
        ("--single_gpu_mode --deepspeed_stage 2", 0, None),
    ],
)
def test_open_instruct_on_olmo_core_has_fsdp(tmp_path: Path, flags: str, stage: int, recomputes: bool | None) -> None:
    script = f"python open_instruct/grpo.py --model_name_or_path Qwen/Qwen3-4B {flags}\n"
    facts, _ = read_facts(script, tmp_path / "run.sh")
    assert facts.settings["roles.learner.zero_stage"] == stage
    assert facts.settings.get("roles.learner.gradient_checkpointing") is recomputes
    assert "roles.learner.gradient_checkpointing" in facts.unsure


@pytest.mark.parametrize(
    "options", ["--config_file zero.yaml --num_processes=4 --main_process_port 9", "--num_processes 4"]
)
def test_options_may_stand_between_a_launchers_switch_and_the_module(tmp_path: Path, options: str) -> None:
    (tmp_path / "zero.yaml").write_text("distributed_type: DEEPSPEED\nnum_processes: 8\n")
    facts, _ = read_facts(f"accelerate launch -m {options} trainer.dpo --learning_rate 1e-5\n", tmp_path / "run.sh")
    assert (facts.algorithm, facts.program, facts.trainer_gpus, facts.rollout_gpus) == ("dpo", "trainer.dpo", 4, 0)


@pytest.mark.parametrize("name", ["actor_rollout_ref.rollout.n_agent", "env.rollout.n"])
def test_systems_on_verl_count_samples_by_a_name_of_their_own(tmp_path: Path, name: str) -> None:
    script = (
        f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=1 {name}=5 "
        "data.train_batch_size=64 trainer.n_gpus_per_node=8 trainer.nnodes=1\n"
    )
    facts, _ = read_facts(script, tmp_path / "run.sh")
    assert facts.settings["train.samples_per_prompt"] == 5
    assert "train.samples_per_prompt" in facts.unsure
