"""Jobs that are no runs: of everything that the user has in Slurm's queues, what rltui did not start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from typing_extensions import override

from rltui.service.cockpit import OpenJob
from rltui.tui import formats, messages
from rltui.tui.glyphs import Glyphs
from rltui.tui.keys import Key, KeyContext, KeyTable, key_table, needs_job
from rltui.tui.messages import CockpitMessage
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.spans import Line, clip, line, pad
from rltui.tui.widgets.list_pane import ItemsPane


class JobList(ItemsPane[OpenJob]):
    """The user's jobs that no run of rltui is, one a line."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._is_asked = True
        self._now = 0.0

    def show(self, rows: tuple[OpenJob, ...] | None, now: float) -> None:
        """Show these; None while the clusters are asked. The cursor stays on its job."""
        self._is_asked, self._now = rows is None, now
        self.put(rows or ())

    def key_of(self, item: OpenJob) -> tuple[str, str]:
        """Its cluster and its id there."""
        return item.cluster, item.job.job_id

    @override
    def head(self) -> Sequence[Line]:
        return [job_head(self.size.width)]

    @override
    def row(self, index: int) -> Line:
        return job_row(self.items[index], self._now, self.size.width, self.is_selected(index), self.glyphs)

    def empty(self) -> Sequence[Line]:
        """What stands there where there is no job."""
        waits = f" asking the schedulers {self.glyphs.ellipsis}"
        none = " no jobs beside the runs: whatever you submit without rltui is listed here"
        return [line((waits if self._is_asked else none, "dim"))]


KEYS = key_table(
    "jobs",
    Key("adopt", ("x", "enter"), "adopt", "Make a run of the job, without touching it.", 1, needs_job),
    Key("again", ("u",), "look again", "Ask the schedulers again.", 2),
    Key("copy", ("y",), "copy", "Copy the job's id.", 3, needs_job),
)


class JobsScreen(CockpitScreen, inherit_bindings=False):
    """The user's jobs that are no runs; asked for when it opens and by a key, never by itself."""

    KEYS: ClassVar[KeyTable] = KEYS

    pane: JobList

    def __init__(self) -> None:
        super().__init__()
        self.pane = JobList(id="jobs")

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self.cockpit.controller.ask_jobs()

    def receive(self, message: CockpitMessage) -> None:
        """Take the jobs; where they cannot be had, the notice says why."""
        if isinstance(message, messages.JobsFetched):
            self.pane.show(message.jobs, self.cockpit.wall_clock())
        elif isinstance(message, messages.RequestFailed) and message.asked == messages.LIST_JOBS:
            self.pane.show((), self.cockpit.wall_clock())
        elif isinstance(message, messages.Adopted):
            self.cockpit.controller.ask_jobs()
        self.tick()

    @override
    def crumbs(self) -> Sequence[str]:
        return ["jobs that are no runs"]

    def key_context(self) -> KeyContext:
        """Whether there is a job under the cursor."""
        return KeyContext(readonly=self.cockpit.readonly, has_job=self.pane.selected is not None)

    def do_adopt(self) -> None:
        """Make a run of the job."""
        if self.pane.selected is not None:
            self.cockpit.controller.adopt(self.pane.selected.cluster, self.pane.selected.job.job_id)

    def do_again(self) -> None:
        """Ask all clusters for the jobs once more."""
        self.pane.show(None, self.cockpit.wall_clock())
        self.cockpit.controller.ask_jobs()

    def do_copy(self) -> None:
        """Copy the id of the selected job."""
        if self.pane.selected is not None:
            self.cockpit.copy(self.pane.selected.job.job_id, "job")


def job_head(width: int) -> Line:
    """Titles of the columns, above the jobs."""
    head = f"  {pad('JOB', 10)} {pad('CLUSTER', 12)} {pad('STATE', 10)} {pad('AGE', 6, right=True)}  NAME"
    return line((clip(head, width), "dim"))


def job_row(one: OpenJob, now: float, width: int, selected: bool, glyphs: Glyphs) -> Line:
    """One job: what it is, since when it runs or waits, and where."""
    job = one.job
    since = job.started_at or job.submitted_at
    age = formats.duration(now - since) if since else ""
    nodes = ",".join(job.nodes) or f"{job.node_count} node{'s' * (job.node_count != 1)}"
    return line(
        (f"{glyphs.cursor if selected else ' '} ", "accent"),
        (pad(job.job_id, 10), "text"),
        (f" {pad(one.cluster, 12)} ", "dim"),
        (pad(job.state, 10), "ok" if job.state == "running" else "dim"),
        (f" {pad(age, 6, right=True)}", "dim"),
        (f"  {clip(job.name, max(8, width - 62))}", "text"),
        (clip(f"  {nodes} {job.partition}", max(0, width - 46 - len(job.name))), "dim"),
        selected=selected,
    )
