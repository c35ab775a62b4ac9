"""The language-model head, applied in chunks: log-probabilities without the logits of all tokens ever being there.

The model runs as it is; only for the time of the call its head returns what is wanted of the logits in place of them.
So it is still the head's own module that runs, and with it ZeRO-3's gathering of its weight in both passes, and what a
model does before its head (norms, the choice of positions) is its own affair.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from trainers.losses import softmax_gradient

log = logging.getLogger("trainers")

CHUNK_ELEMENTS = 2**25
"""Logits that are there at once: 128 MiB in float32. Fewer would read the head's weight too often for its products."""

_NOT_PLAIN: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
"""Heads whose logits their models work on further (softcapping, a scale), so that the head alone says nothing."""


def call_with_head(
    model: Any, inputs: Mapping[str, Any], compute: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor | None:
    """Run ``model``; where it would call its head, ``compute(hidden, weight)`` is called, and its answer returned.

    Args:
        model: A causal language model of transformers, or DeepSpeed's engine around one.
        inputs: Of the model.
        compute: Takes hidden states [..., H] and the head's weight [V, H]; returns float32 (or float64) of any shape.

    Returns:
        None where the logits of this model are more than a matrix times its hidden states; it must be called plainly.
    """
    head = getattr(model, "module", model).get_output_embeddings()
    # not isinstance: subclasses (quantised ones, say) compute more than a product with their weight
    if type(head) is not torch.nn.Linear or head.bias is not None or head in _NOT_PLAIN:
        return None
    found: list[torch.Tensor] = []

    def forward(hidden: torch.Tensor) -> torch.Tensor:
        found.append(compute(hidden, head.weight))
        return found[-1]

    with _replaced_forward(head, forward):
        answer: torch.Tensor = model(**inputs).logits
    # DeepSpeed's hooks wrap the tensor, so its memory is compared: a model that scales its logits returns another.
    if len(found) == 1 and answer.data_ptr() == found[0].data_ptr():
        return answer
    log.warning("%s changes its logits after the head: they are all held at once", type(model).__name__)
    _NOT_PLAIN.add(head)
    return None


@contextmanager
def _replaced_forward(module: torch.nn.Module, forward: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    before = module.__dict__.get("forward")
    # on the instance, where accelerate puts its own too: __call__ looks there first, and still runs hooks
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        if before is not None:
            module.__dict__["forward"] = before


def head_log_probs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    token_ids: torch.Tensor,
    temperature: float = 1.0,
    chunk_elements: int = CHUNK_ELEMENTS,
    *,
    entropy_gradient: bool = False,
) -> torch.Tensor:
    """What ``trainers.losses.token_log_probs`` says of the logits ``hidden @ weight.T``, which are never all there.

    Args:
        hidden: [B, R, H] in any floating type.
        weight: [V, H] in the same type.
        token_ids: [B, R, K] int64, the tokens to score at each position.
        temperature: Divides the logits.
        chunk_elements: Most logits to hold at once, in both passes.
        entropy_gradient: Whether the entropy carries a gradient.

    Returns:
        [B, R, K + 1]: the log-probabilities, differentiable, and last the entropy in nats.
        float32, or float64 for float64 inputs.
    """
    found: torch.Tensor = _HeadLogProbs.apply(hidden, weight, token_ids, temperature, chunk_elements, entropy_gradient)
    return found


class _HeadLogProbs(torch.autograd.Function):
    """d log p(token) / d logits = (one_hot(token) - softmax) / temperature, with the logits computed again.

    The forward pass goes by positions, so that each softmax is whole; the backward pass, which knows the normalisers,
    by parts of the vocabulary, so that each part of the weight's gradient comes from one product and is rounded once.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        token_ids: torch.Tensor,
        temperature: float,
        chunk_elements: int,
        entropy_gradient: bool,
    ) -> torch.Tensor:
        ids = token_ids.flatten(0, 1)
        compute = torch.promote_types(hidden.dtype, torch.float32)
        found = torch.empty((len(ids), ids.shape[1] + 1), dtype=compute, device=hidden.device)
        normalisers = torch.empty((len(ids), 1), dtype=compute, device=hidden.device)
        for rows, scaled in _scaled_logits(hidden, weight, temperature, chunk_elements):
            normalisers[rows] = scaled.logsumexp(dim=-1, keepdim=True)
            found[rows, :-1] = scaled.gather(-1, ids[rows]) - normalisers[rows]
            weighted = (scaled - normalisers[rows]).exp_().mul_(scaled)
            found[rows, -1] = normalisers[rows, 0] - weighted.sum(dim=-1)
        entropies = [found[:, -1:].clone()] if entropy_gradient else []
        ctx.save_for_backward(hidden, weight, ids, normalisers, *entropies)
        ctx.temperature, ctx.chunk_elements = temperature, chunk_elements
        return found.view(*token_ids.shape[:2], found.shape[1])

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None, None, None, None]:
        hidden, weight, ids, normalisers, *entropies = ctx.saved_tensors
        states, upstream = hidden.flatten(0, 1), grads[0].flatten(0, 1)[:, :-1]
        entropy = (entropies[0], grads[0].flatten(0, 1)[:, -1:]) if entropies else None
        # float32: it is a sum over all parts of the vocabulary, which bf16 would round once for each
        grad_states = torch.zeros(states.shape, dtype=normalisers.dtype, device=states.device)
        grad_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        # with the entropy's gradient a part is there twice, so parts are half as wide
        width = max(1, ctx.chunk_elements // (1 + len(entropies)) // max(1, len(states)))
        for first in range(0, len(weight), width):
            part = weight[first : first + width]
            grad = (states @ part.t()).to(normalisers.dtype).div_(ctx.temperature)
            grad = softmax_gradient(grad.sub_(normalisers), upstream, entropy)
            places = ids - first
            inside = (places >= 0) & (places < len(part))
            # tokens of other parts add a 0 within this one: an index out of range breaks the process's CUDA context
            grad.scatter_add_(-1, places.clamp(0, len(part) - 1), upstream.masked_fill(~inside, 0.0))
            # 16 bits again before the products: float32 matrices would miss the tensor cores
            narrow = grad.div_(ctx.temperature).to(states.dtype)
            grad_states += narrow @ part
            if grad_weight is not None:
                grad_weight[first : first + width] = narrow.t() @ states
        return grad_states.to(hidden.dtype).view(hidden.shape), grad_weight, None, None, None, None


def head_top_tokens(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    token_ids: torch.Tensor,
    count: int,
    temperature: float = 1.0,
    chunk_elements: int = CHUNK_ELEMENTS,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The log-probability of each token, and the ``count`` likeliest tokens in its place, likeliest first.

    Args:
        hidden: [B, R, H].
        weight: [V, H].
        token_ids: [B, R] int64.
        count: Likeliest tokens; at most V are found.
        temperature: Divides the logits.
        chunk_elements: Most logits to hold at once.

    Returns:
        Log-probabilities [B, R]; ids [B, R, count]; their log-probabilities [B, R, count]. Without gradient.
    """
    ids = token_ids.flatten().unsqueeze(-1)
    parts = []
    for rows, scaled in _scaled_logits(hidden, weight, temperature, chunk_elements):
        normalisers = scaled.logsumexp(dim=-1, keepdim=True)
        top = scaled.topk(min(count, scaled.shape[-1]), dim=-1)
        parts.append((scaled.gather(-1, ids[rows]) - normalisers, top.indices, top.values - normalisers))
    own, likeliest, values = (torch.cat(column).view(*token_ids.shape, -1) for column in zip(*parts, strict=True))
    return own.squeeze(-1), likeliest, values


def _scaled_logits(
    hidden: torch.Tensor, weight: torch.Tensor, temperature: float, chunk_elements: int
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Logits over ``temperature`` [n, V] of n positions at a time, in float32 or float64; no gradient is kept."""
    states = hidden.detach().flatten(0, 1)
    compute, size = torch.promote_types(states.dtype, torch.float32), max(1, chunk_elements // len(weight))
    with torch.no_grad():
        for first in range(0, len(states), size):
            rows = slice(first, first + size)
            # first the product in the model's type, then float32: vLLM rounds its logits at the same place
            yield rows, (states[rows] @ weight.t()).to(compute).div_(temperature)
