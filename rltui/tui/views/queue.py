"""The queue of a cluster: what is free, who waits, who holds what, which nodes. Pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple

from rltui.tui import formats
from rltui.tui.spans import Line, clip, cut, line, pad

if TYPE_CHECKING:
    from rltui.cluster.queue_facts import QueuedJob
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.service.nodes import NodeGroup
    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Span

Part = Literal["waiting", "running", "nodes"]
PARTS: tuple[Part, ...] = ("waiting", "running", "nodes")
"""What is listed, one at a time."""

NAME_LEAST = 8


class Cell(NamedTuple):
    """One column of jobs: title, width, edge, the width of the list from which it is shown, and its value."""

    title: str
    width: int
    right: bool
    shown_from: int
    value: Callable[[QueuedJob, float], str]


def _user(job: QueuedJob, _: float) -> str:
    return "you" if job.is_mine else job.user


def _gpus(job: QueuedJob, _: float) -> str:
    return formats.MISSING if job.gpus is None else str(job.gpus)


def _starts(job: QueuedJob, now: float) -> str:
    left_s = job.expected_start_at - now
    return f"~{formats.duration(left_s)}" if job.expected_start_at and left_s > 0 else formats.MISSING


def _place(job: QueuedJob, _: float) -> str:
    return formats.MISSING if job.position is None else f"#{job.position}"


_JOB = Cell("JOB", 10, False, 0, lambda job, _: job.job_id)
_USER = Cell("USER", 8, False, 0, _user)
_GPUS = Cell("GPUS", 4, True, 0, _gpus)
_PARTITION = Cell("PARTITION", 9, False, 66, lambda job, _: job.partition)

CELLS: dict[str, tuple[Cell, ...]] = {
    "waiting": (
        Cell("", 5, True, 0, _place),
        _JOB,
        _USER,
        _GPUS,
        Cell("STARTS", 6, True, 50, _starts),
        _PARTITION,
        Cell("WHY", 12, False, 76, lambda job, _: job.reason),
    ),
    "running": (
        _JOB,
        _USER,
        _GPUS,
        Cell("LEFT", 5, True, 0, lambda job, _: formats.duration(job.left_s)),
        _PARTITION,
        Cell("NODES", 16, False, 74, lambda job, _: job.where),
    ),
}
"""Part → its columns; the name of the job takes what is left of the line."""


def free_line(queue: ClusterQueue, width: int, glyphs: Glyphs) -> Line:
    """How many GPUs are free, of which types, and what this scheduler does not tell."""
    if not queue.gpus:
        return line((clip(f" {queue.note or 'no GPUs are known here'}", width), "dim"))
    kinds = [f"{kind or 'GPUs'} {free}/{total}" for kind, (free, total) in queue.free_by_type.items()]
    several = f"   {'  '.join(kinds)}" if len(kinds) > 1 or any(queue.free_by_type) else ""
    free = f" {queue.gpus_free} of {queue.gpus} GPUs free"
    rest = clip(f"{several}{f' {glyphs.dot} {queue.note}' if queue.note else ''}", max(0, width - len(free)))
    return line((free, "ok" if queue.gpus_free else "attention"), (rest, "dim"))


def part_line(queue: ClusterQueue, part: Part, partition: str, width: int) -> Line:
    """What can be listed, with numbers; what is listed stands in brackets, so that it shows without colour too."""
    counts = {"waiting": len(queue.waiting), "running": len(queue.holding)}
    counts["nodes"] = sum(len(group.nodes) for group in queue.groups)
    spans: list[Span] = []
    for word in PARTS:
        text = f"{counts[word]} {'node' if word == 'nodes' and counts[word] == 1 else word}"
        spans.append((f" [{text}]" if word == part else f"  {text} ", "title" if word == part else "dim"))
    if partition:
        spans.append((f"   {partition} only", "accent"))
    return line(*cut(spans, width))


def mine_words(queue: ClusterQueue) -> str:
    """Where the user stands: ``you #3 #9``; empty where none of the user's jobs has a place."""
    places = [f"#{job.position}" for job in queue.waiting if job.is_mine and job.position is not None]
    more = " …" if len(places) > 3 else ""
    return f"you {' '.join(places[:3])}{more}" if places else ""


def _cells(part: Part, width: int) -> tuple[tuple[Cell, ...], int]:
    shown = tuple(cell for cell in CELLS[part] if width >= cell.shown_from)
    return shown, max(NAME_LEAST, width - 1 - sum(cell.width + 1 for cell in shown))


def job_head(part: Part, width: int) -> Line:
    """Titles of the columns of jobs."""
    cells, _ = _cells(part, width)
    text = " ".join(pad(cell.title, cell.width, cell.right) for cell in cells)
    return line((clip(f" {text} NAME", width), "dim"))


def job_row(job: QueuedJob, part: Part, now: float, width: int, selected: bool, glyphs: Glyphs) -> Line:
    """One job; the user's own stand out."""
    cells, room = _cells(part, width)
    text = " ".join(pad(cell.value(job, now), cell.width, cell.right, glyphs.ellipsis) for cell in cells)
    return line(
        (glyphs.cursor if selected else " ", "accent"),
        (text, "accent" if job.is_mine else "text"),
        (f" {clip(job.name, room, glyphs.ellipsis)}", "accent" if job.is_mine else "dim"),
        selected=selected,
    )


def group_head(width: int) -> Line:
    """Titles of the columns of nodes."""
    return line((clip(f" {pad('NODES', 16)} {pad('FREE', 6, right=True)} {pad('GPU', 8)} STATE", width), "dim"))


def group_row(group: NodeGroup, width: int, selected: bool, glyphs: Glyphs) -> Line:
    """Nodes that are alike: which, how many GPUs of each are free, and why they are out of service."""
    free = "?" if group.gpus_free is None else str(group.gpus_free)
    count = f"{free}/{group.gpus}" if group.gpus else formats.MISSING
    role: Span = (f" {pad(count, 6, right=True)}", "ok" if group.is_usable and group.gpus_free else "dim")
    state = f"{len(group.nodes)} {group.state}{f': {group.reason}' if group.reason else ''}"
    return line(
        (glyphs.cursor if selected else " ", "accent"),
        (pad(group.names, 16, ellipsis=glyphs.ellipsis), "text"),
        role,
        (f" {pad(group.gpu or formats.MISSING, 8, ellipsis=glyphs.ellipsis)}", "dim"),
        (f" {clip(state, max(0, width - 34), glyphs.ellipsis)}", "dim" if group.is_usable else "attention"),
        selected=selected,
    )
