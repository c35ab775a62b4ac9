"""Evaluations beside the training: the engines answer prompts of their own, and the task's reward judges the answers.

The training knows nothing of it. Prompts and seeds are the evaluation's own, so the curve is the same with and without
it; and the learners are not called meanwhile, so that no collective is open that could time out, however long it takes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_name
from trainers.data.tasks import EVALUATION_SEED, make_evaluation_task
from trainers.full_disk import unless_full
from trainers.roles.calls import call_all
from trainers.roles.completions import derive_seed, grouped
from trainers.roles.sampling import evaluation_settings
from trainers.rollouts import prompts_per_chunk
from trainers.samples import answer_line

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.schema import Layout
    from trainers.data.codec import Codec
    from trainers.data.prompts import EnginePrompt, Prompt, Task
    from trainers.roles.calls import Role
    from trainers.roles.completions import Completion
    from trainers.roles.sampling import SamplingSettings

ENDLESS_PROMPTS = 64
"""Prompts of an evaluation where the task has no end and the layout says no number."""
KEPT_ANSWERS = 64
"""Answers of an evaluation that are kept in the run directory."""
KEPT_FILES = 20
"""Newest evaluations whose answers are kept."""
MOST_CHARACTERS = 4000
"""Of a prompt or an answer that is kept."""

log = logging.getLogger("trainers")


class Asks(Protocol):
    """How an evaluation has its prompts answered: by a run's engines, or by one engine alone."""

    def __call__(
        self, prompts: Sequence[EnginePrompt], settings: Callable[[int], SamplingSettings]
    ) -> list[list[Completion]]:
        """The answers to each of ``prompts``; ``settings`` gives those of each chunk of them, by its number."""


class Evaluation:
    """The evaluation set of a layout, and what the model makes of it.

    Args:
        layout: The layout.
        codec: The model's tokenizer.
        ask: Has the engines answer.
        judge: The reward of each answer to each prompt.
        run: The run's directory; answers are kept in its folder ``evaluations``, which is made.
        make_task: Makes the task of the prompts, where that is not the layout's ``data.eval`` as it stands.

    Attributes:
        prompts: What is asked, the same in every evaluation.
        left_out: Prompts left out because they are longer than ``lengths.prompt``.

    Raises:
        ValueError: There is no such evaluation set, or no prompt of it can be used.
    """

    def __init__(
        self,
        layout: Layout,
        codec: Codec,
        ask: Asks,
        judge: Callable[[Sequence[Prompt], Sequence[Sequence[Completion]]], list[list[float]]],
        run: Path,
        make_task: Callable[[], Task] | None = None,
    ) -> None:
        self._layout, self._codec, self._ask, self._judge = layout, codec, ask, judge
        self._folder = run / rundir.EVALUATIONS
        self.prompts: list[Prompt] = []
        self.left_out = 0
        if layout.data.eval:
            task = make_task() if make_task else make_evaluation_task(layout, codec)
            whole = task.size or ENDLESS_PROMPTS
            wanted = layout.data.eval_prompts or whole
            self.prompts = task.prompts(0, min(wanted, whole) if task.size else wanted)
            self.left_out = task.left_out

    def is_due(self, step: int) -> bool:
        """Whether the state after ``step`` is to be evaluated: the first, the last, and every ``eval_every``-th."""
        every = self._layout.data.eval_every
        return bool(self.prompts and every) and (step % every == 0 or step == self._layout.train.steps)

    def is_missing(self, step: int) -> bool:
        """Whether the state after ``step`` is to be evaluated and was not, as where an attempt was stopped then."""
        return self.is_due(step) and not self._file(step).exists()

    def run(self, step: int) -> dict[str, float]:
        """Evaluate the engines' weights, which are those after ``step``; the metrics."""
        began = time.monotonic()
        groups = self._ask([prompt.request for prompt in self.prompts], self._settings)
        rewards = self._judge(self.prompts, groups)
        metrics = measures(groups, rewards, self._layout.data.eval_pass)
        metrics["time/evaluate"] = time.monotonic() - began
        self._keep(step, groups, rewards)
        log.info(summary(step, metrics, len(self.prompts), self._layout.data.eval_samples))
        return metrics

    def _settings(self, chunk: int) -> SamplingSettings:
        """Those of one chunk of prompts; the seed is the same in every evaluation, so that only the weights differ."""
        return evaluation_settings(self._layout, self._codec, derive_seed(EVALUATION_SEED, chunk))

    def _file(self, step: int) -> Path:
        return self._folder / f"{step_name(step)}.jsonl"

    def _keep(self, step: int, groups: Sequence[Sequence[Completion]], rewards: Sequence[Sequence[float]]) -> None:
        """Write some of the answers, the first ones of all prompts first, and forget those of old evaluations."""
        lines = [json.dumps(line, ensure_ascii=False) for line in self._answers(step, groups, rewards)]
        draft = self._folder / f".{step_name(step)}.{os.getpid()}"
        with unless_full():
            self._folder.mkdir(parents=True, exist_ok=True)
            draft.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            draft.replace(self._file(step))
        for old in sorted(self._folder.glob("step-*.jsonl"))[:-KEPT_FILES]:
            old.unlink()

    def _answers(
        self, step: int, groups: Sequence[Sequence[Completion]], rewards: Sequence[Sequence[float]]
    ) -> Iterator[dict[str, Any]]:
        numbers = [(sample, number) for number, group in enumerate(groups) for sample in range(len(group))]
        for sample, number in sorted(numbers)[:KEPT_ANSWERS]:
            answer = self.prompts[number], groups[number][sample], rewards[number][sample]
            yield answer_line(self._codec, step, *answer, MOST_CHARACTERS)


def measures(
    groups: Sequence[Sequence[Completion]], rewards: Sequence[Sequence[float]], passes: float
) -> dict[str, float]:
    """Metrics of the answers to an evaluation set.

    Args:
        groups: The answers to each prompt, as many for each.
        rewards: What each earned.
        passes: The least reward that passes.
    """
    samples = [sample for group in groups for sample in group]
    right = [sum(reward >= passes for reward in group) for group in rewards]
    count = len(groups[0])
    passed = {k: statistics.fmean(pass_at_k(count, c, k) for c in right) for k in budgets(count)}
    return {
        "eval/reward_mean": statistics.fmean(reward for group in rewards for reward in group),
        **{f"eval/pass_at_{k}": share for k, share in passed.items()},
        "eval/length_mean": statistics.fmean(sample.sampled_tokens for sample in samples),
        "eval/truncated_fraction": statistics.fmean(sample.finish_reason == "length" for sample in samples),
    }


def pass_at_k(samples: int, right: int, k: int) -> float:
    """Unbiased estimate of the chance that one of ``k`` answers is right: 1 - C(n - c, k) / C(n, k).

    Chen et al. 2021 ("Evaluating large language models trained on code"), with n = ``samples`` answers of which
    c = ``right`` are right.

    Raises:
        ValueError: ``k`` is not between 1 and ``samples``.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} needs at least {k} answers, there are {samples}")
    # comb is 0 where fewer than k are wrong: then every choice of k has a right one
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def budgets(samples: int) -> list[int]:
    """The k of pass@k that ``samples`` answers tell: powers of two, and all of them."""
    return sorted({2**power for power in range(samples.bit_length()) if 2**power <= samples} | {samples})


def ask_engines(
    engines: Sequence[Role],
    prompts: Sequence[EnginePrompt],
    settings: Callable[[int], SamplingSettings],
    deadline_s: float,
    sequences: int,
    check: Callable[[], None],
) -> list[list[Completion]]:
    """Have ``engines`` answer, in chunks of what one can work on at once; which one answers what is always the same.

    Args:
        engines: The engines.
        prompts: Token ids of each prompt, and its images.
        settings: Those of each chunk, by its number.
        deadline_s: Most seconds for one chunk.
        sequences: Most answers that an engine is asked for at once.
        check: Called while waiting; what it raises ends the wait.

    Raises:
        RoleError: An engine failed, died or did not answer in time.
    """
    size = prompts_per_chunk(len(prompts), settings(0).samples_per_prompt, len(engines), sequences)
    starts = range(0, len(prompts), size)
    calls = []
    for number, first in enumerate(starts):
        chunk = list(prompts[first : first + size])
        engine = engines[number % len(engines)]
        calls.append((engine, engine.actor.generate.remote(chunk, settings(number))))
    turns = -(-len(starts) // len(engines))
    answers = call_all(calls, deadline_s * turns, "answering the evaluation set", check=check)
    counts = [len(prompts[first : first + size]) for first in starts]
    return [group for found, count in zip(answers, counts, strict=True) for group in grouped(found, count)]


def summary(step: int, metrics: dict[str, float], prompts: int, samples: int) -> str:
    """One line for people: ``evaluation after step 50: reward 0.713  pass@1 0.688  pass@4 0.912  64 × 4 answers``."""
    names = [name for name in metrics if name.startswith("eval/pass_at_")]
    passed = "  ".join(f"pass@{name.removeprefix('eval/pass_at_')} {metrics[name]:.3f}" for name in names)
    count = f"{prompts} × {samples} answers" if samples > 1 else f"{prompts} answers"
    return (
        f"evaluation after step {step}: reward {metrics['eval/reward_mean']:.3f}  {passed}  {count} in "
        f"{metrics['time/evaluate']:.1f} s"
    )
