"""Whether the ranges that are printed with estimates hold for sources that they were not set on.

Sources are dealt to folds. For each fold the half-widths of each kind of run are set on the others, as the printed ones
were (the shares that leave out 3 % on either side, a twentieth at least), and what lies within them is counted.
"""

from __future__ import annotations

import collections
import re

from memory_points import MEASURED, Row, error, estimate

FOLDS = 8
LEFT_OUT, LEAST = 0.03, 0.05


def source_of(row: Row) -> str:
    """The repository, paper or log that a row is from."""
    owner = re.split(r"[@# ,]", row["source"])[0].lower().removeprefix("meta-")
    return row["source"] if owner in ("log", "stored") else owner


def held_out() -> float:
    """Share of measured peaks within a range that other sources set."""
    sizes = collections.Counter(source_of(row) for row in MEASURED)
    folds = {source: index % FOLDS for index, (source, _) in enumerate(sizes.most_common())}
    runs = [(folds[source_of(row)], estimate(row).error, 1 / (1 + error(row)) - 1) for row in MEASURED]
    inside = 0
    for fold, kind, off in runs:
        others = sorted(other for where, its_kind, other in runs if its_kind == kind and where != fold)
        last = len(others) - 1
        below, above = others[round(LEFT_OUT * last)], others[round((1 - LEFT_OUT) * last)]
        inside += min(below, -LEAST) <= off <= max(above, LEAST)
    return inside / len(runs)


def mean_width() -> float:
    """The mean of both half-widths that are printed, over all measured runs."""
    return sum(found.below + found.above for found in (estimate(row).error for row in MEASURED)) / len(MEASURED)
