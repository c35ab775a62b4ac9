"""What a run went on after: failures that somebody answered, and steps or a server at work below the answer.

Launchers start workers anew, clients try again, schedulers requeue, programs skip a batch or take an older checkpoint.
That alone says little: the next try may fail as well. Steps alone say little, too, as a process that dies may write
last what it had kept back. Where both stand below a failure, and the log ends in them, the failure did not end the run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.diagnose.first_exception import STATE as TRACEBACK
from rltui.diagnose.progress import ALIVE, ANEW, ANSWERED, SERVES, STARTED
from rltui.diagnose.wording import STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.matches import Match, Matches

_SERVED = re.compile(r"engine_unreachable|port_in_use|sandbox_down")
"""Causes that a server which is up settles; it does not tell whether anything is trained."""

NEAR_LINES = 5
"""So near a failure another try, or a way round it, answers it; a later one may answer something else."""

_ENDS_ALL = re.compile(
    r"slurm_\w+|host_oom_slurm|process_crashed|ray_oom_kill|ray_actor_died|engine_core_died|nccl_\w+"
)
"""Causes that end processes: nothing but a new start answers them."""

_REQUEUED = ("slurm_preempted", "slurm_node_fail")
"""After these Slurm starts a job again, whose output it may put below (``--open-mode=append``, submitit); after a time
limit it does not."""

_WARNED = re.compile(r"\.py:\d+: \w*Warning: |\bwill fail if\b")
"""Who has Python warn, or says what would fail, goes on: steps below the first such line are answer enough."""

LEAST_LINES = 300
"""A job that is being ended still writes: so many lines later it has started again, if something says so."""


def forget_earlier_starts(matches: Matches, last_lines: Sequence[int]) -> None:
    """Leave out what each source said before its last start, where Slurm had ended the job before that.

    Args:
        matches: What was seen.
        last_lines: The place of each source's last line among all lines.
    """
    ends = [match for cause in _REQUEUED for match in matches.of(cause)]
    for source in {match.source for match in ends}:
        ended = [one.order for one in ends if one.source == source and last_lines[source] - one.order >= LEAST_LINES]
        starts = [one.order for one in matches.of(STARTED) if one.source == source]
        last = max((start for start in starts if any(end < start for end in ended)), default=0)
        if last:
            matches.forget(source, last)


def settle(matches: Matches) -> None:
    """Leave out of ``matches`` what was answered, with the run at work below; exceptions stay, as survived ones."""
    for sign in (*matches.of(ALIVE), *matches.of(SERVES)):
        answers = [one for one in matches.of(ANSWERED) if one.source == sign.source and one.order <= sign.order]
        for cause, found in matches.by_cause.items():
            if cause == TRACEBACK:
                found[:] = [_survived(one) if _is_settled(one, sign, answers) else one for one in found]
            elif cause not in STATES and (sign.cause == ALIVE or _SERVED.fullmatch(cause)):
                if any(_is_warned(one, sign) and one.order < sign.order for one in found):
                    found[:] = [one for one in found if not _is_warned(one, sign)]
                found[:] = [one for one in found if not _is_settled(one, sign, answers)]


def _is_warned(match: Match, sign: Match) -> bool:
    """Whether a line of the source of ``sign`` only warns; such lines come again, behind the last step, too."""
    return sign.cause == ALIVE and match.source == sign.source and _WARNED.search(match.evidence.text) is not None


def _is_settled(match: Match, sign: Match, answers: Sequence[Match]) -> bool:
    if match.source != sign.source or match.order >= sign.order:
        return False
    below = [one for one in answers if one.order >= match.order]
    if any(ANEW in one.fields for one in below):
        return True
    near = [one for one in below if one.order - match.order <= NEAR_LINES]
    return _ENDS_ALL.fullmatch(match.cause) is None and any(_may_answer(one, match) for one in near)


def _may_answer(answer: Match, match: Match) -> bool:
    """Another rank can start all ranks anew, but it cannot get round what one rank failed by."""
    ranks = {answer.evidence.rank, match.evidence.rank} - {""}
    return len(ranks) < 2


def _survived(match: Match) -> Match:
    return structs.replace(match, fields={"survived": "yes", **match.fields})
