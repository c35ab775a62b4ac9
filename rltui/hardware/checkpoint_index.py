"""The size of a checkpoint beside its config.json, to count what the config's type leaves open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rltui.hardware.parameters import count_parameters

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.hardware.architecture import Architecture

INDEX = "model.safetensors.index.json"
INDEX_BYTES_MAX = 64 * 2**20
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
SAME = 0.005
"""Counts that differ by less are of the same model: some checkpoints store buffers or a tied head twice."""


def stored_parameters(folder: Path, config: dict[str, Any]) -> int | None:
    """Parameters of the checkpoint in ``folder``, or None where its index does not say or is not there."""
    path = folder / INDEX
    try:
        if path.stat().st_size > INDEX_BYTES_MAX:
            return None
        index = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    metadata = index.get("metadata")
    if not isinstance(metadata, dict):
        return None
    if isinstance(metadata.get("total_parameters"), int):
        return int(metadata["total_parameters"])
    item = ITEM_BYTES.get(str(config.get("torch_dtype") or config.get("dtype")))
    size = metadata.get("total_size")
    return size // item if item and isinstance(size, int) and "quantization_config" not in config else None


def settle(model: Architecture, stored: int | None) -> Architecture:
    """Resolve the caveat of ``model`` by what its checkpoint stores.

    A tower that could not be counted is what the language model leaves of the checkpoint. A type that was read as
    Llama-like is confirmed where the counts agree, and doubted with both numbers where they do not.
    """
    if not model.caveat or stored is None:
        return model
    counted = count_parameters(model).total
    if abs(stored / counted - 1) <= SAME:
        return msgspec.structs.replace(model, caveat="")
    if "tower" in model.caveat and "Llama" not in model.caveat and stored > counted:
        return msgspec.structs.replace(model, vision_params=model.vision_params + stored - counted, caveat="")
    doubt = f"{model.caveat}; its checkpoint stores {stored:,} parameters, this shape has {counted:,}"
    return msgspec.structs.replace(model, caveat=doubt)
