"""What counts as having learnt the tiny task: the thresholds of the real runs, and of the mutants that miss them.

The task is ``builtin/sort-digits`` with three digits and 256 samples a step, where chance is about 1/6. By step 60 the
runs that are right have .87 to .89, and by step 120 little more; ``test_mutants.py`` shows which faults stay below what
is asked here: they have at most .31.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

STEPS = 60
"""Training steps that the thresholds are about."""
LEARNING = (
    "checkpoint.every=10",
    "train.learning_rate=5.0e-4",
    "train.prompts_per_step=32",
    f"train.steps={STEPS}",
)
"""Words of a run of ``local/grpo-tiny`` that learns the task."""
START_MOST = 0.35
"""Mean reward of the first five steps, at most: the model does not know the task from elsewhere."""
END_LEAST = {"grpo": 0.70, "ppo": 0.75, "opd": 0.75}
"""Mean reward of the last steps, at least."""
CONTROL_MOST = 0.20
"""Mean reward of the last steps, at most, where the reward that is trained on means nothing."""
REVERSE_KL_LEFT_MOST = 0.12
"""Mean reverse KL of the last steps over that of the first, at most: a right run has .05, one that is wrong 2."""
EXPLAINED_LEAST = 0.10
"""Mean share of the returns' variance that the critic explains from step 21 on, at least."""

Lines: TypeAlias = "Sequence[Mapping[str, Any]]"
"""Metrics of a run, one object a step."""


def mean_of(lines: Lines, name: str, first: int, last: int) -> float:
    """Mean of a metric over steps ``first`` to ``last``."""
    by_step = {line["step"]: line[name] for line in lines}
    return statistics.fmean(by_step[step] for step in range(first, last + 1))


def final_reward(lines: Lines, steps: int = STEPS) -> float:
    """Mean true reward of the last eleven of ``steps`` steps: 50 to 60."""
    return mean_of(lines, "reward", steps - 10, steps)


def shortcomings(algorithm: str, lines: Lines, steps: int = STEPS) -> list[str]:
    """What a run lacks of having started from chance and learnt the task in ``steps``; nothing: it has learnt."""
    lacks = {
        "start": mean_of(lines, "reward", 1, 5) > START_MOST,
        "reward": not final_reward(lines, steps) >= END_LEAST[algorithm],
    }
    if algorithm == "opd":
        left = mean_of(lines, "reverse_kl", steps - 10, steps)
        lacks["reverse KL"] = not left <= REVERSE_KL_LEFT_MOST * lines[0]["reverse_kl"]
    if algorithm == "ppo":
        lacks["critic"] = not mean_of(lines, "explained_variance", 21, steps) >= EXPLAINED_LEAST
    return [name for name, is_lacking in lacks.items() if is_lacking]


def check_learned(algorithm: str, lines: Lines, steps: int = STEPS) -> None:
    """Assert that a run has learnt the task."""
    assert shortcomings(algorithm, lines, steps) == [], f"reward at the end: {final_reward(lines, steps):.3f}"


def check_not_learned(lines: Lines, steps: int = STEPS) -> None:
    """Assert that a run whose reward means nothing did not learn the task."""
    assert final_reward(lines, steps) <= CONTROL_MOST
