"""Rows as models take them, padded or packed, and what they answer as rows again.

What is said of response tokens has the shape [B, R, …] in rows. In models it has the same, but for packed rows
[1, N, …], N being the number of all response tokens; ``gather`` and ``scatter`` go between the two. Where ranks share a
row, each has those of the N that its tokens predict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainers.roles.vision import with_images

if TYPE_CHECKING:
    import torch

    from trainers.data.tensors import RowTensors
    from trainers.roles.sequence_group import SequenceGroup


def response_inputs(rows: RowTensors) -> dict[str, Any]:
    """What a causal language model is called with, to predict the response tokens of ``rows``.

    Rows of their own have [B, P + R - 1] ids, mask and positions, and their last R columns predict. Packed rows have
    [1, T] ids and positions that start again at 0 with each sample. Where there is no mask, transformers takes such
    positions for the bounds of samples: with FlashAttention it calls the kernel for variable lengths, else it masks
    what is not of the same sample.
    """
    present, columns = rows.attention_mask, rows.response_mask.shape[1]
    positions = present.cumsum(dim=1) - 1
    if not rows.is_packed:
        inputs = {
            "input_ids": rows.token_ids[:, :-1],  # the last token predicts nothing
            "attention_mask": present[:, :-1].long(),
            # padding before a prompt counts from -1, which no table of positions has
            "position_ids": positions[:, :-1].clamp(min=0),
            # keys and values of a pass that nothing continues would stay for nothing, and checkpointing forbids a cache
            "use_cache": False,
            "logits_to_keep": columns,
        }
        return with_images(inputs, rows.images) if rows.images else inputs
    fed = _fed(present)
    inputs = {
        "input_ids": rows.token_ids[fed].unsqueeze(0),
        "position_ids": positions[fed].unsqueeze(0),
        "use_cache": False,
        "logits_to_keep": _predicting(fed, rows),
    }
    return rows.sequence.share(inputs) if rows.sequence else inputs


def response_routes(rows: RowTensors) -> torch.Tensor | None:
    """[T, L, K]: the experts of each token that ``response_inputs`` feeds; None: the model chooses."""
    if rows.routes is None:
        return None
    if not rows.is_packed:
        return rows.routes[:, :-1].flatten(0, 1)
    routes = rows.routes[_fed(rows.attention_mask)]
    return rows.sequence.own(routes) if rows.sequence else routes


def _fed(present: torch.Tensor) -> torch.Tensor:
    """Which tokens [B, P + R] of packed rows a model takes: all but the last of each sample."""
    return present & (present.cumsum(dim=1) < present.sum(dim=1, keepdim=True))


def _predicting(fed: torch.Tensor, rows: RowTensors) -> torch.Tensor:
    """Places [N] in the packed row of the tokens before each response token."""
    columns = rows.response_mask.shape[1]
    place = (fed.flatten().cumsum(dim=0) - 1).view_as(fed)
    return place[:, -columns - 1 : -1][rows.attention_mask[:, -columns:]]


def _mine(rows: RowTensors, sequence: SequenceGroup) -> torch.Tensor:
    """Which of all response tokens [N] this rank predicts."""
    fed = _fed(rows.attention_mask)
    return sequence.predicted(_predicting(fed, rows), int(fed.sum()))


def response_tokens(rows: RowTensors) -> torch.Tensor:
    """Ids of the response tokens, as models take them."""
    return gather(rows.token_ids[:, -rows.response_mask.shape[1] :], rows)


def response_values(model: Any, rows: RowTensors) -> torch.Tensor:
    """A critic's values [B, R]; that of a token is read where the policy chose it, at the token before."""
    inputs = response_inputs(rows)
    places = inputs.pop("logits_to_keep")
    # GAE subtracts neighbouring values, which are nearly equal: in bf16 little of the difference is left
    outputs: torch.Tensor = model(**inputs).logits[..., 0].float()
    return scatter(outputs[:, places], rows) if rows.is_packed else outputs[:, -places:]


def gather(values: torch.Tensor, rows: RowTensors) -> torch.Tensor:
    """Values of padded rows as the model takes them: packed, and this rank's tokens of shared rows."""
    if not rows.is_packed:
        return values
    found = values[rows.attention_mask[:, -values.shape[1] :]].unsqueeze(0)
    return found[:, _mine(rows, rows.sequence)] if rows.sequence else found


def scatter(values: torch.Tensor, rows: RowTensors) -> torch.Tensor:
    """From models to rows; 0 where packed rows have no token."""
    if not rows.is_packed:
        return values
    if rows.sequence:
        values = rows.sequence.whole(values, _mine(rows, rows.sequence))
    present = rows.attention_mask[:, -rows.response_mask.shape[1] :]
    spread = values.new_zeros((*present.shape, *values.shape[2:]))
    spread[present] = values[0]
    return spread
