"""Nodes: CPU, memory and processes of each, and the wall of GPUs where there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui import braille, formats, progress
from rltui.tui.compose import Section
from rltui.tui.spans import BLANK, Line, cell_width, clean, line, pad, width_of, wrapped
from rltui.tui.states import ROLE_NAMES, role_letter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Role, Span
    from rltui.watch.snapshots import ActorSnapshot, GpuSample, HostSnapshot, ProcessSample, RunSnapshot

MEMORY_TIGHT = 0.92
"""Share of memory above which it is pointed out."""

Owners = dict[tuple[str, int], str]
"""(host, process id) → role letter; host "" where the actor's node has another name than the sampler's host."""


def owners(actors: Sequence[ActorSnapshot]) -> Owners:
    """Which role each actor's process has."""
    found: Owners = {}
    for actor in actors:
        letter = role_letter(actor.class_name)
        if letter and actor.pid:
            found[actor.node, actor.pid] = letter
            found.setdefault(("", actor.pid), letter)
    return found


def _owner(host: str, pids: Sequence[int], known: Mapping[tuple[str, int], str]) -> str:
    for pid in pids:
        letter = known.get((host, pid)) or known.get(("", pid))
        if letter:
            return letter
    return ""


def gpu_rows(hosts: Sequence[HostSnapshot], known: Owners, width: int, height: int, glyphs: Glyphs) -> list[Line]:
    """One line a node, one cell a GPU: role, bar, utilisation, memory; what does not fit is counted."""
    shown = list(hosts) if len(hosts) <= height else list(hosts[: max(0, height - 1)])
    name_width = _name_width(shown, width)
    most = max((len(host.gpus) for host in shown), default=1)
    room = max(2, (width - name_width - 1) // max(1, most))
    rows = []
    for host in shown:
        spans: list[Span] = [(f" {pad(host.host, name_width)}", "dim")]
        for gpu in host.gpus:
            spans.extend(_gpu_cell(gpu, _owner(host.host, gpu.pids, known), room, glyphs))
        rows.append(Line(tuple(spans)))
    if len(shown) < len(hosts):
        rows.append(line((f" {glyphs.ellipsis} {len(hosts) - len(shown)} more nodes", "dim")))
    return rows


def _gpu_cell(gpu: GpuSample, letter: str, room: int, glyphs: Glyphs) -> list[Span]:
    mark: Span = (f" {letter or glyphs.free}", "text" if letter else "dim")
    share = gpu.utilization_percent / 100
    busy: Role = "bar" if letter else "rule"
    if room < 10:
        block = glyphs.blocks[min(len(glyphs.blocks) - 1, int(share * len(glyphs.blocks)))]
        text = f"{gpu.utilization_percent:3.0f}" if room >= 7 else ""
        return [mark, (block, busy), (pad(text, max(0, room - 3)), "text")]
    full, empty = braille.bar(share, min(16, room - 12), glyphs) if room >= 14 else ("", "")
    numbers: list[Span] = [
        (f"{gpu.utilization_percent:4.0f}", "text"),
        (f"{gpu.memory_used_gib:4.0f}", "attention" if _is_tight(gpu) else "dim"),
    ]
    if not full and not empty:
        return [mark, *numbers]
    return [mark, (glyphs.bar_left, "rule"), (full, busy), (empty, "rule"), (glyphs.bar_right, "rule"), *numbers]


def _is_tight(gpu: GpuSample) -> bool:
    return gpu.memory_total_gib > 0 and gpu.memory_used_gib > MEMORY_TIGHT * gpu.memory_total_gib


def host_row(host: HostSnapshot, name_width: int, width: int, glyphs: Glyphs) -> Line:
    """CPU and memory of one node: bars from 48 cells on, with its latest minutes where there is room."""
    size = max(4, min(12, (width - name_width - 44) // 2))
    memory = host.memory_used_gib / host.memory_total_gib if host.memory_total_gib else 0.0
    bars, both = width >= 48, width >= 66
    tight: Role = "attention" if memory > MEMORY_TIGHT else "text"
    spans: list[Span] = [(f" {pad(host.host, name_width)}", "dim"), ("  cpu ", "dim")]
    spans += _meter(host.cpu_percent / 100, size, glyphs) if bars else []
    spans += [(f"{host.cpu_percent:4.0f}%", "text"), (f" of {host.cpus:<3}" if both else "", "dim"), ("  mem", "dim")]
    spans += [(" ", "text"), *_meter(memory, size, glyphs, tight=memory > MEMORY_TIGHT)] if both else []
    spans.append((f" {formats.gib(host.memory_used_gib):>4}/{formats.gib(host.memory_total_gib)} GiB", tight))
    left = width - width_of(spans) - 2
    if left >= 8 and host.cpu_history:
        spans.append(("  " + braille.sparkline(host.cpu_history, min(24, left), glyphs, high=100.0), "bar"))
    return Line(tuple(spans))


def _name_width(hosts: Sequence[HostSnapshot], width: int) -> int:
    return min(max((cell_width(clean(host.host)) for host in hosts), default=4), 16 if width >= 66 else 10)


def _meter(share: float, size: int, glyphs: Glyphs, tight: bool = False) -> list[Span]:
    full, empty = braille.bar(share, size, glyphs)
    return [
        (glyphs.bar_left, "rule"),
        (full, "attention" if tight else "bar"),
        (empty, "rule"),
        (glyphs.bar_right, "rule"),
    ]


def process_row(process: ProcessSample, host: str, known: Owners, width: int, glyphs: Glyphs) -> Line:
    """One process of the attempt."""
    letter = _owner(host, (process.pid,), known)
    spans: list[Span] = [
        (f"   {letter or glyphs.free} ", "text" if letter else "dim"),
        (pad(process.title, max(12, min(44, width - (36 if width >= 56 else 27)))), "text"),
        (f"{process.pid:>9}" if width >= 56 else "", "dim"),
        (f"{process.cpu_percent:5.0f}%", "text"),
        (f"{formats.gib(process.resident_gib):>6} GiB", "text"),
    ]
    return line(*spans)


def host_rows(hosts: Sequence[HostSnapshot], known: Owners, width: int, glyphs: Glyphs, processes: int) -> list[Line]:
    """Each node with at most ``processes`` of its processes, the busiest first."""
    name_width = _name_width(hosts, width)
    rows = []
    for host in hosts:
        rows.append(host_row(host, name_width, width, glyphs))
        busiest = sorted(host.processes, key=lambda process: (-process.cpu_percent, process.pid))[:processes]
        rows += [process_row(process, host.host, known, width, glyphs) for process in busiest]
    return rows


def gpu_section(snapshot: RunSnapshot, glyphs: Glyphs, rank: int, grows: bool = False) -> Section:
    """The wall of GPUs; asks for no rows where there are none."""
    hosts = [host for host in snapshot.hosts if host.gpus]
    known = owners(snapshot.actors)
    cards = [gpu for host in hosts for gpu in host.gpus]
    busy = [gpu.utilization_percent for gpu in cards if gpu.pids]
    left: tuple[Span, ...] = (("GPUs ", "title"), (str(len(cards)), "text"), (_legend(known), "dim"))
    middle = f"median {progress.middle(busy):.0f}%  " if busy else ""
    return Section(
        left,
        ((middle, "text"), ("util %  mem GiB", "dim")),
        lambda width, height: gpu_rows(hosts, known, width, height, glyphs),
        least=min(2, len(hosts)),
        wanted=len(hosts),
        rank=rank,
        grows=grows,
    )


def _legend(known: Owners) -> str:
    letters = sorted(set(known.values()), key="LERCT".index)
    return "".join(f" {chr(0xB7)} {letter} {ROLE_NAMES[letter]}" for letter in letters)


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
    known = owners(snapshot.actors)

    def body(width: int, height: int) -> list[Line]:
        share = max(0, height // len(hosts) - 1)
        return host_rows(hosts, known, width, glyphs, min(processes, share))

    wanted = sum(1 + min(processes, len(host.processes)) for host in hosts)
    count: Span = (f"{len(hosts)} node{'' if len(hosts) == 1 else 's'}", "dim")
    return Section((("hosts", "title"),), (*extra, count), body, least=1, wanted=wanted, rank=rank)


def tab_rows(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """Everything about all nodes, for the tab that scrolls."""
    known = owners(snapshot.actors)
    name_width = _name_width(snapshot.hosts, width)
    rows: list[Line] = []
    for host in snapshot.hosts:
        rows.append(host_row(host, name_width, width, glyphs))
        rows += [_gpu_row(host, gpu, index, known, width, glyphs) for index, gpu in enumerate(host.gpus)]
        rows += [process_row(process, host.host, known, width, glyphs) for process in host.processes]
        rows.append(BLANK)
    return rows or wrapped("no sampler has spoken yet: hosts appear when the run is placed", width, " ", "dim")


def _gpu_row(host: HostSnapshot, gpu: GpuSample, index: int, known: Owners, width: int, glyphs: Glyphs) -> Line:
    letter = _owner(host.host, gpu.pids, known)
    spans: list[Span] = [(f"   {letter or glyphs.free} ", "text" if letter else "dim"), (f"GPU{gpu.index:<3}", "dim")]
    spans += _meter(gpu.utilization_percent / 100, 12, glyphs)
    spans.append((f"{gpu.utilization_percent:4.0f}%", "text"))
    memory = f"  {formats.gib(gpu.memory_used_gib):>4}/{formats.gib(gpu.memory_total_gib)} GiB"
    spans.append((memory, "attention" if _is_tight(gpu) else "text"))
    spans.append((f"  {gpu.power_w:4.0f} W" if gpu.power_w is not None else "        ", "dim"))
    spans.append((f"  {gpu.temperature_c:3.0f} °C" if gpu.temperature_c is not None else "        ", "dim"))
    if width >= 96 and index < len(host.gpu_history):
        spans.append(("  " + braille.sparkline(host.gpu_history[index], 24, glyphs, high=100.0), "bar"))
    return line(*spans, (f"  {pad(gpu.name, 24)}" if width >= 124 else "", "dim"))
