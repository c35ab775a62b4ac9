"""The ranks that share the tokens of a packed row: which of them has which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True)
class SequenceGroup:
    """The ranks that share one row's tokens.

    Attributes:
        ranks: Their process group.
        size: Number of them, S.
        place: This rank's number among them; it has the tokens from ``place * T / S`` on.
    """

    ranks: Any
    size: int
    place: int

    def share(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """This rank's share of a packed row's ``inputs``, see ``trainers.roles.model_inputs.response_inputs``.

        The row is filled up to a multiple of S by a sample of its own that predicts nothing.
        """
        tokens = inputs["input_ids"].shape[1]
        fill = torch.arange(-tokens % self.size, device=inputs["input_ids"].device).unsqueeze(0)
        ids = torch.cat([inputs["input_ids"], torch.zeros_like(fill)], dim=1)
        positions = torch.cat([inputs["position_ids"], fill], dim=1)
        width = ids.shape[1] // self.size
        mine = slice(self.place * width, (self.place + 1) * width)
        places = inputs["logits_to_keep"]
        return {
            **inputs,
            "input_ids": ids[:, mine],
            "position_ids": positions[:, mine].contiguous(),
            "logits_to_keep": places[self.predicted(places, tokens)] - mine.start,
        }

    def own(self, values: torch.Tensor) -> torch.Tensor:
        """This rank's share of what is said of a packed row's tokens [T, …], with 0 for those that fill it up."""
        width = -(-len(values) // self.size)
        filled = torch.cat([values, values.new_zeros((width * self.size - len(values), *values.shape[1:]))])
        return filled[self.place * width : (self.place + 1) * width]

    def predicted(self, places: torch.Tensor, tokens: int) -> torch.Tensor:
        """Which of the ``places`` [N] in a row of ``tokens`` that predict response tokens are this rank's."""
        width = -(-tokens // self.size)
        return (places >= self.place * width) & (places < (self.place + 1) * width)

    def whole(self, found: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
        """What all ranks found [1, N, …] out of this rank's part; its gradient is this rank's part of the whole's.

        Args:
            found: [1, n, …] of this rank.
            mine: [N], which n of all N these are.
        """
        result: torch.Tensor = _Whole.apply(found, mine, self.ranks)
        return result


def sequence_group(rank: int, world: int, size: int, patience: timedelta) -> SequenceGroup:
    """The group of ``size`` neighbours that ``rank`` is in; all ``world`` ranks must call this."""
    firsts = range(0, world, size)
    # new_group waits for all ranks, also for those that are not in the group
    groups = [dist.new_group(list(range(first, first + size)), timeout=patience) for first in firsts]
    return SequenceGroup(groups[rank // size], size, rank % size)


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, found: torch.Tensor, mine: torch.Tensor, ranks: Any) -> torch.Tensor:
        ctx.save_for_backward(mine)
        whole = found.new_zeros((1, len(mine), *found.shape[2:]))
        whole[:, mine] = found
        # each place is one rank's and 0 elsewhere, so a sum joins them; gathering would need equal lengths
        dist.all_reduce(whole, group=ranks)
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (mine,) = ctx.saved_tensors
        # its own part alone: gradients of all ranks are added up later, which makes them the row's
        return grads[0][:, mine], None, None
