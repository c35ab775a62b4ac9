"""Write the pictures of README and docs: the real cockpit, run headless, so that no run and no cluster is needed.

``demo.svg`` moves and shows the recording of a real run that is kept in ``tests/fixtures/recording``; the others show
the canned data of the cockpit's tests: several nodes with GPUs, and runs in every state.

Usage: ``make pictures``, or ``python tools/screenshot.py [FOLDER]``; FOLDER is ``docs/images`` unless given.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from animation import Frame
    from rltui.service.replay import ReplayCockpit
    from rltui.tui.replay import ReplayApp

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "tests"), str(ROOT / "tests" / "tui")]

RECORDING = ROOT / "tests" / "fixtures" / "recording" / "grpo-tiny.tar.gz"

PICTURES = {
    "runs.svg": ((120, 36), ()),
    "run.svg": ((120, 36), ("j\n",)),
    "samples.svg": ((120, 36), ("j\n", "9", "j", "d")),
    "launch.svg": ((120, 30), ("n", "jj")),
    "why.svg": ((120, 30), ("jjjjj!",)),
    "less-memory.svg": ((120, 30), ("jjjjjm",)),
}
"""File → size of the terminal, and what is typed to come to the screen, which rests after each part."""


STORY = (
    *(("1", float(second), 0.5) for second in (*range(0, 18, 3), *range(18, 36))),
    ("1", 40.0, 2.0),
    *((tab, 40.0, 2.5) for tab in "569"),
)
"""What ``demo.svg`` shows: a tab, how many seconds after the beginning of the recording, and for how long."""


async def frames(size: tuple[int, int]) -> list[Frame]:
    """The recording, moment by moment."""
    from pictures import flushed, normalised, press, settled, until

    from animation import Frame
    from rltui.service.recording import read_recording
    from rltui.service.replay import ReplayCockpit
    from rltui.tui.replay import ReplayApp
    from rltui.tui.screens.replay import ReplayScreen

    cockpit = ReplayCockpit(read_recording(RECORDING), clock=lambda: 0.0)
    app, found = ReplayApp(cockpit), []
    try:
        async with app.run_test(size=size) as pilot:
            for tab, second, seconds in STORY:
                await press(pilot, tab)
                assert isinstance(app.screen, ReplayScreen)
                app.screen.go_to(cockpit.clock.begin + second)
                await until(pilot, lambda: _moment(app, cockpit) == cockpit.clock.now, f"the picture of {second} s")
                await (settled(pilot) if tab != "1" else flushed(pilot))
                found.append(Frame(normalised(app.export_screenshot(title="rltui")), seconds))
    finally:
        cockpit.close()
    return found


def _moment(app: ReplayApp, cockpit: ReplayCockpit) -> float:
    """When the run was as it is shown."""
    picture = app.pictures.run(cockpit.identity)
    return picture.taken_at if picture is not None else 0.0


async def picture(size: tuple[int, int], typed: tuple[str, ...]) -> str:
    """The screen after ``typed`` as SVG."""
    from pictures import cockpit, enter, normalised, settled

    async with cockpit(size=size) as pilot:
        await settled(pilot)
        for part in typed:
            await enter(pilot, part)
            await settled(pilot)
        return normalised(pilot.app.export_screenshot(title="rltui"))


def main() -> None:
    os.environ["TZ"] = "UTC"  # a picture is the same wherever it is made
    time.tzset()
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    from animation import animated

    (folder / "demo.svg").write_text(animated(asyncio.run(frames((100, 30)))), encoding="utf-8")
    print(folder / "demo.svg")
    for name, (size, typed) in PICTURES.items():
        (folder / name).write_text(asyncio.run(picture(size, typed)), encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
