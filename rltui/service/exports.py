"""The command that writes a run's checkpoint as a Hugging Face folder, in the environment that the run itself had."""

from __future__ import annotations

import json
import shlex

from msgspec import Struct

from rltui.cluster.relay_types import RelayError
from rltui.errors import UsageError
from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_name
from rltui.service.context import Context
from rltui.service.describe import attempt_path, newest_checkpoint_step
from rltui.watch.snapshots import RunSummary


class Export(Struct, frozen=True):
    """What is to be run where the run's files are.

    Attributes:
        step: The checkpoint's step.
        target: The folder to make.
        code: Folder of the run's own trainers, to be in.
        argv: The command.
    """

    step: int
    target: str
    code: str
    argv: tuple[str, ...]

    @property
    def words(self) -> str:
        """The command as one line for a shell."""
        return f"cd {shlex.quote(self.code)} && {shlex.join(self.argv)}"


def plan_export(
    context: Context,
    run: RunSummary,
    *,
    step: int | None = None,
    target: str = "",
    precision: str = "",
    adapter: bool = False,
) -> Export:
    """How to export ``run``.

    Args:
        context: The run's cluster.
        run: The run.
        step: Of the checkpoint; None: the newest complete one.
        target: The folder to make; empty: ``export/step-NNNNNN`` in the run's directory, with ``-adapter`` behind it
            where only that is written.
        precision: Of the weights; empty: the learner's.
        adapter: Write the LoRA adapters alone, in peft's format.

    Raises:
        UsageError: There is no such checkpoint, or nothing says how the run was started.
    """
    context.require_own(run)
    newest = newest_checkpoint_step(context, run)
    if newest is None:
        raise UsageError(f"{run.run_id} has no complete checkpoint yet.")
    step = newest if step is None else step
    name = step_name(step)
    checkpoint = f"{run.path}/{rundir.CHECKPOINTS}/{name}"
    if not context.cluster.client.collect(checkpoint, [rundir.CHECKPOINT_COMPLETE]):
        raise UsageError(f"{run.run_id} has no complete checkpoint of step {step}; its newest is of step {newest}.")
    try:
        job = json.loads(context.cluster.client.read(f"{attempt_path(run)}/{rundir.JOB}").data)
        python, code = str(job["argv"][0]), str(job["code"])
    except (RelayError, ValueError, LookupError) as error:
        raise UsageError(f"{run.run_id} does not say how it was started: {error}") from error
    target = target or f"{run.path}/{rundir.EXPORT}/{name}{'-adapter' if adapter else ''}"
    argv = [python, "-m", "trainers.export", "--checkpoint", checkpoint, "--to", target]
    argv += ["--precision", precision] if precision else []
    argv += ["--adapter"] if adapter else []
    return Export(step, target, code, tuple(argv))
