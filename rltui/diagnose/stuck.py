"""Which process holds up the others: read from what each process of an attempt was doing at one moment. Pure.

Ranks call the collectives of a group in the same order, so the one that has begun fewer of them is the one that the
others wait for; a process that is stopped or gone is waited for wherever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from rltui.diagnose.stacks import Collective, Observed, odd_ones
from rltui.onnode.progress import FIRST_STEPS_S, LEAST_STEPS, patience_s
from rltui.watch.silence import QUIET_S, QUIET_STEPS, STOPPED_S, halts_told, pause_s

if TYPE_CHECKING:
    from rltui.diagnose.recent import RunPicture

STATES = {
    "T": "is stopped (state T: SIGSTOP, or a debugger)",
    "t": "is held by a debugger (state t)",
    "Z": "is dead and nobody has taken notice (a zombie, state Z)",
    "X": "is dead (state X)",
    "D": "waits in the kernel for a disk, a network file system or a driver (state D)",
}
"""States of proc(5) in which a process does nothing; running (R) and sleeping (S) tell neither way."""

SAMPLED = {"stopped": "T", "traced": "t"}
"""The same of ``silence.STOPPED``."""

LEAST_WAIT_S = 5.0
"""A collective that is under way for less may just be one."""

MOST_NAMED = 4


class Evidence(Struct, frozen=True):
    """What all nodes answered to one request.

    Attributes:
        at: When the last of them answered, epoch seconds.
        processes: Of all nodes.
        gone: Roles whose process was not there any more, each with its node.
    """

    at: float
    processes: tuple[Observed, ...] = ()
    gone: tuple[str, ...] = ()


def stuck_words(evidence: Evidence | None, picture: RunPicture, scale: float = 1.0) -> list[str]:
    """A line for each process that others wait for; none where the run got on after the evidence, or just before.

    Args:
        evidence: What was seen of the processes.
        picture: What is known of the attempt besides, now.
        scale: By how much deadlines are shortened, for tests.
    """
    if evidence is None or not stood_still(evidence.at, picture, scale):
        return []
    found = held_up_by(evidence, is_overdue=is_overdue(picture, evidence.at, scale))
    return [f"stuck: {line}" for line in found]


def held_up_by(evidence: Evidence, *, is_overdue: bool) -> list[str]:
    """A line for each process that others wait for, of a run that stands still.

    Args:
        evidence: What was seen of the processes.
        is_overdue: Whether it has done so for longer than an evaluation takes, in which some do what others do not.
    """
    found = [*awaited(evidence), *idle_roles(evidence)] or [*held_by_rewards(evidence)]
    has_record = any(one.collectives for one in evidence.processes)
    return [*odd_ones(evidence.processes)] if not found and not has_record and is_overdue else found


def halted_now(picture: RunPicture) -> Evidence | None:
    """Evidence out of the nodes' newest samples, before there is any that was asked for; None where nothing is halted.

    Only processes that are stopped, and have been since the last step, count: others end and read disks all the time.
    """
    last = picture.steps[-1].at if picture.steps else 0.0
    halted = tuple(
        Observed(pid=one.pid, title=one.title, state=SAMPLED[one.state], host=host.host)
        for host in picture.hosts
        for one in host.processes
        if one.state in SAMPLED and one.state_s >= STOPPED_S and last < host.processes_at
    )
    return Evidence(picture.now, halted) if halted and picture.end is None else None


def halted_at_the_end(events: Iterable[Mapping[str, Any]], picture: RunPicture) -> Evidence | None:
    """Evidence out of what samplers told of an attempt that has failed: who was stopped from its last step to its end.

    Args:
        events: Those of the kind ``process``, oldest first.
        picture: What is known of the attempt besides.
    """
    end, last = picture.end, picture.steps[-1].at if picture.steps else 0.0
    if end is None or picture.was_wanted:
        return None
    halted = tuple(
        Observed(pid=one.pid, title=one.title, state=SAMPLED[one.state], host=one.host)
        for one in halts_told(events)
        if last < one.at < end.at - STOPPED_S
    )
    return Evidence(end.at, halted) if halted else None


def is_overdue(picture: RunPicture, at: float, scale: float = 1.0) -> bool:
    """Whether at ``at`` (epoch seconds) no step has come for longer than an evaluation or a checkpoint should take."""
    times = [step.at for step in picture.steps]
    if len(times) < LEAST_STEPS:
        return at - max([picture.stage.since, *times]) > FIRST_STEPS_S * scale
    took_s = [later - before for before, later in pairwise(times)]
    return at - picture.waits_since > patience_s(took_s, scale)


def stood_still(at: float, picture: RunPicture, scale: float = 1.0) -> bool:
    """Whether the run had stood still for a while at ``at`` (epoch seconds), and has not gone on since."""
    if not picture.steps:
        return at > picture.stage.since
    last, first = picture.steps[-1].at, picture.steps[0].at
    usual_s = (last - first) / max(1, len(picture.steps) - 1)
    told_at_once_s = pause_s([later.at - before.at for before, later in pairwise(picture.steps)])
    return at - picture.waits_since > max(QUIET_S * scale, QUIET_STEPS * usual_s, told_at_once_s)


def idle_roles(evidence: Evidence) -> Iterator[str]:
    """Processes that cannot do anything, whether or not a collective waits for them."""
    absent = {(one.host, one.pid) for members in _waits(evidence) for one in members.absent}
    for one in evidence.processes:
        matters = one.role or one.state in "Tt"  # shells and helpers end, sleep and read disks all the time
        if matters and one.state in STATES and one.state and (one.host, one.pid) not in absent:
            yield f"{one.name} {STATES[one.state]}"
    yield from (f"{name} is gone" for name in evidence.gone)


def held_by_rewards(evidence: Evidence) -> Iterator[str]:
    """The workers that are within the user's reward, where the trainer waits for rewards and nothing else holds it."""
    stacks = [(one, [_frame(line) for line in one.stack.splitlines()]) for one in evidence.processes]
    if any(_WAITS_FOR_REWARDS.match(frame) for _, frames in stacks for frame in frames):
        for one, frames in stacks:
            within = [frame for frame in frames if frame]
            if len(within) > 1 and any(_IN_A_REWARD.match(frame) for frame in within[1:]):
                name = structs.replace(one, role="reward worker").name
                yield f"{name} is in {within[0]}, while the trainer waits for rewards"


def awaited(evidence: Evidence) -> Iterator[str]:
    """Who has not come to a collective in which others wait."""
    for wait in _waits(evidence):
        call = f"{wait.call.op} {wait.call.seq} of {wait.call.group}"
        detail = ", ".join(
            part for part in (wait.call.what, f"{wait.call.bytes} bytes" if wait.call.bytes else "") if part
        )
        call += f" ({detail})" if detail else ""
        names = ", ".join(one.name for one in wait.waiting[:MOST_NAMED])
        more = f" and {len(wait.waiting) - MOST_NAMED} more" if len(wait.waiting) > MOST_NAMED else ""
        waits = (
            f"{names}{more} {'waits' if len(wait.waiting) == 1 else 'wait'} for it in {call}, for {wait.waited_s:.0f} s"
        )
        for one in wait.absent:
            yield f"{one.name} {STATES.get(one.state) or _doing(one)}; {waits}"
        for rank in wait.unseen:
            yield f"rank {rank} of {wait.call.world} is on no node that answered; {waits}"
        if not wait.absent and not wait.unseen:
            where = "still in" if wait.others_ended else "all ranks are in"
            ends = "which the others have ended" if wait.others_ended else "and it does not end"
            yield f"{names}{more}: {where} {call}, for {wait.waited_s:.0f} s, {ends}"


class _Wait(Struct, frozen=True):
    """A collective in which some wait: for those that have begun fewer of the group's, and those that nobody saw."""

    call: Collective
    waiting: tuple[Observed, ...]
    absent: tuple[Observed, ...]
    unseen: tuple[int, ...]
    waited_s: float
    others_ended: bool = False


def _waits(evidence: Evidence) -> list[_Wait]:
    groups: dict[str, list[tuple[Collective, Observed]]] = {}
    for one in evidence.processes:
        newest = {call.group: call for call in one.collectives}  # they come oldest first
        for name, call in newest.items():
            groups.setdefault(name, []).append((call, one))
    found = (_wait(evidence, members) for members in groups.values())
    return [wait for wait in found if wait is not None]


def _wait(evidence: Evidence, members: Sequence[tuple[Collective, Observed]]) -> _Wait | None:
    farthest = max(call.seq for call, _ in members)
    inside = [(call, one) for call, one in members if call.seq == farthest and not call.ended]
    if not inside:
        return None
    call = min((call for call, _ in inside), key=lambda one: one.began)
    waited_s = evidence.at - call.began
    if waited_s < LEAST_WAIT_S:
        return None
    seen = {call.rank for call, _ in members}
    absent = tuple(one for call, one in members if call.seq < farthest)
    stopped = tuple(one for _, one in inside if one.state in "TtZX" and one.state)
    waiting = tuple(one for _, one in inside if one not in stopped)
    unseen = tuple(rank for rank in range(call.world) if rank not in seen)[:MOST_NAMED]
    if stopped and not waiting and not absent and not unseen:
        return None  # nobody waits in it for another: that they are stopped is all there is to say
    # who was stopped within the collective holds it up as well as one that never came
    held_by = absent or (stopped if waiting else ())
    others_ended = any(call.seq == farthest and call.ended for call, _ in members)
    return _Wait(call, waiting or stopped, held_by, unseen, waited_s, others_ended)


_FRAME = re.compile(r"^ +(?:File \"(?P<file>[^\"]+)\", line (?P<row>\d+) in (?P<of>.+)|(?P<spy>\S.* \(.+:\d+\)))$")
_OURS = re.compile(r"\btrainers[/.]")
_IN_A_REWARD = re.compile(r"verdict \(\S*rewards/own_worker\.py:\d+\)$")
_WAITS_FOR_REWARDS = re.compile(r"Loop\.rewards \(\S*trainers/loop\.py:\d+\)$")
_QUIET = ("main_loop (ray/", "default_worker.py")
_BESIDE = "_leave_when_asked"
"""In the thread of ``trainers/roles/flight_recorder.py``, which is no part of the work."""


def _doing(one: Observed) -> str:
    """Where the process is, by the innermost frame of the thread that does the role's work."""
    threads = re.split(r"\n(?=Thread |Current thread )", one.stack)
    frames = [[frame for line in thread.splitlines() if (frame := _frame(line))] for thread in threads]
    at_work = [thread for thread in frames if not any(_BESIDE in frame for frame in thread)]
    busy = sorted(at_work, key=lambda thread: not any(_OURS.search(frame) for frame in thread))
    thread = next((thread for thread in busy if thread), [])
    if not thread:
        return "has not come"
    if any(mark in thread[0] for mark in _QUIET):
        return "has not come: it is not at work"
    ours = next((frame for frame in thread if _OURS.search(frame)), "")
    through = f", from {ours}" if ours and ours != thread[0] else ""
    return f"has not come: it is in {thread[0]}{through}"


def _frame(line: str) -> str:
    match = _FRAME.match(line)
    if match is None:
        return ""
    return match["spy"] or f"{match['of']} ({'/'.join(match['file'].split('/')[-2:])}:{match['row']})"
