"""Runs as steps of a job that is there already: what that job has, and how a step is started in it and found again."""

from __future__ import annotations

import re

from msgspec import Struct

from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.slurm.job_details import read_jobs
from rltui.cluster.slurm.nodelist import NodeListError, expand
from rltui.cluster.slurm.records import read_pairs, read_time, split_records, whole
from rltui.onnode.allocation import step_command

IMMEDIATE_S = 30
"""Slurm starts a step that overlaps all others at once, or something is wrong."""

_PART = re.compile(r" Nodes=(?P<nodes>\S+) CPU_IDs=(?P<cpus>[\d,-]+) Mem=\d+ GRES=(?P<gres>\S*)")
_GPUS = re.compile(r"\bgpu(?::[^:,()]+)?:(\d{1,6})")

START = r"""
exec </dev/null >>"$0" 2>&1
attempt=$1 name=$2 job=$3
shift 3
# what a shell of salloc hands on, srun would take for options
for each in $(env | sed -n 's/^\(S\(LURM\|RUN\)_[A-Z0-9_]*\)=.*/\1/p'); do
    [ "$each" = SLURM_CONF ] || unset "$each"
done
(
    trap '' HUP
    "$@"
    echo "rltui: srun ended with code $?"
    [ -e "$attempt/end.json" ] && exit
    # srun may be killed while its step goes on, which writes its own end then: a list may lack it, but files grow
    missed=0
    for turn in 1 2 3 4 5 6 7; do
        steps=$(squeue --steps "--jobs=$job" --noheader --format=%j 2>/dev/null) || exit
        if printf '%s\n' "$steps" | grep -qxF -e "$name" || find "$attempt" -type f -newer "$0" | grep -q .
        then missed=0; else missed=$((missed + 1)); fi
        [ "$missed" = 2 ] && break
        [ "$turn" = 7 ] && exit
        touch "$0"
        sleep 5
    done
    [ -e "$attempt/end.json" ] && exit
    [ -e "$attempt/slurm.json" ] || exit
    set -o noclobber
    printf '{"schema":1,"outcome":"lost","exit_code":null,"reason":"%s","at":%s}\n' \
        "its step in job $job ended without a word" "$(date +%s)" >"$attempt/end.json"
) &
"""
"""Starts srun out of the relay's reach and returns; what srun says goes to ``$0``. Words: attempt, step, job, srun …

The run lives as long as its step. It needs srun for nothing, but srun is the one who is told when the step is gone; and
a second process of srun's, its shepherd, ends the step where it outlives the first.
"""


class Allocation(Struct, frozen=True, kw_only=True):
    """A job as a place to run in.

    Attributes:
        job: The job.
        uid: Its owner's number.
        nodes: Its nodes, as Slurm orders them.
        cpus: CPU cores that it has on the node that has fewest.
        gpus: GPUs on the node that has fewest.
        end_at: When its time limit ends it, epoch seconds of the cluster; 0: never, or nobody knows.
    """

    job: JobSnapshot
    uid: str
    nodes: tuple[str, ...]
    cpus: int
    gpus: int
    end_at: float


def read_allocations(text: str) -> tuple[Allocation, ...]:
    """Return the jobs in the output of ``scontrol --details --oneliner show job``."""
    lines = [line for line in text.splitlines() if line.startswith("JobId=")]
    return tuple(_allocation(line) for line in lines)


def _allocation(line: str) -> Allocation:
    details, pairs = read_jobs(line)[0], read_pairs(line, free="")
    nodes = _nodes(pairs.get("NodeList", ""))
    parts = list(_PART.finditer(line))
    cpus = [_count(part["cpus"]) for part in parts]
    gpus = [sum(int(count) for count in _GPUS.findall(part["gres"])) for part in parts]
    each = max(1, len(nodes))
    return Allocation(
        job=details.job,
        uid=details.uid,
        nodes=nodes,
        cpus=min(cpus, default=(whole(pairs.get("NumCPUs", "")) or 1) // each) or 1,
        gpus=min(gpus, default=details.gpus // each),
        end_at=read_time(pairs.get("EndTime", "")),
    )


def _nodes(folded: str) -> tuple[str, ...]:
    try:
        return () if folded in ("", "(null)") else expand(folded)
    except NodeListError:
        return ()


def _count(ranges: str) -> int:
    """How many numbers are in ``0-3,8``."""
    ends = [one.partition("-") for one in ranges.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _, last in ends if first)


def start_argv(attempt: str, log: str, step: str, job_id: str, head: str, cpus: int, script: list[str]) -> list[str]:
    """The command that starts ``script`` as a step on ``head`` and returns at once.

    Args:
        attempt: The attempt's directory.
        log: Where what srun says goes.
        step: The step's name, by which it is found again.
        job_id: The allocation.
        head: The node.
        cpus: CPU cores of it.
        script: The script with its shell.
    """
    srun = [*step_command([head], cpus), f"--jobid={job_id}", f"--job-name={step}", f"--immediate={IMMEDIATE_S}"]
    # the relay's child leads its group, so setsid has to fork; -w waits for the shell and hands its status on
    return ["setsid", "-w", "sh", "-c", START, log, attempt, step, job_id, *srun, *script]


def shell_argv(job_id: str, node: str, folder: str, part: int | None = None) -> list[str]:
    """The command of a shell in a terminal, as a step on ``node`` that takes nothing away from the job's others.

    Args:
        job_id: The job.
        node: One of its nodes.
        folder: Where the shell begins, absolute.
        part: The number of the component that the node is in, of a het job.
    """
    srun = ["srun", f"--jobid={job_id}", "--overlap", "--pty", "--nodes=1", "--ntasks=1", f"--nodelist={node}"]
    srun += ["--cpu-bind=none", "--mem=0", "--mpi=none", f"--immediate={IMMEDIATE_S}", f"--chdir={folder}"]
    srun += [] if part is None else [f"--het-group={part}"]
    return [*srun, "bash", "-l"]


def steps_argv(mark: str) -> list[str]:
    """The question for all steps of the user's jobs."""
    return ["squeue", "--steps", "--me", "--noheader", f"--format=%i{mark}%j{mark}"]


def read_steps(text: str, mark: str) -> dict[str, str]:
    """Names of the steps in an answer, by id such as ``4242.0``."""
    return {step: name for step, name in split_records(text, mark, 2)}  # noqa: C416 (rows are lists, not tuples)
