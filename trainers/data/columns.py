"""What is known of each response token besides its id, as arrays on the way and as tensors where it is used."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

Column: TypeAlias = "float | Sequence[float] | NDArray[Any]"
"""One value for each response token, or one for all of them; an array may have K values a token."""


def flat(values: Sequence[Column], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """A column's values for all tokens, one sample's behind the other's."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.repeat(np.asarray(values), lengths)
    if kinds <= {tuple, list}:
        listed = cast("Sequence[Sequence[float]]", values)
        return np.fromiter(itertools.chain.from_iterable(listed), np.float64, int(lengths.sum()))
    spread = zip(values, lengths.tolist(), strict=True)
    return np.concatenate([value if np.ndim(value) else np.full(length, value) for value, length in spread])


def spread_routes(
    routes: Sequence[NDArray[np.integer[Any]] | None], starts: NDArray[np.int64], width: int
) -> NDArray[np.integer[Any]] | None:
    """Routes [T, L, K] of samples as rows [B, ``width``, L, K], each from its own start on; None where there are none.

    Raises:
        ValueError: Some samples have routes, and others have none.
    """
    known = [one for one in routes if one is not None]
    if not known:
        return None
    if len(known) < len(routes):
        raise ValueError(f"router_replay: {len(routes) - len(known)} of {len(routes)} samples came without routes")
    rows = np.zeros((len(routes), width, *known[0].shape[1:]), known[0].dtype)
    for row, start, one in zip(rows, starts.tolist(), known, strict=True):
        row[start : start + len(one)] = one
    return rows


def as_tensor(values: NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of numbers or ids on ``device``; ids, half as wide on the way, become int64."""
    import torch

    found = torch.tensor(values, device=device)
    return found if found.is_floating_point() else found.long()


@dataclass(frozen=True)
class TeacherScores:
    """What the teacher says of the response tokens of rows.

    Attributes:
        log_probs: [B, R] float32, of the tokens that the student sampled.
        top_ids: [B, R, K] int32, the tokens that the teacher finds likeliest in their place, likeliest first.
        top_log_probs: [B, R, K] float32.
    """

    log_probs: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    top_log_probs: NDArray[np.float32]
