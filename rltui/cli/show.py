"""``rltui show``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.cli import words
from rltui.cli.output import add_json, print_json, print_lines
from rltui.service.context import open_context
from rltui.watch.run_watcher import RunWatcher

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rltui.watch.snapshots import HostSnapshot, RunSnapshot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("run", metavar="RUN", help="id, unique prefix of one, or a layout's name (its newest run)")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print everything that is known about one run."""
    with open_context() as context:
        summary = context.find(options.run)
        snapshot = RunWatcher(context.cluster.client, summary.path).snapshot()
    if options.json:
        print_json({"schema": 1, "run": snapshot})
    else:
        print_lines(_lines(snapshot))
    return 0


def _lines(snapshot: RunSnapshot) -> Iterator[str]:
    run = snapshot.summary
    yield f"{run.run_id}  {words.state(run)}  {words.about(run)}"
    hardware = f"{run.nodes}×{run.gpus_per_node} {run.gpu}"
    yield f"  {run.algorithm.upper()} on {run.cluster}, {hardware}, attempt {run.attempt}"
    yield f"  step {words.step(run)}  reward {words.number(run.reward)}  {words.rate(run.tokens_per_second)} tok/s"
    yield f"  files {run.path}"
    yield "  stages " + " → ".join(str(entry["stage"]) for entry in run.stage.history)
    for actor in snapshot.actors:
        yield f"  actor {actor.class_name} {actor.name}  {actor.state}  pid {actor.pid} on {actor.node}"
    for queue in snapshot.status.queues:
        yield f"  queue {queue.name}  {queue.current}/{queue.maxsize}"
    for host in snapshot.hosts:
        yield from _host_lines(host)


def _host_lines(host: HostSnapshot) -> Iterator[str]:
    memory = f"{host.memory_used_gib:.1f}/{host.memory_total_gib:.1f} GiB"
    yield f"  host {host.host}  cpu {host.cpu_percent:.0f} %  ram {memory}"
    for gpu in host.gpus:
        memory = f"{gpu.memory_used_gib:.1f}/{gpu.memory_total_gib:.1f} GiB"
        yield f"    gpu {gpu.index} {gpu.name}  {gpu.utilization_percent:.0f} %  {memory}"
