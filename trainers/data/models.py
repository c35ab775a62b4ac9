"""From the model's name in a layout to a folder with its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.layout.schema import Layout

BUILTIN_TINY = "builtin/tiny-qwen3"
CACHE_VARIABLE = "RLTUI_CACHE_DIR"


def resolve_model(layout: Layout, progress: Callable[[str, float], None]) -> str:
    """Return the folder of the learner's model, making or downloading it first where needed.

    One process resolves the name for all roles, so that ranks neither race for the same cache nor load different
    revisions. On several nodes, the cache must therefore be on a file system that they share.

    Args:
        layout: The layout.
        progress: Called with a few words and the fraction done while a builtin model is made.

    Raises:
        ValueError: The name is neither builtin, nor a folder, nor in reach at the Hugging Face hub.
    """
    name = layout.roles.learner.model
    if name == BUILTIN_TINY:
        from trainers.data.tiny_qwen3 import TinySettings, ensure_tiny_model

        settings = TinySettings(digits=layout.data.digits, seed=layout.train.seed)
        return str(ensure_tiny_model(settings, cache_folder() / "models", progress))
    if name.startswith("builtin/"):
        raise ValueError(f"there is no builtin model {name!r}; the one there is: {BUILTIN_TINY}")
    folder = Path(name).expanduser()
    return str(folder) if folder.is_dir() else _download(name)


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
        return str(snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model"]))
    except (OSError, ValueError) as error:  # the hub's errors derive from these
        raise ValueError(
            f"the model {name!r} is neither a folder here nor in reach at the Hugging Face hub: {error}"
        ) from error
