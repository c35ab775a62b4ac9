"""Ulysses: ranks share the tokens of a packed row, so that an answer may be longer than a card's activations allow.

Each rank of a group has an equal run of the row's tokens for all that is done token by token, and an equal share of the
heads, with all tokens, for attention: two exchanges between all ranks of the group go from one to the other and back
(Jacobs et al. 2023, arXiv:2309.14509).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from trainers.data.tensors import RowTensors
from trainers.roles.attention import ISOLATION_BOUND
from trainers.roles.sample_attention import attention_name

if TYPE_CHECKING:
    from trainers.roles.sequence_group import SequenceGroup


class _Exchange(torch.autograd.Function):
    """Of [S, …], part i goes to rank i of the group, and part i of the answer came from it."""

    @staticmethod
    def forward(ctx: Any, parts: torch.Tensor, ranks: Any) -> torch.Tensor:
        ctx.ranks = ranks
        # a transpose makes a view, and the collective reads memory as it lies
        parts = parts.contiguous()
        received = torch.empty_like(parts)
        dist.all_to_all_single(received, parts, group=ranks)
        return received

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        # an exchange only permutes, so its gradient is the way back, and it is its own inverse
        return _Exchange.apply(grads[0], ctx.ranks), None


@dataclass(frozen=True)
class SharedAttention:
    """Attention of a group's ranks, each over all tokens with its heads.

    Attributes:
        group: The ranks.
        inner: Attention over packed rows, as transformers calls it.
    """

    group: SequenceGroup
    inner: Callable[..., tuple[torch.Tensor, Any]]

    def __call__(
        self, module: Any, *states: torch.Tensor | None, position_ids: torch.Tensor | None = None, **more: Any
    ) -> tuple[torch.Tensor, None]:
        """Attention [1, T / S, heads, width] of this rank's tokens.

        Args:
            module: The layer; how many of a rank's query heads have one key head is set in it.
            states: Query [1, heads, T / S, width], key and value [1, key heads, T / S, width], and no mask.
            position_ids: [1, T / S].
            more: What the inner function takes besides.
        """
        query, key, value, mask = states
        if position_ids is None or mask is not None or query is None or key is None or value is None:
            raise ValueError("it tells its attention no positions, or masks packed rows by itself")
        heads, keys = query.shape[1], key.shape[1]
        # under grouped-query attention there may be fewer key heads than ranks: copies of one go to all ranks with
        # its queries
        copies = max(1, self.group.size // keys)  # of a key head, where there are fewer than ranks
        key, value = (states.repeat_interleave(copies, dim=1) for states in (key, value))
        if hasattr(module, "num_key_value_groups"):
            # transformers repeats keys by this number: here that of the queries which share one (copied) key head
            module.num_key_value_groups = heads // (keys * copies)
        q, k, v = (self._to_heads(states) for states in (query, key, value))
        positions = self._all_positions(position_ids)
        found, _ = self.inner(module, q, k, v, None, position_ids=positions, **more)
        return self._to_tokens(found), None

    def _to_heads(self, states: torch.Tensor) -> torch.Tensor:
        """[1, heads, T / S, width] of this rank's tokens as [1, heads / S, T, width] of its heads."""
        size, (_, heads, tokens, width) = self.group.size, states.shape
        received = _Exchange.apply(states.reshape(size, heads // size, tokens, width), self.group.ranks)
        return received.transpose(0, 1).reshape(1, heads // size, size * tokens, width)

    def _to_tokens(self, found: torch.Tensor) -> torch.Tensor:
        """[1, T, heads / S, width] of this rank's heads as [1, T / S, heads, width] of its tokens."""
        size, (_, tokens, heads, width) = self.group.size, found.shape
        received = _Exchange.apply(found.reshape(size, tokens // size, heads, width), self.group.ranks)
        return received.transpose(0, 1).reshape(1, tokens // size, size * heads, width)

    def _all_positions(self, position_ids: torch.Tensor) -> torch.Tensor:
        """[1, T] of the whole row; all layers of a pass have the same, and ask once."""
        known: torch.Tensor | None = getattr(position_ids, "of_whole_row", None)
        if known is None:
            parts = [torch.empty_like(position_ids) for _ in range(self.group.size)]
            dist.all_gather(parts, position_ids, group=self.group.ranks)
            known = torch.cat(parts, dim=1)
            # kept on the tensor itself, which goes with the pass: a cache beside it would have to know when the next
            # row comes
            position_ids.of_whole_row = known
        return known


def share_attention(
    model: Any, group: SequenceGroup, score: Callable[[RowTensors, SequenceGroup | None], torch.Tensor], device: Any
) -> None:
    """Let ``model``, which attends sample by sample, share the tokens of rows among the ranks of ``group``.

    Args:
        model: The model; that of a DeepSpeed engine, too.
        group: The ranks, all of which call this.
        score: The model's answer [B, R] for packed rows, which the group shares, or which each rank has whole.
        device: That of the model.

    Raises:
        ValueError: The model does not say of a row what it says where ranks share it.
    """
    from transformers import AttentionInterface

    rows, name = _spanning_rows(group.size, device), attention_name(model)
    inner = AttentionInterface()[name]
    with torch.no_grad():
        alone = score(rows, None).float()
        # under the name that the model has already: each layer looks the function up by it in each pass
        AttentionInterface.register(name, SharedAttention(group, inner))
        try:
            shared = score(rows, group).float()
        except (ValueError, RuntimeError) as error:
            raise ValueError(f"sequence_parallel {group.size}: the model cannot share rows: {error}") from error
    apart, scale = float((alone - shared).abs().amax()), float(alone.abs().amax())
    if apart > ISOLATION_BOUND * scale:
        raise ValueError(
            f"sequence_parallel {group.size}: what the model says of a row that ranks share differs by {apart:.1e} of "
            f"{scale:.1e} from what it says of it alone: its layers look across tokens by more than attention; set "
            "roles.learner.sequence_parallel=1"
        )


def _spanning_rows(size: int, device: Any) -> RowTensors:
    """Two samples, of which every rank of a group has tokens to predict, and the first of which spans all ranks."""
    present = torch.ones((2, 4 * size - 2), dtype=torch.bool, device=device)
    present[1, 4:] = False
    ids = torch.arange(present.numel(), device=device).view_as(present) % 5 + 3
    return RowTensors(ids * present, present, present[:, 1:], {}, is_packed=True)
