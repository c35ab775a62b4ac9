"""Driving the cockpit in tests: waiting for what must come, the screen as text, SVG pictures without what varies."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from canned_runs import NOW
from fake_cockpit import FakeCockpit
from textual import events
from textual.geometry import Size
from textual.keys import _character_to_key

from rltui.service.recording import read_recording
from rltui.service.replay import ReplayCockpit
from rltui.tui.app import CockpitApp
from rltui.tui.replay import ReplayApp
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.runs import RunsScreen
from waiting import longest_s

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from rltui.service.recording import Recording

RECORDED = Path(__file__).parents[1] / "fixtures" / "recording" / "grpo-tiny.tar.gz"
CELL = 12.2
"""Width of a cell in an exported picture."""


@asynccontextmanager
async def cockpit(
    fake: FakeCockpit | None = None, size: tuple[int, int] = (80, 24), theme: str = "", **options: object
) -> AsyncIterator[Pilot[int]]:
    """The real application over ``fake``, headless, with the first list of runs on its screen."""
    fake = fake or FakeCockpit()
    app = CockpitApp(fake, **({"clock": lambda: 0.0, "wall_clock": lambda: NOW} | options))
    async with app.run_test(size=size) as pilot:
        if theme:
            app.theme = theme
        if "runs" not in fake.failing and not fake.slow_s:
            await until(pilot, lambda: app.pictures.runs.taken_at > 0, "the list of runs")
        await flushed(pilot)
        yield pilot


@asynccontextmanager
async def replay(
    recording: Recording | None = None, size: tuple[int, int] = (80, 24), at: str = ""
) -> AsyncIterator[Pilot[int]]:
    """A recording, its clock stopped."""
    cockpit = ReplayCockpit(recording or read_recording(RECORDED), at=at)
    cockpit.clock.paused = True
    try:
        app = ReplayApp(cockpit)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.pictures.run(cockpit.identity) is not None, "the first picture")
            await flushed(pilot)
            yield pilot
    finally:
        cockpit.close()


async def until(pilot: Pilot[int], condition: Callable[[], bool], what: str = "the condition") -> None:
    """Let the application work until ``condition`` holds; say ``what`` did not come in time."""
    asked = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - asked
        assert waited_s < longest_s(), f"{what} did not come within {waited_s:.0f} s:\n{screen_text(pilot)}"
        await pilot.pause(0.005)


async def press(pilot: Pilot[int], *keys: str) -> None:
    """Press keys by Textual's names, faster than any hand, and wait until all of them were taken."""
    for key in keys:
        char = key if len(key) == 1 else None
        pilot.app.post_message(events.Key(_character_to_key(key) if char else key, char))
    await flushed(pilot)


async def enter(pilot: Pilot[int], text: str) -> None:
    """Type ``text``; a line feed is the enter key, a tab the tab key."""
    await press(pilot, *({"\n": "enter", "\t": "tab"}.get(char, char) for char in text))


async def resize(pilot: Pilot[int], width: int, height: int) -> None:
    """Give the terminal another size, and wait until the screen has it."""
    size = Size(width, height)
    pilot.app._driver._size = size
    pilot.app.post_message(events.Resize(size, size))
    await until(pilot, lambda: pilot.app.screen.size == size, "the new size")
    await until(pilot, lambda: len(screen_lines(pilot)) == height, "the new layout")
    await flushed(pilot)


async def flushed(pilot: Pilot[int]) -> None:
    """Wait until every message has been handled, as far as it does not wait for a service."""

    def idle() -> bool:
        pumps = [pilot.app, pilot.app.screen, *pilot.app.screen.walk_children()]
        leaves = pilot.app._exit  # what is posted to it then is handled by nobody
        return leaves or all(pump._message_queue.empty() and not pump._next_callbacks for pump in pumps)

    for _ in range(2):  # a message handled last may have posted to a pump looked at first
        await until(pilot, idle, "the end of all messages")
        await pilot.pause(0)


async def until_text(pilot: Pilot[int], words: str) -> None:
    """Wait until the screen shows ``words``."""
    await until(pilot, lambda: words in screen_text(pilot), f"{words!r}")


async def settled(pilot: Pilot[int]) -> None:
    """Wait until the services have answered what this screen asks for, and the screen is at rest."""
    await until(pilot, lambda: _answered(pilot.app), "the answers of the services")
    await flushed(pilot)
    before, same = "", 0

    def at_rest() -> bool:
        nonlocal before, same
        now = screen_text(pilot)
        before, same = now, same + 1 if now == before else 0
        return same >= 8 and _answered(pilot.app)

    await until(pilot, at_rest, "a screen at rest")


def _answered(app: CockpitApp) -> bool:
    """Whether nothing that the screen on top waits for is outstanding."""
    screen = app.screen
    threads = (app.controller._questions, app.controller._readings, app.controller._queues)
    if app.questions.waiting or any(thread.busy for thread in threads):
        return False
    if isinstance(screen, RunsScreen):
        run = screen.table.pictured
        return run is None or app.pictures.run(run.identity) is not None
    if isinstance(screen, RunScreen):
        return app.pictures.run(screen.identity) is not None
    return not isinstance(screen, LaunchScreen) or screen.review is not None


def screen_lines(pilot: Pilot[int]) -> list[str]:
    """The screen as lines of text, without the notifications."""
    # Textual has no public way to the cells on the screen but an SVG, which costs ten times as much.
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip) for strip in strips]


def screen_text(pilot: Pilot[int]) -> str:
    """The screen as text."""
    return "\n".join(screen_lines(pilot))


def notices(pilot: Pilot[int]) -> str:
    """The text of all notifications that can still be read."""
    return "\n".join(notification.message for notification in pilot.app._notifications)


def normalised(svg: str) -> str:
    """``svg`` with fixed ids and without fonts from the network."""
    svg = re.sub(r"terminal-\d+-", "t-", svg)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas, monospace")
    pattern = (
        r'<text class="[^"]*" x="([\d.]+)"( y="[\d.]+") textLength="([\d.]+)"([^>]*)>((?:&#160;)*)([^<]*)</text>\n?'
    )
    return re.sub(r"[ \t]+\n", "\n", re.sub(pattern, _unpadded, svg))


def _unpadded(found: re.Match[str]) -> str:
    """A piece of text without spaces at its ends, which some viewers drop; a piece of spaces vanishes."""
    head = found[0][: found[0].index(' x="')]
    words = re.sub(r"(?:&#160;)+$", "", found[6])
    if not words:
        return ""
    before, after = len(found[5]) // 6, (len(found[6]) - len(words)) // 6
    x, length = float(found[1]) + before * CELL, float(found[3]) - (before + after) * CELL
    return f'{head} x="{x:.1f}"{found[2]} textLength="{length:.1f}"{found[4]}>{words}</text>\n'


async def confirmation(pilot: Pilot[int]) -> ConfirmScreen:
    """The dialog that asks, once it stands and nothing is left to paint."""
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the confirmation")
    await flushed(pilot)
    assert isinstance(pilot.app.screen, ConfirmScreen)
    return pilot.app.screen
