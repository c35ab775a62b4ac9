"""What Slurm gave this job, and how steps are started in it."""

import calendar
import math
import os
import re
import subprocess
import time
from typing import IO, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from rltui.onnode import processes
from rltui.onnode.rundir import EndedError

COMMAND_TIMEOUT_S = 20
"""Slurm's commands hang for a minute where a node's munge is dead."""

KILL_WAIT_S = 30.0

OF_OTHER_STEPS = (
    # what the batch step was given per task would contradict the step's own words
    *("SLURM_CPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION"),
    # the job that rltui itself was started in hands these on, and so does a login shell with defaults for srun by hand
    *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_GRES"),
    *("SLURM_STEP_GRES", "SLURM_CPUS_PER_GPU", "SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_TRES"),
    *("SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_HOSTFILE"),
    *("SLURM_HET_SIZE", "SLURM_PACK_SIZE", "SLURM_CONSTRAINT", "SLURM_DEPENDENCY", "SLURM_TIMELIMIT", "SLURM_SIGNAL"),
    *("SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_LABELIO"),
    *("SLURM_WORKING_DIR", "SLURM_REMOTE_CWD", "SLURM_CLUSTERS"),
)
"""Variables that srun would take for options of our own steps, which are told all they need in words."""

OF_HET_STEPS = ("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
"""Of these what tells srun that components are the job's own, not pieces of one allocation."""

NODE_FAILURE, PREEMPTION, REQUEUE = "NODE FAILURE", "PREEMPTION", "JOB REQUEUE"
"""Slurm's words for ends that are its own doing; after them it starts the job again, unless it is told not to. They
are the key ``slurm`` of ``end.json``."""

NOT_THE_RUNS = frozenset({NODE_FAILURE, PREEMPTION, REQUEUE})

CAUSES = {
    "TIME LIMIT": ("time-limit", "the time limit was reached"),
    NODE_FAILURE: ("failed", "Slurm lost a node of the job"),
    PREEMPTION: ("cancelled", "preempted by Slurm for another job"),
    REQUEUE: ("cancelled", "requeued: Slurm starts the job again"),
    "": ("cancelled", "cancelled"),
}
"""Outcome and reason of an attempt, by Slurm's word for what ended it; empty: it has none, as for scancel."""

_NODELIST = "SLURM_JOB_NODELIST"
# of "64(x2),32" the (x2) tells on how many nodes; only the fewest CPUs count, so that does not
_CPUS = re.compile(r"(\d+)(?:\(x\d+\))?")
_CANCELLED = re.compile(
    r"\*\*\* (?:JOB|STEP) (?P<job>\d+)(?:\.\d+)? ON \S+ CANCELLED AT \S+(?: DUE TO (?P<cause>[A-Z ]+))?"
)


class Part(NamedTuple):
    """A component of a het job: its nodes, and the CPU cores on the one that has fewest."""

    nodes: List[str]
    cpus: int


class Allocation(NamedTuple):
    """The job as this start of it sees it.

    Attributes:
        job_id: Slurm's number, the same for all starts of a requeued job.
        restart: How often Slurm has started it again.
        nodes: Names, the head (the node this runs on) first.
        cpus: CPU cores on the node that has fewest; in a het job, of the first component.
        end_at: When the time limit ends it, epoch seconds; None where nobody can tell.
        parts: The components of a het job, in the order of the layout's kinds of node; empty: it is none.
    """

    job_id: int
    restart: int
    nodes: List[str]
    cpus: int
    end_at: Optional[float]
    parts: Tuple[Part, ...] = ()

    def part_of(self, node: str) -> int:
        """The number of the component that ``node`` is in; 0 where the job is no het job."""
        return next((number for number, part in enumerate(self.parts) if node in part.nodes), 0)


class NoAllocationError(EndedError):
    """This is no batch job, or Slurm's commands do not work here; the text says which."""


def read_allocation(environment: Dict[str, str], host: str) -> Allocation:
    """The job that ``environment`` tells of.

    Raises:
        NoAllocationError: There is none, or its nodes cannot be told.
    """
    number, folded = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_JOB_NODELIST", "")
    if not number.isdigit() or not folded:
        raise NoAllocationError("this is no Slurm job: SLURM_JOB_ID is not set; submit the script with sbatch")
    first = _part(folded, environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    first = first._replace(nodes=[host, *(node for node in first.nodes if node != host)])
    size, restart = environment.get("SLURM_HET_SIZE", ""), environment.get("SLURM_RESTART_COUNT", "")
    # the variables without a suffix are those of component 0
    names = ["_HET_GROUP_%d" % number for number in range(1, int(size) if size.isdigit() else 1)]
    further = [
        _part(environment[_NODELIST + name], environment.get("SLURM_JOB_CPUS_PER_NODE" + name, ""))
        for name in names
        if _NODELIST + name in environment
    ]
    nodes = [node for part in (first, *further) for node in part.nodes]
    for node in nodes:
        if nodes.count(node) > 1:
            raise NoAllocationError("two kinds of node are both %s; slurm.exclusive: true keeps them apart" % node)
    return Allocation(
        int(number),
        # Slurm sets it from a job's second start on
        int(restart) if restart.isdigit() else 0,
        nodes,
        first.cpus,
        end_time(shown(number)),
        (first, *further) if further else (),
    )


def _part(folded: str, cpus_per_node: str) -> Part:
    return Part(hostnames(folded), min((int(count) for count in _CPUS.findall(cpus_per_node)), default=1))


def hostnames(folded: str) -> List[str]:
    """The nodes of a folded list such as ``nid[010-012]``.

    Raises:
        NoAllocationError: Slurm cannot be asked.
    """
    answer = ask(["scontrol", "show", "hostnames", folded])
    if answer is None:
        raise NoAllocationError("`scontrol show hostnames` does not work on this node")
    return answer.split()


def end_time(job: str) -> Optional[float]:
    """When the time limit of a job ends it, from ``shown``; None where it has none, or Slurm did not answer."""
    # in UTC, as ask() wants it; a job without a limit has EndTime=Unknown
    match = re.search(r"\bEndTime=(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", job)
    return float(calendar.timegm(time.strptime(match.group(1), "%Y-%m-%dT%H:%M:%S"))) if match else None


def left_s(job: str, end_at: Optional[float], otherwise_s: float) -> float:
    """Seconds to ``end_at``, the end of a job of ``shown``: infinite without a limit, else ``otherwise_s`` for None."""
    if end_at is not None:
        return end_at - time.time()
    return math.inf if " TimeLimit=UNLIMITED" in job else otherwise_s


def is_being_preempted(job: str) -> bool:
    """Whether Slurm has told the job of ``shown`` to leave for another, and gives it time to (GraceTime)."""
    return re.search(r" PreemptTime=\d", job) is not None


def requeue(job_id: str) -> bool:
    """Queue the job again that this process is of, which ends it; returns whether Slurm has taken it."""
    return ask(["scontrol", "requeue", job_id]) is not None


def shown(job_id: str) -> str:
    """What scontrol shows of a job, a line each component; empty where it does not answer."""
    return ask(["scontrol", "-o", "show", "job", job_id]) or ""


def is_requeued_by_slurm(job_id: str) -> bool:
    """Whether Slurm starts the job again when it loses a node of it."""
    return " Requeue=1" in shown(job_id)


def failed_alone(job_id: str, node: str) -> bool:
    """Whether the accounting says that a start of the job on ``node`` alone ended because that node failed."""
    # -D: each start of a requeued job has a record, and without it sacct tells of the newest only
    answer = ask(["sacct", "-X", "-D", "--noheader", "--parsable2", "--format=State,NodeList", "--jobs=%s" % job_id])
    return any(line.startswith("NODE_FAIL") and line.endswith("|" + node) for line in (answer or "").splitlines())


def preempts_by_requeue() -> bool:
    """Whether a preempted job of this partition is queued again; else Slurm cancels it for good."""
    partition = os.environ.get("SLURM_JOB_PARTITION", "")
    answer = ask(["scontrol", "-o", "show", "partition", partition]) or ""
    # several modes may stand there (GANG,SUSPEND); of all of them only CANCEL is for good
    found = re.search(r" PreemptMode=(\S+)", answer)
    return found is None or "CANCEL" not in found.group(1)


def nodes_not_answering(nodes: Sequence[str]) -> List[str]:
    """Those of ``nodes`` that are down, or do not answer Slurm; empty where Slurm cannot be asked."""
    answer = ask(["sinfo", "--noheader", "--Node", "--nodes=%s" % ",".join(nodes), "--format=%N %T"])
    return not_answering(answer or "", nodes)


def not_answering(answer: str, nodes: Sequence[str]) -> List[str]:
    """The same from sinfo's ``answer``: a node and its state a line, where a star says that it does not answer."""
    rows = [line.split() for line in answer.splitlines()]
    gone = {row[0] for row in rows if len(row) == 2 and (row[1].endswith("*") or row[1].startswith("down"))}
    return [node for node in nodes if node in gone]


def kill_wait_s() -> float:
    """How long Slurm leaves a job's processes between SIGTERM and SIGKILL; its default where it does not say."""
    match = re.search(r"^KillWait\s*=\s*(\d+)", ask(["scontrol", "show", "config"]) or "", re.MULTILINE)
    return float(match.group(1)) if match else KILL_WAIT_S


def ask(argv: List[str]) -> Optional[str]:
    """What one of Slurm's commands answers; None where it is not there, refuses, or does not answer in time."""
    # an hour that comes twice as clocks are set back is one of two moments
    environment = {**os.environ, "SLURM_TIME_FORMAT": "standard", "TZ": "UTC"}
    environment.pop("SLURM_CLUSTERS", None)  # a user's default, and this job is where it is
    return processes.said_by(argv, COMMAND_TIMEOUT_S, environment)


def step_command(nodes: Sequence[str], cpus: int, part: Optional[int] = None) -> List[str]:
    """The words before a command that is to run once on each of ``nodes``, in a het job of its component ``part``.

    ``--overlap``: the step shares CPUs, memory and GPUs with every other step; without it, it waits for ever. The
    other nodes' tasks live on when one of them ends: whose fault it was is for the driver to say.
    """
    command = ["srun", "--overlap", "--nodes=%d" % len(nodes), "--ntasks=%d" % len(nodes), "--ntasks-per-node=1"]
    # --cpus-per-task implies --exact: a task has no more CPUs than are named here; --mem=0 is all that the job has
    command += ["--nodelist=%s" % ",".join(nodes), "--cpus-per-task=%d" % cpus, "--cpu-bind=none", "--mem=0"]
    # with pmix as a site's MpiDefault each step has a server, and tasks have variables as if MPI had started them
    command.append("--mpi=none")
    command += [] if part is None else ["--het-group=%d" % part]
    # said in words, as slurm.conf (KillOnBadExit, WaitTime) or `sbatch --export` (SLURM_EXPORT_ENV) may say otherwise
    return [*command, "--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--unbuffered"]


def start_step(
    nodes: Sequence[str], cpus: int, argv: Sequence[str], stdin: int, out: IO[bytes], err: IO[bytes]
) -> "subprocess.Popen[bytes]":
    """Start ``argv`` once on each of ``nodes``.

    Raises:
        NoAllocationError: There is no srun here.
    """
    return _start([*step_command(nodes, cpus), *argv], stdin, out, err)


def start_step_on(
    allocation: Allocation,
    nodes: Sequence[str],
    argv: Callable[[int], Sequence[str]],
    stdin: int,
    out: IO[bytes],
    err: IO[bytes],
) -> "subprocess.Popen[bytes]":
    """Start a command once on each of ``nodes``, of whichever components of the job, as one step.

    Args:
        allocation: The job.
        nodes: Some of its nodes.
        argv: The command by the number of the component.
        stdin: Its standard input.
        out: Where its output goes.
        err: Where its errors go.

    Raises:
        NoAllocationError: There is no srun here.
    """
    return _start(command_on(allocation, nodes, argv), stdin, out, err, OF_HET_STEPS if allocation.parts else ())


def command_on(allocation: Allocation, nodes: Sequence[str], argv: Callable[[int], Sequence[str]]) -> List[str]:
    """The command of ``start_step_on``: srun takes the components' options and commands with a colon between them."""
    if not allocation.parts:
        return [*step_command(nodes, allocation.cpus), *argv(0)]
    words: List[str] = []
    for number, part in enumerate(allocation.parts):
        mine = [node for node in nodes if node in part.nodes]
        if mine:
            step = [*step_command(mine, part.cpus, number), *argv(number)]
            words += [":", *step[1:]] if words else step
    return words


def _start(
    command: List[str], stdin: int, out: IO[bytes], err: IO[bytes], kept: Sequence[str] = ()
) -> "subprocess.Popen[bytes]":
    environment = without_step_options(os.environ, kept)
    try:
        # srun hands signals on to its tasks: in a session of its own it gets none that is sent to the driver's group
        return subprocess.Popen(command, stdin=stdin, stdout=out, stderr=err, env=environment, start_new_session=True)
    except FileNotFoundError as error:
        raise NoAllocationError("srun was not found on this node") from error


def without_step_options(environment: Mapping[str, str], kept: Sequence[str] = ()) -> Dict[str, str]:
    """``environment`` less what srun would take for options of a step that is told all it needs."""
    return {name: value for name, value in environment.items() if name in kept or name not in OF_OTHER_STEPS}


def end_step(step: "subprocess.Popen[bytes]", grace_s: float) -> None:
    """Let a step end by itself for ``grace_s`` seconds, then end it."""
    # SIGTERM before SIGKILL: srun hands only the first on to its tasks, which clean up then
    for end in (None, step.terminate, step.kill):
        if end is not None:
            end()
        try:
            step.wait(grace_s)
            return
        except subprocess.TimeoutExpired:
            grace_s = 5.0


def cause_of_signal(output: str, job_id: int) -> Optional[str]:
    """Why Slurm ends the job, from what its daemon wrote into the job's own output just before the signal.

    Returns:
        ``TIME LIMIT``, ``NODE FAILURE``, ``PREEMPTION``, ``JOB REQUEUE``; empty: cancelled; None: it says nothing.
    """
    causes = [match.group("cause") or "" for match in _CANCELLED.finditer(output) if int(match.group("job")) == job_id]
    return causes[-1].strip() if causes else None
