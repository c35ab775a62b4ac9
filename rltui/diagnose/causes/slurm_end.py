"""How Slurm ends jobs, and how it loses nodes, steps and its controller."""

from __future__ import annotations

from rltui.diagnose.cause import Cause
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_COLUMN = r"(?:(?:^|[|^\s])(?<![A-Z] )(?:JobState=|State=)?{word}(?:[|^]|\s+(?:\d+:\d+|\d|$)|$|\s+Reason=|\s+\S*\d))"


def _state(word: str) -> str:
    return _COLUMN.replace("{word}", word)


_REASONS = {
    "TIME LIMIT": "slurm_time_limit",
    "PREEMPTION": "slurm_preempted",
    "JOB REQUEUE": "slurm_preempted",
    "NODE FAILURE": "slurm_node_fail",
    "JOB NOT ENDING WITH SIGNALS": "slurm_launch_failed",
}
"""Why slurmstepd says that it cancels a job or step, and the cause of each."""


def read_reason(hit: Hit) -> Reading | None:
    """Return the cause that Slurm gives; the node that says so is none that failed: one of those that are left."""
    cause = _REASONS[hit.groups["reason"]]
    return Reading(0.95, cause, {} if cause == "slurm_node_fail" else {"node": hit.groups["step_node"]})


_SIGNAL = "https://slurm.schedmd.com/sbatch.html#OPT_signal"

CAUSES = (
    Cause(
        id="slurm_time_limit",
        tier="site",
        recovery="restart",
        title="The job reached its time limit",
        tell="Slurm says DUE TO TIME LIMIT, or the state is TIMEOUT. The signal alone does not tell it from "
        "preemption.",
        wordings=(
            Wording(
                anchor="cancelled at",
                pattern=rf"(?:JOB|STEP) \S+ ON (?P<step_node>[\w.-]+) CANCELLED AT \S+ DUE TO "
                rf"(?P<reason>{'|'.join(_REASONS)})\b",
                check=read_reason,
            ),
            *worded(
                "due to time limit",
                ("timed-out", r"(?i)submitit.{0,120}this job is timed-out|job not requeued because: timed-out"),
                ("timeout", _state("TIMEOUT")),
                ("deadline", _state("DEADLINE")),
                ("time limit", r"(?i)exceeded (?:its )?time limit|time limit (?:was )?(?:exceeded|reached|exhausted)"),
                confidence=0.95,
            ),
        ),
        explains=frozenset({"ray_actor_died"}),
        remedies=(
            Remedy(
                id="resume",
                summary="Resume from the newest checkpoint, with a longer time (up to the partition's limit) or "
                "in a chain of jobs.",
                commands=("sinfo -o '%P %l'",),
                safe="auto",
            ),
        ),
        wrong=("Reading the tracebacks below it: they are of processes being ended.",),
        sources=(_SIGNAL,),
    ),
    Cause(
        id="slurm_node_fail",
        tier="site",
        recovery="elsewhere",
        title="A node failed under the job",
        detail="{node}",
        tell="Slurm names the node, or the state is NODE_FAIL.",
        wordings=worded(
            # the node that says so is one that is left, not the one that failed
            ("", r"(?i)\bdue to node failure\b|\berror: node failure\b|\w_node_fail\b", "node"),
            ("node failure on", r"(?i)node failure on (?P<node>[\w.-]+)"),
            # a job of one node: the one that failed
            ("node_fail", r"\bJobState=NODE_FAIL\b.*\bNodeList=(?P<node>[\w.-]+)\s*$"),
            ("node_fail", r"^(?!\s*#).*(?:\b|\|)NODE_FAIL(?:\b|\|)"),
            ("boot_fail", r"(?:\b|\|)BOOT_FAIL(?:\b|\|)"),
            (
                "not responding",
                r"(?i)\bnodes? (?P<node>[\w.\[\],-]{1,200}) (?:is |are )?not responding",
            ),
            confidence=0.95,
        ),
        remedies=(
            Remedy(
                id="follow-or-resubmit",
                summary="If Slurm requeues it, follow the same id; else resubmit from the newest checkpoint "
                "without that node.",
                commands=("sinfo -R", "sbatch --exclude={node} …"),
                safe="auto",
            ),
        ),
        wrong=("Debugging the traceback of the surviving ranks.",),
        sources=("https://slurm.schedmd.com/job_state_codes.html",),
    ),
    Cause(
        id="slurm_preempted",
        tier="site",
        recovery="restart",
        title="The job was preempted or requeued",
        tell="DUE TO PREEMPTION or DUE TO JOB REQUEUE; errors that follow are of processes being ended.",
        wordings=worded(
            "due to preemption",
            ("due to job requeue", ""),
            ("preempted", r"(?i)this job is preempted|job (?:\S+ )?(?:has been |was |is )?preempted"),
            ("preempted", _state("PREEMPTED")),
            confidence=0.95,
        ),
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
        id="slurm_launch_failed",
        tier="site",
        recovery="elsewhere",
        title="A node could not start the job, or ended it for no reason of the job's",
        detail="{node}",
        tell="Failed prolog, a missing spool file, a failed launch, or a kill without any other sign, on one node.",
        wordings=worded(
            ("launch failed requeued held", ""),
            ("launch_failed_requeued_held", ""),
            (
                "execve()",
                r"execve\(\): (?![^\s/:]+: No such).{0,200}(?:No such file|Permission denied|Exec format|Input/output)",
            ),
            ("not ending with signals", ""),
            ("prolog", r"(?i)\bprolog\b.{0,60}(?:fail|error|timed out)|(?:fail|error)\w*.{0,40}\bprolog\b"),
            ("spool", r"(?i)slurmd?.{0,80}spool.{0,120}(?:no space|no such file|full|error|failed)"),
            ("task launch for", r"(?i)task launch for .{0,120}failed on node (?P<node>[\w.-]+)(?!.{0,40}credential)"),
            ("launch failed:", r"srun: error: tasks? [\d,-]+ launch failed: (?!.{0,40}credential)"),
            ("application launch failed", r"(?i)application launch failed(?!.{0,40}credential)"),
            # functions of Slurm's plugins, by which slurmstepd builds a step: auth_g_…, mpi_p_…, container_g_join
            (
                "slurmstepd: error: ",
                r"slurmstepd: error: (?:[a-z]+(?:_[a-z]+)?_[gp]_\w+(?:\(\))?:? .{0,80}\bfailed\b|"
                r"[a-z]+/[a-z]\w+: .{0,120}\b(?:can ?not load|failed|unable to)\b)",
                "slurmstepd",
            ),
            (  # the same in slurmd's own log
                "] error: ",
                r"\[\d+\.\w+\] error: [a-z]+(?:_[a-z]+)?_[gp]_\w+(?:\(\))?:? .{0,80}\bfailed\b",
                "failed",
            ),
            ("wtermsig", r"WTERMSIG (?:9|6|11|7)\b"),
            ("batch script", r"(?i)(?:unable|failed) to (?:create|read|write).{0,40}batch script"),
            ("batch job load failure", ""),
            ("i/o error writing script/environment", ""),
            confidence=0.85,
        ),
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
        id="output_folder_missing",
        tier="root",
        recovery="person",
        title="Slurm could not open the file for the job's output",
        detail="{path}",
        tell="slurmstepd names the file. Slurm makes no folders: that of --output must be there, on every node, before "
        "the job starts, and be yours to write.",
        wordings=worded(
            (
                "could not open",
                r"(?i)could not open std(?:out|err) file:?(?: (?P<path>[^\s:]+))?",
                "stdout stderr",
            ),
            confidence=0.95,
        ),
        explains=frozenset({"slurm_launch_failed", "slurm_step_create"}),
        remedies=(
            Remedy(
                id="make-folder",
                summary="Make the folder of --output and --error where compute nodes see it, then submit again.",
                commands=("mkdir -p <folder of --output>",),
            ),
        ),
        wrong=("mkdir in the job script: the file is opened before its first line runs.",),
        sources=("https://slurm.schedmd.com/sbatch.html",),
    ),
    Cause(
        id="slurm_controller_down",
        tier="aside",
        title="Slurm's controller does not answer",
        tell="The client cannot reach it or is told to slow down. Jobs are not gone: nothing is known of them.",
        wordings=worded(
            # the client's words for whatever goes wrong between it and a daemon, from Slurm's table of errors
            (
                "",
                r"(?i)\b(?:unable to (?:contact slurm|establish a)|could not establish a configuration|"
                r"socket timed out on send/recv|unexpected message received|message (?:send|receive) failure|"
                r"insane message length|zero bytes were transmitted|protocol authentication error|"
                r"communication (?:connection|shutdown) failure|"
                r"(?:dns srv lookup|resolve_ctls_from_dns_srv)\b.{0,80}(?:fail|error))",
                "slurm controller socket message bytes protocol communication configuration dns establish",
            ),
            (
                "rate limit exceeded",
                r"(?i)(?:slurm|sbatch|squeue|srun|sacct|sinfo|scontrol|salloc).{0,120}rate limit exceeded|rate limit "
                r"exceeded, please retry (?:momentarily|later)",
            ),
            ("slurm_load", r"(?i)slurm_load_\w+ (?:error|failure).{0,80}(?:contact|timed out|connect)"),
            ("slurm_persist_conn_open", r"(?i)slurm_persist_conn_open.{0,120}(?:failed|refused|error)"),
            ("slurmctld", r"(?i)slurmctld.{0,60}(?:not responding|is down|unreachable)"),
            ("sending persistinit msg", ""),
            ("problem talking to the database", ""),
            ("in standby mode", r"(?i)slurm backup controller in standby mode"),
            confidence=0.9,
        ),
        remedies=(
            Remedy(
                id="back-off",
                summary="Wait and ask again less often; before sending a job again, look whether the first one "
                "was taken.",
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
        wordings=worded(
            ("pam_slurm", r"(?i)access denied by pam_slurm"),
            ("no active jobs on this node", ""),
            confidence=0.95,
        ),
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
)
