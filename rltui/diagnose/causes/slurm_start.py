"""What keeps a job, a step or a container from starting."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.diagnose.cause import Cause
from rltui.diagnose.matches import Match, Matches, Verdict, surest, unless_followed_by
from rltui.diagnose.shells import NOT_FOUND
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Wording, worded

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
_UNHEARD = (
    "Unable to contact|Socket timed out|Rate limit|Unexpected message|Protocol auth|Message (?:send|receive)|"
    "Insane message|Zero|Communication|Connection|Slurm backup|Unable to establish"
)
"""Beginnings of what says that the controller did not hear of the job: no refusal, `slurm_controller_down`."""

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


def slurm_step_create(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A refusal counts; a retry only if it is said again ('still disabled') and no step came about after it.

    srun says "temporarily disabled" at once and "still disabled" after a minute and more of waiting, and "Step created"
    when the wait is over.
    """
    verdict = surest(matches)
    if verdict is not None:
        return verdict
    waiting = unless_followed_by(all_matches.of("step_waiting"), all_matches.of("step_created"), same="job")
    if any(one.fields["word"] == "still" for one in waiting) or len(waiting) >= 3:
        return Verdict(confidence=0.75, matches=waiting)
    return None


def setup_line_failed(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """The job script's word makes sure, and the line says what failed; a script that got to its Ray went on without.

    The two are in different files, so what each of them names is put together.
    """
    verdict = surest(unless_followed_by(matches, all_matches.of("ray_up")))
    if verdict is None:
        return None
    named = {name: text for match in reversed(verdict.matches) for name, text in match.fields.items()}
    return Verdict(confidence=verdict.confidence, matches=verdict.matches, fields=named)


CAUSES = (
    Cause(
        id="setup_line_failed",
        tier="root",
        title="A line that prepares the environment failed",
        detail="{what}",
        tell="A module is unknown, there is no module command, or a conda or virtual environment is not there. The "
        "line is in the set-up of the cluster's profile, or in the script before the program.",
        wordings=(
            *worded(
                ("module(s) are unknown", r"module\(s\) are unknown: \"?(?P<what>[^\"]+)"),
                ("cannot be loaded as requested", r"cannot be loaded as requested: \"?(?P<what>[^\"]+)"),
                ("unable to locate a modulefile for", r"Unable to locate a modulefile for ['\"](?P<what>[^'\"]+)"),
                ("", rf"(?P<what>\b(?:module|ml): {NOT_FOUND})$", "module ml"),
                ("conda environment", r"(?:Could not find|Not a) conda environment: (?P<what>\S+)"),
                ("conda activate", r"^\w+(?:Error|NotFound): .{0,80}'conda activate'"),
                ("error: ", r"^(?P<what>(?:conda|mamba): error: .{1,60})"),
                (
                    "",
                    r"(?i)\b(?:lmod\b|modulecmd(?:\b|_)).{0,200}(?:no such file|not found|fail|error)",
                    "lmod modulecmd",
                ),
                ("activate", r"line \d+: (?P<what>\S+/bin/activate: No such file or directory)$"),
                confidence=0.8,
            ),
            *worded(
                ("the set-up in the job script", r"the set-up in the job script ended with code (?P<code>\d+)"),
                confidence=0.95,
            ),
        ),
        weigh=setup_line_failed,
        explains=frozenset({"env_import_broken", "path_missing"}),
        remedies=(
            Remedy(
                id="mend-setup-lines",
                summary="Put the line right in the profile's setup_lines (or in the script), as a login shell of a "
                "compute node takes it; the checks of a cluster try these lines.",
                commands=("module avail; conda env list", "rltui doctor"),
                safe="never",
            ),
        ),
        wrong=("Installing what the program then misses: it is in the environment that was not activated.",),
        sources=(
            "https://lmod.readthedocs.io/en/latest/",
            "https://docs.conda.io/projects/conda/en/latest/user-guide/tasks/manage-environments.html",
        ),
    ),
    Cause(
        id="profile_unusable",
        tier="root",
        title="The cluster's profile names something that a job there cannot use",
        detail="{what}",
        tell="The job ended before anything was started: its python is not on the node, or its env_file is missing, "
        "somebody else's, or open to others.",
        wordings=worded(
            ("was not found on", r"(?P<what>the python (?:of the cluster's profile|outside the container) was not .+)"),
            (
                "env_file",
                r"\b(?P<what>env_file \S+ (?:cannot be read: .+|belongs to somebody else|can be read by others))",
            ),
            confidence=0.95,
        ),
        remedies=(
            Remedy(
                id="mend-profile",
                summary="Set python: and env_file: of the profile to what nodes see (chmod 600 for env_file), and see "
                "what a job would get.",
                commands=("rltui doctor", "chmod 600 <env_file>"),
                safe="never",
            ),
        ),
        wrong=("Resubmitting as it is: it ends the same way.",),
        sources=("onnode/environment.py and the job script of rltui",),
    ),
    Cause(
        id="slurm_submit_reject",
        tier="root",
        title="Slurm refused the job as it was asked for",
        tell="The client's error names what is wrong; a limit by name may stand in the line before the general one.",
        wordings=(
            Wording(
                anchor="error",
                pattern=_REFUSALS,
                unless=r"create (?:job )?step|[Nn]ode failure on|Task launch|Unable to contact|Socket timed out",
                confidence=0.95,
            ),
            Wording(anchor="_slurm_rpc_", pattern=_REFUSALS, confidence=0.95),
            Wording(anchor="allocation failure", pattern=_REFUSALS, confidence=0.9),
            *worded(
                ("error:", r"error: (?:QOS|Assoc)(?:Max|Grp|Min)\w+Limit", _LIMIT_NAMES),
                ("allocate failed", rf"Job submit/allocate failed: (?!{_UNHEARD})"),
                (
                    "batch job submission failed",
                    rf"(?i)Batch job submission failed: (?!{_UNHEARD}|I/O error)",
                ),
                (
                    "fatal:",
                    r"(?:sbatch|salloc|srun): fatal: (?:No |SLURM_|Invalid |Can't |Unable to (?:open|find|parse|read) "
                    r"|--)",
                ),
                "this does not look like a batch script",
                ("unrecognized option", r"(?:sbatch|srun|salloc): unrecognized option"),
                (
                    "sbatch: error",
                    r"sbatch: error: (?:invalid|Invalid|unrecognized|Unable to open file|You must specify|Please "
                    r"specify|.{0,80}(?:\bnot (?:allowed|permitted|acceptable|supported)|no longer|required|exceeds|"
                    r"[Pp]lease (?:use|switch)))",
                ),
                confidence=0.9,
            ),
        ),
        explains=frozenset({"slurm_pending"}),
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
        sources=("https://slurm.schedmd.com/sbatch.html",),
    ),
    Cause(
        id="slurm_pending",
        tier="aside",
        title="The job cannot start as it was asked for, or waits for a limit or node",
        tell="Limits per job or of the partition never pass; limits of a group or user pass when other jobs end; "
        "ReqNodeNotAvail is a node down or reserved, or a time limit that crosses a maintenance window.",
        wordings=worded(
            ("reqnodenotavail", ""),
            ("dependencyneversatisfied", ""),
            ("", r"\b(?:Assoc|QOS)(?:Grp|Max|Min)\w+", _LIMIT_NAMES),
            ("partition", r"(?:^|[\s(=])Partition(?:Time|Node)Limit\b", "partitiontimelimit partitionnodelimit"),
            ("jobheldadmin", ""),
            ("badconstraints", r"(?:^|[\s(])BadConstraints\b"),
            ("nodes required for job", r"(?i)nodes required for job are down, drained or reserved"),
            ("reserved for maintenance", ""),
            ("partitiondown", r"(?:^|[\s(])Partition(?:Down|Inactive)\b", "partitiondown partitioninactive"),
            ("invalid", r"(?:^|[\s(])Invalid(?:QOS|Account)\)?", "invalidqos invalidaccount"),
            confidence=0.85,
            unless=r"(?i)error:|submission failed",
        ),
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
        wordings=(
            Wording(
                anchor="unable to create",
                pattern=r"Unable to create (?:job )?step(?: for job \S+)?: (?P<reason>.+)",
                unless=r"(?i)temporarily disabled|retrying",
                confidence=0.95,
            ),
            Wording(
                anchor="unable to confirm allocation",
                pattern=r"srun: error: Unable to confirm allocation for job \S+: (?P<reason>(?!Unable to contact).+)",
            ),
            Wording(
                anchor="not found in the job",
                pattern=r"srun: error: Step requested (?P<reason>GRES \(.{1,80}\) not found in the job)",
                confidence=0.95,
            ),
            # NeMo RL's ray.sub, of the step of a worker
            Wording(
                anchor="background srun",
                pattern=r"(?i)background srun '?(?P<reason>(?!ray-?_?head)[\w.-]+)'? died",
                confidence=0.7,
            ),
            Wording(
                anchor="job credential",
                pattern=r"(?i)(?:job credential expired|invalid job credential|job credential revoked)",
            ),
        ),
        weigh=slurm_step_create,
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
        sources=("https://slurm.schedmd.com/srun.html#OPT_overlap",),
    ),
    Cause(
        id="container_start",
        tier="root",
        title="The container did not start",
        tell="pyxis, enroot, Apptainer or docker say so; pyxis prints the reason in the lines after it.",
        wordings=worded(
            ("pyxis", r"error: pyxis:|pyxis: (?:couldn't|failed|child \d+ failed|container start failed)"),
            (
                "enroot",
                r"(?i)enroot(?:-[\w-]+)?: (?:failed|error|line \d+: |.{1,80}: \w[\w ]+$)|\[ERROR\].{0,80}enroot",
            ),
            ("[error]", r"\[ERROR\] .{0,80}(?:squashfs|Invalid image|Could not .{0,40}(?:image|URI|registry))"),
            ("[error]", r"\[ERROR\] No such file or directory: \S+\.sqsh\b"),
            ("spank_pyxis", r"spank_pyxis.{0,60}failed"),
            ("spank plugin", r'SPANK plugin "pyxis" option "[\w-]+" not found'),
            ("error response from daemon", r"(?i)error response from daemon"),
            ("nvidia-container-cli", r"(?i)nvidia-container-cli: .{0,60}error"),
            ("fatal:", r"^FATAL: {2,}\S"),  # so many blanks: Apptainer's
            # so does the program that makes its namespaces
            ("error", r"^ERROR {2}: .{0,80}(?:namespace\b|\b[UG]ID map\b|\bset[ug]id\b|new[ug]idmap)"),
            ("container creation failed", ""),
            ("retval", r"^ABORT {1,4}: Retval = [1-9]"),
            ("oci runtime", r"(?i)OCI runtime.{0,40}(?:failed|\berror\b|denied|not found|attempted)"),
            (  # what podman and docker run containers with, and the numbers of users that rootless ones need
                "error",
                r"(?i)^error: (?:.{0,80}: )?(?:crun|runc|conmon|netavark|slirp4netns)\b",
                "crun runc conmon netavark slirp",
            ),
            (
                "image",
                r"(?i)\b(?:fail\w*|error|unable|could not)\b.{0,20}\b(?:pull|build)\w* (?:\w+ )?image\b",
            ),
            ("ranges found for user", r"(?i)no sub[ug]id ranges found for user"),
            "unable to start container process",
            ("could not open image", ""),
            ("manifest unknown", ""),
            ("invalid reference format", ""),
            ("pull access denied", ""),
            ("invalid image reference", ""),
            ("pull rate limit", r"(?i)reached your (?:unauthenticated )?pull rate limit"),
            ("toomanyrequests", r"toomanyrequests: "),
            ("registry", r"(?i)\[ERROR\].{0,200}registry.{0,200}(?:\b4(?:01|03|04|29)\b|error code)"),
            confidence=0.9,
        ),
        explains=frozenset({"slurm_launch_failed", "disk_full"}),
        remedies=(
            Remedy(
                id="fix-image",
                summary="Check path (a .sqsh file needs / or ./ before it), credentials, and entrypoint "
                "(--no-container-entrypoint).",
                safe="auto",
            ),
        ),
        wrong=("Another node: the same image fails everywhere, unless only one node says so.",),
        sources=("https://github.com/NVIDIA/pyxis/wiki", "NVIDIA/pyxis#61"),
    ),
)

STATES = {
    "step_waiting": (
        Wording(
            anchor="step creation",
            pattern=r"(?i)(?:job (?P<job>\d+) )?step creation (?P<word>temporarily|still) disabled",
        ),
    ),
    "step_created": (Wording(anchor="step created", pattern=r"(?i)step created for (?:StepId=|job )?(?P<job>\d+)?"),),
}
