"""What ``rltui plan`` says of published runs that its rates were not chosen on: steps, their phases, learners alone.

``throughput_points.csv`` holds the points, each with its source. A point is predicted where all that the model needs is
published: mean lengths above all; ``why_not`` has the reason for each of the others. Rates are chosen by :func:`fitted`
on the sources marked ``fit``. A source marked ``test`` was written down before the form of the model and its constants
were chosen, and nothing is chosen on it. Each point is predicted by rates that know nothing of its source (``unseen
source``) or of its run (a run is a system, a model and a card).

Padding and ZeRO's traffic are left out here, since these systems pack samples and mostly divide models otherwise: a
step is not computed by all that ``rltui plan`` prints. Where the division of the GPUs is not published, the best stands
for it; where that of a learner's layers is not, it counts as costing nothing.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs
from score import Figure, Score

from rltui.hardware.gpus import find_gpu
from rltui.hardware.models import find_model
from rltui.hardware.parameters import count_parameters
from rltui.memory.from_layout import ENGINE_SEQUENCES
from rltui.plan.candidates import engine_choices, engine_of
from rltui.plan.decoding import decode_step_s, generate_s, steady_s
from rltui.plan.rates import PUBLISHED, TRUST, Family, Rates, family, training_share
from rltui.plan.request import Means, Request
from rltui.plan.setup import Training
from rltui.plan.throughput import broadcast_s, load_s, model_step_s
from rltui.plan.training import optimizer_s, training_compute_s

if TYPE_CHECKING:
    from rltui.plan.setup import EngineChoice

POINTS = Path(__file__).with_name("throughput_points.csv")
NODE = {"GB200": 4, "GB300-288GB": 4}
"""GPUs of a node where it is not 8."""

TRAINING_SHARES = tuple(each / 100 for each in range(22, 66, 4))
DECODE_SHARES = (0.4, 0.5, 0.6, 0.7, 0.8)
CHOICES = tuple(product(TRAINING_SHARES, DECODE_SHARES))
"""What a fit may choose from: shares of the peak FLOP/s in training, and of the bandwidth in decoding, of which a copy
reaches 82 %."""

WEIGHTS = {"step": 2, "learner": 1, "decode": 1}
"""By how much a kind of points counts in a fit: whole steps are what ``plan`` prints."""

FLOAT32_FLOPS_PER_S = 33e12
"""Of an H100 that multiplies in float32 without its tensor cores, as TRL's loss in chunks did before version 1.13: 23.4
ms for 256 tokens of a vocabulary of 248,320 and 2,048 wide, forward and backward, say its release notes."""

SAVED_BYTES_PER_S = 3.4e9
"""At which prime-rl's trainer writes all weights to disk after each step of its benchmark: read off the differences
between runs of one model with and without adapters, 2.1 to 2.4 s for 4B and 17.5 to 19.6 s for 30B-A3B."""

STEPS_OF_A_RUN = 150

PASSES = {"train_time": 4, "learner_throughput_total": 4}
"""Forward, backward and recomputation; a step has log-probs too. Where a source says otherwise, its row does."""


class Point(Struct, frozen=True, kw_only=True):
    """A published number as seconds, and what each choice of rates says of it.

    Attributes:
        name: Run, GPUs, mode and metric.
        source: The system that published it.
        run: System, model and card.
        kind: ``step``, ``learner`` or ``decode``: what was timed.
        is_test: Whether its source is held back from every choice.
        family: The model's.
        published: Seconds.
        estimates: Seconds by shares of training and decoding.
    """

    name: str
    source: str
    run: str
    kind: str
    is_test: bool
    family: Family
    published: float
    estimates: dict[tuple[float, float], float]


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
    if not row["mean_tokens"]:
        return "mean length is not published"
    return "" if row["metric"] in ALONE or _engines(row, _request(row)) else "engines wider than a node"


SAID_AGAIN = ("e2e_throughput", "aggregate_throughput", "learner_mfu")
DIVISION = {
    "tp": "tensor_parallel",
    "cp": "sequence_parallel",
    "pp": "pipeline_parallel",
    "vp": "virtual_stages",
    "ep": "expert_parallel",
    "mb": "micro_batch",
}
"""Words of the column that says how a learner is divided, where that is published: "tp2 pp8 vp4"."""

MEGATRONS = (
    *("Megatron-LM", "Megatron-Bridge", "Megatron-MoE-ModelZoo", "Pai-Megatron-Patch", "Automodel"),
    *("awsome-distributed", "slime", "miles"),
)

FUSED = ("Automodel", "Megatron-Bridge")
"""Systems whose published recipes name DeepEP or HybridEP where the row does not say "plain all-to-all"."""

REAL_DATA = ("ms-swift", "TRL")
"""Systems whose published learners trained on data; those of others had experts in balance by force."""

ALONE = ("learner_throughput_total", "train_time", "logprob_time")
"""Metrics in which no engine has a part."""


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
                kind="learner" if row["metric"] in ALONE else "decode" if row["metric"] == "decode_step" else "step",
                is_test=row["set"] == "test",
                family=family(request.model),
                published=_published(row, request),
                estimates=_estimates(row, request),
            )
        )
    return found


def _published(row: dict[str, str], request: Request) -> float:
    value = float(row["value"])
    if row["metric"] == "time_150_steps":
        return value * 3600 / STEPS_OF_A_RUN
    if row["metric"] == "learner_throughput_total":
        return request.samples_per_step * request.mean_tokens / value
    return value / 1000 if row["unit"] == "ms" else value


def _estimates(row: dict[str, str], request: Request) -> dict[tuple[float, float], float]:
    engines = [] if row["metric"] in ALONE else _engines(row, request)
    return {
        (training, decode): _estimate(
            row,
            structs.replace(request, rates=Rates(training=training_share(training, request.gpu), decode=decode)),
            engines,
        )
        for training, decode in CHOICES
    }


def _estimate(row: dict[str, str], request: Request, engines: Sequence[EngineChoice]) -> float:
    if row["metric"] in ALONE:
        learner = _learner(request, request.total_gpus, row)
        train = training_compute_s(request, learner, request.model, _passes(row))
        train += optimizer_s(request, request.model, learner) if learner.offload else 0.0
        saved = 2 * count_parameters(request.model).total / SAVED_BYTES_PER_S if "saved" in row["mode"] else 0.0
        return train + saved + ("float32 head" in row["mode"]) * _float32_head_s(request)
    if row["metric"] == "decode_step":
        return decode_step_s(request, int(row["tensor_parallel"]), float(row["samples"]))[0]
    if row["metric"] == "gen_time":
        return min(generate_s(request, each, request.total_gpus // each.tensor_parallel)[0] for each in engines)
    if row["learners"]:
        learners = [int(row["learners"])]
    else:
        eighths = range(1, 8) if request.async_steps else (8,)
        learners = [request.total_gpus * each // 8 for each in eighths]
    return min(seconds for each in engines for count in learners for seconds in _one_step(request, each, count, row))


def _float32_head_s(request: Request) -> float:
    """Seconds of an LM head in float32 whose chunks are recomputed: four products of matrices for each token."""
    flops = 8 * request.model.hidden * request.model.vocab
    return request.samples_per_step * request.mean_tokens * flops / (request.total_gpus * FLOAT32_FLOPS_PER_S)


def _passes(row: dict[str, str]) -> int:
    return int(row["passes"] or PASSES.get(row["metric"], 5))


def fitted(seen: Sequence[Point]) -> tuple[float, float]:
    """The shares with the least mean factor between estimates and published numbers.

    Runs of one kind count alike, and kinds by their weights: many decode steps do not outvote few whole ones.
    """
    groups: dict[str, dict[str, list[Point]]] = {}
    for each in seen:
        groups.setdefault(each.kind, {}).setdefault(each.run, []).append(each)

    def off(choice: tuple[float, float]) -> float:
        return sum(
            WEIGHTS[kind]
            * statistics.fmean(
                statistics.fmean(abs(math.log(each.estimates[choice] / each.published)) for each in of_run)
                for of_run in runs.values()
            )
            for kind, runs in groups.items()
        )

    return min(CHOICES, key=off)


def held_out(found: Sequence[Point], group: Callable[[Point], str]) -> Iterator[Case]:
    """Each point by what was fitted on its family's points of other groups; none where there are no others."""
    for name, of_family in {(group(each), each.family) for each in found}:
        seen = [each for each in _seen(found, of_family) if group(each) != name]
        chosen = fitted(seen) if seen else None
        for point in found:
            if chosen and group(point) == name and point.family == of_family:
                yield Case(point=point, estimate=point.estimates[chosen])


def _seen(found: Sequence[Point], of_family: Family) -> list[Point]:
    return [each for each in found if each.family == of_family and not each.is_test]


def _request(row: dict[str, str]) -> Request:
    model, gpu = find_model(row["model"]), find_gpu(row["gpu"])
    assert model is not None
    assert gpu is not None
    gpus, node = int(row["gpus"]), NODE.get(row["gpu"], 8)
    prompt, mean = float(row["prompt_tokens"] or 0), float(row["mean_tokens"])
    samples = int(row["samples"])
    wide = int(row["tensor_parallel"] or 1) > node
    return Request(
        model_name=row["model"],
        model=model,
        gpu=gpu,
        nodes=max(1, gpus // node),
        gpus_per_node=min(gpus, node),
        prompt_tokens=int(prompt),
        response_tokens=int(float(row["limit_tokens"]) - prompt),
        response_mean=mean - prompt,
        prompts=max(1, samples // 16),
        samples=min(16, samples),
        async_steps=int(row["async_steps"]),
        engine_sequences=int(row["sequences"] or ENGINE_SEQUENCES),
        eager="eager" in row["mode"],
        means=Means(wide_engines=wide),
    )


def _learner(request: Request, gpus: int, row: dict[str, str]) -> Training:
    """Learners as the row divides them, with rows as long as the longest sample."""
    node = request.gpus_per_node
    way = Training(
        gpus=(node,) * (gpus // node) or (gpus,),
        zero_stage=3,
        micro_batch=1,
        gradient_checkpointing=True,
        offload="optimizer in host memory" in row["mode"],
        packed_tokens=math.ceil(max(float(row["limit_tokens"]), float(row["mean_tokens"]))),
        megatron=_is_megatron(row),
        dispatch="fused" if _is_fused(row) else "plain",
        routed_evenly=_is_benchmark(row),
        loops_experts="loop over experts" in row["mode"] or (row["system"], row["version"]) == ("verl", "fsdp"),
    )
    return structs.replace(way, **{DIVISION[word[:2]]: int(word[2:]) for word in row["division"].split()})


def _is_fused(row: dict[str, str]) -> bool:
    """Whether tokens get to experts by DeepEP or HybridEP."""
    mode = row["mode"].lower()
    named = "deepep" in mode or "hybridep" in mode
    return named or (row["system"] in FUSED and "plain all-to-all" not in mode)


def _is_benchmark(row: dict[str, str]) -> bool:
    """Whether experts got equally many tokens by force: in benchmarks of learners, unless they say otherwise."""
    alone = row["metric"] == "learner_throughput_total" and row["system"] not in REAL_DATA
    return alone and "natural routing" not in row["mode"]


def _is_megatron(row: dict[str, str]) -> bool:
    """Whether the layers of a learner are Megatron's, or Automodel's, which are of Transformer Engine like them."""
    if row["system"] == "NeMo-RL":
        return "DTensor" not in row["mode"]
    if row["system"] in {"verl", "ms-swift"}:
        return row["version"] == "megatron" or "Megatron" in row["mode"]
    return row["system"] in MEGATRONS


def _engines(row: dict[str, str], request: Request) -> list[EngineChoice]:
    """An engine of the published width, or all that fit where none is published."""
    if row["tensor_parallel"]:
        return [engine_of(request, int(row["tensor_parallel"]))]
    return [each for each in engine_choices(request) if each.memory.verdict != "no"]


def _one_step(request: Request, engine: EngineChoice, learners: int, row: dict[str, str]) -> Iterator[float]:
    """Seconds, where that leaves room for learner and engine: they take turns, or rollouts run ahead on other GPUs."""
    engines = (request.total_gpus - learners if request.async_steps else learners) // engine.tensor_parallel
    if learners and engines:
        train = training_compute_s(request, _learner(request, learners, row), request.model, _passes(row))
        made, steady = generate_s(request, engine, engines)[0], steady_s(request, engine, engines)
        yield model_step_s(request, made, train, steady) + broadcast_s(request) + load_s(request, engine)


def score() -> Score:
    """Median error, share within a factor of 1.5 and within the range that ``plan`` prints, of held-out points."""
    found = predicted()
    by_source = list(held_out(found, lambda each: each.source))
    by_run = [each for each in held_out(found, lambda each: each.run) if not each.point.is_test]
    back = [each for each in by_source if each.point.is_test]
    steps = [each for each in by_source if each.point.kind == "step"]
    figures = [Figure("published numbers that are predicted", len(found), 694, True, len(points()))]
    figures += [*_figures("unseen source", by_source), *_figures("whole steps and generation, unseen source", steps)]
    figures += [*_figures("source held back", back), *_figures("unseen run", by_run)]
    figures.append(Figure("families whose rates in use are not the fitted ones", len(_unlike(found)), 0, False, 2))
    worst = sorted(by_source, key=lambda each: each.off, reverse=True)[:10]
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
    """Families whose rates in ``rltui.plan.rates`` are not what all of their points say that are not held back."""
    by_family = {each.family: fitted(_seen(found, each.family)) for each in found}
    return [name for name, chosen in by_family.items() if (PUBLISHED[name].training, PUBLISHED[name].decode) != chosen]


BOUNDS = {
    "unseen source": (14.4, 87.8, 91.9),
    "whole steps and generation, unseen source": (16.8, 87.7, 91.6),
    "source held back": (14.5, 85.4, 90.1),
    "unseen run": (14.4, 90.2, 93.7),
}
"""Worst median error, least share within a factor of 1.5, least share within the printed range (all %). Points that
joined since 27 November 2026 made them worse: 114, most of experts, those held back and unseen runs (88.0 and 12.7); 41
of torchtitan, verl and miles and 14 of ml-engineering, unseen sources (14.2, 88.3, 92.7); one run of verl's 4B on H800,
4 times slower than estimated, whole steps (16.2, 88.4, 92.4), sources (87.9, 92.1) and those held back (85.4, 90.4)."""


def _figures(group: str, found: list[Case]) -> Iterator[Figure]:
    error, near, covered = BOUNDS[group]
    median = statistics.median(each.error for each in found)
    within = sum(each.off <= 1.5 for each in found) / len(found)
    inside = sum(each.off <= TRUST[each.point.family].factor for each in found) / len(found)
    yield Figure(f"median error, {group} (%)", 100 * median, error, False, len(found))
    yield Figure(f"within a factor of 1.5, {group} (%)", 100 * within, near, True, len(found))
    yield Figure(f"within the range that plan prints, {group} (%)", 100 * inside, covered, True, len(found))
