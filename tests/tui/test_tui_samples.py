"""The tabs of samples and settings of an open run, driven as a user would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from canned_runs import RUNS
from fake_cockpit import FakeCockpit
from pictures import (
    cockpit,
    enter,
    flushed,
    notices,
    press,
    resize,
    screen_lines,
    screen_text,
    settled,
    until,
    until_text,
)
from test_tui_run import opened

from rltui.errors import UsageError
from rltui.tui.screens.runs import RunsScreen
from rltui.watch.log_search import LogQuery, Searched, read_query
from rltui.watch.samples import SampleQuery, SamplesFound
from rltui.watch.snapshots import RunIdentity

FIRST = RUNS[0].run_id
SIZES = [(40, 10), (80, 24), (120, 40)]


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_the_list_and_one_in_full(size: tuple[int, int]) -> None:
    async with cockpit(size=size) as pilot:
        await opened(pilot, tab="9")
        await until_text(pilot, "Let me count")
        if size[0] > 40:
            await until_text(pilot, "answers to this prompt")
            assert "<|im_start|>user" in screen_text(pilot), "special tokens are shown as they are"
        await press(pilot, "enter")
        await until_text(pilot, "4 answers to this prompt")
        for _ in range(4):
            await press(pilot, "pagedown")
        assert "right answer" in screen_text(pilot)
        await press(pilot, "escape")
        assert "STEP" in screen_text(pilot)


async def test_differences_to_the_best_sibling_and_going_to_it() -> None:
    async with cockpit(size=(80, 40)) as pilot:
        await opened(pilot, tab="9")
        await until_text(pilot, "4 answers to this prompt")
        await enter(pilot, "d")
        assert "the best of its siblings" in screen_text(pilot)
        await enter(pilot, ")")
        text = screen_text(pilot)
        assert "them:{+ one,+} two" in text
        assert "[-4.<|im_end|>-]" in text
        await enter(pilot, "(")
        assert "the best of its siblings" in screen_text(pilot)


async def test_orders_words_and_back() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="9")
        await until_text(pilot, "newest first")
        await enter(pilot, "w")
        await until_text(pilot, "worst first")
        await enter(pilot, "/five\n")
        await until_text(pilot, "3 out of")
        assert ("samples", FIRST, "worst", "(?i:five)") in fake.calls
        await press(pilot, "escape")
        await until_text(pilot, "newest first")
        await enter(pilot, "/step:x\n")
        assert "'x' is no step" in notices(pilot)
        await press(pilot, "escape")
        await enter(pilot, "i")
        await until_text(pilot, "of evaluations")
        await until_text(pilot, "no sample has")
        await enter(pilot, "i")
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen), "the list of runs")


async def test_the_cursor_stays_on_its_sample_and_each_is_read_when_it_is_looked_at() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await opened(pilot, tab="9")
        await until_text(pilot, "45 out of")
        await enter(pilot, "jj")
        await until(pilot, lambda: screen.tabs.samples_pane.group is not None, "the sample in full")
        assert screen.tabs.samples_pane.shown.chosen.answer == "There are five, I think."
        await enter(pilot, "jj")
        await until(pilot, lambda: ("sample", FIRST, "400") in fake.calls, "the question for another")
        assert screen.tabs.samples_pane.cursor == 4
        assert [call for call in fake.calls if call[0] == "sample"][:1] == [("sample", FIRST, "0")]


@pytest.mark.parametrize("key", ["q", "escape"])
async def test_q_and_escape_leave_a_single_sample_before_the_run(key: str) -> None:
    async with cockpit() as pilot:
        screen = await opened(pilot, tab="9")
        await until_text(pilot, "45 out of")
        await enter(pilot, "\n")
        assert screen.tabs.samples_pane.whole
        await press(pilot, key)
        assert not screen.tabs.samples_pane.whole
        await until_text(pilot, "45 out of")
        await press(pilot, key)
        assert pilot.app.screen is not screen


@pytest.mark.parametrize("options", [{}, {"ascii_only": True}], ids=["unicode", "ascii"])
async def test_hostile_samples_are_text(options: dict[str, bool]) -> None:
    async with cockpit(size=(80, 30), **options) as pilot:
        await opened(pilot, tab="9")
        await until_text(pilot, "45 out of")
        await enter(pilot, "jjjj")
        await until_text(pilot, r"\x1b[31mred")
        await settled(pilot)
        text = screen_text(pilot)
        assert "[bold]markup[/bold]" in text
        assert "NaN" in text
        assert all(line.isprintable() for line in screen_lines(pilot))
        assert {len(row) for row in screen_lines(pilot) if row.isascii()} == {80}


async def test_a_run_without_samples_says_how_there_would_be() -> None:
    async with cockpit() as pilot:
        await opened(pilot, RUNS[2], tab="9")
        await until_text(pilot, "with trainer.rollout_data_dir=FOLDER")


async def test_a_search_that_fails_says_why_in_the_tab() -> None:
    fake = FakeCockpit(failing={"samples", "config"}, error=UsageError("They do not say how long they are.", "Try w."))
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="9")
        await until(pilot, lambda: any("how long they are. Try w." in row for row in screen_lines(pilot)), "the reason")
        await enter(pilot, "0")
        await until(pilot, lambda: any("how long they are. Try w." in row for row in screen_lines(pilot)), "the reason")


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_settings_with_origin_and_what_they_were(size: tuple[int, int]) -> None:
    async with cockpit(size=size) as pilot:
        await opened(pilot, tab="0")
        await until_text(pilot, "attempt 1: 0.9")
        if size[0] >= 80:
            assert "fix, attempt 2" in screen_text(pilot)
            assert "1 differ from attempt 1" in screen_text(pilot)
        await enter(pilot, "d")
        rows = [row for row in screen_lines(pilot)[3:-1] if row.strip()]
        assert len(rows) == 2
        await enter(pilot, "d/knob_3\n")
        assert "knob_30" in screen_text(pilot)
        assert "utilization" not in screen_text(pilot)
        await press(pilot, "escape")
        assert "hardware.nodes" in screen_text(pilot)
        await resize(pilot, 60, 20)
        assert "hardware.nodes" in screen_text(pilot)


async def test_the_tabs_fit_eighty_columns_with_their_names() -> None:
    async with cockpit() as pilot:
        await opened(pilot)
        assert "1Overview 2GPUs" in screen_lines(pilot)[1]
        assert "9Samples 0Config" in screen_lines(pilot)[1]
        await pilot.click("#tabs", offset=(screen_lines(pilot)[1].index("Config"), 0))
        await until_text(pilot, "attempt 1: 0.9")


async def test_verbs_open_the_tabs() -> None:
    async with cockpit() as pilot:
        await enter(pilot, f":samples {FIRST}\n")
        await until_text(pilot, "newest first")
        await enter(pilot, ":config\n")
        await until_text(pilot, "attempt 1: 0.9")


@pytest.mark.parametrize("fails", [False, True])
async def test_what_was_found_while_another_tab_was_in_sight_is_there_when_one_comes_back(fails: bool) -> None:
    class Slow(FakeCockpit):
        def samples(self, run: RunIdentity, query: SampleQuery) -> Iterator[SamplesFound]:
            self.gate.wait(60.0)
            if "samples" in self.failing:
                self.failing.clear()
                raise self.error
            yield from super().samples(run, query)

    fake = Slow(failing={"samples"} if fails else set())
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="9")
        await press(pilot, "1")
        fake.gate.set()
        await until(pilot, lambda: not pilot.app.controller.searches._samples.busy, "the end of the search")
        await flushed(pilot)
        await press(pilot, "9")
        await until_text(pilot, "4 answers to this prompt")


async def test_a_search_of_the_log_ends_none_of_samples() -> None:
    class Slow(FakeCockpit):
        def samples(self, run: RunIdentity, query: SampleQuery) -> Iterator[SamplesFound]:
            for found in super().samples(run, query):
                yield found
                self.gate.wait(60.0)

    fake = Slow()
    async with cockpit(fake) as pilot:
        await opened(pilot, tab="9")
        await enter(pilot, "6/step\n")
        fake.gate.set()
        await press(pilot, "escape", "9")
        await until_text(pilot, "45 out of")


async def test_a_search_in_a_whole_log_ends_with_its_screen() -> None:
    class Endless(FakeCockpit):
        def search_log(self, run: RunIdentity, name: str, query: LogQuery) -> Iterator[Searched]:
            while not self.gate.wait(0.01):
                yield Searched((), 1, 100)

    fake = Endless()
    async with cockpit(fake) as pilot:
        await opened(pilot)
        searches = pilot.app.controller.searches
        searches.log(RUNS[0].identity, "out.log", read_query("loss"))
        await until(pilot, lambda: searches._logs.busy, "the search")
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen), "the list")
        try:
            await until(pilot, lambda: not searches._logs.busy, "the end of the search")
        finally:
            fake.gate.set()
