"""The newest steps of a run as one small record: what rules about slow and silently failing runs look at.

A number that its sources do not say is None, and no rule makes a verdict of it. Medians, not means: the step that
compiled, saved or evaluated is no measure of the others.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from rltui.cluster.jobs import JobSnapshot
from rltui.watch.node_samples import GpuSample, HostSnapshot
from rltui.watch.snapshots import EndSnapshot, StageSnapshot

LEAST_STEPS = 3
"""Steps, besides the first one that is in view, before anything is said."""

RECENT_STEPS = 10
BASELINE_STEPS = 12
LATE_STEPS = 5
EARLY_STEPS = 32
"""The first steps of an attempt: what goes wrong for longer than the newest reach back still stands out from these."""

SEEN_STEPS = 0.7
"""Share of the recent steps that have to name a metric for it to count."""

TOTAL = "time/total"
GENERATION = ("time/generate", "time/drain")
"""Phases in which the loop waits for engines: for samples, and for their end before new weights come."""

LEARNER_WORK = ("time/train", "time/measure", "time/log_probs")
"""Phases of a step in which the learners compute."""

IDLE = {
    "engine": ("time/engine_idle", "engine_idle_fraction"),
    "learner": ("time/learner_idle", "learner_idle_fraction"),
}
"""How a side's idleness is told: seconds of a step, or a share."""


class Step(Struct, frozen=True):
    """A training step: when it was done (epoch seconds), and its metrics by canonical name."""

    at: float
    values: dict[str, float]

    def number(self, name: str) -> float | None:
        """A metric of the step; None where it has none, or NaN or infinity, of which no median can be made."""
        value = self.values.get(name)
        return value if value is not None and math.isfinite(value) else None


def numbers(steps: Sequence[Step], name: str) -> list[float]:
    """What ``steps`` say of a metric, as far as they have a number."""
    return [value for step in steps if (value := step.number(name)) is not None]


class EngineCounters(Struct, frozen=True, kw_only=True):
    """What one engine last said of itself."""

    name: str
    running: float
    """Requests that it works on."""
    waiting: float
    kv_share: float | None = None
    """Share of its KV cache that is in use."""
    tokens_per_second: float | None = None


class GpuRecord(GpuSample, frozen=True, kw_only=True):
    """One GPU over the last minute or so: use, power and clock are means, and ``held_back`` is of most of that time."""

    host: str
    role: str
    """Whose process is on it, such as ``learner``; empty where nobody knows."""
    program: str = ""
    """What that process runs, such as ``python train.py``: what is known of one without a role."""
    power_w: float

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"GPU {self.index} of {self.host}"

    @property
    def whose(self) -> str:
        """What it is compared by with others: its role, else its program; empty where nobody knows either."""
        return f"role {self.role}" if self.role else f"program {self.program}" if self.program else ""


class Planned(NamedTuple):
    """A phase that takes far longer than ``rltui plan`` expects.

    Attributes:
        phase: ``generation`` or ``training``.
        measured_s: Median over the run's steps.
        planned_s: Expected of the layout, with the lengths that the run has.
        factor: By which the expectation itself may be off.
    """

    phase: str
    measured_s: float
    planned_s: float
    factor: float


class Recent(Struct, frozen=True, kw_only=True):
    """A run's newest steps, oldest first, and what engines, GPUs and ``rltui plan`` say beside them."""

    steps: tuple[Step, ...] = ()
    first: tuple[Step, ...] = ()
    """The attempt's first steps, where the newest are to be compared with those and not with the steps before them."""
    planned: tuple[Planned, ...] = ()
    engines: tuple[EngineCounters, ...] = ()
    gpus: tuple[GpuRecord, ...] = ()

    @property
    def window(self) -> tuple[Step, ...]:
        """The steps that recent numbers are of; the first one in view may have compiled."""
        return self.steps[1:][-RECENT_STEPS:]

    @property
    def is_enough(self) -> bool:
        """Whether there are steps enough to speak of."""
        return len(self.window) >= LEAST_STEPS

    def late(self, name: str) -> float | None:
        """Median of a metric over the recent steps; None where most of them do not have it."""
        return _median(numbers(self.window, name), len(self.window))

    def growth(self, name: str) -> float:
        """By how much a counter grew in each of the recent steps, on the mean; 0 where nothing says so."""
        seen = numbers(self.window, name)
        return (seen[-1] - seen[0]) / (len(seen) - 1) if len(seen) > 1 else 0.0

    @property
    def total_s(self) -> float | None:
        """Seconds of a step: its own word, else from the end of one to the end of the next.

        Steps that were read all at once, from a log that was there before, end at one time: no phase fits in between.
        """
        said = self.late(TOTAL)
        if said is not None:
            return said if said > 0 else None
        took = [later.at - before.at for before, later in itertools.pairwise(self.window)]
        if len(took) < LEAST_STEPS or min(took) <= 0:
            return None
        names = {name for step in self.window for name in step.values if name.startswith("time/")}
        between_s = statistics.median(took)
        return between_s if all((self.late(name) or 0.0) <= 1.1 * between_s for name in names) else None

    def seconds(self, *names: str) -> float:
        """Seconds of a step in these phases together; 0 where it has none of them."""
        return sum(self.late(name) or 0.0 for name in names)

    def share(self, *names: str) -> float | None:
        """Their share of a step, between 0 and 1; None where nothing says so."""
        total_s = self.total_s
        if total_s is None or all(self.late(name) is None for name in names):
            return None
        return min(1.0, self.seconds(*names) / total_s)

    def idle(self, side: str) -> float | None:
        """Share of a step in which one side, ``engine`` or ``learner``, had nothing to do."""
        seconds, fraction = IDLE[side]
        said = self.share(seconds)
        return self.late(fraction) if said is None else said

    def spent(self, name: str) -> tuple[float, int]:
        """Share of all time in view that went into a phase which comes now and then, and how often it came."""
        total_s, steps = self.total_s, self.steps[1:]
        if total_s is None or len(steps) < LEAST_STEPS:
            return 0.0, 0
        took = [step.number(name) or 0.0 for step in steps]
        # of steps that were read all at once, the times of their ends say nothing
        wall_s = max(self.steps[-1].at - self.steps[0].at, sum(step.number(TOTAL) or total_s for step in steps))
        return sum(took) / wall_s, sum(each > 0.1 * total_s for each in took)

    def early_and_late(self, name: str, least_s: float = 0.0) -> tuple[float, float] | None:
        """Medians of ``baseline`` and of the last few steps; None where there are too few.

        Args:
            name: The metric.
            least_s: The last few steps are those of so many seconds at least; steps that were read all at once have
                one time, which says nothing.
        """
        told = [step for step in self.steps if step.number(name) is not None]
        early = self.baseline(name)
        if len(told) < BASELINE_STEPS or not early:
            return None
        span_s = told[-1].at - told[0].at
        newer = sum(told[-1].at - step.at < least_s for step in told) if span_s > 0 else 0
        late = told[-max(LATE_STEPS, newer) :]
        if 2 * len(late) > len(told):
            return None
        return statistics.median(early), statistics.median(numbers(late, name))

    def baseline(self, name: str) -> list[float]:
        """A metric in ``first``, else in the first half of the steps.

        Early steps warm up (compilation, caches), so the very first two do not count.
        """
        values = numbers(self.first or self.steps, name)
        return values[2 : None if self.first else len(values) // 2 + 1]


def _median(values: Sequence[float], steps: int) -> float | None:
    return statistics.median(values) if len(values) >= max(LEAST_STEPS, SEEN_STEPS * steps) else None


class Symptom(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a run which goes on.

    Attributes:
        cause: Id of the cause that tells its story.
        word: At most 14 characters, for lists.
        sentence: What was seen, with the numbers, without a full stop.
        evidence: Further sentences that speak for it.
        node: The node that it speaks against, if it is one node's doing.
        place: The GPU that it speaks of, in words.
    """

    cause: str
    word: str
    sentence: str
    evidence: tuple[str, ...] = ()
    node: str = ""
    place: str = ""

    @property
    def in_a_list(self) -> str:
        """Its word, with the GPU where it speaks of one."""
        return f"{self.word}: {self.place}" if self.place else self.word

    @property
    def lines(self) -> tuple[str, ...]:
        """As lines, so that it is evidence like any other."""
        more = (f"symptom {self.word}, {each}" for each in self.evidence)
        return (f"symptom {self.word}: {self.sentence}", *more)


class RunPicture(Struct, frozen=True, kw_only=True):
    """What is known of an attempt besides its logs, at ``now`` (epoch seconds)."""

    now: float
    stage: StageSnapshot = StageSnapshot()
    end: EndSnapshot | None = None
    job: JobSnapshot | None = None
    bad_nodes: dict[str, str] = {}
    """Reason by node, from ``preflight.json``."""
    steps: tuple[Step, ...] = ()
    """The newest steps, oldest first."""
    first: tuple[Step, ...] = ()
    """The attempt's first steps."""
    hosts: tuple[HostSnapshot, ...] = ()
    silent: dict[str, float] = {}
    """Seconds since the sampler of each node spoke that should have since, of a live run."""
    unanswering: tuple[str, ...] = ()
    """Those of a live job's nodes that are down by Slurm's word, or do not answer it."""
    gpus: tuple[GpuRecord, ...] = ()
    engines: tuple[EngineCounters, ...] = ()
    planned: tuple[Planned, ...] = ()
    """Phases that are far behind what is planned."""
    said_at: float = 0.0
    """When anything was written to its logs last, epoch seconds; 0: it is not known."""
    tells_steps: bool = True
    """Whether it is of a system whose words are known, so that no step of it says something."""
    waiting_actors: tuple[str, ...] = ()
    """Classes of the Ray actors that have no place yet, one each."""

    @property
    def recent(self) -> Recent:
        """What rules about slow and silently failing runs look at."""
        return Recent(steps=self.steps, first=self.first, planned=self.planned, engines=self.engines, gpus=self.gpus)

    @property
    def waits_since(self) -> float:
        """Since when the next step is waited for: the last one, or the end of the checkpoint that came after it.

        0 where there is neither.
        """
        last = self.steps[-1].at if self.steps else 0.0
        return max(last, self.stage.since) if self.stage.stage == "training" else last

    @property
    def until(self) -> float:
        """When the attempt ended, or now while it lives."""
        return self.end.at if self.end is not None and self.end.at else self.now

    @property
    def was_wanted(self) -> bool:
        """Whether it ended because it was done, or because somebody wanted it to."""
        return self.end is not None and self.end.outcome in ("finished", "cancelled", "time-limit")
