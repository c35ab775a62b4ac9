"""What ``rltui why`` says of runs that go on: slow ones, silently failing ones, and healthy ones.

Cases are real runs of the tiny model with a planted bottleneck (``slow_runs/``, made by ``record_slow.py``) and made-up
series (``slow_series.py``), of which a part stayed out of sight while bounds were set (``held``). First words count.
``python tests/truth/slow.py`` prints the confusion table of docs/diagnoses.md.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import slow_series as made
from msgspec import structs
from score import Figure, Score

from rltui.diagnose.engine_lines import engine_counters
from rltui.diagnose.recent import EARLY_STEPS, EngineCounters, GpuRecord, Recent, RunPicture, Step
from rltui.diagnose.run_words import symptoms_of
from rltui.watch.metrics import parse_metrics
from rltui.watch.snapshots import StageSnapshot

RECORDED = Path(__file__).with_name("slow_runs")
HEALTHY = "–"
HELD_SEED = 500
LIST_STEPS, WHY_STEPS = 28, 200
"""Steps that the tail of a run's metrics holds, as a list reads it and as ``why`` does."""

RUN_HOURS = 1000.0
FIRST_LOOKS, LOOK_EVERY = 8, 13
"""A healthy run is looked at after each of its first steps, where it compiles, and then after so many steps each."""

RUNS = {
    "healthy": HEALTHY, "healthy-engines": HEALTHY, "healthy-ahead": HEALTHY, "healthy-saves": HEALTHY,
    "healthy-ppo": HEALTHY, "healthy-opd": HEALTHY, "few-engines-needed": "learner-bound",
    "judge": "reward-bound", "judge-mild": "reward-bound", "judge-round-trips": "reward-bound",
    "judge-constant": "judge constant", "engine": "straggler", "engine-mild": "straggler",
    "generation": "rollout-bound", "generation-ahead": "rollout-bound", "all-long-answers": "rollout-bound",
    "learner": "learner-bound", "learner-ahead": "learner-bound", "hand-over": "sync-bound",
    "hand-over-mild": "sync-bound", "disk": "save overhead", "disk-mild": "save overhead",
    "prompts": "data-bound", "prompts-of-ppo": "data-bound", "prompts-hidden": HEALTHY,
    "evaluation": "eval overhead", "teacher": "teacher-bound", "critic": "critic-bound", "critic-mild": "critic-bound",
    "long-answers": "long tail",
}  # fmt: skip
"""Recorded run → the word that it should get."""

HELD_RUNS = (
    "healthy-saves", "few-engines-needed", "judge-round-trips", "all-long-answers", "prompts-of-ppo", "prompts-hidden",
)  # fmt: skip


class Case(NamedTuple):
    """One run, the word that it should get (``HEALTHY``: none), and whether it was held out of tuning."""

    name: str
    word: str
    recent: Recent
    is_held: bool

    @property
    def found(self) -> str:
        """The first word that it gets."""
        return word_of(self.recent)


def word_of(recent: Recent) -> str:
    """The first word of a run that trains."""
    now = recent.steps[-1].at + 1.0 if recent.steps else 0.0
    stage = StageSnapshot(stage="training")
    told = {"steps": recent.steps, "first": recent.first, "engines": recent.engines, "gpus": recent.gpus}
    found = symptoms_of(RunPicture(now=now, stage=stage, **told))
    return found[0].word if found else HEALTHY


def recorded() -> Iterator[Case]:
    """The real runs."""
    for name, word in RUNS.items():
        lines = (RECORDED / f"{name}.jsonl").read_bytes().splitlines()
        steps = tuple(Step(values["time"], values) for _, values in filter(None, map(parse_metrics, lines)))
        yield Case(f"run {name}", word, Recent(steps=steps), name.endswith("-mild") or name in HELD_RUNS)


def longer(phase: str, factor: float) -> Callable[[int, made.Values], None]:
    """A phase that takes ``factor`` times as long as it did."""

    def plant(_: int, values: made.Values) -> None:
        values[f"time/{phase}"] *= factor

    return plant


def said(late: Callable[[int, made.Values], made.Values]) -> Callable[[int, made.Values], None]:
    """Other values from step 150 on."""

    def plant(number: int, values: made.Values) -> None:
        if number > 150:
            values.update(late(number - 150, values))

    return plant


def often(phase: str, every: int, seconds: float) -> Callable[[int, made.Values], None]:
    """A phase that comes every so many steps."""

    def plant(number: int, values: made.Values) -> None:
        values[f"time/{phase}"] = seconds if number % every == 0 else 0.0

    return plant


def slow_engine(speed: float, number: float) -> Callable[[int, made.Values], None]:
    """One engine of four that is slow, so that generation takes longer."""

    def plant(_: int, values: made.Values) -> None:
        values.update(slowest_engine=number, slowest_engine_speed=speed)
        values["time/generate"] /= 0.75 + 0.25 * speed

    return plant


def tail(longest: float) -> Callable[[int, made.Values], None]:
    """Answers of which the longest is so many times the mean one, and generation as long."""

    def plant(_: int, values: made.Values) -> None:
        values["response_length_max"] = longest * values["response_length"]
        values["time/generate"] *= longest

    return plant


def numbered(is_held: bool) -> Callable[..., Case]:
    """Makes cases out of a word, a shape, what is planted and a number of steps, each of a seed of its own."""
    seeds = itertools.count(HELD_SEED * is_held)

    def of(word: str, shape: made.Shape, plant: Callable[[int, made.Values], None] | None, steps: int = 30) -> Case:
        seed = next(seeds)
        recent = Recent(steps=made.series(shape, seed, steps, plant)[-WHY_STEPS:])
        return Case(f"series {seed}", word, recent, is_held)

    return of


def made_up(is_held: bool) -> Iterator[Case]:
    """Series with something planted; those held out are other runs, with much milder bottlenecks."""
    of, scale = numbered(is_held), 0.35 if is_held else 1.0
    yield from slow_ones(of, scale)
    yield from silent_ones(of, scale)
    for shape in SHAPES:
        for steps in (30, 5, 400):
            yield of(HEALTHY, shape, None, steps)


def slow_ones(of: Callable[..., Case], scale: float) -> Iterator[Case]:
    """Runs that something holds up, the more the larger ``scale`` is."""
    big = 1.0 + 5.0 * scale
    for shape in (made.BALANCED, made.AHEAD, made.TURNS, made.QUEUED):
        yield of("rollout-bound", shape, longer("generate", big))
        yield of("learner-bound", shape, longer("train", big))
    for shape in (made.BALANCED, made.AHEAD, made.TURNS):
        yield of("reward-bound", shape, longer("reward", 60.0 * big / 6))
        yield of("sync-bound", shape, longer("weight_sync", 4.0 * big))
    yield of("teacher-bound", made.TEACHER, longer("teacher", 1.5 * big))
    yield of("critic-bound", made.CRITIC, longer("update_critic", big))
    yield of("straggler", made.BALANCED, slow_engine(0.6 - 0.4 * scale, 2.0))
    yield of("long tail", made.BALANCED, tail(1.0 + 5.5 * max(scale, 0.7)))
    yield of("long tail", made.TURNS, tail(1.0 + 5.5 * max(scale, 0.7)))
    yield of("save overhead", made.BALANCED, often("saving", 5, 600.0 * scale))
    yield of("save overhead", made.TURNS, often("saving", 4, 500.0 * scale))
    yield of("eval overhead", made.AHEAD, often("evaluate", 4, 450.0 * scale + 100))
    yield of("slowed", made.BALANCED, said(lambda _, values: {"tokens": values["tokens"] * 0.4}), 200)


def silent_ones(of: Callable[..., Case], scale: float) -> Iterator[Case]:
    """Runs that are well for 150 steps and then fail silently."""
    late = 200
    yield of("KL runs away", made.BALANCED, said(lambda n, _: {"kl": 0.1 * scale * n}), late)
    yield of("entropy falls", made.TURNS, said(lambda n, v: {"entropy": v["entropy"] * 0.8**n, "reward": 0.1}), late)
    yield of("length grows", made.AHEAD, said(lambda n, v: longer_answers(v, 1 + 0.08 * scale * n)), late)
    yield of("truncated", made.BALANCED, said(lambda _, __: {"truncated_fraction": 0.3 + 0.3 * scale}), late)
    yield of(
        "no signal",
        made.BALANCED,
        said(lambda n, _: {"zero_std_fraction": 0.97 + 0.02 * (n % 2), "reward": 0.01 * (n % 3)}),
        late,
    )
    yield of(
        "judge constant",
        made.QUICK,
        said(lambda _, __: {"reward": 0.0, "reward_std": 0.0, "zero_std_fraction": 1.0}),
        late,
    )
    yield of("NaN", made.TURNS, said(lambda _, __: {"loss": float("nan"), "grad_norm": float("nan")}), 156)
    yield of(
        "mismatch", made.TURNS, said(lambda n, v: {"parity_mean_abs": v["parity_mean_abs"] * (1 + scale * n)}), late
    )
    yield of("stale weights", made.BALANCED, said(lambda _, __: {"weight_version": 150.0}), 170)
    yield of(
        "reward races",
        made.BALANCED,
        said(lambda n, v: {"reward": 0.9, "response_length": v["response_length"] * 0.2}),
        165,
    )
    yield of("reward flat", made.TURNS, said(lambda _, __: {"reward": 0.12}), late)


def longer_answers(values: made.Values, factor: float) -> made.Values:
    """Answers that grow for no more reward."""
    return {"response_length": values["response_length"] * factor, "reward": 0.2}


SHAPES = (made.BALANCED, made.AHEAD, made.TURNS, made.CRITIC, made.TEACHER, made.QUEUED, made.QUICK)

VLLM = (
    "(EngineCore_DP{n} pid=4{n}) INFO 11-23 10:12:0{n} [loggers.py:127] Engine 00{n}: Avg prompt throughput: 210.1 "
    "tokens/s, Avg generation throughput: {speed} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
    "GPU KV cache usage: {kv}%, Prefix cache hit rate: 12.0%"
)
SGLANG = (
    "[2026-11-23 10:12:04 DP{n} TP0] Decode batch, #running-req: {running}, #token: 91022, token usage: {kv}, "
    "cuda graph: True, gen throughput (token/s): {speed}, #queue-req: {waiting}, "
)


def engines(line: str, *rows: tuple[float, int, int, float]) -> tuple[EngineCounters, ...]:
    """Engines by the lines that they write: tokens/s, running, waiting, use of the cache."""
    texts = (
        line.format(n=number, speed=speed, running=running, waiting=waiting, kv=kv)
        for number, (speed, running, waiting, kv) in enumerate(rows)
    )
    return engine_counters(texts)


def gpus(role: str, *rows: tuple[float, float, float]) -> tuple[GpuRecord, ...]:
    """GPUs of one role: utilisation, power, temperature."""
    return tuple(
        GpuRecord(
            host=f"n{number // 4}", index=number % 4, name="H100", role=role,
            utilization_percent=utilization, power_w=power, temperature_c=temperature,
        )
        for number, (utilization, power, temperature) in enumerate(rows)
    )  # fmt: skip


def of_script(*rows: tuple[float, float, float, float]) -> tuple[GpuRecord, ...]:
    """GPUs of one program whose roles nobody knows: as ``gpus``, and the clock."""
    found = gpus("", *(row[:3] for row in rows))
    named = zip(found, rows, strict=True)
    return tuple(structs.replace(one, program="python train.py", clock_mhz=row[3]) for one, row in named)


def counted() -> Iterator[Case]:
    """What engines and GPUs tell beside the steps."""
    steps, bound = made.series(made.BALANCED, 900, 30), made.series(made.BALANCED, 901, 30, longer("generate", 5.0))
    calm, full = (900.0, 32, 0, 41.0), (700.0, 30, 44, 98.6)
    learns, answers = (98.0, 630.0, 66.0, 1520.0), (91.0, 330.0, 55.0, 1980.0)
    cool, hot, capped = (97.0, 610.0, 63.0), (97.0, 430.0, 88.0), (98.0, 240.0, 61.0)
    rows: tuple[tuple[str, tuple[Step, ...], tuple[EngineCounters, ...], tuple[GpuRecord, ...], bool], ...] = (
        ("KV-bound", bound, engines(VLLM, full, full, full, full), (), False),
        ("KV-bound", bound, engines(SGLANG, *((800.0, 20, 60, 0.97),) * 2), (), True),
        (HEALTHY, steps, engines(VLLM, calm, calm, calm, calm), (), False),
        (HEALTHY, steps, engines(VLLM, (900.0, 32, 3, 93.0), *(calm,) * 3), (), True),  # one fills up, nothing waits
        ("straggler", bound, engines(VLLM, calm, (310.0, 32, 0, 41.0), calm, calm), (), False),
        ("straggler", bound, engines(SGLANG, *((900.0, 30, 0, 0.4),) * 3, (400.0, 30, 0, 0.4)), (), True),
        (HEALTHY, steps, engines(VLLM, calm, (60.0, 2, 0, 3.0), calm, calm), (), False),  # it is nearly done
        ("throttled", steps, (), gpus("learner", cool, cool, hot, cool, cool), False),
        ("throttled", steps, (), gpus("engine", cool, cool, cool, cool, hot, cool), True),
        ("straggler", steps, (), gpus("learner", cool, cool, capped, cool), False),
        (HEALTHY, steps, (), gpus("engine", cool, (35.0, 240.0, 50.0), cool, cool), False),
        (HEALTHY, steps, (), gpus("", cool, cool, capped, cool), True),  # nobody knows whose they are
        ("throttled", steps, (), of_script(*(learns,) * 7, (97.0, 300.0, 91.0, 1100.0)), False),
        ("throttled", steps, (), of_script(*(learns,) * 3, (95.0, 420.0, 87.0, 1400.0), answers, answers), True),
        ("straggler", steps, (), of_script(learns, (97.0, 240.0, 58.0, 750.0), learns, learns), False),
        (HEALTHY, steps, (), of_script(*(learns,) * 5, answers), True),  # learners beside engines in one program
        (HEALTHY, steps, (), of_script(*(learns,) * 3, *(answers,) * 5), False),
        (HEALTHY, steps, (), of_script(*((97.0, 640.0, 80.0, 1500.0),) * 4, (93.0, 360.0, 86.0, 1980.0)), True),
        (HEALTHY, steps, (), gpus("learner", *((97.0, 600.0 - 20 * n, 60.0 + 5 * n) for n in range(5))), True),
    )
    for number, (word, own, serving, cards, is_held) in enumerate(rows):
        yield Case(f"counters {number}", word, Recent(steps=own, engines=serving, gpus=cards), is_held)


@cache
def cases() -> tuple[Case, ...]:
    """All cases."""
    return (*recorded(), *made_up(False), *made_up(True), *counted())


def false_alarms() -> tuple[int, float]:
    """Alarms of healthy runs, each counted when it begins, and the hours of all runs together."""
    alarms, hours, seed = 0, 0.0, 10_000
    while hours < RUN_HOURS:
        steps = made.series(SHAPES[seed % len(SHAPES)], seed, 600)
        for look, first in ((LIST_STEPS, ()), (WHY_STEPS, steps[:EARLY_STEPS])):
            before = HEALTHY
            for end in (*range(1, FIRST_LOOKS), *range(FIRST_LOOKS, len(steps), LOOK_EVERY)):
                word = word_of(Recent(steps=steps[max(0, end - look) : end], first=first[:end]))
                alarms += word not in (before, HEALTHY)
                before = word
        hours += (steps[-1].at - steps[0].at) / 3600
        seed += 1
    return alarms, hours


def confusion() -> list[str]:
    """The table of what should be said and what is said, as Markdown."""
    rows: dict[str, Counter[str]] = {}
    for case in cases():
        rows.setdefault(case.word, Counter())[case.found] += 1
    lines = ["| planted | cases | right | said instead |", "|---|---|---|---|"]
    for word, found in rows.items():
        others = (f"{in_words(other)} {count}" for other, count in found.most_common() if other != word)
        lines.append(f"| {in_words(word)} | {found.total()} | {found[word]} | {', '.join(others)} |")
    return lines


def in_words(word: str) -> str:
    """A word as the table has it."""
    return "nothing" if word == HEALTHY else word


def score() -> Score:
    """Share of right first words on cases seen and held out, and false alarms."""
    figures, wrong = [], []
    for name, is_held, bound in (("seen while bounds were set", False, 100.0), ("held out", True, 91.1)):
        chosen = [case for case in cases() if case.is_held == is_held]
        planted = [case for case in chosen if case.word != HEALTHY]
        right = 100 * sum(case.found == case.word for case in planted) / len(planted)
        figures.append(Figure(f"right first words, {name} (%)", right, bound, True, len(planted)))
        wrong += [(case.name, f"{case.word}, said {case.found}") for case in chosen if case.found != case.word]
    healthy = [case for case in cases() if case.word == HEALTHY]
    named = 100 * sum(case.found != HEALTHY for case in healthy) / len(healthy)
    figures.append(Figure("healthy cases with a word (%)", named, 0.0, False, len(healthy)))
    alarms, hours = false_alarms()
    figures.append(Figure("false alarms in 1,000 run-hours", 1000 * alarms / hours, 0.0, False, round(hours)))
    return Score(predictor="why, of runs that go on", figures=tuple(figures), worst=tuple(wrong))


if __name__ == "__main__":
    print("\n".join(confusion()))
    for figure in score().figures:
        print(f"{figure.name}: {figure.value:.4g} ({figure.cases} cases)")
    for where, what in score().worst:
        print(f"{where}: {what}")
