"""What the learner asks of DeepSpeed: its configuration, and full parameters out of ZeRO's shards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rltui.layout.roles import accumulates_in_float32, effective_stage
from rltui.memory.states import zero_traffic
from trainers.roles.lora import adapted_layers, base_name, is_adapter, merged

if TYPE_CHECKING:
    from rltui.layout.schema import Critic, Learner, Train

TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
"""torch's names of a layout's precisions."""

LOSS_SCALING = {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 500, "hysteresis": 2}
"""Dynamic: a step whose gradients overflow fp16 is not made; the first is forgiven, each further one halves the scale,
and 500 steps without one double it. DeepSpeed waits 1000, as long as a whole run of reinforcement learning."""

_LAYER = re.compile(r"^(.*?\.\d+)\.")


def deepspeed_config(
    role: Learner | Critic, train: Train, hidden_size: int, *, trained: int = 0, has_gpu: bool
) -> dict[str, Any]:
    """DeepSpeed's configuration for a learner or critic.

    Gradient accumulation is the learner's own affair (``managed_gradient_accumulation``), because groups without
    signal are left out and the number of micro-batches therefore differs from step to step.

    Args:
        role: The role.
        train: For the gradient's bound.
        hidden_size: Of the model. Parameters of fewer than ten times as many elements (the norms) are not worth a
            gather each; ZeRO-3 leaves them whole.
        trained: Parameters that get gradients, 0 if not known yet. DeepSpeed allocates a bucket for them that is never
            smaller than it is told, however small the model.
        has_gpu: Whether what is offloaded comes from a card, so that host memory must be pinned.
    """
    stage = effective_stage(role)
    traffic = zero_traffic(stage, hidden_size, trained, role.offload)
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": traffic.overlaps,
        "reduce_bucket_size": max(1, traffic.bucket),
        "stage3_prefetch_bucket_size": traffic.prefetch,
        "stage3_param_persistence_threshold": 10 * hidden_size,
    }
    if role.offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": has_gpu}
    if role.offload == "all" and role.zero_stage == 3:
        zero["offload_param"] = {"device": "cpu", "pin_memory": has_gpu}
    if partition := getattr(role, "hpz_partition", 0):  # a critic has none
        zero["zero_hpz_partition_size"] = partition
    return {
        # DeepSpeed insists on sizes; rows come as the learner cuts them, whatever stands here
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": train.gradient_clip,
        "bf16": {"enabled": role.precision == "bf16"},
        "fp16": {"enabled": role.precision == "fp16", **LOSS_SCALING},
        "data_types": {"grad_accum_dtype": "fp32"} if accumulates_in_float32(role) else {},
        "zero_optimization": zero,
        # torch's AdamW, on the card and in host memory: DeepSpeed's own would need a compiler at run time
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        # its own lines about every step would be all that the log is full of
        "steps_per_print": 10**9,
    }


@contextmanager
def loaded_in_shards(config: Mapping[str, Any] | None) -> Iterator[None]:
    """Let from_pretrained build models in ZeRO-3's shards, so that none ever stands whole on a rank; None: it does."""
    if config is None:
        yield
        return
    from transformers.integrations import HfDeepSpeedConfig

    # transformers keeps a weak reference to it: from_pretrained shards models as long as somebody holds the object
    held = HfDeepSpeedConfig(dict(config))  # while it lives
    yield
    del held


def forbid_compiling() -> None:
    """Keep DeepSpeed from its own operators, which it would try to compile, and from torch's compiler.

    Training uses neither. Which operators there could be it finds out with the compiler, on every rank, when first
    asked; and its Muon, which it looks for beside each optimizer, makes torch import all of inductor.
    """
    import deepspeed.ops
    from deepspeed.runtime import compiler

    deepspeed.ops.__compatible_ops__ = {}
    compiler.compile = lambda: compiler.dummy_decorator


def full_shape(parameter: Any) -> tuple[int, ...]:
    """Shape of the whole parameter, also where this rank holds a ZeRO-3 shard of it."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def exported_shapes(module: Any) -> dict[str, tuple[int, ...]]:
    """Names and whole shapes of what ``full_parameters`` yields, in the same order."""
    # a tied head comes under the embedding's name alone, here as in full_parameters: manifest and stream must agree
    named = module.named_parameters()
    return {base_name(name): full_shape(parameter) for name, parameter in named if not is_adapter(name)}


def full_parameters(module: Any, *, at_once: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield ``(name, tensor)`` of all parameters in their order, adapters added to what they update.

    Every rank must iterate to the end, because each gather is a collective. Tensors are valid until the next one.

    Args:
        module: The model.
        at_once: Gather the whole model instead of one layer after the other.
    """
    adapted, named = adapted_layers(module), list(module.named_parameters())
    for _, layer in groupby(named, key=lambda item: "" if at_once else _layer(item[0])):
        members = list(layer)
        with _gathered([parameter for _, parameter in members]):
            for name, parameter in members:
                if is_adapter(name):
                    continue
                weight = parameter.data
                yield base_name(name), merged(weight, adapted[name]) if name in adapted else weight


def _layer(name: str) -> str:
    """``model.layers.3`` of ``model.layers.3.mlp.up_proj.weight``; other parameters stand alone."""
    match = _LAYER.match(name)
    return match.group(1) if match else name


def _gathered(parameters: list[Any]) -> Any:
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed

    # no modifier_rank: who only reads is spared the broadcast of changes as the block ends
    return deepspeed.zero.GatheredParameters(parameters)
