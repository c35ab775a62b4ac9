"""How far behind the learner's weights the samples of a step were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainers.metrics import TrainingError

if TYPE_CHECKING:
    from trainers.roles.completions import Completion


class StalenessCounter:
    """Counts the samples of a step by staleness: the learner's weight version less the oldest that sampled them.

    Args:
        bound: Most that a sample may have: ``train.async_steps``.
    """

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._counts: Counter[int] = Counter()
        self._mixed = 0

    def note(self, groups: Sequence[Sequence[Completion]], version: int) -> list[list[Completion]]:
        """Count samples that come to be trained on at weight ``version``; returns them with their staleness.

        Raises:
            TrainingError: A sample is older than the bound, or of a version that is still to come.
        """
        aged = [[_aged(one, version) for one in group] for group in groups]
        parts = [part for group in aged for one in group for part in one.sequences]
        for one in (part for part in parts if not 0 <= part.staleness <= self._bound):
            raise TrainingError(
                f"a sample of weight version {one.weight_version} came to be trained on at version {version}, and "
                f"async_steps={self._bound} is the bound: the engine does not run the learner's weights; see events of "
                "weight transfers"
            )
        self._counts.update(part.staleness for part in parts)
        self._mixed += sum(part.newest_version > part.weight_version for part in parts)
        return aged

    def take(self) -> tuple[dict[int, int], float]:
        """Since the last call: samples by staleness, and the fraction that more than one version sampled."""
        counts, mixed = dict(sorted(self._counts.items())), self._mixed
        self._counts, self._mixed = Counter(), 0
        return counts, mixed / max(1, sum(counts.values()))


def _aged(one: Completion, version: int) -> Completion:
    """``one`` with its staleness; most are fresh, and have it already."""
    staleness = version - one.weight_version
    if one.staleness == staleness and not one.earlier:
        return one
    return replace(one, staleness=staleness, earlier=tuple(_aged(part, version) for part in one.earlier))


def staleness_metrics(counts: Mapping[int, int]) -> dict[str, float]:
    """Mean and largest staleness of ``counts``; 0 where there are none."""
    samples = sum(counts.values())
    return {
        "staleness_mean": sum(age * count for age, count in counts.items()) / max(1, samples),
        "staleness_max": float(max(counts, default=0)),
    }
