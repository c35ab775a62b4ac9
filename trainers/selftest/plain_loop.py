"""vLLM without a trainer, on as many prompts as a step has: what a run's engine could reach."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rltui.layout.schema import Layout
from rltui.onnode import rundir
from trainers.data.models import resolve_model
from trainers.selftest.found import FOLDER, Found, SkippedError, middle
from trainers.selftest.nodes import answers, join, worker
from trainers.selftest.run_parts import Run, lines_of, wants_module

ROUNDS = 3
LEAST_TOKEN = 3
"""Below are special tokens."""


def plain_loop(found: Found) -> None:
    """Compare the short run's engine with vLLM alone."""
    found.skipped("TRL", "`make bench` trains the same task by it")
    if found.on_cpu:
        raise SkippedError("there is no card")
    wants_module("vllm")
    run = _run(found.attempt)
    path = resolve_model(found.layout.roles.learner.model, found.layout, lambda _words, _done: None)
    [alone] = answers([worker(found.layout, join()[0]).begin(generate, found.layout, path)], found.part.deadline_s)
    if run is None:
        found.ok("", f"{alone:,.0f} tokens/s; there is no short run to compare with", plain_tokens_per_s=alone)
        return
    own = run.middle("actor_tokens_per_second") / max(1, found.layout.num_engines)
    words = f"{alone:,.0f} tokens/s alone, {own:,.0f} an engine in the run ({own / alone:.0%})"
    found.ok("", words, plain_tokens_per_s=alone, run_tokens_per_s=own)


def _run(attempt: Path) -> Run | None:
    path = attempt / FOLDER / "grpo" / rundir.ATTEMPTS / "01"
    metrics = lines_of(path / rundir.METRICS)
    return Run(path, metrics) if metrics else None


def generate(layout: Layout, path: str) -> float:
    """Response tokens/s of vLLM on a step's prompts, all of them at once, to their full length."""
    from vllm import LLM, SamplingParams

    engine = LLM(path, dtype="bfloat16", max_model_len=layout.lengths.prompt + layout.lengths.response)
    count, train = layout.lengths.response, layout.train
    sampling = SamplingParams(n=train.samples_per_prompt, max_tokens=count, ignore_eos=True)
    prompts: Any = [{"prompt_token_ids": [LEAST_TOKEN] * layout.lengths.prompt}] * train.prompts_per_step
    times = []
    for _ in range(ROUNDS):
        began = time.monotonic()
        engine.generate(prompts, sampling, use_tqdm=False)
        times.append(time.monotonic() - began)
    return train.samples_per_step * count / middle(times[1:])
