"""``rltui actors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli.output import add_json, add_run, add_watch, columns, print_json, print_lines, talk
from rltui.cli.run_picture import nothing_yet, read_run, talk_age

if TYPE_CHECKING:
    import argparse

HEADER = ("ACTOR", "NAME", "STATE", "NODE", "PID", "RESTARTS", "DIED BECAUSE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_run(parser)
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Print Ray's actors: state, node, process, restarts, and why one died."""
    picture = read_run(options)
    if options.json:
        about = {"run_id": picture.summary.run_id, "actors": picture.actors, "noted_at": picture.actors_noted_at}
        print_json({"schema": 1, **about, "problem": picture.actors_problem})
    elif picture.actors:
        rows = [
            (
                actor.class_name,
                actor.name,
                actor.state.lower(),
                actor.node,
                str(actor.pid or "–"),
                str(actor.restarts),
                actor.death_cause,
            )
            for actor in picture.actors
        ]
        print_lines(columns(HEADER, rows, frozenset({4, 5})))
        talk_age(picture, picture.actors_noted_at)
    else:
        talk(picture.actors_problem or nothing_yet(picture, "Ray has no actors; they come and go with the trainer"))
    return 0
