"""Both kinds of teacher say the same of the student's tokens, as Ray actors with the real libraries behind them."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import ray
import torch
from engine_support import PATHS, ROOT, WAIT_S, build_model, own_ray, random_prompts

from rltui.layout.load import load_layout
from trainers.data.batch import Sample, join_columns, split
from trainers.roles.engine_environment import engine_environment
from trainers.roles.teacher import Teacher, TeacherScores

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rltui.layout.schema import Layout

pytestmark = [
    pytest.mark.trainers,
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]

TEMPERATURE = 0.7
TOP_K = 6
TOLERANCE = 1e-4
"""Largest difference of log-probs in float32, in nats."""


def layout_of(engine: str) -> Layout:
    words = [f"roles.teacher.engine={engine}", f"train.temperature={TEMPERATURE}", f"opd.top_k={TOP_K}"]
    words += ["lengths.prompt=16", "lengths.response=16"]
    return load_layout(ROOT / "layouts" / "local" / "opd-tiny.yaml", words).layout


def student_samples() -> list[Sample]:
    """Samples of several lengths, among them one longer than its neighbours on both sides of the padding."""
    prompts, responses = random_prompts([3, 16, 1, 8, 5], seed=1), random_prompts([16, 1, 9, 4, 12], seed=2)
    return [Sample(tuple(p), tuple(r), {}) for p, r in zip(prompts, responses, strict=True)]


PARTS = split(student_samples(), 2)
"""The samples as two replicas get them; the sixth row only fills up."""


def plain_scores(model: Any, tokens: list[int], count: int, temperature: float) -> torch.Tensor:
    """log_softmax(logits / temperature) [R, V] at the last ``count`` tokens, in a pass without padding."""
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0, -count - 1 : -1]
    return torch.log_softmax(logits.float() / temperature, dim=-1)


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[TeacherScores]]]:
    """What each kind of teacher answers for the two parts."""
    path: Path = tmp_path_factory.mktemp("model")
    build_model().save_pretrained(path)
    found = {}
    with own_ray():
        actors = {}
        for engine in ("vllm", "hf"):
            layout = layout_of(engine)
            assert layout.roles.teacher is not None
            environment = {**engine_environment(layout.roles.teacher, on_cpu=True), "PYTHONPATH": PATHS}
            actor = ray.remote(Teacher).options(num_cpus=1, runtime_env={"env_vars": environment})
            actors[engine] = actor.remote(layout, 0, str(path))
        ray.get([actor.load.remote() for actor in actors.values()], timeout=WAIT_S)
        for engine, actor in actors.items():
            found[engine] = ray.get([actor.score.remote(part) for part in PARTS], timeout=WAIT_S)
        yield found


@pytest.mark.parametrize("engine", ["vllm", "hf"])
def test_scores_are_those_of_a_plain_forward_at_the_students_temperature(
    scores: dict[str, list[TeacherScores]], engine: str
) -> None:
    samples, model = student_samples(), build_model()
    sampled, ids, likeliest = (
        join_columns([getattr(part, name) for part in scores[engine]], PARTS, samples)
        for name in ("log_probs", "top_ids", "top_log_probs")
    )
    for number, sample in enumerate(samples):
        tokens, count = [*sample.prompt_ids, *sample.response_ids], len(sample.response_ids)
        plain, at_one = (plain_scores(model, tokens, count, temperature) for temperature in (TEMPERATURE, 1.0))
        own, other = (values[range(count), tokens[-count:]].numpy() for values in (plain, at_one))
        best = plain.topk(TOP_K, dim=-1)
        assert np.abs(sampled[number] - own).max() < TOLERANCE
        assert np.abs(sampled[number] - other).max() > 100 * TOLERANCE
        assert np.abs(likeliest[number] - best.values.numpy()).max() < TOLERANCE
        assert (ids[number] == best.indices.numpy()).all()


def test_rows_that_fill_up_and_places_without_a_token_get_nothing(scores: dict[str, list[TeacherScores]]) -> None:
    assert sum(not row.any() for part in PARTS for row in part.response_mask) == 1
    for part, found in zip(PARTS, scores["vllm"], strict=True):
        mask = part.response_mask
        assert found.log_probs.shape == mask.shape
        assert found.top_ids.shape == found.top_log_probs.shape == (*mask.shape, TOP_K)
        assert not found.log_probs[~mask].any()
        assert not found.top_log_probs[~mask].any()
        assert (found.log_probs[mask] < 0).all()
