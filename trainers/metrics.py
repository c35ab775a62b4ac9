"""What a training step leaves behind: a line of metrics.jsonl, a point in W&B, and now and then a line of the log."""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rltui.layout.schema import Layout
from rltui.onnode import rundir
from trainers.data.prompts import Prompt
from trainers.full_disk import Lines
from trainers.roles.completions import Completion
from trainers.roles.step_report import RankReport, StepReport, worst
from trainers.tracking import Tracker

LOG_INTERVAL_S = 0.5
PACE_STEPS = 50
"""Steps that the pace and the time left are computed from."""
PARITY_BOUND_FP32 = 1e-4
"""Largest |trainer - engine log-prob| where both compute in fp32; healthy runs stay below 1e-5. In lower precisions,
and where a token's experts turn on the last bit, single tokens differ by 0.1 and more even with equal weights."""
MISMATCH_KL_BOUND = 0.1
"""Largest mean of k3 of KL(engine || trainer) over tokens that the trainer's own weights sampled, in any precision.
Healthy runs in bf16 stay below 1e-4 with dense models and, by reports of others, below some 1e-2 with experts; a model
with one broken layer is beyond 1."""

log = logging.getLogger("trainers")


class TrainingError(RuntimeError):
    """Training would go on with wrong numbers."""


def merge(everyone: Sequence[StepReport], sharing: int = 1, *, truncates: bool = False) -> dict[str, float]:
    """Fold the ranks' reports of one step into metrics by their canonical names.

    Args:
        everyone: The report of each rank.
        sharing: Neighbours that share their rows' tokens, and report the same.
        truncates: Whether engines sampled from a part of the policy's tokens: then they say other log-probabilities
            than the trainer also where their weights are the same, and there is no parity to speak of.
    """
    reports = everyone[::sharing]
    tokens, trained = sum(r.tokens for r in reports), sum(r.trained_tokens for r in reports)
    return ({} if truncates else parity(reports)) | {
        # each rank's share has the whole batch's denominator, so the shares add up
        "loss": sum(report.loss for report in reports),
        "grad_norm": worst(report.grad_norm for report in reports),
        "clip_fraction": sum(report.clipped_tokens for report in reports) / max(1, trained),
        "entropy": sum(report.entropy_sum for report in reports) / max(1, tokens),
        "learning_rate": reports[0].learning_rate,
        "mismatch_kl": sum(report.mismatch_kl_sum for report in reports) / max(1, tokens),
        "importance_limited_fraction": sum(report.limited_tokens for report in reports) / max(1, trained),
        "learner_memory_gib": max(report.memory_gib for report in everyone),
        **_scaling(reports[0].loss_scale, reports[0].overflow_steps),
    }


def _scaling(loss_scale: float, overflow_steps: int, prefix: str = "") -> dict[str, float]:
    """How fp16 fares; of steps that were not made, also without it. All ranks skip the same steps."""
    if loss_scale == 1.0:  # DeepSpeed leaves out what has no finite gradient in every precision
        return {f"{prefix}overflow_steps": float(overflow_steps)} if overflow_steps else {}
    return {f"{prefix}loss_scale": loss_scale, f"{prefix}overflow_steps": float(overflow_steps)}


def parity(reports: Sequence[StepReport]) -> dict[str, float]:
    """How far trainer and engine are apart where they had the same weights; nothing where no sample was so fresh."""
    tokens = sum(report.fresh_tokens for report in reports)
    if not tokens:
        return {}
    return {
        "parity_mean_abs": sum(report.parity_abs_sum for report in reports) / tokens,
        "parity_max_abs": worst(report.parity_max_abs for report in reports),
        "fresh_mismatch_kl": sum(report.fresh_mismatch_kl_sum for report in reports) / tokens,
    }


def critic_metrics(reports: Sequence[RankReport]) -> dict[str, float]:
    """Fold the critic ranks' reports of one step into metrics."""
    tokens = sum(report.tokens for report in reports)
    return {
        "critic_loss": sum(report.loss for report in reports),
        "critic_grad_norm": worst(report.grad_norm for report in reports),
        "value_clip_fraction": sum(report.clipped_tokens for report in reports) / max(1, tokens),
        "critic_memory_gib": max(report.memory_gib for report in reports),
        **_scaling(reports[0].loss_scale, reports[0].overflow_steps, "critic_"),
    }


def overlap_s(learners: Sequence[StepReport], critics: Sequence[RankReport]) -> float:
    """Seconds in which policy and critic were updated at the same time, by the clocks of their nodes."""
    starts = [min(report.began_at for report in learners), min(report.began_at for report in critics)]
    ends = [max(report.ended_at for report in learners), max(report.ended_at for report in critics)]
    return max(0.0, min(ends) - max(starts))


TIMING_NAMES = {
    "time/total": "timing_s/step",
    "time/generate": "timing_s/gen",
    "time/measure": "timing_s/old_log_prob_ref_values",
    "time/advantages": "timing_s/adv",
    "time/update_actor": "timing_s/update_actor",
    "time/update_critic": "timing_s/update_critic",
    "time/weight_sync": "timing_s/update_weights",
}
"""The names that users of verl compare placements by."""


def timing_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """The phases of ``metrics`` once more, under the names of verl."""
    return {name: metrics[own] for own, name in TIMING_NAMES.items() if own in metrics}


def sample_metrics(groups: Sequence[Sequence[Completion]], true_rewards: Sequence[Sequence[float]]) -> dict[str, float]:
    """Metrics of the samples of one step; ``reward_std`` is the mean over groups of the deviation within each."""
    samples = [sample for group in groups for sample in group]
    rewards = [reward for group in true_rewards for reward in group]
    return {
        "reward": statistics.fmean(rewards),
        "reward_std": statistics.fmean(_deviation(group) for group in true_rewards),
        "response_length": statistics.fmean(sample.sampled_tokens for sample in samples),
        "response_length_max": float(max(sample.sampled_tokens for sample in samples)),
        "truncated_fraction": statistics.fmean(sample.finish_reason == "length" for sample in samples),
        **_environment_metrics(samples),
    }


def source_metrics(
    prompts: Sequence[Prompt], true_rewards: Sequence[Sequence[float]], passes: float
) -> dict[str, float]:
    """How each of several training sets fared in a step; nothing where there is one, or of one that was not drawn.

    Args:
        prompts: Of the step.
        true_rewards: Of the samples of each.
        passes: The least reward that solves a prompt.
    """
    by_source: dict[str, list[float]] = {}
    for prompt, rewards in zip(prompts, true_rewards, strict=True):
        if prompt.source:
            by_source.setdefault(prompt.source, []).extend(rewards)
    return {
        f"{what}/{name}": statistics.fmean(values)
        for name, rewards in sorted(by_source.items())
        for what, values in (("reward", rewards), ("solve_rate", [float(one >= passes) for one in rewards]))
    }


def _environment_metrics(samples: Sequence[Completion]) -> dict[str, float]:
    """How samples fared in environments; nothing where there are none."""
    outcomes = [sample.outcome for sample in samples if sample.outcome is not None]
    if not outcomes:
        return {}
    parts = [part for sample in samples for part in sample.sequences]
    said = sum(len(part.token_ids) for part in parts) - sum(sample.sampled_tokens for sample in samples)
    return {
        "environment_failures": float(sum(outcome.failed for outcome in outcomes)),
        "environment_length": said / len(samples),
        "turns": statistics.fmean(outcome.turns for outcome in outcomes),
        "sequences": len(parts) / len(samples),
    }


def _deviation(values: Sequence[float]) -> float:
    """Population deviation in floats; that of ``statistics`` takes fractions, and milliseconds for a step's groups."""
    mean = statistics.fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def rates(tokens: int, total_s: float, durations: Mapping[str, float], generate_s: float) -> dict[str, float]:
    """Durations of a step's phases by canonical name, and tokens (prompts and responses) a second.

    Args:
        tokens: Of the step.
        total_s: The step's own duration.
        durations: Those of its phases.
        generate_s: What the engines worked for it.
    """
    return {
        "time/total": total_s,
        **{f"time/{name}": seconds for name, seconds in durations.items()},
        "learner_tokens_per_second_step": tokens / total_s,
        "actor_tokens_per_second": tokens / generate_s if generate_s else 0.0,
    }


def check_numbers(step: int, metrics: Mapping[str, float], layout: Layout, *, has_experts: bool = False) -> None:
    """End the run where its numbers are wrong.

    Raises:
        TrainingError: A loss or gradient is not a number, or trainer and engine disagree by more than their precision
            allows.
    """
    # of gradients too: they have spoiled the weights already, and the next checkpoint would be of these
    for name in ("loss", "grad_norm", "critic_loss", "critic_grad_norm"):
        if not math.isfinite(metrics.get(name, 0.0)):
            raise TrainingError(
                f"step {step}: the {name.replace('_', ' ').replace('grad norm', 'gradient')} is {metrics[name]}; "
                "lower train.learning_rate, or train in bf16 instead of fp16"
            )
    if "parity_max_abs" in metrics:
        apart = LogProbGap(metrics["parity_max_abs"], metrics["fresh_mismatch_kl"])
        check_parity(f"step {step}: trainer and engine", apart, layout, has_experts=has_experts)


@dataclass(frozen=True)
class LogProbGap:
    """How far trainer and engine are apart on tokens that the trainer's own weights sampled.

    Attributes:
        max_abs: Largest |trainer - engine log-prob|.
        kl: Mean of the estimate k3 of KL(engine || trainer), in nats a token.
    """

    max_abs: float
    kl: float


def log_prob_gap(trainer: NDArray[np.floating], engine: NDArray[np.floating]) -> LogProbGap:
    """How far the log-probabilities [N] of the same tokens are apart; NaN where one of them is."""
    import numpy as np

    ratio = np.clip(trainer - engine, -20.0, 20.0)  # as losses.kl_estimate
    return LogProbGap(float(np.abs(trainer - engine).max()), float((np.expm1(ratio) - ratio).mean()))


def check_parity(who: str, apart: LogProbGap, layout: Layout, *, has_experts: bool = False) -> None:
    """End the run where an engine does not run the learner's weights, as far as the precision lets that be seen.

    Args:
        who: Whom ``apart`` is of, for the error.
        apart: How far apart they are.
        layout: The layout.
        has_experts: Whether the policy routes tokens to experts that the learner chooses by itself: rounding then
            changes routes, and with them single tokens by much.

    Raises:
        TrainingError: They disagree by more than their precision explains.
    """
    both_fp32 = layout.roles.learner.precision == layout.roles.rollout.precision == "fp32"
    # not (x <= bound) in place of x > bound: NaN is beyond every bound
    if both_fp32 and not has_experts and not apart.max_abs <= PARITY_BOUND_FP32:
        found = f"by {apart.max_abs:.1e} in the log-probability of a sampled token, and in fp32 {PARITY_BOUND_FP32:g}"
    elif not apart.kl <= MISMATCH_KL_BOUND:
        found = f"by a KL divergence of {apart.kl:.2g} a token, and {MISMATCH_KL_BOUND:g}"
    else:
        return
    raise TrainingError(
        f"{who} disagree {found} is the bound: the engine does not run the learner's weights; see events of weight "
        "transfers, and try roles.rollout.engine=hf"
    )


class MetricsLog:
    """Writes metrics of steps.

    Args:
        attempt: The attempt's directory.
        steps: Training steps of the run.
        tracker: W&B.
    """

    def __init__(self, attempt: str, steps: int, tracker: Tracker) -> None:
        self._file = str(Path(attempt) / rundir.METRICS)
        self._steps, self._tracker = steps, tracker
        self._lines = Lines()
        self._logged = 0.0
        self._paces: deque[tuple[float, int]] = deque(maxlen=PACE_STEPS)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of ``step``; JSON has no NaN or infinity, so such values are left out."""
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        line = {"step": step, "time": time.time(), **finite}
        self._lines.append(lambda: rundir.append_line(self._file, line))
        self._tracker.log({"step": step, **finite})

    def close(self) -> None:
        """Write the steps that waited for room on the disk: no further one comes after the last."""
        self._lines.flush()

    def record(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step that was just done, and now and then a line of the log."""
        self.write(step, metrics)
        now = time.monotonic()
        self._paces.append((now, step))
        if now - self._logged >= LOG_INTERVAL_S or step == self._steps:
            self._logged = now
            log.info(summary(step, self._steps, metrics, pace(self._paces)))


def pace(times: Sequence[tuple[float, int]]) -> float:
    """Steps a second between the first and the last of ``(time, step)``; 0 where there is only one."""
    if len(times) < 2 or times[-1][0] <= times[0][0]:
        return 0.0
    return (times[-1][1] - times[0][1]) / (times[-1][0] - times[0][0])


def summary(step: int, steps: int, metrics: Mapping[str, float], steps_per_second: float) -> str:
    """One line for people, such as ``step 120/1000  reward 0.871  14.9k tok/s  12.3 steps/s  ETA 1m12s``.

    A step that sampled nothing has neither reward nor tokens.
    """
    words = [f"step {step}/{steps}"]
    if "reward" in metrics:
        words.append(f"reward {metrics['reward']:.3f}")
    if tokens := metrics.get("learner_tokens_per_second_step", 0.0):
        words.append(f"{tokens / 1000:.1f}k tok/s" if tokens >= 1000 else f"{tokens:.0f} tok/s")
    eta = clock((steps - step) / steps_per_second) if steps_per_second else "?"
    return "  ".join([*words, f"{steps_per_second:.2f} steps/s", f"ETA {eta}"])


def clock(seconds: float) -> str:
    """Seconds for people: ``45s``, ``1m12s``, ``2h05m``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def check_routes(prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> None:
    """See that the engines said which experts each token had that a model reads.

    Raises:
        TrainingError: Some routes did not come: the learner would choose experts by itself without a word.
    """
    for prompt, group in zip(prompts, groups, strict=True):
        for one in (part for sample in group for part in sample.sequences):
            asked, found = len(one.asked(prompt.token_ids)), 0 if one.routes is None else len(one.routes)
            wanted = asked + len(one.token_ids) - 1
            if found != wanted:
                raise TrainingError(
                    f"roles.rollout.router_replay: an engine told the experts of {found} tokens of a sample, not of "
                    f"{wanted}; set it to false, or try roles.rollout.engine=hf"
                )
