"""Runs of a sweep as one line of the list: unfolded by a key, marked together, acted on only together or one by one."""

from __future__ import annotations

import msgspec
import pytest
from canned_runs import NOW, RUNS, summary
from canned_sweep import sweep
from fake_cockpit import FakeCockpit
from pictures import cockpit, confirmation, notices, press, screen_lines, screen_text, until, until_text

from rltui.service.run_columns import Fold, fold_key, folded
from rltui.tui.screens.pick import PickScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.why import WhyScreen
from rltui.watch.snapshots import EndSnapshot

ALL = (RUNS[0], *sweep(), *RUNS[1:])


async def test_a_sweep_is_one_line_that_a_key_unfolds() -> None:
    async with cockpit(FakeCockpit(all_runs=ALL)) as pilot:
        await until_text(pilot, "+ grpo-tiny ×6")
        table = pilot.app.screen.table
        assert "(3 done, 2 running, 1 failed)" in screen_text(pilot)
        assert len(table.lines) == len(RUNS) + 1
        assert len(table.rows) == len(ALL)
        await press(pilot, "j", "+")
        assert "- grpo-tiny ×6" in screen_text(pilot)
        assert len(table.lines) == len(ALL) + 1
        await press(pilot, "j", "enter")
        assert isinstance(pilot.app.screen, RunScreen)
        assert pilot.app.screen.identity.run_id == ALL[1].run_id
        await press(pilot, "q", "j", "+")
        assert isinstance(table.line, Fold), "from one of them the line is one again"
        await press(pilot, "enter")
        assert len(table.lines) == len(ALL) + 1, "enter shows each"
        await press(pilot, "g", "+")
        assert "by itself" in notices(pilot)


async def test_the_picture_is_the_first_runs_and_no_action_hits_it_alone() -> None:
    fake = FakeCockpit(all_runs=ALL)
    async with cockpit(fake) as pilot:
        await press(pilot, "j")
        await until_text(pilot, f"─ {ALL[1].run_id} ")
        await press(pilot, "c")
        assert "space marks all of them" in notices(pilot)
        await press(pilot, "space", "k", "space")
        assert pilot.app.screen.table.marked == (), "the same key takes all of its marks away"


async def test_a_mark_on_the_line_is_one_on_all_and_one_preview_shows_them() -> None:
    fake = FakeCockpit(all_runs=ALL)
    async with cockpit(fake, size=(100, 40)) as pilot:
        await press(pilot, "j", "space")
        await until_text(pilot, "6 marked")
        await press(pilot, "c")
        await confirmation(pilot)
        await press(pilot, "y")
        await until(pilot, lambda: ("cancel", ALL[1].run_id) in fake.calls, "the cancellation")
        asked = {call[1] for call in fake.calls if call[0] == "cancel"}
        assert asked <= {run.run_id for run in ALL[1:7]}
        assert RUNS[0].run_id not in asked


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40)])
async def test_it_fits_every_width(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    hostile = sweep(3, sweep_id="\x1b[31m" + "long-name-" * 9 + "1f0a")
    async with cockpit(FakeCockpit(all_runs=(*hostile, *RUNS)), size=size) as pilot:
        await until_text(pilot, "×3")
        assert all(len(line) == size[0] for line in screen_lines(pilot))
        assert "\x1b" not in screen_text(pilot)


async def test_the_latest_failure_is_under_the_cursor_though_its_sweep_is_one_line() -> None:
    ended = {"end": EndSnapshot(outcome="failed", at=NOW)}
    failed = tuple(msgspec.structs.replace(run, state="failed", **ended) for run in sweep(3))
    async with cockpit(FakeCockpit(all_runs=(*RUNS, *failed))) as pilot:
        await press(pilot, "F", "g", "F")
        assert pilot.app.screen.table.selected.run_id == failed[0].run_id
        await press(pilot, "!")
        assert isinstance(pilot.app.screen, WhyScreen)


async def test_the_cursor_stays_where_its_run_went() -> None:
    fake = FakeCockpit(all_runs=(*RUNS[:2], *sweep(2)))
    async with cockpit(fake) as pilot:
        await press(pilot, "G")
        assert pilot.app.screen.table.selected.run_id == sweep(2)[1].run_id
        fake.all_runs = (*sweep(3), *RUNS)
        pilot.app.controller.refresh()
        await until_text(pilot, "+ grpo-tiny ×3")
        assert isinstance(pilot.app.screen.table.line, Fold)


def test_only_three_or_more_of_one_cluster_belong_together() -> None:
    assert folded(sweep(2)) == list(sweep(2))
    apart = (*sweep(2), *sweep(2, cluster="isambard"))
    assert folded(apart) == list(apart)
    mixed = (*sweep(2), RUNS[0], *sweep(4)[2:])
    assert [isinstance(one, Fold) for one in folded(mixed)] == [True, False]
    array = tuple(msgspec.structs.replace(RUNS[0], run_id=f"a-{task}", job_id=f"88_{task}") for task in range(3))
    [fold] = folded(array)
    assert fold.name == "grpo-tiny array 88"
    assert fold_key(RUNS[0]) == ""


def test_ten_thousand_runs_of_sweeps_and_not_are_folded_in_no_time() -> None:
    import time

    many = tuple(
        msgspec.structs.replace(summary(f"r-{index:05d}", "running", "training", index), sweep=f"s-{index // 50}")
        for index in range(10_000)
    )
    took = []
    for _ in range(10):
        began = time.process_time()
        lines = folded(many)
        took.append(time.process_time() - began)
    assert len(lines) == 200
    assert min(took) < 0.025


@pytest.mark.parametrize("keys", [("x", "c"), ("K", "enter")], ids="".join)
async def test_the_menus_act_on_marked_runs_where_the_cursor_is_on_a_line_of_several(keys: tuple[str, str]) -> None:
    async with cockpit(FakeCockpit(all_runs=ALL), size=(100, 40)) as pilot:
        await press(pilot, "j", "space", "k")
        assert isinstance(pilot.app.screen.table.line, Fold)
        await press(pilot, keys[0])
        await until(pilot, lambda: isinstance(pilot.app.screen, PickScreen), "the menu")
        await press(pilot, keys[1])
        await confirmation(pilot)
