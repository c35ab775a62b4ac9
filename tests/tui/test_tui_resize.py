"""Any size, and any change of size: nothing is refused, nothing is wider than the terminal, nothing fails."""

from __future__ import annotations

import pytest
from canned_runs import HOSTILE_LOG, HOSTILE_RUNS, RUNS
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, flushed, resize, screen_lines, settled, until

from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.spans import cell_width

SIZES = [(200, 60), (40, 10), (120, 40), (20, 5), (60, 15), (1, 1), (80, 24)]
PLACES = {
    "runs": "",
    "run": "\n",
    "hosts": "\n2",
    "metrics": "\n4",
    "logs": "\n5",
    "launch": "n",
    "help": "?",
    "cancel": "c",
}


@pytest.mark.parametrize(
    ("place", "hostile"), [(place, False) for place in PLACES] + [(place, True) for place in ("runs", "run", "logs")]
)
async def test_any_size_will_do(place: str, hostile: bool) -> None:
    fake = FakeCockpit(all_runs=HOSTILE_RUNS, lines=HOSTILE_LOG) if hostile else FakeCockpit()
    async with cockpit(fake) as pilot:
        await settled(pilot)
        await enter(pilot, PLACES[place])
        await flushed(pilot)
        for width, height in SIZES:
            await resize(pilot, width, height)
            await flushed(pilot)
            lines = screen_lines(pilot)
            assert len(lines) == height
            assert {cell_width(line) for line in lines} <= {width}
        assert pilot.app.return_code is None


async def test_forty_by_ten_is_one_line_a_run() -> None:
    async with cockpit(size=(40, 10)) as pilot:
        await settled(pilot)
        lines = screen_lines(pilot)
        assert [RUNS[index].run_id in lines[2 + index] for index in range(4)] == [True] * 4
        assert "▶ training" in lines[2]
        await enter(pilot, "G")
        await until(pilot, lambda: any("grpo-weird-0000" in line for line in screen_lines(pilot)), "the last run")


async def test_a_screen_below_takes_the_new_size_too() -> None:
    async with cockpit(size=(80, 24)) as pilot:
        await settled(pilot)
        await enter(pilot, "\n")
        await settled(pilot)
        await resize(pilot, 120, 40)
        await enter(pilot, "q")
        await settled(pilot)
        assert {cell_width(line) for line in screen_lines(pilot)} == {120}
        assert "CLUSTER" in screen_lines(pilot)[1]


async def test_a_confirmation_says_how_much_of_it_is_out_of_sight() -> None:
    async with cockpit(size=(60, 12)) as pilot:
        await settled(pilot)
        await enter(pilot, "c")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the confirmation")
        await until(pilot, lambda: any("↓ 2 more    y do it" in line for line in screen_lines(pilot)), "the hint")
        await enter(pilot, "j")
        await until(pilot, lambda: any("↓ 1 more    y do it" in line for line in screen_lines(pilot)), "the count")
        await enter(pilot, "G")
        await until(pilot, lambda: not any(" more " in line for line in screen_lines(pilot)), "the end")
        await enter(pilot, "g")
        await resize(pilot, 80, 24)
        await until(pilot, lambda: any("kill -TERM" in line for line in screen_lines(pilot)), "all of it")
        await until(pilot, lambda: not any(" more " in line for line in screen_lines(pilot)), "no hint")


async def test_the_hint_leaves_room_for_every_answer() -> None:
    async with cockpit(size=(40, 10)) as pilot:
        await settled(pilot)
        await enter(pilot, "jjjjjm")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the confirmation")
        await until(
            pilot, lambda: any("↓18 y do it n no (default) e edit" in line for line in screen_lines(pilot)), "all"
        )
