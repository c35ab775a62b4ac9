"""Slurm and what it starts: terminal states, refusals, steps, containers."""

from __future__ import annotations

from rltui.diagnose import slurm_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Remedy

_SIGNAL = "https://slurm.schedmd.com/sbatch.html#OPT_signal"

CAUSES = (
    Cause(
        id="slurm_time_limit",
        tier="site",
        title="The job reached its time limit",
        tell="Slurm says DUE TO TIME LIMIT, or the state is TIMEOUT. The signal alone does not tell it from "
        "preemption.",
        remedies=(
            Remedy(
                id="resume",
                summary="Resume from the newest checkpoint, with a longer time (up to the partition's limit) or in a "
                "chain of jobs.",
                commands=("sinfo -o '%P %l'",),
                safe="auto",
            ),
        ),
        wrong=("Reading the tracebacks below it: they are of processes being ended.",),
        explains=frozenset({"ray_actor_died"}),
        sources=(_SIGNAL,),
    ),
    Cause(
        id="slurm_node_fail",
        tier="site",
        title="A node failed under the job",
        detail="{node}",
        tell="Slurm names the node, or the state is NODE_FAIL.",
        remedies=(
            Remedy(
                id="follow-or-resubmit",
                summary="If Slurm requeues it, follow the same id; else resubmit from the newest checkpoint without "
                "that node.",
                commands=("sbatch --exclude={node} …",),
                safe="auto",
            ),
        ),
        wrong=("Debugging the traceback of the surviving ranks.",),
        sources=("https://slurm.schedmd.com/job_state_codes.html",),
    ),
    Cause(
        id="slurm_preempted",
        tier="site",
        title="The job was preempted or requeued",
        tell="DUE TO PREEMPTION or DUE TO JOB REQUEUE; errors that follow are of processes being ended.",
        remedies=(
            Remedy(
                id="follow-or-resubmit",
                summary="Follow the same id if it was requeued; else resubmit from the newest checkpoint.",
                safe="auto",
            ),
        ),
        wrong=("Excluding the node: nothing is wrong with it.",),
        sources=("https://slurm.schedmd.com/preempt.html",),
    ),
    Cause(
        id="slurm_submit_reject",
        tier="root",
        title="Slurm refused the job as it was asked for",
        tell="The client's error names what is wrong; a limit by name may stand in the line before the general one.",
        remedies=(
            Remedy(
                id="fix-request",
                summary="Change the field that is named; see which partitions, accounts, QOS and limits you have.",
                commands=(
                    "sinfo -o '%P %l %D %G %c %m'",
                    "sacctmgr show assoc user=$USER format=account,partition,qos",
                ),
                safe="auto",
            ),
        ),
        wrong=(
            "Retrying: of all refusals only busy controllers pass by themselves.",
            "$VAR in #SBATCH lines: not expanded.",
        ),
        explains=frozenset({"slurm_pending"}),
        sources=("https://slurm.schedmd.com/sbatch.html",),
    ),
    Cause(
        id="slurm_pending",
        tier="aside",
        title="The job cannot start as it was asked for, or waits for a limit or node",
        tell="Limits per job or of the partition never pass; limits of a group or user pass when other jobs end; "
        "ReqNodeNotAvail is a node down or reserved, or a time limit that crosses a maintenance window.",
        remedies=(
            Remedy(
                id="explain-pending",
                summary="See what blocks, then change size, time or QOS.",
                commands=("squeue --me --start", "scontrol show job <id>"),
                safe="never",
            ),
        ),
        wrong=(
            "Waiting on a per-job limit: it never starts.",
            "Cancelling for Resources or Priority: those are normal.",
        ),
        sources=("https://slurm.schedmd.com/job_reason_codes.html",),
    ),
    Cause(
        id="slurm_step_create",
        tier="root",
        title="A job step could not be started inside the job",
        detail="{reason}",
        tell="srun cannot create its step. 'Temporarily disabled, retrying' with 'Step created' after it is normal.",
        remedies=(
            Remedy(
                id="overlap-steps",
                summary="Let steps share with --overlap, or give each its part with --exact; repeat --gres in the "
                "step; start fewer at once.",
                commands=("srun --overlap --gres=gpu:<n> …",),
                safe="auto",
            ),
        ),
        wrong=("More nodes: the step waits for what an earlier step of the same job holds.",),
        judge=slurm_judges.slurm_step_create,
        sources=("https://slurm.schedmd.com/srun.html#OPT_overlap",),
    ),
    Cause(
        id="slurm_launch_failed",
        tier="site",
        title="A node could not start the job, or ended it for no reason of the job's",
        detail="{node}",
        tell="Failed prolog, a missing spool file, a failed launch, or a kill without any other sign, on one node.",
        remedies=(
            Remedy(
                id="exclude-and-release",
                summary="Exclude the node, and release the job if it is held.",
                commands=("scontrol release <id>", "sbatch --exclude={node} …"),
                safe="confirm",
            ),
        ),
        wrong=("Changing the script: it was never read.",),
        sources=("https://slurm.schedmd.com/faq.html",),
    ),
    Cause(
        id="slurm_controller_down",
        tier="aside",
        title="Slurm's controller does not answer",
        tell="The client cannot reach it or is told to slow down. Jobs are not gone: nothing is known of them.",
        remedies=(
            Remedy(
                id="back-off",
                summary="Wait and ask again less often; before sending a job again, look whether the first one was "
                "taken.",
                commands=("squeue --me -O JobID,Name,Comment",),
                safe="auto",
            ),
        ),
        wrong=("Submitting again at once: the job may be there twice.",),
        sources=("https://slurm.schedmd.com/troubleshoot.html",),
    ),
    Cause(
        id="ssh_denied_no_job",
        tier="aside",
        title="The node lets you in only while a job of yours runs there",
        tell="pam_slurm_adopt says so, the moment the job has ended.",
        remedies=(
            Remedy(
                id="use-step",
                summary="Look at a running job through a step instead of ssh.",
                commands=("srun --jobid <id> --overlap --pty bash",),
                safe="auto",
            ),
        ),
        wrong=("Taking it for a failure of the run.",),
        sources=("https://slurm.schedmd.com/pam_slurm_adopt.html",),
    ),
    Cause(
        id="container_start",
        tier="root",
        title="The container did not start",
        tell="pyxis, enroot, Apptainer or docker say so; pyxis prints the reason in the lines after it.",
        remedies=(
            Remedy(
                id="fix-image",
                summary="Check path (a .sqsh file needs / or ./ before it), credentials, and entrypoint "
                "(--no-container-entrypoint).",
                safe="auto",
            ),
        ),
        wrong=("Another node: the same image fails everywhere, unless only one node says so.",),
        explains=frozenset({"slurm_launch_failed", "disk_full"}),
        sources=("https://github.com/NVIDIA/pyxis/wiki", "NVIDIA/pyxis#61"),
    ),
)
