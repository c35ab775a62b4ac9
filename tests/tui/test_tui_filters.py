"""Filters with a name: saved from the list, called behind ``/`` and ``:``, kept, listed, forgotten."""

from __future__ import annotations

import pytest
from canned_runs import RUNS
from pictures import cockpit, enter, notices, press, screen_text, until, until_text

from rltui.errors import UsageError
from rltui.service.run_filter import picked, save_filter, saved_filters
from rltui.tui.screens.runs import RunsScreen

BIG = [run for run in RUNS if "7b" in run.run_id and run.state == "running"]


async def test_a_filter_is_saved_called_again_and_kept() -> None:
    async with cockpit() as pilot:
        await enter(pilot, "/7b state:running\n:filter save big\n")
        assert "saved: 7b state:running" in notices(pilot)
    async with cockpit() as pilot:
        await enter(pilot, "\n:filter big\n")  # from the screen of a run
        assert isinstance(pilot.app.screen, RunsScreen)
        assert pilot.app.screen.table.rows == BIG
        await until_text(pilot, "/@big")
        await press(pilot, "escape")
        await enter(pilot, "/@b")
        assert len(pilot.app.screen.table.rows) == len(RUNS), "half a name asks for nothing yet"
        await enter(pilot, "\t")
        await until(pilot, lambda: pilot.app.screen.table.rows == BIG, "the completed filter")
        await enter(pilot, " zzz\n")
        await until_text(pilot, "no run matches @big zzz")


async def test_tab_completes_fields_with_what_runs_have() -> None:
    async with cockpit() as pilot:
        await enter(pilot, "/grpo state:c\t")
        assert pilot.app.screen.prompt.text == "grpo state:cancelled"
        await press(pilot, "escape")
        await enter(pilot, "/state:\t")
        await until_text(pilot, "state:failed  state:finished")
        await press(pilot, "tab")
        assert pilot.app.screen.prompt.text == "state:cancelled"
        await until(pilot, lambda: [run.state for run in pilot.app.screen.table.rows] == ["cancelled"], "the filter")


async def test_tab_completes_and_the_help_lists() -> None:
    save_filter("nightly", "since:12h algo:grpo")
    async with cockpit(size=(100, 80)) as pilot:
        await enter(pilot, ":fil\tn\t")
        assert pilot.app.screen.prompt.text == "filter nightly"
        await press(pilot, "escape")
        await enter(pilot, ":filter drop n\t")
        assert pilot.app.screen.prompt.text == "filter drop nightly"
        await press(pilot, "escape", "?")
        await until_text(pilot, "@nightly")
        assert "since:12h algo:grpo" in screen_text(pilot)
        await press(pilot, "escape")
        await enter(pilot, ":filter drop nightly\n")
        assert "@nightly is forgotten" in notices(pilot)
    assert saved_filters() == {}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (":filter nowhere\n", "there is no saved filter 'nowhere'"),
        (":filter drop nowhere\n", "There is no saved filter 'nowhere'"),
        (":filter save big\n", "There is no filter to save"),
        ("/7b\n:filter save save\n", "is no name for a filter"),
        ("/7b\n:filter save ../x\n", "is no name for a filter"),
        (":filter keep big\n", "it is :filter NAME"),
        (":filter a b c\n", "filter takes one filter"),
    ],
)
async def test_what_cannot_be_done_says_why(typed: str, said: str) -> None:
    async with cockpit() as pilot:
        await enter(pilot, typed)
        assert said in notices(pilot)
    assert saved_filters() == {}


def test_the_shell_takes_them_too_and_refuses_one_that_is_not_there() -> None:
    save_filter("big", "7b state:running")
    save_filter("both", "@big algo:grpo")
    assert saved_filters()["both"] == "7b state:running algo:grpo", "what @big becomes later changes nothing"
    assert picked(RUNS, "@big", 0.0) == BIG
    with pytest.raises(UsageError, match="no saved filter 'bg'") as error:
        picked(RUNS, "@bg", 0.0)
    assert "@big, @both" in error.value.hint


def test_a_file_that_somebody_wrote_by_hand_does_no_harm(tmp_path) -> None:
    save_filter("ok", "7b")
    (tmp_path / "state" / "filters").write_text(
        "ok 7b\n\x1b[31mred x\nsave\n-x y\nname \x1b[2Jtext\n", encoding="utf-8"
    )
    assert saved_filters() == {"name": "text", "ok": "7b"}
    (tmp_path / "state" / "filters").write_bytes(b"\xff\xfe")
    assert saved_filters() == {}
