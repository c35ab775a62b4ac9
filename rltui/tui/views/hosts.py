"""Nodes: CPU, memory and processes of each, and the wall of GPUs where there are any."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rltui.tui import braille, formats, progress
from rltui.tui.compose import Section
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Role, Span, cell_width, clean, clip_middle, line, pad, width_of
from rltui.watch.node_samples import GpuSample, HostSnapshot, ProcessSample
from rltui.watch.owners import ROLE_NAMES, Owners, owners_of
from rltui.watch.silence import halts_told, silent_nodes
from rltui.watch.snapshots import RunSnapshot

Told = Set[tuple[str, int]]
"""Node and pid of halted processes that the line of the stage has told of."""

MEMORY_TIGHT = 0.92
"""Share of memory above which it is pointed out."""


def gpu_rows(hosts: Sequence[HostSnapshot], known: Owners, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One line a node, one cell a GPU: role, bar, utilisation, memory; what does not fit is counted."""
    shown = list(hosts) if len(hosts) <= height else list(hosts[: max(0, height - 1)])
    name_width, room = wall_widths(shown, width)
    rows = [wall_row(host, known, name_width, room, glyphs) for host in shown]
    return [*rows, *_more(len(hosts) - len(shown), glyphs)]


def _more(hidden: int, glyphs: Glyphs) -> list[Line]:
    return [line((f" {glyphs.ellipsis} {hidden} more nodes", "dim"))] if hidden else []


def wall_widths(hosts: Sequence[HostSnapshot], width: int) -> tuple[int, int]:
    """Cells of a node's name, and of each of its GPUs."""
    name_width = name_width_of(hosts, width)
    most = max((len(host.gpus) for host in hosts), default=1)
    return name_width, max(2, (width - name_width - 1) // max(1, most))


def wall_row(host: HostSnapshot, known: Owners, name_width: int, room: int, glyphs: Glyphs) -> Line:
    """One node of the wall."""
    spans: list[Span] = [(f" {pad(host.host, name_width)}", "dim")]
    for gpu in host.gpus:
        spans.extend(gpu_cell(gpu, known.of(host, gpu.pids).letter, room, glyphs))
    return Line(tuple(spans))


def gpu_cell(gpu: GpuSample, letter: str, room: int, glyphs: Glyphs) -> list[Span]:
    """One GPU of the wall in ``room`` cells."""
    mark: Span = (f" {letter or glyphs.free}", "text" if letter else "dim")
    share = gpu.utilization_percent / 100
    busy: Role = "bar" if letter else "rule"
    if room < 10:
        block = glyphs.blocks[min(len(glyphs.blocks) - 1, int(share * len(glyphs.blocks)))]
        text = f"{gpu.utilization_percent:3.0f}" if room >= 7 else ""
        return [mark, (block, busy), (pad(text, max(0, room - 3)), "text")]
    bar = meter(share, min(16, room - 12), glyphs, busy) if room >= 14 else []
    numbers: list[Span] = [
        (f"{gpu.utilization_percent:4.0f}", "text"),
        (f"{gpu.memory_used_gib:4.0f}", "attention" if is_tight(gpu) else "dim"),
    ]
    return [mark, *bar, *numbers]


def is_tight(gpu: GpuSample) -> bool:
    """Whether next to nothing of its memory is free."""
    return gpu.memory_total_gib > 0 and gpu.memory_used_gib > MEMORY_TIGHT * gpu.memory_total_gib


def host_row(host: HostSnapshot, name_width: int, width: int, glyphs: Glyphs) -> Line:
    """CPU and memory of one node: bars from 48 cells on, with its latest minutes where there is room."""
    size = max(4, min(12, (width - name_width - 44) // 2))
    memory = host.memory_used_gib / host.memory_total_gib if host.memory_total_gib else 0.0
    bars, both = width >= 48, width >= 66
    is_full = memory > MEMORY_TIGHT
    spans: list[Span] = [(f" {pad(host.host, name_width)}", "dim"), ("  cpu ", "dim")]
    spans += meter(host.cpu_percent / 100, size, glyphs) if bars else []
    spans += [(f"{host.cpu_percent:4.0f}%", "text"), (f" of {host.cpus:<3}" if both else "", "dim"), ("  mem", "dim")]
    spans += [(" ", "text"), *meter(memory, size, glyphs, "attention" if is_full else "bar")] if both else []
    used = f" {formats.gib(host.memory_used_gib):>4}/{formats.gib(host.memory_total_gib)} GiB"
    spans.append((used, "attention" if is_full else "text"))
    spans += room_spans(host, words=width >= 100)
    left = width - width_of(spans) - 2
    if left >= 8 and host.cpu_history:
        spans.append(("  " + braille.sparkline(host.cpu_history, min(24, left), glyphs, high=100.0), "bar"))
    return Line(tuple(spans))


def room_spans(host: HostSnapshot, words: bool) -> list[Span]:
    """Shared memory and the disk of the temporary directory; without ``words`` only where one is nearly full."""
    spans: list[Span] = []
    for name, used, total in (
        ("shm", host.shm_used_gib, host.shm_total_gib),
        ("disk", host.disk_used_gib, host.disk_total_gib),
    ):
        tight = total > 0 and used > MEMORY_TIGHT * total
        if words and total:
            spans += [(f"  {name} ", "dim"), (f"{used:.0f}/{total:.0f}", "attention" if tight else "text")]
        elif tight:
            spans.append((f"  {name} {used / total:.0%}", "attention"))
    return spans


def name_width_of(hosts: Sequence[HostSnapshot], width: int) -> int:
    """Cells of a node's name."""
    return min(max((cell_width(clean(host.host)) for host in hosts), default=4), 16 if width >= 66 else 10)


def meter(share: float, size: int, glyphs: Glyphs, role: Role = "bar") -> list[Span]:
    """A bar between its two ends."""
    full, empty = braille.bar(share, size, glyphs)
    return [(glyphs.bar_left, "rule"), (full, role), (empty, "rule"), (glyphs.bar_right, "rule")]


def process_row(process: ProcessSample, host: HostSnapshot, known: Owners, width: int, glyphs: Glyphs) -> Line:
    """One process of the attempt."""
    letter = known.of(host, (process.pid,)).letter
    spans: list[Span] = [
        (f"   {letter or glyphs.free} ", "text" if letter else "dim"),
        (pad(process.title, max(12, min(44, width - (36 if width >= 56 else 27)))), "text"),
        (f"{process.pid:>9}" if width >= 56 else "", "dim"),
        (f"{process.state:>16}", "bad")
        if process.state
        else (f"{process.cpu_percent:5.0f}%{formats.gib(process.resident_gib):>6} GiB", "text"),
    ]
    return line(*spans)


def host_rows(
    hosts: Sequence[HostSnapshot], known: Owners, width: int, glyphs: Glyphs, processes: int, told: Told
) -> list[Line]:
    """Each node with at most ``processes`` of its processes: halted ones that nobody ``told`` of, then the busiest."""
    name_width = name_width_of(hosts, width)
    rows = []
    for host in hosts:
        rows.append(host_row(host, name_width, width, glyphs))
        first = {one.pid for one in host.processes if one.state and (host.host, one.pid) not in told}
        busiest = sorted(host.processes, key=lambda one: (one.pid not in first, -one.cpu_percent, one.pid))[:processes]
        rows += [process_row(process, host, known, width, glyphs) for process in busiest]
    return rows


def gpu_section(snapshot: RunSnapshot, glyphs: Glyphs, rank: int) -> Section:
    """The wall of GPUs; asks for no rows where there are none."""
    hosts = [host for host in snapshot.hosts if host.gpus]
    known = owners_of(snapshot.actors, snapshot.role_patterns)
    count = sum([len(host.gpus) for host in hosts])
    busy = [gpu.utilization_percent for host in hosts for gpu in host.gpus if gpu.pids]
    left: tuple[Span, ...] = (("GPUs ", "title"), (str(count), "text"), (legend(known), "dim"))
    quiet = silence(snapshot)
    middle = f"median {progress.middle(busy):.0f}%  " if busy and not quiet else ""
    return Section(
        left,
        ((quiet, "attention"), (middle, "text"), ("util %  mem GiB", "dim")),
        lambda width, height: gpu_rows(hosts, known, width, height, glyphs),
        least=min(2, len(hosts)),
        wanted=len(hosts),
        rank=rank,
    )


def silence(snapshot: RunSnapshot) -> str:
    """Which nodes do not speak any more, so that their numbers are old; empty where all do."""
    silent = silent_nodes(snapshot)
    if not silent:
        return ""
    who = next(iter(silent)) if len(silent) == 1 else f"{len(silent)} nodes"
    return f"{clip_middle(who, 16, '~')} silent for {formats.duration(min(silent.values()))}  "


def legend(known: Owners) -> str:
    """What the letters of roles stand for."""
    return "".join(f" {chr(0xB7)} {letter} {name}" for letter, name in ROLE_NAMES.items() if letter in known.letters)


def host_section(
    snapshot: RunSnapshot, glyphs: Glyphs, rank: int, processes: int, extra: tuple[Span, ...] = ()
) -> Section:
    """CPU and memory of the nodes; asks for no rows where no sampler has spoken.

    Args:
        snapshot: The run.
        glyphs: The alphabet.
        rank: Rank of the section.
        processes: Most processes shown of each node.
        extra: What else its rule says.
    """
    hosts = snapshot.hosts
    known = owners_of(snapshot.actors, snapshot.role_patterns)
    told = {(one.host, one.pid) for one in halts_told(snapshot.events)} if snapshot.summary.symptom else frozenset()

    def body(width: int, height: int) -> list[Line]:
        share = max(0, height // len(hosts) - 1)
        shown = hosts if len(hosts) <= height else hosts[: max(0, height - 1)]
        rows = host_rows(shown, known, width, glyphs, min(processes, share), told)
        return [*rows, *_more(len(hosts) - len(shown), glyphs)]

    wanted = sum(1 + min(processes, len(host.processes)) for host in hosts)
    count: Span = (f"{len(hosts)} node{'' if len(hosts) == 1 else 's'}", "dim")
    quiet: Span = ("" if any(host.gpus for host in hosts) else silence(snapshot), "attention")
    gap: tuple[Span, ...] = ((" ", "dim"),) if extra else ()
    return Section((("hosts", "title"),), (*extra, *gap, quiet, count), body, least=1, wanted=wanted, rank=rank)
