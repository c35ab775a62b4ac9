"""What a run went on after: failures that somebody answered, and steps or a server at work below the answer.

Launchers start workers anew, clients try again, schedulers requeue, programs skip a batch or take an older checkpoint.
That alone says little: the next try may fail as well. Steps alone say little, too, as a process that dies may write
last what it had kept back. Where both stand below a failure, and the log ends in them, the failure did not end the run.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.first_exception import STATE as TRACEBACK
from rltui.diagnose.wording import STATES, worded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.matches import Match, Matches

ANSWERED = "failure_answered"
ALIVE = "alive_at_end"
SERVES = "server_up"

MOST_STEPS = 5
"""So many of the last steps have to rise, where there are as many."""

_OF_STEPS = (
    r"(?=.{0,200}(?:loss|rewards?|scores?|grad_?norm|acc(?:uracy)?|lr|learning rate|tok(?:en)?s?|kl|entropy|mfu|ppl|"
    r"returns?|time)\b)"
)
"""Before what is measured of a step."""

_NUMBERS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"(?i)(?<!\*\*\* )\b(?:global[_ ]?)?(?:steps?|iter(?:ation)?s?)\b[\"']?[ :=#\[(]{{1,8}}(\d+){_OF_STEPS}",
        rf"(?i)\bepochs?\b[\"']?[ :=#\[(]{{1,8}}(\d+){_OF_STEPS}",
        r"'loss': .*'epoch': (\d+(?:\.\d+)?)",
        # a progress bar without a name, or with one of training
        r"(?i)^\W*(?:(?:train\w*|epoch|progress|steps?)\b[\w :]{0,30})?\d+%\|.{0,80}\| *(\d+)/\d+ \[",
    )
)
"""What is counted in the lines of a run at work; the first of these that a line has tells its number."""

_NOT_FINITE = re.compile(r"(?i)[ :=(](?:nan|inf)\b(?! iterations: 0)")

_SERVES = re.compile(r"(?i)\bserver is (?:now )?(?:up|ready|healthy|fired up)|\buvicorn running on")
_SERVED = re.compile(r"engine_unreachable|port_in_use|sandbox_down")
"""Causes that a server which is up settles; it does not tell whether anything is trained."""

_ALL_PASSED = re.compile(r"^=+ (?:\d+ (?:passed|skipped|xfailed|deselected|warnings?),? ?)+ ?in [\d.]+s\b")

_ANEW = "anew"
"""Field of an answer that starts a process again, or goes on from a checkpoint.

A job that is being ended says itself that it was requeued, so that word alone is no new start.
"""

NEAR_LINES = 5
"""So near a failure another try, or a way round it, answers it; a later one may answer something else."""

_ENDS_ALL = re.compile(
    r"slurm_\w+|host_oom_slurm|process_crashed|ray_oom_kill|ray_actor_died|engine_core_died|nccl_\w+"
)
"""Causes that end processes: nothing but a new start answers them."""

WORDINGS = worded(
    (
        "",
        r"(?i)(?P<anew>\bresum(?:ed|es|ing|e from)\b|\brestart(?:ed|s|ing)?\b|\brelaunch(?:ed|ing)?\b|"
        r"\bloading (?:\w+ )?(?:from )?(?:checkpoint|snapshot)\b(?! shards)|\brestor(?:ed|ing)\b|\battempts? left\b|"
        r"^=+ .*\bpassed\b|\bport active\b)|"
        r"\bre-?queue[ds]?\b|\bretry(?:ing|able)?\b|\brecover(?:ed|ing|s)\b|\breconnect(?:ed|ing)?\b|"
        r"\bfall(?:s|ing)? back\b|"
        r"\bskip(?:s|ped|ping)\b|\btrying (?:again|batch size)\b|"
        r"\binstead\b|\busing (?:port )?\d{4,5}\b|\bserver is (?:now )?(?:up|ready|healthy)\b",
        "retry retrying retryable resume resumed resumes resuming restart restarted restarts restarting requeue "
        "requeued requeues queue queued queues relaunch relaunched relaunching recovered recovering recovers "
        "reconnect reconnected reconnecting back skips skipped skipping restored restoring attempts attempt "
        "trying instead using active server loading passed",
    ),
)


def sign_of_life(lines: Sequence[str]) -> int | None:
    """Return the index of the line at which the run is seen at work, if ``lines`` end so; None: they do not.

    Steps in a row, each with a greater number and finite values: the last ones of more; or tests that all passed.
    """
    steps: list[tuple[int, tuple[int, float]]] = []
    for index in range(len(lines) - 1, -1, -1):
        if _ALL_PASSED.search(lines[index]):
            return index
        number = _number(lines[index])
        if number is not None:
            steps.append((index, number))
        if len(steps) == MOST_STEPS:
            break
    kinds = {kind for _, (kind, _) in steps}
    values = [value for _, (_, value) in steps]
    is_rising = all(before < after for after, before in itertools.pairwise(values))
    return steps[1][0] if len(steps) > 1 and len(kinds) == 1 and is_rising else None


def serves(lines: Sequence[str]) -> int | None:
    """Return the index of the last line by which a server is up; None where there is none."""
    return next((index for index in range(len(lines) - 1, -1, -1) if _SERVES.search(lines[index])), None)


def _number(text: str) -> tuple[int, float] | None:
    """Which of ``_NUMBERS`` a line has, and its value; None where it has none, or values that are not finite."""
    if _NOT_FINITE.search(text):
        return None
    found = ((kind, match) for kind, pattern in enumerate(_NUMBERS) if (match := pattern.search(text)))
    return next(((kind, float(match[1])) for kind, match in found), None)


def settle(matches: Matches) -> None:
    """Leave out of ``matches`` what was answered, with the run at work below; exceptions stay, as survived ones."""
    for sign in (*matches.of(ALIVE), *matches.of(SERVES)):
        answers = [one for one in matches.of(ANSWERED) if one.source == sign.source and one.order <= sign.order]
        for cause, found in matches.by_cause.items() if answers else ():
            if cause == TRACEBACK:
                found[:] = [_survived(one) if _is_settled(one, sign, answers) else one for one in found]
            elif cause not in STATES and (sign.cause == ALIVE or _SERVED.fullmatch(cause)):
                found[:] = [one for one in found if not _is_settled(one, sign, answers)]


def _is_settled(match: Match, sign: Match, answers: Sequence[Match]) -> bool:
    if match.source != sign.source or match.order >= sign.order:
        return False
    below = [one for one in answers if one.order >= match.order]
    if any(_ANEW in one.fields for one in below):
        return True
    near = [one for one in below if one.order - match.order <= NEAR_LINES]
    return _ENDS_ALL.fullmatch(match.cause) is None and any(_may_answer(one, match) for one in near)


def _may_answer(answer: Match, match: Match) -> bool:
    """Another rank can start all ranks anew, but it cannot get round what one rank failed by."""
    ranks = {answer.evidence.rank, match.evidence.rank} - {""}
    return len(ranks) < 2


def _survived(match: Match) -> Match:
    return structs.replace(match, fields={"survived": "yes", **match.fields})
