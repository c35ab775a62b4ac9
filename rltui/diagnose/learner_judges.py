"""Numbers of the trainer: batch arithmetic, loss scales, runs of NaN."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.diagnose.judging import surest
from rltui.diagnose.signs import Found, Reading
from rltui.diagnose.verdicts import Remedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Fields, Overview, Verdict
    from rltui.diagnose.signs import Sighting


def read_loss_scale(found: Found) -> Reading | None:
    """A dynamic scaler starts at 2^16 or 2^32 and halves until it fits; below 1 there is nothing left to halve."""
    text = found.groups.get("scale") or found.groups.get("scale2") or ""
    try:
        scale = float(text.rstrip("."))
    except ValueError:
        return None
    return Reading(0.85) if scale <= 1.0 else None


def read_size_mismatch(found: Found) -> Reading | None:
    """Any program can get sizes wrong; in the midst of loading, those of the checkpoint are meant."""
    around = found.spot.around(12, 0)
    return Reading(0.8) if re.search(r"\b_?load_(?:\w+_)?(?:checkpoint|state_dict)\b", around) else None


def nan_or_loss_scale(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """What somebody says in words, or what the metrics show over the steps."""
    return surest([*sightings, *overview.of("nan_metric")])


def batch_remedies(fields: Fields) -> tuple[Remedy, ...]:
    """From the numbers: a world size that did not arrive, or the nearest batch that can be divided."""
    numbers = [int(fields.get(name, "0")) for name in ("batch", "micro", "steps", "world")]
    batch, micro, steps, world = numbers
    unit = micro * steps
    if not all(numbers) or max(numbers) > 10**9:
        words = "Make the global batch micro batch × accumulation × ranks, with at least one sample each."
    elif batch % unit == 0:
        words = (
            f"{batch} / ({micro} × {steps}) is {batch // unit}, but DeepSpeed counts {world} ranks: the launcher's "
            f"world "
            "size did not reach it."
        )
    else:
        legal = max(unit * world, round(batch / (unit * world)) * unit * world)
        words = f"Take {legal} as the global batch, the nearest multiple of {micro} × {steps} × {world}."
    return (Remedy(id="legal-batch", summary=words, safe="auto"),)
