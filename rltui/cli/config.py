"""``rltui config``: every setting of a run, and where each comes from."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from rltui.cli.clusters import short
from rltui.cli.output import add_json, add_run, answer, columns, talk
from rltui.cluster.plain_text import plain
from rltui.layout.diff import setting_text
from rltui.service.all_clusters import open_clusters
from rltui.service.config import RunConfig, Setting, read_config

WIDEST = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("filter", nargs="?", default="", metavar="KEY", help="only keys with this in them")
    parser.add_argument("--attempt", type=int, default=0, metavar="N", help="of this attempt (default: the newest)")
    parser.add_argument("--diff", default="", metavar="RUN", help="only what is different in this other run")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print every setting of a run, where it comes from, and what it was in the attempt before."""
    with open_clusters(options.cluster) as clusters:
        found = clusters.find(options.run)
        other = clusters.find(options.diff) if options.diff else None
        config = read_config(*found, options.attempt, other)
    settings = [one for one in config.settings if options.filter in one.key and (one.differs or not options.diff)]
    told = {"run_id": config.run_id, "attempt": config.attempt, "against": config.against, "notes": config.notes}
    for note in () if options.json else config.notes:
        talk(note)
    nothing = f"The same as {config.against}." if options.diff else f"No key has {options.filter!r} in it."
    answer(options, {**told, "settings": settings}, _table(config, settings) if settings else (), nothing)
    return 0


def _table(config: RunConfig, settings: list[Setting]) -> Iterable[str]:
    changes = any(one.differs for one in settings)
    header = ("KEY", f"ATTEMPT {config.attempt}", *([config.against] if changes else []), "FROM")
    rows = [
        (
            plain(one.key),
            plain(setting_text(one.value, WIDEST)),
            *([plain(setting_text(one.before, WIDEST)) if one.differs else ""] if changes else []),
            plain(_origin(one)),
        )
        for one in settings
    ]
    return columns(header, rows)


def _origin(one: Setting) -> str:
    """A preset's file by its place below the working folder or the home, whichever is shorter."""
    here = f"{Path.cwd()}/"
    return one.origin[len(here) :] if one.origin.startswith(here) else short(one.origin)
