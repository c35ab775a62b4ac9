"""Which rows begin with the same prompt, so that a model needs to read it only once for all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from trainers.data.batch import Rows

WORTHWHILE = 0.75
"""Most of the tokens that may be left to compute where prompts are shared: it takes two calls of the model for one."""


LEAST_SAVED_TOKENS = 512
"""Fewer are computed sooner than the model is called once more: its layers' calls take their time however few rows
there are. On CPU, where the tiny model takes 4 ms a call, both take as long at some 450 tokens."""


@dataclass(frozen=True)
class SharedPrompts:
    """The different prompts of B rows, U of them.

    Attributes:
        rows: [U] int64, a row that begins with each.
        of_row: [B] int64, the number of each row's prompt.
    """

    rows: torch.Tensor
    of_row: torch.Tensor


def shared_prompts(rows: Rows, device: torch.device) -> SharedPrompts | None:
    """The prompts of ``rows``, as tensors on ``device``; None where sharing them saves little or cannot be done.

    Packed rows and rows with images are not shared.
    """
    import torch

    if rows.packs or rows.images is not None or not len(rows):
        return None
    columns = rows.response_mask.shape[1]
    prompts = _keys(rows.token_ids[:, :-columns], rows.attention_mask[:, :-columns])
    numbers: dict[bytes, int] = {}
    of_row = [numbers.setdefault(prompt, len(numbers)) for prompt in prompts]
    length, read = rows.token_ids.shape[1] - columns, columns - 1  # the last token predicts nothing
    computed, left = len(rows) * (length + read), len(numbers) * length + len(rows) * read
    if left > WORTHWHILE * computed or computed - left < LEAST_SAVED_TOKENS:
        return None
    # prompts were numbered from 0 on as they came, so sorted numbers are their own order
    first = np.unique(of_row, return_index=True)[1]
    return SharedPrompts(torch.from_numpy(first).to(device), torch.tensor(of_row, device=device))


def _keys(token_ids: NDArray[np.int32], present: NDArray[np.bool_]) -> list[bytes]:
    """Of each row, what no other prompt has: its ids, and how many there are, because padding is an id too."""
    counted = np.column_stack([token_ids, present.sum(axis=1)])
    return [row.tobytes() for row in counted]
