"""A reward that is the weighted sum of several, and remembers them: GDPO compares each of them by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class SumOfParts(float):
    """A number like any other reward.

    Attributes:
        parts: By name, a value and its weight, of which the number is the sum.
    """

    parts: dict[str, tuple[float, float]]

    def __new__(cls, parts: Mapping[str, tuple[float, float]]) -> SumOfParts:
        """The sum of ``parts``."""
        new = super().__new__(cls, sum(value * weight for value, weight in parts.values()))
        new.parts = dict(parts)
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        """How Ray carries it from a reward worker."""
        return SumOfParts, (self.parts,)


class Failed(float):
    """What an answer earns whose reward failed; a number like any other."""


def has_failed(reward: float) -> bool:
    """Whether the reward, or a part of it, failed."""
    values = [value for value, _ in reward.parts.values()] if isinstance(reward, SumOfParts) else [reward]
    return any(isinstance(value, Failed) for value in values)


def parts_of(rewards: Sequence[float], shape: torch.Size) -> dict[str, tuple[torch.Tensor, float]]:
    """By name, the values of a part in ``shape``, and its weight; none where no reward has parts.

    A reward without parts among such as have them is that of an answer that could not be judged: 0 in all.
    """
    import torch

    known = [reward.parts if isinstance(reward, SumOfParts) else {} for reward in rewards]
    weights = {name: weight for parts in known for name, (_, weight) in parts.items()}
    return {
        name: (torch.tensor([parts.get(name, (0.0,))[0] for parts in known]).reshape(shape), weight)
        for name, weight in weights.items()
    }
