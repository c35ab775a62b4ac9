"""ROLL: YAML in which each role lists its devices, such as ``device_mapping: list(range(0,8))``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.facts import IN_TURNS, MEGATRON, Facts, Teacher, mapped, megatron_cuts, remarks
from rltui.importers.values import product, quotient, to_int

NAME = "roll"
_TRAINERS, _ENGINES = ("actor_train", "student_train", "sft_train"), ("actor_infer", "student_infer")
_ROLES = (*_TRAINERS, *_ENGINES, "critic", "reference", "teacher")
_RANGE = re.compile(r"list\(\s*range\(\s*(?:(\d+)\s*,)?\s*(\d+)\s*\)\s*\)")
_MAX_DEVICES = 100_000
_SAMPLES = "num_return_sequences_in_group"
_TABLE: Mapping[str, str] = {
    "max_steps": "train.steps",
    "rollout_batch_size": "train.prompts_per_step",
    _SAMPLES: "train.samples_per_prompt",
    "ppo_epochs": "train.epochs",
    "prompt_length": "lengths.prompt",
    "response_length": "lengths.response",
    "seed": "train.seed",
    "save_steps": "checkpoint.every",
    "eval_steps": "data.eval_every",
    "max_grad_norm": "train.gradient_clip",
    "gamma": "ppo.gamma",
    "lambd": "ppo.gae_lambda",
}

_DEFAULTS: Mapping[str, Any] = {
    "train.steps": 500,
    "train.prompts_per_step": 128,
    "lengths.prompt": 1024,
    "checkpoint.every": 50,
    "data.eval_every": 10,
}
"""What ROLL takes where a configuration is silent."""

_OF_TRAINER: Mapping[str, str] = {
    "training_args.learning_rate": "train.learning_rate",
    "training_args.weight_decay": "train.weight_decay",
    "training_args.warmup_steps": "train.warmup_steps",
    "training_args.per_device_train_batch_size": "roles.learner.micro_batch",
    **megatron_cuts("strategy_args.strategy_config."),
}
_OF_ENGINES: Mapping[str, str] = {
    "generating_args.temperature": "train.temperature",
    "generating_args.top_p": "train.top_p",
    "strategy_args.strategy_config.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "strategy_args.strategy_config.mem_fraction_static": "roles.rollout.memory_utilization",
}


def is_config(values: dict[str, Any]) -> bool:
    """Whether a YAML file is ROLL's: a role that trains, with its devices."""
    return any(isinstance(values.get(role), dict) and "device_mapping" in values[role] for role in _TRAINERS)


def from_config(values: dict[str, Any]) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration, interpolated.
    """
    source = from_mapping(values)
    trainer_role = next(role for role in _TRAINERS if isinstance(values.get(role), dict))
    engine_role = next((role for role in _ENGINES if isinstance(values.get(role), dict)), "")
    trainer = _devices(values, trainer_role)
    engines = _devices(values, engine_role) if engine_role else frozenset[int]()
    critic, reference, teacher, rewards = _others(source, values)
    algorithm = _algorithm(source, values, engine_role)
    main = _union(trainer, engines)
    source.has("exp_name", *(name for name in source.values if name.endswith(".device_mapping")))
    nodes, per_node = _machine(source, _union(main, critic, reference, teacher, rewards))
    size = _tensor_parallel(source, engine_role) if engine_role else None
    own_critic = _beyond(critic, main)
    return Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("pretrain", f"{trainer_role}.model_args.model_name_or_path"),
        colocated=_colocated(trainer, engines),
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=_count(trainer),
        rollout_gpus=_count(engines),
        rollout_tp=size,
        rollout_engines=quotient(_count(engines), product(size, _stages(source, engine_role))) if engine_role else None,
        critic="none" if algorithm != "ppo" else "own" if own_critic else "shared",
        critic_gpus=own_critic,
        reference=isinstance(values.get("reference"), dict) and _compares(source),
        reference_gpus=_beyond(reference, main, critic),
        teacher=_teacher(source, _beyond(teacher, main, critic, reference)) if algorithm == "opd" else None,
        other_gpus=_beyond(rewards, main, critic, reference, teacher),
        together=_count(main),
        source=source,
        settings=_settings(source, trainer_role, engine_role, bool(trainer and engines and trainer & engines)),
        unsure=_unsure(source, trainer, engines),
        notes=remarks(source),
    )


def _devices(values: dict[str, Any], role: str) -> frozenset[int] | None:
    """The devices of a role; none where it has no GPUs, None where they are not known."""
    section = values.get(role)
    if not isinstance(section, dict):
        return frozenset()
    if role == "teacher" and "device_mapping" not in section:
        return _union(*(_listed(listed) for listed in _all_devices(section)))  # several, each under a name of its own
    return _listed(section.get("device_mapping"))


def _listed(listed: object) -> frozenset[int] | None:
    """Devices in ``[0, 1]``, ``"[0, 1]"`` or ``list(range(0, 8)) + list(range(12, 16))``."""
    if listed is None:
        return frozenset()
    if isinstance(listed, str):
        return _written(listed)
    numbers = [to_int(item) for item in listed] if isinstance(listed, list) else [None]
    known = [number for number in numbers if number is not None]
    return frozenset(known) if len(known) == len(numbers) else None


def _written(text: str) -> frozenset[int] | None:
    found: set[int] = set()
    for part in text.split("+"):
        match = _RANGE.fullmatch(part.strip())
        numbers = part.strip().strip("[]").split(",")
        if match:
            start, end = int(match[1] or 0), int(match[2])
            if end - start > _MAX_DEVICES:
                return None
            found.update(range(start, end))
        elif all(to_int(number) is not None for number in numbers):
            found.update(int(number) for number in numbers)
        else:
            return None
    return frozenset(found)


def _union(*groups: frozenset[int] | None) -> frozenset[int] | None:
    known = [group for group in groups if group is not None]
    return frozenset().union(*known) if len(known) == len(groups) else None


def _count(group: frozenset[int] | None) -> int | None:
    return None if group is None else len(group)


def _beyond(group: frozenset[int] | None, *others: frozenset[int] | None) -> int | None:
    """GPUs of a role that no other role has."""
    taken = _union(*others)
    return None if group is None or taken is None else len(group - taken)


def _colocated(trainer: frozenset[int] | None, engines: frozenset[int] | None) -> bool | None:
    """Whether the engines share the trainer's GPUs; None where they share only some, or that is not known."""
    if trainer is None or engines is None:
        return None
    if not trainer & engines:
        return False
    return True if trainer <= engines or engines <= trainer else None


def _others(source: Settings, values: dict[str, Any]) -> tuple[frozenset[int] | None, ...]:
    """Devices of critic, reference, teacher, and of all other models that the file gives devices."""
    # without generalised advantages ROLL starts no critic, even where the file describes one
    has_critic = source.text("adv_estimator", default="gae") == "gae"
    return (
        _devices(values, "critic") if has_critic else frozenset(),
        _devices(values, "reference"),
        _devices(values, "teacher"),
        _union(*(_listed(listed) for listed in _all_devices(values, _ROLES))),
    )


def _all_devices(values: Mapping[str, Any], without: Sequence[str] = ()) -> Iterator[object]:
    """Every list of devices at any depth, but for those of the roles ``without``."""
    for name, inner in values.items():
        if name == "device_mapping":
            yield inner
        elif isinstance(inner, dict) and name not in without:
            yield from _all_devices(inner)


def _algorithm(source: Settings, values: dict[str, Any], engine_role: str) -> str:
    if not engine_role:
        return "sft" if "sft_train" in values else "dpo"
    if engine_role == "student_infer" or isinstance(values.get("teacher"), dict):
        return "opd"
    critic = isinstance(values.get("critic"), dict)
    return "ppo" if critic and source.text("adv_estimator", default="gae") == "gae" else "grpo"


def _machine(source: Settings, devices: frozenset[int] | None) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node; as many nodes as the highest device takes, whatever ``num_nodes`` says, as ROLL counts."""
    per_node = source.integer("num_gpus_per_node", default=8)
    source.has("num_nodes")
    if not devices or not per_node:
        return None, per_node
    return max(devices) // per_node + 1, per_node


def _tensor_parallel(source: Settings, role: str) -> int | None:
    """GPUs of one engine: vLLM takes them from its own settings, other engines from the worker's."""
    place = f"{role}.strategy_args"
    if source.has(f"{place}.strategy_config"):
        return None  # the settings are a reference that is not known
    own = source.integer(f"{place}.strategy_config.tensor_parallel_size", default=1)
    if source.text(f"{place}.strategy_name") == "vllm":
        return own
    return source.integer(f"{role}.num_gpus_per_worker", default=own)


def _stages(source: Settings, role: str) -> int | None:
    """Pipeline stages of an engine, which only vLLM adds to its GPUs; other engines are told these as they are."""
    place = f"{role}.strategy_args"
    on_vllm = source.text(f"{place}.strategy_name") == "vllm"
    return source.integer(f"{place}.strategy_config.pipeline_parallel_size", default=1) if on_vllm else 1


def _unsure(source: Settings, trainer: frozenset[int] | None, engines: frozenset[int] | None) -> tuple[str, ...]:
    """A trainer on some of the devices that the engines have, and advantages that need no siblings."""
    shares_some = trainer and engines and trainer & engines and trainer != engines
    alone = source.text("adv_estimator", default="gae") != "grpo" and source.integer(_SAMPLES, default=1) == 1
    return ("roles.learner.gpus",) * bool(shares_some) + ("train.samples_per_prompt",) * alone


def _teacher(source: Settings, gpus: int | None) -> Teacher:
    named = [name for name in source.values if name.startswith("teacher.") and name.endswith("model_name_or_path")]
    return Teacher(model=source.text(*named[:1], "reward_pretrain"), gpus=gpus)


def _compares(source: Settings) -> bool:
    """Whether log-probs of the reference are asked for, which its KL coefficient of 0.2 does where nothing is said."""
    weight = source.number("init_kl_coef", default=0.2)
    asked = (source.flag(name) is not False for name in ("use_kl_loss", "enable_reference"))
    return weight is None or weight > 0 or any(asked)


def _penalty(source: Settings) -> dict[str, Any]:
    """Where KL is penalised and how much; ROLL compares with a reference also where nothing is."""
    if source.flag("use_kl_loss"):
        weight = source.number("kl_loss_coef", default=0.0)
        return {} if weight is None else {"grpo.kl": "loss", "grpo.kl_coefficient": weight}
    if source.flag("add_token_level_kl"):
        weight = source.number("init_kl_coef", default=0.2)
        return {} if weight is None else {"grpo.kl": "reward", "grpo.kl_coefficient": weight}
    return {}


def _clipped(source: Settings) -> dict[str, Any]:
    """The bounds of the ratio, which are one number unless both are asked for."""
    names = ("pg_clip_low", "pg_clip_high") if source.flag("use_pg_clip_range") else ("pg_clip", "pg_clip")
    low, high = (source.number(name, default=0.2) for name in names)
    return {} if low is None or high is None else {"grpo.clip_low": low, "grpo.clip_high": high, "ppo.clip": low}


def _settings(source: Settings, trainer: str, engines: str, shared: bool) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    whole = source.integer("sequence_length")
    if whole and "lengths.response" not in found and whole > found["lengths.prompt"]:
        found["lengths.response"] = whole - found["lengths.prompt"]
    found |= _penalty(source) | _clipped(source)
    found |= mapped(source, {f"{trainer}.{name}": target for name, target in _OF_TRAINER.items()})
    if engines:
        found |= mapped(source, {f"{engines}.{name}": target for name, target in _OF_ENGINES.items()})
    found["roles.learner.zero_stage"] = 3
    on_megatron = "megatron" in source.text(f"{trainer}.strategy_args.strategy_name")
    if shared:  # its workers leave the card after each pass, and come back for the next
        found |= IN_TURNS if on_megatron else {"roles.learner.offload": "all"}
    elif on_megatron:
        found |= MEGATRON
    files = source.words(f"{trainer}.data_args.file_name")
    if files:
        found["data.train"] = str(files[0])
    return found
