"""What has gone quiet in a live run: nodes whose samplers do not speak, and steps that do not come."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from rltui.onnode import rundir

if TYPE_CHECKING:
    from rltui.watch.node_samples import HostSnapshot
    from rltui.watch.snapshots import RunSnapshot, RunSummary

SPEAKING = frozenset({"starting", "running", "stopping"})

BEHIND_S = 60.0
"""A node this far behind the newest sample of another one is silent: a sampler speaks every few seconds."""

ALL_S = 300.0
"""Where all are equally old only the cluster's clock can tell, which may differ from the nodes' by minutes."""


def silent_nodes(snapshot: RunSnapshot) -> dict[str, float]:
    """Seconds since each silent node spoke; a run that has ended or waits has none that should."""
    return silent_s(snapshot.hosts, snapshot.taken_at) if snapshot.summary.state in SPEAKING else {}


def silent_s(hosts: Iterable[HostSnapshot], now: float) -> dict[str, float]:
    """Seconds since each of a live run's nodes spoke that should have since, at ``now`` by the cluster's clock."""
    spoken = {host.host: host.taken_at for host in hosts if host.taken_at}
    newest = max(spoken.values(), default=now)
    if now - newest > ALL_S:
        return {name: now - at for name, at in spoken.items()}
    return _behind(spoken)


def _behind(spoken: Mapping[str, float]) -> dict[str, float]:
    newest = max(spoken.values(), default=0.0)
    return {name: newest - at for name, at in spoken.items() if newest - at > BEHIND_S}


def silent_words(spoken: Mapping[str, float]) -> str:
    """Which node fell silent before the others, in a few words for a list; empty where none did.

    Args:
        spoken: When the sampler of each node wrote last, epoch seconds.
    """
    silent = sorted(_behind(spoken))
    return f"{silent[0]} silent" + (f" and {len(silent) - 1} more" if silent[1:] else "") if silent else ""


def halted(snapshot: RunSnapshot) -> list[str]:
    """A sentence for each process of a live run that does nothing: its title, pid, node, and why."""
    if snapshot.summary.state not in SPEAKING:
        return []
    silent = silent_nodes(snapshot)
    return [
        f"{one.title or 'a process'} (pid {one.pid}) on {host.host}: {one.state} for {one.state_s:.0f} s"
        for host in snapshot.hosts
        if host.host not in silent
        for one in host.processes
        if one.state
    ]


STOPPED = frozenset({"stopped", "traced"})
"""States of a process, as samplers word them, that count at once: all processes end and read disks at times."""

STOPPED_S = 5.0
"""A process that is stopped for less may just be looked at."""

_TOLD = re.compile(r"(?P<title>.*) \(pid (?P<pid>\d+)\): (?P<state>\w+)")
"""How ``onnode/sampler.py`` tells that a process came to a halt, or goes on."""


_AWAITED = re.compile(r"(?P<who>[^,;:]+?) (?:is|has) ")
"""How ``diagnose/stuck.py`` begins a line on one process; one on several names none that the others wait for."""


class Halt(Struct, frozen=True):
    """A process that was stopped on its node ``host`` at ``at``, epoch seconds by the node's clock."""

    host: str
    pid: int
    title: str
    state: str
    at: float


def halts_told(events: Iterable[Mapping[str, Any]]) -> list[Halt]:
    """Processes that samplers told are stopped and not that they go on again; none from before a role's restart.

    Args:
        events: Of one attempt, oldest first; those of other kinds do not count.
    """
    found: dict[tuple[str, int], Halt] = {}
    for event in events:
        if event.get("kind") == rundir.RESTART:
            found.clear()
        told, at = _TOLD.match(str(event.get("text"))), event.get("time")
        if event.get("kind") != "process" or told is None or not isinstance(at, (int, float)):
            continue
        host, pid = str(event.get("host")), int(told["pid"])
        found.pop((host, pid), None)
        if told["state"] in STOPPED:
            found[host, pid] = Halt(host, pid, told["title"], told["state"], at)
    return list(found.values())


def halt_words(events: Iterable[Mapping[str, Any]], last: float, now: float) -> str:
    """Who is stopped, in a few words for a list, where no step was done since; empty where nobody is.

    Args:
        events: The attempt's newest.
        last: When its last step was done, epoch seconds; 0: it has not done one.
        now: By the cluster's clock.
    """
    events = list(events)
    halts = [one for one in halts_told(events) if last < one.at <= now - STOPPED_S]
    if not halts:
        return _awaited_words(events, last)
    newest, more = halts[-1], f" and {len(halts) - 1} more" if halts[1:] else ""
    program = newest.title.split(" ")[0] or "a process"
    name = program.removeprefix("ray::").split(".")[0] if program.startswith("ray::") else program
    role = roles_told(events).get((newest.host, newest.pid)) or name
    return f"{role} {newest.state} (pid {newest.pid} on {newest.host}){more}"


def roles_told(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], str]:
    """The roles by node, as samplers name it, and pid, where ``events`` go back to when they were placed."""
    told = [event["roles"] for event in events if isinstance(event.get("roles"), list)]
    return {(str(one["host"]).split(".")[0], int(one["pid"])): str(one["role"]) for one in (told[-1] if told else ())}


def _awaited_words(events: Iterable[Mapping[str, Any]], last: float) -> str:
    """For whom the others wait, by the evidence of a standstill that no step has ended since ``last``."""
    found = [
        match["who"]
        for event in events
        if event.get("kind") == rundir.AWAITED and isinstance(event.get("time"), (int, float)) and event["time"] > last
        if (match := _AWAITED.match(str(event.get("text"))))
    ]
    return f"waits for {found[0]}" + (f" and {len(found) - 1} more" if found[1:] else "") if found else ""


LEAST_STEP_S = 0.01


class LastMetrics(Struct, frozen=True):
    """What a row of the list shows of a run's metrics."""

    reward: float | None = None
    rates: tuple[float, ...] = ()
    at: float = 0.0
    """When the last step was written, epoch seconds; 0 where nobody has said."""
    usual_step_s: float = 0.0
    """Median of the last steps; 0 before there are two."""
    pause_s: float = 0.0
    """The longest time between steps that are told several at once; 0 where they are told one by one."""
    lines: tuple[dict[str, float], ...] = ()
    """The numbers of the newest steps by canonical name, oldest first; kept of live runs only."""


QUIET_S, QUIET_STEPS = 60.0, 4.0
"""From so many seconds, and so many usual steps, without a new step on it is worth a word; a stall takes longer."""


def pause_s(took_s: Sequence[float]) -> float:
    """For how long a program that writes many lines at once, when its buffer is full, says nothing of its steps.

    Args:
        took_s: Seconds between steps as they were read, of which most are next to nothing then; 0: it is not so.
    """
    return max(took_s) if took_s and statistics.median(took_s) < LEAST_STEP_S else 0.0


def aged(run: RunSummary, metrics: LastMetrics, now: float) -> RunSummary:
    """``run`` without a rate that is too old to be one, and with how long no step has come.

    Args:
        run: A row with its last metrics.
        metrics: When the last step was written, and what a step takes.
        now: Epoch seconds by the cluster's clock.
    """
    # saving, loading and evaluating take their own time, and none of them makes steps
    if run.state != "running" or run.stage.stage != "training" or run.stage.detail.startswith(rundir.EVALUATING):
        return run
    waited_s = now - max(metrics.at, run.stage.since)
    if not metrics.at or waited_s <= max(QUIET_S, QUIET_STEPS * metrics.usual_step_s, metrics.pause_s):
        return run
    return structs.replace(run, tokens_per_second=None, no_step_s=waited_s, usual_step_s=metrics.usual_step_s)


def no_step_words(run: RunSummary) -> str:
    """``no step for 2m10, usually 0.4 s``; empty where steps come as they should."""
    if not run.no_step_s:
        return ""
    minutes, seconds = divmod(int(run.no_step_s), 60)
    waited = f"{minutes // 60}h{minutes % 60:02d}" if minutes >= 60 else f"{minutes}m{seconds:02d}"
    step = f"{run.usual_step_s:.0f}" if run.usual_step_s >= 10 else f"{run.usual_step_s:.2g}"
    # lines that a program wrote at once, when its buffer was full, say nothing of what a step takes
    is_known = run.usual_step_s >= LEAST_STEP_S
    return f"no step for {waited}, usually {step} s" if is_known else f"no step for {waited}"
