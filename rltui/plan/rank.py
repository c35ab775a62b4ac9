"""The best few, and why; or, where nothing fits, which role does not and what would help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.plan.candidates import (
    EngineChoice,
    LearnerChoice,
    Request,
    as_text,
    engine_choices,
    engines_beside,
    layout_of,
    learner_choices,
    learner_counts,
)
from rltui.plan.throughput import StepTime, step_time, train_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rltui.layout.schema import Layout

Sound = Callable[[str, str], bool]

ALIKE = 8
"""Two proposals of the same engines differ by at least this part of all GPUs in learners."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A choice of learners and engines, and its time."""

    learner: LearnerChoice
    engine: EngineChoice
    engines: int
    time: StepTime


class Proposal(Struct, frozen=True, kw_only=True):
    """A layout that fits and checks without errors.

    Attributes:
        rank: 1 is the best.
        candidate: Learners, engines and times.
        layout: The layout.
        text: It as YAML.
        why: Why it has this rank.
    """

    rank: int
    candidate: Candidate
    layout: Layout
    text: str
    why: str

    @property
    def verdict(self) -> str:
        """``fits``, or ``tight`` where a role is within the estimate's error of the card."""
        memories = (self.candidate.learner.memory, self.candidate.engine.memory)
        return "tight" if any(memory.verdict == "tight" for memory in memories) else "fits"


def candidates(request: Request) -> list[Candidate]:
    """All that fit, fastest first; fewer learners and narrower engines first where they tie."""
    engines = [choice for choice in engine_choices(request) if choice.memory.verdict != "no"]
    found = []
    for count in learner_counts(request) if engines else ():
        learner = best_learner(request, count)
        if learner is not None:
            found += list(_beside(request, learner, engines))
    return sorted(found, key=_order)


def _beside(request: Request, learner: LearnerChoice, choices: Sequence[EngineChoice]) -> Iterator[Candidate]:
    for engine in choices:
        engines = engines_beside(request, learner.gpus, engine.tensor_parallel)
        if engines:
            time = step_time(request, learner, engine, engines)
            yield Candidate(learner=learner, engine=engine, engines=engines, time=time)


def _order(candidate: Candidate) -> tuple[float, int, int]:
    return -candidate.time.tokens_per_s, candidate.learner.ranks, candidate.engine.tensor_parallel


def best_learner(request: Request, count: int) -> LearnerChoice | None:
    """The fastest way for ``count`` learners to train; a tight one only where none has room to spare."""
    choices = [choice for choice in learner_choices(request, count) if choice.memory.verdict != "no"]
    return min(
        choices,
        key=lambda choice: (choice.memory.verdict == "tight", train_s(request, choice)[0], choice.memory.peak_gib),
        default=None,
    )


def propose(request: Request, sound: Sound, count: int = 3) -> tuple[Proposal, ...]:
    """The ``count`` best layouts that differ from each other; none where nothing fits.

    Args:
        request: What is wanted.
        sound: Whether the check finds no error in a layout, given as text and name; those with errors are passed over.
        count: How many.
    """
    chosen: list[Proposal] = []
    kept: list[Candidate] = []
    ranked = candidates(request)
    for candidate in ranked:
        if len(chosen) == count:
            break
        if any(_alike(request, candidate, other) for other in kept):
            continue
        layout = layout_of(request, candidate.learner, candidate.engine, candidate.engines)
        text = as_text(layout)
        if sound(text, f"{layout.name}.yaml"):
            why = _why(candidate, kept[0] if kept else None, len(ranked))
            kept.append(candidate)
            chosen.append(Proposal(rank=len(kept), candidate=candidate, layout=layout, text=text, why=why))
    return tuple(chosen)


def _alike(request: Request, one: Candidate, other: Candidate) -> bool:
    apart = abs(one.learner.ranks - other.learner.ranks)
    same_width = one.engine.tensor_parallel == other.engine.tensor_parallel
    return same_width and apart < max(1, request.total_gpus // ALIKE)


def _why(candidate: Candidate, best: Candidate | None, fitting: int) -> str:
    time = candidate.time
    if best is None:
        larger = time.generate_s >= time.train_s
        phase, bound = ("generation", time.decode_bound) if larger else ("training", time.train_bound)
        return f"fastest of {fitting} that fit; {phase} takes longest, bound by {bound}"
    slower = time.step_s / best.time.step_s - 1
    changes = {
        "generation": time.generate_s - best.time.generate_s,
        "training": time.train_s - best.time.train_s,
        "sync": time.sync_s - best.time.sync_s,
    }
    worst = max(changes, key=lambda phase: changes[phase])
    if changes[worst] <= 0:
        return "as fast as the first"
    least = min(changes, key=lambda phase: changes[phase])
    gain = f", {least} {-changes[least]:.1f} s less" if changes[least] < -0.05 else ""
    return f"{slower:.0%} slower: {worst} takes {changes[worst]:.1f} s more{gain}"
