"""A tab: how many steps a run does in an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.api import RunSnapshot


def panel(snapshot: RunSnapshot) -> Iterator[str]:
    """Lines of text for a picture of the run, as often as there is a new one: it must not wait for anything."""
    run = snapshot.summary
    took_s = snapshot.metrics.latest.get("time/total")
    yield f"{run.run_id} is {run.state}, at step {run.stage.step or 0} of {run.stage.steps or '?'}"
    yield f"{3600 / took_s:.0f} steps an hour" if took_s else "no step has been timed yet"
