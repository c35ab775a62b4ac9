"""Jobs that are no runs: listed, adopted by a key, and what is said where there are none or nobody answers."""

from __future__ import annotations

from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_lines, screen_text, until, until_text

from rltui.tui.screens.jobs import JobsScreen


async def test_jobs_are_listed_and_x_adopts_the_one_under_the_cursor() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, size=(80, 24)) as pilot:
        await enter(pilot, ":jobs\n")
        await until_text(pilot, "48121")
        assert isinstance(pilot.app.screen, JobsScreen)
        assert all(len(line.rstrip()) <= 80 for line in screen_lines(pilot))
        assert "my-verl-grpo" in screen_text(pilot)
        await press(pilot, "j", "x")
        await until(pilot, lambda: ("adopt", "isambard", "48122_3") in fake.calls)
        await until(pilot, lambda: "48122_3" not in screen_text(pilot))
        assert "adopted-48122_3 is a run now" in notices(pilot)
        assert fake.calls.count(("open_jobs",)) == 2  # when it opened, and after the adoption


async def test_no_jobs_and_no_answer_are_said() -> None:
    async with cockpit(FakeCockpit(all_jobs=()), size=(80, 24)) as pilot:
        await enter(pilot, ":jobs\n")
        await until_text(pilot, "no jobs beside the runs")
    async with cockpit(FakeCockpit(failing={"open_jobs"}), size=(80, 24)) as pilot:
        await enter(pilot, ":jobs\n")
        await until(pilot, lambda: "does not answer" in notices(pilot))


async def test_a_cockpit_that_only_shows_adopts_nothing() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, size=(80, 24), readonly=True) as pilot:
        await enter(pilot, ":jobs\n")
        await until_text(pilot, "48121")
        await press(pilot, "x")
        await until(pilot, lambda: "read-only" in notices(pilot))
        assert not [call for call in fake.calls if call[0] == "adopt"]
