"""From samples to the rows that learners train on, and their split over ranks and optimizer steps.

A row is ``[pad … prompt | response … pad]``: prompts end and responses begin at the same column, so that logits are
needed for the response columns only. What an algorithm knows of each response token besides its id is a named column:
the engine's log-probability, the advantage, the value.

Where the layout packs, rows stay what they are for losses and columns; only the models' forward pass puts the tokens of
several of them one behind the other, without padding (``trainers.roles.forward``).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trainers.data.columns import flat, spread_routes
from trainers.data.packing import FILLER, share_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trainers.data.columns import Column
    from trainers.data.prompts import Prompt
    from trainers.losses import Aggregation
    from trainers.roles.completions import Completion

ENGINE_LOG_PROBS = "engine_log_probs"
"""Log-probability of each sampled token, as the engine that sampled it reported it."""
STALENESS = "staleness"
"""Versions that the policy was ahead of the weights that sampled the token."""
OLD_LOG_PROBS = "old_log_probs"
"""That of the trainer's policy before the step's first optimizer step; absent where there is only one."""
REFERENCE_LOG_PROBS = "reference_log_probs"
"""That of the frozen reference policy."""
TEACHER_LOG_PROBS = "teacher_log_probs"
"""That of the teacher."""
TEACHER_TOP_IDS = "teacher_top_ids"
"""[R, K]: the tokens that the teacher finds likeliest in the place of each response token."""
TEACHER_TOP_LOG_PROBS = "teacher_top_log_probs"
"""[R, K]: their log-probabilities by the teacher."""
ADVANTAGES = "advantages"
"""What each token is worth; the same for all tokens of a sample where the algorithm judges samples."""
VALUES = "values"
"""The critic's before the step."""
RETURNS = "returns"
"""What the critic should have said."""

COLUMN_OF = {"learner": OLD_LOG_PROBS, "reference": REFERENCE_LOG_PROBS, "critic": VALUES}
"""The column that each kind of role fills before the optimizer steps."""


@dataclass(frozen=True)
class Sample:
    """One response with what the learner needs to know of it.

    Attributes:
        prompt_ids: Token ids of the prompt.
        response_ids: Token ids of the response, its end token included.
        columns: By name, a value for each response token or one for all.
        images: The files of the prompt's images.
        response_mask: Which response tokens the policy chose; empty: all. The others an environment said.
        routes: The experts that each token but the last is to be sent to, see ``completions.Completion``.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    columns: Mapping[str, Column] = field(default_factory=dict)
    images: tuple[bytes, ...] = ()
    response_mask: tuple[bool, ...] = ()
    routes: NDArray[np.integer[Any]] | None = field(default=None, compare=False, repr=False)

    @property
    def chosen_tokens(self) -> int:
        """Response tokens that the policy chose."""
        return sum(self.response_mask) if self.response_mask else len(self.response_ids)


def sampled(prompt: Prompt, completion: Completion, **columns: Column) -> Sample:
    """What an engine sampled, with the columns that every sample has and ``columns``."""
    own: dict[str, Column] = {ENGINE_LOG_PROBS: completion.log_probs, STALENESS: float(completion.staleness)}
    mask, routes = completion.response_mask, completion.routes
    asked = completion.asked(prompt.token_ids)
    return Sample(asked, completion.token_ids, {**own, **columns}, prompt.images, mask, routes)


def without_routes(samples: Sequence[Sample]) -> list[Sample]:
    """The same for models of other weights than the policy's, which choose experts of their own."""
    return [replace(one, routes=None) for one in samples]


@dataclass(frozen=True)
class Rows:
    """Samples as arrays; B rows, P prompt columns, R response columns.

    Attributes:
        token_ids: [B, P + R] int32, half as much to send as models take; 0 where there is no token.
        attention_mask: [B, P + R] boolean, true on tokens.
        response_mask: [B, R] boolean, true on the response tokens that the policy chose, which losses and metrics are
            about; all false in rows that only fill up a rank's share.
        columns: By name, [B, R] or [B, R, K], float32 or for ids int32; 0 where there is no response token.
        numbers: [B] int64, each row's place in the list of samples that was split; ``FILLER`` in rows that fill up.
        packs: Numbers of rows that run through a model as one packed row; empty: each runs in a row of its own.
        images: [B] objects, the files of each row's images as a tuple; None: no row has any.
        routes: [B, P + R, L, K], the experts that each token is to be sent to; None: the model chooses.
    """

    token_ids: NDArray[np.int32]
    attention_mask: NDArray[np.bool_]
    response_mask: NDArray[np.bool_]
    columns: Mapping[str, NDArray[Any]]
    numbers: NDArray[np.int64]
    packs: tuple[int, ...] = ()
    images: NDArray[Any] | None = None
    routes: NDArray[np.integer[Any]] | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def passed_tokens(self) -> int:
        """Tokens that a model computes for these rows, padding included where they are not packed."""
        return int(self.attention_mask.sum()) if self.packs else self.token_ids.size

    @property
    def real_tokens(self) -> int:
        """Tokens of samples: no padding, no rows that fill up."""
        return int(self.attention_mask[self.numbers != FILLER].sum())

    def select(self, numbers: Sequence[int], filler: int) -> Rows:
        """The rows of these numbers; for ``FILLER`` copies of row ``filler`` that weigh nothing."""
        wanted = np.asarray(numbers, np.int64)
        fills = wanted == FILLER
        rows = self._rows(np.where(fills, filler, wanted))
        # a rank with fewer rows would leave the others waiting in ZeRO's collectives, so it passes copies that weigh
        # nothing
        rows.response_mask[fills] = False
        for values in rows.columns.values():
            values[fills] = 0
        return replace(rows, numbers=np.where(fills, FILLER, rows.numbers))

    def micro_batches(self, size: int) -> Iterator[Rows]:
        """Runs of at most ``size`` rows, or packed rows, each as narrow as its tokens allow; 0 means all at once."""
        count = len(self.packs) or len(self)
        ends = np.cumsum(self.packs or [1] * count, dtype=np.int64)
        step = size or max(1, count)
        for first in range(0, count, step):
            start, stop = (int(ends[first - 1]) if first else 0), int(ends[min(first + step, count) - 1])
            part = self._rows(slice(start, stop))
            yield replace(part, packs=self.packs[first : first + step]).trimmed()

    def trimmed(self) -> Rows:
        """The same rows without columns in which none of them has a token."""
        if not len(self):
            return self
        prompt_columns = self.token_ids.shape[1] - self.response_mask.shape[1]
        used: NDArray[np.bool_] = np.logical_or.reduce(self.attention_mask, axis=0)
        first, end = int(used.argmax()), int(used[prompt_columns:].sum())
        columns = {name: values[:, :end] for name, values in self.columns.items()}
        width = slice(first, prompt_columns + end)
        return replace(
            self,
            token_ids=self.token_ids[:, width],
            attention_mask=self.attention_mask[:, width],
            response_mask=self.response_mask[:, :end],
            columns=columns,
            routes=None if self.routes is None else self.routes[:, width],
        )

    def _rows(self, rows: slice | NDArray[np.int64]) -> Rows:
        columns = {name: values[rows] for name, values in self.columns.items()}
        arrays = (self.token_ids[rows], self.attention_mask[rows], self.response_mask[rows])
        images, routes = (None if one is None else one[rows] for one in (self.images, self.routes))
        return Rows(*arrays, columns, self.numbers[rows], images=images, routes=routes)


@dataclass(frozen=True)
class MiniBatch:
    """One rank's share of the samples of one optimizer step.

    Attributes:
        rows: To take the gradient of; as many rows, or packed rows, as every other rank's.
        denominator: See ``trainers.losses.aggregate``; the same on all ranks.
    """

    rows: Rows
    denominator: float


@dataclass(frozen=True)
class Shard:
    """What one learner rank gets for one training step; every rank gets as many rows, or packed rows, as the others.

    Attributes:
        trained: One mini-batch for each optimizer step; none where no group has a signal.
        measured: Rows of groups without signal: only their log-probabilities are looked at.
    """

    trained: tuple[MiniBatch, ...]
    measured: Rows


def shard(
    trained: Sequence[Sample],
    measured: Sequence[Sample],
    num_learners: int,
    aggregation: Aggregation,
    *,
    response_limit: int = 0,
    optimizer_steps: int = 1,
    epochs: int = 1,
    seed: int = 0,
    pack_tokens: int = 0,
    sharing: int = 1,
) -> list[Shard]:
    """Split a step's samples over ``num_learners`` ranks and ``optimizer_steps`` x ``epochs`` mini-batches.

    Within an epoch every sample is in exactly one mini-batch; with more than one, ``seed`` decides which.
    ``response_limit`` is the layout's; ``pack_tokens`` and ``sharing`` are those of ``split``.
    """
    batches = [batch for epoch in range(epochs) for batch in _cut(trained, optimizer_steps, seed + epoch)]
    parts = [split(batch, num_learners, pack_tokens, sharing) for batch in batches]
    wholes = [whole(batch, aggregation, response_limit) for batch in batches]
    looked_at = split(measured, num_learners, pack_tokens, sharing)
    return [
        Shard(
            tuple(MiniBatch(part[rank], denominator) for part, denominator in zip(parts, wholes, strict=True)),
            looked_at[rank],
        )
        for rank in range(num_learners)
    ]


def _cut(samples: Sequence[Sample], parts: int, seed: int) -> list[list[Sample]]:
    """Cut into at most ``parts`` nearly equal lists, shuffled where there are several; none of them is empty."""
    order = list(samples)
    if parts > 1:
        # groups stand together: unshuffled, a mini-batch would hold few prompts and its gradient their bias
        # a text as seed is hashed (SHA-512), so that orders of neighbouring steps have nothing in common
        random.Random(f"mini-batches/{seed}").shuffle(order)
    bounds = [len(order) * part // parts for part in range(parts + 1)]
    cut = [order[start:stop] for start, stop in itertools.pairwise(bounds)]
    return [part for part in cut if part]


def whole(samples: Sequence[Sample], aggregation: Aggregation, response_limit: int = 0) -> float:
    """The denominator that ``trainers.losses.aggregate`` needs for parts of these samples, so that they add up."""
    import torch

    # of the whole batch and not of a micro-batch: means of means would weigh tokens of short micro-batches more
    # float32 counts single tokens up to 2**24 only, and a batch may have more
    lengths = torch.tensor([sample.chosen_tokens for sample in samples], dtype=torch.float64)
    return max(1.0, float(aggregation(lengths, response_limit)[1].sum()))


def pad(samples: Sequence[Sample]) -> Rows:
    """Pad samples, all of which have the same columns, into rows as narrow as the longest prompt and response allow."""
    prompt_columns = max((len(sample.prompt_ids) for sample in samples), default=0)
    response_columns = max((len(sample.response_ids) for sample in samples), default=0)
    columns = {name: np.asarray(values) for name, values in samples[0].columns.items()} if samples else {}
    rows = _blank(len(samples), prompt_columns, response_columns, columns)
    prompts = np.array([len(sample.prompt_ids) for sample in samples], np.int64)
    responses = np.array([len(sample.response_ids) for sample in samples], np.int64)
    places = np.arange(prompt_columns + response_columns)
    rows.attention_mask[:] = (places >= prompt_columns - prompts[:, None]) & (
        places < prompt_columns + responses[:, None]
    )
    said = rows.attention_mask[:, prompt_columns:]
    rows.response_mask[:] = said
    for row, sample in enumerate(samples):
        if sample.response_mask:
            rows.response_mask[row, : len(sample.response_mask)] = sample.response_mask
    ids = itertools.chain.from_iterable((*sample.prompt_ids, *sample.response_ids) for sample in samples)
    rows.token_ids[rows.attention_mask] = np.fromiter(ids, np.int32, int(prompts.sum() + responses.sum()))
    for name in columns:
        rows.columns[name][said] = flat([sample.columns[name] for sample in samples], responses)
    routes = spread_routes([sample.routes for sample in samples], prompt_columns - prompts, len(places))
    return replace(rows, images=_images(samples), routes=routes)


def _images(samples: Sequence[Sample]) -> NDArray[Any] | None:
    if not any(sample.images for sample in samples):
        return None
    found = np.empty(len(samples), object)
    for number, sample in enumerate(samples):
        found[number] = sample.images
    return found


def _blank(num_rows: int, prompt_columns: int, response_columns: int, like: Mapping[str, NDArray[Any]]) -> Rows:
    """Rows of zeros, with columns shaped beyond the token, and typed, as those of one sample."""
    width = prompt_columns + response_columns

    def column(values: NDArray[Any]) -> NDArray[Any]:
        # whole numbers are ids only where there are K of them a token: a staleness is a number
        kind = np.int32 if np.issubdtype(values.dtype, np.integer) and values.ndim == 2 else np.float32
        return np.zeros((num_rows, response_columns, *values.shape[1:]), kind)

    return Rows(
        np.zeros((num_rows, width), np.int32),
        np.zeros((num_rows, width), np.bool_),
        np.zeros((num_rows, response_columns), np.bool_),
        {name: column(values) for name, values in like.items()},
        np.arange(num_rows),
    )


def split(samples: Sequence[Sample], num_parts: int, pack_tokens: int = 0, sharing: int = 1) -> list[Rows]:
    """Rows of the samples for each of ``num_parts`` roles of a kind: as many for each, and about as many tokens.

    Args:
        samples: All of which have the same columns.
        num_parts: Roles.
        pack_tokens: Tokens of a packed row; 0: each sample runs in a row of its own.
        sharing: Neighbours among the roles that share each row's tokens, and get the same packed rows, of one sample
            each where ``pack_tokens`` is 0.
    """
    lengths = [len(sample.prompt_ids) + len(sample.response_ids) for sample in samples]
    # rows that fill up are copies of the shortest: they weigh nothing, but each costs a pass
    rows, shortest = pad(samples), int(np.argmin(lengths)) if lengths else 0
    parts = [part for part in share_out(lengths, num_parts // sharing, pack_tokens) for _ in range(sharing)]
    found = [rows.select([number for row in part for number in row], shortest).trimmed() for part in parts]
    if not pack_tokens and sharing == 1:
        return found
    return [replace(chosen, packs=tuple(map(len, part))) for chosen, part in zip(found, parts, strict=True)]


def join_columns(
    answers: Sequence[NDArray[Any]], parts: Sequence[Rows], samples: Sequence[Sample]
) -> list[NDArray[Any]]:
    """What roles answered for ``parts``, the rows that ``samples`` were split into, as an array a sample, unpadded.

    Args:
        answers: [B, R, …] of each role.
        parts: Their rows.
        samples: What was split.
    """
    found: dict[int, NDArray[Any]] = {}
    for answer, part in zip(answers, parts, strict=True):
        found.update(zip(part.numbers.tolist(), answer, strict=True))
    return [found[number][: len(sample.response_ids)] for number, sample in enumerate(samples)]


def stack(parts: Sequence[NDArray[Any]], response_columns: int) -> NDArray[Any]:
    """Answers [b, r, …] for micro-batches, one below the other, as one array with ``response_columns`` columns."""
    widened = [
        np.pad(part, [(0, 0), (0, response_columns - part.shape[1])] + [(0, 0)] * (part.ndim - 2)) for part in parts
    ]
    return np.concatenate(widened)


def with_columns(samples: Sequence[Sample], columns: Mapping[str, Sequence[Column]]) -> list[Sample]:
    """``samples`` with further columns, each given as one value or array a sample."""
    return [
        replace(one, columns={**one.columns, **{name: values[i] for name, values in columns.items()}})
        for i, one in enumerate(samples)
    ]


def packing_efficiency(shards: Sequence[Shard], micro_batch: int) -> float:
    """Share of the trained tokens among all that the ranks had time for; 1 where there is nothing to train on.

    In each pass all ranks wait for the one with the most tokens, so padding, rows that fill up and waiting count alike.
    """
    real = room = 0
    for batch in range(len(shards[0].trained)):
        parts = [part.trained[batch].rows for part in shards]
        real += sum(part.real_tokens for part in parts)
        passes = zip(*(part.micro_batches(micro_batch) for part in parts), strict=True)
        room += sum(max(rows.passed_tokens for rows in together) * len(shards) for together in passes)
    return real / room if room else 1.0
