"""Network trouble that passes is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.judging import surest, unless_followed_by

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.causes import Overview, Verdict
    from rltui.diagnose.signs import Sighting


def wandb_network(sightings: Sequence[Sighting], overview: Overview) -> Verdict | None:
    """Retry loops that ended well do not count."""
    return surest(unless_followed_by(sightings, overview.of("wandb_back")))
