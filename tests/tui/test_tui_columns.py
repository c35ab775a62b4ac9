"""Choosing the columns of the list of runs: what is marked is shown in its order, narrows from the right, and stays."""

from __future__ import annotations

import msgspec
import pytest
from canned_runs import NOW, RUNS, job, summary
from fake_cockpit import FakeCockpit
from pictures import cockpit, confirmation, enter, notices, press, resize, screen_lines, screen_text, until, until_text

from rltui.cli import words
from rltui.service.run_columns import COLUMNS, DEFAULTS, kept_columns, read_columns
from rltui.tui.glyphs import UNICODE
from rltui.tui.screens.columns import ColumnsScreen
from rltui.tui.screens.runs import RunsScreen
from rltui.tui.spans import cell_width
from rltui.tui.views import runs as view

BUSY = tuple(msgspec.structs.replace(run, gpu_percent=87.4) for run in RUNS[:2])


def head(pilot) -> list[str]:
    return screen_lines(pilot)[1].split()


async def test_a_column_is_chosen_moved_and_kept() -> None:
    fake = FakeCockpit(all_runs=BUSY)
    async with cockpit(fake) as pilot:
        usual = head(pilot)
        await press(pilot, "|")
        assert isinstance(pilot.app.screen, ColumnsScreen)
        assert "space shows, J K move" in screen_text(pilot)
        at = [item.id for item in pilot.app.screen.pane.items].index("gpu%")
        await enter(pilot, "j" * at)
        await press(pilot, "space", *["K"] * at, "enter")
        assert isinstance(pilot.app.screen, RunsScreen)
        assert head(pilot) != usual
        assert head(pilot)[1:3] == ["GPU%", "ALGO"]
        assert "87%" in screen_text(pilot)
        await until(pilot, lambda: fake.wants_gpus, "samples to be read")
    assert kept_columns()[0] == "gpu%"
    again = FakeCockpit(all_runs=BUSY)
    async with cockpit(again) as pilot:
        await until_text(pilot, "87%")
        assert head(pilot)[1] == "GPU%"
        await until(pilot, lambda: again.wants_gpus, "samples to be read from the start")
        await enter(pilot, ":columns\nd\n")
        assert head(pilot) == usual
        await until(pilot, lambda: not again.wants_gpus, "samples to be read no more")
    assert kept_columns() == ()


async def test_shift_and_arrow_move_too_and_escape_changes_nothing() -> None:
    async with cockpit() as pilot:
        usual = head(pilot)
        await press(pilot, "|", "shift+down")
        assert [item.id for item in pilot.app.screen.pane.items][:2] == ["shape", "algo"]
        await press(pilot, "shift+up", "shift+up", "escape")
        assert head(pilot) == usual
        await press(pilot, "|", *["space", "down"] * len(DEFAULTS), "enter")
        assert "no column is left" in notices(pilot)


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40)])
async def test_chosen_columns_give_way_from_the_right(size: tuple[int, int]) -> None:
    fake = FakeCockpit(all_runs=BUSY)
    async with cockpit(fake, size=size) as pilot:
        pilot.app.screen.table.show_columns(("cause", "verdict", "reward", "step", "tok/s"))
        await until_text(pilot, "STATE")
        await resize(pilot, *size)
        shown = [word for word in head(pilot) if word not in ("RUN", "STATE")]
        assert shown == ["CAUSE", "VERDICT", "REWARD", "STEP", "TOK/S"][: len(shown)]
        assert len(shown) == {40: 0, 80: 4, 120: 5}[size[0]]
        assert all("training" in line for line in screen_lines(pilot)[2:4]), "the state stays"


def test_each_column_fits_its_width_and_the_shell_knows_it_too() -> None:
    waits = job("pending", expected_start_at=NOW + 7800.0)
    runs = (*RUNS, summary("waits", "queued", "submitted", 60, job=waits, failure="cuda_oom_logits", symptom="x" * 40))
    assert set(view.COLUMNS) == set(COLUMNS)
    for word, column in view.COLUMNS.items():
        layout = view.plan(100, 12, True, chosen=(word,))
        assert layout.columns == (column,)
        for run in runs:
            assert len(view.row(run, layout, False, UNICODE, NOW).plain.rstrip()) <= 100
            assert words.cell(word, run)
    assert COLUMNS["expected"].text(runs[-1], NOW) == "~2h10"
    assert COLUMNS["cause"].text(runs[-1], NOW) == "cuda_oom_logits"


def test_programs_with_long_names_and_unlike_nodes_are_told_apart_where_there_is_room() -> None:
    script = msgspec.structs.replace(RUNS[0], algorithm="open-instruct", kinds=((1, 8), (2, 4)))
    wide = view.wide_cells([script, *RUNS])
    for width, is_whole in ((80, False), (100, True), (200, True)):
        layout = view.plan(width, 20, wide=wide)
        shown = view.row(script, layout, False, UNICODE, NOW).plain
        assert ("OPEN-INSTRUCT" in shown and "1×8+2×4" in shown) is is_whole
        assert cell_width(shown) <= width
    assert view.plan(120, 20, wide=view.wide_cells(RUNS)) == view.plan(120, 20)
    full = view.plan(100, 20, chosen=tuple(view.COLUMNS), wide=wide)
    assert cell_width(view.row(script, full, False, UNICODE, NOW).plain.rstrip()) <= 100


def test_the_usual_columns_are_those_that_were_always_shown() -> None:
    for width in (40, 60, 80, 100, 200):
        shown = [column.title for column in view.plan(width, 20, True).columns]
        assert shown == [COLUMNS[word].title for word in DEFAULTS if COLUMNS[word].title in shown]
    dates = view.plan(200, 20, True, "date", chosen=("age", "reward")).columns
    assert [column.title for column in dates] == ["STARTED", "REWARD"], "t shows day and hour in the place of the age"


def test_the_column_that_the_list_is_sorted_by_is_shown_however_narrow_it_is() -> None:
    for width in (40, 60, 80, 200):
        for order, title in (("reward", "REWARD"), ("ended", "ENDED"), ("tok/s", "TOK/S")):
            for chosen in ((), ("nodes", "verdict", "cause")):
                layout = view.plan(width, 14, chosen=chosen, order=order)
                assert [column.title for column in layout.columns].count(title) == 1
                assert cell_width(view.head(layout).plain) <= width


def test_words_are_read_as_typed() -> None:
    assert read_columns("Reward, gpu%,reward") == ("reward", "gpu%")
    for text in ("", "rewrd", "state"):
        with pytest.raises(Exception, match="--columns"):
            read_columns(text)
    assert read_columns("state,age", ("state",)) == ("state", "age")


async def test_a_menu_that_a_command_opened_does_what_is_chosen() -> None:
    async with cockpit() as pilot:
        await enter(pilot, ":actions\nc")
        await confirmation(pilot)
