"""What a launch script says about GPUs and settings, in words that all systems share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from msgspec import Struct

from rltui.importers.values import HOLE, product, total
from rltui.layout.convert import field_type
from rltui.layout.schema import Layout

if TYPE_CHECKING:
    from rltui.importers.arguments import Settings

NO_PLACE = ": has no place in a layout"
"""How a remark on a setting ends that a layout has no word for."""

SHOWS_ONLY_IN_A_RUN = "its value shows only in a run"
"""How a remark on a setting ends whose variable nobody here knows."""

_COUNTS = re.compile(r"(?:^|[._])(?:n_gpus|nnodes|num_(?:[a-z]+_)?(?:gpus|nodes|engines))(?:$|_)")


class Teacher(Struct, frozen=True, kw_only=True):
    """The teacher of a distillation."""

    model: str = ""
    gpus: int | None = None
    tensor_parallel: int | None = 1
    outside_ray: bool = False


NO_FRAMEWORK = "in which no framework is recognised"
"""In the algorithm of what is read for its GPUs or its ``#SBATCH`` lines only."""


class Facts(Struct, frozen=True, kw_only=True):
    """One launch script, as far as it can be known without running it; None stands for not known.

    Attributes:
        dialect: Whose script it is.
        algorithm: ``grpo``, ``ppo`` or ``opd``, or the word for something that is no RL (``sft``, ``dpo`` …).
        colocated: Whether engines and trainer share their GPUs.
        nodes: Nodes that the script asks for.
        gpus_per_node: GPUs of each.
        declared_gpus: GPUs that the script asks a scheduler or Ray for.
        trainer_gpus: GPUs that train the policy.
        learner_bundles: The same, one entry a node, where the script says so.
        rollout_gpus: GPUs of the engines; 0 where they ride on the trainer's own GPU or there are none.
        rollout_tp: GPUs of one engine.
        rollout_engines: Number of engines.
        critic: Where the critic is.
        critic_gpus: GPUs of its own; 0 where it shares the trainer's.
        reference: Whether a frozen reference model is held.
        reference_gpus: GPUs of its own.
        teacher: The teacher of a distillation.
        other_gpus: GPUs of anything else, such as reward models.
        together: GPUs of trainer and engines, where the sum is known and the parts are not.
        settings: Values by dotted key of a layout.
        unsure: Keys of a layout, or their sections, that stand for something else there or are not known.
        notes: What could not be mapped, or was taken for granted.
        source: The training's settings under the framework's own names.
        program: What the launcher starts, where it may be a program of the user's own.
        visible_gpus: GPUs of a node that ``CUDA_VISIBLE_DEVICES`` leaves the training.
        strays: Line and name of options that stand as commands of their own.
        bad_environments: Line and fault of environments for Ray's workers that are no JSON.
        launched: Slurm's and launchers' options in front of what they start, by program, under their long names.
    """

    dialect: str
    algorithm: str
    model: str = ""
    colocated: bool | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    declared_gpus: int | None = None
    trainer_gpus: int | None = None
    learner_bundles: tuple[int, ...] = ()
    rollout_gpus: int | None = None
    rollout_tp: int | None = None
    rollout_engines: int | None = None
    critic: Literal["none", "shared", "own"] = "none"
    critic_gpus: int | None = 0
    reference: bool = False
    reference_gpus: int | None = 0
    teacher: Teacher | None = None
    other_gpus: int | None = 0
    together: int | None = None
    settings: dict[str, Any] = {}
    unsure: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    source: Settings | None = None
    program: str = ""
    visible_gpus: int | None = None
    strays: tuple[tuple[int, str], ...] = ()
    bad_environments: tuple[tuple[int, str], ...] = ()
    launched: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def framework(self) -> str:
        """Whose script it was recognised as; empty where it was as nobody's."""
        return "" if NO_FRAMEWORK in self.algorithm else self.dialect

    @property
    def needed_gpus(self) -> int | None:
        """GPUs that all roles take together; None where a part is not known."""
        main = self.together
        if self.colocated is False:
            main = total(self.trainer_gpus, self.rollout_gpus)
        elif self.colocated and self.trainer_gpus is not None and self.rollout_gpus is not None:
            main = max(self.trainer_gpus, self.rollout_gpus)
        teacher = self.teacher.gpus if self.teacher else 0
        return total(main, self.critic_gpus, self.reference_gpus, teacher, self.other_gpus)


def only_training(
    dialect: str,
    algorithm: str,
    model: str,
    machine: tuple[int | None, int | None],
    trainer: int | None,
    notes: tuple[str, ...],
    declared: int | None = None,
) -> Facts:
    """A training in which nothing generates, such as fine-tuning.

    Args:
        dialect: Whose script it is.
        algorithm: The word for it.
        model: What it trains.
        machine: Nodes and GPUs a node.
        trainer: GPUs that train.
        notes: What could not be mapped.
        declared: GPUs that a scheduler is asked for; None: those of the machine.
    """
    return Facts(
        dialect=dialect, algorithm=algorithm, model=model, colocated=False, nodes=machine[0], gpus_per_node=machine[1],
        declared_gpus=product(*machine) if declared is None else declared, trainer_gpus=trainer, rollout_gpus=0,
        notes=notes,
    )  # fmt: skip


def mapped(source: Settings, table: Mapping[str, str], defaults: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Settings of a layout out of ``source``, by a table of name → layout key; the key's type says how it is read.

    ``defaults`` are values by layout key that the system takes where the source is silent. A whole number below 0 is
    how they say that something is not set (``max_steps: -1``, ``save_steps: -1``).
    """

    def count(name: str) -> int | None:
        found = source.integer(name)
        return None if found is None or found < 0 else found

    read: dict[type, Callable[[str], Any]] = {
        int: count,
        float: source.number,
        str: lambda name: source.text(name) or None,
        bool: lambda name: source.flag(name, default=None),
    }
    found = dict(defaults)
    for name, key in table.items():
        value = read[_type_of(key)](name)
        if value is not None:
            found[key] = value
            source.names[key] = name
    return found


@cache
def _type_of(key: str) -> type:
    """The plain type of a layout's key: ``int`` also of a choice among whole numbers."""
    kind = field_type(Layout, tuple(key.split(".")))
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    found: type = type(get_args(kind)[0]) if get_origin(kind) is Literal else kind
    return found


def not_beside(name: str) -> str:
    """The note that a configuration, of this name, is not there."""
    return f"{name} is not beside the script, so nothing it sets is known"


def without_config(dialect: str, name: str) -> Facts:
    """A training whose configuration, of this name, is not there."""
    return Facts(dialect=dialect, algorithm="", notes=(not_beside(name),), other_gpus=None)


def on_megatron(*pipelines: int | None) -> tuple[str, ...]:
    """What a layout is not sure of where Megatron trains: its recomputation and its own sharing of states.

    Args:
        pipelines: Ways of cutting a model that take data-parallel ranks; None: it is cut, and how is not known.
    """
    words = ["gradient_checkpointing", "zero_stage", "sequence_parallel"]
    if None in pipelines:
        words.append("tensor_parallel")
    return tuple(f"roles.{role}.{word}" for role in ("learner", "critic") for word in words)


MEGATRON: dict[str, Any] = {"system": "megatron", "roles.learner.zero_stage": 1}
"""Of a layout whose learner is Megatron's: its distributed optimizer shards what ZeRO stage 1 does."""


IN_TURNS: dict[str, Any] = {**MEGATRON, "system": "megatron in turns", "roles.learner.offload": "all"}
"""The same where all its states leave for host memory while the engines generate, and come back to train."""


ON_HOST: dict[str, Any] = {**MEGATRON, "roles.learner.offload": "optimizer"}
"""The same where the optimizer stays in host memory and steps there."""


def steps_on_host(source: Settings, prefix: str = "") -> bool:
    """Whether Megatron's optimizer, whose settings stand behind ``prefix``, stays in host memory as a whole."""
    share = source.number(f"{prefix}optimizer_offload_fraction", default=1.0)
    return source.flag(f"{prefix}optimizer_cpu_offload") is True and share == 1.0


def megatron_cuts(prefix: str = "") -> dict[str, str]:
    """Megatron's own words for how it divides a model, behind ``prefix``, and a layout's."""
    words = {"tensor_model": "tensor", "pipeline_model": "pipeline", "context": "sequence", "expert_model": "expert"}
    return {f"{prefix}{own}_parallel_size": f"roles.learner.{key}_parallel" for own, key in words.items()}


def first_of(text: str) -> str:
    """The first of a list of files written as ``[a, b]``; empty where it is not known."""
    first = text.strip("[]").split(",")[0].strip(" '\"")
    return "" if HOLE in first else first


def uncounted(source: Settings, counted: tuple[str, ...]) -> int | None:
    """0, or None where a setting counts GPUs, nodes or engines of a role that the dialect does not know.

    Args:
        source: The settings.
        counted: How the names of roles begin that the dialect counts.
    """
    strange = [name for name in source.values if _COUNTS.search(name) and not name.startswith(counted)]
    return None if strange else 0


def remarks(source: Settings, prefix: str = "") -> tuple[str, ...]:
    """A line for each setting whose value is not known and each that has no place in a layout."""
    unknown = [name for name in source.unknown() if name in source.used]
    lines = [f"{prefix}{name}: {SHOWS_ONLY_IN_A_RUN}" for name in unknown]
    if source.is_open:
        lines.append("some words of the command come from elsewhere and are not known")
    lines.extend(f"{prefix}{name}{NO_PLACE}" for name in source.unused())
    return tuple(lines)
