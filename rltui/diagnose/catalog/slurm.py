"""Slurm and what it starts: terminal states, refusals, steps, containers."""

from __future__ import annotations

from rltui.diagnose import slurm_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.verdicts import Remedy

_ON = r"(?: ON (?P<node>[\w.-]+))?.{0,80}"
_COLUMN = r"(?:(?:^|[|^\s])(?:JobState=|State=)?{word}(?:[|^]|\s+(?:\d+:\d+|\d|$)|$|\s+Reason=|\s+\S*\d))"


def _state(word: str) -> str:
    return _COLUMN.replace("{word}", word)


# Slurm builds the names of limits from scope, resource and span.
_LIMIT_NAMES = " ".join(
    f"{scope}{resource}{span}"
    for scope in ("assocgrp", "assocmax", "assocmin", "qosgrp", "qosmax", "qosmin")
    for resource in (
        "cpu", "gres", "mem", "memory", "node", "billing", "bb", "energy", "license", "jobs", "job", "submitjobs",
        "submitjob", "wall", "wallduration", "tres", "unknown", "prio",
    )
    for span in (
        "", "limit", "minutes", "minuteslimit", "runminutes", "runminuteslimit", "perjob", "perjoblimit", "peruser",
        "peruserlimit", "pernode", "pernodelimit", "peraccount", "peraccountlimit", "minutesperjob",
        "minutesperjoblimit", "notsatisfied", "threshlimit",
    )
)  # fmt: skip

_REFUSALS = (
    r"(?:sbatch|srun|salloc|error|_slurm_rpc_\w+|allocation failure|submission failed|allocate failed|Job submit)\b.*"
    r"(?:Invalid (?:partition|account|qos|generic resource|job array|node name|feature|time limit|reservation|dependency)|"
    r"No partition specified|group not permitted|Node count specification invalid|"
    r"Requested (?:node|partition) configuration (?:is )?not available|Requested time limit is invalid|"
    r"violates accounting/QOS policy|Access/permission denied|Required node not available|Memory required by task|"
    r"More processors requested than permitted|CPU count (?:per node )?(?:can not|specification)|"
    r"Unable to allocate resources|Job dependency problem|Pathname of a file|Batch script contains DOS|"
    r"Job size specification needs|GRES.{0,40}invalid|Invalid --)"
)

SIGNS = (
    *signs(
        "slurm_time_limit",
        ("due to time limit", rf"(?:JOB|STEP) \S+{_ON}DUE TO TIME LIMIT|DUE TO TIME LIMIT"),
        ("timed-out", r"(?i)submitit.{0,120}this job is timed-out|job not requeued because: timed-out"),
        ("timeout", _state("TIMEOUT")),
        ("deadline", _state("DEADLINE")),
        confidence=0.95,
    ),
    *signs(
        "slurm_node_fail",
        ("due to node failure", rf"(?:JOB|STEP) \S+{_ON}DUE TO NODE FAILURE|DUE TO NODE FAILURE"),
        ("node failure on", r"(?i)node failure on (?P<node>[\w.-]+)"),
        ("node_fail", r"(?:\b|\|)NODE_FAIL(?:\b|\|)"),
        ("_node_fail", r"\w+_node_fail\b"),
        ("boot_fail", r"(?:\b|\|)BOOT_FAIL(?:\b|\|)"),
        (
            "not responding",
            r"(?i)(?:srun|slurm\w*|sched|sinfo)?.{0,40}\bnodes? (?P<node>[\w.\[\],-]+) (?:is |are )?not responding",
        ),
        confidence=0.95,
    ),
    *signs(
        "slurm_preempted",
        ("due to preemption", rf"(?:JOB|STEP) \S+{_ON}DUE TO PREEMPTION|DUE TO PREEMPTION"),
        ("due to job requeue", ""),
        ("preempted", r"(?i)this job is preempted|job (?:has been |was )?preempted|preempted by"),
        ("preempted", _state("PREEMPTED")),
        confidence=0.95,
    ),
    Sign(
        cause="slurm_submit_reject",
        anchor="error",
        pattern=_REFUSALS,
        unless=r"create step|Task launch|Unable to contact|Socket timed out",
        confidence=0.95,
    ),
    Sign(cause="slurm_submit_reject", anchor="_slurm_rpc_", pattern=_REFUSALS, confidence=0.95),
    Sign(cause="slurm_submit_reject", anchor="allocation failure", pattern=_REFUSALS, confidence=0.9),
    *signs(
        "slurm_submit_reject",
        ("error:", r"error: (?:QOS|Assoc)(?:Max|Grp|Min)\w+Limit", _LIMIT_NAMES),
        (
            "batch job submission failed",
            r"Batch job submission failed: (?!Unable to contact|Socket timed out|Rate limit|I/O error)",
        ),
        ("unrecognized option", r"(?:sbatch|srun|salloc): unrecognized option"),
        (
            "sbatch: error",
            r"sbatch: error: (?:invalid|Invalid|unrecognized|Unable to open file|You must specify|Please specify|.{0,60}(?:not allowed|required|exceeds))",
        ),
        confidence=0.9,
    ),
    *signs(
        "slurm_pending",
        ("reqnodenotavail", ""),
        ("dependencyneversatisfied", ""),
        ("assoc", r"\bAssoc(?:Grp|Max|Min)\w+", _LIMIT_NAMES),
        ("qos", r"\bQOS(?:Grp|Max|Min)\w+", _LIMIT_NAMES),
        ("partitiontimelimit", r"(?:^|[\s(])Partition(?:Time|Node)Limit\b"),
        ("partitionnodelimit", r"(?:^|[\s(])Partition(?:Time|Node)Limit\b"),
        ("jobheldadmin", ""),
        ("badconstraints", r"(?:^|[\s(])BadConstraints\b"),
        ("nodes required for job", r"(?i)nodes required for job are down, drained or reserved"),
        ("reserved for maintenance", ""),
        confidence=0.85,
        unless=r"(?i)error:|submission failed",
    ),
    Sign(
        cause="slurm_step_create",
        anchor="unable to create step",
        pattern=r"Unable to create step for job \S+: (?P<reason>.+)",
        unless=r"(?i)temporarily disabled|retrying",
        confidence=0.95,
    ),
    Sign(
        cause="slurm_step_create",
        anchor="job credential",
        pattern=r"(?i)(?:job credential expired|invalid job credential|job credential revoked)",
    ),
    Sign(
        cause="step_waiting", anchor="step creation", pattern=r"(?i)step creation (?P<word>temporarily|still) disabled"
    ),
    Sign(cause="step_created", anchor="step created", pattern=r"(?i)step created for"),
    *signs(
        "slurm_launch_failed",
        ("launch failed requeued held", ""),
        ("execve()", r"execve\(\): .{0,200}(?:No such file|Permission denied|Exec format|Input/output)"),
        ("not ending with signals", ""),
        ("prolog", r"(?i)\bprolog\b.{0,60}(?:fail|error|timed out)|(?:fail|error)\w*.{0,40}\bprolog\b"),
        ("spool", r"(?i)slurmd?.{0,80}spool.{0,120}(?:no space|no such file|full|error|failed)"),
        ("task launch for", r"(?i)task launch for .{0,120}failed on node (?P<node>[\w.-]+)(?!.{0,40}credential)"),
        ("application launch failed", r"(?i)application launch failed(?!.{0,40}credential)"),
        ("wtermsig", r"WTERMSIG (?:9|6|11|7)\b"),
        ("batch script", r"(?i)(?:unable|failed) to (?:create|read|write).{0,40}batch script|batch job load failure"),
        ("zero bytes were transmitted", ""),
        ("i/o error writing script/environment", ""),
        confidence=0.85,
    ),
    *signs(
        "slurm_controller_down",
        ("unable to contact slurm", r"(?i)unable to contact slurm controller"),
        ("socket timed out on send/recv", ""),
        (
            "rate limit exceeded",
            r"(?i)(?:slurm|sbatch|squeue|srun|sacct|sinfo|scontrol|salloc).{0,120}rate limit exceeded|rate limit exceeded, please retry (?:momentarily|later)",
        ),
        ("slurm_load", r"(?i)slurm_load_\w+ (?:error|failure).{0,80}(?:contact|timed out|connect)"),
        ("slurm_persist_conn_open", r"(?i)slurm_persist_conn_open.{0,120}(?:failed|refused|error)"),
        (
            "slurmctld",
            r"(?i)(?:resolve_ctls_from_dns_srv|slurmctld.{0,60}(?:DNS SRV lookup failed|not responding|is down))",
        ),
        ("establish a configuration source", ""),
        confidence=0.9,
    ),
    *signs(
        "ssh_denied_no_job",
        ("pam_slurm", r"(?i)access denied by pam_slurm"),
        ("no active jobs on this node", ""),
        confidence=0.95,
    ),
    *signs(
        "container_start",
        ("pyxis", r"error: pyxis:|pyxis: (?:couldn't|failed|child \d+ failed|container start failed)"),
        ("enroot", r"(?i)enroot(?:-\w+)?: (?:failed|error)|\[ERROR\].{0,80}(?:enroot|squashfs|URI|image)"),
        ("spank_pyxis", r"spank_pyxis.{0,60}failed"),
        ("error response from daemon", r"(?i)error response from daemon"),
        ("nvidia-container-cli", r"(?i)nvidia-container-cli: .{0,60}error"),
        ("container", r"(?i)FATAL: +.{0,80}(?:container|image)|container creation failed|OCI runtime.{0,40}failed"),
        ("could not open image", ""),
        ("manifest unknown", r"(?i)manifest unknown|invalid reference format|pull access denied"),
        ("pull access denied", ""),
        ("invalid image reference", ""),
        confidence=0.9,
    ),
)

_SIGNAL = "https://slurm.schedmd.com/sbatch.html#OPT_signal"

CAUSES = (
    Cause(
        id="slurm_time_limit",
        tier="site",
        title="The job reached its time limit",
        tell="Slurm says DUE TO TIME LIMIT, or the state is TIMEOUT. The signal alone does not tell it from preemption.",
        remedies=(
            Remedy(
                id="resume",
                summary="Resume from the newest checkpoint, with a longer time (up to the partition's limit) or in a chain of jobs.",
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
        detail="node {node}",
        tell="Slurm names the node, or the state is NODE_FAIL.",
        remedies=(
            Remedy(
                id="follow-or-resubmit",
                summary="If Slurm requeues it, follow the same id; else resubmit from the newest checkpoint without that node.",
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
                summary="Let steps share with --overlap, or give each its part with --exact; repeat --gres in the step; start fewer at once.",
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
        detail="node {node}",
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
                summary="Wait and ask again less often; before sending a job again, look whether the first one was taken.",
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
                summary="Check path (a .sqsh file needs / or ./ before it), credentials, and entrypoint (--no-container-entrypoint).",
                safe="auto",
            ),
        ),
        wrong=("Another node: the same image fails everywhere, unless only one node says so.",),
        explains=frozenset({"slurm_launch_failed", "disk_full"}),
        sources=("https://github.com/NVIDIA/pyxis/wiki", "NVIDIA/pyxis#61"),
    ),
)
