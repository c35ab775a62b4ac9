"""The form of a layout: filtered, edited, judged while typing, taken back, and the same overrides as in Launch."""

from __future__ import annotations

import yaml
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_text, until, until_text

from rltui.tui.screens.form import FormScreen


async def test_a_value_is_edited_in_the_form_and_set_in_launch() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "n")
        await until_text(pilot, "ready")
        await press(pilot, "E")
        await until_text(pilot, "hardware.nodes")
        await press(pilot, "/")
        await enter(pilot, "train.steps\n")
        await until_text(pilot, "Training steps of the run.")
        await press(pilot, "enter")
        await pilot.press("ctrl+u")
        await enter(pilot, "ten")
        await until_text(pilot, "must be a whole number, not 'ten'")
        await press(pilot, "enter")
        assert pilot.app.screen.prompt is not None, "what the schema refuses is not set"
        await pilot.press("ctrl+u")
        await enter(pilot, "7\n")
        await until_text(pilot, "was 2000")
        screen = pilot.app.screen
        assert isinstance(screen, FormScreen)
        assert screen.overrides == ("train.steps=7",)
        await press(pilot, "escape", "q")
        await until_text(pilot, "train.steps=7")
        assert pilot.app.screen.typing.overrides == ("train.steps=7",)
        await press(pilot, "E")
        await until_text(pilot, "1 set")
        await press(pilot, "/")
        await enter(pilot, "set\n")
        await until_text(pilot, "1 of ")
        await press(pilot, "d")
        await until_text(pilot, "0 set")
        await press(pilot, "escape", "q")
        assert pilot.app.screen.typing.overrides == ()


async def test_a_value_of_several_lines_is_edited_whole_and_left_as_it_was_by_enter() -> None:
    async with cockpit() as pilot:
        await press(pilot, "n")
        await until_text(pilot, "ready")
        await press(pilot, "E")
        await until_text(pilot, "hardware.nodes")
        await press(pilot, "/")
        await enter(pilot, "data.judge.prompt\n")
        await until_text(pilot, "1 of ")
        screen = pilot.app.screen
        assert isinstance(screen, FormScreen)
        await press(pilot, "enter")
        await until(pilot, lambda: screen.prompt is not None)
        await press(pilot, "enter")
        await until(pilot, lambda: screen.prompt is None)
        assert screen.overrides == (), "the prompt of a judge has lines; enter would have made one of them"
        await press(pilot, "enter")
        await until(pilot, lambda: screen.prompt is not None)
        await press(pilot, "backspace")
        await enter(pilot, 'Thanks."\n')
        await until(pilot, lambda: bool(screen.overrides))
        value = yaml.safe_load(screen.overrides[0].partition("=")[2])
        assert value.startswith("Question:\n{question}\n")
        assert value.endswith("Thanks.")


async def test_the_form_fits_a_small_terminal() -> None:
    async with cockpit(size=(80, 24)) as pilot:
        await press(pilot, "n")
        await until_text(pilot, "ready")
        await press(pilot, "E")
        await until_text(pilot, "hardware.nodes")
        await press(pilot, *["j"] * 3)
        await until_text(pilot, "whole number, 1 to 10000")
        assert all(len(row) <= 80 for row in screen_text(pilot).splitlines())


async def test_a_run_is_resubmitted_with_what_the_form_sets() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "M")
        await until_text(pilot, "hardware.nodes")
        await press(pilot, "r")
        await until(pilot, lambda: "nothing is set yet" in notices(pilot), "why there is nothing to preview")
        await press(pilot, "/")
        await enter(pilot, "train.steps\n")
        await press(pilot, "enter")
        await pilot.press("ctrl+u")
        await enter(pilot, "7\n")
        await until_text(pilot, "1 set")
        pilot.app.screen.overrides = ("name=two words",)
        await press(pilot, "y")
        assert pilot.app.clipboard == "'name=two words'"
        pilot.app.screen.overrides = ("train.steps=7",)
        await press(pilot, "r")
        await until_text(pilot, "Resubmit grpo-tiny-4f2a")
        assert pilot.app.screen.preview.overrides == ("train.steps=7",)
