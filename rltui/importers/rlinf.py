"""RLinf: YAML whose ``cluster.component_placement`` gives each component its GPUs, such as ``actor,rollout: 0-7``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
    **megatron_cuts("actor.model."),
    "rollout.gpu_memory_utilization": "roles.rollout.memory_utilization",
    "rollout.enforce_eager": "roles.rollout.enforce_eager",
    "runner.max_steps": "train.steps",
    "runner.save_interval": "checkpoint.every",
    "runner.val_check_interval": "data.eval_every",
}
_CUTS = ("actor.model.pipeline_model_parallel_size", "actor.model.context_parallel_size")


def is_config(values: Mapping[str, Any]) -> bool:
    """Whether a YAML file is RLinf's: its cluster places components."""
    cluster = values.get("cluster")
    return isinstance(cluster, dict) and isinstance(cluster.get(_PLACEMENT), dict)


def from_config(values: Mapping[str, Any]) -> Facts:
    """What a configuration needs.

    Args:
        values: The configuration, interpolated.
    """
    source = from_mapping(values)
    nodes = source.integer("cluster.num_nodes", default=1)
    placed = dict(_placed(values["cluster"][_PLACEMENT]))
    if source.flag("reward.use_reward_model") is not True:
        placed.pop("reward", None)  # rules that are computed beside the GPUs
    actor, rollout = placed.get("actor", frozenset()), placed.get("rollout", frozenset())
    everywhere = None if None in placed.values() else frozenset().union(*(gpus or () for gpus in placed.values()))
    source.has(*(name for name in source.values if name.startswith("cluster.")))
    per_node = quotient(max(everywhere) + 1, nodes) if everywhere else None
    size = source.integer("rollout.tensor_parallel_size", key="roles.rollout.tensor_parallel")
    pipeline = source.integer("rollout.pipeline_parallel_size", default=1)
    engines = None if rollout is None else len(rollout)
    megatron = source.text("actor.training_backend") == "megatron"
    return Facts(
        dialect=NAME,
        algorithm=_algorithm(source),
        model=source.text("actor.model.model_path", "rollout.model.model_path", key="roles.learner.model"),
        colocated=_colocated(actor, rollout, same=_together(values["cluster"][_PLACEMENT])),
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=None if actor is None else len(actor),
        rollout_gpus=engines,
        rollout_tp=size,
        rollout_engines=quotient(engines, product(size, pipeline)),
        critic="shared" if "critic" in placed else "none",
        reference=(source.number("algorithm.kl_beta", default=0.0) or 0.0) > 0,
        together=None if actor is None or rollout is None else len(actor | rollout),
        other_gpus=_others(placed, actor, rollout),
        source=source,
        settings=_settings(source),
        unsure=(
            *(on_megatron(*(source.integer(name, default=1) for name in _CUTS)) if megatron else ()),
            *(("train.samples_per_prompt",) if source.text("algorithm.adv_type", default="grpo") != "grpo" else ()),
        ),
        notes=(
            *(
                f"{_PLACEMENT}: {name} is on all GPUs, and no node's are counted"
                for name, gpus in placed.items()
                if gpus is None
            ),
            *remarks(source),
        ),
    )


def _placed(placement: Mapping[str, Any]) -> Iterator[tuple[str, frozenset[int] | None]]:
    """Each component with its GPUs; None where they are all of a cluster whose nodes are not counted, or not known."""
    for names, place in placement.items():
        for name in str(names).split(","):
            yield name.strip(), _gpus(place)


def _gpus(place: object) -> frozenset[int] | None:
    """GPUs in ``0-3``, ``0-3,8`` or ``0-1:0-3``, which has processes behind the colon."""
    text = str(place).partition(":")[0]
    ranges = [_RANGE.fullmatch(part.strip()) for part in text.split(",")]
    if isinstance(place, dict) or not is_known(text) or None in ranges:
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
    if "embodied" in kind or "sft" in kind or "offline" in kind:
        return f"{kind} training of RLinf"
    return "ppo" if source.text("algorithm.adv_type", default="grpo") == "gae" else "grpo"


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE)
    whole, prompt = source.integer("runner.seq_length"), found.get("lengths.prompt")
    if whole and prompt and whole > prompt:
        found["lengths.response"] = whole - prompt
    budget = source.integer("runner.max_tokens_per_mbs")
    if budget and source.flag("runner.enable_dynamic_batch_size"):
        found["lengths.pack"] = budget
    clip = source.number("algorithm.ratio_clip_eps")
    if clip is not None:
        found |= {"grpo.clip_low": clip, "grpo.clip_high": clip}
    found |= {"roles.learner.zero_stage": 3}
    if source.text("actor.training_backend") == "megatron":
        found |= MEGATRON
    if files := source.words("data.train_data_paths"):
        found["data.train"] = str(files[0])
    return found
