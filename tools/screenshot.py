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
    "run.svg": ((120, 36), ("j\n",)),
    "samples.svg": ((120, 36), ("j\n", "9", "j", "d")),
    "launch.svg": ((120, 30), ("n", "jj")),
    "why.svg": ((120, 30), ("jjjjj!",)),
    "less-memory.svg": ((120, 30), ("jjjjjm",)),
}
"""File → size of the terminal, and what is typed to come to the screen, which rests after each part."""


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
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, (size, typed) in PICTURES.items():
        (folder / name).write_text(asyncio.run(picture(size, typed)), encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
