"""How often is looked, why a job waits in words, and where the steps went: pure parts of the cockpit."""

from __future__ import annotations

import pytest
from canned_runs import RUNS
from fake_cockpit import FakeCockpit
from pictures import cockpit, settled, until
from textual import events

from rltui.cluster.jobs import JobSnapshot
from rltui.tui import refresh
from rltui.tui.glyphs import UNICODE
from rltui.tui.views import step_time
from rltui.watch import pending
from rltui.watch.snapshots import MetricsSnapshot


@pytest.mark.parametrize(
    ("has_focus", "silent_s", "word"),
    [(True, 0.0, "here"), (False, 0.0, "elsewhere"), (True, 601.0, "gone"), (False, 601.0, "gone")],
)
def test_whether_somebody_looks(has_focus: bool, silent_s: float, word: str) -> None:
    assert refresh.attention(has_focus, silent_s) == word


def test_nobody_looks_so_little_is_read() -> None:
    for source in ("runs", "peek", "run"):
        periods = [refresh.refresh_interval_s(source, True, attention=who) for who in ("here", "elsewhere", "gone")]
        assert periods == [periods[0], 5.0, 60.0]
        assert periods[0] <= 1.0


async def test_the_list_ticks_every_second_only_while_it_shows_an_age() -> None:
    ended = tuple(run for run in RUNS if not run.is_live)
    clock = [0.0]
    async with cockpit(FakeCockpit(all_runs=ended), clock=lambda: clock[0]) as pilot:
        home = pilot.app.screen
        home.cockpit.pictures.clusters = ()
        assert home.tick_s() == refresh.IDLE_S
        clock[0] = 3600.0  # nothing was read for an hour: the header counts its seconds
        assert home.tick_s() == refresh.TICK_S
    async with cockpit() as pilot:
        pilot.app.pictures.clusters = ()
        assert pilot.app.screen.tick_s() == refresh.TICK_S, "runs live"


def test_many_nodes_are_read_less_often() -> None:
    periods = [refresh.refresh_interval_s("run", True, nodes=nodes) for nodes in (1, 16, 100, 1000)]
    assert periods == [0.5, 0.5, 0.5, 5.0]


@pytest.mark.parametrize(
    ("reason", "start", "position", "words"),
    [
        ("Priority", 7800.0, 31, "#31 in line, starts in ~2h10: Jobs with a higher priority are in front of it"),
        ("", 300.0, None, "starts in ~5 min"),
        ("", 30.0, None, "should start now"),
        ("", 0.0, 1, "#1 in line"),
        ("", 4 * 86400.0, None, "starts in ~4 days"),
    ],
)
def test_why_a_job_waits(reason: str, start: float, position: int | None, words: str) -> None:
    job = JobSnapshot(
        job_id="1", state="pending", reason=reason, queue_position=position, expected_start_at=start and 1000.0 + start
    )
    assert pending.pending_words(job, 1000.0) == words


def test_a_job_that_will_not_start_by_itself_has_neither_place_nor_time() -> None:
    job = JobSnapshot(
        job_id="1", state="pending", reason="launch failed requeued held", queue_position=3, expected_start_at=9.0
    )
    assert pending.is_stuck(job)
    assert not any(word in pending.pending_words(job, 0.0) for word in ("in line", "should start"))


def test_where_the_steps_went_adds_up() -> None:
    series = {"time/total": (1.0,) * 40, "time/generate": (0.5,) * 40, "time/train": (0.25,) * 40}
    found = step_time.phases(MetricsSnapshot(steps=tuple(range(40)), series=series), 20)
    assert [(phase.name, round(sum(phase.seconds), 6)) for phase in found] == [
        ("generate", 10.0),
        ("train", 5.0),
        ("other", 5.0),
    ]
    lines = step_time.chart(MetricsSnapshot(steps=tuple(range(40)), series=series), 48, UNICODE, rows=8)
    columns = [line.plain[8:] for line in lines[1:-1]]
    assert sum(row.count("█") for row in columns) == 2 * sum(row.count("▓") for row in columns)
    assert step_time.chart(MetricsSnapshot(), 48, UNICODE) == []


def test_time_beside_the_phases_makes_no_step_longer() -> None:
    inside = {"time/total": 1.0, "time/generate": 0.3, "time/train": 0.6, "time/weight_sync": 0.1}
    beside = {"time/engine_idle": 0.7, "time/learner_idle": 0.3, "time/update_actor": 0.6, "time/update_critic": 0.4}
    series = {name: (seconds,) * 40 for name, seconds in (inside | beside | {"time/update_overlap": 0.4}).items()}
    [*_, legend] = step_time.chart(MetricsSnapshot(steps=tuple(range(40)), series=series), 80, UNICODE)
    assert legend.plain.split() == ["█", "generate", "30%", "▓", "train", "60%", "▒", "sync", "10%"]


async def test_the_cockpit_in_the_background_reads_little_and_catches_up_when_one_is_back() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await settled(pilot)
        pilot.app.post_message(events.AppBlur())
        await until(pilot, lambda: pilot.app.controller._attention == "elsewhere", "the blur")
        pilot.app.controller.refresh()
        await until(pilot, lambda: pilot.app.controller.periods["runs"] >= 5.0, "the longer period")
        reads = [call for call in fake.calls if call[0] == "runs"]
        pilot.app.post_message(events.AppFocus())
        await until(
            pilot, lambda: len([call for call in fake.calls if call[0] == "runs"]) > len(reads), "a read at once"
        )
        assert pilot.app.controller._attention == "here"
