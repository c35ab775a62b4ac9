"""Rules about runs that go on: each verdict from its own numbers, and none where the sources do not say so."""

from __future__ import annotations

import math

import pytest
from msgspec import structs

from rltui.diagnose.engine_lines import engine_counters
from rltui.diagnose.index import CAUSES
from rltui.diagnose.recent import EngineCounters, GpuRecord, Recent, RunPicture, Step
from rltui.diagnose.run_words import symptoms_of
from rltui.diagnose.silent_rules import SILENT_RULES, silent_symptoms
from rltui.diagnose.slow_rules import RULES, slow_symptoms
from rltui.watch.snapshots import EndSnapshot, StageSnapshot

BALANCED = {
    "time/total": 60.0, "time/generate": 32.0, "time/train": 24.0, "time/weight_sync": 3.0,
    "time/engine_idle": 28.0, "time/learner_idle": 33.0,
}  # fmt: skip


def steps(count: int = 12, every_s: float = 60.0, **values: float) -> tuple[Step, ...]:
    """Steps that are all alike; in names, ``__`` is a slash."""
    own = {**BALANCED, **{name.replace("__", "/"): value for name, value in values.items()}}
    return tuple(Step(every_s * number, {n: v for n, v in own.items() if not math.isnan(v)}) for number in range(count))


def slow(recent: Recent) -> list[str]:
    return [one.word for one in slow_symptoms(recent)]


NONE = math.nan


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, []),
        # the run that was well by the word of rltui before: 73 % of each step in time/engine_idle
        ({"time__train": 42.0, "time__generate": 15.0, "time__engine_idle": 44.0}, ["learner-bound"]),
        ({"time__generate": 46.0, "time__learner_idle": 47.0, "time__engine_idle": 14.0}, ["rollout-bound"]),
        # rollouts that run ahead: who rests is pure loss
        ({"time__generate": 27.0, "time__learner_idle": 27.0, "time__engine_idle": 2.0}, ["rollout-bound"]),
        ({"time__generate": 2.0, "time__train": 50.0, "time__learner_idle": 4.0}, ["learner-bound"]),
        ({"time__generate": 1.0, "time__train": 54.0, "time__learner_idle": 2.0, "time__engine_idle": 3.0}, []),
        # both rest for the sake of a third
        ({"time__reward": 40.0, "time__generate": 9.0, "time__learner_idle": 50.0}, ["reward-bound"]),
        ({"time__teacher": 16.0}, ["teacher-bound"]),
        ({"time__weight_sync": 20.0}, ["sync-bound"]),
        ({"time__data": 20.0}, ["data-bound"]),
        ({"time__update_actor": 12.0, "time__update_critic": 30.0, "time__train": 30.0}, ["critic-bound"]),
        ({"time__update_actor": 22.0, "time__update_critic": 25.0, "time__train": 25.0}, []),
        ({"time__generate": 16.0, "time__update_critic": 30.0, "time__train": 10.0}, ["critic-bound"]),  # verl
        ({"time__generate": 6.0, "time__update_critic": 26.0, "time__train": 24.0}, []),
        ({"slowest_engine": 2.0, "slowest_engine_speed": 0.4}, ["straggler"]),
        ({"slowest_engine": 2.0, "slowest_engine_speed": 0.9}, []),
        # roles that take turns on the same cards do not wait for one another
        ({"time__generate": 45.0, "time__learner_idle": 3.0, "time__engine_idle": 3.0}, []),
    ],
)
def test_who_waits_for_whom(values: dict[str, float], words: list[str]) -> None:
    assert slow(Recent(steps=steps(**values))) == words


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"time__generate": 46.0}, ["rollout-bound"]),
        ({"time__generate": 12.0, "time__train": 30.0, "time__log_probs": 14.0}, ["learner-bound"]),
        ({"time__total": NONE, "time__generate": 46.0}, ["rollout-bound"]),  # from one step's end to the next
        ({"time__generate": NONE, "time__train": NONE, "learner_idle_fraction": 0.8}, ["rollout-bound"]),
        ({"time__generate": 30.0}, []),
        ({"time__total": NONE, "time__generate": NONE, "time__train": NONE}, []),
    ],
)
def test_systems_that_say_less_are_understood(values: dict[str, float], words: list[str]) -> None:
    silent = {"time__engine_idle": NONE, "time__learner_idle": NONE}
    assert slow(Recent(steps=steps(**silent, **values))) == words


def test_steps_that_were_read_all_at_once_have_no_pace() -> None:
    """An adopted job's log is read from its start, and all its steps end now."""
    said = {"time__total": NONE, "time__engine_idle": NONE, "time__learner_idle": NONE}
    assert slow(Recent(steps=steps(every_s=0.001, **said))) == []
    assert slow(Recent(steps=steps(every_s=0.001, time__saving=2.0))) == []


def test_nothing_is_said_before_three_steps_besides_the_first() -> None:
    assert slow(Recent(steps=steps(3, time__reward=40.0))) == []
    assert slow(Recent(steps=steps(4, time__reward=40.0))) == ["reward-bound"]


def test_a_step_that_compiled_is_no_measure() -> None:
    first = Step(-900.0, {**BALANCED, "time/total": 900.0, "time/generate": 880.0, "time/learner_idle": 880.0})
    odd = structs.replace(first, at=50.0)
    assert slow(Recent(steps=(first, odd, *steps(3)))) == []


def test_phases_that_come_now_and_then_need_to_have_come_twice() -> None:
    def saving(every: int, count: int = 21) -> Recent:
        each = ({**BALANCED, "time/saving": 70.0 if number % every == 0 else 0.0} for number in range(count))
        return Recent(steps=tuple(Step(80.0 * number, values) for number, values in enumerate(each)))

    assert slow(saving(4)) == ["save overhead"]
    assert slow(saving(20)) == []
    assert slow(saving(5, 6)) == []


def test_a_cause_silences_what_follows_from_it() -> None:
    waits = {"time__generate": 46.0, "time__learner_idle": 47.0, "time__engine_idle": 14.0}
    tail = {"response_length": 900.0, "response_length_max": 8000.0}
    assert slow(Recent(steps=steps(**waits, **tail))) == ["long tail"]
    assert slow(Recent(steps=steps(**tail))) == []  # a tail that nothing waits for
    full = EngineCounters(name="e", running=20, waiting=30, kv_share=0.98)
    assert slow(Recent(steps=steps(**waits, **tail), engines=(full,))) == ["KV-bound"]


def test_a_full_cache_shows_in_what_waits_or_is_preempted() -> None:
    def counters(waiting: float, preempted: float) -> Recent:
        kv = {"kv_cache_usage": 0.97, "engine_running": 40.0, "engine_waiting": waiting}
        own = steps()
        return Recent(
            steps=tuple(
                structs.replace(step, values={**step.values, **kv, "preemptions_total": preempted * number})
                for number, step in enumerate(own)
            )
        )

    assert slow(counters(0.0, 0.0)) == []
    assert slow(counters(30.0, 0.0)) == ["KV-bound"]
    assert slow(counters(0.0, 12.0)) == ["KV-bound"]


def gpu(index: int, power_w: float, celsius: float = 60.0, role: str = "learner") -> GpuRecord:
    return GpuRecord(
        host="n1", index=index, name="H100", role=role, utilization_percent=98, power_w=power_w, temperature_c=celsius
    )


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (gpu(9, 230.0), ["straggler"]),
        (gpu(9, 400.0, 88.0), ["throttled"]),
        (gpu(9, 230.0, role="critic"), []),  # it has no peers
        (gpu(9, 560.0, 88.0), []),
        (gpu(9, 400.0), []),
    ],
)
def test_a_gpu_is_compared_with_its_peers(odd: GpuRecord, words: list[str]) -> None:
    cards = tuple(gpu(index, 600.0 + index) for index in range(4))
    found = slow_symptoms(Recent(steps=steps(), gpus=(*cards, odd)))
    assert [one.word for one in found] == words
    assert all("GPU 9 of n1" in one.sentence for one in found)


LEARNS, ANSWERS = (630.0, 66.0, 1520.0), (330.0, 55.0, 1980.0)
"""Power, temperature and clock of cards that train, and of ones that generate."""


@pytest.mark.parametrize(
    ("cards", "word"),
    [
        ([*[LEARNS] * 7, (300.0, 91.0, 1100.0)], "throttled"),
        ([*[LEARNS] * 3, (240.0, 60.0, 700.0)], "straggler"),
        ([*[LEARNS] * 3, (240.0, 60.0, 1900.0)], ""),  # less work, which leaves it the higher clock
        ([*[LEARNS] * 4, *[ANSWERS] * 4], ""),
        ([*[LEARNS] * 7, ANSWERS], ""),
        ([*[(640.0, 79.0, 1500.0)] * 4, (330.0, 86.0, 1980.0)], ""),  # hardly hotter than those beside it
        ([*[LEARNS] * 2, (300.0, 91.0, 1100.0)], ""),  # too few to compare with
    ],
)
def test_gpus_without_a_role_are_compared_within_their_program(
    cards: list[tuple[float, float, float]], word: str
) -> None:
    def told(program: str) -> list[str]:
        records = (
            structs.replace(gpu(index, power_w, celsius, role=""), program=program, clock_mhz=clock)
            for index, (power_w, celsius, clock) in enumerate(cards)
        )
        return [one.in_a_list for one in slow_symptoms(Recent(steps=steps(), gpus=tuple(records)))]

    assert told("python train.py") == ([f"{word}: GPU {len(cards) - 1} of n1"] if word else [])
    assert told("") == []


def test_a_node_is_blamed_only_where_its_peers_are_elsewhere() -> None:
    cards = [gpu(index, 600.0) for index in range(4)]
    [here] = slow_symptoms(Recent(steps=steps(), gpus=(*cards, gpu(9, 230.0))))
    assert here.node == ""
    away = structs.replace(gpu(9, 230.0), host="n2")
    [there] = slow_symptoms(Recent(steps=steps(), gpus=(*cards, away)))
    assert (there.word, there.node) == ("straggler", "n2")
    [hot] = slow_symptoms(
        Recent(steps=steps(), gpus=(*cards, structs.replace(away, power_w=400.0, temperature_c=88.0)))
    )
    assert (hot.word, hot.node) == ("throttled", "n2")
    [bound] = slow_symptoms(Recent(steps=steps(time__teacher=16.0)))
    assert bound.node == ""


def test_engines_are_read_from_their_own_lines() -> None:
    said = (
        "\x1b[36m(LLMRayActor pid={pid}, ip=10.0.0.{pid})\x1b[0m INFO [loggers.py:127] Engine 000: Avg prompt "
        "throughput: 12.0 tokens/s, Avg generation throughput: {speed} tokens/s, Running: 30 reqs, Waiting: 2 reqs, "
        "GPU KV cache usage: 41.5%, Prefix cache hit rate: 0.0%"
    )
    lines = [said.format(pid=pid, speed=speed) for pid, speed in ((1, 5.0), (1, 900.0), (2, 880.0), (3, 300.0))]
    found = engine_counters(["nothing", *lines])
    assert [(one.tokens_per_second, one.running, one.waiting, one.kv_share) for one in found] == [
        (900.0, 30.0, 2.0, 0.415), (880.0, 30.0, 2.0, 0.415), (300.0, 30.0, 2.0, 0.415),
    ]  # fmt: skip
    [straggler] = slow_symptoms(Recent(steps=steps(), engines=found))
    assert straggler.word == "straggler"
    assert "pid 3" in straggler.sentence


def test_every_rule_has_a_cause_and_a_short_word() -> None:
    for rule in (*RULES, *SILENT_RULES):
        assert len(rule.word) <= 14
        assert CAUSES[rule.cause].word in (rule.word, "")
    assert {word for rule in RULES for word in rule.explains} <= {rule.word for rule in RULES}


def test_a_run_that_stands_still_or_has_ended_gets_no_advice_on_speed() -> None:
    own = steps(time__reward=40.0)
    now, stage = own[-1].at, StageSnapshot(stage="training")
    going = RunPicture(now=now + 30, stage=stage, steps=own)
    assert [one.word for one in symptoms_of(going)] == ["reward-bound"]
    for other in (
        structs.replace(going, now=now + 3600),
        structs.replace(going, end=EndSnapshot(outcome="failed", at=now)),
        structs.replace(going, stage=StageSnapshot(stage="loading")),
    ):
        assert symptoms_of(other) == ()


def learning(change: str, late: float, count: int = 40, **values: float) -> Recent:
    """A run that is well, one of whose metrics has another value in the last ten steps."""
    usual = {
        **BALANCED, "reward": 0.3, "reward_std": 0.2, "zero_std_fraction": 0.3, "entropy": 0.8, "kl": 0.01, "loss": 0.1,
        "response_length": 800.0, "truncated_fraction": 0.05, "parity_max_abs": 0.05, "weight_version": 0.0,
    }  # fmt: skip
    found = []
    for number in range(count):
        wave = 0.02 * (-1) ** number
        own = {**usual, "reward": 0.3 + wave, "weight_version": float(number), **values}
        if number >= count - 10:
            own[change] = late
        found.append(Step(60.0 * number, {name: value for name, value in own.items() if not math.isnan(value)}))
    return Recent(steps=tuple(found))


@pytest.mark.parametrize(
    ("recent", "words"),
    [
        (learning("reward", 0.31), []),
        (learning("loss", NONE), ["NaN"]),
        (learning("loss", NONE, loss=NONE), []),  # this system never said it
        (learning("parity_max_abs", 0.6), ["mismatch"]),
        (learning("parity_max_abs", 5e-5, parity_max_abs=1e-6), []),  # five times nearly nothing
        (learning("weight_version", 12.0), ["stale weights"]),
        (learning("weight_version", 0.0, weight_version=0.0), []),  # the critic warms up
        (learning("time/weight_sync", 0.0), ["stale weights"]),
        (learning("time/weight_sync", 0.0, zero_std_fraction=1.0), ["no signal"]),  # nothing to learn, nothing to send
        (learning("kl", 0.9), ["KL runs away"]),
        (learning("kl", 0.1), []),
        (learning("entropy", 0.02), ["entropy falls"]),
        (learning("zero_std_fraction", 1.0), ["no signal"]),
        (learning("truncated_fraction", 0.5), ["truncated"]),
        (learning("response_length", 2400.0), ["length grows"]),
        (learning("reward", 0.3, count=60, reward=0.3), ["reward flat"]),
        (learning("reward", 1.0, count=60, reward=1.0, zero_std_fraction=1.0, reward_std=0.0), []),  # solved
        (learning("reward", 0.0, reward=0.0, reward_std=0.0, zero_std_fraction=1.0), ["judge constant"]),
        (learning("reward_failed_fraction", 0.4), ["rewards fail"]),
        (learning("judge_failed_fraction", 0.04), []),
        (
            learning("reward", 0.0, reward=0.0, reward_std=0.0, zero_std_fraction=1.0, reward_failed_fraction=1.0),
            ["rewards fail"],
        ),
    ],
)
def test_silent_failures_are_warned_of(recent: Recent, words: list[str]) -> None:
    assert [one.word for one in silent_symptoms(recent)] == words


def test_a_loss_that_is_written_as_no_number_in_all_steps_in_view_stays_told() -> None:
    well = learning("reward", 0.31)
    lost = tuple(structs.replace(step, values={**step.values, "loss": math.nan}) for step in well.steps)
    assert [one.sentence for one in silent_symptoms(Recent(steps=lost))] == ["loss has been no number for 40 steps"]


@pytest.mark.parametrize("lost", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["reward", "kl", "entropy", "response_length", "zero_std_fraction", "time/train"])
def test_a_metric_that_is_no_number_in_some_steps_is_taken_for_none(name: str, lost: float) -> None:
    well = learning("reward", 0.31, count=60)
    odd = (
        structs.replace(step, values={**step.values, name: lost}) if number % 7 == 3 or number > 54 else step
        for number, step in enumerate(well.steps)
    )
    recent = Recent(steps=tuple(odd))
    assert silent_symptoms(recent) == ()
    assert slow_symptoms(recent) == ()


@pytest.mark.parametrize(
    ("change", "late", "word"),
    [
        ("kl", 0.9, "KL runs away"),
        ("entropy", 0.02, "entropy falls"),
        ("parity_max_abs", 0.6, "mismatch"),
        ("response_length", 2400.0, "length grows"),
    ],
)
def test_what_went_wrong_long_ago_stands_out_from_the_first_steps(change: str, late: float, word: str) -> None:
    alike = Recent(steps=learning(change, late, 60).steps[-10:] * 4)
    assert silent_symptoms(alike) == ()
    first = learning(change, late).steps[:30]
    later = tuple(structs.replace(step, at=step.at + 3600.0) for step in alike.steps)
    assert [one.word for one in silent_symptoms(Recent(steps=later, first=first))] == [word]
    assert silent_symptoms(Recent(steps=later, first=later[:30])) == ()


def test_a_policy_that_earns_more_may_change() -> None:
    for change, late in (("entropy", 0.02), ("response_length", 2400.0)):
        recent = learning(change, late)
        better = tuple(
            structs.replace(step, values={**step.values, "reward": step.values["reward"] + 0.02 * number})
            for number, step in enumerate(recent.steps)
        )
        assert silent_symptoms(structs.replace(recent, steps=better)) == ()


def test_a_leap_of_the_reward_is_suspicious_only_with_other_answers() -> None:
    recent = learning("reward", 0.95)
    assert silent_symptoms(recent) == ()
    short = tuple(
        structs.replace(step, values={**step.values, "response_length": 90.0}) if step.values["reward"] > 0.9 else step
        for step in recent.steps
    )
    assert [one.word for one in silent_symptoms(structs.replace(recent, steps=short))] == ["reward races"]


def test_a_gpu_whose_hardware_says_that_it_is_held_back_needs_no_peers() -> None:
    one = GpuRecord(
        host="n1", index=3, name="NVIDIA H100", role="learner", utilization_percent=97.0, power_w=410.0,
        temperature_c=88.0, held_back=("heat",),
    )  # fmt: skip
    [found] = slow_symptoms(Recent(steps=steps(), gpus=(one,)))
    assert found.word == "throttled"
    assert "GPU 3 of n1 has its clocks held back at 88 °C: heat" in found.sentence
    assert slow(Recent(steps=steps(), gpus=(structs.replace(one, held_back=()),))) == []
    assert slow(Recent(steps=steps(), gpus=(structs.replace(one, utilization_percent=2.0),))) == [], "it does nothing"


def slower(every_s: float, late: int, **values: float) -> Recent:
    """Forty steps, of which the last ``late`` have a third of the throughput and ``values``."""
    before = steps(40 - late, every_s, learner_tokens_per_second_step=9000.0)
    after = steps(40, every_s, learner_tokens_per_second_step=3000.0, **values)[40 - late :]
    return Recent(steps=(*before, *after))


@pytest.mark.parametrize(
    ("every_s", "late", "is_slowed"),
    [
        (60.0, 8, True),
        (1.0, 12, True),
        (1.0, 5, False),  # five seconds in which the machine had something else to do
        (0.05, 30, False),  # all that is in view takes two seconds
        (0.0, 8, True),  # read all at once from a log: their times say nothing
    ],
)
def test_a_run_slowed_where_its_pace_of_some_seconds_did(every_s: float, late: int, is_slowed: bool) -> None:
    assert ("slowed" in slow(slower(every_s, late))) is is_slowed


@pytest.mark.parametrize(
    ("values", "evidence"),
    [
        (
            {"time__total": 180.0, "time__generate": 150.0},
            ("most of it is time/generate: 150 s of a step, 32 s before",),
        ),
        ({"time__total": 180.0, "time__generate": 80.0, "time__train": 80.0}, ()),  # both, as where all is slow
        ({"time__weight_sync": 4.0}, ()),  # steps are as long as ever: they have fewer tokens
    ],
)
def test_the_phase_that_grew_is_named(values: dict[str, float], evidence: tuple[str, ...]) -> None:
    found = {one.word: one for one in slow_symptoms(slower(60.0, 8, **values))}
    assert found["slowed"].evidence == evidence
