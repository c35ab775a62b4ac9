"""ms-swift: ``swift rlhf`` and ``megatron rlhf``, which start torchrun by variables of the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from rltui.importers import variants
from rltui.importers.arguments import Settings, from_flags, from_mapping
from rltui.importers.config import settings_beside
from rltui.importers.facts import MEGATRON, Facts, Teacher, mapped, megatron_cuts, on_megatron, remarks
from rltui.importers.script import Script, Server, named_gpus, servers, variable_of, visible_devices
from rltui.importers.shell_run import Started
from rltui.importers.trl import COMMON, has_reference, of_generation
from rltui.importers.values import HOLE, product, quotient, to_int, total

NAME = "ms-swift"
_ZERO = re.compile(r"zero([0-3])(_offload)?")
"""Names of the DeepSpeed configurations that it brings along."""
_COMMANDS = ("swift", "megatron")
_MODULE = re.compile(r"(?:^|[./])swift[./]cli[./](_megatron[./])?(rlhf|sft|pt|main)(?:\.py)?\Z")
"""The modules behind these commands, which torchrun starts as files of a checkout."""
_TRAININGS = ("rlhf", "sft", "pt")
_GENERATING = {"grpo": "grpo", "ppo": "ppo", "gkd": "opd"}
_ROLES = ("train.", "rollout.")
_TABLE: Mapping[str, str] = {
    **COMMON,
    "max_new_tokens": "lengths.response",
    "response_length": "lengths.response",
    "max_length": "lengths.prompt",
    "num_iterations": "train.epochs",
    "train_iters": "train.steps",
    "lora_rank": "roles.learner.lora_rank",
    **megatron_cuts(),
    "eval_steps": "data.eval_every",
    "dataset": "data.train",
    "lr": "train.learning_rate",
    "micro_batch_size": "roles.learner.micro_batch",
}
_DEFAULTS: Mapping[str, Any] = {
    "train.temperature": 0.9,
    "lengths.response": 512,
    "roles.learner.micro_batch": 1,
    "roles.rollout.memory_utilization": 0.9,
}
"""What it takes where a command is silent, of any training that generates."""


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    for command in script.commands:
        for index, (word, following) in enumerate(pairwise((*command.words, ""))):
            name, module = word.rsplit("/", 1)[-1], _MODULE.search(word)
            if module:
                name, own = "megatron" if module[1] else "swift", module[2]
                following, behind = (own, index + 1) if own != "main" else (following, index + 2)
            else:
                behind = index + 2
            if name in _COMMANDS and following in _TRAININGS:
                launcher = from_flags(command.words[:index])
                found.append(_facts(script, command, (name, following, launcher), list(command.words[behind:])))
                break
    return found


def _facts(script: Script, command: Started, started_as: tuple[str, str, Settings], behind: list[str]) -> Facts:
    program, method, launcher = started_as
    source, complete = _with_file(script, behind)
    if source.has("train.gpus"):
        return _on_ray(source, script.slurm.machine((None, None)))
    nodes, trainer = _processes(command, launcher, source)
    if (launched := _from_file(source, command, "NPROC_PER_NODE")) is not None:
        source = source.over({"NPROC_PER_NODE": [launched]})
        source.has("NPROC_PER_NODE")
    kind = source.text("rlhf_type", default="dpo" if complete else "") if method == "rlhf" else "sft"
    algorithm = _algorithm(source, kind)
    generates = kind in _GENERATING or not kind
    mode = _mode(source, complete) if generates else "none"
    started = [server for server in servers(script) if server.program == "rollout"]
    size = _tensor_parallel(source, mode, started)
    rollout = _rollout(mode, trainer, started)
    others = total(*(server.gpus for server in servers(script) if server not in started))
    taken = total(trainer, 0 if mode in ("colocate", "none") else rollout, others)
    machine = script.slurm.machine((nodes, _per_node(script, command, taken, nodes)))
    variant = variants.trl(source)
    trained, unsure = _trained(source, program)
    if generates:
        trained = _generated(source, kind, trainer, program == "megatron") | trained
        trained |= {"roles.rollout.engine": "hf"} if mode == "none" else {}
    return Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("model", "load").removesuffix("-mcore"),
        colocated={"colocate": True, "none": generates, "server": False}.get(mode),
        nodes=machine[0],
        gpus_per_node=machine[1],
        declared_gpus=product(*machine),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size,
        rollout_engines=quotient(rollout, size) if mode in ("colocate", "server") else None,
        critic="shared" if kind == "ppo" else "none",
        reference=_reference(source, kind, trained),
        teacher=_teacher(source) if algorithm == "opd" else None,
        other_gpus=others,
        source=source,
        settings=trained | variant.found | _own_variants(source),
        unsure=unsure,
        notes=(*variant.notes, *_notes(mode), *remarks(source, "--")),
    )


def from_config(values: Mapping[str, Any]) -> Facts | None:
    """What a YAML file of ``megatron rlhf`` on Ray says, which counts the GPUs of its roles; None where it is none."""
    train = values.get("train")
    if "rlhf_type" not in values or not isinstance(train, dict) or "gpus" not in train:
        return None
    return _on_ray(from_mapping(values), (None, None))


def _on_ray(source: Settings, machine: tuple[int | None, int | None]) -> Facts:
    """Roles on GPUs that Ray gives them, each with a section of its own over the settings of all."""
    trainer, rollout = source.integer("train.gpus"), source.integer("rollout.gpus")
    size = source.integer("rollout.vllm_tensor_parallel_size", "vllm_tensor_parallel_size", default=1)
    groups = [set(map(str, group)) for group in source.words("colocate_groups") if isinstance(group, list)]
    shared = any({"train", "rollout"} <= group for group in groups)
    kind = source.text("rlhf_type")
    algorithm = _algorithm(source, kind)
    teacher = None
    if algorithm == "opd":
        model = source.text("teacher_model", "teacher.model")
        rides = any("teacher" in group and len(group) > 1 for group in groups)
        teacher = Teacher(model=model, gpus=0 if rides else source.integer("teacher.gpus", default=0))
    inner = {name.partition(".")[2]: words for name, words in source.values.items() if name.startswith(_ROLES)}
    whole = source.over(inner)
    trained, unsure = _trained(whole, "megatron")
    trained = _generated(whole, kind, trainer, on_megatron=True) | trained
    if shared:
        trained["roles.rollout.sleep_while_training"] = source.integer("sleep_level", default=1) != 0
    variant = variants.trl(whole)
    nodes = machine[0] or source.integer("nnodes")
    whole.used |= source.used | {name for name in source.values if name.partition(".")[2] in whole.used}
    return Facts(
        dialect=NAME,
        algorithm=algorithm,
        model=source.text("model"),
        colocated=shared,
        nodes=nodes,
        gpus_per_node=machine[1] or quotient(total(trainer, 0 if shared else rollout), nodes),
        declared_gpus=product(*machine),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=size,
        rollout_engines=quotient(rollout, size),
        reference=_reference(whole, kind, trained),
        teacher=teacher,
        source=whole,
        settings=trained | variant.found | _own_variants(whole),
        unsure=unsure,
        notes=(*variant.notes, *remarks(whole)),
    )


def _generated(source: Settings, kind: str, trainer: int | None, on_megatron: bool) -> dict[str, Any]:
    """What a training that generates does where its command is silent, and the prompts of a generation.

    Batches count samples. How many passes the trainer adds up differs between versions where nothing says it.
    """
    group = source.integer("num_generations", default=8) if kind == "grpo" else 1
    found = {**_DEFAULTS, "train.samples_per_prompt": group or None}
    found |= {"grpo.kl_coefficient": 0.04} if kind == "grpo" else {}
    if not on_megatron:
        found["train.learning_rate"] = 1e-5 if _tuner(source) == "full" else 1e-4
    if source.text("vllm_mode") == "colocate":
        found["roles.rollout.sleep_while_training"] = source.integer("sleep_level", default=0) != 0
    rows = product(source.integer("per_device_train_batch_size", default=1), trainer)
    passes = source.integer("gradient_accumulation_steps")
    step = source.integer("global_batch_size", default=16) if on_megatron else product(rows, passes)
    rounds = source.integer("steps_per_generation", default=1 if on_megatron else passes)
    samples = source.integer("generation_batch_size", default=0) or product(step if on_megatron else rows, rounds)
    found |= of_generation(samples, group, step)
    return {key: value for key, value in found.items() if value is not None}


def _algorithm(source: Settings, kind: str) -> str:
    """GRPO with a teacher and without rewards learns from the teacher alone."""
    teacher = source.has("teacher_model", "teacher_model_server", "teacher.model")
    if kind == "grpo" and teacher and not source.has("reward_funcs", "reward_model", "use_gym_env", "gym_env"):
        return "opd"
    return _GENERATING.get(kind, kind)


def _reference(source: Settings, kind: str, trained: Mapping[str, Any]) -> bool:
    """PPO always has one, distillation none: its ``beta`` is between two divergences."""
    beta = {"ppo": source.number("kl_coef", default=0.05), "gkd": 0.0}.get(kind)
    return (kind in _GENERATING or not kind) and has_reference(
        source.number("beta", default=0.04) if beta is None else beta, trained
    )


def _own_variants(source: Settings) -> dict[str, Any]:
    """Variants of GRPO under words that TRL does not have."""
    modes = {"token_truncate": "cap", "token_mask": "mask", "sequence_truncate": "sequence_product"}
    modes["sequence_mask"] = "sequence_mask"
    found: dict[str, Any] = {}
    if mode := modes.get(source.text("rollout_importance_sampling_mode")):
        cap = source.number("rollout_importance_sampling_threshold", default=2.0)
        found = {"grpo.importance": mode, "grpo.importance_cap": cap}
    if source.flag("overlong_filter"):
        found["grpo.mask_truncated"] = True
    if (estimator := source.text("advantage_estimator")) in ("rloo", "reinforce_plus_plus"):
        found["grpo.advantage"] = estimator
    return {key: value for key, value in found.items() if value is not None}


def _tuner(source: Settings) -> str:
    return source.text("tuner_type", "train_type", "sft_type", default="lora")


def _trained(source: Settings, program: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Settings of a layout, and the keys that stand for something else here.

    ``swift`` trains adapters and recomputes activations unless it is told otherwise; ``megatron`` does neither.
    """
    found = mapped(source, _TABLE) | _prompt(source)
    if program == "megatron":
        return found | MEGATRON, on_megatron(source.integer("pipeline_model_parallel_size", default=1))
    if _tuner(source) == "full":
        found.pop("roles.learner.lora_rank", None)
    else:
        found.setdefault("roles.learner.lora_rank", 8)
    found.setdefault("roles.learner.gradient_checkpointing", True)
    if stage := _ZERO.fullmatch(source.text("deepspeed")):
        found["roles.learner.zero_stage"] = int(stage[1])
        found |= {"roles.learner.offload": "all" if stage[1] == "3" else "optimizer"} if stage[2] else {}
    if source.has("teacher_model"):
        # DeepSpeed divides the teacher as it does the learner, or it leaves the card between its passes
        return found, ("roles.teacher", "roles.learner", "roles.rollout")
    # what it moves to host memory while the engine generates comes back to train
    moves = source.flag("offload_model") or source.flag("offload_optimizer")
    return found, ("roles.learner.offload",) if moves else ()


def _prompt(source: Settings) -> dict[str, Any]:
    """The longest prompt that the engine takes, where that is less than what the template may make."""
    longest, whole, response = map(source.integer, ("max_length", "vllm_max_model_len", "max_completion_length"))
    if longest is None or whole is None or response is None or not 0 < whole - response < longest:
        return {}
    return {"lengths.prompt": whole - response}


def _with_file(script: Script, behind: list[str]) -> tuple[Settings, bool]:
    """The flags over the YAML file in front of them or of ``--config``, and whether nothing of them is missing."""
    source = from_flags(behind)
    name = source.file("config") or next(iter(behind), "")
    if not name.endswith((".yaml", ".yml")):
        return source, not source.is_open
    own = settings_beside(script.path, name)
    return (source, False) if own is None else (source.over(own.values), not source.is_open)


def _from_file(source: Settings, command: Started, name: str) -> str | None:
    """A variable of the environment, or what the block ``ENV`` of the YAML file says where it is not set."""
    said = variable_of(command, name)
    inner = f"ENV.{name}"
    return str(source.one(inner)) if said is None and source.has(inner) else said


def _processes(command: Started, launcher: Settings, source: Settings) -> tuple[int | None, int | None]:
    """Nodes and GPUs that train: torchrun's processes, one GPU each; ``launcher`` are its own flags, if it is said."""
    if launcher.has("num_processes"):  # accelerate counts them over all machines
        return launcher.integer("num_machines", default=1), launcher.integer("num_processes")
    if launcher.has("nproc_per_node", "num_gpus"):
        machines = launcher.integer("nnodes", "num_nodes", default=1)
        return machines, product(machines, launcher.integer("nproc_per_node", "num_gpus"))
    nodes, per_node = (_from_file(source, command, name) for name in ("NNODES", "NPROC_PER_NODE"))
    if nodes is None and per_node is None:
        # one process: with several visible GPUs the model may be spread over them, or not
        visible = visible_devices(command)
        return 1, 1 if visible is not None and len(visible) == 1 else None
    count = 1 if nodes is None else to_int(nodes)
    return count, product(count, 1 if per_node is None else to_int(per_node))


def _mode(source: Settings, complete: bool) -> str:
    """Where the engine is: ``colocate``, ``server``, ``none``; empty where that is not known."""
    uses = source.flag("use_vllm", default=False if complete else None)
    if uses is False:
        return "none"
    mode = source.text("vllm_mode")
    if uses and mode in ("colocate", "server"):
        return mode
    # without a mode, versions differ in what they do
    return "server" if source.has("vllm_server_host", "vllm_server_base_url") else ""


def _tensor_parallel(source: Settings, mode: str, started: list[Server]) -> int | None:
    if mode == "colocate":
        return source.integer("vllm_tensor_parallel_size", default=1)
    sizes = {server.tensor_parallel for server in started} if mode == "server" else set()
    return sizes.pop() if len(sizes) == 1 else None


def _rollout(mode: str, trainer: int | None, started: list[Server]) -> int | None:
    """GPUs of the engines; 0 where transformers generates in the trainer."""
    if mode == "server":
        return total(*(server.gpus for server in started)) if started else None
    return {"none": 0, "colocate": trainer}.get(mode)


def _per_node(script: Script, command: Started, taken: int | None, nodes: int | None) -> int | None:
    if nodes != 1:
        return quotient(taken, nodes)
    return named_gpus(taken, [visible_devices(command), *(server.devices for server in servers(script))])


def _teacher(source: Settings) -> Teacher:
    """The teacher of a distillation rides on the trainer's GPUs, unless a server of its own has it."""
    elsewhere = source.has("teacher_model_server")
    name = source.text("teacher_model")
    return Teacher(model="" if HOLE in name else name, gpus=None if elsewhere else 0)


def _notes(mode: str) -> list[str]:
    return [] if mode else ["--use_vllm, --vllm_mode: whether the engine shares the GPUs is not known"]
