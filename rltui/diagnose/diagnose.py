"""The door of this room: sources in, diagnoses out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.diagnose.ranking import rank
from rltui.diagnose.scan import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rltui.diagnose.sources import Source
    from rltui.diagnose.verdicts import Diagnosis


def diagnose(sources: Iterable[Source]) -> tuple[Diagnosis, ...]:
    """Return what is wrong according to ``sources``, causes first and consequences after them; empty: nothing."""
    scanner = Scanner()
    for source in sources:
        scanner.scan(source)
    return rank(scanner.matches)
