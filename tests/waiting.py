"""The one way in which tests wait: for a condition, never for a length of time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Found = TypeVar("Found")

DEADLINE_S = 300.0
"""Long enough for a machine that three other tests keep busy: it only ends what hangs, and measures nothing."""


def eventually(
    condition: Callable[[], Found], what: str = "the condition", deadline_s: float = DEADLINE_S, poll_s: float = 0.2
) -> Found:
    """Wait until ``condition`` gives something true, and return that.

    Args:
        condition: Asked again and again.
        what: What is waited for, as the failure names it.
        deadline_s: Shorter than usual only where that is what the product promises.
        poll_s: Pause between two looks.
    """
    deadline = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not come about within {deadline_s:g} s"
        time.sleep(poll_s)
    return found
