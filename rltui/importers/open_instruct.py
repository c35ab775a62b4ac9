"""open-instruct: ``grpo_fast.py`` and its elders, alone or behind the launcher ``mason.py``; also their YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rltui.importers import variants
from rltui.importers.arguments import Settings, from_flags, from_mapping
from rltui.importers.config import settings_beside
from rltui.importers.facts import Facts, mapped, only_training, remarks
from rltui.importers.values import product

if TYPE_CHECKING:
    from rltui.importers.script import Script

NAME = "open-instruct"
_RL = ("grpo_fast.py", "grpo_vllm_thread_ray_gtrl.py", "ppo_vllm_thread_ray_gtrl.py", "ppo_fast.py")
_OTHER = {"finetune.py": "sft", "dpo_tune_cache.py": "dpo", "dpo.py": "dpo", "reward_modeling.py": "rm"}
_TABLE: Mapping[str, str] = {
    "num_unique_prompts_rollout": "train.prompts_per_step",
    "num_samples_per_prompt_rollout": "train.samples_per_prompt",
    "learning_rate": "train.learning_rate",
    "num_mini_batches": "train.optimizer_steps",
    "num_epochs": "train.epochs",
    "async_steps": "train.async_steps",
    "temperature": "train.temperature",
    "vllm_top_p": "train.top_p",
    "seed": "train.seed",
    "max_prompt_token_length": "lengths.prompt",
    "response_length": "lengths.response",
    "pack_length": "lengths.pack",
    "deepspeed_stage": "roles.learner.zero_stage",
    "deepspeed_zpg": "roles.learner.hpz_partition",
    "sequence_parallel_size": "roles.learner.sequence_parallel",
    "per_device_train_batch_size": "roles.learner.micro_batch",
    "gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "gather_whole_model": "roles.learner.gather_whole_model",
    "vllm_gpu_memory_utilization": "roles.rollout.memory_utilization",
    "vllm_enforce_eager": "roles.rollout.enforce_eager",
    "beta": "grpo.kl_coefficient",
    "clip_lower": "grpo.clip_low",
    "clip_higher": "grpo.clip_high",
    "filter_zero_std_samples": "grpo.filter_zero_std",
    "save_freq": "checkpoint.every",
    "local_eval_every": "data.eval_every",
    "wandb_project_name": "tracking.project",
    "wandb_entity": "tracking.entity",
}

_DEFAULTS: Mapping[str, Any] = {
    "train.prompts_per_step": 16,
    "train.samples_per_prompt": 4,
    "lengths.prompt": 256,
    "lengths.response": 256,
    "lengths.pack": 512,
    "roles.learner.zero_stage": 0,
    "roles.rollout.memory_utilization": 0.9,
    "grpo.kl_coefficient": 0.05,
    "checkpoint.every": 200,
}
"""What ``grpo_fast.py`` takes where its command is silent."""


def is_entry(word: str) -> bool:
    """Whether a word of a command is open-instruct's program."""
    name = word.rsplit("/", 1)[-1]
    return name in _RL or ((name == "grpo.py" or name in _OTHER) and "open_instruct" in word)


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    return [_one(script, list(command.words), behind) for command, behind in script.after(is_entry)]


def from_config(values: dict[str, Any]) -> Facts | None:
    """What a YAML file of open-instruct's arguments needs; None where it is none."""
    if not {"num_learners_per_node", "vllm_num_engines", "num_unique_prompts_rollout"} & values.keys():
        return None
    return _facts(from_mapping(values), "grpo_fast.py", None, None)


def _one(script: Script, words: list[str], behind: list[str]) -> Facts:
    entry = next(word for word in words if is_entry(word)).rsplit("/", 1)[-1]
    head = words[: len(words) - len(behind) - 1]
    nodes, per_node = _machine(script, head)
    source = from_flags(behind)
    if behind and behind[0].endswith((".yaml", ".yml")):
        config = settings_beside(script.path, behind[0])
        source = source if config is None else source.over(config.values)
    if entry in _OTHER:
        return _no_rl(_OTHER[entry], source, head, nodes, per_node)
    return _facts(source, entry, nodes, per_node)


def _machine(script: Script, head: list[str]) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node that mason or Slurm is asked for."""
    if any(word.endswith("mason.py") for word in head):
        flags = from_flags(head)
        return flags.integer("num_nodes", default=1), flags.integer("gpus")
    return script.slurm.nodes, script.slurm.gpus_per_node


def _facts(source: Settings, entry: str, nodes: int | None, per_node: int | None) -> Facts:
    single = source.flag("single_gpu_mode")
    learners = source.integers("num_learners_per_node", "actor_num_gpus_per_node", default=(1,))
    engines = source.integer("vllm_num_engines", default=1, key="roles.rollout.engines")
    tensor_parallel = source.integer("vllm_tensor_parallel_size", default=1, key="roles.rollout.tensor_parallel")
    trainer = None if learners is None else sum(learners)
    rollout = 0 if single else None if single is None else product(engines, tensor_parallel)
    notes = ["single_gpu_mode: the engine rides on the learner's GPU"] if single else []
    variant = variants.open_instruct(source)
    facts = Facts(
        dialect=NAME,
        algorithm="ppo" if entry.startswith("ppo") else "grpo",
        critic="shared" if entry.startswith("ppo") else "none",
        model=source.text("model_name_or_path", key="roles.learner.model"),
        colocated=single,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=trainer,
        learner_bundles=tuple(number for number in learners or () if number),
        rollout_gpus=rollout,
        rollout_tp=tensor_parallel,
        rollout_engines=engines,
        reference=bool(source.flag("load_ref_policy", default=True) and source.number("beta", default=0.05)),
        source=source,
        # grpo.py takes the flag, and only its own budget makes it recompute
        unsure=("roles.learner.gradient_checkpointing",) if entry == "grpo.py" else (),
        settings=_settings(source) | (_olmo_core(source, trainer) if entry == "grpo.py" else {}) | variant.found,
        notes=(*notes, *variant.notes, *remarks(source, "--")),
    )
    # no launcher: the command runs on the machine it is typed on, which has to hold what the roles need
    silent = nodes is None and per_node is None
    return replace(facts, declared_gpus=facts.needed_gpus) if silent else facts


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    if source.flag("filter_zero_std_samples", default=None) is False:
        found["grpo.filter_zero_std"] = False
    if source.flag("deepspeed_offload_param"):
        found["roles.learner.offload"] = "all"
    elif source.flag("deepspeed_offload_optimizer"):
        found["roles.learner.offload"] = "optimizer"
    advantage = source.text("advantage_normalization_type", "advantage_normalization")
    if advantage in ("standard", "centered"):
        found["grpo.advantage"] = advantage
    episodes = source.integer("total_episodes", default=100_000)
    prompts, samples = found["train.prompts_per_step"], found["train.samples_per_prompt"]
    if episodes is not None and prompts > 0 and samples > 0:
        found |= {"train.steps": steps} if (steps := episodes // (prompts * samples)) else {}
    datasets = source.words("dataset_mixer_list", "dataset_mixer")
    first = str(datasets[0]).split() if datasets else []
    if first and "\0" not in first[0]:
        found["data.train"] = first[0]
    return found


def _olmo_core(source: Settings, trainer: int | None) -> dict[str, Any]:
    """How ``grpo.py`` trains, which has no DeepSpeed: OLMo-core's FSDP divides all states, unless over one rank."""
    divides = source.integer("fsdp_shard_degree", default=trainer) != 1 and not source.flag("single_gpu_mode")
    stage = {"roles.learner.zero_stage": 3 if divides else 0}
    # what its compiler recomputes follows from the share of activations that may stay
    budget = source.number("activation_memory_budget", default=1.0)
    recomputes = source.text("activation_checkpointing_mode") == "selected_modules" or (budget or 1.0) < 1.0
    return stage | ({"roles.learner.gradient_checkpointing": True} if recomputes else {})


def _no_rl(algorithm: str, source: Settings, head: list[str], nodes: int | None, per_node: int | None) -> Facts:
    """Supervised training: every process of accelerate trains, nothing generates."""
    launcher = from_flags(head)
    asked = product(nodes, per_node)
    trainer = asked if asked else launcher.integer("num_processes")
    model = source.text("model_name_or_path")
    return only_training(NAME, algorithm, model, (nodes, per_node), trainer, remarks(source, "--"))
