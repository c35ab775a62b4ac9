"""Which rank did not join which collective, by the flight records that torch left of several ranks. Pure.

Ranks call the collectives of a group in the same order and number them. The first number that some rank is still in is
what the group waits for; ranks of the group that have not come so far are those it waits for. A rank that itself waits
in another group is not at fault, unless all are such.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from rltui.diagnose.stuck import LEAST_WAIT_S
from rltui.onnode import flight_recorder, rundir
from rltui.watch.text import plain

SAME_SIZES = frozenset({"all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base"})
"""Collectives in which every rank gives as much; of others uneven sizes are no mistake."""

DEFAULT = "0"
"""torch's name of the group of all ranks; gloo's record calls it by no name."""

MOST_NAMED = 8
LONGEST = 160
_RANK = re.compile(r"\d+")
_INSIDE = (
    "torch/distributed/",
    "torch/utils/",
    "trainers/roles/flight_recorder.py",
    "deepspeed/comm/",
    "deepspeed/utils/",
)
"""Of files on the way from a program to a collective."""


class Call(Struct, frozen=True):
    """One collective of one rank."""

    seq: int
    op: str
    sizes: str
    is_over: bool
    caller: str = ""
    """Who called it: the innermost frame outside torch."""


class FlightRecord(Struct, frozen=True):
    """What one rank left.

    Attributes:
        rank: Its global rank, by the file's name.
        calls: Its newest collectives, by the group's name.
        members: Ranks of the groups it knows, by name.
        words: What groups are for, by name.
        where: Its process and node, of a record that was taken while it lived; empty otherwise.
    """

    rank: int
    calls: dict[str, tuple[Call, ...]]
    members: dict[str, tuple[int, ...]]
    words: dict[str, str]
    where: str = ""


class _Wait(Struct, frozen=True):
    group: str
    call: Call
    world: int
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    unseen: tuple[int, ...]
    is_whole: bool
    """Whether a record says which ranks are in the group; gloo's do not for groups of some."""


def record_of(rank: int, found: Mapping[str, Any]) -> FlightRecord:
    """What ``flight_recorder.read`` gave, as far as it has the form of torch's records; what has not is left out."""
    calls: dict[str, list[Call]] = {}
    words: dict[str, str] = {}
    taken_at = found.get("at")
    lately = taken_at - LEAST_WAIT_S if isinstance(taken_at, float) else math.inf
    for entry in found["entries"]:
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        named = entry.get("process_group")
        group, about = (str(one) for one in named) if isinstance(named, (list, tuple)) and len(named) == 2 else ("", "")
        seq = entry.get("collective_seq_id", entry.get("seq_id"))
        if isinstance(seq, int):
            calls.setdefault(group, []).append(_call(seq, entry, lately))
            words[group] = about or group
    told = found.get("pg_config")
    members = {
        (str(name) or DEFAULT): tuple(sorted(map(int, _RANK.findall(str(one.get("ranks", ""))))))
        for name, one in (told.items() if isinstance(told, dict) else ())
        if isinstance(one, dict)
    }
    where = f" (pid {found['pid']} on {found['host']})" if {"pid", "host"} <= found.keys() else ""
    return FlightRecord(rank, {name: tuple(of_it) for name, of_it in calls.items()}, members, words, plain(where))


def _call(seq: int, entry: Mapping[str, Any], lately: float) -> Call:
    op = str(entry.get("profiling_name", "")).rpartition(":")[2] or "collective"
    kinds = entry.get("input_dtypes")
    sizes = f"{entry.get('input_sizes')} {', '.join(map(str, kinds)) if isinstance(kinds, list) else ''}".strip()
    # one that began just before the record was taken may just be one: nobody waits in it yet
    created_ns = entry.get("time_created_ns")
    began_s = created_ns / 1e9 if isinstance(created_ns, int) and created_ns < 1 << 63 else 0.0
    is_over = bool(entry.get("retired")) or entry.get("state") == "completed" or began_s > lately
    return Call(seq, plain(op)[:LONGEST], plain(sizes)[:LONGEST], is_over, _caller(entry.get("frames")))


def _caller(frames: object) -> str:
    for frame in frames if isinstance(frames, list) else ():
        if not isinstance(frame, dict):
            continue
        file = str(frame.get("filename", ""))
        if not any(part in file for part in _INSIDE):
            return plain(f"{frame.get('name')} ({'/'.join(file.split('/')[-2:])}:{frame.get('line')})")[:LONGEST]
    return ""


def flight_lines(records: Sequence[FlightRecord]) -> list[str]:
    """A line for each rank that did not join, and each collective that ranks disagree on, in a diagnosis' words."""
    by_rank = {one.rank: one for one in records}
    groups = dict.fromkeys(name for one in records for name in one.calls)
    waits = [wait for name in groups if (wait := _wait(name, by_rank)) is not None]
    differing = [line for wait in waits if (line := _difference(wait, by_rank))]
    return [*differing, *([] if differing else _absences(waits, by_rank))]


def _absences(waits: Sequence[_Wait], by_rank: Mapping[int, FlightRecord]) -> Iterator[str]:
    held_up = (wait for wait in waits if wait.missing or wait.unseen or not wait.is_whole)
    blocked = {rank for wait in held_up for rank in wait.waiting}
    free = {rank for wait in waits for rank in wait.missing} - blocked
    unseen = {rank for wait in waits for rank in wait.unseen}
    told: set[int] = set()
    for wait in waits:
        ranks = [rank for rank in wait.missing if rank in free or not (free or unseen)]
        for rank in [*ranks, *(wait.unseen if not free else ())][:MOST_NAMED]:
            if rank not in told:
                told.add(rank)
                sure = "stuck" if rank in by_rank else "flight"
                where = by_rank[rank].where if rank in by_rank else ""
                yield f"{sure}: rank {rank} of {wait.world}{where} {_absence(rank, wait, by_rank)}; {_waiting(wait)}"


def _absence(rank: int, wait: _Wait, by_rank: Mapping[int, FlightRecord]) -> str:
    call = f"{wait.call.op} {wait.call.seq} of {_group_words(wait.group, by_rank)} ({wait.call.sizes})"
    if rank not in by_rank:
        return f"left no record, and has not joined {call} as far as the others know"
    last = max(by_rank[rank].calls.get(wait.group, ()), key=lambda one: one.seq, default=None)
    before = f"its last there is {last.op} {last.seq}" if last else "it has called nothing there"
    return f"has not joined {call}: {before}{f', from {last.caller}' if last and last.caller else ''}"


def _waiting(wait: _Wait) -> str:
    more = f" and {len(wait.waiting) - MOST_NAMED} more" if len(wait.waiting) > MOST_NAMED else ""
    ranks = ", ".join(map(str, wait.waiting[:MOST_NAMED]))
    who = f"rank {ranks} waits" if len(wait.waiting) == 1 else f"ranks {ranks}{more} wait"
    return f"{who} in it{f', from {wait.call.caller}' if wait.call.caller else ''}"


def _group_words(group: str, by_rank: Mapping[int, FlightRecord]) -> str:
    word = next((one.words[group] for one in by_rank.values() if group in one.words), group)
    return plain(word)[:LONGEST] or "a group"


def _wait(group: str, by_rank: Mapping[int, FlightRecord]) -> _Wait | None:
    """What the group waits for; None where nobody is in a collective.

    That is the first number which some have not come to: of one that all have joined, a rank may note the end late.
    """
    calls = {rank: one.calls.get(group, ()) for rank, one in by_rank.items()}
    under_way: dict[int, Call] = {}
    for call in (one for of_it in calls.values() for one in of_it if not one.is_over):
        under_way.setdefault(call.seq, call)
    # gloo calls all groups by one name there, so each record may have the ranks of another
    known = {rank for one in by_rank.values() for rank in one.members.get(group, ())}
    members = tuple(sorted(known or {rank for rank, of_it in calls.items() if of_it}))
    waits = [_wait_in(group, call, members, calls, is_whole=bool(known)) for _, call in sorted(under_way.items())]
    return next((one for one in waits if one.missing or one.unseen), waits[0] if waits else None)


def _wait_in(
    group: str, call: Call, members: Sequence[int], calls: Mapping[int, Sequence[Call]], *, is_whole: bool
) -> _Wait:
    farthest = {rank: max((one.seq for one in calls[rank]), default=-1) for rank in members if rank in calls}
    inside = {rank for rank, of_it in calls.items() for one in of_it if one.seq == call.seq and not one.is_over}
    missing = tuple(rank for rank, seq in farthest.items() if seq < call.seq)
    unseen = tuple(rank for rank in members if rank not in calls)
    # files of a few ranks say nothing of the many that were not given
    shown = unseen if len(unseen) <= len(farthest) else ()
    return _Wait(group, call, len(members), tuple(sorted(inside)), missing, shown, is_whole)


def _difference(wait: _Wait, by_rank: Mapping[int, FlightRecord]) -> str:
    """Two ranks that did different things at the number the group is at; empty where none did."""
    found = [
        (rank, one)
        for rank, record in by_rank.items()
        for one in record.calls.get(wait.group, ())
        if one.seq == wait.call.seq
    ]
    first, one = min(found, key=lambda pair: pair[0])
    for rank, other in sorted(found, key=lambda pair: pair[0]):
        differs = other.op != one.op or (one.op in SAME_SIZES and other.sizes != one.sizes)
        if differs:
            where = _group_words(wait.group, by_rank)
            return (
                f"desync: at number {one.seq} of {where} rank {first} is in {_called(one)}, "
                f"but rank {rank} is in {_called(other)}"
            )
    return ""


def _called(call: Call) -> str:
    return f"{call.op} ({call.sizes}{f', from {call.caller}' if call.caller else ''})"


def lines_of(files: Mapping[str, bytes]) -> tuple[list[str], list[str]]:
    """Compare the records in ``files`` (content by path), those that belong together with each other.

    Returns:
        The lines of ``flight_lines``, and a sentence for each file that could not be used.
    """
    sets: dict[str, list[FlightRecord]] = {}
    unusable: list[str] = []
    for path, data in files.items():
        named = flight_recorder.named(path)
        if named is None:
            unusable.append(f"{plain(path)}: no rank is in its name, such as {rundir.FLIGHT_RECORD}0")
            continue
        try:
            sets.setdefault(named[0], []).append(record_of(named[1], flight_recorder.read(data)))
        except ValueError as error:
            unusable.append(f"{plain(path)} is no flight record: {plain(str(error))}")
    return [line for records in sets.values() for line in flight_lines(records)], unusable
