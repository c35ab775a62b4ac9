"""What a rule's test data is: logs that have the cause, and logs that only look as if they had."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Logs for one cause.

    Attributes:
        has: Logs whose first cause it is.
        looks_like: Logs with the same words where it is not the cause.
    """

    has: tuple[str, ...]
    looks_like: tuple[str, ...]
