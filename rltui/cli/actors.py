"""``rltui actors``: Ray's actors of a run: state, node, restarts, why they died."""

from __future__ import annotations

import argparse

from rltui.cli.output import add_json, add_run, add_watch, answer, columns
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
    about = {"run_id": picture.summary.run_id, "actors": picture.actors, "noted_at": picture.actors_noted_at}
    lines = columns(HEADER, [_row(actor) for actor in picture.actors], frozenset({4, 5})) if picture.actors else ()
    nothing = picture.actors_problem or nothing_yet(picture, "Ray has no actors")
    answer(options, {**about, "problem": picture.actors_problem}, lines, nothing)
    if picture.actors and not options.json:
        talk_age(picture, picture.actors_noted_at)
    return 0


def _row(actor: ActorSnapshot) -> tuple[str, ...]:
    pid, restarts = str(actor.pid or "–"), str(actor.restarts)
    return (actor.class_name, actor.name, actor.state.lower(), actor.node, pid, restarts, actor.death_cause)


def _stack(options: argparse.Namespace) -> int:
    """Print the stacks of one actor's process; 1 where nobody could read them."""
    with open_run(options.cluster, options.run) as (context, summary):
        if not summary.is_live:
            raise UsageError(f"{summary.run_id} has ended, and its processes with it.")
        client = context.cluster.client
        actor = _named(RunWatcher(client, summary.path).snapshot(), options.stack)
        seen = look_at_process(client, attempt_path(summary), actor.node.split(".")[0], actor.pid)
    name = actor.name or actor.class_name
    waits = f", waits in {seen.wchan}" if seen.wchan not in ("", "0") else ""
    lines = [f"{name}: {seen.title} (pid {seen.pid} on {seen.host}), state {seen.state}{waits}"]
    lines += [f"told by {seen.stack_by}:" if seen.stack_by else "its Python stack cannot be read:", ""]
    told = {"run_id": summary.run_id, "actor": actor, "process": seen}
    answer(options, told, map(plain, [*lines, *seen.stack.splitlines()]))
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
