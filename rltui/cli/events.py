"""``rltui events``: what happened to a run, and when."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rltui.cli.output import answer
from rltui.cli.run_picture import add_arguments as add_arguments
from rltui.cli.run_picture import nothing_yet, read_run
from rltui.watch.events import details


def run(options: argparse.Namespace) -> int:
    """Print what happened to all attempts of the run, oldest first."""
    picture = read_run(options, whole=True)
    told = {"run_id": picture.summary.run_id, "events": picture.events}
    answer(options, told, map(_line, picture.events), nothing_yet(picture, "nothing has happened"))
    return 0


def _line(event: dict[str, Any]) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(event["time"])))
    more = "  ".join(f"{key}={value}" for key, value in details(event).items() if key != "attempt")
    return f"{at}  attempt {event['attempt']}  {event['kind']:<10}  {event['text']}{f'  {more}' if more else ''}"
