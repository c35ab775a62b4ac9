"""Phases of a run that take far longer than ``plan`` expects: what holds them up, the run itself cannot tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from rltui.errors import RltuiError
from rltui.layout.schema import Layout
from rltui.plan.calibrate import MADE, MEASURED, decoding_of, request_of, seconds_of, training_of
from rltui.plan.of_layout import OWN
from rltui.plan.rates import TRUST, Family, Rates, family, rates_of

BEYOND = 1.5
"""A phase is behind from this many times the factor by which published points were off: one in ten is beyond that."""


def behind_plan(
    layout: Layout, series: Mapping[str, Sequence[float]], known: dict[str, dict[Family, Rates]]
) -> tuple[tuple[str, float, float, float], ...]:
    """The phases of a run of ``layout`` that are far behind; none where ``plan`` does not know enough to say so.

    Returns each as its name, the median seconds of a step, those that are expected, and the factor by which ``plan``
    may be off.

    Args:
        layout: As the run was launched with it.
        series: Its metrics by canonical name, a value a step; NaN where there is none.
        known: Rates that were measured on the cluster.
    """
    try:
        request = request_of(layout, series)
    except RltuiError:
        return ()
    own = known.get(request.gpu.name, {}).get(family(request.model))
    factor = OWN if own else TRUST[family(request.model)].factor
    if request.async_steps:
        return ()
    request = structs.replace(request, rates=rates_of(request.model, request.gpu, known))

    def phases() -> Iterator[tuple[str, float, float]]:
        yield "training", seconds_of(series, MEASURED, "time/measure"), training_of(layout)(request)
        if (decode := decoding_of(layout)) is not None:
            yield "generation", seconds_of(series, MADE), decode(request)

    return tuple(
        (phase, measured_s, planned_s, factor)
        for phase, measured_s, planned_s in phases()
        if measured_s > BEYOND * factor * planned_s
    )
