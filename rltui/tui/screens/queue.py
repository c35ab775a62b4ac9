"""The queue of one cluster: who waits and who holds what, of all users; asked for only while it is open."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partialmethod
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from rltui.tui import formats, messages
from rltui.tui.keys import Key, KeyContext, KeyTable, key_table, needs
from rltui.tui.picking import after
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import wrapped
from rltui.tui.views import queue as view
from rltui.tui.widgets.list_pane import ItemsPane

if TYPE_CHECKING:
    from rltui.cluster.queue_facts import QueuedJob
    from rltui.service.cluster_queue import ClusterQueue
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.spans import Line, Role, Span
    from rltui.watch.snapshots import RunIdentity, RunSummary

LOOK_S = 2.0
"""Between two questions to the services, which ask the scheduler at its own, slower pace."""


class QueueList(ItemsPane["QueuedJob"]):
    """One part of the queue at a time, one line a job or a kind of nodes."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.queue: ClusterQueue | None = None
        self.part: view.Part = "waiting"
        self.partition = ""
        self.only_mine = False
        self.problem = ""
        self._now = 0.0
        self._all: ClusterQueue | None = None

    def show(self, queue: ClusterQueue | None, now: float, problem: str = "") -> None:
        """Show another picture; None where there is none yet."""
        first = self._all is None
        self._all, self._now, self.problem = queue, now, problem
        if first and queue is not None and not queue.waiting:
            self.part = "running"
        self._pick()

    def do_part(self) -> None:
        """List the next part: jobs that wait, jobs that run, nodes."""
        self.part, self.cursor = after(view.PARTS, self.part), 0
        self._pick()

    def _turn(self, step: int) -> None:
        choices = ("", *(self._all.partitions if self._all is not None else ()))
        self.partition, self.cursor = after(choices, self.partition, step), 0
        self._pick()

    do_next_partition = partialmethod(_turn, 1)
    do_previous_partition = partialmethod(_turn, -1)

    def do_mine(self) -> None:
        """Show only the user's own jobs, or all."""
        self.only_mine = not self.only_mine
        self._pick()

    def _pick(self) -> None:
        chosen = self.selected
        self.queue = self._all.of_partition(self.partition) if self._all is not None else None
        self.items = self._jobs()
        ids = [job.job_id for job in self.items]
        if chosen is not None and chosen.job_id in ids:
            self.cursor = ids.index(chosen.job_id)
        self.cursor = min(self.cursor, max(0, self.count() - 1))
        self.repaint()

    def _jobs(self) -> Sequence[QueuedJob]:
        if self.queue is None or self.part == "nodes":
            return ()
        jobs = self.queue.waiting if self.part == "waiting" else self.queue.holding
        return [job for job in jobs if job.is_mine] if self.only_mine else jobs

    def head(self) -> Sequence[Line]:
        """What is free, what can be listed, and the titles of the columns."""
        if self.queue is None:
            return []
        width = self.size.width
        lines = [
            view.free_line(self.queue, width, self.glyphs),
            view.part_line(self.queue, self.part, self.partition, width),
        ]
        if self.count():
            lines.append(view.group_head(width) if self.part == "nodes" else view.job_head(self.part, width))
        return lines

    @override
    def count(self) -> int:
        if self.part == "nodes":
            return len(self.queue.groups) if self.queue is not None else 0
        return len(self.items)

    def row(self, index: int) -> Line:
        """One job, or nodes that are alike."""
        width, here = self.size.width, self.is_selected(index)
        if self.part == "nodes" and self.queue is not None:
            return view.group_row(self.queue.groups[index], width, here, self.glyphs)
        return view.job_row(self.items[index], self.part, self._now, width, here, self.glyphs)

    @override
    def empty(self) -> Sequence[Line]:
        whose = " of yours" if self.only_mine else ""
        words = {
            "waiting": f"no job{whose} waits: v shows what runs",
            "running": f"no job{whose} runs: v shows the nodes",
            "nodes": "no nodes are known here",
        }
        text = words[self.part] if self.queue is not None else self.problem or f"asking {self.glyphs.ellipsis}"
        role: Role = "attention" if self.problem and self.queue is None else "dim"
        return wrapped(text, self.size.width, " ", role)


_needs_line = needs(attrgetter("has_job"), "no job is under the cursor")
_can_open = needs(attrgetter("can_open"), "this job is no run of yours: y copies its id")


def _job_id(run: RunSummary) -> str:
    return run.job_id or (run.job.job_id if run.job is not None else "")


KEYS = key_table(
    "queue",
    Key("open", ("enter",), "open", "Open the run whose job it is.", 3, _can_open),
    Key("part", ("v", "tab"), "view", "What waits, what runs, or the nodes.", 1),
    Key("mine", ("m",), "mine", "Only your own jobs, or all.", 2),
    Key("next_partition", ("]",), "partition", "Only the next partition; all behind the last.", 4),
    Key("previous_partition", ("[",), "partition", "Only the partition before."),
    Key("again", ("u",), "look again", "Look again, where the last look is 10 s ago.", 5),
    Key("copy", ("y",), "copy", "Copy the job's id.", 0, _needs_line),
)


class QueueScreen(CockpitScreen, inherit_bindings=False):
    """The queue of one cluster.

    Args:
        cluster: Its name.
    """

    KEYS: ClassVar[KeyTable] = KEYS
    OPENS: ClassVar[str] = "open"

    pane: QueueList

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self.cluster = cluster
        self.pane = QueueList(id="queue")

    def on_mount(self) -> None:
        """Ask now, and again while it is on top."""
        super().on_mount()
        self._ask()
        self.set_interval(LOOK_S, self._ask)

    def _ask(self) -> None:
        if self.on_top and not self.cockpit.paused:
            self.cockpit.controller.ask_queue(self.cluster)

    def receive(self, message: CockpitMessage) -> None:
        """Take the queue of this cluster, or why there is none."""
        if isinstance(message, messages.QueueFetched) and message.queue.cluster == self.cluster:
            found = message.queue
            self.pane.show(found if found.taken_at else None, self.cockpit.wall_clock(), found.problem)
            self.tick()

    @override
    def crumbs(self) -> Sequence[str]:
        return [f"queue of {self.cluster}"]

    def state_spans(self) -> Sequence[Span]:
        """Where the user stands, and how old the picture is."""
        queue = self.pane.queue
        if queue is None:
            return ()
        age = formats.ago(self.cockpit.wall_clock() - queue.taken_at)
        problem: list[Span] = [(f"  {self.cockpit.glyphs.attention} {queue.problem}", "attention")]
        return ((f"{view.mine_words(queue)}  ", "accent"), (age, "dim"), *(problem if queue.problem else []))

    @property
    def _run_of_job(self) -> RunIdentity | None:
        """The run whose job is under the cursor; None where it is none."""
        job = self.pane.selected
        if job is None or not job.is_mine:
            return None
        runs = [run for run in self.cockpit.pictures.runs.runs if run.identity.cluster == self.cluster]
        # the tickets of this machine's queue have the run's id for a name
        found = (run.identity for run in runs if job.job_id == _job_id(run) or run.run_id == job.name)
        return next(found, None)

    def key_context(self) -> KeyContext:
        """The job under the cursor decides."""
        return KeyContext(
            readonly=self.cockpit.readonly,
            has_job=self.pane.selected is not None,
            can_open=self._run_of_job is not None,
        )

    def do_open(self) -> None:
        """Open the run whose job it is."""
        if self._run_of_job is not None:
            self.cockpit.open_run(self._run_of_job)

    def do_again(self) -> None:
        """Ask the cluster for its queue once more."""
        self.cockpit.controller.ask_queue(self.cluster, again=True)

    def do_copy(self) -> None:
        """Copy the id of the selected job."""
        if self.pane.selected is not None:
            self.cockpit.copy(self.pane.selected.job_id, "job")
