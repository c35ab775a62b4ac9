"""A model's pass over rows of which several begin with the same prompt: each prompt is read once.

The prompts run first and leave their keys and values in a cache; every row then goes on from its prompt's. Gradients
flow back through the cache, so that those of a prompt's rows add up, as they do where each row reads the prompt itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from trainers.roles.head import call_with_head

if TYPE_CHECKING:
    from trainers.data.shared_prompts import SharedPrompts
    from trainers.data.tensors import RowTensors


def read_shared(
    model: Any, rows: RowTensors, compute: Callable[[torch.Tensor, torch.Tensor, slice], torch.Tensor]
) -> torch.Tensor | None:
    """Run ``model`` over padded ``rows``, reading each prompt once.

    Args:
        model: A causal language model of transformers, or DeepSpeed's engine around one.
        rows: The rows.
        compute: Called in place of the head with hidden states [B, r, H], the head's weight [V, H] and which r of the
            response columns they predict; returns [B, r, …].

    Returns:
        [B, R, …], what was computed for all response columns. None where prompts cannot be shared, or the logits of
        this model are more than a matrix times its hidden states.
    """
    cache = None if rows.prompts is None else _empty_cache(model)
    if rows.prompts is None or cache is None:
        return None
    of_row = rows.prompts.of_row
    inputs = _prompt_inputs(rows, rows.prompts, cache)
    first = call_with_head(
        model, inputs, lambda hidden, weight: compute(hidden.index_select(0, of_row), weight, slice(0, 1))
    )
    if first is None or rows.response_mask.shape[1] == 1:
        return first
    cache.reorder_cache(of_row)  # its gradient is faster than that of batch_select_indices
    inputs = _response_inputs(rows, cache)
    rest = call_with_head(model, inputs, lambda hidden, weight: compute(hidden, weight, slice(1, None)))
    return None if rest is None else torch.cat([first, rest], dim=1)


def _empty_cache(model: Any) -> Any:
    """A cache that holds all keys and values of ``model``; None where it keeps others, or cannot take one.

    Layers with a window or a recurrent state remember less or something else. Under ZeRO-3 every rank must make as many
    passes as the others, whatever its rows are. Recomputed activations leave nothing in a cache.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    module = getattr(model, "module", model)
    sharded = any(hasattr(parameter, "ds_id") for parameter in module.parameters())
    if sharded or getattr(module, "is_gradient_checkpointing", False) or not hasattr(module, "config"):
        return None
    cache = DynamicCache(config=module.config)
    return cache if cache.layers and all(type(layer) is DynamicLayer for layer in cache.layers) else None


def _prompt_inputs(rows: RowTensors, prompts: SharedPrompts, cache: Any) -> dict[str, Any]:
    """The model's inputs for each prompt, of which only the last token predicts."""
    length = rows.token_ids.shape[1] - rows.response_mask.shape[1]
    present = rows.attention_mask[prompts.rows, :length]
    return {
        "input_ids": rows.token_ids[prompts.rows, :length],
        "attention_mask": present.long(),
        "position_ids": (present.cumsum(dim=1) - 1).clamp(min=0),
        "past_key_values": cache,
        "use_cache": True,
        "logits_to_keep": 1,
    }


def _response_inputs(rows: RowTensors, cache: Any) -> dict[str, Any]:
    """The model's inputs for each response but its last token, which predicts nothing."""
    length = rows.token_ids.shape[1] - rows.response_mask.shape[1]
    return {
        "input_ids": rows.token_ids[:, length:-1],
        "attention_mask": rows.attention_mask[:, :-1].long(),
        "position_ids": (rows.attention_mask.cumsum(dim=1) - 1)[:, length:-1],
        "past_key_values": cache,
        "use_cache": True,
        "logits_to_keep": rows.response_mask.shape[1] - 1,
    }
