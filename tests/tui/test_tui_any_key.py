"""No key ends the cockpit, whatever Textual calls it: it looks methods up by the names of keys."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from canned_runs import RUNS
from fake_cockpit import FakeCockpit
from pictures import cockpit, flushed, press
from textual.keys import Keys

from rltui.cluster.prompts import Field, Question
from rltui.service.cockpit import Ask
from rltui.tui.picking import PickItem
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.door import DoorScreen
from rltui.tui.screens.pick import NodesScreen, PaletteScreen, PickScreen
from rltui.tui.screens.runs import RunsScreen

if TYPE_CHECKING:
    from rltui.tui.app import CockpitApp

PRINTABLE = [char for char in string.printable if char.isprintable()] + list("äß€あ")
NAMED = sorted({key.value for key in Keys} - {"ctrl+c"})
ITEMS = [PickItem("one", "one"), PickItem("two", "two")]
QUESTION = Question(kind="password", title="hpc", instructions=(), fields=(Field(text="Password:", echo=False),))

OPEN: dict[str, Callable[[CockpitApp], object]] = {
    "runs": lambda app: None,
    "run": lambda app: app.open_run(next(iter(app.pictures.names))),
    "metrics": lambda app: app.open_run(next(iter(app.pictures.names)), 4),
    "log": lambda app: app.open_run(next(iter(app.pictures.names)), 5),
    "samples": lambda app: app.open_run(next(iter(app.pictures.names)), 8),
    "config": lambda app: app.open_run(next(iter(app.pictures.names)), 9),
    "launch": lambda app: app.open("launch"),
    "why": lambda app: app.open("why", next(iter(app.pictures.names))),
    "form": lambda app: app.open("form", "local/grpo-tiny", (), lambda _: None),
    "clusters": lambda app: app.open("clusters"),
    "jobs": lambda app: app.open("jobs"),
    "queue": lambda app: app.open("queue", "isambard"),
    "columns": lambda app: app.screen.act("columns"),
    "confirm": lambda app: app.push_screen(
        ConfirmScreen(Ask("cancel", next(iter(app.pictures.names))), FakeCockpit().preview_cancel(RUNS[0].run_id))
    ),
    "pick": lambda app: app.push_screen(PickScreen("which", ITEMS, marking=True)),
    "nodes": lambda app: app.push_screen(NodesScreen(next(iter(app.pictures.names)), ITEMS)),
    "palette": lambda app: app.push_screen(PaletteScreen("do", ITEMS)),
    "help": lambda app: app.open("help", RunsScreen.KEYS),
    "door": lambda app: app.push_screen(DoorScreen("hpc", QUESTION)),
    "output": lambda app: app.open("output", ("hold", "no-such-run"), True),
    "prompt": lambda app: app.screen.act("filter"),
}


def in_sight(app: CockpitApp) -> tuple[object, ...]:
    """The screen on top, its tab, and whether it has a prompt."""
    screen = app.screen
    return screen, getattr(screen, "tabs", None) and screen.tabs.current, getattr(screen, "prompt", None) is not None


@pytest.mark.parametrize("place", OPEN)
async def test_no_key_ends_the_cockpit(place: str) -> None:
    async with cockpit() as pilot:
        app = pilot.app

        async def open_anew() -> None:
            while len(app.screen_stack) > 1:
                app.pop_screen()
            app.screen.prompting.close()
            OPEN[place](app)
            await flushed(pilot)

        await open_anew()
        table = getattr(app.screen, "KEYS", None)
        doing = {name for key in table.keys for name in key.keys} if table is not None else set()
        await press(pilot, *(key for key in (*PRINTABLE, *NAMED) if key not in doing and key != "enter"))
        await open_anew()
        opened = in_sight(app)
        for key in sorted(doing - {"q"} if place == "runs" else doing):
            if in_sight(app) != opened:
                await press(pilot, "escape")  # from what the last key has opened above it
            if in_sight(app) != opened:
                await open_anew()
                opened = in_sight(app)
            await press(pilot, key)
        await open_anew()
        assert app.is_running


async def test_a_prompt_is_left_and_opened_again_within_one_burst() -> None:
    async with cockpit() as pilot:
        await press(pilot, *(["/", "escape"] * 5), "/", "o", "p", "d")
        assert pilot.app.screen.table.query_words == "opd"
