"""``rltui show``: everything about one run."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import structs

from rltui.cli import words
from rltui.cli.output import add_json, add_run, add_watch, answer, columns
from rltui.service.all_clusters import open_run
from rltui.service.attempts import Ending, endings
from rltui.service.memory_peaks import read_memory
from rltui.service.run_columns import place_of, size_of
from rltui.watch.card_faults import trouble_words, xids_by_card
from rltui.watch.node_samples import HostSnapshot
from rltui.watch.pending import waiting_job
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.silence import halted, silent_nodes
from rltui.watch.snapshots import RunSnapshot, RunSummary

MEMORY_HEADER = ("role", "moment", "process", "torch", "reserved", "estimated", "off")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument("--memory", action="store_true", help="peaks of memory by role and moment, and the estimate")
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Print everything that is known about one run."""
    with open_run(options.cluster, options.run) as (context, summary):
        if options.memory:
            found = read_memory(context, summary)
            told = {"run_id": summary.run_id, "attempt": summary.attempt, "memory": found}
            nothing = f"{summary.run_id} is {summary.state}: it has written no memory.json yet."
            answer(options, told, memory_lines(found) if found is not None else (), nothing)
            return 0
        watcher = RunWatcher(context.cluster.client, summary.path)
        # people are shown no metrics
        snapshot = structs.replace(watcher.whole() if options.json else watcher.snapshot(), summary=summary)
        before = endings(context.cluster.client, summary)
    shown = [*lines(snapshot), *(_ending(summary, end) for end in before)]
    answer(options, {"run": snapshot, "attempts_before": before}, shown)
    return 0


def lines(snapshot: RunSnapshot) -> Iterator[str]:
    """Everything about one run as lines for people; ``--json`` has the same as data."""
    run = snapshot.summary
    yield f"{run.run_id}  {words.state(run)}  {words.about(run)}"
    hardware = f"{size_of(run)} {run.gpu}"
    yield f"  {run.algorithm.upper()} on {place_of(run)}, {hardware}, attempt {run.attempt}"
    yield f"  step {words.step(run)}  reward {words.number(run.reward)}  {words.rate(run.tokens_per_second)} tok/s"
    if run.job is not None or run.job_id:
        yield from _job_lines(run)
    if run.hands_off:
        yield f"  hands-off mode {run.hands_off}  (rltui auto {run.run_id} --status)"
    if run.path:
        yield f"  files {run.path}"
    if run.archived:
        size = f"{run.archived.bytes / 2**30:.2f} GiB"
        yield f"  archived in {run.archived.file} ({size}); `rltui archive --back {run.run_id}` brings it back"
    yield "  stages " + " → ".join(str(entry["stage"]) for entry in run.stage.history)
    for name, seconds in silent_nodes(snapshot).items():
        yield f"  ! {name} has sent no sample for {seconds:.0f} s: `rltui why {run.run_id}` says what Slurm hears of it"
    for sentence in halted(snapshot):
        yield f"  ! {sentence}"
    for actor in snapshot.actors:
        yield f"  actor {actor.class_name} {actor.name}  {actor.state}  pid {actor.pid} on {actor.node}"
    for queue in snapshot.status.queues:
        yield f"  queue {queue.name}  {queue.current}/{queue.maxsize}"
    xids = xids_by_card(snapshot)
    for host in snapshot.hosts:
        yield from _host_lines(host, xids)


def _job_lines(run: RunSummary) -> Iterator[str]:
    job = run.job
    if job is None:
        yield f"  job {run.job_id}"
        return
    place = f" on {', '.join(job.nodes[:8])}{' …' if len(job.nodes) > 8 else ''}" if job.nodes else ""
    yield f"  job {job.job_id}  {job.word or job.state}{place}  {job.partition}".rstrip()
    if run.share is not None:
        yield f"  job {job.job_id} is an allocation that the run only uses: it stays when the run ends"
    if run.job_as_of:
        yield f"  the scheduler does not answer: this is what it said {words.age(run.job_as_of)} ago"
    if job.failed_nodes:
        yield f"  node failure on {', '.join(job.failed_nodes)}"
    if waiting_job(run) is not None:
        yield f"  waits: {words.waiting(job)}"
    starts = job.restarts + (waiting_job(run) is None)
    if starts > 1:
        yield f"  started {starts} times under this id"


def _ending(run: RunSummary, end: Ending) -> str:
    line = f"  attempt {end.attempt} {end.outcome}: {end.reason}"
    if end.kept_away:
        line += f"; the job keeps away from {', '.join(end.kept_away)}"
    back = [node for node in end.bad_nodes if node not in end.kept_away]
    if not back or waiting_job(run) is None:
        return line
    nodes = " ".join(f"--exclude {node}" for node in back)
    return f"{line} (`rltui update {run.run_id} {nodes}` keeps the waiting job away)"


def _host_lines(host: HostSnapshot, xids: Mapping[tuple[str, int], str]) -> Iterator[str]:
    memory = f"{host.memory_used_gib:.1f}/{host.memory_total_gib:.1f} GiB"
    yield f"  host {host.host}  cpu {host.cpu_percent:.0f} %  ram {memory}"
    for gpu in host.gpus:
        memory = f"{gpu.memory_used_gib:.1f}/{gpu.memory_total_gib:.1f} GiB"
        fault = trouble_words(gpu, xids.get((host.host, gpu.index), ""))
        yield f"    gpu {gpu.index} {gpu.name}  {gpu.utilization_percent:.0f} %  {memory}{fault and f'  {fault}'}"


def memory_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """``memory.json`` as a table: the highest of each kind of role, in GiB.

    Replicas and ranks of a kind do the same work, and the estimate is that of the fullest of them.
    """
    estimate = document["estimate"]
    rows = [row for kind, moments in _by_kind(document["roles"]).items() for row in _rows(kind, moments, estimate)]
    yield from columns(MEMORY_HEADER, rows, right=frozenset(range(2, len(MEMORY_HEADER))))
    on_card = any(row[3] != "-" for row in rows)
    yield "GiB; torch: tensors on the card, which is what the estimate is compared with (without the CUDA context)"
    if not on_card:
        yield "No card was used: a process holds its interpreter and libraries (about 0.5 GiB) besides the model."
    yield from estimate["notes"]


def _by_kind(roles: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """The highest of each number, by kind of role and moment."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for role in roles:
        moments = found.setdefault(role["kind"], {})
        for moment, peak in role["moments"].items():
            highest = moments.setdefault(moment, {})
            for name, size in peak.items():
                highest[name] = max(size, highest.get(name, 0.0))
    return found


def _rows(
    kind: str, moments: Mapping[str, Mapping[str, float]], estimate: Mapping[str, Any]
) -> Iterator[tuple[str, ...]]:
    expected = estimate["roles"].get(kind, {})
    for moment, peak in moments.items():
        torch, planned = peak.get("allocated_gib"), expected.get(moment, {}).get("torch_gib")
        off = f"{(planned - torch) / torch:+.0%}" if torch and planned is not None else "-"
        sizes = (peak.get("resident_gib"), torch, peak.get("reserved_gib"), planned)
        yield (kind, moment, *("-" if size is None else f"{size:.2f}" for size in sizes), off)
