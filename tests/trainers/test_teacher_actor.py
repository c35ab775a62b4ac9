"""Both kinds of teacher, and of judge, say the same of given tokens, as Ray actors, the real libraries behind them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import ray
import torch
from engine_support import PATHS, ROOT, STOP, build_model, own_ray, random_prompts

from rltui.layout.load import load_layout
from trainers.data.batch import Sample, join_columns, split
from trainers.data.columns import TeacherScores
from trainers.roles.completions import Completion, Request, Streamed
from trainers.roles.engine_environment import engine_environment
from trainers.roles.judge import Judge
from trainers.roles.sampling import SamplingSettings
from trainers.roles.teacher import Teacher
from waiting import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.layout.roles import Served
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
    words += [f"roles.judge={{model: builtin/tiny-qwen3, engine: {engine}, precision: fp32, context: 33}}"]
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


def environment_of(role: Served | None) -> dict[str, str]:
    """The environment of a process of ``role``."""
    assert role is not None
    return {**engine_environment(role, on_cpu=True), "PYTHONPATH": PATHS}


def questions() -> list[Request]:
    """To a judge: tokens to score, and between them prompts to go on from greedily."""
    given = [
        Request(
            n, list(one.prompt_ids), SamplingSettings(0.0, len(one.response_ids), 1, (), 0, forced=one.response_ids)
        )
        for n, one in enumerate(student_samples())
    ]
    return [*given[:2], Request(100, [5, 6, 7], SamplingSettings(0.0, 6, 1, (STOP,), 0)), *given[2:]]


def verdicts_of(actor: Any) -> dict[int, list[Completion]]:
    """A judge's answers to all questions."""
    asked, found = questions(), dict[int, list[Completion]]()
    left = len(asked)
    while left:
        streamed: Streamed = ray.get(actor.stream.remote(asked, 0), timeout=WAIT_S)
        asked, found, left = [], found | streamed.answers, streamed.left
    return found


@pytest.fixture(scope="module")
def verdicts() -> dict[str, dict[int, list[Completion]]]:
    """What each kind of judge answers, once ``scores`` has asked it."""
    return {}


@pytest.fixture(scope="module")
def scores(
    tmp_path_factory: pytest.TempPathFactory, verdicts: dict[str, dict[int, list[Completion]]]
) -> Iterator[dict[str, list[TeacherScores]]]:
    """What each kind of teacher answers for the two parts."""
    path: Path = tmp_path_factory.mktemp("model")
    build_model().save_pretrained(path)
    found = {}
    with own_ray():
        actors, judges = {}, {}
        for engine in ("vllm", "hf"):
            layout = layout_of(engine)
            for kind, made, role in ((Teacher, actors, layout.roles.teacher), (Judge, judges, layout.roles.judge)):
                options = {"num_cpus": int(kind is Teacher), "runtime_env": {"env_vars": environment_of(role)}}
                made[engine] = ray.remote(kind).options(**options).remote(layout, 0, str(path))
        ray.get([actor.load.remote() for actor in (*actors.values(), *judges.values())], timeout=WAIT_S)
        for engine, actor in actors.items():
            found[engine] = ray.get([actor.score.remote(part) for part in PARTS], timeout=WAIT_S)
        verdicts |= {engine: verdicts_of(judge) for engine, judge in judges.items()}
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


@pytest.mark.usefixtures("scores")
@pytest.mark.parametrize("engine", ["vllm", "hf"])
def test_a_judge_scores_tokens_that_it_is_given_beside_those_that_it_samples(
    verdicts: dict[str, dict[int, list[Completion]]], engine: str
) -> None:
    model, found = build_model(), verdicts[engine]
    for number, sample in enumerate(student_samples()):
        [said] = found[number]
        assert said.token_ids == sample.response_ids
        tokens, count = [*sample.prompt_ids, *sample.response_ids], len(sample.response_ids)
        plain = plain_scores(model, tokens, count, 1.0)[range(count), tokens[-count:]].numpy()
        assert np.abs(np.asarray(said.log_probs) - plain).max() < TOLERANCE
    [spoken] = found[100]
    plain = plain_scores(model, [5, 6, 7, *spoken.token_ids], len(spoken.token_ids), 1.0)
    assert list(spoken.token_ids) == plain.argmax(dim=-1).tolist()
