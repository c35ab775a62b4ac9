"""verl: Hydra overrides of ``main_ppo`` and its kin."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rltui.importers import variants, verl_teachers
from rltui.importers.arguments import Settings, from_flags, from_mapping, from_overrides
from rltui.importers.facts import (
    MEGATRON,
    ON_HOST,
    Facts,
    first_of,
    mapped,
    megatron_cuts,
    on_megatron,
    remarks,
    steps_on_host,
    uncounted,
)  # fmt: skip
from rltui.importers.values import HOLE, product, quotient, to_bool, total
from rltui.importers.verl_others import generation, supervised

if TYPE_CHECKING:
    from rltui.importers.script import Script
    from rltui.importers.shell_run import Started

NAME = "verl"
_ROLLOUT = "actor_rollout_ref.rollout"
_ACTOR = "actor_rollout_ref.actor"
_CONFIG = re.compile(r"(?:^|_)ppo_(?:\w+_)?trainer(?:\.ya?ml)?\Z|^(?:\./)?config/?\Z")
_GPUS_OF_A_NODE = 8
_COUNTED = (
    "trainer.",
    "rollout.",
    "actor_rollout_ref.",
    "critic.",
    "distillation.",
    "reward_model.",
    "reward.",
    "data.",
)
_ULYSSES = (f"{_ACTOR}.ulysses_sequence_parallel_size", f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size")
_ENGINE_CUTS = ("pipeline_model_parallel_size", "data_parallel_size", "expert_parallel_size")
_BF16 = ("bf16", "bfloat16")
_OVERRIDE = re.compile(r"\+{0,2}[a-z_]+(?:\.\w+)+=")
_TABLE: Mapping[str, str] = {
    "data.train_batch_size": "train.prompts_per_step",
    f"{_ROLLOUT}.n": "train.samples_per_prompt",
    # Search-R1's and verl-agent's own, beside which verl's stays 1
    f"{_ROLLOUT}.n_agent": "train.samples_per_prompt",
    "env.rollout.n": "train.samples_per_prompt",
    f"{_ACTOR}.optim.lr": "train.learning_rate",
    f"{_ACTOR}.optim.lr_warmup_steps": "train.warmup_steps",
    f"{_ACTOR}.optim.weight_decay": "train.weight_decay",
    f"{_ACTOR}.ppo_epochs": "train.epochs",
    f"{_ROLLOUT}.temperature": "train.temperature",
    f"{_ROLLOUT}.top_p": "train.top_p",
    "trainer.total_training_steps": "train.steps",
    "data.max_prompt_length": "lengths.prompt",
    "data.max_response_length": "lengths.response",
    "data.train_files": "data.train",
    "data.val_files": "data.eval",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "actor_rollout_ref.model.lora_rank": "roles.learner.lora_rank",
    f"{_ACTOR}.ulysses_sequence_parallel_size": "roles.learner.sequence_parallel",
    f"{_ACTOR}.fsdp_config.ulysses_sequence_parallel_size": "roles.learner.sequence_parallel",
    **megatron_cuts(f"{_ACTOR}.megatron."),
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu": "roles.learner.micro_batch",
    f"{_ROLLOUT}.gpu_memory_utilization": "roles.rollout.memory_utilization",
    f"{_ROLLOUT}.enforce_eager": "roles.rollout.enforce_eager",
    f"{_ROLLOUT}.enable_rollout_routing_replay": "roles.rollout.router_replay",
    "trainer.save_freq": "checkpoint.every",
    "trainer.test_freq": "data.eval_every",
    "trainer.project_name": "tracking.project",
    f"{_ACTOR}.grad_clip": "train.gradient_clip",
    "critic.cliprange_value": "ppo.value_clip",
    "algorithm.gamma": "ppo.gamma",
    "algorithm.lam": "ppo.gae_lambda",
    "trainer.critic_warmup": "ppo.critic_warmup_steps",
    "critic.optim.lr": "roles.critic.learning_rate",
    "critic.ppo_micro_batch_size_per_gpu": "roles.critic.micro_batch",
    "critic.model.enable_gradient_checkpointing": "roles.critic.gradient_checkpointing",
}

_DEFAULTS: Mapping[str, Any] = {
    "train.prompts_per_step": 1024,
    "train.samples_per_prompt": 1,
    "lengths.prompt": 512,
    "lengths.response": 512,
    "roles.rollout.memory_utilization": 0.5,
    "checkpoint.every": -1,
}
"""What verl takes where a command is silent."""

_SECTIONS = (
    "actor_rollout_ref", "algorithm", "critic", "custom_reward_function", "data", "distillation", "global_profiler",
    "hydra", "model_engine", "ray_kwargs", "reward", "reward_manager", "reward_model", "rollout", "trainer",
    "transfer_queue",
)  # fmt: skip
"""Sections of verl's own configuration."""


def is_entry(word: str) -> bool:
    """Whether a word of a command is one of verl's programs; its evaluation scores a file and takes no GPU."""
    if word.removesuffix(".py").endswith("main_eval"):
        return False
    if word.startswith(("verl.", "recipe.")) and word.rsplit(".", 1)[-1] != "py":
        return any(part in word for part in ("main", "sft", "trainer"))
    name = word.rsplit("/", 1)[-1]
    return name.startswith("main_") and name.endswith(".py")


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    for command, entry, behind in _trainings(script):
        source = from_overrides(behind)
        for name in [name for name in source.values if name.endswith(".algorithm.adv_estimator")]:
            # a system built on verl that says it in a section of its own, and tells verl
            source.values.setdefault("algorithm.adv_estimator", source.values[name])
        words = list(command.words)
        if not any(name.startswith(("actor_rollout_ref.", "trainer.", "data.", "model.")) for name in source.values):
            continue
        if "sft" in entry or any("sft" in word for word in words[: len(words) - len(behind)]):
            found.append(supervised(script, source, from_flags(words[: len(words) - len(behind)])))
        elif "generation" in entry:
            found.append(generation(source))
        else:
            found.append(_facts(script, source, entry, behind))
    return found


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a configuration is one of verl's main program, as Hydra composes it."""
    return all(isinstance(values.get(part), dict) for part in ("actor_rollout_ref", "trainer", "data"))


def from_config(values: Mapping[str, Any], script: Script) -> Facts:
    """What a configuration file needs; what it takes from other files by ``defaults:`` is not known."""
    source = from_mapping({key: part for key, part in values.items() if key not in ("defaults", "hydra")})
    return _facts(script, source.cut() if "defaults" in values else source, script.path.stem, [])


def _trainings(script: Script) -> list[tuple[Started, str, list[str]]]:
    """Commands that start one of verl's programs, or another that takes verl's overrides; with both parts of them."""
    found = []
    for command in script.commands:
        words = list(command.words)
        entry = next((index for index, word in enumerate(words) if is_entry(word)), None)
        if entry is None:
            first = next((index for index, word in enumerate(words) if _OVERRIDE.match(word)), 0)
            own = any(word.lstrip("+").startswith("actor_rollout_ref.") for word in words[first:])
            entry = first - 1 if own and first else None
        if entry is not None:
            found.append((command, words[entry], words[entry + 1 :]))
    return found


def _own_config(behind: list[str]) -> bool:
    """Whether the command starts from a configuration that is not one of verl's, whose defaults are not known."""
    names = [str(word) for name in ("config_name", "config_path") for word in from_flags(behind).words(name)[:1]]
    return any(not _CONFIG.search(name.strip("'\"")) for name in names)


def _as_started(source: Settings, entry: str, behind: list[str]) -> Settings | None:
    """The settings as verl's own start-up check sees them; None where a program of its experiments has another.

    What the command does not set is known only of verl's own configurations.
    """
    if "experimental" in entry:
        return None
    config = from_flags(behind).text("config_name")
    backend = {"actor_rollout_ref.actor.strategy": ["megatron"]} if "megatron" in config else {}
    started = source.cut() if not is_entry(entry) or _own_config(behind) else source
    return started.over(backend) if backend else started


def _facts(script: Script, source: Settings, entry: str, behind: list[str]) -> Facts:
    own_config = not is_entry(entry) or _own_config(behind)
    nodes = source.integer("trainer.nnodes", default=None if own_config else 1, key="hardware.nodes")
    per_node = source.integer(
        "trainer.n_gpus_per_node", default=None if own_config else 8, key="hardware.gpus_per_node"
    )
    # a count of 0 comes from a machine that the script alone does not show, such as ``NODES - 1``
    asked = product(nodes, per_node) or None
    algorithm = _algorithm(source)
    separate = _separate(source, entry)
    split = "split" in entry
    trainer = _half(nodes, per_node) if split else asked
    rollout = product(*_own_pool(source)) if separate else None if separate is None else trainer
    tensor_parallel = source.integer(f"{_ROLLOUT}.tensor_model_parallel_size", key="roles.rollout.tensor_parallel")
    pipeline = source.integer(f"{_ROLLOUT}.pipeline_model_parallel_size", default=1)
    replicas = source.integer(f"{_ROLLOUT}.data_parallel_size", default=1)
    teacher = verl_teachers.teacher(source)
    if separate:
        nodes, per_node = _both_pools((nodes, per_node), _own_pool(source))
        asked = total(asked, rollout)
    elif teacher and teacher.gpus and (on_one := _both_pools((nodes, per_node), verl_teachers.machine(source))[1]):
        # a node that is full already is left as it is; Ray must hold more than the trainer's pool then
        per_node = on_one if on_one <= _GPUS_OF_A_NODE and nodes == 1 else per_node
    on_slurm = script.slurm.gpus
    variant = variants.verl(source, algorithm)
    settings = _settings(source, trainer) | variant.found
    if "one_step_off" in entry:
        settings["train.async_steps"] = 1
    notes = (
        []
        if tensor_parallel
        else [f"{_ROLLOUT}.tensor_model_parallel_size: not said; verl's default depends on its version"]
    )
    if split:
        notes.append("split placement: one half of the GPUs for actor, rollout and reference, the other for the critic")
    return Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("actor_rollout_ref.model.path", key="roles.learner.model"),
        colocated=None if separate is None else not separate,
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=asked if on_slurm is None else on_slurm,
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=tensor_parallel,
        rollout_engines=quotient(rollout, product(tensor_parallel, pipeline, replicas)),
        critic="own" if split else "shared" if algorithm == "ppo" else "none",
        critic_gpus=_half(nodes, per_node) if split else 0,
        reference=bool(source.flag(f"{_ACTOR}.use_kl_loss") or source.flag("algorithm.use_kl_in_reward")),
        teacher=teacher,
        other_gpus=total(verl_teachers.reward_pool(source), uncounted(source, _COUNTED)),
        source=_as_started(source, entry, behind),
        program=entry,
        settings=settings,
        unsure=(*_unsure(source), *(("hardware.nodes",) if teacher and on_slurm is None else ())),
        notes=(*notes, *variant.notes, *remarks(source)),
    )


def _half(nodes: int | None, per_node: int | None) -> int | None:
    """GPUs of one half in split placement: half of a node, or half of the nodes."""
    if nodes is None or per_node is None:
        return None
    return per_node // 2 if nodes == 1 else nodes // 2 * per_node


def _algorithm(source: Settings) -> str:
    if source.flag("distillation.enabled") is not False:
        return "opd"
    if (critic := source.flag("critic.enable", default=None)) is not None:
        return "ppo" if critic else "grpo"
    estimator = source.text("algorithm.adv_estimator", default="gae")
    # programs built on verl name their own kinds of GAE (masked_gae, bi_level_gae)
    return "ppo" if estimator.endswith("gae") else "grpo"


def _separate(source: Settings, entry: str) -> bool | None:
    """Whether engines have GPUs of their own; None where that is not known."""
    if source.has("rollout.nnodes", "rollout.n_gpus_per_node"):
        return True
    hybrid = source.flag("actor_rollout_ref.hybrid_engine", default=True)
    nodes = source.integer(f"{_ROLLOUT}.nnodes", default=0)
    if nodes is None or hybrid is None:
        return None
    if nodes > 0 and ("async" in entry or "one_step_off" in entry or not hybrid or _separate_mode(source)):
        return True
    # asynchronous programs hold engines of their own even where the command is silent about them
    return None if nodes > 0 or not hybrid or "fully_async" in entry or "one_step_off" in entry else False


def _separate_mode(source: Settings) -> bool:
    return "separate" in source.text("trainer.v1.trainer_mode") + source.text("trainer.v1.mode")


def _own_pool(source: Settings) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node of engines that have a pool of their own."""
    prefix = "rollout" if source.has("rollout.nnodes", "rollout.n_gpus_per_node") else _ROLLOUT
    nodes = source.integer(f"{prefix}.nnodes", default=1)
    return nodes, source.integer(f"{prefix}.n_gpus_per_node", "trainer.n_gpus_per_node", default=8)


def _both_pools(
    trainer: tuple[int | None, int | None], rollout: tuple[int | None, int | None]
) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node of a machine for both pools; None where their shapes do not say which."""
    (nodes, per_node), (own_nodes, own_per_node) = trainer, rollout
    together = total(per_node, own_per_node)
    if nodes == own_nodes and together is not None and together <= _GPUS_OF_A_NODE:
        return nodes, together
    return (total(nodes, own_nodes), per_node) if per_node == own_per_node else (None, None)


def _settings(source: Settings, trainer: int | None) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    found |= _trained(source, "learner", (_ACTOR, "actor_rollout_ref.model"), trainer)
    found |= _trained(source, "critic", ("critic", "critic.model"), trainer)
    model = source.text("critic.model.path")
    if model and HOLE not in model and model != source.text("actor_rollout_ref.model.path"):
        found["roles.critic.model"] = model
    if steps := quotient(found["train.prompts_per_step"], source.integer(f"{_ACTOR}.ppo_mini_batch_size", default=256)):
        found["train.optimizer_steps"] = steps
    found |= _streamed(source)
    found["roles.learner.zero_stage"] = 3
    if _on_megatron(source, _ACTOR):
        in_turns = {**MEGATRON, "system": "megatron in turns"}  # what it says of offload is what leaves and comes back
        found |= ON_HOST if steps_on_host(source, f"{_ACTOR}.optim.override_optimizer_config.") else in_turns
        if rank := source.integer("actor_rollout_ref.model.lora.rank", default=0):
            found["roles.learner.lora_rank"] = rank
    else:
        in_bf16 = source.text(f"{_ACTOR}.fsdp_config.model_dtype") in _BF16
        found["system"] = "verl bf16" if in_bf16 else "verl"
    if found.get("train.steps") == 0:
        del found["train.steps"]  # it evaluates once and trains nothing, on purpose
    if budget := _budget(source):
        found["lengths.pack"] = budget
    for key in ("data.train", "data.eval"):
        files = first_of(str(found.pop(key, "")))
        if files and to_bool(files) is None:
            found[key] = files
    return found


def _streamed(source: Settings) -> dict[str, Any]:
    """The batch where samples come one by one while it trains (``fully_async_policy``): so many mini-batches.

    Systems built on verl say the mini-batch in a section of their own.
    """
    own = [name for name in source.values if "async_training." in name]
    if not own:
        return {}
    mini = (name for name in (*own, f"{_ACTOR}.ppo_mini_batch_size") if name.endswith("mini_batch_size"))
    batches = source.integer("async_training.require_batches", default=1)
    prompts = product(source.integer(*mini, default=256), batches)
    sizes = {"train.prompts_per_step": prompts, "train.optimizer_steps": batches} if prompts else {}
    return {"train.async_steps": 1, **sizes}


def _budget(source: Settings) -> int | None:
    """Tokens of a pass, which the ranks of one sequence share; None where passes are counted in rows."""
    if not source.flag(f"{_ACTOR}.use_dynamic_bsz"):
        return None
    ranks = source.integer(*_ULYSSES, default=1) if not _on_megatron(source, _ACTOR) else 1
    context = source.integer(f"{_ACTOR}.megatron.context_parallel_size", default=1)
    return product(source.integer(f"{_ACTOR}.ppo_max_token_len_per_gpu", default=16384), ranks, context)


def _unsure(source: Settings) -> tuple[str, ...]:
    """Roles whose memory a layout's words do not tell: Megatron's cuts, and strategies that are not FSDP."""
    keys: list[str] = []
    for role, prefix in (("learner", _ACTOR), ("critic", "critic")):
        strategy = source.text(f"{prefix}.strategy", "model_engine", default="fsdp")
        elsewhere = (f"{prefix}.engine.", f"{prefix}.veomni", "actor@", "critic@")
        other_engine = "fsdp" not in strategy or any(name.startswith(elsewhere) for name in source.values)
        if other_engine or _on_megatron(source, prefix):
            keys.extend(on_megatron(source.integer(f"{prefix}.megatron.pipeline_model_parallel_size", default=1)))
        elif source.flag(f"{prefix}.use_dynamic_bsz") is None:
            keys.append(f"roles.{role}.micro_batch")
    quantised = source.has(f"{_ROLLOUT}.quantization") or any(".qat." in name for name in source.values)
    if quantised or any(source.integer(f"{_ROLLOUT}.{cut}", default=1) != 1 for cut in _ENGINE_CUTS):
        keys.append("roles.rollout")
    # several baselines need no siblings, and systems built on verl count them in settings of their own
    built_on = any("." in name and name.split(".")[0] not in _SECTIONS for name in source.values)
    if (
        built_on
        or source.has(f"{_ROLLOUT}.n_agent")
        or source.text("algorithm.adv_estimator", default="gae") not in ("gae", "grpo")
    ):
        keys.append("train.samples_per_prompt")
    return tuple(keys)


def _trained(source: Settings, role: str, prefixes: tuple[str, str], trainer: int | None) -> dict[str, Any]:
    """What lives where, and how much is passed at once, by the settings of an actor or critic and of its model."""
    prefix, model = prefixes
    places = (f"{prefix}.fsdp_config", f"{prefix}.fsdp", f"{prefix}.megatron", f"{model}.fsdp_config")
    found: dict[str, Any] = {}
    for word, value in (("optimizer", "optimizer"), ("param", "all")):
        if any(source.flag(f"{place}.{word}_offload") for place in places):
            found[f"roles.{role}.offload"] = value
    if _on_megatron(source, prefix):
        granularity = source.text(f"{prefix}.megatron.override_transformer_config.recompute_granularity")
        found[f"roles.{role}.gradient_checkpointing"] = granularity == "full"
    elif not source.has(f"{model}.enable_gradient_checkpointing"):
        found[f"roles.{role}.gradient_checkpointing"] = True
    # the elder name counts the rows of all GPUs
    rows = source.integer(f"{prefix}.ppo_micro_batch_size", default=0)
    sequence = source.integer(f"{prefix}.ulysses_sequence_parallel_size", default=1)
    if rows and trainer and sequence:
        found[f"roles.{role}.micro_batch"] = max(1, rows * sequence // trainer)
    return found


def _on_megatron(source: Settings, prefix: str) -> bool:
    """Whether an actor or critic is Megatron's, which recomputes nothing unless it is told to."""
    return "megatron" in source.text(f"{prefix}.strategy") or any(
        name.startswith(f"{prefix}.megatron.") for name in source.values
    )
