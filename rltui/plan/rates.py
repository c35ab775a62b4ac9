"""What share of a card's data-sheet figures runs reach, by family of model: published, or measured on this cluster.

The shares were chosen on published points; ``TRUST`` is how far such points were from shares chosen without them
(``tests/truth/plan.py``). A cluster's own figures come from ``calibration.json`` in the state directory, which
``rltui calibrate RUN`` writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import Struct

from rltui.errors import RltuiError
from rltui.hardware.parameters import count_parameters
from rltui.onnode import rundir
from rltui.paths import ensure_private
from rltui.plan.measured import read_kept

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu

Family = Literal["dense", "moe", "small"]

SMALL_PARAMETERS = 5e9
"""Below so many parameters a model's kernels fill no card."""

CALIBRATION_FILE = "calibration.json"


class Rates(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of a card's peak.

    Attributes:
        training: Of the peak FLOP/s, in training with long micro-batches.
        decode: Of the memory bandwidth, while decoding.
        source: Where they are from, in words.
    """

    training: float
    decode: float
    source: str = ""


class Trust(Struct, frozen=True, kw_only=True):
    """How far published points of a family were from their estimates.

    Attributes:
        factor: Four in five points lie within this factor of the estimate, either way.
        points: On how many points that stands.
        cards: First words of the cards that they were measured on.
    """

    factor: float
    points: int
    cards: tuple[str, ...]


PUBLISHED: dict[Family, Rates] = {
    "dense": Rates(training=0.35, decode=0.6, source="assumed: no published point of this family is predicted"),
    "moe": Rates(training=0.06, decode=0.6, source="published runs"),
    "small": Rates(training=0.12, decode=0.6, source="published learners; decoding assumed"),
}

TRUST: dict[Family, Trust] = {
    "moe": Trust(factor=2.1, points=14, cards=("H100", "H200", "GB200")),
    "small": Trust(factor=1.5, points=3, cards=("H100", "B200")),
}
"""By family; what is not here has no published point. Mixtures: from points of systems whose other points the rate was
not chosen on; small models: of runs, since one system alone published any."""


def trust_in(model: Architecture, gpu: Gpu) -> str:
    """Error bars in words, or that nothing is known."""
    found = TRUST.get(family(model))
    if found is None:
        return f"no published point of a {family(model)} model is known: rates are assumed"
    other = "" if gpu.name.split("-")[0] in found.cards else f", none of them on {gpu.name}"
    near = f"within a factor of {found.factor:g}"
    return f"four in five of {found.points} held-out published points of {family(model)} models are {near}{other}"


PREFILL_FLOPS_SHARE = 0.5
"""Share of the peak FLOP/s that prefill reaches; assumed."""


ATTENTION_FLOPS_SHARE = 0.35
"""Share of the peak FLOP/s that attention reaches in training, whatever the family of its matrices; assumed. The long
sequences of mixtures of experts are the faster for it."""

BLACKWELL_EASE = 0.5
"""Training on Blackwell reaches so much of the share that Hopper does: prime-rl publishes an MFU of 6.5 % on B200 for
13.9 % on H100 (with FlashAttention 2 there, 3 here)."""

BLACKWELL = ("B200", "B300", "GB200", "GB300")


def training_ease(gpu: Gpu) -> float:
    """What the card reaches of a family's share in training, 1 on Hopper and before."""
    return BLACKWELL_EASE if gpu.name.startswith(BLACKWELL) else 1.0


def family(model: Architecture) -> Family:
    """Mixture of experts, small, or dense."""
    if model.experts is not None:
        return "moe"
    return "small" if count_parameters(model).total < SMALL_PARAMETERS else "dense"


def read_calibration(folder: Path) -> dict[str, dict[Family, Rates]]:
    """Measured rates by card and family from ``calibration.json`` in ``folder``; none where there is no such file.

    Raises:
        ValueError: The file cannot be read, or does not have that form.
    """
    path = folder / CALIBRATION_FILE
    found = read_kept(path, dict[str, dict[Family, Rates]]) or {}
    for card, families in found.items():
        for name, rates in families.items():
            if not (0 < rates.training <= 1 and 0 < rates.decode <= 1):
                raise ValueError(f"{path}: {card} {name}: a share of a card's peak is above 0 and at most 1")
    return found


def write_calibration(folder: Path, measured: dict[str, dict[Family, Rates]]) -> None:
    """Write measured rates by card and family, so that a reader sees all of them or those of before.

    Raises:
        RltuiError: The folder cannot be written.
    """
    try:
        rundir.write_json(str(ensure_private(folder) / CALIBRATION_FILE), msgspec.to_builtins(measured))
    except OSError as error:
        raise RltuiError(f"{folder / CALIBRATION_FILE} cannot be written: {error.strerror}.") from error


def rates_of(model: Architecture, gpu: Gpu, measured: dict[str, dict[Family, Rates]] | None = None) -> Rates:
    """The cluster's own rates of this card and family, else the published ones of the family."""
    own = (measured or {}).get(gpu.name, {}).get(family(model))
    if own is None:
        return PUBLISHED[family(model)]
    return msgspec.structs.replace(own, source=own.source or "measured on this cluster")
