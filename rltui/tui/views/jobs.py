"""Jobs that are no runs: one line each. Pure functions."""

from __future__ import annotations

from rltui.service.cockpit import OpenJob
from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, clip, line, pad


def job_head(width: int) -> Line:
    """Titles of the columns."""
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
