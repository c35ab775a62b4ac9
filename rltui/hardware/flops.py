"""FLOPs of a model: two for each multiply-add, as hardware figures count them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.hardware.parameters import count_parameters

if TYPE_CHECKING:
    from rltui.hardware.architecture import Architecture

BACKWARD_FACTOR = 2
"""The backward pass multiplies each matrix twice: for the gradient of its input and of its weight."""


def forward_flops_per_token(model: Architecture, context: float, head: bool = True) -> float:
    """FLOPs of one token in a forward pass.

    Two per parameter that the token meets (the embedding is a look-up), plus attention: two matrix products of
    ``context`` × head width for every head. Towers are not counted.

    Args:
        model: The model.
        context: Tokens that the token attends to, itself included; half the length is the mean over a causal sequence.
        head: Whether the LM head is computed for this token.
    """
    count = count_parameters(model)
    vocabulary = model.vocab * model.hidden
    matrices = count.active - count.embedding - count.head + (vocabulary if head else 0)
    return 2.0 * matrices + _attention_flops(model, context)


def _attention_flops(model: Architecture, context: float) -> float:
    if model.latent is not None:
        widths = model.heads * (model.latent.nope_dim + model.latent.rope_dim + model.latent.value_dim)
    else:
        widths = 2 * model.query_dim
    sliding = min(model.sliding_layers, model.softmax_layers)
    seen = (model.softmax_layers - sliding) * context + sliding * min(context, model.sliding_window)
    linear = model.linear
    state = linear.layers * linear.value_heads * linear.key_dim * linear.value_dim if linear else 0
    return 2.0 * widths * seen + 6.0 * state


def training_flops_per_token(model: Architecture, length: float) -> float:
    """FLOPs of one token of a sequence of ``length`` tokens in forward and backward pass.

    A recomputed forward pass is left out, as model FLOPs utilization (MFU) by convention does not count it.
    """
    return forward_flops_per_token(model, length / 2) * (1 + BACKWARD_FACTOR)
