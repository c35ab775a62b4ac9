"""The page of all diagnoses, for the documentation: ``python -m rltui.diagnose.pages > docs/diagnoses.md``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rltui.diagnose.index import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rltui.diagnose.cause import Cause

TIERS = {
    "site": "Slurm, kernel and hardware: they end processes, whatever these were doing",
    "root": "Errors that end the process they happen in",
    "effect": "What other ranks see when one is gone: a cause only where nothing else is in view",
    "aside": "Beside the training: seldom what ended it",
    "wrapper": "Wrappers: somebody passes on that something died",
}

INTRODUCTION = """\
# Diagnoses

What `rltui why` can find, by rank: a cause of an earlier group explains those of later ones. `rltui explain ID` tells
what helps, what does not, and where the knowledge is from. This page is written by
`python -m rltui.diagnose.pages > docs/diagnoses.md`.

`rltui why RUN` reads, besides all logs of the last attempt, what rltui knows of the run: its stages, pre-flight, end,
metrics, the samples of its GPUs, and the state of its Slurm job. `rltui why --log` has the logs only.
"""


def markdown() -> Iterator[str]:
    """Yield the lines of the page."""
    yield from INTRODUCTION.splitlines()
    for tier, heading in TIERS.items():
        yield from ("", f"## {heading}", "", "| id | cause | how to tell |", "|---|---|---|")
        yield from (_row(cause) for _, cause in sorted(CAUSES.items()) if cause.tier == tier)


def _row(cause: Cause) -> str:
    return f"| `{cause.id}` | {_cell(cause.title)} | {_cell(cause.tell)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write("".join(f"{line}\n" for line in markdown()))
