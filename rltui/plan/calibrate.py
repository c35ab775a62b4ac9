"""What cards reach of their data sheet in a run of the user's own: the rates with which its steps come out as measured.

Training is asked for the share of the peak FLOP/s, decoding for the share of the memory bandwidth; each is found by
halving, since a phase only ever gets shorter with a larger share. A run that cannot tell is refused with the reason.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct, structs

from rltui.errors import RltuiError
from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_roles
from rltui.plan.candidates import role_of
from rltui.plan.decoding import generate_s
from rltui.plan.of_layout import request_of_layout, training_way
from rltui.plan.rates import Family, Rates, family, rates_of
from rltui.plan.request import Request
from rltui.plan.setup import EngineChoice
from rltui.plan.training import reference_s, train_s

LEAST_STEPS = 5
"""Steps that are needed beside the first, which compiles."""

LEAST_EFFECT = 1.2
"""A halved share must make a phase longer by this factor and a doubled one shorter, else something else bounds it."""

MEASURED, MADE = ("time/update_actor", "time/train"), ("time/generate",)
"""Metrics of a step that training and decoding are held against, the first of them that a run has."""

SLACK, AT_LIMIT = 1.02, 0.95
LEAST_SHARE, HALVINGS = 1e-3, 40


class Phase(Struct, frozen=True, kw_only=True):
    """One phase of a step.

    Attributes:
        measured_s: Median over the run's steps.
        before_s: As ``plan`` predicts it with the rates that it had.
        share: Of the card's peak, with which it comes out as measured; None where the run cannot tell.
        reason: Why it cannot; empty where it can.
    """

    measured_s: float
    before_s: float
    share: float | None = None
    reason: str = ""


class Calibration(Struct, frozen=True, kw_only=True):
    """What one run says of its card and family of models."""

    card: str
    family: Family
    steps: int
    training: Phase
    decode: Phase
    rates: Rates
    """To be written down: a share that the run cannot tell stays as it was."""


def calibrate(
    layout: Layout, series: Mapping[str, Sequence[float]], known: dict[str, dict[Family, Rates]], source: str
) -> Calibration:
    """The rates of a run of ``layout``.

    Args:
        layout: As the run was launched with it.
        series: Its metrics by canonical name, a value a step; NaN where there is none.
        known: Rates that are written down already.
        source: Where the new ones are from, in words.

    Raises:
        RltuiError: It cannot tell anything, with the reason.
    """
    request = request_of(layout, series)
    before = rates_of(request.model, request.gpu, known)
    request = structs.replace(request, rates=before)
    training = _phase(training_of(layout), request, "training", seconds_of(series, MEASURED, "time/measure"))
    decode = _decoding(layout, request, series)
    if training.share is None and decode.share is None:
        raise RltuiError(f"Training: {training.reason}. Decoding: {decode.reason}.")
    rates = Rates(training=training.share or before.training, decode=decode.share or before.decode, source=source)
    steps = len(_finite(series.get("response_length", ()))) - 1
    return Calibration(
        card=request.gpu.name, family=family(request.model), steps=steps, training=training, decode=decode, rates=rates
    )


def request_of(layout: Layout, series: Mapping[str, Sequence[float]]) -> Request:
    """The run as a request of ``plan``, with the lengths that it had.

    Raises:
        RltuiError: ``plan`` does not predict such runs, with the reason.
    """
    for is_so, what in (
        (layout.algorithm != "grpo" or layout.roles.critic is not None, "only runs of GRPO are"),
        (layout.roles.learner.offload != "none", "an optimizer in host memory is not"),
        (layout.roles.learner.sequence_parallel > 1, "learners that share a sequence are not"),
    ):
        if is_so:
            raise RltuiError(f"Nothing is calibrated by runs of this kind: {what}.")
    return with_lengths(request_of_layout(layout), layout, series)


def with_lengths(request: Request, layout: Layout, series: Mapping[str, Sequence[float]]) -> Request:
    """``request`` of ``layout`` with the lengths that a run of it had.

    Raises:
        RltuiError: It has too few steps to say.
    """
    lengths = _finite(series.get("response_length", ()))
    if len(lengths) <= LEAST_STEPS:
        raise RltuiError(f"It has {len(lengths)} steps with lengths of responses; {LEAST_STEPS + 1} are needed.")
    mean = statistics.fmean(lengths[1:])
    return structs.replace(
        request,
        prompt_tokens=_prompt_tokens(layout, series, mean),
        response_mean=mean,
        response_spread=_spread(layout, lengths, _finite(series.get("response_length_max", ()))),
    )


def _prompt_tokens(layout: Layout, series: Mapping[str, Sequence[float]], response_mean: float) -> int:
    """Tokens of a prompt: the longest; in packed rows, which have no padding, the mean that a step's tokens leave."""
    limit = layout.lengths.prompt
    tokens = seconds_of(series, ("time/total",)) * seconds_of(series, ("learner_tokens_per_second_step",))
    if not layout.lengths.pack or not tokens:
        return limit
    return min(limit, max(1, round(tokens / layout.train.samples_per_step - response_mean)))


def _spread(layout: Layout, lengths: Sequence[float], longest: Sequence[float]) -> float | None:
    """Standard deviation of the lengths, by Gumbel's bound on the longest of so many; None where the limit cut them."""
    count = layout.train.prompts_per_step * layout.train.samples_per_prompt
    if len(longest) < 2 or count < 2 or statistics.fmean(longest[1:]) > AT_LIMIT * layout.lengths.response:
        return None
    above = statistics.fmean(longest[1:]) - statistics.fmean(lengths[1:])
    return max(0.0, above * math.sqrt(2 * count - 1) / (count - 1))


def training_of(layout: Layout) -> Callable[[Request], float]:
    """Seconds of a step that ``plan`` expects the learners of ``layout`` to take, the reference's pass included."""
    way = training_way(layout, layout.roles.learner)

    def seconds(request: Request) -> float:
        return train_s(request, way)[0] + (reference_s(request, way) if request.kl_coefficient else 0.0)

    return seconds


def decoding_of(layout: Layout) -> Callable[[Request], float] | None:
    """Seconds of a step that ``plan`` expects its engines to take; None where it does not say how many there are."""
    rollout, estimate = layout.roles.rollout, estimate_roles(layout)
    engine = next((each for each in estimate.engines if each.role == "rollout"), None)
    if engine is None or not rollout.engines or rollout.engine != "vllm":
        return None
    choice = EngineChoice(tensor_parallel=rollout.tensor_parallel, engine=engine, memory=role_of(estimate, "rollout"))
    return lambda request: generate_s(request, choice, rollout.engines)[0]


def _decoding(layout: Layout, request: Request, series: Mapping[str, Sequence[float]]) -> Phase:
    decode, measured_s = decoding_of(layout), seconds_of(series, MADE)
    if decode is None:
        return Phase(measured_s=measured_s, before_s=0.0, reason="the number of its vLLM engines is not in the layout")
    found = _phase(decode, request, "decode", measured_s)
    if request.async_steps:
        return structs.replace(found, share=None, reason="rollouts run ahead, so their time is not their own")
    return found


def _phase(
    seconds: Callable[[Request], float], request: Request, name: Literal["training", "decode"], measured_s: float
) -> Phase:
    """The share with which ``seconds`` come out as measured."""
    assert request.rates is not None
    known = request.rates

    def with_share(share: float) -> float:
        changed = Rates(
            training=share if name == "training" else known.training, decode=share if name == "decode" else known.decode
        )
        return seconds(structs.replace(request, rates=changed))

    before_s = seconds(request)
    if not measured_s > 0:
        return Phase(measured_s=0.0, before_s=before_s, reason="its metrics do not have that time")
    low, high = LEAST_SHARE, 1.0
    for _ in range(HALVINGS):
        # the geometric mean: between a thousandth and 1 what counts is the factor by which a share is off
        middle = math.sqrt(low * high)
        low, high = (middle, high) if with_share(middle) > measured_s else (low, middle)
    reason = ""
    if with_share(1.0) > SLACK * measured_s:
        reason = f"it took {measured_s:.3g} s, less than the card's data sheet allows by plan's formulas"
    elif with_share(high / 2) < LEAST_EFFECT * measured_s or with_share(2 * high) * LEAST_EFFECT > measured_s:
        reason = "something else than that share bounds it: links, small batches, or a wait"
    return Phase(measured_s=measured_s, before_s=before_s, share=None if reason else high, reason=reason)


def seconds_of(series: Mapping[str, Sequence[float]], names: Sequence[str], *more: str) -> float:
    """Median seconds of the first of ``names`` that is there, and of all of ``more``; 0 where none is."""
    first = next((series[name] for name in names if _finite(series.get(name, ()))), ())
    found = [_finite(first)[1:], *(_finite(series.get(name, ()))[1:] for name in more)]
    return sum(statistics.median(values) for values in found if values) if found[0] else 0.0


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]
