"""What takes longer to know of a launch than a keystroke: its start, and what differs from the last run of its name."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import Struct, structs

from rltui.cluster.slurm.client import SlurmClient
from rltui.errors import RltuiError, tried
from rltui.layout.diff import change_lines, diff
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.layout.schema import Layout
from rltui.runs.directory import load_attempt_layout
from rltui.runs.script import preview_script
from rltui.runs.script_job import ScriptJob, is_script
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.watch.snapshots import RunSummary


class LaunchOutlook(Struct, frozen=True, kw_only=True):
    """What takes longer to know of a launch than a keystroke, and is shown with its age."""

    preset: str
    overrides: tuple[str, ...] = ()
    cluster: str = "local"
    start: str = ""
    """When it would start, in a few words; empty where nobody can tell."""
    refusal: str = ""
    """Why the scheduler would not take it; empty where it would."""
    last_run: str = ""
    """The last run of that name on the cluster whose layout can be read; empty: there is none."""
    changes: tuple[str, ...] = ()
    """What is different from it, a ``-`` and a ``+`` line a key."""
    taken_at: float = 0.0
    """When the cluster was asked, by this machine's clock."""
    problem: str = ""
    """Why nothing of that is known."""


def outlook(context: Context, source: str, overrides: Sequence[str], runs: Sequence[RunSummary]) -> LaunchOutlook:
    """When a launch would start, asked of the cluster, and what is different from the last run of that name there.

    Args:
        context: The cluster.
        source: A preset, a layout's file or a script.
        overrides: What stands behind it in the shell.
        runs: Those that are known, newest first.
    """
    asked = LaunchOutlook(preset=source, overrides=tuple(overrides), cluster=context.cluster.name, taken_at=time.time())
    try:
        work = _work(context, source, overrides)
        start, refusal = _start(context, work)
        last, changes = _since_last(context, work, runs)
    except RltuiError as error:
        return structs.replace(asked, problem=error.message)
    return structs.replace(asked, start=start, refusal=refusal, last_run=last, changes=changes)


def _work(context: Context, source: str, overrides: Sequence[str]) -> Layout | ScriptJob:
    if is_script(source):
        from rltui.service.scripts import prepare
        from rltui.service.wishes import read_wishes

        return prepare(source, read_wishes(overrides), context.cluster.profile).job
    return load_layout(resolve(source), overrides).layout


def _start(context: Context, work: Layout | ScriptJob) -> tuple[str, str]:
    """When it would start in a few words, and why it would not be taken; empty where nobody can tell."""
    profile = context.cluster.profile
    if profile.scheduler == "slurm":
        verdict = SlurmClient(context.cluster.client).test(preview_script(work, profile))
        if not verdict.accepted:
            return "", verdict.sentence
        nodes = f" on {len(verdict.nodes)} node{'s' * (len(verdict.nodes) != 1)}" if verdict.nodes else ""
        return f"{verdict.start.replace('T', ' ')} by the cluster's clock{nodes}", ""
    if profile.scheduler == "ray":
        return "", ""
    before = len(context.queue.look().waiting)
    waits = f"{before} run{'s wait' if before != 1 else ' waits'} in front of it"
    return waits if before else "nothing waits in front of it", ""


def _since_last(context: Context, work: Layout | ScriptJob, runs: Sequence[RunSummary]) -> tuple[str, tuple[str, ...]]:
    """The last run of that name on the cluster, and what is different from its layout, two lines a key."""
    last = next((run for run in runs if run.name == work.name and run.cluster == context.cluster.name), None)
    if last is None or isinstance(work, ScriptJob):
        return "", ()
    before, _ = tried(lambda: load_attempt_layout(context.cluster.client, attempt_path(last)).layout)
    return ("", ()) if before is None else (last.run_id, tuple(change_lines(diff(before, work))))
