"""Numbers and states in words, the same in every verb."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSummary

GLYPHS = {
    "queued": "◷", "starting": "◷", "running": "▶", "stopping": "▶", "finished": "✓",
    "failed": "✗", "cancelled": "■", "lost": "✗", "unknown": "?",
}  # fmt: skip


def state(run: RunSummary) -> str:
    """Glyph and word."""
    return f"{GLYPHS[run.state]} {run.state}"


def step(run: RunSummary) -> str:
    """``412/2000``, or a dash."""
    return f"{run.stage.step or 0}/{run.stage.steps}" if run.stage.steps else "–"


def rate(value: float | None) -> str:
    """``38.1k``, or a dash."""
    if value is None:
        return "–"
    return f"{value / 1000:.1f}k" if value >= 1000 else f"{value:.0f}"


def number(value: float | None) -> str:
    """Three decimals, or a dash."""
    return "–" if value is None else f"{value:.3f}"


def age(since: float) -> str:
    """``2h14`` since ``since`` (epoch seconds)."""
    minutes = max(0, int(time.time() - since)) // 60
    if minutes >= 60 * 48:
        return f"{minutes // 1440}d"
    return f"{minutes // 60}h{minutes % 60:02d}" if minutes >= 60 else f"{minutes}min"


def about(run: RunSummary) -> str:
    """What is worth saying of the run in a line: the reason of its end, or its stage."""
    if run.end is not None:
        return run.end.reason
    return f"{run.stage.stage}{': ' + run.stage.detail if run.stage.detail else ''}"
