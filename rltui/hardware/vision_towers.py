"""Parameters of vision towers, by the type of their config; a type that is not known counts as 0 and is named."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]


def tower_parameters(config: Config, hidden: int) -> int:
    """Parameters of the tower and the projector beside a language model of width ``hidden``; 0 without a tower.

    Raises nothing for towers that are not understood: ``unknown_tower`` tells them apart.
    """
    vision = config.get("vision_config")
    if not isinstance(vision, dict):
        return 0
    kind = _kind(config, vision)
    try:
        if kind in ("qwen2_vl", "qwen2_5_vl"):
            return _qwen2(vision, hidden, gated=kind == "qwen2_5_vl")
        if kind.startswith("qwen3"):
            return _qwen3(vision, hidden)
        if kind.startswith("siglip"):
            return _siglip(vision, hidden)
        if kind in _OTHERS:
            return _OTHERS[kind](vision, hidden)
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return 0
    return 0


def unknown_tower(config: Config) -> str:
    """Type of a vision tower that is there but not counted, or an empty string."""
    vision = config.get("vision_config")
    if not isinstance(vision, dict) or tower_parameters(config, 1):
        return ""
    return _kind(config, vision) or "unnamed"


def _kind(config: Config, vision: Config) -> str:
    kind = str(vision.get("model_type") or config.get("model_type") or "")
    return kind.removesuffix("_vision").removesuffix("_moe").removesuffix("_vision_model")


def _attention(width: int) -> int:
    """Query, key, value and output projection with biases."""
    return 4 * (width * width + width)


def _qwen2(vision: Config, hidden: int, *, gated: bool) -> int:
    """Qwen2-VL (arXiv:2409.12191) and Qwen2.5-VL (arXiv:2502.13923)."""
    width = vision["hidden_size"] if gated else vision["embed_dim"]
    depth, patch, frames = vision["depth"], vision.get("patch_size", 14), vision.get("temporal_patch_size", 2)
    merged = width * vision.get("spatial_merge_size", 2) ** 2
    out = vision.get("out_hidden_size", hidden) if gated else hidden
    ffn = vision["intermediate_size"] if gated else int(width * vision.get("mlp_ratio", 4))
    norm = width if gated else 2 * width
    mlp = 3 * width * ffn + 2 * ffn + width if gated else 2 * width * ffn + ffn + width
    embedding = vision.get("in_channels", vision.get("in_chans", 3)) * frames * patch * patch * width
    projector = norm + merged * merged + merged + merged * out + out
    return int(embedding + depth * (2 * norm + _attention(width) + mlp) + projector)


def _qwen3(vision: Config, hidden: int) -> int:
    """Qwen3-VL (arXiv:2511.21631) and Qwen3.5; the former also merges some inner layers into the language model."""
    width, depth, ffn = vision["hidden_size"], vision["depth"], vision["intermediate_size"]
    patch, frames = vision.get("patch_size", 16), vision.get("temporal_patch_size", 2)
    merged, out = width * vision.get("spatial_merge_size", 2) ** 2, vision.get("out_hidden_size", hidden)
    embedding = vision.get("in_channels", 3) * frames * patch * patch * width + width
    positions = vision.get("num_position_embeddings", 2304) * width
    block = 4 * width + _attention(width) + 2 * width * ffn + ffn + width
    merger = merged * merged + merged + merged * out + out
    inner = len(vision.get("deepstack_visual_indexes") or [])
    return int(embedding + positions + depth * block + merger + 2 * width + inner * (merger + 2 * merged))


def _siglip(vision: Config, hidden: int) -> int:
    """SigLIP without its pooling head, and Gemma 3's projector (arXiv:2503.19786)."""
    width, depth, ffn = vision["hidden_size"], vision["num_hidden_layers"], vision["intermediate_size"]
    patch, image = vision.get("patch_size", 14), vision.get("image_size", 896)
    embedding = 3 * patch * patch * width + width + (image // patch) ** 2 * width
    block = 4 * width + _attention(width) + 2 * width * ffn + ffn + width
    return int(embedding + depth * block + 2 * width + width * hidden + width)


def _glm4v(vision: Config, hidden: int) -> int:
    """GLM-4.1V and 4.5V (arXiv:2507.01006), whose blocks are as wide as the tower's output."""
    width, out, patch = vision["hidden_size"], vision.get("out_hidden_size", hidden), vision.get("patch_size", 14)
    merge, positions = vision.get("spatial_merge_size", 2), (vision.get("image_size", 336) // patch) ** 2
    embedding = 3 * vision.get("temporal_patch_size", 2) * patch * patch * width + width + positions * width
    block = 2 * width + 4 * width * width + 3 * width * out
    merger = out * out + 2 * out + 3 * out * vision["intermediate_size"]
    return int(embedding + vision["depth"] * block + 2 * width + merge * merge * width * out + out + merger)


def _internvl(vision: Config, hidden: int) -> int:
    """InternVL 3 (arXiv:2504.10479) in transformers' form: InternViT and two matrices."""
    width, ffn = vision["hidden_size"], vision["intermediate_size"]
    patch, image = (
        side[0] if isinstance(side, list) else side for side in (vision["patch_size"], vision["image_size"])
    )
    embedding = 3 * patch * patch * width + 2 * width + (1 + (image // patch) ** 2) * width
    attention = _attention(width) - (0 if vision.get("attention_bias") else 3 * width)
    block = 4 * width + 2 * width + attention + 2 * width * ffn + ffn + width
    return int(embedding + vision["num_hidden_layers"] * block + 8 * width + (4 * width + 2 + hidden) * hidden)


def _pixtral(vision: Config, hidden: int) -> int:
    """Pixtral (arXiv:2410.07073) with Mistral 3's projector, which merges 2 × 2 patches."""
    width, patch = vision["hidden_size"], vision.get("patch_size", 14)
    block = 2 * width + 4 * width * width + 3 * width * vision["intermediate_size"]
    projector = width + 4 * width * width + width * hidden + hidden * hidden
    return int(3 * patch * patch * width + width + vision["num_hidden_layers"] * block + projector)


def _gemma4(vision: Config, hidden: int) -> int:
    """Gemma 4's, with a table of positions for each side of an image and one matrix to the language model."""
    width, patch = vision["hidden_size"], vision.get("patch_size", 16)
    heads, head = vision["num_attention_heads"] * vision["head_dim"], vision["head_dim"]
    block = 4 * width * heads + 2 * head + 3 * width * vision["intermediate_size"] + 4 * width
    embedding = 3 * patch * patch * width + 2 * vision.get("position_embedding_size", 10240) * width
    ends = width * hidden + (2 * width if vision.get("standardize") else 0)
    return int(embedding + vision["num_hidden_layers"] * block + ends)


_OTHERS = {"gemma4": _gemma4, "glm4v": _glm4v, "internvl": _internvl, "pixtral": _pixtral}
