"""What a checkpoint of adapters is for other tools: the base with its updates added, or a folder that peft loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainers.roles.lora import ADAPTER, adapted_layers, base_name, is_adapter, merged, with_adapters

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.schema import Learner

ADAPTER_WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True)
class Updated:
    """A weight of the base with its update, which is added when it is written.

    Attributes:
        weight: Of the base.
        layer: peft's, with the adapter.
    """

    weight: Any
    layer: Any

    @property
    def shape(self) -> Any:
        """Shape of the weight, which its low-rank update does not change."""
        return self.weight.shape

    def contiguous(self) -> Any:
        """Weight plus low-rank update, added in float32."""
        return merged(self.weight, self.layer)


def has_adapters(weights: Mapping[str, Any]) -> bool:
    """Whether a checkpoint holds adapters instead of a whole model."""
    return any(is_adapter(name) for name in weights)


def merge(base: Any, adapters: Mapping[str, Any], learner: Learner) -> dict[str, Any]:
    """The weights of ``base`` by name, those that have an adapter with its update.

    Args:
        base: The model that the adapters were trained on, in the learner's precision, as the learner computes with it.
        adapters: What the checkpoint holds, by the learner's names; float32.
        learner: For rank and scale.

    Raises:
        ValueError: The checkpoint has other adapters than such a learner has.
    """
    model = _adapted(base, adapters, learner)
    layers, weights = adapted_layers(model), model.state_dict()
    return {
        base_name(name): Updated(weight, layers[name]) if name in layers else weight
        for name, weight in weights.items()
        if not is_adapter(name)
    }


def write_adapters(
    base: Any, adapters: Mapping[str, Any], target: Path, learner: Learner, model: str, dtype: str
) -> None:
    """Write ``adapters`` into ``target`` as ``peft.PeftModel.from_pretrained`` and engines with LoRA load them.

    Args:
        base: A model of the base's shape, whose weights need not be there.
        adapters: What the checkpoint holds, by the learner's names.
        target: An existing folder.
        learner: For rank and scale.
        model: Name or folder of the base, which the configuration names.
        dtype: Of the weights, as torch calls it.

    Raises:
        ValueError: The checkpoint has other adapters than such a learner has.
    """
    import torch
    from safetensors.torch import save_file

    adapted = _adapted(base, adapters, learner)
    tensors = {
        name.replace(f".{ADAPTER}.", "."): weight.to(getattr(torch, dtype)).contiguous()
        for name, weight in adapted.state_dict().items()
        if is_adapter(name)
    }
    save_file(tensors, target / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config = adapted.peft_config[ADAPTER]
    config.base_model_name_or_path, config.inference_mode = model, True
    config.save_pretrained(str(target))


def _adapted(base: Any, adapters: Mapping[str, Any], learner: Learner) -> Any:
    """``base`` with the checkpoint's adapters."""
    model = with_adapters(base, learner, seed=0)
    found = {name: weight.contiguous() for name, weight in adapters.items() if is_adapter(name)}
    wanted = {name: tuple(weight.shape) for name, weight in model.state_dict().items() if is_adapter(name)}
    for name in sorted(wanted.keys() | found.keys()):
        given = tuple(found[name].shape) if name in found else "none"
        if wanted.get(name) != given:
            raise ValueError(
                f"the checkpoint has an adapter {given} for {name}, and the model has {wanted.get(name, 'none')}: "
                "roles.learner.model is not what it was trained on"
            )
    model.load_state_dict(found, strict=False, assign=True)
    return model
