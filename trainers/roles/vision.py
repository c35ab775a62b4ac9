"""Models with a vision tower: how they are loaded and called, and how the tower is left as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainers.roles.card import importing

if TYPE_CHECKING:
    import torch

VISION_TOWERS = ("visual", "vision_tower", "vision_model")
"""What models call their vision tower."""


def model_class(model_path: str) -> Any:
    """The class that loads the causal language model in a folder, with its vision tower where it has one."""
    with importing():
        from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

    config = AutoConfig.from_pretrained(model_path)
    return AutoModelForImageTextToText if hasattr(config, "vision_config") else AutoModelForCausalLM


def with_images(inputs: Mapping[str, Any], images: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """A causal language model's inputs for padded rows, with images.

    The model makes the positions itself, of the mask and of where the images are.

    Args:
        inputs: ``input_ids`` [B, T] and what belongs to them.
        images: See ``trainers.data.images.image_inputs``; for as many columns, or for more.
    """
    token_ids = inputs["input_ids"]
    kinds = images["mm_token_type_ids"][:, : token_ids.shape[1]]
    placeholder = token_ids[kinds == 1][0]
    # Engines end a sample with a placeholder that they sample, so nothing sees what is put in its place.
    token_ids = token_ids.masked_fill((token_ids == placeholder) & (kinds == 0), 0)
    others = {name: value for name, value in inputs.items() if name != "position_ids"}
    return {**others, **images, "input_ids": token_ids, "mm_token_type_ids": kinds}


def freeze_vision(model: Any) -> None:
    """Leave the vision tower, with what leads from it to the language model, as it is.

    Raises:
        ValueError: The model has none.
    """
    towers = [module for name, module in model.named_modules() if name.rpartition(".")[2] in VISION_TOWERS]
    if not towers:
        raise ValueError(f"roles.learner.freeze_vision: {type(model).__name__} has no vision tower")
    for tower in towers:
        tower.requires_grad_(False)
