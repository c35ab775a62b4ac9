"""How they say it: Slurm, pyxis and container runtimes."""

from rltui.diagnose.signs import Sign, signs

_ON = r"(?: ON (?P<node>[\w.-]+))?.{0,80}"

_COLUMN = r"(?:(?:^|[|^\s])(?<![A-Z] )(?:JobState=|State=)?{word}(?:[|^]|\s+(?:\d+:\d+|\d|$)|$|\s+Reason=|\s+\S*\d))"


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
    r"(?:sbatch|srun|salloc|error|_slurm_rpc_\w+|allocation failure|submission failed|allocate failed|"
    r"Job submit)\b.{0,160}"
    r"(?:Invalid (?:partition|account|qos|generic resource|job array|node name|feature|time limit|reservation|"
    r"dependency)|"
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
        ("time limit", r"(?i)exceeded (?:its )?time limit|time limit (?:was )?(?:exceeded|reached|exhausted)"),
        confidence=0.95,
    ),
    *signs(
        "slurm_node_fail",
        ("due to node failure", rf"(?:JOB|STEP) \S+{_ON}DUE TO NODE FAILURE|DUE TO NODE FAILURE"),
        ("due to node failure", r"(?i)(?:requeued|cancell?ed|terminated|killed|ended).{0,40}due to node failure"),
        ("node failure on", r"(?i)node failure on (?P<node>[\w.-]+)"),
        ("node_fail", r"^(?!\s*#).*(?:\b|\|)NODE_FAIL(?:\b|\|)"),
        ("_node_fail", r"\w_node_fail\b"),
        ("boot_fail", r"(?:\b|\|)BOOT_FAIL(?:\b|\|)"),
        (
            "not responding",
            r"(?i)\bnodes? (?P<node>[\w.\[\],-]{1,200}) (?:is |are )?not responding",
        ),
        confidence=0.95,
    ),
    *signs(
        "slurm_preempted",
        ("due to preemption", rf"(?:JOB|STEP) \S+{_ON}DUE TO PREEMPTION|DUE TO PREEMPTION"),
        ("due to job requeue", ""),
        ("preempted", r"(?i)this job is preempted|job (?:\S+ )?(?:has been |was |is )?preempted"),
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
        (
            "fatal:",
            r"(?:sbatch|salloc|srun): fatal: (?:No |SLURM_|Invalid |Can't |Unable to (?:open|find|parse|read) |--)",
        ),
        "this does not look like a batch script",
        ("unrecognized option", r"(?:sbatch|srun|salloc): unrecognized option"),
        (
            "sbatch: error",
            r"sbatch: error: (?:invalid|Invalid|unrecognized|Unable to open file|You must specify|Please specify|"
            r".{0,60}(?:not allowed|required|exceeds))",
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
        ("partitiondown", r"(?:^|[\s(])Partition(?:Down|Inactive)\b", "partitiondown partitioninactive"),
        ("invalid", r"(?:^|[\s(])Invalid(?:QOS|Account)\)?", "invalidqos invalidaccount"),
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
        cause="step_waiting",
        anchor="step creation",
        pattern=r"(?i)(?:job (?P<job>\d+) )?step creation (?P<word>temporarily|still) disabled",
    ),
    Sign(cause="step_created", anchor="step created", pattern=r"(?i)step created for (?:StepId=|job )?(?P<job>\d+)?"),
    *signs(
        "slurm_launch_failed",
        ("launch failed requeued held", ""),
        ("launch_failed_requeued_held", ""),
        ("execve()", r"execve\(\): .{0,200}(?:No such file|Permission denied|Exec format|Input/output)"),
        ("not ending with signals", ""),
        ("prolog", r"(?i)\bprolog\b.{0,60}(?:fail|error|timed out)|(?:fail|error)\w*.{0,40}\bprolog\b"),
        ("spool", r"(?i)slurmd?.{0,80}spool.{0,120}(?:no space|no such file|full|error|failed)"),
        ("task launch for", r"(?i)task launch for .{0,120}failed on node (?P<node>[\w.-]+)(?!.{0,40}credential)"),
        ("launch failed:", r"srun: error: tasks? [\d,-]+ launch failed: (?!.{0,40}credential)"),
        ("application launch failed", r"(?i)application launch failed(?!.{0,40}credential)"),
        ("wtermsig", r"WTERMSIG (?:9|6|11|7)\b"),
        ("batch script", r"(?i)(?:unable|failed) to (?:create|read|write).{0,40}batch script"),
        ("batch job load failure", ""),
        ("i/o error writing script/environment", ""),
        confidence=0.85,
    ),
    *signs(
        "slurm_controller_down",
        ("unable to contact slurm", r"(?i)unable to contact slurm controller"),
        ("socket timed out on send/recv", ""),
        (
            "rate limit exceeded",
            r"(?i)(?:slurm|sbatch|squeue|srun|sacct|sinfo|scontrol|salloc).{0,120}rate limit exceeded|rate limit "
            r"exceeded, please retry (?:momentarily|later)",
        ),
        ("slurm_load", r"(?i)slurm_load_\w+ (?:error|failure).{0,80}(?:contact|timed out|connect)"),
        ("slurm_persist_conn_open", r"(?i)slurm_persist_conn_open.{0,120}(?:failed|refused|error)"),
        ("resolve_ctls_from_dns_srv", ""),
        ("dns srv lookup failed", ""),
        ("slurmctld", r"(?i)slurmctld.{0,60}(?:not responding|is down|unreachable)"),
        ("establish a configuration source", ""),
        ("zero bytes were transmitted", ""),
        ("sending persistinit msg", ""),
        ("problem talking to the database", ""),
        ("in standby mode", r"(?i)slurm backup controller in standby mode"),
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
        ("enroot", r"(?i)enroot(?:-\w+)?: (?:failed|error)|\[ERROR\].{0,80}enroot"),
        ("[error]", r"\[ERROR\] .{0,80}(?:squashfs|Invalid image|Could not .{0,40}(?:image|URI|registry))"),
        ("[error]", r"\[ERROR\] No such file or directory: \S+\.sqsh\b"),
        ("spank_pyxis", r"spank_pyxis.{0,60}failed"),
        ("error response from daemon", r"(?i)error response from daemon"),
        ("nvidia-container-cli", r"(?i)nvidia-container-cli: .{0,60}error"),
        ("fatal:", r"FATAL: {2,}.{0,80}(?i:container|image|overlay|sif\b|oci)"),
        ("container creation failed", ""),
        ("retval", r"^ABORT {1,4}: Retval = [1-9]"),
        ("oci runtime", r"(?i)OCI runtime.{0,40}failed"),
        ("could not open image", ""),
        ("manifest unknown", ""),
        ("invalid reference format", ""),
        ("pull access denied", ""),
        ("invalid image reference", ""),
        ("pull rate limit", r"(?i)reached your (?:unauthenticated )?pull rate limit"),
        ("fatal", r"FATAL: +(?:.{0,40}(?:docker://|squashfs|bind path|mount ))"),
        confidence=0.9,
    ),
)
