"""From samples to the padded rows that learners train on, and their split over ranks.

A row is ``[pad … prompt | response … pad]``: prompts end and responses begin at the same column, so that logits are
needed for the response columns only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Sample:
    """One response with what the learner needs to know of it.

    Attributes:
        prompt_ids: Token ids of the prompt.
        response_ids: Token ids of the response, its end token included.
        engine_log_probs: Log-probability of each response token, as the engine reported it.
        advantage: The sample's worth against its group.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    engine_log_probs: tuple[float, ...]
    advantage: float


@dataclass(frozen=True)
class Rows:
    """Samples as arrays; B rows, P prompt columns, R response columns.

    Attributes:
        token_ids: [B, P + R] int64; 0 where there is no token.
        attention_mask: [B, P + R] boolean, true on tokens.
        response_mask: [B, R] boolean, true on response tokens; all false in rows that only fill up a rank's share.
        engine_log_probs: [B, R] float32.
        advantages: [B] float32.
    """

    token_ids: NDArray[np.int64]
    attention_mask: NDArray[np.bool_]
    response_mask: NDArray[np.bool_]
    engine_log_probs: NDArray[np.float32]
    advantages: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.token_ids)

    def take(self, start: int, stop: int) -> Rows:
        """Rows ``start`` to ``stop - 1``."""
        rows = slice(start, stop)
        return Rows(
            self.token_ids[rows],
            self.attention_mask[rows],
            self.response_mask[rows],
            self.engine_log_probs[rows],
            self.advantages[rows],
        )

    def tensors(self, device: torch.device) -> RowTensors:
        """The same rows as tensors on ``device``; always copies, because arrays that came through Ray are read-only."""
        import torch

        return RowTensors(
            torch.tensor(self.token_ids, device=device),
            torch.tensor(self.attention_mask, device=device),
            torch.tensor(self.response_mask, device=device),
            torch.tensor(self.engine_log_probs, device=device),
            torch.tensor(self.advantages, device=device),
        )

    def micro_batches(self, size: int) -> Iterator[Rows]:
        """Runs of at most ``size`` rows; 0 means all at once."""
        step = size or max(1, len(self))
        for start in range(0, len(self), step):
            yield self.take(start, start + step)


@dataclass(frozen=True)
class RowTensors:
    """``Rows`` on a device, in the shapes and types given there."""

    token_ids: torch.Tensor
    attention_mask: torch.Tensor
    response_mask: torch.Tensor
    engine_log_probs: torch.Tensor
    advantages: torch.Tensor


@dataclass(frozen=True)
class Shard:
    """What one learner rank gets for one step; every rank gets as many rows as the others.

    Attributes:
        trained: Rows to take the gradient of.
        measured: Rows of groups without signal: only their log-probabilities are looked at.
        denominator: See ``trainers.losses.aggregate``; the same on all ranks.
    """

    trained: Rows
    measured: Rows
    denominator: float


def shard(
    trained: Sequence[Sample], measured: Sequence[Sample], num_learners: int, aggregation: Literal["token", "sequence"]
) -> list[Shard]:
    """Split a step's samples over ``num_learners`` ranks."""
    tokens = sum(len(sample.response_ids) for sample in trained)
    denominator = float(max(1, tokens if aggregation == "token" else len(trained)))
    pairs = zip(split(pack(trained), num_learners), split(pack(measured), num_learners), strict=True)
    return [Shard(mine, looked_at, denominator) for mine, looked_at in pairs]


def pack(samples: Sequence[Sample]) -> Rows:
    """Pad samples into rows as narrow as the longest prompt and the longest response allow."""
    prompt_columns = max((len(sample.prompt_ids) for sample in samples), default=0)
    response_columns = max((len(sample.response_ids) for sample in samples), default=0)
    rows = _blank(len(samples), prompt_columns, response_columns)
    for i, sample in enumerate(samples):
        first, end = prompt_columns - len(sample.prompt_ids), len(sample.response_ids)
        rows.token_ids[i, first:prompt_columns] = sample.prompt_ids
        rows.token_ids[i, prompt_columns : prompt_columns + end] = sample.response_ids
        rows.attention_mask[i, first : prompt_columns + end] = True
        rows.response_mask[i, :end] = True
        rows.engine_log_probs[i, :end] = sample.engine_log_probs
        rows.advantages[i] = sample.advantage
    return rows


def _blank(num_rows: int, prompt_columns: int, response_columns: int) -> Rows:
    width = prompt_columns + response_columns
    return Rows(
        np.zeros((num_rows, width), np.int64),
        np.zeros((num_rows, width), np.bool_),
        np.zeros((num_rows, response_columns), np.bool_),
        np.zeros((num_rows, response_columns), np.float32),
        np.zeros(num_rows, np.float32),
    )


def split(rows: Rows, num_parts: int) -> list[Rows]:
    """Cut into equal parts; the last ones are filled up with copies of the first row whose response mask is false.

    Ranks must run the same number of micro-batches, because every forward and backward pass of ZeRO is a collective.
    """
    per_part = -(-len(rows) // num_parts)
    missing = per_part * num_parts - len(rows)
    padded = rows if not missing else _concatenate(rows, _muted(rows.take(0, 1), missing))
    return [padded.take(part * per_part, (part + 1) * per_part) for part in range(num_parts)]


def _muted(row: Rows, count: int) -> Rows:
    """``count`` copies of ``row`` that weigh nothing."""
    return Rows(
        np.repeat(row.token_ids, count, axis=0),
        np.repeat(row.attention_mask, count, axis=0),
        np.zeros((count, row.response_mask.shape[1]), np.bool_),
        np.repeat(row.engine_log_probs, count, axis=0),
        np.zeros(count, np.float32),
    )


def _concatenate(first: Rows, second: Rows) -> Rows:
    return Rows(
        np.concatenate([first.token_ids, second.token_ids]),
        np.concatenate([first.attention_mask, second.attention_mask]),
        np.concatenate([first.response_mask, second.response_mask]),
        np.concatenate([first.engine_log_probs, second.engine_log_probs]),
        np.concatenate([first.advantages, second.advantages]),
    )
