"""``rltui actors``: Ray's actors of a run: state, node, restarts, why they died."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json, add_run, add_watch, columns, print_json, print_lines, talk
from rltui.cli.run_picture import nothing_yet, read_run, talk_age
from rltui.errors import UsageError
from rltui.service.all_clusters import open_run
from rltui.service.describe import attempt_path
from rltui.service.read_evidence import look_at_process
from rltui.watch.owners import ActorSnapshot
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import RunSnapshot
from rltui.watch.text import plain

HEADER = ("ACTOR", "NAME", "STATE", "NODE", "PID", "RESTARTS", "DIED BECAUSE")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--stack", metavar="WHO", help="what the process of one actor (its name, id or process) is doing, by its node"
    )
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Print Ray's actors: state, node, process, restarts, and why one died."""
    if options.stack:
        return _stack(options)
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
        talk(picture.actors_problem or nothing_yet(picture, "Ray has no actors"))
    return 0


def _stack(options: argparse.Namespace) -> int:
    """Print the stacks of one actor's process; 1 where nobody could read them."""
    with open_run(options.cluster, options.run) as (context, summary):
        if not summary.is_live:
            raise UsageError(f"{summary.run_id} has ended, and its processes with it.")
        client = context.cluster.client
        actor = _named(RunWatcher(client, summary.path).snapshot(), options.stack)
        seen = look_at_process(client, attempt_path(summary), actor.node.split(".")[0], actor.pid)
    if options.json:
        print_json({"schema": 1, "run_id": summary.run_id, "actor": actor, "process": seen})
        return 0 if seen.stack_by else 1
    name = actor.name or actor.class_name
    waits = f", waits in {seen.wchan}" if seen.wchan not in ("", "0") else ""
    lines = [f"{name}: {seen.title} (pid {seen.pid} on {seen.host}), state {seen.state}{waits}"]
    lines += [f"told by {seen.stack_by}:" if seen.stack_by else "its Python stack cannot be read:", ""]
    print_lines(plain(line) for line in [*lines, *seen.stack.splitlines()])
    return 0 if seen.stack_by else 1


def _named(picture: RunSnapshot, who: str) -> ActorSnapshot:
    """The living actor that is called so.

    Raises:
        UsageError: There is none, or there are several.
    """
    fitting = [one for one in picture.actors if who in (one.actor_id, one.name, str(one.pid)) and one.pid]
    found = [one for one in fitting if one.state != "DEAD"]
    if len(found) == 1:
        return found[0]
    if fitting and not found:
        raise UsageError(f"{who} is dead, and its process is gone.", "Tab 6, or `rltui logs`, has what it said.")
    names = ", ".join(f"{one.name or one.class_name} (pid {one.pid} on {one.node})" for one in found or picture.actors)
    raise UsageError(f"{len(found) or 'No'} actors are called {who!r}.", f"Actors: {names or 'none'}.")
