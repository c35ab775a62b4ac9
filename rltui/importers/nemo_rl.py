"""NeMo-RL: YAML recipes over the files that their ``defaults`` name; one teacher in turns, or several on own nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.facts import (
    IN_TURNS,
    MEGATRON,
    ON_HOST,
    Facts,
    Teacher,
    mapped,
    megatron_cuts,
    on_megatron,
    remarks,
    steps_on_host,
    uncounted,
)
from rltui.importers.values import HOLE, product, quotient, to_bool, to_int, to_text, total

NAME = "nemo-rl"
_GENERATION = "policy.generation"
_CUT = "tensor_model_parallel_size"
_SECTIONS = {"distillation": "opd", "ppo": "ppo", "grpo": "grpo", "dpo": "dpo", "sft": "sft", "rm": "rm"}
_WORDS = (
    ("distillation", "opd"),
    ("gdpo", "grpo"),
    ("grpo", "grpo"),
    ("ppo", "ppo"),
    ("dpo", "dpo"),
    ("sft", "sft"),
    ("rm", "rm"),
)
_TABLE: Mapping[str, str] = {
    "grpo.num_prompts_per_step": "train.prompts_per_step",
    "grpo.num_generations_per_prompt": "train.samples_per_prompt",
    "grpo.max_num_steps": "train.steps",
    "ppo.num_prompts_per_step": "train.prompts_per_step",
    "ppo.num_generations_per_prompt": "train.samples_per_prompt",
    "ppo.max_num_steps": "train.steps",
    "distillation.num_prompts_per_step": "train.prompts_per_step",
    "distillation.num_generations_per_prompt": "train.samples_per_prompt",
    "distillation.max_num_steps": "train.steps",
    "grpo.seed": "train.seed",
    "grpo.async_grpo.max_trajectory_age_steps": "train.async_steps",
    "policy.optimizer.kwargs.lr": "train.learning_rate",
    "policy.max_grad_norm": "train.gradient_clip",
    f"{_GENERATION}.temperature": "train.temperature",
    f"{_GENERATION}.top_p": "train.top_p",
    "data.max_input_seq_length": "lengths.prompt",
    f"{_GENERATION}.max_new_tokens": "lengths.response",
    "policy.train_micro_batch_size": "roles.learner.micro_batch",
    f"{_GENERATION}.vllm_cfg.gpu_memory_utilization": "roles.rollout.memory_utilization",
    f"{_GENERATION}.vllm_cfg.enforce_eager": "roles.rollout.enforce_eager",
    "policy.router_replay.enabled": "roles.rollout.router_replay",
    "loss_fn.ratio_clip_min": "grpo.clip_low",
    "loss_fn.ratio_clip_max": "grpo.clip_high",
    "loss_fn.reference_policy_kl_penalty": "grpo.kl_coefficient",
    "checkpointing.save_period": "checkpoint.every",
    "checkpointing.keep_top_k": "checkpoint.keep",
    "data.dataset_name": "data.train",
    "data.train.dataset_name": "data.train",
    "logger.wandb.project": "tracking.project",
}

_DISTILLATION = "on_policy_distillation"
_JUDGE = "env.reward_model.resources"
_COUNTED = ("policy.", "cluster.", "teacher.", _DISTILLATION, "env.nemo_gym.", "env.reward_model.")


def builds_on(values: dict[str, Any], name: str) -> bool:
    """Whether a configuration called ``name`` only changes others, which its ``defaults`` name as files."""
    defaults = values.get("defaults")
    files = defaults if isinstance(defaults, list) else [defaults]
    plain = all(isinstance(file, str) and file.endswith((".yaml", ".yml")) for file in files)
    return plain and bool(_algorithm({}, [], name))


def is_recipe(values: dict[str, Any]) -> bool:
    """Whether a configuration is NeMo-RL's: it has a policy and a cluster, or builds on a file that may.

    Its programs read no settings of Hydra's own, by which other systems' configurations are told apart.
    """
    if "hydra" in values:
        return False
    policy = values.get("policy")
    named = bool(_SECTIONS.keys() & values.keys())
    if isinstance(policy, dict) and ("cluster" in values or "defaults" in values or named):
        return "model_name" in policy or "generation" in policy or "cluster" in values or "defaults" in values
    return "defaults" in values and ("cluster" in values or named)


def from_config(values: dict[str, Any], missing: list[str], name: str) -> Facts:
    """What a recipe needs.

    Args:
        values: The recipe over its defaults, interpolated.
        missing: Files of its defaults that are not there; what they would say is not known.
        name: The file's name, which says the algorithm where the missing files would.
    """
    source = from_mapping(values)
    complete = not missing
    nodes = source.integer("cluster.num_nodes", default=1 if complete else None, key="hardware.nodes")
    per_node = source.integer("cluster.gpus_per_node", default=1 if complete else None, key="hardware.gpus_per_node")
    cluster = product(nodes, per_node)
    algorithm = _algorithm(values, missing, name)
    generates = algorithm in ("", "grpo", "ppo", "opd")
    known = True if complete and algorithm else None
    colocated = source.flag(f"{_GENERATION}.colocated.enabled", default=known) if generates else False
    rollout = _rollout(source, colocated, (nodes, per_node), cluster) if generates else 0
    taught = teacher(values, complete) if algorithm == "opd" else None
    judge = _reward_model(source, values, per_node) if algorithm == "grpo" else 0
    apart = total(taught.gpus if taught else 0, judge)
    trainer = cluster if (colocated and apart == 0) or not generates else _rest(cluster, rollout, apart, colocated)
    if colocated and apart != 0:
        rollout = trainer
    size = _tensor_parallel(source, complete) if generates else None
    pipeline = source.integer(f"{_GENERATION}.vllm_cfg.pipeline_parallel_size", default=1)
    gym = product(source.integer("env.nemo_gym.num_gpu_nodes", default=0), per_node)
    return Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("policy.model_name", key="roles.learner.model"),
        colocated=colocated,
        nodes=total(nodes, source.integer("env.nemo_gym.num_gpu_nodes", default=0)),
        gpus_per_node=per_node,
        declared_gpus=total(cluster, gym),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size,
        rollout_engines=quotient(rollout, product(size, pipeline)) if generates else None,
        critic="shared" if algorithm == "ppo" else "none",
        reference=generates and source.number("loss_fn.reference_policy_kl_penalty", default=0.0) != 0.0,
        teacher=taught,
        other_gpus=total(gym, judge, uncounted(source, _COUNTED)),
        together=cluster if judge == 0 else None if judge is None or cluster is None else cluster - judge,
        source=source.cut() if missing else source,
        settings=_settings(source),
        unsure=_unsure(source, colocated),
        notes=(
            *(f"defaults: {file} is not there, so what it sets is not known" for file in missing),
            *remarks(source),
        ),
    )


def _algorithm(values: dict[str, Any], missing: list[str], name: str) -> str:
    if distils(values):
        return "opd"
    found = [word for section, word in _SECTIONS.items() if isinstance(values.get(section), dict)]
    if found and not (missing and found == ["grpo"]):
        return found[0]
    for text in (*missing, name):
        stem = text.rsplit("/", 1)[-1].lower()
        for word, algorithm in _WORDS:
            if word in stem.replace("_", "-").split("-") or stem.startswith(word):
                return algorithm
    return found[0] if found else ""


def _rollout(
    source: Settings, colocated: bool | None, machine: tuple[int | None, int | None], cluster: int | None
) -> int | None:
    """GPUs of the engines: all of the cluster's, or what ``colocated.resources`` sets apart."""
    if colocated is None:
        return None
    if colocated:
        return cluster
    nodes, per_node = machine
    own_nodes = source.integer(f"{_GENERATION}.colocated.resources.num_nodes")
    own_per_node = source.integer(f"{_GENERATION}.colocated.resources.gpus_per_node")
    if nodes == 1:
        return own_per_node
    return product(own_nodes, own_per_node if own_per_node is not None else per_node)


def _reward_model(source: Settings, values: dict[str, Any], per_node: int | None) -> int | None:
    """GPUs of a reward model, where the data name its environment: some of the only node, or nodes of its own."""
    data = values.get("data")
    parts = [data.get(part) for part in ("train", "validation", "default")] if isinstance(data, dict) else []
    sets = [one for part in parts for one in (part if isinstance(part, list) else [part]) if isinstance(one, dict)]
    if "reward_model" not in [one.get("env_name") for one in sets]:
        return 0
    nodes = source.integer("cluster.num_nodes", default=1)
    own = source.integer(f"{_JUDGE}.gpus_per_node")
    return own if nodes == 1 else None if nodes is None else product(source.integer(f"{_JUDGE}.num_nodes"), per_node)


def _rest(cluster: int | None, rollout: int | None, teacher: int | None, colocated: bool | None) -> int | None:
    """GPUs of the policy: what engines and teachers of their own leave of the cluster."""
    taken = teacher if colocated else total(rollout, teacher)
    if colocated is None or cluster is None or taken is None:
        return None
    return cluster - taken if cluster > taken else None


def _tensor_parallel(source: Settings, complete: bool) -> int | None:
    """GPUs of one engine, by the backend that generates."""
    backend = source.text(f"{_GENERATION}.backend", default="vllm")
    if backend.startswith("vllm") or backend == "dynamo":  # forks have a vllm_http
        name = f"{_GENERATION}.vllm_cfg.tensor_parallel_size"
        return source.integer(name, default=1 if complete else None, key="roles.rollout.tensor_parallel")
    if backend == "sglang":
        return source.integer(
            f"{_GENERATION}.sglang_cfg.sglang_server_config.num_gpus_per_engine",
            f"{_GENERATION}.sglang_cfg.gpus_per_server", f"{_GENERATION}.sglang_cfg.tp_size",
            f"{_GENERATION}.sglang_cfg.tensor_parallel_size",
        )  # fmt: skip
    if backend == "trtllm":
        return source.integer(f"{_GENERATION}.trtllm_cfg.tensor_parallel_size")
    if backend == "megatron":
        return _megatron_engine(source, complete)
    return None


def _megatron_engine(source: Settings, complete: bool) -> int | None:
    """Megatron generates with the trainer's own model, cut as it is unless the generation has a cut of its own."""
    own = [name for name in source.values if name.startswith(f"{_GENERATION}.") and name.endswith(_CUT)]
    own = [name for name in own if ".vllm_cfg." not in name]
    if own:
        sizes = {source.integer(name) for name in own}
        return sizes.pop() if len(sizes) == 1 else None
    return source.integer(f"policy.megatron_cfg.{_CUT}", default=1 if complete else None)


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE)
    megatron = source.flag("policy.megatron_cfg.enabled", default=False)
    automodel = source.flag("policy.automodel_cfg.enabled", default=False)
    prefix = "policy.megatron_cfg" if megatron else "policy.automodel_cfg" if automodel else "policy.dtensor_cfg"
    found["roles.learner.zero_stage"] = 3
    if megatron:
        colocated = source.flag(f"{_GENERATION}.colocated.enabled", default=True)
        stays = steps_on_host(source, f"{prefix}.optimizer.")
        found |= mapped(source, megatron_cuts(f"{prefix}."))
        found |= ON_HOST if stays else IN_TURNS if colocated else MEGATRON
    else:
        ways = {"tensor": "tensor", "context": "sequence", "expert": "expert"}
        names = {f"{prefix}.{own}_parallel_size": f"roles.learner.{key}_parallel" for own, key in ways.items()}
        found |= mapped(source, names)
    learner = {
        "roles.learner.gradient_checkpointing": source.flag(f"{prefix}.activation_checkpointing", default=None),
        "train.learning_rate": source.number("policy.megatron_cfg.optimizer.lr") if megatron else None,
    }
    found |= {key: value for key, value in learner.items() if value is not None}
    samples = product(found.get("train.prompts_per_step"), found.get("train.samples_per_prompt"))
    if steps := quotient(samples, source.integer("policy.train_global_batch_size")):
        found["train.optimizer_steps"] = steps
    if source.flag("grpo.async_grpo.enabled", default=False) is not True:
        found.pop("train.async_steps", None)
    found |= _lengths(source, found)
    if source.flag(f"{prefix}.cpu_offload"):
        found["roles.learner.offload"] = "all"
    if source.flag(f"{prefix}.lora_cfg.enabled") and (rank := source.integer(f"{prefix}.lora_cfg.dim")):
        found["roles.learner.lora_rank"] = rank
    if source.text("grpo.adv_estimator.name") == "gdpo":
        found["grpo.advantage"] = "gdpo"
    elif source.flag("grpo.use_leave_one_out_baseline") and source.flag("grpo.normalize_rewards") is False:
        found["grpo.advantage"] = "rloo"
    return found


def _lengths(source: Settings, found: dict[str, Any]) -> dict[str, int]:
    """Prompt, response and tokens of a pass: one total bounds prompt and response together.

    Recipes write the same total as the bound of each, so half of it is taken for each where neither is below it.
    """
    whole = source.integer("policy.max_total_sequence_length")
    if not whole or whole < 2:
        return {}
    prompt, response = (min(found.get(f"lengths.{part}", whole), whole) for part in ("prompt", "response"))
    if prompt + response > whole:
        response = response if response < whole else whole - prompt if prompt < whole else whole // 2
        prompt = whole - response
    lengths = {"lengths.prompt": prompt, "lengths.response": response}
    for way in ("sequence_packing", "dynamic_batching"):
        if source.flag(f"policy.{way}.enabled"):
            rows = source.integer("policy.train_micro_batch_size", default=1) or 1
            budget = source.integer(f"policy.{way}.train_mb_tokens")
            lengths["lengths.pack"] = budget or whole * rows
    return lengths


def _unsure(source: Settings, colocated: bool | None) -> tuple[str, ...]:
    """Megatron's and automodel's cuts, colocated roles that leave the card in turns, engines of few bits."""
    keys: list[str] = []
    if source.flag("policy.megatron_cfg.enabled"):
        keys.extend(on_megatron(source.integer("policy.megatron_cfg.pipeline_model_parallel_size", default=1)))
    elif (
        source.flag("policy.automodel_cfg.enabled")
        or source.integer("policy.dtensor_cfg.expert_parallel_size", default=1) != 1
    ):
        keys.extend(on_megatron())
    if colocated:
        keys.append("roles.rollout.pool")
    engine = f"{_GENERATION}.vllm_cfg"
    cuts = (source.integer(f"{engine}.{cut}_parallel_size", default=1) for cut in ("pipeline", "expert"))
    if source.text(f"{engine}.precision", default="bfloat16") != "bfloat16" or any(cut != 1 for cut in cuts):
        keys.append("roles.rollout")
    whole = source.integer("policy.max_total_sequence_length")
    if whole and source.integer(f"{_GENERATION}.max_new_tokens", default=whole) == whole:
        keys.extend(("lengths.prompt", "lengths.response"))
    return tuple(keys)


def distils(values: dict[str, Any]) -> bool:
    """Whether a recipe scores a policy's own samples by teachers (``on_policy_distillation``)."""
    section = values.get(_DISTILLATION)
    return isinstance(section, dict) and to_bool(section.get("enabled")) is True


def teacher(values: dict[str, Any], complete: bool) -> Teacher:
    """The teachers of a distillation; with 0 GPUs where they take turns with the policy.

    Args:
        values: The recipe over its defaults, interpolated.
        complete: Whether all files of its defaults are there.
    """
    section = values.get(_DISTILLATION)
    if not distils(values) or not isinstance(section, dict):
        single = values.get("teacher")
        name = single.get("model_name") if isinstance(single, dict) else None
        return Teacher(model=to_text(name) or "", gpus=0)
    names = section.get("teacher_model_by_agent_name")
    models: dict[str, Any] = names if isinstance(names, dict) else {}
    apart = section.get("non_colocated_teachers")
    if not isinstance(apart, dict) or to_bool(apart.get("enabled")) is not True:
        return Teacher(model=_model(models), gpus=0 if complete else None)
    groups = _groups(models, section)
    gpus = [_resources(apart, alias) for alias in groups] if groups and complete else [None]
    sizes = {_one(apart, alias, "tensor_model_parallel_size", 1) for alias in groups}
    return Teacher(model=_model(models), gpus=total(*gpus), tensor_parallel=sizes.pop() if len(sizes) == 1 else None)


def _model(models: dict[str, Any]) -> str:
    names = [to_text(name) or "" for name in models.values()]
    return names[0] if names else ""


def _groups(models: dict[str, Any], section: dict[str, Any]) -> list[str]:
    """Names of the teachers that get GPUs: several names of one checkpoint share them, unless that is switched off."""
    if to_bool(section.get("deduplicate_shared_teacher_checkpoints", True)) is False:
        return list(models)
    first: dict[str, str] = {}
    for alias, model in models.items():
        if HOLE in str(model) and len(models) > 1:
            return []  # two checkpoints that are not known may be one
        first.setdefault(str(model), alias)
    return list(first.values())


def _resources(apart: dict[str, Any], alias: str) -> int | None:
    return product(_one(apart, alias, "num_nodes", 1), _one(apart, alias, "gpus_per_node", 8))


def _one(apart: dict[str, Any], alias: str, key: str, default: int) -> int | None:
    """A number of one teacher: its own, else that of all, else NeMo-RL's."""
    overrides = apart.get("teacher_overrides")
    own = overrides.get(alias) if isinstance(overrides, dict) else None
    for group in (own, apart.get("default_teacher_cfg")):
        if isinstance(group, dict) and group.get(key) is not None:
            return to_int(group[key])
    return default
