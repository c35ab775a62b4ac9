"""The best few, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter

from msgspec import Struct, structs

from rltui.layout.schema import Layout
from rltui.memory.layouts import estimate_layout
from rltui.plan import actor_critic, distill
from rltui.plan.assemble import as_text, layout_of
from rltui.plan.candidates import (
    engine_choices,
    engines_beside,
    learner_counts,
    packed,
    preferred_s,
    sparest_way,
    training_ways,
    with_its_memory,
)
from rltui.plan.request import Means, Request
from rltui.plan.setup import EngineChoice, LearnerChoice, Setup
from rltui.plan.throughput import StepTime, step_time

Sound = Callable[[str, str], bool]

DEFAULT_COUNT = 3
"""Proposals where nobody says how many."""

ALIKE = 8
"""Two proposals of the same engines differ by at least this part of all GPUs in learners."""

FURTHER_MEANS = (
    *(Means(pack=pack, offload=offload) for pack, offload in ((True, False), (False, True), (True, True))),
    *(Means(pack=True, offload=each, sequence_parallel=size) for each in (False, True) for size in (2, 4, 8)),
)
"""Tried in turn where nothing fits without."""

HOST_GIB = 3072
"""Most host memory of a node into which an optimizer is offloaded: a DGX H100 has 2 TB, a DGX B200 up to 4. Assumed, as
no request says it; the proposal says what it takes."""

SLEEP_WORTH = 0.9
"""Engines sleep where that makes a step shorter than this share of one in which they stay awake: not every trainer can
put engines to sleep."""


WHOLE_WORTH = 1.1
"""A division with equally many samples for each learner is proposed up to this many times as long a step."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A setup and its time."""

    setup: Setup
    time: StepTime


class Proposal(Struct, frozen=True, kw_only=True):
    """A layout that fits and checks without errors.

    Attributes:
        rank: 1 is the best.
        setup: Who has which GPUs.
        time: What a step is made of.
        layout: The layout.
        text: It as YAML.
        why: Why it has this rank.
    """

    rank: int
    setup: Setup
    time: StepTime
    layout: Layout
    text: str
    why: str

    @property
    def verdict(self) -> str:
        """``fits``, or ``tight`` where a role is within the estimate's error of the card."""
        return self.setup.verdict


def candidates(request: Request) -> list[Candidate]:
    """All that fit and leave no GPU idle (or all, where each leaves some), fastest first.

    Ties: fewer learners and narrower engines and teachers first where they tie.
    """
    found = [Candidate(setup=setup, time=step_time(request, setup)) for setup in _setups(request)]
    full = [each for each in found if each.setup.gpus == request.total_gpus]
    return sorted(_sleepers_worth_it(full or found), key=_order)


def _setups(request: Request) -> Iterator[Setup]:
    if request.algorithm == "ppo":
        return actor_critic.setups(request)
    if request.algorithm == "opd":
        return distill.setups(request, best_learner)
    return chain(_grpo(request), actor_critic.colocated(request))


def _grpo(request: Request) -> Iterator[Setup]:
    choices = _fitting(request)
    for count in learner_counts(request) if choices else ():
        learner = best_learner(request, count)
        if learner is None:
            continue
        for engine in choices:
            engines = engines_beside(request, learner.gpus, engine.tensor_parallel)
            if engines:
                memories = {"learner": learner.memory, "rollout": engine.memory}
                yield Setup(learner=learner, engine=engine, engines=engines, memories=memories)


def _sleepers_worth_it(found: Sequence[Candidate]) -> Iterator[Candidate]:
    """Of a pair that differs in sleep alone, the sleeper only where it is clearly faster."""
    steps: dict[object, dict[bool, float]] = {}
    for each in found:
        steps.setdefault(_but_for_sleep(each.setup), {})[each.setup.sleeps] = each.time.step_s
    for each in found:
        pair = steps[_but_for_sleep(each.setup)]
        if len(pair) == 1 or (pair[True] < SLEEP_WORTH * pair[False]) == each.setup.sleeps:
            yield each


def _but_for_sleep(setup: Setup) -> object:
    critic = setup.critic.gpus if setup.critic else ()
    teacher = setup.teacher.tensor_parallel if setup.teacher else 0
    return setup.placement, setup.learner.gpus, critic, setup.engine.tensor_parallel, teacher


def _order(candidate: Candidate) -> tuple[float, int, int, int]:
    setup = candidate.setup
    teacher = setup.teacher.tensor_parallel if setup.teacher is not None else 0
    return -candidate.time.tokens_per_s, setup.learner.ranks, setup.engine.tensor_parallel, teacher


def best_learner(request: Request, count: int) -> LearnerChoice | None:
    """The fastest way for ``count`` learners to train; a tight one only where none has room to spare."""
    ways = training_ways(request, packed(count, request.gpus_per_node))
    timed = sorted(((preferred_s(request, way), way) for way in ways), key=itemgetter(0))
    tight: LearnerChoice | None = None
    for _, alike in groupby(timed, key=itemgetter(0)):
        choices = sorted((with_its_memory(request, way) for _, way in alike), key=lambda choice: choice.memory.peak_gib)
        for choice in choices:
            if choice.memory.verdict == "fits":
                return choice
            if choice.memory.verdict == "tight" and tight is None:
                tight = choice
    return tight


def propose(request: Request, sound: Sound, count: int = DEFAULT_COUNT) -> tuple[Proposal, ...]:
    """The ``count`` best layouts that differ from each other; none where nothing fits.

    Where nothing does, rows are packed, the optimizer goes to host memory, GPUs share sequences, and all of these.

    Args:
        request: What is wanted.
        sound: Whether the check finds no error in a layout, given as text and name; those with errors are passed over.
        count: How many.
    """
    return next(filter(None, (propose_by(wanted, sound, count) for wanted in _with_more_means(request))), ())


def elsewhere(request: Request, count: int = DEFAULT_COUNT) -> tuple[Proposal, ...]:
    """The best with engines over several nodes: other systems' trainers run them, no layout of ours can say them."""
    wide = structs.replace(request, means=structs.replace(request.means, wide_engines=True))
    return propose(wide, lambda *_: True, count)  # no check of ours speaks of what another system runs


def _with_more_means(request: Request) -> Iterator[Request]:
    """``request`` as it is, with rows no longer than it needs, then with each means by which its learners may fit."""
    yield request
    if request.packed_tokens > request.prompt_tokens + request.response_tokens:
        request = structs.replace(request, row_tokens=0)
        yield request
    own = request.means
    if own.offload or own.sequence_parallel > 1 or not any(_fitting(request)):
        return
    for means in FURTHER_MEANS:
        more = structs.replace(means, pack=means.pack or own.pack, wide_engines=own.wide_engines)
        wanted, size = structs.replace(request, means=more), means.sequence_parallel
        most = min(request.total_gpus, wanted.most_learners) // size * size
        if wanted == request or size > request.gpus_per_node or request.model.heads % size or not most:
            continue
        way = sparest_way(wanted, packed(most, request.gpus_per_node))
        if with_its_memory(wanted, way).memory.verdict != "no":
            yield wanted


def _fitting(request: Request) -> list[EngineChoice]:
    return [choice for choice in engine_choices(request) if choice.memory.verdict != "no"]


def propose_by(request: Request, sound: Sound, count: int = DEFAULT_COUNT) -> tuple[Proposal, ...]:
    """The same with the request's own means and no others."""
    ranked = candidates(request)
    chosen: list[tuple[Candidate, Layout, str]] = []
    for candidate in chain(_different(request, ranked, count), ranked):
        if len(chosen) == count:
            break
        if any(_alike(request, candidate.setup, other.setup) for other, *_ in chosen):
            continue
        layout = layout_of(request, candidate.setup)
        text = as_text(layout)
        if _host_holds(layout) and sound(text, f"{layout.name}.yaml"):
            chosen.append((candidate, layout, text))
    chosen.sort(key=lambda each: _order(each[0]))
    return tuple(
        Proposal(
            rank=place + 1,
            setup=candidate.setup,
            time=candidate.time,
            layout=layout,
            text=text,
            why=_why(candidate, chosen[0][0].time if place else None, len(ranked), even=_even(request, candidate)),
        )
        for place, (candidate, layout, text) in enumerate(chosen)
    )


def _host_holds(layout: Layout) -> bool:
    """Whether what is offloaded fits a node's host memory."""
    if layout.roles.learner.offload == "none":
        return True
    host = estimate_layout(layout).host
    return host is None or host.ram_gib <= HOST_GIB


def _different(request: Request, ranked: Sequence[Candidate], count: int) -> Iterator[Candidate]:
    """Of GRPO's three or more the even division, unless one like it is much faster, then the fastest that differ.

    Rates are known within a factor of two at best. Half of the GPUs makes neither phase take more than about twice what
    all of them would, whatever the rates are: no other division can say so.
    """
    even = next((each for each in ranked if _even(request, each)), None) if count >= DEFAULT_COUNT else None
    found = [even] if even is not None and not any(_hardly_like(request, even, each) for each in ranked) else []
    for each in ranked:
        if len(found) == count:
            break
        if not any(_alike(request, each.setup, other.setup) for other in found):
            found.append(_whole(request, each, ranked))
    yield from found


def _hardly_like(request: Request, slow: Candidate, fast: Candidate) -> bool:
    """Whether ``fast`` is a division like ``slow`` and so much faster that it stands in its place."""
    return _alike(request, slow.setup, fast.setup) and slow.time.step_s >= WHOLE_WORTH * fast.time.step_s


def _whole(request: Request, best: Candidate, ranked: Sequence[Candidate]) -> Candidate:
    """``best``, or one like it that is hardly slower and whose learners have equally many samples."""
    near = (
        each
        for each in ranked
        if request.samples_per_step % each.setup.learner.replicas == 0
        and _alike(request, best.setup, each.setup)
        and not _hardly_like(request, each, best)
    )
    return next(near, best)


def _even(request: Request, candidate: Candidate) -> bool:
    """Whether learner and engines have half of the GPUs each."""
    setup = candidate.setup
    return request.algorithm == "grpo" and setup.placement == "apart" and 2 * setup.learner.ranks == request.total_gpus


def _alike(request: Request, one: Setup, other: Setup) -> bool:
    """PPO is planned to compare placements, one proposal of each; of GRPO one is colocated."""
    if request.algorithm == "ppo":
        return one.placement == other.placement
    if "standard" in (one.placement, other.placement):
        return one.placement == other.placement
    return abs(one.learner.ranks - other.learner.ranks) < max(1, request.total_gpus // ALIKE)


def _why(candidate: Candidate, best: StepTime | None, fitting: int, *, even: bool) -> str:
    time = candidate.time
    phases = _phases(time)
    if best is None:
        longest = max(phases, key=lambda phase: phases[phase])
        bound = {"generation": time.decode_bound, "training": time.train_bound, "the teacher": "FLOPs"}
        return f"fastest of {fitting} that fit; {longest} takes longest, bound by {bound.get(longest, 'the links')}"
    slower = time.step_s / best.step_s - 1
    changes = {phase: seconds - _phases(best)[phase] for phase, seconds in phases.items()}
    worst = max(changes, key=lambda phase: changes[phase])
    if changes[worst] <= 0:
        return "as fast as the first"
    least = min(changes, key=lambda phase: changes[phase])
    gain = f", {least} {-changes[least]:.1f} s less" if changes[least] < -0.05 else ""
    half = "; half and half, least hurt by wrong rates" if even else ""
    return f"{slower:.0%} slower: {worst} takes {changes[worst]:.1f} s more{gain}{half}"


def _phases(time: StepTime) -> dict[str, float]:
    return {
        "generation": time.generate_s,
        "the teacher": time.teacher_s,
        "training": time.update_s,
        "sync": time.sync_s,
    }
