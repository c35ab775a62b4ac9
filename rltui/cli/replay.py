"""``rltui replay``: show a recorded run again, at any speed, without any cluster."""

from __future__ import annotations

import argparse
from contextlib import closing

from msgspec import structs

from rltui.cli.cockpit import open_replay
from rltui.cli.output import add_json, answer
from rltui.cli.show import lines
from rltui.errors import UsageError
from rltui.paths import with_home
from rltui.service.recording import read_recording
from rltui.service.replay import ReplayCockpit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the file, and when to begin."""
    parser.add_argument("file", metavar="FILE", help="what `rltui record` or `rltui bundle` made")
    parser.add_argument("--speed", type=float, default=1.0, metavar="N", help="recorded seconds a second (default: 1)")
    parser.add_argument(
        "--at", default="", metavar="TIME", help="begin there: 90s, 12m, 1h30m, 1:02:03, 50%%, end (default: the start)"
    )
    parser.add_argument(
        "--headless", action="store_true", help="print the run as it was at that time, without a screen"
    )
    add_json(parser)
    parser.add_argument("--ascii", action="store_true", help="no glyphs beyond ASCII")


def run(options: argparse.Namespace) -> int:
    """Show a recorded run again."""
    if not 0.01 <= options.speed <= 100_000:
        raise UsageError(f"--speed {options.speed:g} is no speed.", "Give a number from 0.01 to 100000.")
    recording = read_recording(with_home(options.file))
    with closing(ReplayCockpit(recording, speed=options.speed, at=options.at)) as cockpit:
        if not (options.headless or options.json):
            return open_replay(cockpit, ascii_only=options.ascii)
        cockpit.clock.paused = True
        picture = cockpit.watch(cockpit.identity)
        # where it lies for the moment is of no use to anybody
        picture = structs.replace(picture, summary=structs.replace(picture.summary, path=""))
        clock = cockpit.clock
    about = {"at_s": clock.now - clock.begin, "of_s": clock.end - clock.begin, "time": clock.now}
    answer(options, {"replay": about, "run": picture}, [f"recording at {clock.in_words}", *lines(picture)])
    return 0
