"""Which process holds up the others, by their Python stacks: for programs that keep no record of collectives. Pure.

Processes that run the same program do the same at the same time. Where a run stands still and most of them are in one
place, and a few are elsewhere, the few are what the most wait for. A collective that gloo or a barrier does is in the
stack; NCCL's returns at once, and its ranks are found where their program reads a result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

_MEETS = re.compile(
    r"^_?(?:all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|(?:monitored_)?barrier|reduce|gather\w*|scatter\w*|"
    r"all_to_all\w*|send\w*|recv\w*|wait) \(\S*torch/distributed/\S+:\d+\)$"
)
_HELPER = re.compile(
    r" \(\S*(?:multiprocessing/(?:resource_tracker|forkserver)|torch/utils/data/_utils/worker)\.py:\d+\)$"
)
_FRAME = re.compile(r"^ +(?P<frame>\S.* \(.+:\d+\))$")
_LOOP = re.compile(r"^main_loop \(ray/")
"""A Ray actor that has nothing to do."""

LEAST_ALIKE = 3
"""Processes in one place that say by their number where the others should be; a collective says it by itself."""
MOST_NAMED = 4


class Collective(Struct, frozen=True):
    """One collective of one rank, as ``trainers/roles/flight_recorder.py`` noted it; ``ended`` 0: the rank is in it."""

    group: str
    seq: int
    op: str
    rank: int
    world: int
    bytes: int = 0
    began: float = 0.0
    ended: float = 0.0
    what: str = ""


class Observed(Struct, frozen=True):
    """One process at the moment of the evidence."""

    pid: int
    title: str = ""
    state: str = ""
    wchan: str = ""
    stack: str = ""
    """Of all its Python threads; or why there is none."""
    collectives: tuple[Collective, ...] = ()
    role: str = ""
    """Name of the role, such as ``learner 1``; empty for other processes."""
    host: str = ""
    rank: str = ""
    """Its number in the launcher's words, of a process that has no role's name."""
    stack_by: str = ""
    """Who told its stack, ``py-spy`` or ``faulthandler``; empty: nobody could."""

    @property
    def name(self) -> str:
        """The process for people, with its node."""
        rank = f"rank {self.rank}" if self.rank else ""
        return f"{self.role or rank or self.title.split(' ')[0] or 'a process'} (pid {self.pid} on {self.host})"


def odd_ones(processes: Sequence[Observed]) -> Iterator[str]:
    """A line for each process that is elsewhere than most of those that run the same program."""
    kinds: dict[str, list[tuple[Observed, tuple[str, ...]]]] = {}
    for one in processes:
        frames = main_frames(one.stack)
        if frames and not any(_HELPER.search(frame) for frame in frames):
            kinds.setdefault(_kind(one), []).append((one, frames))
    for members in kinds.values():
        yield from _odd_of(members)


def main_frames(stack: str) -> tuple[str, ...]:
    """The frames of the main thread, innermost first, of what py-spy said; none where it could not tell."""
    threads = re.split(r"\n(?=Thread )", stack)
    thread = next((one for one in threads if '"MainThread"' in one.partition("\n")[0]), "")
    return tuple(match["frame"] for line in thread.splitlines() if (match := _FRAME.match(line)))


def _kind(one: Observed) -> str:
    """What a process runs, without what tells ranks apart."""
    actor = re.match(r"ray::(\w+)", one.title)
    return actor[0] if actor else re.sub(r"\d+", "#", one.title)


def _odd_of(members: Sequence[tuple[Observed, tuple[str, ...]]]) -> Iterator[str]:
    # nodes, and containers above all, have processes of the same number
    places = {(one.host, one.pid): _place(frames) for one, frames in members}
    meeting = [one for one, frames in members if any(_MEETS.match(frame) for frame in frames)]
    if meeting:
        waiting, where, most = meeting, places[meeting[0].host, meeting[0].pid], len(meeting)
    else:
        where, count = Counter(places.values()).most_common(1)[0]
        if count < LEAST_ALIKE or _LOOP.match(where):
            return
        waiting, most = [one for one, _ in members if places[one.host, one.pid] == where], count // 2
    odd = [one for one, _ in members if one not in waiting]
    if len(odd) > most:
        return
    names = ", ".join(one.name for one in waiting[:MOST_NAMED])
    more = f" and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
    are = "is" if len(waiting) == 1 else "are"
    yield from (f"{one.name} is in {places[one.host, one.pid]}, while {names}{more} {are} in {where}" for one in odd)


def _place(frames: Sequence[str]) -> str:
    """Where a process is: the collective and who called it, else the innermost frame."""
    met = next((index for index, frame in enumerate(frames) if _MEETS.match(frame)), None)
    if met is None:
        return frames[0]
    caller = next((frame for frame in frames[met + 1 :] if "torch/distributed/" not in frame), "")
    return f"{frames[met]}, from {caller}" if caller else frames[met]
