"""Which prompts a step draws, and which of their groups it trains on: zero-variance filter and active sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainers.data.prompts import Prompt
from trainers.roles.completions import Completion


@dataclass
class Drawn:
    """What a step has sampled so far, one entry a prompt.

    Attributes:
        prompts: In the order of the data.
        groups: The samples of each.
        true_rewards: Of each sample.
        rewards: Those to train on.
        signal: Whether the rewards of a group differ.
    """

    prompts: list[Prompt] = field(default_factory=list)
    groups: list[list[Completion]] = field(default_factory=list)
    true_rewards: list[list[float]] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=list)
    signal: list[bool] = field(default_factory=list)


def next_draw(wanted: int, limit: int, signal: Sequence[bool]) -> int:
    """How many further prompts to draw; 0: the batch is full, or ``limit`` times ``wanted`` prompts were tried.

    After the first ``wanted``, as many as would fill the batch if groups with signal stayed as frequent as they were
    (active sampling; DAPO, Yu et al. 2025, calls it dynamic sampling). The answer depends on what was drawn before and
    on nothing else, so that a resumed step draws what the lost one drew.

    Args:
        wanted: Groups with signal that make a batch; also the most prompts of one draw.
        limit: 1: never draw again.
        signal: Of each group drawn so far.
    """
    tried, found = len(signal), sum(signal)
    if not tried:
        return wanted
    missing, left = wanted - found, wanted * limit - tried
    if missing <= 0 or left <= 0:
        return 0
    return min(math.ceil(missing * tried / max(1, found)), wanted, left)


def choose(wanted: int, signal: Sequence[bool], filter_zero_std: bool) -> tuple[list[int], list[int]]:
    """Numbers of the groups to train on, ``wanted`` at most, and of those only to be measured.

    Groups are taken in the order of the data. Those without signal are measured only where they are among the first
    ``wanted``, because a step that had to try many prompts should not also compute the log-probabilities of all.
    """
    trained = [i for i, teaches in enumerate(signal) if teaches or not filter_zero_std][:wanted]
    taken = set(trained)
    return trained, [i for i in range(min(wanted, len(signal))) if i not in taken]
