"""``rltui events``."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rltui.cli.output import add_json, add_run, add_watch, print_json, print_lines, talk
from rltui.cli.run_picture import nothing_yet, read_run
from rltui.watch.events import details


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_run(parser)
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Print what happened to all attempts of the run, oldest first."""
    picture = read_run(options)
    if options.json:
        print_json({"schema": 1, "run_id": picture.summary.run_id, "events": picture.events})
    elif picture.events:
        print_lines(_line(event) for event in picture.events)
    else:
        talk(nothing_yet(picture, "nothing has happened"))
    return 0


def _line(event: dict[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(event["time"])))
    more = "  ".join(f"{key}={value}" for key, value in details(event).items() if key != "attempt")
    return f"{at}  attempt {event['attempt']}  {event['kind']:<10}  {event['text']}{f'  {more}' if more else ''}"
