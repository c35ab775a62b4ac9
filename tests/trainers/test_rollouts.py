"""Rollouts that run ahead: never further than allowed, in the order of the data, through holds, deaths and delays."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers import rollouts as rollouts_module
from trainers.data.prompts import Prompt
from trainers.dispatch import Dispatch
from trainers.lookahead import Lookahead, StalenessCounter, staleness_metrics
from trainers.metrics import TrainingError
from trainers.phases import IdleClock
from trainers.roles.calls import Role, RoleDiedError, RoleError
from trainers.roles.completions import Completion, Request, Streamed
from trainers.roles.restarts import LIMIT, WINDOW_S, Restarts
from trainers.roles.sampling import SamplingSettings
from trainers.rollouts import Rollouts, prompts_per_chunk
from waiting import WAIT_S, eventually

pytestmark = pytest.mark.trainers

SAMPLES = 2


class FakeEngine:
    """An engine in this process: takes its time, and says which weights it sampled with when it began."""

    def __init__(self, source: random.Random) -> None:
        self.version = 0
        self.at_work = 0
        self.calls: list[list[int]] = []
        self.trouble: list[Exception] = []
        self.stream = SimpleNamespace(remote=lambda requests, low: lambda: self._stream(requests))
        self.pending: list[tuple[Request, int]] = []
        self._source = source

    def _stream(self, requests: list[Request]) -> Streamed:
        if self.trouble:
            raise self.trouble.pop()
        self.pending += [(request, self.version) for request in requests]
        self.at_work = len(self.pending)
        time.sleep(self._source.choice([0.0, 0.0, 0.001, 0.004]))
        self._source.shuffle(self.pending)
        done, self.pending = self.pending[:2], self.pending[2:]
        assert all(version == self.version for _, version in done), "weights changed while the engine was at work"
        self.calls.append([request.prompt[0] for request, _ in done])
        self.at_work = len(self.pending)
        return Streamed({
            request.key: [Completion(0, (request.prompt[0],), (-0.1,), "stop", version)] * SAMPLES
            for request, version in done
        }, left=SAMPLES * len(self.pending))  # fmt: skip


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts_module, "call_all", lambda calls, deadline_s, doing: [call() for _, call in calls])


class Task:
    def __init__(self) -> None:
        self.read: list[int] = []

    def prompts(self, start: int, count: int) -> list[Prompt]:
        self.read.append(start)
        return [Prompt(token_ids=(number,), text="", answer="") for number in range(start, start + count)]


class Run:
    """The loop's side of a run on fake engines."""

    def __init__(self, ahead: int, engines: int, prompts: int, steps: int, seed: int = 0) -> None:
        source = random.Random(seed)
        self.roles = [Role(f"engine {i}", FakeEngine(source), kind="engine") for i in range(engines)]
        self.rollouts = Rollouts(self.roles, prompts, 5.0, ahead=ahead, slots=SAMPLES * 2, spare=SAMPLES)
        self.task = Task()
        self.lookahead = Lookahead(self.task, self.rollouts, self.sampling, prompts, ahead, steps)
        self.version, self.staleness, self._source = 0, StalenessCounter(ahead), source

    def sampling(self, step: int) -> SamplingSettings:
        return SamplingSettings(1.0, 4, SAMPLES, (2,), step)

    def collect(self, step: int) -> tuple[list[int], dict[int, int]]:
        """Prompts of ``step``, checked to be those of its samples, and the staleness of these."""
        prompts, groups = self.lookahead.collect(step, lambda: None)
        numbers = [prompt.token_ids[0] for prompt in prompts]
        assert [[one.token_ids[0] for one in group] for group in groups] == [[number] * SAMPLES for number in numbers]
        self.staleness.note(groups, self.version)
        return numbers, self.staleness.take()[0]

    def train(self) -> None:
        """A step of the learner, and its weights to all engines."""
        time.sleep(self._source.choice([0.0, 0.001, 0.004]))
        self.version += 1
        with self.rollouts.dispatch.held(lambda: None):
            for role in self.roles:
                assert role.actor.at_work == 0
                role.actor.version = self.version


@pytest.fixture
def run() -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(*arguments: int) -> Run:
        made.append(Run(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.rollouts.close()


@settings(max_examples=25, deadline=None)
@given(ahead=st.integers(0, 3), engines=st.integers(1, 3), prompts=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_no_sample_is_staler_than_allowed_with_any_delays(ahead: int, engines: int, prompts: int, seed: int) -> None:
    steps, one = 8, Run(ahead, engines, prompts, 8, seed)
    try:
        for step in range(1, steps + 1):
            numbers, ages = one.collect(step)
            assert numbers == list(range((step - 1) * prompts, step * prompts))
            assert max(ages) <= min(ahead, step - 1)
            assert sum(ages.values()) == prompts * SAMPLES
            assert len(one.lookahead.starts) == min(ahead, steps - step)
            one.train()
        assert sum(len(call) for role in one.roles for call in role.actor.calls) == steps * prompts
    finally:
        one.rollouts.close()


def test_an_engine_that_is_fast_is_exactly_as_far_ahead_as_allowed(run: Callable[..., Run]) -> None:
    """Without this the test above would pass where nothing ever ran ahead."""
    one, seen = run(2, 1, 2, 6), []
    for step in range(1, 7):
        seen.append(one.collect(step)[1])
        eventually(lambda left=6 - step: one.rollouts.results.current == 2 * min(2, left), "samples ahead", WAIT_S)
        one.train()
    assert seen == [{0: 4}, {1: 4}, {2: 4}, {2: 4}, {2: 4}, {2: 4}]
    assert staleness_metrics(seen[2]) == {"staleness_mean": 2.0, "staleness_max": 2.0}


def test_without_steps_ahead_every_sample_is_fresh(run: Callable[..., Run]) -> None:
    one = run(0, 2, 3, 4)
    for step in range(1, 5):
        assert one.collect(step)[1] == {0: 3 * SAMPLES}
        assert (one.rollouts.prompts.current, one.rollouts.results.current) == (0, 0)
        one.train()


def test_further_prompts_of_a_step_are_fresh_and_nobody_elses(run: Callable[..., Run]) -> None:
    one = run(1, 1, 2, 3)
    drawn = [*one.collect(1)[0]]
    prompts, groups = one.lookahead.draw(1, 2, 2, lambda: None)
    drawn += [prompt.token_ids[0] for prompt in prompts]
    assert drawn == [0, 1, 4, 5]  # 2 and 3 are those of step 2, which is under way
    assert {sample.weight_version for group in groups for sample in group} == {0}
    assert one.lookahead.starts == (2,)
    one.train()
    assert one.collect(2)[0] == [2, 3]
    assert one.lookahead.starts == (6,)


@pytest.mark.parametrize("ahead", [0, 2])
def test_prompts_that_were_prepared_are_read_once_and_none_beyond_the_last_step(
    run: Callable[..., Run], ahead: int
) -> None:
    one = run(ahead, 1, 2, 4)
    for step in range(1, 5):
        assert one.collect(step)[0] == [2 * step - 2, 2 * step - 1]
        for _ in range(2):
            one.lookahead.prepare(step)
        assert one.task.read == list(range(0, 2 * min(4, step + ahead + 1), 2))
        one.train()


def test_prompts_drawn_after_others_were_prepared_are_the_right_ones(run: Callable[..., Run]) -> None:
    one = run(0, 1, 2, 3)
    one.collect(1)
    one.lookahead.prepare(1)
    prompts, _ = one.lookahead.draw(1, 2, 2, lambda: None)
    assert [prompt.token_ids[0] for prompt in prompts] == [2, 3]
    assert one.collect(2)[0] == [4, 5]
    one.lookahead.prepare(2)
    one.lookahead.resume(2, ())
    assert one.collect(3)[0] == [2, 3]


def test_the_work_of_a_dead_engine_goes_to_the_others(run: Callable[..., Run]) -> None:
    one = run(1, 2, 4, 3)
    first, second = one.roles
    dead = first.actor
    dead.trouble.append(RoleDiedError(first, "engine 0 died"))
    _, groups = one.lookahead.collect(1, lambda: None)
    assert [[sample.token_ids[0] for sample in group] for group in groups] == [[i] * SAMPLES for i in range(4)]
    dispatch = one.rollouts.dispatch
    eventually(lambda: dispatch.failures, "the report of a death", WAIT_S)
    [failure] = dispatch.failures
    assert failure.role is first
    dispatch.mend()
    assert dispatch.failures == [failure]  # nothing has changed yet
    eventually(lambda: sum(map(len, second.actor.calls)) == 8, "the other engine, which does all", WAIT_S)
    first.become(Role("engine 0", FakeEngine(random.Random(1))))
    dispatch.mend()
    assert not dispatch.failures
    one.train()
    assert one.collect(2)[0] == [4, 5, 6, 7]
    assert dead.calls == []


def test_a_death_that_was_mended_before_it_was_noticed_is_none(run: Callable[..., Run]) -> None:
    one = run(0, 1, 1, 1)
    role = one.roles[0]
    error = RoleDiedError(role, "engine 0 died")
    role.become(Role("engine 0", FakeEngine(random.Random(1))))
    one.rollouts.dispatch.await_repair(0, error)  # does not wait
    assert one.rollouts.dispatch.failures == []


def test_any_other_failure_ends_the_wait(run: Callable[..., Run]) -> None:
    one = run(1, 1, 1, 2)
    one.roles[0].actor.trouble.append(RoleError("engine 0 failed while generating: ValueError"))
    with pytest.raises(RoleError, match="engine 0 failed"):
        one.collect(1)


@pytest.mark.parametrize("fails", ["call", "answer"])
def test_no_failure_of_a_feeder_leaves_who_collects_waiting(fails: str, run: Callable[..., Run]) -> None:
    one, until = run(0, 1, 1, 1), time.monotonic() + WAIT_S
    full = MagicMock(side_effect=ValueError("no room"))
    if fails == "call":
        one.roles[0].actor.stream.remote = full
    ticket = one.rollouts.submit([[1]], one.sampling(1), full if fails == "answer" else None)
    with pytest.raises(RoleError, match=r"engine 0: .*ValueError: no room"):
        one.rollouts.collect(ticket, lambda: time.monotonic() < until or pytest.fail("nobody told of it"))


class Item(SimpleNamespace):
    """A prompt of some samples."""


def items(*samples: int) -> list[Any]:
    return [Item(samples=count, number=number) for number, count in enumerate(samples)]


def test_a_hold_waits_for_what_is_under_way_and_hands_nothing_out() -> None:
    dispatch: Dispatch[Any] = Dispatch(1, slots=2)
    dispatch.put(items(1, 1, 1))
    new, low = dispatch.take(0)
    assert (len(new), low) == (2, 1)  # it asks again when one is left
    held, over, later = threading.Event(), threading.Event(), list[Any]()

    def hold() -> None:
        with dispatch.held(lambda: held.set()):
            over.set()

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(WAIT_S)
    dispatch.done(0, new[:1], left=1)
    assert dispatch.take(0) == ([], 0)  # a slot is free, and stays so
    assert not over.is_set()
    dispatch.done(0, new[1:])
    assert over.wait(WAIT_S)
    holder.join(WAIT_S)
    later += dispatch.take(0)[0]
    assert [item.number for item in later] == [2]
    assert dispatch.busy_s()[0] > 0

    def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError), dispatch.held(give_up):
        pass


@pytest.mark.parametrize(
    ("engines", "slots", "spare", "counts", "taken"),
    [
        (1, 4, 0, [1] * 6, [4]), (1, 4, 2, [1] * 9, [6]), (2, 8, 4, [2] * 4, [2, 2]), (2, 2, 0, [8, 8], [1, 1]),
        (3, 9, 0, [1] * 5, [2, 2, 1]),
    ],
)  # fmt: skip
def test_engines_take_equal_shares_and_no_more_than_they_have_room_for(
    engines: int, slots: int, spare: int, counts: list[int], taken: list[int]
) -> None:
    dispatch: Dispatch[Any] = Dispatch(engines, slots, spare)
    dispatch.put(items(*counts))
    assert [len(dispatch.take(engine)[0]) for engine in range(engines)] == taken


def test_a_step_may_be_begun_before_it_is_collected(run: Callable[..., Run]) -> None:
    one, last = run(0, 2, 4, 2), 2
    assert one.collect(1)[0] == [0, 1, 2, 3]
    one.train()
    one.lookahead.begin(2)
    assert one.lookahead.starts == (4,)  # a checkpoint of now knows that they have it
    eventually(lambda: one.rollouts.results.current == 4, "the answers of step 2")
    assert one.collect(2) == ([4, 5, 6, 7], {0: 4 * SAMPLES})
    one.lookahead.begin(last + 1)
    assert one.lookahead.starts == ()  # there is no such step


def test_work_between_two_steps_counts_as_the_engines() -> None:
    busy = [5.0, 7.0]
    clock = IdleClock(lambda: busy)
    busy = [6.0, 7.0]
    clock.begin()
    busy = [8.0, 8.0]
    assert clock.take_engine_work_s() == pytest.approx(2.0)
    assert clock.take_engine_work_s() == 0


def test_engines_are_idle_for_what_they_do_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("trainers.phases.time.monotonic", lambda: now[0])
    busy = [5.0, 7.0]
    clock = IdleClock(lambda: busy)
    clock.begin()
    now[0], busy = 110.0, [9.0, 7.0]
    found = clock.measure({"generate": 3.0, "train": 4.0, "weight_sync": 1.0, "measure": 0.5})
    assert found == {"time/engine_idle": pytest.approx(8.0), "time/learner_idle": pytest.approx(4.5)}
    assert clock.engine_work_s() == pytest.approx(2.0)
    shared = IdleClock(lambda: busy, takes_turns=True)
    now[0], busy = 120.0, [13.0, 11.0]
    resting = shared.measure({"train": 4.0})  # the cards of both, which worked for 4 s on either side
    assert resting == {"time/engine_idle": pytest.approx(2.0), "time/learner_idle": pytest.approx(2.0)}


def test_the_engine_that_takes_longest_for_a_token_is_named() -> None:
    rollouts = Rollouts([], 1, 1.0)
    rollouts._speeds = [(100, 2.0), (90, 6.0), (50, 1.0), (0, 0.0)]
    assert rollouts.take_slowest() == {"slowest_engine": 1.0, "slowest_engine_speed": pytest.approx(0.3)}
    assert rollouts.take_slowest() == {}  # nobody has answered since


def test_how_full_the_caches_were_is_told_of_engines_that_have_one() -> None:
    rollouts = Rollouts([], 1, 1.0)
    rollouts.dispatch, rollouts._speeds = Dispatch(3, 64), [(0, 0.0)] * 3
    rollouts._deliver(0, {}, Streamed(busy_slot_s=30.0, span_s=2.0))  # of an engine without such a cache
    assert rollouts.take_cache() == {}
    rollouts._deliver(1, {}, Streamed(busy_slot_s=40.0, span_s=2.0, waited_s=60.0, cache_share=0.99, preempted=3))
    rollouts._deliver(2, {}, Streamed(busy_slot_s=20.0, span_s=1.0, waited_s=0.0, cache_share=0.5, preempted=1))
    told = {"kv_cache_usage": 0.99, "engine_running": 20.0, "engine_waiting": 20.0, "preemptions_total": 4.0}
    assert rollouts.take_cache() == pytest.approx(told)
    rollouts._deliver(1, {}, Streamed(busy_slot_s=8.0, span_s=2.0, cache_share=0.25))
    told = {"kv_cache_usage": 0.25, "engine_running": 4.0, "engine_waiting": 0.0, "preemptions_total": 4.0}
    assert rollouts.take_cache() == pytest.approx(told)


def test_engines_that_die_too_often_end_the_attempt() -> None:
    now = [0.0]
    restarts = Restarts(clock=lambda: now[0])
    role = Role("engine 1", None, pid=7, host="n1", kind="engine")
    error = RoleDiedError(role, "engine 1 (pid 7 on n1) died while generating")
    texts = [restarts.grant(error) for _ in range(LIMIT)]
    assert texts[0].startswith("engine 1 (pid 7 on n1) died while generating; starting it again (1 of 3 restarts")
    with pytest.raises(RoleDiedError, match="engine 1"):
        restarts.grant(error)
    now[0] = WINDOW_S + 1
    assert "(1 of 3" in restarts.grant(error)


@pytest.mark.parametrize("kind", ["learner", "critic"])
def test_what_is_trained_is_never_started_again(kind: str) -> None:
    error = RoleDiedError(Role(f"{kind} 0", None, kind=kind), f"{kind} 0 died while training")
    with pytest.raises(RoleDiedError, match=f"{kind} 0 died"):
        Restarts().grant(error)
    shared = RoleDiedError(Role("reference 0", None, kind="reference"), "reference 0 died")
    assert Restarts().grant(shared)
    with pytest.raises(RoleDiedError, match="reference 0 died"):
        Restarts(("teacher",)).grant(shared)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [((32, 8, 1), 32), ((32, 8, 2), 16), ((33, 8, 2), 17), ((64, 8, 1), 32), ((4, 512, 1), 1), ((2, 8, 4), 1),
     ((32, 8, 1, 16), 2), ((32, 8, 1, 4), 1), ((128, 8, 1, 512), 64)],
)  # fmt: skip
def test_prompts_of_one_call(numbers: Sequence[Any], expected: int) -> None:
    assert prompts_per_chunk(*numbers) == expected


def test_a_sample_older_than_the_bound_or_of_a_version_to_come_ends_the_run() -> None:
    samples = [[Completion(0, (1,), (-0.5,), "stop", weight_version=6)]]
    assert StalenessCounter(2).note(samples, 8)[0][0].staleness == 2
    for bound, version in ((1, 8), (0, 7), (2, 5)):
        with pytest.raises(TrainingError, match=f"weight version 6 came to be trained on at version {version}"):
            StalenessCounter(bound).note(samples, version)
