"""Network trouble that passes is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rltui.diagnose.judging import surest, unless_followed_by
from rltui.diagnose.signs import Found, Reading

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Overview, Verdict
    from rltui.diagnose.signs import Sighting


def read_unreachable(found: Found) -> Reading | None:
    """A node without a route says so of any host; the lines around it tell that the hub was meant."""
    if "NCCL" in found.spot.line.text:
        return None
    around = found.spot.around(25, 10)
    return Reading(0.8) if re.search(r"huggingface|hf_hub|transformers/utils/hub|datasets/load", around) else None


def read_hub_request(found: Found) -> Reading | None:
    """The hub's client says of every failed request that it failed, and in the next line whether it tries again."""
    after = [line.text for line in found.spot.after(4)]
    return None if any(re.search(r"\bRetrying in [\d.]+ ?s", text) for text in after) else Reading(0.85)


def wandb_network(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """Retry loops that ended well do not count."""
    return surest(unless_followed_by(sightings, overview.of("wandb_back")))
