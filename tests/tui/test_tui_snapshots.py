"""Some screens in colour, compared as SVG; each at all sizes is text (``test_tui_sizes.py``). --update-snapshots
writes them anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from canned_actions import AWAY
from canned_runs import RUNS
from canned_sweep import sweep
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, normalised, settled

SMALL, MEDIUM, LARGE = (80, 24), (120, 40), (200, 60)
GPU_RUN = "j\n"

PICTURES: dict[str, tuple[tuple[int, int], str, str]] = {
    "runs-80x24": (SMALL, "", ""),
    "runs-light-80x24": (SMALL, "rltui-light", ""),
    "runs-mono-80x24": (SMALL, "rltui-mono", ""),
    "runs-failed-80x24": (SMALL, "", "jjjjj"),
    "run-80x24": (SMALL, "", GPU_RUN),
    "run-120x40": (MEDIUM, "", GPU_RUN),
    "run-cpu-80x24": (SMALL, "", "\n"),
    "run-light-120x40": (MEDIUM, "rltui-light", GPU_RUN),
    "run-mono-80x24": (SMALL, "rltui-mono", GPU_RUN),
    "run-gpus-roles-80x24": (SMALL, "", GPU_RUN + " 2 OO"),
    "run-gpus-roles-mono-200x60": (LARGE, "rltui-mono", GPU_RUN + " 2 OO"),
    "run-metrics-120x40": (MEDIUM, "", GPU_RUN + " 5"),
    "run-logs-80x24": (SMALL, "", GPU_RUN + " /preempted\n"),
    "run-samples-80x24": (SMALL, "", GPU_RUN + " 9 j d"),
    "run-samples-120x40": (MEDIUM, "", GPU_RUN + " 9 j d"),
    "run-samples-mono-80x24": (SMALL, "rltui-mono", GPU_RUN + " 9 j d"),
    "why-80x24": (SMALL, "", "jjjjj!"),
    "why-mono-80x24": (SMALL, "rltui-mono", "jjjjj!"),
    "evidence-80x24": (SMALL, "", "jjjjj! \n"),
    "less-memory-80x24": (SMALL, "", "jjjjjm"),
    "actions-80x24": (SMALL, "", "jx"),
    "confirm-80x24": (SMALL, "", "c"),
    "confirm-mono-80x24": (SMALL, "rltui-mono", "c"),
    "queue-nodes-80x24": (SMALL, "", "jQ vv"),
}
"""Name → size, theme, keys; at a space the screen comes to rest."""


async def picture(
    size: tuple[int, int], theme: str, typed: str, fake: FakeCockpit | None = None, **options: object
) -> str:
    async with cockpit(fake, size=size, theme=theme, **options) as pilot:
        await settled(pilot)  # what lies under a dialog does not go on once that is open
        for keys in typed.split(" "):
            await enter(pilot, keys)
            await settled(pilot)
        return normalised(pilot.app.export_screenshot(title="rltui"))


@pytest.mark.parametrize("name", PICTURES)
async def test_the_screen_looks_as_it_was_reviewed(name: str, matches_picture: Callable[[str, str], None]) -> None:
    matches_picture(name, await picture(*PICTURES[name]))


async def test_an_empty_list_looks_as_it_was_reviewed(matches_picture: Callable[[str, str], None]) -> None:
    matches_picture("runs-empty-80x24", await picture(SMALL, "", "", FakeCockpit(all_runs=())))


@pytest.mark.parametrize(("name", "typed"), [("runs-sweep-80x24", "j"), ("runs-sweep-open-80x24", "j+")])
async def test_a_sweep_looks_as_it_was_reviewed(
    name: str, typed: str, matches_picture: Callable[[str, str], None]
) -> None:
    fake = FakeCockpit(all_runs=(RUNS[0], *sweep(), *RUNS[1:]))
    matches_picture(name, await picture(SMALL, "", typed, fake))


async def test_clusters_that_are_away_look_as_they_were_reviewed(matches_picture: Callable[[str, str], None]) -> None:
    matches_picture("runs-away-80x24", await picture(SMALL, "", "", FakeCockpit(all_clusters=AWAY)))
    matches_picture("clusters-80x24", await picture(SMALL, "", "C", FakeCockpit(all_clusters=AWAY)))


async def test_ascii_looks_as_it_was_reviewed(matches_picture: Callable[[str, str], None]) -> None:
    matches_picture("run-ascii-80x24", await picture(SMALL, "", "\n", ascii_only=True))


@pytest.mark.parametrize("typed", ["", GPU_RUN, "c"], ids=["runs", "run", "confirm"])
async def test_no_color_is_the_mono_theme_and_names_no_colour(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mono = await picture(SMALL, "rltui-mono", typed)
    monkeypatch.setenv("NO_COLOR", "1")
    async with cockpit(size=SMALL) as pilot:
        await settled(pilot)
        await enter(pilot, typed)
        await settled(pilot)
        assert normalised(pilot.app.export_screenshot(title="rltui")) == mono
        styles = [segment.style for strip in pilot.app.screen._compositor.render_strips() for segment in strip]
        colours = {str(colour.name) for style in styles if style for colour in (style.color, style.bgcolor) if colour}
    assert colours <= {"default"}


def test_the_canned_runs_show_every_state() -> None:
    assert len({run.state for run in RUNS}) == 9
