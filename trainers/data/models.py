"""From the model's name in a layout to a folder with its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rltui.layout.roles import SERVED

if TYPE_CHECKING:
    from rltui.layout.schema import Layout

BUILTIN_TINY = "builtin/tiny-qwen3"
BUILTIN_SORTER = "builtin/tiny-qwen3-sorter"
"""The tiny model after it was taught to sort: a teacher for distillation."""
BUILTIN_TINY_VISION = "builtin/tiny-qwen3-vl"
BUILTIN_READER = "builtin/tiny-qwen3-vl-reader"
"""The tiny model with eyes after it was taught to read digits: a teacher for distillation."""
BUILTIN_REWARD_MODEL = "builtin/tiny-qwen3-reward-model"
"""A classifier of the tiny model's size that was taught to tell right answers from wrong ones."""
BUILTIN = (BUILTIN_TINY, BUILTIN_SORTER, BUILTIN_REWARD_MODEL, BUILTIN_TINY_VISION, BUILTIN_READER)
CACHE_VARIABLE = "RLTUI_CACHE_DIR"


def model_names(layout: Layout) -> dict[str, str]:
    """The model of each kind of role that has one of its own, and the learner's."""
    names = {"learner": layout.roles.learner.model}
    for kind in ("reference", "critic", *SERVED):
        role = getattr(layout.roles, kind)
        if role is not None and role.model:
            names[kind] = role.model
    return names


def resolve_model(name: str, layout: Layout, progress: Callable[[str, float], None]) -> str:
    """Return the folder of a model, making or downloading it first where needed.

    One process resolves the name for all roles, so that ranks neither race for the same cache nor load different
    revisions. On several nodes, the cache must therefore be on a file system that they share.

    Args:
        name: The model's name.
        layout: The layout, for what builtin models depend on.
        progress: Called with a few words and the fraction done while a builtin model is made.

    Raises:
        ValueError: The name is neither builtin, nor a folder, nor in reach at the Hugging Face hub.
    """
    if name in (BUILTIN_TINY, BUILTIN_SORTER):
        from trainers.data.tiny_qwen3 import TinySettings, sorter_settings

        settings = TinySettings(digits=layout.data.digits, seed=layout.train.seed)
        settings = sorter_settings(settings) if name == BUILTIN_SORTER else settings
        return str(settings.ensure(cache_folder() / "models", progress))
    if name == BUILTIN_REWARD_MODEL:
        from trainers.data.tiny_reward_model import TinyRewardSettings

        scoring = TinyRewardSettings(digits=layout.data.digits, seed=layout.train.seed)
        return str(scoring.ensure(cache_folder() / "models", progress))
    if name in (BUILTIN_TINY_VISION, BUILTIN_READER):
        from trainers.data.tiny_qwen3_vl import TinyVisionSettings, reader_settings

        seeing = TinyVisionSettings(digits=layout.data.digits, seed=layout.train.seed)
        seeing = reader_settings(seeing) if name == BUILTIN_READER else seeing
        return str(seeing.ensure(cache_folder() / "models", progress))
    if name.startswith("builtin/"):
        raise ValueError(f"there is no builtin model {name!r}; there are: {', '.join(BUILTIN)}")
    folder = Path(name).expanduser()
    return str(folder) if folder.is_dir() else _download(name)


def routes_to_experts(model_path: str) -> bool:
    """Whether the model in a folder sends tokens to some of its experts, by the names families give their number."""
    config = json.loads((Path(model_path) / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    return any((text.get(key) or 0) > 1 for key in ("num_experts", "num_local_experts", "n_routed_experts"))


def cache_folder() -> Path:
    """``$RLTUI_CACHE_DIR``, or rltui's folder in the XDG cache."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rltui"


def _download(name: str) -> str:
    """The model's folder in the Hugging Face cache; ``HF_HUB_OFFLINE=1`` keeps it off the network."""
    from huggingface_hub import snapshot_download

    try:
        return str(snapshot_download(name, allow_patterns=["*.json", "*.jinja", "*.safetensors", "*.txt", "*.model"]))
    except (OSError, ValueError) as error:  # the hub's errors derive from these
        raise ValueError(
            f"the model {name!r} is neither a folder here nor in reach at the Hugging Face hub: {error}"
        ) from error
