"""On-policy distillation: ``python -m trainers.opd --attempt DIR``.

One step, top to bottom: engines, which run the student, answer the step's prompts; the teacher scores the student's own
tokens; the learners move the student towards the teacher where it has been (Agarwal et al. 2024), and, where the layout
gives it weight, towards the reward; the engines get the new weights.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainers import attempt
from trainers.colocation import pool_of
from trainers.data.batch import (
    ADVANTAGES,
    ENGINE_LOG_PROBS,
    OLD_LOG_PROBS,
    TEACHER_LOG_PROBS,
    TEACHER_TOP_IDS,
    TEACHER_TOP_LOG_PROBS,
    Rows,
    Sample,
    join_columns,
    sampled,
    with_columns,
)
from trainers.data.codec import Codec
from trainers.data.columns import TeacherScores
from trainers.data.prompts import Prompt
from trainers.loop import Loop
from trainers.metrics import sample_metrics, source_metrics
from trainers.prefetch import Prefetch
from trainers.rewards import training_rewards
from trainers.roles.completions import Completion
from trainers.roles.fleet import Fleet, RoleCall
from trainers.roles.teacher import Teacher
from trainers.session import Session
from trainers.stopping import leave

SAMPLED: dict[str, Callable[[TeacherScores], Any]] = {TEACHER_LOG_PROBS: lambda scores: scores.log_probs}
SCORES = {
    "sampled_token": SAMPLED,
    "top_k": SAMPLED
    | {TEACHER_TOP_IDS: lambda scores: scores.top_ids, TEACHER_TOP_LOG_PROBS: lambda scores: scores.top_log_probs},
}
"""What each estimator takes of the teacher's scores, by column."""


@dataclass(frozen=True)
class TeacherCalls:
    """Samples that the teacher is asked about.

    Attributes:
        samples: Which.
        parts: Their rows for each replica.
        requests: The calls.
    """

    samples: Sequence[Sample]
    parts: Sequence[Rows]
    requests: Sequence[RoleCall]


class Opd(Loop):
    """The training loop of one attempt."""

    def __init__(self, session: Session, fleet: Fleet, codec: Codec) -> None:
        super().__init__(session, fleet, codec)
        # on cards that others share, it has to wait for its turn
        pools = [pool_of(session.layout, kind) for kind in ("teacher", "learner", "engine")]
        self.prefetched_scores = Prefetch(self.ask_about) if pools[0] not in pools[1:] else None
        if self.prefetched_scores is not None:
            self.prefetches.append(self.prefetched_scores)

    def step(self) -> dict[str, float]:
        """One training step; its metrics."""
        fraction, number = self.layout.opd.on_policy_fraction, self.state.step + 1
        if fraction == 1.0:
            return self.on_policy_step(number)
        on_policy = is_on_policy(fraction, self.layout.train.seed, number)
        metrics = self.on_policy_step(number) if on_policy else self.off_policy_step(number)
        return metrics | {"on_policy": float(on_policy)}

    def off_policy_step(self, number: int) -> dict[str, float]:
        """A step on the dataset's own answers, which teacher and student score alike; its metrics."""
        began, version = time.monotonic(), self.state.weight_version + 1
        with self.phase("generate"):
            prompts = self.lookahead.skip()
            samples = [reference_sample(prompt, self.codec, self.layout.lengths.response) for prompt in prompts]
        self.rest()
        with self.phase("teacher"):
            samples = self.with_teacher_scores(samples)
        with self.phase("train"):
            metrics = self.optimize(number, samples)
        self.sync(version)
        self.state = self.state.after_step(len(prompts), version)
        metrics["response_length"] = sum(len(sample.response_ids) for sample in samples) / len(samples)
        times = self.meter.measure([], [], time.monotonic() - began)  # engines read and wrote nothing
        return metrics | {name: value for name, value in times.items() if name.startswith("time/")}

    def on_policy_step(self, number: int) -> dict[str, float]:
        """A step on the student's samples; its metrics."""
        began, train = time.monotonic(), self.layout.train
        version = self.state.weight_version + 1
        with self.phase("generate"):
            prompts, groups = self.generate(number)
        self.rest()
        with self.phase("reward"):
            true_rewards = self.rewards(prompts, groups)
            samples = self.samples(prompts, groups, self.reward_advantages(true_rewards, number))
        with self.phase("teacher"):
            samples = self.with_teacher_scores(samples, prompts)
        with self.phase("train"):
            metrics = self.optimize(number, samples)
        self.sync(version)
        self.state = self.state.after_step(train.prompts_per_step, version)
        metrics |= sample_metrics(groups, true_rewards) | reverse_kl(samples)
        metrics |= source_metrics(prompts, true_rewards, self.layout.data.eval_pass)
        return metrics | self.meter.measure(prompts, groups, time.monotonic() - began)

    def reward_advantages(self, true_rewards: list[list[float]], number: int) -> list[list[float]]:
        """Group advantages of the rewards with the weight that the layout gives them beside the teacher."""
        import torch

        from trainers.advantages import Groups, standard

        weight = self.layout.opd.reward_weight
        if not weight:
            return [[0.0] * len(group) for group in true_rewards]
        rewards = training_rewards(self.layout.data.reward, true_rewards, self.layout.train.seed, number)
        earned = torch.tensor(rewards)
        found: list[list[float]] = (weight * standard(Groups(earned, torch.ones_like(earned)))).tolist()
        return found

    def samples(
        self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]], worth: Sequence[Sequence[float]]
    ) -> list[Sample]:
        """All samples of the step in one list."""
        return [
            sampled(prompt, sample, **{ADVANTAGES: advantage})
            for prompt, group, values in zip(prompts, groups, worth, strict=True)
            for sample, advantage in zip(group, values, strict=True)
        ]

    def ask_about(self, prompts: Sequence[Prompt], groups: Sequence[Sequence[Completion]]) -> TeacherCalls:
        """Ask the teacher about all samples of ``prompts``."""
        pairs = zip(prompts, groups, strict=True)
        return self.ask_teacher([sampled(prompt, sample) for prompt, group in pairs for sample in group])

    def ask_teacher(self, samples: Sequence[Sample]) -> TeacherCalls:
        """Ask the teacher about ``samples``."""
        parts = self.split(samples, "teacher")
        return TeacherCalls(samples, parts, self.fleet.begin("teacher", Teacher.score, parts))

    def with_teacher_scores(self, samples: Sequence[Sample], prompts: Sequence[Prompt] = ()) -> list[Sample]:
        """The samples with the teacher's scores, and with the policy's own where the step has several updates.

        Args:
            samples: The samples.
            prompts: Those that they answer, if the teacher may have been asked as the answers came.
        """
        early = None if self.prefetched_scores is None else self.prefetched_scores.take(prompts)
        asked = early or [self.ask_teacher(samples)]
        sampled_now = ENGINE_LOG_PROBS in samples[0].columns  # only these have a ratio to what sampled them
        needs_old = self.needs_old_log_probs and sampled_now
        old = self.measure(["learner"], samples)["learner"] if needs_old else None
        columns: dict[str, Any] = {} if old is None else {OLD_LOG_PROBS: old}
        for one in asked:
            scores = self.fleet.finish(one.requests, "scoring the student's tokens")
            for name, answer in SCORES[self.layout.opd.estimator].items():
                found = join_columns([answer(score) for score in scores], one.parts, one.samples)
                columns.setdefault(name, []).extend(found)
        return with_columns(samples, columns)


def is_on_policy(fraction: float, seed: int, step: int) -> bool:
    """Whether ``step`` takes the student's samples: a coin of weight ``fraction``, as in GKD (Agarwal et al. 2024)."""
    return random.Random(f"on-policy/{seed}/{step}").random() < fraction


def reference_sample(prompt: Prompt, codec: Codec, limit: int) -> Sample:
    """The dataset's answer to ``prompt``, ended as the student has to end, and cut at ``limit`` tokens.

    Raises:
        ValueError: The dataset has no answer to it.
    """
    if not prompt.answer:
        raise ValueError(
            f"opd.on_policy_fraction below 1 trains on the dataset's answers, and {prompt.text[:60]!r} has none: name "
            "their key as data.answer_key"
        )
    tokens = (*codec.encode(prompt.answer), codec.stop_token_id)[:limit]
    return Sample(prompt.token_ids, tokens, {ADVANTAGES: 0.0}, prompt.images)


def reverse_kl(samples: Sequence[Sample]) -> dict[str, float]:
    """Mean over tokens of log student - log teacher: the unbiased estimate of KL(student || teacher)."""
    student = np.concatenate([np.asarray(sample.columns[ENGINE_LOG_PROBS]) for sample in samples])
    teacher = np.concatenate([np.asarray(sample.columns[TEACHER_LOG_PROBS]) for sample in samples])
    return {"reverse_kl": float((student - teacher).mean()), "teacher_log_prob": float(teacher.mean())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return attempt.main("opd", Opd, arguments)


if __name__ == "__main__":
    leave(main())
