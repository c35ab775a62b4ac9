"""Series of steps as runs write them, made up: a run of some shape, noise of its own, and what is planted in it.

Shapes are taken from published step times: generation and training in balance, rollouts that run ahead, roles that
take turns on the same cards, a critic, a teacher. Rewards learn along a logistic curve, and entropy, lengths and KL go
with them, as healthy runs' do.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rltui.diagnose.recent import Step
from rltui.onnode.metric_names import canonical_values

Values = dict[str, float]

VERL = {
    "time/total": "timing_s/step",
    "time/generate": "timing_s/gen",
    "time/train": "timing_s/update_actor",
    "time/weight_sync": "timing_s/update_weights",
    "time/saving": "timing_s/save_checkpoint",
    "time/evaluate": "timing_s/testing",
    "time/reward": "timing_s/reward",
    "time/update_critic": "timing_s/update_critic",
    "reward": "critic/rewards/mean",
    "entropy": "actor/entropy",
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "response_length": "response_length/mean",
    "response_length_max": "response_length/max",
    "truncated_fraction": "response_length/clip_ratio",
    "parity_mean_abs": "training/rollout_probs_diff_mean",
    "kl": "actor/kl_loss",
}
"""What verl calls what is measured; the rest of a step it does not say."""

OPEN_INSTRUCT = {
    "time/total": "time/total",
    "time/train": "time/training",
    "time/generate": "time/group_generation_max",
    "time/weight_sync": "time/weight_sync",
    "time/saving": "time/saving",
    "time/learner_idle": "time/trainer_waiting_for_data",
    "time/engine_idle": "time/generation_waiting_for_trainer",
    "reward": "scores",
    "response_length": "val/sequence_lengths",
    "loss": "loss/policy_avg",
    "grad_norm": "optim/grad_norm",
}


@dataclass(frozen=True)
class Shape:
    """A run.

    Attributes:
        phases: Seconds of a step by phase, as the loop waits for them.
        is_ahead: Whether rollouts run ahead: the longer of generation and the rest is then the step.
        takes_turns: Whether engines and learners share their cards.
        names: What the system calls the metrics; empty: as they are called here. What it has no name for is not said.
        saves_every: Steps between checkpoints, and the seconds of one.
        evaluates_every: Steps between evaluations, and the seconds of one.
        learns_in: Steps in which the reward gets halfway.
        noise: Deviation of the logarithm of each duration.
    """

    phases: Mapping[str, float]
    is_ahead: bool = False
    takes_turns: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    saves_every: tuple[int, float] = (25, 60.0)
    evaluates_every: tuple[int, float] = (20, 90.0)
    learns_in: float = 300.0
    noise: float = 0.12


BALANCED = Shape({"generate": 120.0, "train": 95.0, "weight_sync": 8.0, "reward": 3.0})
AHEAD = Shape({"generate": 150.0, "train": 135.0, "weight_sync": 8.0, "reward": 4.0}, is_ahead=True)
TURNS = Shape({"generate": 130.0, "train": 100.0, "weight_sync": 12.0, "reward": 5.0}, takes_turns=True, names=VERL)
CRITIC = Shape(
    {"generate": 110.0, "train": 60.0, "update_actor": 55.0, "update_critic": 50.0, "weight_sync": 9.0, "reward": 2.0}
)
TEACHER = Shape({"generate": 100.0, "train": 80.0, "teacher": 25.0, "weight_sync": 8.0})
QUEUED = Shape({"generate": 140.0, "train": 130.0, "weight_sync": 10.0}, is_ahead=True, names=OPEN_INSTRUCT)
QUICK = Shape(
    {"generate": 1.4, "train": 1.2, "weight_sync": 0.1, "reward": 0.05},
    saves_every=(100, 3.0),
    evaluates_every=(50, 6.0),
    learns_in=80.0,
    noise=0.25,
)

Plant = "Callable[[int, Values], None]"
"""Changes the values of a step by its number."""


def series(shape: Shape, seed: int, steps: int, plant: Callable[[int, Values], None] | None = None) -> tuple[Step, ...]:
    """``steps`` steps of a run from its start, with what is planted in it."""
    source, now, found = random.Random(f"slow/{seed}"), 1e9 + 1e6 * seed, []
    start, best = source.uniform(0.05, 0.3), source.uniform(0.6, 0.95)
    for number in range(1, steps + 1):
        values = _durations(shape, source, number)
        values |= _learning(shape, source, number, start, best)
        if plant is not None:
            plant(number, values)
        _total(shape, values)
        now += values["time/total"] + (0.0 if shape.names is VERL else _between(values))
        named = {shape.names.get(name, ""): value for name, value in values.items()} if shape.names else values
        line = {name: value for name, value in named.items() if name and math.isfinite(value)}
        found.append(Step(now, canonical_values(line)))
    return tuple(found)


def _durations(shape: Shape, source: random.Random, number: int) -> Values:
    slow = source.choice((2.0, 3.5)) if source.random() < 0.01 else 1.0
    values = {
        f"time/{name}": seconds * math.exp(source.gauss(0.0, shape.noise)) * slow
        for name, seconds in shape.phases.items()
    }
    if number == 1:
        values["time/generate"] += 12 * shape.phases["generate"]  # compiles, captures graphs
        values["time/train"] += 3 * shape.phases["train"]
    for name, (every, seconds) in (("saving", shape.saves_every), ("evaluate", shape.evaluates_every)):
        values[f"time/{name}"] = seconds * math.exp(source.gauss(0.0, 0.2)) if number % every == 0 else 0.0
    return values


def _learning(shape: Shape, source: random.Random, number: int, start: float, best: float) -> Values:
    done = 1.0 / (1.0 + math.exp(-4.0 * (number - shape.learns_in) / shape.learns_in))
    length = (900.0 + 500.0 * done) * math.exp(source.gauss(0.0, 0.06))
    return {
        "reward": start + (best - start) * done + source.gauss(0.0, 0.02),
        "reward_std": 0.3 + source.gauss(0.0, 0.02),
        "zero_std_fraction": min(0.9, max(0.0, 0.25 + 0.35 * done + source.gauss(0.0, 0.06))),
        "entropy": (0.9 - 0.65 * done) * math.exp(source.gauss(0.0, 0.08)),
        "loss": source.gauss(0.0, 0.02),
        "grad_norm": math.exp(source.gauss(0.0, 0.5)),
        "kl": 0.002 + 0.05 * done + abs(source.gauss(0.0, 0.002)),
        "response_length": length,
        "response_length_max": min(4096.0, length * source.uniform(2.2, 4.4)),
        "truncated_fraction": max(0.0, 0.06 + source.gauss(0.0, 0.02)),
        "parity_max_abs": 0.05 * math.exp(source.gauss(0.0, 0.5)),
        "parity_mean_abs": 0.004 * math.exp(source.gauss(0.0, 0.2)),
        "mismatch_kl": 0.0005 * math.exp(source.gauss(0.0, 0.3)),
        "engine_occupancy": min(1.0, max(0.0, 0.7 + source.gauss(0.0, 0.05))),
        "weight_version": float(number),
        "slowest_engine": float(source.randrange(4)),
        "slowest_engine_speed": min(1.0, source.uniform(0.85, 0.99)),
        "tokens": length * 512,
    }


BESIDE = ("time/saving", "time/evaluate", "time/update_actor", "time/update_critic")
"""Phases beside a step, or inside of another."""


def _total(shape: Shape, values: Values) -> None:
    """Put together what the loop measures of the step: its length and who rests."""
    phases = {name: seconds for name, seconds in values.items() if name.startswith("time/") and name not in BESIDE}
    generate = phases.pop("time/generate")
    others, works = sum(phases.values()), values["time/train"] + values["time/weight_sync"]
    if "time/update_critic" in values:
        slower = max(0.0, values["time/update_critic"] - values["time/update_actor"])
        values["time/train"], others, works = values["time/train"] + slower, others + slower, works + slower
    total = max(generate, others) if shape.is_ahead else generate + others
    if shape.is_ahead:
        values["time/generate"] = max(0.0, total - others)
    busy = generate + works if shape.takes_turns else 0.0
    values["time/total"] = total + (_between(values) if shape.names is VERL else 0.0)
    values["time/engine_idle"] = max(0.0, total - (busy or generate))
    values["time/learner_idle"] = max(0.0, total - (busy or works))
    values["learner_tokens_per_second_step"] = values.pop("tokens") / total


def _between(values: Values) -> float:
    return values["time/saving"] + values["time/evaluate"]
