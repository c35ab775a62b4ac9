"""What the learner asks of DeepSpeed: its configuration, and full parameters out of ZeRO's shards."""

from __future__ import annotations

import re
from contextlib import nullcontext
from itertools import groupby
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.layout.schema import Learner, Train

_LAYER = re.compile(r"^(.*?\.\d+)\.")


def deepspeed_config(learner: Learner, train: Train, hidden_size: int) -> dict[str, Any]:
    """DeepSpeed's configuration for a learner.

    Gradient accumulation is the learner's own affair (``managed_gradient_accumulation``), because groups without
    signal are left out and the number of micro-batches therefore differs from step to step.

    Args:
        learner: The role.
        train: For the gradient's bound.
        hidden_size: Of the model. Parameters of fewer than ten times as many elements (the norms) are not worth a
            gather each; ZeRO-3 leaves them whole.
    """
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "managed_gradient_accumulation": False,
        "gradient_clipping": train.gradient_clip,
        "bf16": {"enabled": learner.precision == "bf16"},
        "fp16": {"enabled": learner.precision == "fp16"},
        "zero_optimization": {
            "stage": learner.zero_stage,
            "overlap_comm": False,
            "stage3_param_persistence_threshold": 10 * hidden_size,
        },
        "zero_allow_untested_optimizer": True,  # torch's AdamW: DeepSpeed's own would need a compiler at run time
        "steps_per_print": 10**9,
    }


def forbid_compiling() -> None:
    """Keep DeepSpeed from compiling its shared-memory all-reduce, which training does not use, at start-up."""
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def full_shape(parameter: Any) -> tuple[int, ...]:
    """Shape of the whole parameter, also where this rank holds a ZeRO-3 shard of it."""
    return tuple(getattr(parameter, "ds_shape", parameter.shape))


def full_parameters(module: Any) -> Iterator[tuple[str, Any]]:
    """Yield ``(name, tensor)`` of all parameters in their order, gathering ZeRO-3 shards one layer at a time.

    Every rank must iterate to the end, because each gather is a collective. Tensors are valid until the next one.
    """
    named = list(module.named_parameters())
    for _, layer in groupby(named, key=lambda item: _layer(item[0])):
        members = list(layer)
        with _gathered([parameter for _, parameter in members]):
            for name, parameter in members:
                yield name, parameter.data


def _layer(name: str) -> str:
    """``model.layers.3`` of ``model.layers.3.mlp.up_proj.weight``; other parameters stand alone."""
    match = _LAYER.match(name)
    return match.group(1) if match else name


def _gathered(parameters: list[Any]) -> Any:
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        return nullcontext()
    import deepspeed

    return deepspeed.zero.GatheredParameters(parameters)
