"""Commands of remedies as they are for one run: rltui's own in place of Slurm's, and no blank that it can fill."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec import structs

from rltui.cluster.slurm.reasons import explain_reason
from rltui.diagnose.verdicts import Diagnosis, Remedy
from rltui.onnode import rundir
from rltui.onnode.checkpoints import step_name
from rltui.runs.script_job import ScriptJob, Work
from rltui.service.hands_off_rules import FROM_OUTSIDE
from rltui.watch.jobs import has_moved_on
from rltui.watch.pending import is_stuck, waiting_job
from rltui.watch.snapshots import RunSummary

RUN_COMMANDS = (
    (re.compile(r"^sbatch --exclude=(\S+) …$"), r"rltui resubmit <run> --exclude \1"),
    (re.compile(r"^sbatch --mem=0 …$"), "rltui resubmit <run> slurm.mem_gib=0"),
    (re.compile(r"^scontrol release <id>$"), "rltui release <run>"),
    (re.compile(r"^srun --jobid <id> --overlap --pty bash$"), "rltui shell <run>"),
    (re.compile(r"^py-spy dump --pid <pid>$"), "rltui bundle <run>"),
    (re.compile(r"^wandb sync <run folder>$"), "rltui wandb-sync <run>"),
)
"""Commands of the remedies of any log, and what they are for a run of rltui's."""

OF_SLURM = re.compile(r"(?:sinfo|squeue|sacct|scontrol|sbatch|srun|scancel)\b")
"""Commands that only a machine with Slurm has."""

_BLANK = re.compile(r"<([a-z][a-z ]*)>")


def with_pending_command(found: Sequence[Diagnosis], run: RunSummary) -> tuple[Diagnosis, ...]:
    """``found`` with the very commands for the reason why the job of ``run`` waits, before what else there is to do."""
    job = waiting_job(run)
    reason = explain_reason(job.reason, run.run_id) if job is not None and job.reason else None
    commands = tuple(re.findall(r"`(rltui [^`]+)`", reason.next_step)) if reason is not None else ()
    if reason is None or not commands:
        return tuple(found)
    remedy = Remedy(id="change-pending", summary=f"{reason.sentence} {reason.next_step}", commands=commands)
    return tuple(
        structs.replace(one, remedies=(remedy, *one.remedies)) if one.id == "slurm_pending" else one for one in found
    )


def with_next_start(found: Sequence[Diagnosis], run: RunSummary) -> tuple[Diagnosis, ...]:
    """``found`` with nothing to do for what ended a start of the run's job, where Slurm has queued the job again."""
    words = queued_again(run)
    if not words:
        return tuple(found)
    remedy = Remedy(id="goes-on", summary=f"Nothing: {words}", safe="auto")
    return tuple(structs.replace(one, remedies=(remedy,)) if one.id in FROM_OUTSIDE else one for one in found)


def queued_again(run: RunSummary) -> str:
    """That Slurm itself has queued the job of ``run`` again, which nothing keeps from its next start; else empty."""
    job = waiting_job(run)
    if job is None or is_stuck(job) or not has_moved_on(job, run.job_restart):
        return ""
    return f"Slurm has queued job {job.job_id} again, and the run goes on from its newest checkpoint."


def with_run_commands(
    found: Sequence[Diagnosis],
    run: RunSummary,
    work: Work | None = None,
    *,
    has_slurm: bool = True,
) -> tuple[Diagnosis, ...]:
    """``found`` with commands for ``run``: rltui's own in place of Slurm's, and every blank filled that it can fill.

    Args:
        found: The diagnoses.
        run: Whose they are.
        work: What its attempt runs, where that is known.
        has_slurm: Whether its cluster has Slurm, and so the commands of that.
    """
    known = _known(run, work)

    def filled(text: str) -> str:
        return _BLANK.sub(lambda blank: shlex.quote(known[blank[1]]) if blank[1] in known else blank[0], text)

    def own(command: str) -> str:
        words = command
        for pattern, ours in RUN_COMMANDS:
            words = pattern.sub(ours, words)
        ends_first = run.is_live and words.startswith("rltui resubmit") and "--cancel" not in words
        return filled(words) + " --cancel" * ends_first

    def fitted(remedy: Remedy) -> Remedy:
        ours = dict.fromkeys(map(own, remedy.commands))
        commands = tuple(one for one in ours if has_slurm or not OF_SLURM.match(one))
        return structs.replace(remedy, summary=filled(remedy.summary), commands=commands)

    return tuple(structs.replace(one, remedies=tuple(map(fitted, one.remedies))) for one in found)


def _known(run: RunSummary, work: Work | None) -> dict[str, str]:
    """What may stand in the blanks of a remedy; what is not known, or is several, is left out."""
    job = run.job
    nodes = (job.failed_nodes or job.nodes) if job is not None else ()
    known = {
        "run": run.run_id,
        "id": run.job_id,
        "node": nodes[0] if len(nodes) == 1 else "",
        "run folder": run.path,
    }
    if isinstance(work, ScriptJob):
        known["script"] = work.source
    elif work is not None:
        models = {getattr(role, "model", "") for role in structs.astuple(work.roles)} - {""}
        known["model"] = models.pop() if len(models) == 1 else ""
        stages = [entry["stage"] for entry in run.stage.history]
        if stages[-2:] == ["loading", "ended"] and run.stage.step:  # the step is that of what was loaded
            known["checkpoint"] = f"{run.path}/{rundir.CHECKPOINTS}/{step_name(run.stage.step)}"
    return {name: value for name, value in known.items() if value}
