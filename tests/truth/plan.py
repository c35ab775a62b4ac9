"""What ``rltui plan`` says of published runs: learners' throughput, phases and whole steps.

``throughput_points.csv`` holds the points, each with its source. A point is predicted where all that the model needs is
published: mean lengths above all. The rates of mixtures were searched for on the half called
``fit``; which half a point is in goes by system, model and card, so that one run is never in both. The second half is
not unseen: it was looked at while the form of the model and the rates of small models were chosen.

Links (ZeRO's traffic, weight sync) and padding are left out here, and the best division and width stand for
the published ones: a step is not computed by all that ``rltui plan`` prints.
"""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from score import Figure, Score

from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.plan.candidates import engine_choices
from rltui.plan.rates import family
from rltui.plan.request import Request
from rltui.plan.setup import Training
from rltui.plan.throughput import generate_s, model_step_s, training_compute_s

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.plan.setup import EngineChoice

POINTS = Path(__file__).with_name("throughput_points.csv")
NODE = {"GB200": 32}
"""GPUs that share NVLink, where it is not 8: half of a GB200 rack."""


class Case(Struct, frozen=True, kw_only=True):
    """A published number beside the estimate."""

    name: str
    family: str
    half: str
    published: float
    estimate: float

    @property
    def ratio(self) -> float:
        """Estimate over published, as a time: above 1 is too slow."""
        return self.estimate / self.published


def points() -> list[dict[str, str]]:
    """The rows of the table."""
    with POINTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cases() -> Iterator[Case]:
    """Every point that can be predicted; tokens per second are taken as seconds per token."""
    halves = _halves()
    for row in points():
        request = _request(row)
        if request is None:
            continue
        estimate = _estimate(row, request)
        published = float(row["value"])
        if row["metric"] == "learner_throughput_total":
            published = request.prompts * request.samples * request.mean_tokens / published
        run = _run(row)
        yield Case(
            name=f"{run} ×{row['gpus']} {row['mode']} {row['metric']}",
            family=family(request.model),
            half=halves[run],
            published=published,
            estimate=estimate,
        )


def _run(row: dict[str, str]) -> str:
    return "/".join((row["system"], row["model"], row["gpu"]))


def _halves() -> dict[str, str]:
    """Runs that can be predicted, every other one in the second half."""
    runs = sorted({_run(row) for row in points() if _request(row) is not None})
    return {run: "second" if index % 2 else "fit" for index, run in enumerate(runs)}


def _request(row: dict[str, str]) -> Request | None:
    model, gpu = find_model(row["model"]), find_gpu(row["gpu"])
    if model is None or gpu is None or not row["mean_tokens"] or row["metric"] not in ESTIMATES or row["adapter"]:
        return None
    gpus, node = int(row["gpus"]), NODE.get(row["gpu"], 8)
    prompt, mean = float(row["prompt_tokens"] or 0), float(row["mean_tokens"])
    samples = int(row["samples"])
    return Request(
        model_name=row["model"],
        model=model,
        gpu=gpu,
        nodes=max(1, gpus // node),
        gpus_per_node=min(gpus, node),
        prompt_tokens=int(prompt),
        response_tokens=int(row["limit_tokens"]),
        response_mean=mean - prompt,
        prompts=max(1, samples // 16),
        samples=min(16, samples),
        async_steps=int(row["async_steps"]),
    )


def _learner(request: Request, gpus: int) -> Training:
    node = request.gpus_per_node
    bundles = (node,) * (gpus // node) or (gpus,)
    return Training(gpus=bundles, zero_stage=3, micro_batch=1, gradient_checkpointing=True)


def _train_only(row: dict[str, str], request: Request) -> float:
    learner = _learner(request, request.total_gpus)
    return training_compute_s(request, learner, request.model, 4)


def _step(row: dict[str, str], request: Request) -> float:
    """A step whose learner and engines take turns, or whose rollouts run ahead on GPUs in the best division.

    Which division and width of engines a published run had is not in the table; the plan's own choice stands for it.
    """
    shares = (0.25, 0.5, 0.75) if request.async_steps else (1.0,)
    engines = [each for each in engine_choices(request) if each.memory.verdict != "no"]
    return min(_one_step(request, engine, share) for engine in engines for share in shares)


def _one_step(request: Request, engine: EngineChoice, share: float) -> float:
    learners = int(request.total_gpus * share)
    rest = request.total_gpus - learners if request.async_steps else learners
    generate = generate_s(request, engine, max(1, rest // engine.tensor_parallel))[0]
    train = training_compute_s(request, _learner(request, learners), request.model, 5)
    return model_step_s(request, generate, train)


ESTIMATES: dict[str, Any] = {"step_time": _step, "learner_throughput_total": _train_only}


def _estimate(row: dict[str, str], request: Request) -> float:
    value: float = ESTIMATES[row["metric"]](row, request)
    return value


def _off(each: Case) -> float:
    return max(each.ratio, 1 / each.ratio)


def score() -> Score:
    """Median error and share within a factor 1.5, of both halves, and the worst."""
    found = list(cases())
    figures = [figure for half in HALVES for figure in _figures(half, [each for each in found if each.half == half])]
    worst = sorted(found, key=_off, reverse=True)[:5]
    return Score(
        predictor="plan",
        figures=tuple(figures),
        worst=tuple((each.name, f"{each.estimate:.3g} s for {each.published:.3g} s") for each in worst),
    )


HALVES = {"fit": (29.2, 60.0), "second": (24.8, 100.0)}
"""Worst median error and least share within a factor of 1.5 (both %), by half."""


def _figures(half: str, found: list[Case]) -> Iterator[Figure]:
    error, near = HALVES[half]
    median = statistics.median(abs(each.ratio - 1) for each in found)
    within = sum(_off(each) <= 1.5 for each in found) / len(found)
    yield Figure(f"median error, {half} (%)", 100 * median, error, False, len(found))
    yield Figure(f"within a factor of 1.5, {half} (%)", 100 * within, near, True, len(found))
