"""How a job is submitted, and what sbatch's answer means: an id, a certain no, or nobody knows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from rltui.cluster.cluster import SubmitRefusedError, SubmitUnknownError
from rltui.cluster.plain_text import plain
from rltui.cluster.relay_types import Completed
from rltui.cluster.slurm.nodelist import NodeListError, expand
from rltui.cluster.slurm.replies import read_submission, read_trouble, telling_line
from rltui.errors import ClusterError, UsageError

LOOK_IT_UP = "rltui looks for the job by its mark; it is not submitted a second time."

_MAY_WAIT = re.compile(r"not available \(down|nodes are busy|temporarily unavailable|required node not available", re.I)
_START = re.compile(
    r"Job \d+ to start at (\S+) using (\d+) processors on (?:nodes (\S+) in partition (\S+)|(\S+))"  # of a het job
)


SHAPE = (
    *("SBATCH_EXCLUSIVE", "SBATCH_OVERCOMMIT", "SBATCH_CPUS_PER_GPU", "SBATCH_GRES", "SBATCH_GPUS"),
    *("SBATCH_GPUS_PER_NODE", "SBATCH_GPUS_PER_SOCKET", "SBATCH_GPUS_PER_TASK", "SBATCH_TRES_PER_TASK", "SBATCH_ERROR"),
)
"""Variables that would give the job another shape than the script's or its errors another file, which it never asks."""

_MEMORY = ("SBATCH_MEM_PER_NODE", "SBATCH_MEM_PER_CPU", "SBATCH_MEM_PER_GPU")
OTHERWISE_CALLED = {
    "time": ("SBATCH_TIMELIMIT",),
    "requeue": ("SBATCH_NO_REQUEUE",),
    "no-requeue": ("SBATCH_REQUEUE",),
    "mem": _MEMORY,
    "mem-per-gpu": _MEMORY,
}
"""Options whose variables are not named like them, or that other options' variables would undo."""

_DIRECTIVE = re.compile(r"(?m)^#SBATCH --([a-z][a-z-]*)")


class TestVerdict(Struct, frozen=True):
    """What Slurm would do with a script."""

    __test__ = False

    accepted: bool
    sentence: str
    """Its own words: why not, or when and where."""
    start: str = ""
    """The expected start in the cluster's own time, as Slurm wrote it."""
    nodes: tuple[str, ...] = ()
    partition: str = ""
    is_certain: bool = True
    """Whether a real submission would be refused too: nodes that are down or taken only make it wait."""


def submit_argv(script: str, *, job_name: str, comment: str, chdir: str, extra: Sequence[str]) -> list[str]:
    """The command that submits ``script``.

    Raises:
        UsageError: The script's path is not absolute (it could be read as an option), or a word holds a NUL.
    """
    named = {"--job-name": job_name, "--comment": comment, "--chdir": chdir}
    argv = ["sbatch", "--parsable", *(f"{option}={value}" for option, value in named.items() if value), *extra, script]
    if not script.startswith("/"):
        raise UsageError(f"The path of the job script, {plain(script)[:80]!r}, is not absolute.")
    if any("\0" in word for word in argv):
        raise UsageError("A NUL is in what sbatch was to be told.")
    return argv


def variables_against(script: str) -> list[str]:
    """Variables that would win over what ``script`` says itself: for sbatch the environment beats ``#SBATCH`` lines.

    A default of the user's for what the script leaves open (an account, a reservation) stays.
    """
    options = dict.fromkeys(_DIRECTIVE.findall(script))
    named = [f"SBATCH_{option.replace('-', '_').upper()}" for option in options]
    return [*SHAPE, *named, *(name for option in options for name in OTHERWISE_CALLED.get(option, ()))]


def read_answer(answer: Completed) -> str:
    """Return the id in sbatch's answer.

    Raises:
        SubmitRefusedError: It certainly did not submit.
        SubmitUnknownError: Nobody can tell.
    """
    job_id = read_submission(answer.out)
    if job_id is not None and answer.rc == 0:
        return job_id
    if job_id is not None:
        raise SubmitUnknownError(f"sbatch named job {job_id} but ended with status {answer.rc}.", LOOK_IT_UP)
    if answer.rc == 0:
        said = telling_line(answer.out + "\n" + answer.err)
        raise SubmitUnknownError(f"sbatch ended well but named no job: {said or 'it said nothing'}.", LOOK_IT_UP)
    trouble = read_trouble(answer.err or answer.out, answer.rc, "sbatch")
    if trouble.nothing_done:
        refused = SubmitRefusedError(f"Slurm did not take the job: {trouble.sentence}.", trouble.hint)
        if trouble.kind == "controller":
            refused.exit_code = ClusterError.exit_code
        raise refused
    raise SubmitUnknownError(f"It is unknown whether Slurm took the job: {trouble.sentence}.", LOOK_IT_UP)


def read_test(answer: Completed) -> TestVerdict:
    """Understand the answer to ``--test-only``."""
    # --test-only speaks on standard error, also where it says yes
    text = plain(answer.err + " " + answer.out)
    match = _START.search(text)
    if answer.rc or match is None:
        trouble = read_trouble(answer.err or answer.out, answer.rc, "sbatch")
        is_certain = trouble.kind == "refused" and not _MAY_WAIT.search(text)
        return TestVerdict(False, trouble.sentence, is_certain=is_certain)
    try:
        nodes = expand(match[3] or match[5])
    except NodeListError:
        nodes = ()
    return TestVerdict(True, match[0], match[1], nodes, match[4] or "")
