"""The charts of a run: how they are looked at as plain functions, then the tab driven as a user would."""

from __future__ import annotations

import math

import msgspec
import pytest
from canned_runs import RUNS, snapshot
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_lines, screen_text, until, until_text
from test_tui_run import opened

from rltui.tui import braille, formats
from rltui.tui.glyphs import ASCII, UNICODE, Glyphs
from rltui.tui.spans import width_of
from rltui.tui.views import chart_view, charts, metrics
from rltui.tui.views.chart_view import ChartView, as_drawn, in_columns, last_at, moved, positions, zoomed
from rltui.watch.snapshots import AttemptHistory, MetricsSnapshot, RunHistory, RunSnapshot

NAN = math.nan
FIRST, OTHER = RUNS[0].run_id, RUNS[1].run_id
PLACES = tuple(map(float, range(1, 101)))
WHOLE = chart_view.extent([PLACES])
T0 = 1_000_000.0


def test_columns_of_even_points_are_those_of_the_overview() -> None:
    values = tuple(float(number * number % 17) for number in range(100))
    for columns in (1, 7, 64, 100, 333):
        assert list(in_columns(PLACES, values, WHOLE, columns)) == braille.resample(values, columns)


def test_columns_follow_the_axis_and_leave_gaps_where_nothing_is() -> None:
    drawn = in_columns((0.0, 1.0, 8.0), (1.0, 3.0, NAN), (-2.0, 14.0), 8)
    assert [value for value in drawn if not math.isnan(value)] == [1.0, 3.0, 3.0, 3.0]
    assert all(map(math.isnan, (drawn[0], *drawn[5:])))
    assert all(map(math.isnan, in_columns((), (), (0.0, 1.0), 3)))


def test_smoothing_keeps_a_level_and_halves_a_jump() -> None:
    assert as_drawn((2.0, 2.0, 2.0), 0.9, False) == pytest.approx((2.0, 2.0, 2.0))
    once = as_drawn((0.0, NAN, 1.0), 0.6, False)
    assert once[0] == 0.0
    assert math.isnan(once[1])
    assert once[2] == pytest.approx(0.4 / (1 - 0.36))


def test_the_logarithm_leaves_zero_and_less_out() -> None:
    drawn = as_drawn((100.0, 0.0, -1.0), 0.0, True)
    assert drawn[0] == 2.0
    assert all(map(math.isnan, drawn[1:]))


def test_the_cursor_moves_by_a_column_and_at_least_to_the_next_point() -> None:
    by_column = moved(ChartView(cursor=50.0), PLACES, WHOLE, 10, -1)
    assert by_column.cursor == 40.0
    assert moved(ChartView(cursor=50.0), PLACES, WHOLE, 1000, 1).cursor == 51.0
    assert moved(ChartView(), PLACES, WHOLE, 1000, -1).cursor == 99.0
    assert moved(ChartView(cursor=1.0), PLACES, WHOLE, 10, -1).cursor == 1.0
    assert moved(ChartView(), (), WHOLE, 10, 1) == ChartView()


def test_the_window_halves_around_the_cursor_goes_along_and_opens_again() -> None:
    close = zoomed(ChartView(cursor=50.0), PLACES, WHOLE, 0.5)
    assert close.window == (25.0, 75.0)
    assert zoomed(close, PLACES, WHOLE, 2.0).window is None
    along = moved(close._replace(cursor=74.0), PLACES, WHOLE, 10, 1)
    assert along.cursor == 79.0
    assert along.window == (29.0, 79.0)
    for _ in range(20):
        close = zoomed(close, PLACES, WHOLE, 0.5)
    assert close.window == (48.0, 52.0), "four points are the least"
    assert zoomed(ChartView(), PLACES, WHOLE, 0.5).window == (51.0, 101.0), "without a cursor the newest half"


def test_the_last_number_at_or_before_a_place() -> None:
    assert last_at((1.0, 2.0, 3.0), (5.0, 6.0, NAN), 3.5) == 1
    assert last_at((1.0, 2.0), (NAN, 6.0), 1.5) is None
    assert last_at((1.0, 2.0), (5.0, 6.0), 3.0) is None, "the run had ended by then"


def test_the_axis_of_gpu_hours_leaves_out_the_wait_between_attempts() -> None:
    attempts = (
        AttemptHistory(number=1, started_at=T0 - 3600, ended_at=T0 + 3600, slots=8),
        AttemptHistory(number=2, started_at=T0 + 7200, slots=8),
    )
    steps = MetricsSnapshot(steps=(1, 2, 3), series={"loss": (1.0, 2.0, 3.0)}, times=(T0, NAN, T0 + 9000))
    run = msgspec.structs.replace(snapshot(RUNS[0]), metrics=steps, history=RunHistory(attempts=attempts))
    assert positions(run, "time") == (0.0, 0.0, 9000.0)
    assert positions(run, "hours") == (0.0, 0.0, 12.0)
    unknown = msgspec.structs.replace(run, history=RunHistory())
    assert positions(unknown, "hours") == ()
    over_time = chart_view.next_axis(ChartView(cursor=3.0), unknown)
    assert (over_time.axis, over_time.cursor) == ("time", 9000.0)
    assert chart_view.next_axis(over_time, unknown) == ChartView(cursor=3.0), "hours are not known: steps again"


@pytest.mark.parametrize("axis", chart_view.AXES)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("size", [(1, 1), (9, 3), (38, 7), (80, 22), (200, 56)], ids=str)
def test_charts_fit_however_they_are_looked_at(size: tuple[int, int], glyphs: Glyphs, axis: chart_view.Axis) -> None:
    run, other = snapshot(RUNS[1]), snapshot(RUNS[0])
    width, height = size
    whole = charts.chart_page(run, ChartView(axis=axis), other).whole
    middle = (whole[0] + whole[1]) / 2
    for view in (ChartView(axis), ChartView(axis, middle, (middle * 0.9, middle * 1.1), log_y=True, smoothing=0.9)):
        page = charts.chart_page(run, view, other)
        alone = metrics.alone(page, "loss", width, height, glyphs)
        assert len(alone) <= max(2, height)
        if width >= 38:
            lines = [*metrics.head(page, width, glyphs), *metrics.rows(page, width, glyphs), *alone]
            assert [row.plain for row in lines if width_of(row.spans) > width] == []


async def test_the_cursor_says_step_time_and_value_of_every_chart() -> None:
    async with cockpit(size=(80, 30)) as pilot:
        screen = await opened(pilot, tab="5")
        await until_text(pilot, "steps 1 to 412")
        await enter(pilot, "<<<")
        series = screen.tabs.panes[4]._snapshot.metrics
        at = int(screen.tabs.panes[4].view.cursor) - 1
        said = f" {series.steps[at]} {formats.duration(series.times[at] - series.times[0])}"
        titles = [row for row in screen_lines(pilot) if said in row]
        assert [row.count(said) for row in titles[:2]] == [2, 2]
        assert f"reward {series.series['reward'][at]:.3f} " in titles[0]
        assert "│" in screen_text(pilot)
        await press(pilot, "escape")
        assert said not in screen_text(pilot)
        assert screen.tabs.current == "metrics"


async def test_zoom_scale_smoothing_and_axis_are_said() -> None:
    async with cockpit() as pilot:
        await opened(pilot, tab="5")
        await until_text(pilot, "steps 1 to 412")
        await enter(pilot, "ZSY")
        assert "steps 207–412 of 412" in screen_lines(pilot)[2]
        assert "smoothed 0.6 (moving average)" in screen_lines(pilot)[3]
        assert "log y, 0 and less left out" in screen_lines(pilot)[3]
        await enter(pilot, "SSYUX")
        assert "over 1m59" in screen_lines(pilot)[2]
        await enter(pilot, "X")
        assert "over 0.26 GPU-h" in screen_lines(pilot)[2]
        await enter(pilot, "X")
        assert "steps 1 to 412" in screen_lines(pilot)[2]


@pytest.mark.parametrize("key", ["q", "escape"])
@pytest.mark.parametrize("size", [(40, 10), (80, 24)], ids=str)
async def test_one_chart_alone_and_the_next(size: tuple[int, int], key: str) -> None:
    async with cockpit(size=size) as pilot:
        screen = await opened(pilot, tab="5")
        await until_text(pilot, " series")
        await enter(pilot, "\n")
        assert "reward 0.812" in screen_lines(pilot)[3]
        assert screen_lines(pilot)[-2].split() == ["1", "412"]
        await enter(pilot, "j")
        assert "reward_std" in screen_lines(pilot)[3]
        await enter(pilot, "G")
        last = screen.tabs.panes[4].names[-1]
        assert last in screen_lines(pilot)[3]
        await press(pilot, key)
        assert last in screen_text(pilot), "all charts again, with that one in sight"


async def test_another_run_is_drawn_beside_and_taken_away() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, ascii_only=True, size=(80, 30)) as pilot:
        await opened(pilot, tab="5")
        await until_text(pilot, "steps 1 to 412")
        await enter(pilot, "Bnobody\n")
        assert "no run is named 'nobody'" in notices(pilot)
        await press(pilot, "escape")
        await enter(pilot, f"B{FIRST}\n")
        assert "the run itself" in notices(pilot)
        await press(pilot, "escape")
        await enter(pilot, "Bgrpo-7b-2x4-u\t\n")
        await until_text(pilot, f"x {OTHER}")
        assert "reward 0.812 x 0.431" in screen_text(pilot)
        await enter(pilot, "<" * 10)
        assert " x - " in screen_text(pilot), "it had not come so far by then"
        assert all(row.isascii() for row in screen_lines(pilot))
        await enter(pilot, "B")
        assert OTHER not in screen_text(pilot)
        await enter(pilot, "Bgrpo-7b-r2\n")
        await until_text(pilot, f"x {RUNS[5].run_id}")
        assert [call for call in fake.calls if call[0] == "beside"] == [("beside", OTHER), ("beside", RUNS[5].run_id)]


async def test_a_run_beside_that_lives_is_looked_at_again_and_one_that_fails_is_said() -> None:
    fake = FakeCockpit(live=True)
    async with cockpit(fake) as pilot:
        screen = await opened(pilot, tab="5")
        await enter(pilot, "Bgrpo-7b-2x4-u\t\n")
        await until(pilot, lambda: fake.calls.count(("beside", OTHER)) >= 2, "a second look")
        assert screen.tabs.panes[4].beside is not None
    fake = FakeCockpit(failing={"beside"})
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="5")
        await enter(pilot, f"B{OTHER}\n")
        await until(pilot, lambda: "isambard does not answer" in notices(pilot), "the reason")


async def test_keys_of_the_charts_say_where_they_work() -> None:
    async with cockpit() as pilot:
        await opened(pilot, tab="1")
        await enter(pilot, "Z<")
        assert "for the metrics: 5 opens them" in notices(pilot)
        assert "for log and metrics" in notices(pilot)


async def test_what_wandb_has_is_offered_and_copied() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="5")
        await enter(pilot, "W")
        await until_text(pilot, "https://wandb.ai/ada/tiny/runs/0c0ffee0")
        assert "wandb sync wandb/offline-run-1" in screen_text(pilot)
        await enter(pilot, "\n")
        assert "copied the page's address: https://wandb.ai" in notices(pilot)
        await enter(pilot, "W")
        await until_text(pilot, "open its files")
        await enter(pilot, "j\n")
        await until(pilot, lambda: "terminal cannot be lent: wandb leet wandb" in notices(pilot), "the command")
    async with cockpit(fake) as pilot:
        await enter(pilot, ":wandb-sync grpo-tiny-4f2a\n")
        await until_text(pilot, "upload them (wandb sync)")
        await enter(pilot, "jj\n")
        await until(pilot, lambda: "terminal cannot be lent: wandb sync wandb/" in notices(pilot), "the command")
    async with cockpit(fake, readonly=True) as pilot:
        await opened(pilot, tab="5")
        await enter(pilot, "W")
        await until_text(pilot, "copy what uploads them")
    fake = FakeCockpit(failing={"wandb"})
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="5")
        await enter(pilot, "W")
        await until(pilot, lambda: "isambard does not answer" in notices(pilot), "the reason")


async def test_a_run_beside_that_comes_while_another_tab_is_in_sight_is_drawn() -> None:
    class Slow(FakeCockpit):
        def beside(self, run_id: str) -> RunSnapshot:
            self.gate.wait(60.0)
            return super().beside(run_id)

    fake = Slow()
    async with cockpit(fake) as pilot:
        screen = await opened(pilot, tab="5")
        await enter(pilot, f"B{RUNS[1].run_id}\n")
        await press(pilot, "1")
        fake.gate.set()
        await press(pilot, "5")
        await until(pilot, lambda: screen.tabs.pane.beside is not None, "the run beside")
