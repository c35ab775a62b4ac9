"""A newest checkpoint that is damaged, set aside so that a run goes on from the one before; nothing is deleted."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from rltui.errors import RltuiError
from rltui.onnode import rundir
from rltui.onnode.checkpoints import damage, sizes_in, step_name
from rltui.runs.claims import parsed
from rltui.service.context import Context
from rltui.service.describe import COMPLETE, complete_steps
from rltui.watch.snapshots import RunSummary

DAMAGED = "damaged"
"""Behind a checkpoint's name once it is set aside: nobody takes it for a checkpoint then."""

CHECKPOINT_BROKEN = "ckpt_broken"
"""The cause of an end that may be a damaged checkpoint, or one that does not fit."""


class Damage(Struct, frozen=True, kw_only=True):
    """What is known of a checkpoint that could not be loaded.

    Attributes:
        name: Of the folder that is to be set aside; empty: it is out of the way already.
        words: What is wrong with it, and from where the run goes on.
        before: Step of the newest one that is whole, from which the run goes on.
    """

    name: str = ""
    words: str
    before: int


def find_damage(context: Context, run: RunSummary) -> Damage | None:
    """The damage that ended ``run`` as it loaded its newest checkpoint.

    None where it is not proven, or where no checkpoint is left that is known to be whole. Only rltui's own trainers say
    how many bytes each file of a checkpoint has. What does not fit the model, or has all its bytes and wrong ones, is
    for a person.
    """
    if run.end is None or any(entry["stage"] == "training" for entry in run.stage.history):
        return None
    steps = complete_steps(context.cluster.client.collect(run.path, [COMPLETE], 1))
    loaded = run.stage.step or max(steps, default=0)  # one whose state cannot be read has not said its step
    if not steps or steps[0] > loaded:
        return None
    if steps[0] < loaded:  # by somebody's hand, or by a fix that was cut off
        if _damage_of(context, run, steps[0]) != "":
            return None
        words = f"{step_name(loaded)} is out of the way: goes on from step {steps[0]}, which is whole"
        return Damage(words=words, before=steps[0])
    wrong = _damage_of(context, run, steps[0])
    if not wrong or len(steps) == 1 or _damage_of(context, run, steps[1]) != "":
        return None
    name = step_name(steps[0])
    words = f"sets {name} aside, of which {wrong}, and goes on from step {steps[1]}, which is whole"
    return Damage(name=name, words=words, before=steps[1])


def set_aside(context: Context, run: RunSummary, name: str) -> str:
    """Rename the checkpoint ``name`` of ``run``, so that the one before is the newest; its new path.

    Raises:
        RltuiError: It is not there any more, or cannot be renamed.
    """
    context.require_own(run)
    folder = f"{run.path}/{rundir.CHECKPOINTS}"
    taken = {entry.name for entry in context.cluster.client.list(folder)}
    target = f"{folder}/{_free_name(f'{name}-{DAMAGED}', taken)}"
    argv = ["mv", "-T", "--", f"{folder}/{name}", target]
    about: dict[str, Any] = {"run": run.run_id, "cluster": context.name, "command": shlex.join(argv)}
    with context.journal.around("set-aside", **about, attempt=run.attempt):
        moved = context.cluster.client.run(argv, timeout_s=60)
        if moved.rc:
            raise RltuiError(f"{folder}/{name} cannot be set aside: {moved.err.strip()[-200:]}")
    return target


def command_of(run: RunSummary, name: str) -> str:
    """What does the same in a shell."""
    path = f"{run.path}/{rundir.CHECKPOINTS}/{name}"
    return shlex.join(["mv", "-T", "--", path, f"{path}-{DAMAGED}"])


def _free_name(name: str, taken: Iterable[str]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _damage_of(context: Context, run: RunSummary, step: int) -> str | None:
    """What is wrong with the files of a checkpoint; empty: nothing; None: its marker does not say what they were."""
    client, folder = context.cluster.client, f"{run.path}/{rundir.CHECKPOINTS}/{step_name(step)}"
    markers = client.collect(folder, [rundir.CHECKPOINT_COMPLETE])
    files = sizes_in(parsed(markers[0].text)) if markers else None
    if files is None:
        return None
    parts = sorted({posixpath.join(posixpath.dirname(name), "*") for name in files})
    return damage(files, {file.path: file.size for file in client.collect(folder, parts, 1)})
