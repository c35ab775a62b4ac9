"""Write the pictures of the README: the real cockpit, run headless over the canned data of its tests.

Usage: ``python tools/screenshot.py [FOLDER]``; FOLDER is ``docs/images`` unless given.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "tui")]

PICTURES = {
    "runs.svg": ((120, 36), ()),
    "run.svg": ((120, 36), ("down", "enter")),
    "launch.svg": ((120, 30), ("n", "down", "down")),
}
"""File → size of the terminal and the keys that lead to the screen."""


async def picture(size: tuple[int, int], keys: tuple[str, ...]) -> str:
    """The screen after ``keys`` as SVG."""
    from fake_cockpit import FakeCockpit
    from pictures import normalised, settled

    from rltui.tui.app import CockpitApp

    app = CockpitApp(FakeCockpit(), clock=lambda: 0.0)
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        for key in keys:
            await pilot.press(key)
            await settled(pilot)
        return normalised(app.export_screenshot(title="rltui"))


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (size, keys) in PICTURES.items():
        (folder / name).write_text(asyncio.run(picture(size, keys)), encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
