"""``rltui gpus``: every GPU of a run with its role and process."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from rltui.cli.output import add_json, add_run, add_watch, answer, columns, talk
from rltui.cli.run_picture import nothing_yet, read_run
from rltui.errors import UsageError
from rltui.service.all_clusters import open_run
from rltui.service.run_picture import stragglers_of
from rltui.service.sampling import start_sampling
from rltui.watch.card_faults import held_words, unused_words, xids_by_card
from rltui.watch.node_samples import HostSnapshot
from rltui.watch.owners import Owners
from rltui.watch.silence import silent_nodes
from rltui.watch.snapshots import RunSnapshot

MOST_MINUTES = 24 * 60
HEADER = ("NODE", "GPU", "ROLE", "UTIL %", "MEM GIB", "W", "°C", "MHZ", "ECC", "PROCESS")
CPU_HEADER = ("NODE", "CPU %", "MEM GIB", "PROCESSES")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    parser.add_argument(
        "--sample", type=int, metavar="MINUTES", help="of an adopted run: sample its nodes for so long, beside it"
    )
    add_json(parser)
    add_watch(parser)


def run(options: argparse.Namespace) -> int:
    """Print every GPU with its role and process, or the nodes where there are no GPUs."""
    if options.sample is not None:
        _sample(options)
    picture = read_run(options)
    told = {"run_id": picture.summary.run_id, "hosts": picture.hosts}
    answer(options, told, _table(picture), nothing_yet(picture, "no sampler has spoken"))
    for name, seconds in silent_nodes(picture).items():
        talk(f"{name} has been silent for {seconds:.0f} s: its numbers are that old")
    return 0


def _table(picture: RunSnapshot) -> Iterable[str]:
    if any(host.gpus for host in picture.hosts):
        return columns(HEADER, list(_gpu_rows(picture)), frozenset({1, 3, 4, 5, 6, 7, 8}))
    rows = [_host_row(host) for host in picture.hosts]
    return columns(CPU_HEADER, rows, frozenset({1, 2})) if rows else ()


def _sample(options: argparse.Namespace) -> None:
    minutes, options.sample = options.sample, None  # once, also where it is printed again and again
    if not 1 <= minutes <= MOST_MINUTES:
        raise UsageError(f"--sample takes 1 to {MOST_MINUTES} minutes, not {minutes}.")
    with open_run(options.cluster, options.run) as (context, summary):
        found = start_sampling(context, summary, minutes)
    talk(f"{found.nodes} {'node is' if found.nodes == 1 else 'nodes are'} sampled for {minutes} min")
    if found.silent:
        talk(f"{found.silent} of its nodes have not spoken yet")
    if found.blind:
        where = ", ".join(found.blind)
        talk(f"no GPU is seen on {where}: the site lets a second step of the job see none, or pynvml is missing there")


def _gpu_rows(picture: RunSnapshot) -> Iterator[tuple[str, ...]]:
    owners, broken = Owners(picture.actors, picture.role_patterns), xids_by_card(picture)
    slow = stragglers_of(picture) if picture.summary.is_live else frozenset()
    for host in picture.hosts:
        for gpu in host.gpus:
            owner = owners.of(host, gpu.pids)
            xid = broken.get((host.host, gpu.index), "")
            process = f"{owner.name} {owner.pid or gpu.pids[0]}".strip() if gpu.pids else unused_words(gpu, xid)
            if xid and gpu.pids:
                process = f"{process}, Xid {xid}"
            if (host.host, gpu.index) in slow:
                process = f"{process}, straggler"
            if gpu.held_back:
                process = f"{process}, {held_words(gpu)}"
            yield (
                host.host,
                str(gpu.index),
                owner.letter or "–",
                f"{gpu.utilization_percent:.0f}",
                f"{gpu.memory_used_gib:.1f}/{gpu.memory_total_gib:.0f}",
                "–" if gpu.power_w is None else f"{gpu.power_w:.0f}",
                "–" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}",
                "–" if gpu.clock_mhz is None else f"{gpu.clock_mhz:.0f}",
                "–" if gpu.ecc_uncorrected is None else str(gpu.ecc_uncorrected),
                process,
            )


def _host_row(host: HostSnapshot) -> tuple[str, ...]:
    memory = f"{host.memory_used_gib:.1f}/{host.memory_total_gib:.0f}"
    busiest = sorted(host.processes, key=lambda process: -process.cpu_percent)[:3]
    return host.host, f"{host.cpu_percent:.0f}", memory, ", ".join(f"{one.title} {one.pid}" for one in busiest)
