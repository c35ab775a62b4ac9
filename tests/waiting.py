"""The one way in which tests wait: for a condition, never for a length of time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

DEADLINE_S = 300.0
"""Long enough for a machine that three other tests keep busy: it only ends what hangs, and measures nothing. On one
that is busier it is as many times longer as ``slowness`` says."""
LONGEST_PAUSE_S = 2.0

WAIT_S = 900.0
"""For what waits by itself and not by ``eventually``: it only ends what hangs, also on a machine with a load of 25."""


def eventually(
    condition: Callable[[], Found | None],
    what: str = "the condition",
    deadline_s: float | None = None,
    poll_s: float = 0.2,
    saw: Callable[[], object] | None = None,
) -> Found:
    """Wait until ``condition`` gives something true, and return that.

    Args:
        condition: Asked again and again.
        what: What is waited for, as the failure names it.
        deadline_s: Another than ``DEADLINE_S`` only where that is what the product promises; it holds as it is.
        poll_s: Pause between two looks. It is as long as a look where that takes longer, up to ``LONGEST_PAUSE_S``:
            starting rltui again and again would take half a core from what is waited for.
        saw: What there is in its place, for the failure.
    """
    asked = time.monotonic()
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        ended = time.monotonic()
        most_s = longest_s() if deadline_s is None else deadline_s
        assert ended - asked < most_s, f"{what} did not come about within {most_s:g} s{f': {saw()}' if saw else ''}"
        time.sleep(max(poll_s, min(ended - began, LONGEST_PAUSE_S)))


def longest_s() -> float:
    """How long is waited at most for what has no deadline of its own, on the machine as it is now."""
    return DEADLINE_S * slowness()


def slowness() -> float:
    """How many times longer things may take now than with four processes a core, at least 1.

    For deadlines of the product that a test shortens: by a fixed number, they would measure this machine.
    """
    return max(1.0, os.getloadavg()[0] / (4 * (os.cpu_count() or 1)))
