"""Putting ended runs away as one file each, and bringing them back: the list keeps showing them meanwhile."""

from __future__ import annotations

import posixpath
import time
from typing import Any, Literal

import msgspec

from rltui.errors import RltuiError, UsageError
from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_of
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.describe import newest_checkpoint_step
from rltui.service.tidy import require_over, run_sizes
from rltui.watch.run_facts import ATTEMPT_FILES
from rltui.watch.snapshots import ArchivedNote, RunSummary

Checkpoints = Literal["all", "newest", "none"]
"""Which checkpoints are put away with a run; the others are gone for good."""

TIMEOUT_S = 6 * 3600.0
STAYS = (*ATTEMPT_FILES, rundir.METRICS, rundir.LAYOUT, rundir.SCRIPT_RUN, rundir.ORIGINS, ".lock-*")
"""Of each attempt: what the list, the curves and the settings are read from."""

PACK = """
set -e
umask 077
run=$1 target=$2 part=$2.part
shift 2
mkdir -p -m 700 -- "${target%/*}"
if [ -e "$target" ]; then
  wanted=$(tar -C "${run%/*}" "$@" -cvf /dev/null -- "${run##*/}" | sort)
  [ "$wanted" = "$(tar -tf "$target" | sort)" ] && tar -C "${run%/*}" -df "$target" >&2 ||
    { echo "$target is there already, and holds something else" >&2; exit 1; }
else
  tar -C "${run%/*}" "$@" -cf "$part" -- "${run##*/}"
  tar -C "${run%/*}" -df "$part" >&2
  sync -f "$part" 2>/dev/null || sync
  mv -T -- "$part" "$target"
fi
stat -c %s -- "$target"
"""
"""Writes a file and compares it with the run, before it gets its name; a file of that name is taken where it is just
what would be written, as one that broke off behind this leaves it."""

STRIP = """
set -e
run=$1
shift
find "$run" -mindepth 1 -maxdepth 1 ! -name attempts ! -name '*.json' -print -exec rm -rf -- {} +
find "$run"/attempts -mindepth 2 -maxdepth 2 "$@" -print -exec rm -rf -- {} +
"""

UNPACK = """
set -e
root=$1 target=$2 note=$3
tar -C "$root" -xpf "$target"
tar -C "$root" -df "$target" >&2
rm -f -- "$note"
rm -f -- "$target"
"""


def preview_archive(context: Context, run: RunSummary, folder: str, keep: Checkpoints) -> ActionPreview:
    """What putting ``run`` away would do.

    Raises:
        RltuiError: It is not over, not rltui's own, or archived already.
    """
    target = _target(context, run, folder)
    _require_here(context, run, target)
    sizes = [(one.total_gib, one.checkpoints_gib) for one in run_sizes(context, [run])]
    total, saved = sizes[0] if sizes else (0.0, 0.0)
    lines = [f"becomes {target}, {total if keep == 'all' else total - saved:.2f} GiB"]
    lines[0] += {"all": "", "newest": " and its newest checkpoint", "none": " without checkpoints"}[keep]
    if keep != "all":
        lines.append(f"{'its other' if keep == 'newest' else 'its'} checkpoints are gone for good")
    lines.append("the list, its curves and settings stay; logs and samples are in the file")
    lines.append(f"`rltui archive --back {run.run_id}` brings it back")
    command = f"rltui archive {run.run_id} --to {folder} --checkpoints {keep}"
    return ActionPreview.of(run.identity, f"Archive {run.run_id}?", lines, command)


def archive(context: Context, run: RunSummary, folder: str, keep: Checkpoints) -> str:
    """Put ``run`` away as one file; returns a sentence. Where it breaks off, doing it again does the rest.

    Raises:
        RltuiError: It is not over, not rltui's own, archived already, or the file could not be written whole.
        ClusterError: It is unknown how far it came.
    """
    target = _target(context, run, folder)
    run = context.find(run.run_id)
    _require_here(context, run, target)
    if run.archived is not None:
        if not _strip(context, run):
            raise _archived_already(run, run.archived)
        return f"{run.run_id}: archived as {target} ({run.archived.bytes / 2**30:.2f} GiB)"
    left_out = [f"--exclude={run.run_id}/{rundir.CHECKPOINTS}/*"] if keep == "none" else []
    if keep == "newest" and (newest := newest_checkpoint_step(context, run)) is not None:
        entries = context.cluster.client.list(f"{run.path}/{rundir.CHECKPOINTS}")
        # another system names its own: which of them can go is not known here
        others = [one.name for one in entries if step_of(one.name) not in (None, newest)]
        left_out = [f"--exclude={run.run_id}/{rundir.CHECKPOINTS}/{name}" for name in others]
    about: dict[str, Any] = {"run": run.run_id, "cluster": context.name, "path": target}
    with context.journal.around("archive", "unknown", **about):
        packed = _run(context, PACK, run.path, target, *left_out)
        note = ArchivedNote(file=target, bytes=int(packed.split()[-1]), at=time.time(), checkpoints=keep)
        context.cluster.client.put(f"{run.path}/{rundir.ARCHIVED}", msgspec.json.encode(note))
        _strip(context, run)
    return f"{run.run_id}: archived as {target} ({note.bytes / 2**30:.2f} GiB)"


def _strip(context: Context, run: RunSummary) -> bool:
    """Remove what is in the file, but for what the list reads; whether there was any of it."""
    stays = [word for name in STAYS for word in ("!", "-name", name)]
    return bool(_run(context, STRIP, run.path, *stays))


def preview_back(context: Context, run: RunSummary) -> ActionPreview:
    """What bringing ``run`` back would do.

    Raises:
        RltuiError: It is not archived.
    """
    context.require_own(run)
    if run.archived is None:
        raise RltuiError(f"{run.run_id} is not archived.")
    line = f"{run.archived.bytes / 2**30:.2f} GiB come back from {run.archived.file}, which is removed then"
    return ActionPreview.of(run.identity, f"Bring {run.run_id} back?", [line], f"rltui archive --back {run.run_id}")


def bring_back(context: Context, run: RunSummary) -> str:
    """Unpack the file of ``run`` in its place, and remove the file; returns a sentence.

    Raises:
        RltuiError: It is not archived, or could not be unpacked whole: the file stays then.
        ClusterError: It is unknown how far it came; doing it again does the rest.
    """
    preview_back(context, run)
    assert run.archived is not None
    about: dict[str, Any] = {"run": run.run_id, "cluster": context.name, "path": run.archived.file}
    with context.journal.around("archive-back", "unknown", **about):
        _run(context, UNPACK, context.cluster.run_root, run.archived.file, f"{run.path}/{rundir.ARCHIVED}")
    return f"{run.run_id}: back from {run.archived.file}"


def _require_here(context: Context, run: RunSummary, target: str) -> None:
    """Refuse a run that is archived as another file than ``target``, or whose own file is not there as it was written.

    One of that file may have broken off before all was removed that is in it.
    """
    require_over(context, run)
    if run.archived is None:
        return
    size = context.cluster.client.run(["stat", "-c", "%s", "--", target], timeout_s=30).out.strip()
    if run.archived.file != target or size != str(run.archived.bytes):
        raise _archived_already(run, run.archived)


def _archived_already(run: RunSummary, note: ArchivedNote) -> RltuiError:
    return RltuiError(
        f"{run.run_id} is archived already: {note.file}.",
        f"`rltui archive --back {run.run_id}` brings it back, `rltui rm {run.run_id}` takes it out of the list.",
    )


def _target(context: Context, run: RunSummary, folder: str) -> str:
    home = context.cluster.client.hello().home
    path = home + folder[1:] if folder == "~" or folder.startswith("~/") else folder
    if not path.startswith("/"):
        raise UsageError(f"--to {folder[:80]}: the folder is on the cluster, as /path/… or ~/path/….")
    path = posixpath.normpath(path)
    if f"{path}/".startswith(f"{context.cluster.run_root}/"):
        raise UsageError(f"--to {path} is in the run root: it would free nothing there.")
    return f"{path}/{run.run_id}.tar"


def _run(context: Context, script: str, *words: str) -> str:
    done = context.cluster.client.run(["sh", "-c", script, "sh", *words], timeout_s=TIMEOUT_S)
    if done.rc:
        raise RltuiError(f"It was not done whole: {done.err.strip()[-300:] or 'no reason was given'}.")
    return done.out
