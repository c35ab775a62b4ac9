"""What a checkpoint of adapters is for other tools: the base with its updates added, or a folder that peft loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainers.roles.lora import ADAPTER, DOWN, ROOT, UP, adapter_config, base_name, scale_of, updated

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.schema import Learner

ADAPTER_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Updated:
    """A weight of the base with its update, which is added when it is written.

    Attributes:
        weight: Of the base, [out, in].
        down: A, [rank, in]; becomes a tensor by ``contiguous()``, as ``up`` does.
        up: B, [out, rank].
        scale: alpha / rank.
    """

    weight: Any
    down: Any
    up: Any
    scale: float

    @property
    def shape(self) -> Any:
        """The weight's."""
        return self.weight.shape

    def contiguous(self) -> Any:
        """The sum, in float32."""
        return updated(self.weight, self.down.contiguous(), self.up.contiguous(), self.scale)


def has_adapters(weights: Mapping[str, Any]) -> bool:
    """Whether a checkpoint holds adapters instead of a whole model."""
    return any(DOWN in name for name in weights)


def merge(base: Mapping[str, Any], adapters: Mapping[str, Any], learner: Learner) -> dict[str, Any]:
    """The weights of ``base`` by name, those that have an adapter with its update.

    Args:
        base: The model that the adapters were trained on, in the learner's precision, as the learner computes with it.
        adapters: What the checkpoint holds, by the learner's names.
        learner: For the updates' scale.

    Raises:
        ValueError: An adapter is of a layer that the base does not have, or not in that shape.
    """
    found = dict(base)
    for layer, down, up in _pairs(adapters):
        name = f"{base_name(layer)}.weight"
        if name not in base or tuple(base[name].shape) != (up.shape[0], down.shape[1]):
            shape = tuple(base[name].shape) if name in base else "no such weight"
            raise ValueError(
                f"the checkpoint has an adapter [{up.shape[0]}, {down.shape[1]}] for {name}, and the model has "
                f"{shape}: roles.learner.model is not what it was trained on"
            )
        found[name] = Updated(base[name], down, up, scale_of(learner))
    return found


def write_adapters(adapters: Mapping[str, Any], target: Path, learner: Learner, model: str, dtype: str) -> None:
    """Write ``adapters`` into ``target`` as ``peft.PeftModel.from_pretrained`` and engines with LoRA load them.

    Args:
        adapters: What the checkpoint holds, by the learner's names.
        target: An existing folder.
        learner: For rank and scale.
        model: Name or folder of the base, which the configuration names.
        dtype: Of the weights, as torch calls it.
    """
    import torch
    from safetensors.torch import save_file

    tensors, layers = {}, set()
    for layer, down, up in _pairs(adapters):
        layers.add(layer.rpartition(".")[2])
        for word, weight in ((DOWN, down), (UP, up)):
            tensors[f"{layer}{word.removesuffix(f'{ADAPTER}.')}weight"] = weight.contiguous().to(getattr(torch, dtype))
    save_file(tensors, target / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config = adapter_config(learner, sorted(layers))
    config.base_model_name_or_path, config.inference_mode = model, True
    config.save_pretrained(str(target))


def _pairs(adapters: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Name of each layer with an adapter, as the learner has it, with A and B."""
    for name, down in adapters.items():
        layer, found, _ = name.partition(DOWN)
        if found:
            assert layer.startswith(ROOT), name
            yield layer, down, adapters[f"{layer}{UP}weight"]
