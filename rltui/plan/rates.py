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
from rltui.onnode import rundir
from rltui.paths import ensure_private
from rltui.plan.measured import read_kept

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.hardware.architecture import Architecture
    from rltui.hardware.gpus import Gpu

Family = Literal["dense", "moe"]

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
        factor: Nine in ten points lie within this factor of the estimate, either way.
        points: On how many points that stands.
        cards: First words of the cards that they were measured on.
    """

    factor: float
    points: int
    cards: tuple[str, ...]


PUBLISHED: dict[Family, Rates] = {
    "dense": Rates(training=0.58, decode=0.8, source="published runs"),
    "moe": Rates(training=0.42, decode=0.6, source="published runs"),
}

TRUST: dict[Family, Trust] = {
    "dense": Trust(
        factor=1.6,
        points=434,
        cards=("H100", "H200", "GH200", "H800", "H20", "B200", "GB200", "A100", "A800"),
    ),
    "moe": Trust(
        factor=1.8,
        points=260,
        cards=("H100", "H200", "H800", "H20", "A100", "A800", "B200", "GB200", "B300", "GB300"),
    ),
}
"""By family, from points of systems whose other points the rates were not chosen on."""


def unmeasured_card(model: Architecture, gpu: Gpu) -> bool:
    """Whether no published point of the model's family was measured on ``gpu``."""
    return gpu.name.split("-")[0] not in TRUST[family(model)].cards


def trust_in(model: Architecture, gpu: Gpu) -> str:
    """Error bars in words, or that nothing is known."""
    found, name = TRUST[family(model)], "dense models" if model.experts is None else "mixtures of experts"
    other = f", none of them on {gpu.name}" if unmeasured_card(model, gpu) else ""
    near = f"within a factor of {found.factor:g}"
    return f"nine in ten of {found.points} held-out published points of {name} are {near}{other}"


CARD_SHARES = {"A100": 1.4, "A800": 1.4, "H20-": 1.5, "GB300": 1.17, "B300": 1.1}
"""By so much more of their data sheet's FLOP/s these cards reach in training than Hopper and Blackwell, on whose points
``PUBLISHED`` was chosen, by first letters of their names. Clocks fall under a full load: from A100 to H100 the sheet
grew by 3.2, power by 1.75. Chosen on ms-swift's 14B on A800, and InternEvo's and LLM Foundry's 7B and 30B on A100. H20
is an H100 of which the sheet leaves 15 % of the FLOP/s and all of the power: nothing slows it; chosen on half of verl's
published runs of 14B and 32B on it (``tests/truth/plan.py``). GB300 has the sheet of GB200 and a sixth more power
(1,400 W), B300 a tenth more than B200 (1,100 W): so much more does Megatron-Bridge reach on them, in 8 bits too."""

PREFILL_FLOPS_SHARE = 0.5
"""Share of the peak FLOP/s that prefill reaches; assumed."""


ATTENTION_FLOPS_SHARE = 0.42
"""Share of the peak FLOP/s that attention reaches in training on Hopper and Blackwell, whatever the family of its
matrices: between FlashAttention's second version and the third, forward and backward. Chosen on sequences of 16,384
tokens and more. The third reaches 0.56 on 131,072 (ml-engineering's Llama-3.1-8B); published runs have both."""

MOST_ATTENTION_FLOPS_SHARE = 0.53
"""The most of it on any card: FlashAttention's second version on an A100, whose clocks do not fall. Chosen on xtuner's
and LLM Foundry's long sequences."""


def training_share(share: float, gpu: Gpu) -> float:
    """What a share of the peak FLOP/s that was reached on Hopper is on ``gpu``."""
    return share * next((more for start, more in CARD_SHARES.items() if gpu.name.startswith(start)), 1.0)


def attention_share(gpu: Gpu) -> float:
    """Share of the peak FLOP/s of ``gpu`` that attention reaches in training."""
    return min(training_share(ATTENTION_FLOPS_SHARE, gpu), MOST_ATTENTION_FLOPS_SHARE)


def family(model: Architecture) -> Family:
    """Mixture of experts, or dense."""
    return "dense" if model.experts is None else "moe"


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
    """The cluster's own rates of this card and family, else the published ones of the family on such cards."""
    own = (measured or {}).get(gpu.name, {}).get(family(model))
    if own is None:
        published = PUBLISHED[family(model)]
        return msgspec.structs.replace(published, training=training_share(published.training, gpu))
    return msgspec.structs.replace(own, source=own.source or "measured on this cluster")
