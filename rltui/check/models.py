"""What the rules must know of a model's shape, for the models that presets and users name most.

Figures are those of the models' own ``config.json`` on the Hugging Face hub.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct


class Heads(Struct, frozen=True):
    """The numbers of an architecture that tensor parallelism and lengths depend on.

    Attributes:
        layers: Transformer layers.
        num_heads: Query heads of each layer.
        num_kv_heads: Key and value heads of each layer.
        vocab: Entries of the embedding.
        max_tokens: Longest sequence that the model was made for.
        vision: Whether it takes images.
    """

    layers: int
    num_heads: int
    num_kv_heads: int
    vocab: int
    max_tokens: int
    vision: bool = False


_TABLE = {
    "qwen2.5-0.5b": Heads(24, 14, 2, 151936, 32768),
    "qwen2.5-1.5b": Heads(28, 12, 2, 151936, 131072),
    "qwen2.5-3b": Heads(36, 16, 2, 151936, 32768),
    "qwen2.5-7b": Heads(28, 28, 4, 152064, 131072),
    "qwen2.5-14b": Heads(48, 40, 8, 152064, 131072),
    "qwen2.5-32b": Heads(64, 40, 8, 152064, 131072),
    "qwen2.5-72b": Heads(80, 64, 8, 152064, 131072),
    "qwen2.5-coder-1.5b": Heads(28, 12, 2, 151936, 32768),
    "qwen2.5-coder-3b": Heads(36, 16, 2, 151936, 32768),
    "qwen3-0.6b": Heads(28, 16, 8, 151936, 40960),
    "qwen3-1.7b": Heads(28, 16, 8, 151936, 40960),
    "qwen3-4b": Heads(36, 32, 8, 151936, 40960),
    "qwen3-8b": Heads(36, 32, 8, 151936, 40960),
    "qwen3-14b": Heads(40, 40, 8, 151936, 40960),
    "qwen3-32b": Heads(64, 64, 8, 151936, 40960),
    "qwen3-30b-a3b": Heads(48, 32, 4, 151936, 40960),
    "qwen3-235b-a22b": Heads(94, 64, 4, 151936, 40960),
    "qwen3-vl-2b": Heads(28, 16, 8, 151936, 262144, vision=True),
    "qwen3-vl-4b": Heads(36, 32, 8, 151936, 262144, vision=True),
    "qwen3-vl-8b": Heads(36, 32, 8, 151936, 262144, vision=True),
    "qwen3-vl-32b": Heads(64, 64, 8, 151936, 262144, vision=True),
    "qwen3-vl-30b-a3b": Heads(48, 32, 4, 151936, 262144, vision=True),
    "qwen3-vl-235b-a22b": Heads(94, 64, 4, 151936, 262144, vision=True),
    "olmo-2-1124-7b": Heads(32, 32, 32, 100352, 4096),
    "olmo-2-1124-13b": Heads(40, 40, 40, 100352, 4096),
    "olmo-2-0325-32b": Heads(64, 40, 8, 100352, 4096),
    "olmo-3-1025-7b": Heads(32, 32, 32, 100278, 65536),
    "olmo-3-1125-32b": Heads(64, 40, 8, 100278, 65536),
    "llama-3.1-8b": Heads(32, 32, 8, 128256, 131072),
    "llama-3.1-70b": Heads(80, 64, 8, 128256, 131072),
    "llama-3.2-1b": Heads(16, 32, 8, 128256, 131072),
    "llama-3.2-3b": Heads(28, 24, 8, 128256, 131072),
}


@lru_cache(maxsize=256)
def known_model(name: str) -> Heads | None:
    """Return the shape of ``name``: a hub name or a path that ends in one, ``-Instruct`` and the like included."""
    last = name.rstrip("/").rsplit("/", 1)[-1].lower()
    matches = [key for key in _TABLE if last == key or last.startswith(f"{key}-")]
    return _TABLE[max(matches, key=len)] if matches else None
