"""Attention over packed rows sample by sample, with torch's kernels, where FlashAttention is not installed.

A mask would have T x T elements for T tokens, and a kernel with a mask computes all of them. One causal call a sample
computes a triangle for each, and holds nothing of that size.
"""

from __future__ import annotations

from typing import Any

import torch

NAME = "sdpa_by_sample"
"""Under which transformers knows it."""

KNOWN_LAYERS = {"full_attention", "sliding_attention"}
"""Kinds of layers whose masks are causal within a sample, or a window of that."""


def attend_by_sample(model: Any) -> Any:
    """Let ``model`` attend sample by sample if its attention is torch's and its masks are known; what it did before.

    Args:
        model: Of transformers, or one of peft around it.

    Returns:
        The name of its attention so far, for ``set_attention``; None: it stays as it is.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    inner = _transformers_model(model)
    if inner is None or inner.config._attn_implementation != "sdpa":
        return None
    config = inner.config.get_text_config()
    if set(getattr(config, "layer_types", None) or KNOWN_LAYERS) - KNOWN_LAYERS:
        return None
    if getattr(config, "attention_chunk_size", None):
        return None
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, mask)
    inner.set_attn_implementation(NAME)
    return "sdpa"


def attention_name(model: Any) -> str:
    """Under which transformers knows the function that ``model`` attends by."""
    inner = _transformers_model(model)
    assert inner is not None
    return str(inner.config._attn_implementation)


def set_attention(model: Any, name: str) -> None:
    """Let ``model`` attend by the function that transformers knows as ``name``."""
    inner = _transformers_model(model)
    assert inner is not None
    inner.set_attn_implementation(name)


def attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None = None,
    sliding_window: int | None = None,
    **more: Any,
) -> tuple[torch.Tensor, None]:
    """Attention [1, T, heads, width] of one packed row, in which positions start again with each sample.

    Rows of their own, which have a mask or a batch, and rows that go on from a cache are left to transformers.

    Args:
        module: The layer.
        query: [1, heads, T, width].
        key: [1, key heads, T, width].
        value: [1, key heads, T, width].
        attention_mask: None where the row is packed.
        position_ids: [1, T].
        sliding_window: Tokens that a token sees, itself among them; None: all of its sample before it.
        more: What transformers' function takes besides.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    # a single row without padding looks the same; its positions never start again, so it is one sample
    is_packed = attention_mask is None and query.shape[0] == 1 and query.shape[2] == key.shape[2]
    if position_ids is None or not is_packed:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **more)
    lengths = sample_lengths(position_ids)
    parts = []
    for q, k, v in zip(*(states.split(lengths, dim=2) for states in (query, key, value)), strict=True):
        window = _window(q.shape[2], sliding_window, q.device)
        parts.append(sdpa_attention_forward(module, q, k, v, window, **more)[0])
    return torch.cat(parts, dim=1), None


def mask(*arguments: Any, **named: Any) -> torch.Tensor | None:
    """Transformers' mask for rows of their own; None for a packed row, which has none to begin with."""
    from transformers.masking_utils import sdpa_mask

    if named.get("attention_mask") is None and named.get("batch_size") == 1:
        return None
    return sdpa_mask(*arguments, **named)


def sample_lengths(position_ids: torch.Tensor) -> list[int]:
    """Tokens of each sample of a packed row, whose positions [1, T] start again with each.

    All layers of a pass have the same positions, and a card is asked for them once.
    """
    known: list[int] | None = getattr(position_ids, "sample_lengths", None)
    if known is None:
        positions = position_ids[0]
        # one token where positions do not count on by 1 is the first of a sample; packing leaves no gaps
        starts = torch.cat([positions.new_zeros(1), (positions.diff() != 1).nonzero().flatten() + 1])
        ends = torch.cat([starts[1:], starts.new_tensor([len(positions)])])
        known = (ends - starts).tolist()
        position_ids.sample_lengths = known
    return known


def _window(length: int, sliding_window: int | None, device: torch.device) -> torch.Tensor | None:
    if sliding_window is None or length <= sliding_window:
        return None
    places = torch.arange(length, device=device)
    apart = places[:, None] - places[None, :]
    # within the window a mask is needed after all, of one sample's length and not of the row's
    return ((apart >= 0) & (apart < sliding_window))[None, None]


def _transformers_model(model: Any) -> Any:
    from transformers import PreTrainedModel

    return next((part for part in model.modules() if isinstance(part, PreTrainedModel)), None)
