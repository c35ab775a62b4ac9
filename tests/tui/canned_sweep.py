"""The runs of one sweep, canned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from canned_runs import summary

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSummary

SWEEP_STATES = ("running", "finished", "running", "finished", "finished", "failed")


def sweep(number: int = 6, sweep_id: str = "grpo-tiny-1f0a", **more: object) -> tuple[RunSummary, ...]:
    """The runs of one sweep."""
    return tuple(
        summary(
            f"grpo-tiny-seed-{index}-{index:04x}",
            SWEEP_STATES[index % 6],
            "training",
            200 + index,
            sweep=sweep_id,
            **more,
        )
        for index in range(number)
    )
