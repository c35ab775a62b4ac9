"""A script of another system on the launch screen: opened by its path, its words edited, launched once."""

from __future__ import annotations

from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_text, settled, until, until_text
from test_tui_launch import launches, launching

from rltui.tui.commands import script_words
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.run import RunScreen


async def opened(pilot, path: str = "/data/run.sh") -> LaunchScreen:
    screen = await launching(pilot)
    await enter(pilot, f"o{path}\n")
    await until(pilot, lambda: screen.review is not None and screen.review.preset == path, "its review")
    return screen


async def test_a_path_shows_what_is_read_of_the_script_and_launches_it_once() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, size=(80, 24)) as pilot:
        await opened(pilot)
        await until_text(pilot, "read as a script of verl")
        assert "1 warning: can launch" in screen_text(pilot)
        await enter(pilot, "\n\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        assert launches(fake) == [("/data/run.sh",)]


async def test_the_words_behind_it_are_edited_whole_and_checked_as_typed() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await opened(pilot)
        await enter(pilot, "s--nodes 2 -- trainer.lr='1 e'\n")
        words = ("--nodes", "2", "--", "trainer.lr=1 e")
        await until(pilot, lambda: screen.review is not None and screen.review.overrides == words, "the review")
        await enter(pilot, "s")
        await until(pilot, lambda: screen.prompt is not None and screen.prompt.text.startswith("--nodes 2"), "them")
        await press(pilot, "escape")
        assert screen.typing.overrides == words
        await enter(pilot, "dd")
        await until(pilot, lambda: screen.review is not None and screen.review.overrides == words[:2], "two fewer")
        await enter(pilot, "d")
        await until_text(pilot, "1 error: cannot launch")
        await enter(pilot, "\n")
        await until(pilot, lambda: "errors stand in the way" in notices(pilot), "the reason")
        assert launches(fake) == []


async def test_an_open_quote_stays_in_the_prompt() -> None:
    async with cockpit() as pilot:
        screen = await opened(pilot)
        await enter(pilot, "s--name 'a\n")
        await until(pilot, lambda: "the words cannot be read" in notices(pilot), "the reason")
        assert screen.prompt is not None
        assert screen.typing.overrides == ()


async def test_its_job_script_is_shown() -> None:
    async with cockpit() as pilot:
        await opened(pilot)
        await enter(pilot, "v")
        await until_text(pilot, "verl.trainer.main_ppo")


async def test_what_cannot_be_read_leaves_the_list_again() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "o/data/missing\n")
        await until(pilot, lambda: "there is no preset or file" in notices(pilot), "the reason")
        await until(pilot, lambda: "/data/missing" not in screen.presets.names, "the list as it was")
        await until(pilot, lambda: screen.review is not None and screen.review.preset == "local/grpo-tiny", "a review")


async def test_the_command_takes_a_path() -> None:
    async with cockpit() as pilot:
        await enter(pilot, ":launch /data/run.sh\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, LaunchScreen), "the launch screen")
        await until_text(pilot, "read as a script of verl")


def test_words_are_those_of_a_shell() -> None:
    assert script_words("--nodes 2 -- 'a b'") == (("--nodes", "2", "--", "a b"), "")
    assert script_words("'")[1]


async def test_a_home_of_nobody_here_is_only_a_file_that_is_not_there() -> None:
    async with cockpit() as pilot:
        await press(pilot, "n")
        await until_text(pilot, "ready")
        await enter(pilot, "o~nosuchuser9/run.sh\n")
        await settled(pilot)
        assert pilot.app.screen.presets.selected.name == "~nosuchuser9/run.sh"
