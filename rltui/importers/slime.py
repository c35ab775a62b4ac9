"""slime and miles: arrays of Megatron and SGLang flags for ``train.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import structs

from rltui.importers.arguments import Settings, from_flags
from rltui.importers.facts import (
    IN_TURNS,
    MEGATRON,
    Facts,
    Teacher,
    mapped,
    megatron_cuts,
    on_megatron,
    remarks,
    uncounted,
)
from rltui.importers.script import Script, ray_gpus, servers
from rltui.importers.values import HOLE, product, quotient, total
from rltui.importers.variants import Variants

NAME = "slime"
_PROGRAM = re.compile(r"train(?:_\w+)?\.py\Z")
_COUNTED = ("actor_", "critic_", "rollout_", "sglang_", "prefill_", "num_gpus_per_node")
_OWN = {"actor_num_nodes", "actor_num_gpus_per_node", "rollout_num_gpus", "rollout_num_gpus_per_engine"}
_CRITIC = ("critic_num_nodes", "critic_num_gpus_per_node")
_TABLE: Mapping[str, str] = {
    "num_rollout": "train.steps",
    "rollout_batch_size": "train.prompts_per_step",
    "n_samples_per_prompt": "train.samples_per_prompt",
    "lr": "train.learning_rate",
    "weight_decay": "train.weight_decay",
    "clip_grad": "train.gradient_clip",
    "num_steps_per_rollout": "train.optimizer_steps",
    "rollout_temperature": "train.temperature",
    "rollout_top_p": "train.top_p",
    "seed": "train.seed",
    "rollout_max_prompt_len": "lengths.prompt",
    "rollout_max_response_len": "lengths.response",
    "max_tokens_per_gpu": "lengths.pack",
    **megatron_cuts(),
    "micro_batch_size": "roles.learner.micro_batch",
    "lora_rank": "roles.learner.lora_rank",
    "sglang_mem_fraction_static": "roles.rollout.memory_utilization",
    "sglang_disable_cuda_graph": "roles.rollout.enforce_eager",
    "use_rollout_routing_replay": "roles.rollout.router_replay",
    "sglang_max_running_requests": "roles.rollout.max_concurrency",
    "eps_clip": "grpo.clip_low",
    "eps_clip_high": "grpo.clip_high",
    "kl_loss_coef": "grpo.kl_coefficient",
    "opd_kl_coef": "opd.kl_coefficient",
    "save_interval": "checkpoint.every",
    "eval_interval": "data.eval_every",
    "prompt_data": "data.train",
    "wandb_project": "tracking.project",
}


def is_entry(word: str) -> bool:
    """Whether a word of a command is slime's program."""
    return bool(_PROGRAM.match(word.rsplit("/", 1)[-1]))


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    for command, behind in script.after(is_entry):
        source = from_flags(behind)
        if _OWN & source.values.keys():
            facts = from_flags_of(script, source)
            program = next(word for word in command.words if is_entry(word))
            ahead = {"train.async_steps": 1} if "async" in program.rsplit("/", 1)[-1] else {}
            found.append(structs.replace(facts, settings=facts.settings | ahead))
    return found


def from_flags_of(script: Script, source: Settings) -> Facts:
    """What a training with these flags needs; ``script`` says what starts Ray and other servers."""
    per_node = source.integer("actor_num_gpus_per_node", default=8)
    trainer = product(source.integer("actor_num_nodes", default=1), per_node)
    if source.flag("debug_rollout_only") is not False:
        trainer = None
    trains_only = source.flag("debug_train_only")
    colocated = source.flag("colocate")
    rollout = 0 if trains_only else None if trains_only is None else _rollout(source, trainer, colocated)
    size = source.integer("rollout_num_gpus_per_engine", default=1, key="roles.rollout.tensor_parallel")
    critic = _critic(source, per_node)
    # colocated engines take the critic's GPUs as well as the actor's
    inside = colocated and critic != 0 and not source.has("rollout_num_gpus") and not trains_only
    rollout = total(rollout, critic) if inside else rollout
    own_critic = 0 if inside else critic
    teacher = _teacher(script, source)
    others = uncounted(source, _COUNTED)
    machine = _machine(script, source, total(_needed((trainer, rollout), colocated, teacher), own_critic, others))
    return Facts(
        dialect=NAME,
        algorithm="ppo whose engines span actor and critic" if inside else _algorithm(source, bool(trains_only)),
        model=source.text("hf_checkpoint", key="roles.learner.model"),
        colocated=False if trains_only else colocated,
        nodes=machine[0],
        gpus_per_node=machine[1],
        declared_gpus=product(*machine),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=None if rollout == 0 else size,
        rollout_engines=None if rollout == 0 else quotient(rollout, size),
        critic=_place(source, critic, bool(inside)),
        critic_gpus=own_critic,
        reference=bool(source.flag("use_kl_loss")),
        teacher=teacher,
        other_gpus=others,
        source=source,
        settings=_settings(source),
        unsure=_unsure(source, colocated),
        notes=remarks(source, "--"),
    )


def _place(source: Settings, gpus: int | None, inside: bool) -> Literal["none", "shared", "own"]:
    if source.text("advantage_estimator") != "ppo" or inside:
        return "none"
    return "shared" if gpus == 0 else "own"


def _critic(source: Settings, per_node: int | None) -> int | None:
    """GPUs of the critic beside the actor's, which it had until April 2026 and which flags counted; 0 without any."""
    if source.text("advantage_estimator") != "ppo" or not source.has(*_CRITIC):
        return 0
    nodes = source.integer("critic_num_nodes", "actor_num_nodes", default=1)
    return product(nodes, source.integer("critic_num_gpus_per_node", default=per_node))


def _rollout(source: Settings, trainer: int | None, colocated: bool | None) -> int | None:
    """GPUs of the engines: the trainer's own where they share, else what the flags say."""
    asked = source.integer("rollout_num_gpus")
    if colocated and not source.has("rollout_num_gpus"):
        return trainer
    # the number is overridden in some versions and a minimum in others
    if colocated and asked != trainer:
        return None
    return None if colocated is None else asked


def _teacher(script: Script, source: Settings) -> Teacher | None:
    """A server that the script starts outside Ray, or a teacher that Megatron holds."""
    found = servers(script)
    if found:
        gpus = total(*(server.gpus for server in found))
        return Teacher(model=found[0].model, gpus=gpus, tensor_parallel=found[0].tensor_parallel, outside_ray=True)
    if source.has("opd_teacher_load"):
        return Teacher(model=source.text("opd_teacher_load"), gpus=0)
    return None


def _needed(parts: tuple[int | None, int | None], colocated: bool | None, teacher: Teacher | None) -> int | None:
    trainer, rollout = parts
    if trainer is None or rollout is None or colocated is None:
        return None
    return total(max(trainer, rollout) if colocated else trainer + rollout, teacher.gpus if teacher else 0)


def _machine(script: Script, source: Settings, needed: int | None) -> tuple[int | None, int | None]:
    """Nodes and GPUs a node: Slurm's, or Ray's GPUs a node and as many such nodes as the roles need."""
    if script.slurm.gpus is not None:
        return script.slurm.nodes, script.slurm.gpus_per_node
    started, per_node = ray_gpus(script)
    if not started:
        per_node = source.integer("num_gpus_per_node", "actor_num_gpus_per_node", default=8)
    if per_node is None or needed is None or per_node < 1:
        return (script.slurm.nodes, per_node)
    return max(1, -(-needed // per_node)), per_node


def _algorithm(source: Settings, trains_only: bool) -> str:
    if trains_only or "sft" in source.text("loss_type") or "sft" in source.text("rollout_function_path"):
        return "sft"
    if source.flag("use_opd") or source.text("advantage_estimator") == "on_policy_distillation":
        return "opd"
    return "ppo" if source.text("advantage_estimator") == "ppo" else "grpo"


def _settings(source: Settings) -> dict[str, Any]:
    found = mapped(source, _TABLE)
    if not source.flag("use_kl_loss"):
        found.pop("grpo.kl_coefficient", None)
    if source.flag("optimizer_cpu_offload"):
        found["roles.learner.offload"] = "optimizer"
    if source.text("recompute_granularity") == "full":
        found["roles.learner.gradient_checkpointing"] = True
    found |= Variants(source).advantage("advantage_estimator")
    if source.text("advantage_estimator") in ("gspo", "cispo"):
        found["grpo.ratio"] = {"gspo": "sequence", "cispo": "cispo"}[source.text("advantage_estimator")]
    if "grpo.clip_low" in found:
        found.setdefault("grpo.clip_high", found["grpo.clip_low"])
    samples = product(found.get("train.prompts_per_step"), found.get("train.samples_per_prompt"))
    if steps := quotient(samples, source.integer("global_batch_size")):
        found["train.optimizer_steps"] = steps
    moves = source.flag("colocate") and "roles.learner.offload" not in found
    found |= IN_TURNS if moves else MEGATRON
    budget = product(found.pop("lengths.pack", None), source.integer("context_parallel_size", default=1))
    if source.flag("use_dynamic_batch_size") and budget:
        found["lengths.pack"] = budget
    else:
        found.setdefault("roles.learner.micro_batch", 1)
    if files := source.words("eval_prompt_data"):
        found["data.eval"] = str(files[-1])
    return {key: value for key, value in found.items() if not (key == "data.eval" and HOLE in value)}


def _unsure(source: Settings, colocated: bool | None) -> tuple[str, ...]:
    """Megatron's cuts, colocated roles that leave the card in turns, engines with attention parallel over data."""
    keys = [*on_megatron(source.integer("pipeline_model_parallel_size", default=1))]
    if colocated:
        keys.append("roles.rollout.pool")
    if source.flag("sglang_enable_dp_attention") is not False or source.has("sglang_ep_size", "sglang_dp_size"):
        keys.append("roles.rollout")
    return tuple(keys)
