"""What a night of faults came to, in numbers."""

from __future__ import annotations

from dataclasses import dataclass

WRONG = {
    "doubled": "doubled",
    "lost": "lost",
    "killed": "healthy attempts ended",
    "decided": "decided wrongly",
    "broke": "nights broken off",
}
"""What can be wrong, by the first word of its line, and how the sums call it."""


@dataclass
class Outcome:
    """What became of one fault."""

    fault: str
    verdict_s: float
    """From the fault to the decision."""
    submitted_s: float | None
    """From the fault to the next attempt's folder; None where the run was left to a person."""
    training_s: float | None = None
    """From the fault to the next attempt's first step."""
    lost_steps: int = 0
    noticed_s: float = 0.0
    """From the fault to the end that supervisor or guard wrote down."""


def goodput(outcomes: list[Outcome], faults_an_hour: float, checkpoint_s: float = 600.0) -> float:
    """Share of the time in steps that are kept, at so many faults an hour.

    A fault costs what was measured from it to the next attempt's first step, with the real deadlines in place of the
    scaled ones (ten minutes until a standstill counts as one), and half the time between two checkpoints.
    """
    measured = [one for one in outcomes if one.submitted_s is not None and one.training_s is not None]
    stalls = sum(one.fault == "trainer stopped" for one in measured) / len(measured)
    down_s = sum(one.training_s or 0.0 for one in measured) / len(measured) + stalls * 600.0
    return 3600.0 / faults_an_hour / (3600.0 / faults_an_hour + down_s + checkpoint_s / 2)


def report(outcomes: list[Outcome], wrong: list[str], for_a_person: tuple[str, ...]) -> list[str]:
    """What became of all faults, as lines, and what was wrong."""
    rows = [f"{'fault':<22} {'times':>5} {'alone':>5} {'verdict s':>9} {'submitted s':>11} {'training s':>10}"]
    for fault in dict.fromkeys(one.fault for one in outcomes):
        of_it = [one for one in outcomes if one.fault == fault]
        alone = [one for one in of_it if one.submitted_s is not None]
        worst = [max((getattr(one, name) or 0.0) for one in of_it) for name in ("verdict_s", "training_s")]
        submitted = f"{max(one.submitted_s or 0.0 for one in alone):.1f}" if alone else "–"
        rows.append(f"{fault:<22} {len(of_it):>5} {len(alone):>5} {worst[0]:>9.1f} {submitted:>11} {worst[1]:>10.1f}")
    recoverable = [one for one in outcomes if one.fault not in for_a_person]
    done = [one for one in recoverable if one.submitted_s is not None]
    share = f" ({100 * len(done) / len(recoverable):.1f} %)" if recoverable else ""
    rows.append(f"{len(outcomes)} faults; {len(done)} of {len(recoverable)} recoverable ended without a person{share}")
    kinds = [line.partition(":")[0] for line in wrong]
    rows.append(", ".join(f"{kinds.count(kind)} {words}" for kind, words in WRONG.items()))
    if done:
        late_s = max((one.submitted_s or 0.0) - one.verdict_s for one in done)
        rows.append(f"a new attempt at most {late_s:.1f} s after the verdict")
        rows += [f"goodput at one fault in {1 / rate:g} h: {100 * goodput(done, rate):.1f} %" for rate in (1.0, 0.25)]
    return rows + wrong
