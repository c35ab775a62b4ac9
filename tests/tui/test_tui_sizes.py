"""Every screen at four sizes in three themes, as text that a reviewer reads. --update-snapshots writes it anew.

Before the bar of each line stand two characters a theme (dark, light, mono) that change with the line's colours and
attributes (``--``: there it has another text): the text says what differs, these say where else to look. A few screens
are also kept in colour, by ``test_tui_snapshots.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import groupby
from typing import TYPE_CHECKING

import pytest
from canned_actions import AWAY, CODE
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, flushed, press, replay, resize, settled, until_text
from textual.widgets import Input

from rltui.tui.theme import DARK, LIGHT, MONO

if TYPE_CHECKING:
    from textual.pilot import Pilot

SIZES = ((40, 10), (80, 24), (120, 40), (200, 60))
THEMES = (DARK, LIGHT, MONO)
GPU_RUN = "j\n"

SCREENS = {
    "runs": "",
    "run": GPU_RUN,
    "gpus": f"{GPU_RUN} 2",
    "gpu-map": f"{GPU_RUN} 2 vv",
    "actors": f"{GPU_RUN} 3",
    "queues": f"{GPU_RUN} 4",
    "metrics": f"{GPU_RUN} 5",
    "logs": f"{GPU_RUN} 6",
    "events": f"{GPU_RUN} 7",
    "history": f"{GPU_RUN} 8",
    "samples": f"{GPU_RUN} 9",
    "config": f"{GPU_RUN} 0",
    "launch": "n",
    "launch-script": "nc v",
    "launch-sweep": "nStrain.steps=5,x,7\n",
    "form": "nE",
    "why": "jjjjj!",
    "queue": "jQ",
    "clusters": "C",
    "door": "a",
    "jobs": ":jobs\n",
    "output": ":selftest\n",
    "columns": "|",
    "filter": "/state:run\n",
    "help": "?",
    "palette": "ctrl+p",
    "actions": "jx",
    "nodes": "jjjjje",
    "confirm": "c",
    "fix": "jjjjjf",
}
"""Screen → what is typed; at a space it comes to rest."""


def frame(pilot: Pilot[int]) -> list[tuple[str, str]]:
    """Each line: two characters that change when its colours or attributes do, and its text."""
    found = []
    for strip in pilot.app.screen._compositor.render_strips():
        parts = groupby(strip, key=lambda segment: str(segment.style))
        said = [(style, "".join(segment.text for segment in same)) for style, same in parts]
        mark = hashlib.sha256(repr(said).encode()).hexdigest()[:2]
        found.append((mark, "".join(text for _, text in said).rstrip()))
    return found


async def frames(pilot: Pilot[int], typed: str = "") -> str:
    """The screen that ``typed`` leads to, at all sizes in all themes."""
    told = []
    await settled(pilot)
    for keys in typed.split(" "):
        await (press(pilot, keys) if keys.startswith("ctrl+") else enter(pilot, keys))
        await settled(pilot)
    for typed_into in pilot.app.screen.query(Input):
        typed_into.cursor_blink = False
    for width, height in SIZES:
        await resize(pilot, width, height)
        await settled(pilot)
        shown = []
        for theme in THEMES:
            pilot.app.theme = theme
            await flushed(pilot)
            shown.append(frame(pilot))
        for lines in zip(*shown, strict=True):
            told += [
                "".join(mark if text == shared else "--" for mark, text in lines) + f"│{shared}"
                for shared in dict.fromkeys(text for _, text in lines)
            ]
        told.append(f"{'─' * 7} {width}×{height}")
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("name", SCREENS)
async def test_the_screen_at_all_sizes_is_as_it_was_reviewed(
    name: str, matches_picture: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltui.tui.widgets.launch_panes.OUTLOOK_SETTLE_S", 600.0)  # what it says has an age
    fake = FakeCockpit(all_clusters=AWAY, questions=(CODE,)) if name in ("clusters", "door") else FakeCockpit()
    async with cockpit(fake) as pilot:
        matches_picture(name, await frames(pilot, SCREENS[name]), ".txt")


async def test_a_replay_at_all_sizes_is_as_it_was_reviewed(matches_picture: Callable[..., None]) -> None:
    async with replay(at="60%") as pilot:
        await until_text(pilot, "82/240")
        matches_picture("replay", await frames(pilot), ".txt")
