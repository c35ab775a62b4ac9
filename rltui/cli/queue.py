"""``rltui queue``: the queue of a cluster: who holds what, your places, which GPUs are free."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs

from rltui.cli.nodes import node_table
from rltui.cli.output import add_cluster_name, add_json, add_watch, answer, columns, named_cluster, talk
from rltui.cli.ps import shortened
from rltui.cluster.profiles import load_profiles
from rltui.cluster.queue_facts import QueuedJob
from rltui.errors import ClusterError, UsageError
from rltui.service.all_clusters import open_clusters
from rltui.service.cluster_queue import ClusterQueue, usual_cluster
from rltui.watch.pending import span_words

WAITING = ("PLACE", "JOB", "USER", "GPUS", "PARTITION", "STARTS", "WHY", "NAME")
HOLDING = ("JOB", "USER", "GPUS", "PARTITION", "LEFT", "NODES", "NAME")
ON_A_MACHINE = ("PID", "USER", "GPUS", "WHERE", "SINCE", "NAME")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_cluster_name(parser, default="the only one with Slurm, else of hosts, else local")
    parser.add_argument("--partition", default="", metavar="P", help="only this partition")
    parser.add_argument("--mine", action="store_true", help="only your own jobs")
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Show who waits and who holds what; exits with 3 where the cluster cannot be asked now."""
    name = named_cluster(options) or usual_cluster(load_profiles())
    with open_clusters(name) as clusters:
        found = clusters.context(name).queue.look()
    if not found.taken_at:
        raise ClusterError(found.problem)
    if options.partition and options.partition not in found.partitions:
        known = ", ".join(found.partitions) or "none: its scheduler has no partitions"
        raise UsageError(f"{name} has no partition {options.partition[:60]!r}.", f"Known: {known}.")
    found = found.of_partition(options.partition)
    if options.mine:
        found = structs.replace(found, jobs=tuple(job for job in found.jobs if job.is_mine))
    answer(options, {"queue": found}, _lines(found))
    if found.problem:
        talk(f"rltui: {found.problem}")
    return 3 if found.problem else 0


def _lines(queue: ClusterQueue) -> Iterator[str]:
    waiting, holding = queue.waiting, queue.holding
    yield from [summary(queue), *([queue.note] if queue.note else [])]
    if any(group.gpus for group in queue.groups) or queue.scheduler == "slurm":
        yield from ["", *node_table(queue.groups)]
    if waiting:
        yield from ["", *_table(WAITING, [_waiting(job, queue.taken_at) for job in waiting], (0, 3))]
    if holding and queue.scheduler in ("hosts", "local"):
        rows = [_on_a_machine(job, queue.taken_at) for job in holding]
        yield from ["", *_table(ON_A_MACHINE, rows, (2, 4))]
    elif holding:
        yield from ["", *_table(HOLDING, [_holding(job) for job in holding], (2, 4))]


def summary(queue: ClusterQueue) -> str:
    """The queue in a line: what is free, how many wait, and where you stand."""
    waiting, holding = queue.waiting, queue.holding
    held = sum(job.gpus or 0 for job in holding)
    words = [f"{queue.gpus_free} of {queue.gpus} GPUs free"] if queue.gpus else []
    words.append(f"{len(waiting)} waiting, {len(holding)} running" + (f" with {held} GPUs" if held else ""))
    mine = [f"#{job.position} ({job.job_id})" for job in waiting if job.is_mine and job.position is not None]
    if mine:
        words.append(f"you are {', '.join(mine[:8])}{' …' if len(mine) > 8 else ''}")
    return f"{queue.cluster}: {', '.join(words)}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: tuple[int, ...]) -> Iterable[str]:
    return columns(header, [[shortened(cell) for cell in row] for row in rows], frozenset(right))


def _waiting(job: QueuedJob, now: float) -> tuple[str, ...]:
    starts = f"~{span_words(job.expected_start_at - now)}" if job.expected_start_at > now else ""
    place = f"#{job.position}" if job.position is not None else "–"
    return (place, job.job_id, _user(job), _gpus(job), job.partition, starts, job.reason, job.name)


def _holding(job: QueuedJob) -> tuple[str, ...]:
    left = span_words(job.left_s) if job.left_s is not None else "–"
    return (job.job_id, _user(job), _gpus(job), job.partition, left, job.where, job.name)


def _on_a_machine(job: QueuedJob, now: float) -> tuple[str, ...]:
    since = span_words(max(0.0, now - job.since)) if job.since else "–"
    return (job.job_id, _user(job), _gpus(job), job.where or "–", since, job.name)


def _user(job: QueuedJob) -> str:
    return "you" if job.is_mine else job.user


def _gpus(job: QueuedJob) -> str:
    return "–" if job.gpus is None else f"{job.gpus} {job.gpu}".strip()
