"""What the files of a recording held at a moment: each file with the times at which it grew or was written anew.

Lines tell their own times: of metrics, events and samples of nodes in a field, of logs at their beginning (a line
without one belongs to the one before). A small file is there from the moment on at which it was last written, unless
somebody noted what it said before. ``stage.json`` is made again from its history, the events and the steps.
"""

from __future__ import annotations

import bisect
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta, timezone
from typing import Any

from msgspec import Struct

from rltui.cluster.plain_text import plain
from rltui.onnode import rundir
from rltui.onnode.lost_nodes import is_sampler_file
from rltui.service.recording import DAY_S, LATEST, Recording, is_place
from rltui.watch.attempt_logs import RAY_LOGS, is_log
from rltui.watch.lines import parse_object
from rltui.watch.log_times import Clock
from rltui.watch.text import plain_line

_ATTEMPT = re.compile(r"(attempts/\d{1,6})/(.+)\Z")
MOST_STEPS = 5000
"""Steps at which the stage is told anew, at most twice as many."""
AWAY = b'{"schema": 1, "dashboard": "http://127.0.0.1:1", "url": "http://127.0.0.1:1", "host": "recorded"}'
"""Stands for Ray's and the trainer's servers: they are out of reach, so that what was noted of them is read."""


class FileHistory(Struct, frozen=True):
    """One file over time.

    Attributes:
        times: Epoch seconds, growing.
        contents: What it held from each of them on: all of it, or how many bytes of ``data``.
        data: All that it ever came to, of a file that only grows.
    """

    times: tuple[float, ...]
    contents: tuple[bytes | int, ...]
    data: bytes = b""

    def at(self, now: float) -> bytes | int | None:
        """What it held at ``now``; None where it was not there yet."""
        place = bisect.bisect_right(self.times, now) - 1
        return self.contents[place] if place >= 0 else None


class Happening(Struct, frozen=True):
    """Something to jump to: when it was, epoch seconds, and what."""

    at: float
    text: str


class RunTimes(Struct, frozen=True):
    """A recording as files over time.

    Attributes:
        begin: When the run was made, epoch seconds.
        end: Until when anything is known.
        files: By path below the run's directory.
        events: What can be jumped to, in order.
    """

    begin: float
    end: float
    files: dict[str, FileHistory]
    events: tuple[Happening, ...]


def run_times(recording: Recording) -> RunTimes:
    """Find out when each file of a recording held what."""
    files, changes = recording.files, recording.changes
    record = parse_object(files[rundir.RUN][0]) or {}
    events = tuple(_happenings(files))
    recorded_at = recording.manifest.recorded_at
    clock = Clock(timezone(timedelta(seconds=recording.manifest.utc_offset_s)), recorded_at, 0.0)
    created = _number(record.get("created_at")) or (events[0].at if events else recorded_at)
    histories = {rundir.RUN: FileHistory((-math.inf,), (files[rundir.RUN][0],))}
    for path, (data, mtime) in files.items():
        if path not in histories:
            histories[path] = _history(path, data, mtime, recording, clock)
    noted = _noted(changes)
    for attempt in {match[1] for match in map(_ATTEMPT.match, files) if match}:
        histories |= _stages(histories, attempt, noted.pop(f"{attempt}/{rundir.STAGE}", []))
    for path, said in noted.items():
        histories[path] = _merged(histories.get(path, FileHistory((), ())), said)
    for attempt in {match[1] for match in map(_ATTEMPT.match, histories) if match}:
        if f"{attempt}/{rundir.ACTORS}" in histories or f"{attempt}/{rundir.STATUS_NOW}" in histories:
            away = FileHistory((-math.inf,), (AWAY,))
            histories |= {f"{attempt}/{name}": away for name in (rundir.RAY_ENDPOINT, rundir.STATUS_ENDPOINT)}
    told = [time for one in histories.values() for time in one.times if math.isfinite(time)]
    live_until = recorded_at if recording.manifest.is_live else 0.0
    end = max([created + 1.0, live_until, *(time for time in told if time <= recorded_at + DAY_S)])
    return RunTimes(created, end, histories, events)


def _happenings(files: dict[str, tuple[bytes, float]]) -> Iterable[Happening]:
    data = b"\n".join(data for path, (data, _) in files.items() if path.endswith(f"/{rundir.EVENTS}"))
    told = ((_number(one.get("time")), one) for one in filter(None, map(parse_object, data.split(b"\n"))))
    found = [Happening(at, plain(f"{one.get('kind', '')} {one.get('text', '')}")) for at, one in told if at is not None]
    return sorted(found, key=lambda one: one.at)


def _history(path: str, data: bytes, mtime: float, recording: Recording, clock: Clock) -> FileHistory:
    name = path.rpartition("/")[2]
    if name == rundir.END:
        at = _number((parse_object(data) or {}).get("at"))
        return FileHistory((mtime if at is None else at,), (data,))
    if name in (rundir.METRICS, rundir.EVENTS):
        return _grown(data, mtime, _field("time"))
    if is_sampler_file(name):
        return _grown(data, mtime, _field("t"))
    if name == rundir.SAMPLES:
        return _grown(data, mtime, _by_step(recording.files, path))
    if is_log(name):
        return _log(path, data, mtime, recording, clock)
    return FileHistory((mtime,), (data,))


def _grown(data: bytes, mtime: float, time_of: Callable[[bytes], float | None]) -> FileHistory:
    """A file of lines that tell when they were written; one that does not came with the line before."""
    times: list[float] = []
    sizes: list[bytes | int] = []
    size = 0
    for line in data.split(b"\n")[:-1]:
        size += len(line) + 1
        at = time_of(line)
        if times and (at is None or at <= times[-1]):
            sizes[-1] = size
        elif at is not None:
            times.append(at)
            sizes.append(size)
    return FileHistory(tuple(times), tuple(sizes), data) if times else FileHistory((mtime,), (len(data),), data)


def _field(name: str) -> Callable[[bytes], float | None]:
    return lambda line: _number((parse_object(line) or {}).get(name))


def _by_step(files: dict[str, tuple[bytes, float]], path: str) -> Callable[[bytes], float | None]:
    """When a sample was written: with its step."""
    metrics = files.get(f"{path.rpartition('/')[0]}/{rundir.METRICS}", (b"", 0.0))[0]
    lines = filter(None, map(parse_object, metrics.split(b"\n")))
    times = {str(line.get("step")): _number(line.get("time")) for line in lines}
    return lambda line: times.get(str((parse_object(line) or {}).get("step")))


def _log(path: str, data: bytes, mtime: float, recording: Recording, clock: Clock) -> FileHistory:
    """A log: by its lines' times, else by how long it was seen to be, else as if it had been written evenly.

    A log of Ray's comes to the attempt at its end; what an actor said as it died is nothing of the time before.
    """
    grown = _grown(data, mtime, lambda line: clock.read(plain_line(line[:200])))
    if grown.times != (mtime,) or f"/{RAY_LOGS}/" in path:
        return grown
    noted = ((_number(one.get("t")), one.get("size")) for one in recording.changes if one.get("path") == path)
    seen = [(at, min(size, len(data))) for at, size in noted if at is not None and isinstance(size, int) and size >= 0]
    began = _began(recording.files, path)
    if path in recording.manifest.cut or not seen:
        shares = [place / 100 for place in range(100)] if began < mtime else []
        seen = [(began + (mtime - began) * share, int(len(data) * share)) for share in shares]
    seen = sorted([*seen, (max([mtime, *(at for at, _ in seen)]), len(data))])
    return FileHistory(tuple(at for at, _ in seen), tuple(size for _, size in seen), data)


def _began(files: dict[str, tuple[bytes, float]], path: str) -> float:
    match = _ATTEMPT.match(path)
    stage = parse_object(files.get(f"{match[1]}/{rundir.STAGE}", (b"", 0.0))[0]) if match else None
    return min((at for at, _ in _visits(stage or {})), default=math.inf)


def _noted(changes: Sequence[dict[str, Any]]) -> dict[str, list[tuple[float, bytes]]]:
    """What small files said, and from when on, where somebody noted it."""
    noted: dict[str, list[tuple[float, bytes]]] = {}
    for one in changes:
        path, at, text = one.get("path"), _number(one.get("t")), one.get("text")
        if isinstance(path, str) and is_place(path) and at is not None and isinstance(text, str):
            noted.setdefault(path, []).append((at, text.encode("utf-8", "replace")))
    return noted


def _merged(known: FileHistory, noted: list[tuple[float, bytes]]) -> FileHistory:
    """A small file as it was noted, and before and after that as else is known."""
    first, last = min(at for at, _ in noted), max(at for at, _ in noted)
    told = [one for one in zip(known.times, known.contents, strict=True) if not first <= one[0] <= last]
    merged = sorted([*told, *noted], key=lambda one: one[0])
    return FileHistory(tuple(at for at, _ in merged), tuple(what for _, what in merged))


def _visits(stage: dict[str, Any]) -> list[tuple[float, str]]:
    history = stage.get("history")
    told = [one for one in history if isinstance(one, dict)] if isinstance(history, list) else []
    found = [(_number(one.get("at")), str(one.get("stage"))) for one in told]
    return [(at, name) for at, name in found if at is not None]


def _stages(
    files: dict[str, FileHistory], attempt: str, noted: Sequence[tuple[float, bytes]]
) -> dict[str, FileHistory]:
    """``stage.json`` as it was: which stage by its history, its detail by the events, the step by the metrics.

    Args:
        files: All files.
        attempt: The attempt's folder.
        noted: What somebody saw in it, and when: details, progress and roles.
    """
    path = f"{attempt}/{rundir.STAGE}"
    known = files[path].contents[-1] if path in files else b""
    last = (parse_object(known) if isinstance(known, bytes) else None) or {}
    visits = _visits(last)
    steps = _lines(files.get(f"{attempt}/{rundir.METRICS}"), "step")
    steps = [*steps[:: 1 + len(steps) // MOST_STEPS], *steps[-1:]]
    moments: list[tuple[float, dict[str, Any]]] = [(at, {"stage": name, "visit": True}) for at, name in visits]
    moments += [(at, {"stage": "training", "step": step, "roles": last.get("roles", {})}) for at, step in steps]
    moments += [(at, _seen(text)) for at, text in noted]
    details = _lines(files.get(f"{attempt}/{rundir.EVENTS}"), "text")
    told = {**last, "stage": "", "step": None, "progress": None, "roles": {}, "history": []}
    contents: list[bytes | int] = []
    moments.sort(key=lambda one: one[0])
    for at, said in moments:
        told = _told(told, at, said, details)
        contents.append(json.dumps(told).encode())
    if contents and visits[-1:] == [(moments[-1][0], "ended")]:
        contents[-1] = known
    return {path: FileHistory(tuple(at for at, _ in moments), tuple(contents))} if visits else {}


def _seen(text: bytes) -> dict[str, Any]:
    said = parse_object(text) or {}
    return {key: said[key] for key in ("stage", "detail", "progress", "roles") if key in said}


def _told(
    told: dict[str, Any], at: float, said: dict[str, Any], details: Sequence[tuple[float, Any]]
) -> dict[str, Any]:
    """The next content of ``stage.json``: ``told`` before, and what is ``said`` at this moment."""
    stage = said.pop("stage", "")
    if said.pop("visit", False):
        told = {**told, "history": [*told["history"], {"stage": stage, "at": at}]}
    elif "step" not in said and stage != told["stage"]:
        return told  # it was seen a moment before it changed
    if stage != told["stage"]:
        event = min(details, key=lambda one: abs(one[0] - at), default=(at, ""))
        told = {**told, "stage": stage, "since": at, "progress": None, "detail": _detail(str(event[1]), stage)}
    return {**told, **said, "updated": at}


def _detail(event: str, stage: str) -> str:
    """What an event says of a stage beside its name; nothing where it is of something else."""
    return event.removeprefix(f"{stage}: ") if event.startswith(f"{stage}: ") else ""


def _lines(file: FileHistory | None, field: str) -> list[tuple[float, Any]]:
    """Time and a field of each line of a file that grew."""
    lines = filter(None, map(parse_object, file.data.split(b"\n"))) if file is not None else ()
    found = [(_number(line.get("time")), line.get(field)) for line in lines]
    return [(at, value) for at, value in found if at is not None and isinstance(value, int | str)]


def _number(value: object) -> float | None:
    """A time; what is none, or not finite, is None."""
    fine = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LATEST
    return float(value) if fine else None  # type: ignore[arg-type]
