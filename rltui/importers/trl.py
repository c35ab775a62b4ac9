"""TRL and other trainers under accelerate, torchrun or deepspeed; with vLLM beside them or on the same GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rltui.errors import UsageError
from rltui.importers import variants
from rltui.importers.accelerate import processes, read_config, trained_states
from rltui.importers.arguments import Settings, from_flags, from_mapping
from rltui.importers.config import settings_beside
from rltui.importers.facts import NO_FRAMEWORK, Facts, Teacher, mapped, remarks
from rltui.importers.script import (
    TRL_SERVERS,
    Script,
    Server,
    begins_program,
    named_gpus,
    servers,
    visible_devices,
    visible_gpus,
)
from rltui.importers.shell_run import Started
from rltui.importers.source import one_beside, read_source
from rltui.importers.trl_arguments import read_program
from rltui.importers.values import product, quotient, total

NAME = "trl"
COMMON: Mapping[str, str] = {
    "num_generations": "train.samples_per_prompt",
    "learning_rate": "train.learning_rate",
    "weight_decay": "train.weight_decay",
    "max_grad_norm": "train.gradient_clip",
    "max_steps": "train.steps",
    "temperature": "train.temperature",
    "top_p": "train.top_p",
    "seed": "train.seed",
    "max_completion_length": "lengths.response",
    "per_device_train_batch_size": "roles.learner.micro_batch",
    "gradient_checkpointing": "roles.learner.gradient_checkpointing",
    "vllm_gpu_memory_utilization": "roles.rollout.memory_utilization",
    "beta": "grpo.kl_coefficient",
    "save_steps": "checkpoint.every",
}
"""Arguments of TRL that ms-swift, whose GRPO is made from TRL's, calls by the same names."""

_TABLE: Mapping[str, str] = {
    **COMMON,
    "max_prompt_length": "lengths.prompt",
    "lora_r": "roles.learner.lora_rank",
    "num_iterations": "train.epochs",
    "warmup_steps": "train.warmup_steps",
    "vllm_enable_sleep_mode": "roles.rollout.sleep_while_training",
    "dataset_name": "data.train",
}
_DEFAULTS: Mapping[str, Any] = {
    "train.samples_per_prompt": 8,
    "train.learning_rate": 1e-6,
    "lengths.prompt": 512,
    "lengths.response": 256,
    "roles.rollout.memory_utilization": 0.3,
}
"""What TRL takes where a command is silent."""

_LAUNCHERS = (
    "accelerate", "accelerate.commands.launch", "torchrun", "deepspeed", "torch.distributed.run",
    "torch.distributed.launch", "trl",
)  # fmt: skip
_OWN = ("trl/scripts/", "trl/trl/", "examples/scripts/", "trl/experimental/")
_PENALTIES = {"ppo": 0.05}
_OF_GRPO = ("num_generations", "max_completion_length", "max_prompt_length")
"""Arguments by which a program is known to take those of TRL's ``GRPOConfig``."""

_ONLINE = ("online_dpo", "dpo_online", "nash_md", "xpo")
"""Programs of TRL that generate and learn from which of two answers is better."""

_DISTILLING = ("gkd", "gold.py", "minillm")
_NO_RL = {"sft": "sft", "dpo": "dpo", "reward": "rm", "kto": "dpo", "orpo": "dpo", "finetune": "sft"}


def from_script(script: Script) -> list[Facts]:
    """What each training that the script starts needs."""
    found = []
    beside = servers(script)
    for command in script.commands:
        names = [word.rsplit("/", 1)[-1] for word in command.words]
        launcher = next((index for index, name in enumerate(names) if name in _LAUNCHERS), None)
        if launcher is None or set(TRL_SERVERS).intersection(names):
            continue
        head, behind = _divided(list(command.words[launcher:]))
        if behind:
            found.append(_facts(script, command, (head, behind), beside))
    return found


def from_config(values: Mapping[str, Any]) -> Facts | None:
    """What a YAML file of TRL's arguments says, whose GPUs its launcher knows; None where it is none.

    Which of its trainers reads it shows in the arguments: only those that generate have ``num_generations``.
    """
    if not {"model_name_or_path", "per_device_train_batch_size"} <= values.keys():
        return None
    source = from_mapping(values)
    variant = variants.trl(source)
    return Facts(
        dialect=NAME,
        algorithm="grpo" if source.has("num_generations") else "a training of TRL",
        model=source.text("model_name_or_path"),
        source=source,
        settings=_settings(source) | variant.found,
        notes=(*variant.notes, *remarks(source)),
    )


def _facts(script: Script, command: Started, words: tuple[list[str], list[str]], started: list[Server]) -> Facts:
    head, behind = words
    source = _with_program(script, _with_file(script, from_flags(behind)), behind[0])
    # what the file of a ``trl`` command says beside the training's arguments goes to accelerate
    machine = source if head[0].rsplit("/", 1)[-1] == NAME else from_flags(head)
    config = read_config(script, machine)
    trainer = processes(script, command, machine, config)
    algorithm = _algorithm(" ".join([*head[:2], *behind[:1]]))
    size = source.integer("vllm_tensor_parallel_size", default=1, key="roles.rollout.tensor_parallel")
    mode = source.text("vllm_mode", default="")
    is_own = head[0].rsplit("/", 1)[-1] == NAME or any(place in behind[0] for place in _OWN)
    uses = _uses_vllm(source, is_own, mode)
    beside = _engines(started, mode)
    next_gpu = bool(uses and not mode and not beside) and _has_next_gpu(command, source, trainer)
    if uses and not mode and not beside and not next_gpu:
        # whether vLLM is then a server or shares the GPUs depends on TRL's version
        uses = None
    generates = algorithm in ("grpo", "ppo", "opd", "online dpo")
    apart = bool(beside) or mode == "server" or next_gpu
    rollout = 1 if generates and next_gpu else _rollout(generates, uses, apart, beside, trainer)
    tensor = (beside[0].tensor_parallel if len(beside) == 1 else 1 if next_gpu else None) if apart else size
    on_engine = generates and (apart or uses is True)
    nodes, per_node = _machine(_over(machine, config), trainer, rollout if apart else 0)
    others = total(*(server.gpus for server in started if server not in beside))
    if nodes == 1:
        devices = [visible_devices(command), *(server.devices for server in started)]
        per_node = named_gpus(total(per_node, others), devices)
    nodes, per_node = script.slurm.machine((nodes, per_node))
    variant = variants.trl(source)
    is_rloo = "rloo" in behind[0].rsplit("/", 1)[-1].lower()
    group = source.integer("num_generations", default=2 if is_rloo else 8)
    trained = trained_states(script, config, machine, source) | _settings(source, is_own)
    trained |= {"train.samples_per_prompt": group} if group else {}
    teacher = Teacher(model=source.text("teacher_model_name_or_path"), gpus=0) if algorithm == "opd" else None
    return Facts(
        dialect=NAME,
        algorithm=_named(algorithm, source, behind[0]),
        model=source.text("model_name_or_path", "model", key="roles.learner.model"),
        colocated=_colocated(generates, apart, uses),
        nodes=nodes,
        gpus_per_node=per_node,
        declared_gpus=product(nodes, per_node),
        trainer_gpus=trainer,
        rollout_gpus=rollout,
        rollout_tp=tensor if on_engine else None,
        rollout_engines=quotient(rollout, tensor) if on_engine else None,
        other_gpus=others,
        critic="shared" if algorithm == "ppo" else "none",
        teacher=teacher if teacher and teacher.model else None,
        reference=has_reference(source.number("beta", default=_PENALTIES.get(algorithm, 0.0)), trained),
        unsure=_unsure(source),
        source=source,
        program=head[0] if head[0].rsplit("/", 1)[-1] == NAME else behind[0],
        settings=trained
        | (_batch(source, trainer, group) if algorithm == "grpo" else {})
        | variant.found
        | ({"grpo.advantage": "rloo"} if is_rloo else {})
        | ({"roles.rollout.engine": "hf"} if uses is False else {}),
        notes=(*variant.notes, *remarks(source, "--")),
    )


def _with_file(script: Script, source: Settings) -> Settings:
    """``source`` over the file of TRL's settings that it names; what a file that is not there would set is open."""
    if not source.has("config"):
        return source
    own = settings_beside(script.path, source.file("config"))
    return source.cut() if own is None else source.over(own.values)


def _with_program(script: Script, source: Settings, program: str) -> Settings:
    """``source`` over the arguments that its program has in itself, where the command says none of them."""
    target = one_beside(script.path, program) if program.endswith(".py") else None
    if target is None or source.has("config", "use_vllm", *_OF_GRPO):
        return source
    try:
        configs = read_program(read_source(target), target).configs
    except UsageError:
        return source
    if len(configs) != 1:
        return source
    return source.over({name: [value] for name, value in configs[0].items() if value is not None})


def _uses_vllm(source: Settings, is_own: bool, mode: str) -> bool | None:
    """Whether vLLM generates; None where the script does not say and the program may decide by itself.

    TRL's own programs, and those that take the arguments of its ``GRPOConfig``, have its default: they do not. Where a
    file that was not read may switch it on, a command that says how vLLM runs tells that it does.
    """
    if source.is_cut and mode and not source.has("use_vllm"):
        return True
    has_default = is_own or source.has(*_OF_GRPO)
    return source.flag("use_vllm", default=False if has_default else None)


def _has_next_gpu(command: Started, source: Settings, trainer: int | None) -> bool:
    """Whether TRL before 0.16 puts vLLM on the GPU behind the trainer's (``vllm_device: auto``, its default).

    Such a script names that device, or leaves its processes one GPU more than they are.
    """
    device = source.text("vllm_device", default="")
    if trainer is None or device not in ("", "auto", f"cuda:{trainer}"):
        return False
    return bool(device) or visible_gpus(command) == trainer + 1


def _engines(started: list[Server], mode: str) -> list[Server]:
    """The servers that generate for the training: TRL's own, where there are such among them."""
    own = [server for server in started if server.program in TRL_SERVERS]
    return [] if mode == "colocate" else own or started


def _colocated(generates: bool, apart: bool, uses: bool | None) -> bool | None:
    """Whether vLLM shares the trainer's GPUs; None where a program's own code decides."""
    if not generates or apart:
        return False
    return None if uses is None else True


def _divided(words: list[str]) -> tuple[list[str], list[str]]:
    """The launcher's words, and those from the program on."""
    for index in range(1, len(words)):
        if begins_program(words, index):
            return words[:index], words[index:]
    if words and words[0].rsplit("/", 1)[-1] == "trl":
        return words, words[1:]
    return words, []


def _algorithm(words: str) -> str:
    text = words.lower()
    if "grpo" in text:
        return "grpo"
    if any(word in text for word in _ONLINE):
        return "online dpo"
    found = next((algorithm for word, algorithm in _NO_RL.items() if word in text), "")
    return found or ("ppo" if "ppo" in text else "opd" if any(word in text for word in _DISTILLING) else "grpo")


def _named(algorithm: str, source: Settings, program: str) -> str:
    """The algorithm; of a program that shows none and takes no argument of TRL's, that no framework is recognised."""
    name = program.rsplit("/", 1)[-1]
    shows = any(
        word in name.lower() for word in ("grpo", "ppo", "rlhf", "opd", "rloo", *_DISTILLING, *_ONLINE, *_NO_RL)
    )
    if shows or source.is_open or source.is_cut or source.has("config", "use_vllm", *_OF_GRPO, *_TABLE):
        return algorithm
    return f"{name}, {NO_FRAMEWORK},"


def _rollout(generates: bool, uses: bool | None, apart: bool, beside: list[Server], trainer: int | None) -> int | None:
    """GPUs of vLLM: the servers' own, or the trainer's; none where transformers generates in the trainer."""
    if not generates or (uses is False and not apart):
        return 0
    if not apart:
        return trainer if uses else None
    return total(*(server.gpus for server in beside)) if beside else None


def _machine(machine: Settings, trainer: int | None, rollout: int | None) -> tuple[int | None, int | None]:
    nodes = machine.integer("num_machines", "nnodes", default=1)
    if trainer is None or rollout is None or not nodes:
        return nodes, None
    return nodes, quotient(trainer, nodes) if nodes > 1 else trainer + rollout


def _over(machine: Settings, config: Settings) -> Settings:
    """The launcher's flags over what accelerate's configuration says of machines."""
    named = {"num_machines": config.values["num_machines"]} if config.has("num_machines") else {}
    return Settings({**named, **machine.values}, machine.is_open, machine.is_cut)


def _batch(source: Settings, trainer: int | None, group: int | None) -> dict[str, int]:
    """Prompts of a generation and the optimizer steps made from it, where the rows of a process are said."""
    step = product(
        source.integer("per_device_train_batch_size"), trainer, source.integer("gradient_accumulation_steps", default=1)
    )
    rounds = source.integer("steps_per_generation", "gradient_accumulation_steps", default=1)
    samples = source.integer("generation_batch_size", default=0) or product(
        source.integer("per_device_train_batch_size"), trainer, rounds
    )
    return of_generation(samples, group, step)


def of_generation(samples: int | None, group: int | None, step: int | None) -> dict[str, int]:
    """Prompts of a generation of so many samples, and the optimizer steps made from it, as far as both are known.

    Args:
        samples: Of the generation.
        group: Samples of a prompt.
        step: Samples of an optimizer step.
    """
    prompts, steps = quotient(samples, group), quotient(samples, step)
    found = {"train.prompts_per_step": prompts, "train.optimizer_steps": steps if steps and steps > 1 else None}
    return {key: number for key, number in found.items() if number}


def _settings(source: Settings, is_own: bool = False) -> dict[str, Any]:
    found = mapped(source, _TABLE, _DEFAULTS)
    # TRL's own programs train adapters only where use_peft says so, then of rank 16; others have ways of their own
    if (uses := source.flag("use_peft", default=False if is_own else None)) is False:
        found.pop("roles.learner.lora_rank", None)
    elif uses and not source.has("lora_r"):
        found["roles.learner.lora_rank"] = 16
    return found


def _unsure(source: Settings) -> tuple[str, ...]:
    """Lengths that a command leaves to TRL, which versions of it limit differently or not at all."""
    names = {"max_prompt_length": "lengths.prompt", "max_completion_length": "lengths.response"}
    return tuple(key for name, key in names.items() if not source.has(name))


def has_reference(beta: float | None, trained: Mapping[str, Any]) -> bool:
    """Whether a reference takes memory of its own: with adapters it is the model without them."""
    return not trained.get("roles.learner.lora_rank") and (beta or 0.0) > 0
