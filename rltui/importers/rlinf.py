"""RLinf: YAML whose ``cluster.component_placement`` gives each component its GPUs, such as ``actor,rollout: 0-7``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rltui.importers.arguments import Settings, from_mapping
from rltui.importers.facts import MEGATRON, Facts, mapped, megatron_cuts, on_megatron, remarks
from rltui.importers.values import is_known, product, quotient

NAME = "rlinf"
_PLACEMENT = "component_placement"
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_TABLE: Mapping[str, str] = {
    "data.rollout_batch_size": "train.prompts_per_step",
    "algorithm.group_size": "train.samples_per_prompt",
    "algorithm.n_minibatches": "train.optimizer_steps",
    "algorithm.training_batch_size_per_gpu": "roles.learner.micro_batch",
    "algorithm.kl_beta": "grpo.kl_coefficient",
    "algorithm.sampling_params.temperature": "train.temperature",
    "algorithm.sampling_params.top_p": "train.top_p",
    "data.max_prompt_length": "lengths.prompt",
    "data.seed": "train.seed",
    "actor.optim.lr": "train.learning_rate",
    "actor.optim.weight_decay": "train.weight_decay",
    "actor.optim.clip_grad": "train.gradient_clip",
    "actor.fsdp_config.gradient_checkpointing": "roles.learner.gradient_checkpointing",
    **megatron_cuts("actor.model."),
    "rollout.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "rollout.enforce_eager": "roles.rollout.enforce_eager",
    "runner.max_steps": "train.steps",
    "runner.save_interval": "checkpoint.every",
    "runner.val_check_interval": "data.eval_every",
}
_DEFAULTS: Mapping[str, Any] = {"roles.learner.micro_batch": 1, "roles.rollout.memory_utilization": 0.65}
"""What RLinf takes where a configuration is silent."""

_STAGES = {"full_shard": 3, "hybrid_shard": 3, "shard_grad_op": 2, "no_shard": 0}
"""FSDP's strategies, and the stages of ZeRO that divide as much."""

_MODEL = ("actor.model.model_path", "rollout.model.model_path", "rollout.model_dir")  # the last until autumn 2025
_PENALTIES = ("algorithm.kl_beta", "algorithm.reinpp_kl_beta")
_CUTS = ("actor.model.pipeline_model_parallel_size", "actor.model.context_parallel_size")


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a YAML file is RLinf's: its cluster places components."""
    cluster = values.get("cluster")
    return isinstance(cluster, dict) and isinstance(cluster.get(_PLACEMENT), dict)


def from_config(values: Mapping[str, Any], missing: Sequence[str] = ()) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration, interpolated.
        missing: Files that it builds on and that are not there; what they would say is not known.
    """
    source = from_mapping(values)
    source = source.cut() if missing else source
    nodes = source.integer("cluster.num_nodes", default=1)
    # until September 2025 the cluster itself said how many GPUs a node has
    said = source.integer("cluster.num_gpus_per_node") if source.has("cluster.num_gpus_per_node") else None
    placed = dict(_placed(values["cluster"][_PLACEMENT], product(nodes, said)))
    if source.flag("reward.use_reward_model") is not True:
        placed.pop("reward", None)  # rules that are computed beside the GPUs
    has_critic = placed.get("critic", frozenset()) != frozenset() and source.flag("critic.use_critic_model") is True
    actor, rollout = placed.get("actor", frozenset()), placed.get("rollout", frozenset())
    everywhere = None if None in placed.values() else frozenset().union(*(gpus or () for gpus in placed.values()))
    source.has(*(name for name in source.values if name.startswith("cluster.")))
    per_node = said or (quotient(max(everywhere) + 1, nodes) if everywhere else None)
    size = source.integer("rollout.tensor_parallel_size", key="roles.rollout.tensor_parallel")
    pipeline = source.integer("rollout.pipeline_parallel_size", default=1)
    engines = None if rollout is None else len(rollout)
    megatron = source.text("actor.training_backend") == "megatron"
    return Facts(
        dialect=NAME,
        algorithm=_algorithm(source),
        model=source.text(*_MODEL, key="roles.learner.model"),
        colocated=_colocated(actor, rollout, same=_together(values["cluster"][_PLACEMENT])),
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=None if actor is None else len(actor),
        rollout_gpus=engines,
        rollout_tp=size,
        rollout_engines=quotient(engines, product(size, pipeline)),
        critic="shared" if has_critic else "none",
        reference=any((source.number(name, default=0.0) or 0.0) > 0 for name in _PENALTIES),
        together=None if actor is None or rollout is None else len(actor | rollout),
        other_gpus=_others(placed, actor, rollout),
        source=source,
        settings=_settings(source),
        unsure=(
            *(on_megatron(*(source.integer(name, default=1) for name in _CUTS)) if megatron else ()),
            *(("train.samples_per_prompt",) if source.text("algorithm.adv_type", default="grpo") != "grpo" else ()),
        ),
        notes=(
            *(f"defaults: {name} is not there, so what it sets is not known" for name in missing),
            *(
                f"{_PLACEMENT}: {name} is on all GPUs, and no node's are counted"
                for name, gpus in placed.items()
                if gpus is None
            ),
            *remarks(source),
        ),
    )


def _placed(placement: Mapping[str, Any], every: int | None) -> Iterator[tuple[str, frozenset[int] | None]]:
    """Each component with its GPUs; None where they are all of a cluster whose nodes are not counted, or not known."""
    for names, place in placement.items():
        for name in str(names).split(","):
            yield name.strip(), _gpus(place, every)


def _gpus(place: object, every: int | None) -> frozenset[int] | None:
    """GPUs in ``0-3``, ``0-3,8`` or ``0-1:0-3,2-3:4-5``, which has processes behind each colon, or ``all``."""
    if isinstance(place, dict):
        return None if "node_group" in place else _gpus(place.get("placement"), every)
    if place == "all":
        return None if every is None else frozenset(range(min(every, 100_000)))
    text = str(place)
    ranges = [_RANGE.fullmatch(part.partition(":")[0].strip()) for part in text.split(",") if part.strip()]
    if not ranges or not is_known(text) or None in ranges:
        return None
    spans = [(int(span[1]), int(span[2] or span[1])) for span in ranges if span]
    return frozenset(gpu for start, end in spans for gpu in range(start, min(end, start + 100_000) + 1))


def _others(placed: Mapping[str, frozenset[int] | None], *counted: frozenset[int] | None) -> int | None:
    """GPUs of components beside trainer and engines; where these have all of the cluster, there are none."""
    if None in counted:
        return 0 if set(counted) == {None} else None
    taken = frozenset().union(*(gpus or () for gpus in counted))
    groups = [gpus - taken for gpus in placed.values() if gpus is not None]
    return len(frozenset().union(*groups)) if None not in placed.values() else None


def _together(placement: Mapping[str, Any]) -> bool:
    """Whether trainer and engines have the same place, however many GPUs that is."""
    places = {name.strip(): str(place) for names, place in placement.items() for name in str(names).split(",")}
    return places.get("actor") is not None and places["actor"] == places.get("rollout")


def _colocated(actor: frozenset[int] | None, rollout: frozenset[int] | None, *, same: bool) -> bool | None:
    if same:
        return True
    if actor is None or rollout is None:
        return None
    return False if not actor & rollout else True if actor == rollout else None


def _algorithm(source: Settings) -> str:
    kind = source.text("runner.task_type", default="reasoning")
    if "eval" in kind or source.flag("runner.only_eval"):
        return f"{kind} of RLinf, an evaluation"
    if "embodied" in kind or "sft" in kind or "offline" in kind:
        return f"{kind} training of RLinf"
    return "ppo" if source.text("algorithm.adv_type", default="grpo") == "gae" else "grpo"


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    whole, prompt = source.integer("runner.seq_length"), found.get("lengths.prompt")
    longest = source.integer("algorithm.sampling_params.max_new_tokens")
    if whole and prompt and whole > prompt:
        found["lengths.response"] = min(whole - prompt, longest or whole)
    budget = source.integer("runner.max_tokens_per_mbs")
    if budget and source.flag("runner.enable_dynamic_batch_size"):
        found["lengths.pack"] = budget
    clip = source.number("algorithm.ratio_clip_eps")
    sides = {side: source.number(f"algorithm.clip_ratio_{side}", default=clip) for side in ("low", "high")}
    found |= {f"grpo.clip_{side}": value for side, value in sides.items() if value is not None}
    if source.text("actor.training_backend") == "megatron":
        found |= MEGATRON
    else:
        found |= _fsdp(source)
    if files := source.words("data.train_data_paths"):
        found["data.train"] = str(files[0])
    return found


def _fsdp(source: Settings) -> dict[str, Any]:
    """How FSDP divides the states: its first version by a strategy, its second by what it keeps between the passes."""
    keeps = source.flag("actor.fsdp_config.reshard_after_forward", default=True) is False
    stage = _STAGES.get(source.text("actor.fsdp_config.sharding_strategy", default="full_shard"))
    if source.text("actor.fsdp_config.strategy", default="fsdp") == "fsdp2":
        stage = 2 if keeps else 3
    found: dict[str, Any] = {} if stage is None else {"roles.learner.zero_stage": stage}
    return found | ({"roles.learner.offload": "all"} if source.flag("actor.fsdp_config.cpu_offload") else {})
