"""What Slurm's tools say when they fail or answer a submission, told apart by what it means for what was asked."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from rltui.cluster.plain_text import plain
from rltui.errors import ClusterError, RltuiError

TroubleKind = Literal[
    "refused", "gone", "controller", "rate", "auth", "database", "no-accounting", "missing", "unknown"
]
"""``refused``: certainly nothing was done. ``gone``: no such job. ``controller``: it did not answer (what was asked may
have been done all the same). ``rate``: too many questions; not done. ``auth``: munge; ``database``: slurmdbd does not
answer; ``no-accounting``: the site has none. ``missing``: the tool is not installed. ``unknown``: nobody can tell."""


class Trouble(Struct, frozen=True):
    """Why a Slurm tool failed, by what it wrote: what kind of failure, and what helps."""

    kind: TroubleKind
    sentence: str
    """What the tool said, its most telling line, without control characters."""
    hint: str = ""
    nothing_done: bool = False
    """Whether what was asked certainly did not happen."""


class _Sign(Struct, frozen=True):
    pattern: str
    kind: TroubleKind
    nothing_done: bool
    hint: str = ""


_WAIT = "Wait a minute, then try again."
SIGNS = (
    _Sign(
        r"munge encode failed|failed to access .*munge", "auth", True, "Ask the site to look at munged on this host."
    ),
    _Sign(
        r"protocol authentication error|munge|invalid authentication credential|authentication credential expired"
        r"|cannot unpack credential",
        "auth",
        False,
        "munge on this host or the controller fails; `remunge` tests it, the site repairs it.",
    ),
    _Sign(
        r"rate limit exceeded", "rate", True, "The site limits how often one user may ask; rltui slows down by itself."
    ),
    _Sign(
        r"persist_conn_open|problem talking to the database|slurmdbd|database (?:is )?down|connect to database",
        "database",
        True,
        _WAIT,
    ),
    _Sign(r"accounting storage is disabled|accounting_storage/none", "no-accounting", True),
    _Sign(
        r"\(connect failure\)|communication connection failure|connection refused|no route to host"
        r"|dns srv|establish a configuration source",
        "controller",
        True,
        _WAIT,
    ),
    _Sign(
        r"unable to contact slurm controller|socket timed out|zero bytes were transmitted|message receive failure"
        r"|unexpected message received|connection (?:timed out|reset)|transport endpoint is not connected|broken pipe"
        r"|header lengths are longer|insane message length|temporary failure in name resolution|in standby mode"
        r"|slurm temporarily unable to accept job|message send failure|communication shutdown failure"
        r"|missing socket error|unable to process (?:incoming|outgoing)[\w ]* file descriptors?|bad file descriptor"
        r"|operation now in progress|interrupted system call|resource temporarily unavailable",
        "controller",
        False,
        _WAIT,
    ),
    _Sign(
        r"operation is presently disabled",
        "refused",
        True,
        "A job with slurm.requeue: false cannot be requeued (resubmit it); some sites take jobs from login nodes only.",
    ),
    _Sign(r"invalid job id specified|job/step already completing|already finished|no job found", "gone", True),
)
"""Looked for in this order; of a text that has several, the first counts."""

_REFUSAL = re.compile(
    r"batch job submission failed:|allocation failure:|access/permission denied|unrecognized option|invalid option"
    r"|invalid --|invalid entry for --cluster|unable to open file|this does not look like a batch script|job violates"
    r"|invalid .* (?:specification|specified)"
    r"|batch script (?:is empty|contains)|can ?not be altered now|db index is being set|job has already started"
    r"|job is (?:not |current suspended)"
    r"|no longer pending execution|requested .* (?:not available|invalid)|is invalid|user's group not permitted"
    r"|invalid user id|cli_filter plugin terminated"
    r"|update .* (?:error|failed)|not permitted|is disabled|option requires an argument|unsupported|not supported",
    re.IGNORECASE,
)
_NOISE = re.compile(r"^(?:try \"|usage:|\s*$)|lua: (?:submit|job)", re.IGNORECASE)
_PREFIX = re.compile(r"^\w[\w-]*: (?:(?:error|fatal|warning): )?")
_JOB = re.compile(r"(?:submitted batch job )?(\d{1,12})(?:;[\w.-]+| on cluster [\w.-]+)?", re.IGNORECASE | re.ASCII)


def read_trouble(said: str, rc: int, tool: str) -> Trouble:
    """Understand what a failed tool wrote.

    Args:
        said: Its standard error (and output).
        rc: Its exit status; negative is the signal that ended it.
        tool: Its name, for a sentence where it said nothing.
    """
    text = said.lower()
    sentence = telling_line(said) or f"{tool} ended with status {rc} and no word"
    if rc == 127 or (rc == 126 and "denied" in text):
        return Trouble("missing", f"{tool} cannot be run here", "Is Slurm's client installed on this host?", True)
    for sign in SIGNS:
        if re.search(sign.pattern, text):
            lines = [line for line in said.splitlines() if re.search(sign.pattern, line.lower())]
            sentence = telling_line(lines[-1]) if lines else sentence
            others = "\n".join(line for line in text.splitlines() if not re.search(sign.pattern, line))
            return Trouble(sign.kind, sentence, sign.hint, sign.nothing_done and rc >= 0 and not _may_be_done(others))
    if rc > 0 and _REFUSAL.search(text):
        return Trouble("refused", sentence, "", nothing_done=True)
    return Trouble("unknown", sentence)


def _may_be_done(text: str) -> bool:
    """Whether a tool that tried again, and could not even connect then, may have been heard the first time."""
    return any(re.search(sign.pattern, text) for sign in SIGNS if sign.kind == "controller" and not sign.nothing_done)


def is_format_refused(said: str) -> bool:
    """Whether a tool did not know a field that it was asked for: 22.05 then leaves it out and ends with status 0."""
    return re.search(r"invalid \w+ format specification|unrecognized option", said, re.IGNORECASE) is not None


def telling_line(said: str) -> str:
    """Return the line of an error text that says most: the last one, with a named limit in front where there is one."""
    lines = [_PREFIX.sub("", plain(line)).strip() for line in said.splitlines()]
    lines = [line for line in lines if line and not _NOISE.search(line)]
    if not lines:
        return ""
    last = lines[-1].removeprefix("Batch job submission failed: ")
    before = [line for line in lines[:-1] if line not in last]
    # a policy refusal names the limit in the line before; site plug-ins speak there too
    return (f"{last} ({before[-1][:200]})" if before else last)[:400]


def read_submission(out: str) -> str | None:
    """Return the job id in what sbatch wrote, or None; with ``--parsable`` or not, and whatever stands around it."""
    for line in reversed(out.splitlines()):
        if (match := _JOB.fullmatch(plain(line).strip())) and int(match[1]):
            return match[1]
    return None


class SlurmRefusedError(RltuiError):
    """Slurm said no to a change: certainly nothing was done."""


class SlurmUnansweredError(ClusterError):
    """Slurm did not answer, or nobody can tell what its answer means.

    Attributes:
        trouble: Why, for programs.
    """

    def __init__(self, trouble: Trouble, message: str = "") -> None:
        super().__init__(message or f"Slurm does not answer: {trouble.sentence}.", trouble.hint)
        self.trouble = trouble
