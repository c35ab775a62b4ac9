"""What runs take of a disk, and taking ended ones away: previewed, journalled, and only what is the user's own."""

from __future__ import annotations

import posixpath
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_of
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.describe import newest_checkpoint_step, span
from rltui.service.quota import Quota, quotas
from rltui.watch.snapshots import ArchivedNote, RunSummary

Keep = Literal["", "checkpoints", "newest"]
"""What stays: nothing; the checkpoints alone; the run in the list with its newest checkpoint."""

DU_TIMEOUT_S = 300.0
RM_TIMEOUT_S = 900.0
REMOVED = ".removed-"
"""Begins the name of a folder on its way out: a list that is read meanwhile has the run whole or not at all."""
_GIB = 1 << 30


class RunSize(Struct, frozen=True, kw_only=True):
    """What one run takes of its cluster's disk.

    Attributes:
        total_gib: All of its folder.
        checkpoints_gib: Of these its checkpoints; those that a script keeps elsewhere are in no number.
        num_checkpoints: Folders of checkpoints in there, complete or not.
        archived: Where the rest of it is, and how large that is.
    """

    run_id: str
    cluster: str
    state: str
    path: str
    total_gib: float
    checkpoints_gib: float = 0.0
    num_checkpoints: int = 0
    archived: ArchivedNote | None = None


class Disk(Struct, frozen=True, kw_only=True):
    """The file system that a run root is on, and the quotas that hold there, which may be less."""

    root: str
    size_gib: float
    free_gib: float
    quotas: tuple[Quota, ...] = ()


def usage(context: Context, runs: Sequence[RunSummary]) -> tuple[list[RunSize], Disk]:
    """What each of ``runs`` takes, and the disk that they are on.

    Raises:
        RltuiError: The cluster cannot be reached, or does not tell.
    """
    return run_sizes(context, runs), disk(context)


def run_sizes(context: Context, runs: Sequence[RunSummary]) -> list[RunSize]:
    """What each of ``runs`` takes, in their order; one that is gone meanwhile is left out.

    Raises:
        ClusterError: The cluster cannot be reached, or counting took longer than five minutes.
    """
    if not runs:
        return []
    # files are counted as blocks: what a quota counts, and sparse ones take no more than that
    argv = ["du", "-k", "-d", "2", "--", *(run.path for run in runs)]
    found = context.cluster.client.run(argv, timeout_s=DU_TIMEOUT_S, idempotent=True, limit=16 << 20)
    kib = {path: int(size) for size, _, path in (line.partition("\t") for line in found.out.splitlines()) if path}
    inside = Counter(map(posixpath.dirname, kib))
    return [_size(context, run, kib, inside) for run in runs if run.path in kib]


def _size(context: Context, run: RunSummary, kib: dict[str, int], inside: Counter[str]) -> RunSize:
    """What ``run`` takes, by the size of each folder and how many folders are in each."""
    checkpoints = f"{run.path}/{rundir.CHECKPOINTS}"
    return RunSize(
        run_id=run.run_id,
        cluster=context.name,
        state=run.state,
        path=run.path,
        total_gib=kib[run.path] * 1024 / _GIB,
        checkpoints_gib=kib.get(checkpoints, 0) * 1024 / _GIB,
        num_checkpoints=inside[checkpoints],
        archived=run.archived,
    )


def disk(context: Context) -> Disk:
    """The file system of the cluster's run root.

    Raises:
        RltuiError: ``df`` says nothing of it.
    """
    root = context.cluster.run_root
    found = context.cluster.client.run(["df", "-Pk", "--", root], timeout_s=60, idempotent=True)
    fields = found.out.splitlines()[-1].split() if found.out else []
    if found.rc or len(fields) < 4 or not fields[1].isdigit() or not fields[3].isdigit():
        raise RltuiError(f"df says nothing of {root}: {found.err.strip()[-200:]}")
    size, free = (int(fields[place]) * 1024 / _GIB for place in (1, 3))
    return Disk(root=root, size_gib=size, free_gib=free, quotas=quotas(context.cluster.client, root))


def preview_remove(context: Context, run: RunSummary, keep: Keep = "") -> ActionPreview:
    """What taking ``run`` away would take with it.

    Raises:
        RltuiError: It is not over, not rltui's own, or there is nothing to take away.
    """
    going = _going(context, run, keep)
    size = run_sizes(context, [run])
    now_gib = size[0].total_gib if size else 0.0
    lines = [f"{run.state}, made {span(max(0.0, time.time() - run.created_at))} ago"]
    if keep == "newest":
        lines.append(f"{len(going)} checkpoint{'s' * (len(going) != 1)} older than the newest go; the run stays")
    elif keep == "checkpoints":
        checkpoints_gib = size[0].checkpoints_gib if size else 0.0
        others = f"logs, metrics and code go ({now_gib - checkpoints_gib:.2f} GiB)"
        lines.append(f"{others}; its checkpoints stay ({checkpoints_gib:.2f} GiB), and no list has the run any more")
    else:
        number = size[0].num_checkpoints if size else 0
        lines.append(f"all of its folder goes, {now_gib:.2f} GiB with {number} checkpoint{'s' * (number != 1)}")
    lines.append("nothing brings it back")
    if run.archived is not None:
        lines.append(f"the rest of it, {run.archived.file}, stays where it is")
    words = f" --keep {keep}" if keep else ""
    title = f"Remove {'old checkpoints of ' if keep == 'newest' else ''}{run.run_id}?"
    return ActionPreview.of(run.identity, title, lines, f"rltui rm {run.run_id}{words}")


def remove(context: Context, run: RunSummary, keep: Keep = "") -> str:
    """Take ``run`` away, as far as ``keep`` says; returns a sentence on what was done.

    Raises:
        RltuiError: It is not over, not rltui's own, or could not be removed whole.
        ClusterError: It is unknown how far it came; asking again does the rest.
    """
    context.require_own(run)
    run = context.find(run.run_id)  # somebody may have started it again since it was looked at
    going = _going(context, run, keep)
    about = {"run": run.run_id, "cluster": context.name, "path": run.path}
    with context.journal.around("remove", failed="unknown", intended={"keep": keep}, **about):
        for folder in {posixpath.dirname(path) for path in going}:
            _finish_earlier(context, folder)
        for path in going:
            _take_away(context, path)
    return f"{run.run_id}: {'removed' if keep != 'newest' else f'{len(going)} old checkpoints removed'}"


def _going(context: Context, run: RunSummary, keep: Keep) -> list[str]:
    """Paths that go, each a whole folder or file below the run root."""
    require_over(context, run)
    if not keep:
        return [run.path]
    if run.archived is not None:
        raise RltuiError(f"{run.run_id} is archived.", f"`rltui archive --back {run.run_id}` brings it back.")
    if keep == "checkpoints":
        entries = context.cluster.client.list(run.path)
        # what makes it a run goes first: half of it is no run
        names = sorted((entry.name for entry in entries), key=lambda name: name != rundir.RUN)
        return [f"{run.path}/{name}" for name in names if name != rundir.CHECKPOINTS]
    return _old_checkpoints(context, run)


def require_over(context: Context, run: RunSummary) -> None:
    """Refuse to move or remove a run that is not the user's, may go on, or is not in the run root.

    Raises:
        RltuiError: It is such a one.
    """
    context.require_own(run)
    if run.is_live or run.state == "unknown":
        raise RltuiError(f"{run.run_id} is {run.state}.", f"`rltui cancel {run.run_id}` ends it first.")
    if run.state != "finished" and run.hands_off == "on":
        raise RltuiError(f"{run.run_id} may go on by itself.", f"`rltui auto {run.run_id} --off` ends that first.")
    if run.is_adopted and run.last_attempt <= 1:
        raise RltuiError(f"{run.run_id} is adopted.", f"`rltui release-run {run.run_id}` forgets it.")
    if run.path != posixpath.join(context.cluster.run_root, run.run_id):
        raise RltuiError(f"{run.path} is no folder of {context.name}'s run root.", "Nothing was done.")


def _old_checkpoints(context: Context, run: RunSummary) -> list[str]:
    folder = f"{run.path}/{rundir.CHECKPOINTS}"
    newest = newest_checkpoint_step(context, run)
    if newest is None:
        raise RltuiError(f"{run.run_id} has no complete checkpoint that could be kept.")
    steps = {entry.name: step_of(entry.name) for entry in context.cluster.client.list(folder)}
    old = [name for name, step in steps.items() if step is not None and step < newest]
    if not old:
        raise RltuiError(
            f"{run.run_id} has no older checkpoint of rltui's own in {folder}.",
            "What a script of another system keeps is that system's: it has settings for how many.",
        )
    return [f"{folder}/{name}" for name in sorted(old)]


def _finish_earlier(context: Context, folder: str) -> None:
    """Take away what an earlier removal was cut off in."""
    left = [entry.name for entry in context.cluster.client.list(folder) if entry.name.startswith(REMOVED)]
    if left:
        argv = ["rm", "-rf", "--", *(f"{folder}/{name}" for name in left)]
        context.cluster.client.run(argv, timeout_s=RM_TIMEOUT_S, idempotent=True)


def _take_away(context: Context, path: str) -> None:
    """Rename it first: a reader, or an end in the middle, sees it whole or not at all."""
    client = context.cluster.client
    aside = f"{posixpath.dirname(path)}/{REMOVED}{uuid.uuid4().hex}"
    moved = client.run(["mv", "-T", "--", path, aside], timeout_s=60)
    if moved.rc:
        raise RltuiError(f"{path} cannot be removed: {moved.err.strip()[-200:]}")
    done = client.run(["rm", "-rf", "--", aside], timeout_s=RM_TIMEOUT_S, idempotent=True)
    if done.rc:
        raise RltuiError(f"{aside} is left, in part: {done.err.strip()[-200:]}", f"rm -rf {aside}")
