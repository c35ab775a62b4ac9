"""Setups of on-policy distillation: learners, engines and teachers, each on GPUs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING

from rltui.plan.candidates import engine_choices, learner_counts, teacher_choices
from rltui.plan.decoding import generate_s, teacher_s
from rltui.plan.setup import EngineChoice, LearnerChoice, Setup

if TYPE_CHECKING:
    from rltui.plan.request import Request

MOST_TEACHERS = 1000
"""What a layout allows."""


def setups(request: Request, best_learner: Callable[[Request, int], LearnerChoice | None]) -> Iterator[Setup]:
    """For each number of learners and each width of engines and teachers, the split of the rest that scores fastest."""
    engines = [choice for choice in engine_choices(request) if choice.memory.verdict != "no"]
    teachers = [choice for choice in teacher_choices(request) if choice.memory.verdict != "no"]
    times: dict[tuple[int, int], float] = {}
    for count in learner_counts(request) if engines and teachers else ():
        learner = best_learner(request, count)
        if learner is None:
            continue
        for engine, teacher in product(engines, teachers):
            found = _divided(request, learner, engine, teacher, times)
            if found is not None:
                yield found


def _divided(
    request: Request,
    learner: LearnerChoice,
    engine: EngineChoice,
    teacher: EngineChoice,
    times: dict[tuple[int, int], float],
) -> Setup | None:
    """As many teachers as make generating and scoring together the shortest; None where one of each has no room."""
    best: tuple[float, int, int] | None = None
    for teachers in replica_counts(request.total_gpus // teacher.tensor_parallel):
        room = engines_left(request, learner.gpus, teacher.tensor_parallel, teachers, engine.tensor_parallel)
        if not room:
            break
        key = (engine.tensor_parallel, room)
        if key not in times:
            times[key] = generate_s(request, engine, room)[0]
        seconds = times[key] + teacher_s(request, teacher, teachers)
        if best is None or seconds < best[0]:
            best = (seconds, teachers, room)
    if best is None:
        return None
    memories = {"learner": learner.memory, "rollout": engine.memory, "teacher": teacher.memory}
    _, teachers, room = best
    return Setup(learner=learner, engine=engine, engines=room, teacher=teacher, teachers=teachers, memories=memories)


def replica_counts(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12 and so on, up to ``most``."""
    powers = [2**power for power in range(most.bit_length())]
    return sorted(n for n in {*powers, *(3 * n for n in powers)} if n <= min(most, MOST_TEACHERS))


def engines_left(request: Request, learners: tuple[int, ...], width: int, teachers: int, engine_width: int) -> int:
    """Engines that have room once learners are packed and teachers took the fullest nodes that have room for them."""
    rest = [request.gpus_per_node - bundle for bundle in learners if bundle < request.gpus_per_node]
    sizes = [(free, 1) for free in rest] + [(request.gpus_per_node, request.nodes - len(learners))]
    engines = 0
    for free, nodes in sizes:
        each = free // width
        full = min(nodes, teachers // each) if each else 0
        teachers -= full * each
        engines += full * ((free - each * width) // engine_width)
        nodes -= full
        if each and teachers and nodes:
            engines += (free - teachers * width) // engine_width
            teachers, nodes = 0, nodes - 1
        engines += nodes * (free // engine_width)
    return 0 if teachers else min(request.prompts, engines)
