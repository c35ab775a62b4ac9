"""Canned samples and settings: a group of answers to one prompt, hostile ones, and a run that was changed."""

from __future__ import annotations

import re

from rltui.service.config import RunConfig, Setting
from rltui.watch.sample_text import escaped
from rltui.watch.samples import Sample, SampleGroup, SampleQuery

PROMPT = "<|im_start|>user\nHow many primes are below ten?<|im_end|>\n<|im_start|>assistant\n"
RIGHT = "Let me count them: two, three, five, seven.\nThat makes 4.<|im_end|>"
ANSWERS = (
    (RIGHT, 1.0, 17),
    ("Let me count them: one, two, three, five, seven.\nThat makes 5.<|im_end|>", 0.0, 18),
    ("There are five, I think.", 0.0, 7),
    ("", 0.0, 1),
)
HOSTILE = "\x1b]0;owned\x07 \x1b[2J [bold]markup[/bold] \u202egnp.exe 質問に答えます " + "very" * 60


def _sample(number: int, step: int, answer: str, reward: float, tokens: int, prompt: str = PROMPT) -> Sample:
    return Sample(
        path="samples.jsonl",
        offset=number * 100,
        length=99,
        step=step,
        reward=reward,
        tokens=tokens,
        version=step - 1,
        finish_reason="stop" if tokens < 1000 else "length",
        prompt=escaped(prompt),
        answer=escaped(answer),
        right_answer="4",
    )


SAMPLES = (
    *(_sample(number, 412, *one) for number, one in enumerate(ANSWERS)),
    _sample(4, 411, HOSTILE, float("nan"), 4096, prompt="\x1b[31mred\x1b[0m <s>[INST] hi [/INST]"),
    *(_sample(5 + back, 410 - back, f"Answer number {back}: it is {back % 7}.", back % 3 - 1.0, 40 + back, f"Q{back}")
      for back in range(40)),
)  # fmt: skip


def canned_samples(query: SampleQuery) -> tuple[Sample, ...]:
    wanted = [
        one
        for one in SAMPLES
        if (query.step in (None, one.step)) and re.search(query.grep, one.answer) and not query.evaluation
    ]
    keys = {"newest": lambda one: one.offset, "best": lambda one: -one.reward, "longest": lambda one: -one.tokens}
    wanted.sort(key=keys.get(query.order, lambda one: one.reward))
    return tuple(wanted[: query.limit])


def canned_group(sample: Sample) -> SampleGroup:
    alike = [one for one in SAMPLES if (one.step, one.prompt) == (sample.step, sample.prompt)]
    return SampleGroup(chosen=sample, siblings=tuple(sorted(alike, key=lambda one: -one.reward)))


CONFIG = RunConfig(
    run_id="grpo-tiny-1a2b",
    attempt=2,
    against="attempt 1",
    settings=(
        Setting(key="name", value="grpo-tiny", origin="/home/ada/rl/layouts/grpo.yaml:2", before="grpo-tiny"),
        Setting(key="hardware.nodes", value=2, origin="/home/ada/rl/layouts/base.yaml:7", before=2),
        Setting(
            key="roles.rollout.memory_utilization", value=0.8, origin="fix, attempt 2", before=0.9, differs=True
        ),
        Setting(key="roles.rollout.engine_args.max_num_batched_tokens", value=8192, origin="override at launch",
                before=8192),
        *(Setting(key=f"train.knob_{number}", value=number, origin="default", before=number) for number in range(40)),
    ),
)  # fmt: skip
