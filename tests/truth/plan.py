"""What ``rltui plan`` says of published runs that its rates were not chosen on: learners' throughput and whole steps.

``throughput_points.csv`` holds the points, each with its source. A point is predicted where all that the model needs is
published: mean lengths above all; ``why_not`` has the reason for each of the others. Each point is predicted twice, by
rates that :func:`fitted` chose on the points of other sources (``unseen source``), and of other runs (``unseen run``: a
run is a system, a model and a card). Only rates are held out: the form of the model was chosen with all points in view.

Padding and ZeRO's traffic are left out here, weights go to the engines in one pass, and the best division and width
stand for the published ones: a step is not computed by all that ``rltui plan`` prints.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from score import Figure, Score

from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.plan.candidates import engine_choices
from rltui.plan.rates import PUBLISHED, TRUST, Family, Rates, family
from rltui.plan.request import Request
from rltui.plan.setup import Training
from rltui.plan.throughput import broadcast_s, generate_s, model_step_s, training_compute_s

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rltui.plan.setup import EngineChoice

POINTS = Path(__file__).with_name("throughput_points.csv")
NODE = {"GB200": 32}
"""GPUs that share NVLink, where it is not 8: half of a GB200 rack."""


TRAINING_SHARES = (0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.14, 0.17, 0.2, 0.25, 0.3, 0.4, 0.5)
"""What a fit may choose from: the share of the peak FLOP/s that training reaches."""

STEPS_OF_A_RUN = 150


class Point(Struct, frozen=True, kw_only=True):
    """A published number as seconds, and what each share of the peak says of it.

    Attributes:
        name: Run, GPUs, mode and metric.
        source: The system that published it.
        run: System, model and card.
        family: The model's.
        published: Seconds.
        estimates: Seconds by share.
    """

    name: str
    source: str
    run: str
    family: Family
    published: float
    estimates: dict[float, float]


class Case(Struct, frozen=True, kw_only=True):
    """A published number beside an estimate whose rates were chosen without it."""

    point: Point
    estimate: float

    @property
    def off(self) -> float:
        """The factor between them, either way."""
        ratio = self.estimate / self.point.published
        return max(ratio, 1 / ratio)

    @property
    def error(self) -> float:
        """Relative error."""
        return abs(self.estimate / self.point.published - 1)


def points() -> list[dict[str, str]]:
    """The rows of the table."""
    with POINTS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def why_not(row: dict[str, str]) -> str:
    """Why a row is not predicted; empty: it is."""
    if row["metric"] in SAID_AGAIN:
        return "a predicted step or learner's throughput in other units"
    if row["metric"] == "peak_memory":
        return "memory, not time"
    if row["adapter"]:
        return "LoRA, which plan does not plan"
    if row["metric"] == "weight_sync_time":
        return "the division of its GPUs is not published"
    if find_gpu(row["gpu"]) is None or find_model(row["model"]) is None:
        return "model or card are not in the tables"
    return "" if row["mean_tokens"] else "mean length is not published"


SAID_AGAIN = ("e2e_throughput", "aggregate_throughput", "learner_mfu")


def predicted() -> list[Point]:
    """Every point that can be predicted; tokens per second are taken as seconds per token."""
    found = []
    for row in points():
        if why_not(row):
            continue
        request = _request(row)
        run = "/".join((row["system"], row["model"], row["gpu"]))
        found.append(
            Point(
                name=f"{run} ×{row['gpus']} {row['mode']} {row['metric']}",
                source=row["system"],
                run=run,
                family=family(request.model),
                published=_published(row, request),
                estimates=dict(_estimates(row, request)),
            )
        )
    return found


def _published(row: dict[str, str], request: Request) -> float:
    value = float(row["value"])
    if row["metric"] == "time_150_steps":
        return value * 3600 / STEPS_OF_A_RUN
    if row["metric"] == "learner_throughput_total":
        return request.samples_per_step * request.mean_tokens / value
    return value


def _estimates(row: dict[str, str], request: Request) -> Iterator[tuple[float, float]]:
    estimate = _train_only if row["metric"] == "learner_throughput_total" else _step
    for training in TRAINING_SHARES:
        rates = Rates(training=training, decode=PUBLISHED[family(request.model)].decode)
        yield training, estimate(structs.replace(request, rates=rates))


def fitted(seen: Sequence[Point]) -> float:
    """The share with the least mean factor between estimates and published numbers."""
    return min(
        TRAINING_SHARES,
        key=lambda share: sum(abs(math.log(each.estimates[share] / each.published)) for each in seen),
    )


def held_out(found: Sequence[Point], group: Callable[[Point], str]) -> Iterator[Case]:
    """Each point by what was fitted on its family's points of other groups; none where there are no others."""
    for point in found:
        seen = [each for each in found if each.family == point.family and group(each) != group(point)]
        if seen:
            yield Case(point=point, estimate=point.estimates[fitted(seen)])


def _request(row: dict[str, str]) -> Request:
    model, gpu = find_model(row["model"]), find_gpu(row["gpu"])
    assert model is not None
    assert gpu is not None
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


def _train_only(request: Request) -> float:
    return training_compute_s(request, _learner(request, request.total_gpus), request.model, 4)


def _step(request: Request) -> float:
    """Learner and engines take turns, or rollouts run ahead on GPUs in the best division.

    Which division and width of engines a published run had is not in the table; the best stands for it.
    """
    eighths = range(1, 8) if request.async_steps else (8,)
    engines = [each for each in engine_choices(request) if each.memory.verdict != "no"]
    return min(seconds for engine in engines for eighth in eighths for seconds in _one_step(request, engine, eighth))


def _one_step(request: Request, engine: EngineChoice, eighths: int) -> Iterator[float]:
    """Seconds, where that leaves room for learner and engine."""
    learners = request.total_gpus * eighths // 8
    engines = (request.total_gpus - learners if request.async_steps else learners) // engine.tensor_parallel
    if learners and engines:
        generate = generate_s(request, engine, engines)[0]
        train = training_compute_s(request, _learner(request, learners), request.model, 5)
        yield model_step_s(request, generate, train) + broadcast_s(request)


def score() -> Score:
    """Median error, share within a factor of 1.5 and within the range that ``plan`` prints, of held-out points."""
    found = predicted()
    by_source = list(held_out(found, lambda each: each.source))
    by_run = list(held_out(found, lambda each: each.run))
    figures = [Figure("published numbers that are predicted", len(found), 17, True, len(points()))]
    figures += [*_figures("unseen source", by_source), *_figures("unseen run", by_run)]
    figures.append(Figure("families whose rates in use are not the fitted ones", len(_unlike(found)), 0, False, 2))
    worst = sorted(by_run, key=lambda each: each.off, reverse=True)[:5]
    reasons = Counter(why_not(row) for row in points() if why_not(row))
    return Score(
        predictor="plan",
        figures=tuple(figures),
        worst=(
            *((each.point.name, f"{each.estimate:.3g} s for {each.point.published:.3g} s") for each in worst),
            *((f"{number} not predicted", reason) for reason, number in reasons.most_common()),
        ),
    )


def _unlike(found: Sequence[Point]) -> list[Family]:
    """Families whose rate in ``rltui.plan.rates`` is not what all of their points say."""
    by_family = {each.family: fitted([other for other in found if other.family == each.family]) for each in found}
    return [name for name, chosen in by_family.items() if PUBLISHED[name].training != chosen]


BOUNDS = {"unseen source": (23.7, 64.2, 85.7), "unseen run": (22.9, 82.3, 94.1)}
"""Worst median error, least share within a factor of 1.5, least share within the printed range (all %)."""


def _figures(group: str, found: list[Case]) -> Iterator[Figure]:
    error, near, covered = BOUNDS[group]
    median = statistics.median(each.error for each in found)
    within = sum(each.off <= 1.5 for each in found) / len(found)
    inside = sum(each.off <= TRUST[each.point.family].factor for each in found) / len(found)
    yield Figure(f"median error, {group} (%)", 100 * median, error, False, len(found))
    yield Figure(f"within a factor of 1.5, {group} (%)", 100 * within, near, True, len(found))
    yield Figure(f"within the range that plan prints, {group} (%)", 100 * inside, covered, True, len(found))
