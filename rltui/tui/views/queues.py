"""Queues: the trainer's own, its engines' and the scheduler's, the weight versions, and the rates. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rltui.tui import braille, formats, progress
from rltui.tui.compose import Section
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Span, clip, line, pad, rule, width_of, wrapped
from rltui.watch.node_samples import EngineSample, HostSnapshot
from rltui.watch.pending import reason_words, start_words
from rltui.watch.snapshots import RunSnapshot, StatusSnapshot

if TYPE_CHECKING:
    from rltui.cluster.jobs import JobSnapshot


def queue_rows(status: StatusSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """Each queue as a bar with its count, then the weight versions."""
    name_width = min(20, max((len(_queue_name(queue.name)) for queue in status.queues), default=7))
    size = max(4, min(24, width - name_width - 16))
    rows = []
    for queue in status.queues:
        full, empty = braille.bar(queue.current / queue.maxsize if queue.maxsize else 0.0, size, glyphs)
        rows.append(
            line(
                (f" {pad(_queue_name(queue.name), name_width)} {glyphs.bar_left}", "dim"),
                (full, "bar"),
                (empty, "rule"),
                (glyphs.bar_right, "rule"),
                (f" {queue.current:>4}/{queue.maxsize:<4}", "text"),
            )
        )
    return rows + _weights(status, name_width)


def _queue_name(name: str) -> str:
    return name.lower().removesuffix(" queue")


def _weights(status: StatusSnapshot, name_width: int) -> list[Line]:
    if status.learner_weight_version is None:
        return []
    engines = status.engine_weight_versions.values()
    lag = status.learner_weight_version - min(engines) if engines else 0
    return [
        line(
            (f" {pad('weights', name_width)}  ", "dim"),
            (f"v{status.learner_weight_version}", "text"),
            ("  lag ", "dim"),
            (str(lag), "attention" if lag > 1 else "text"),
        )
    ]


def queue_section(snapshot: RunSnapshot, glyphs: Glyphs, rank: int) -> Section:
    """Queues, weight versions and the phase of the step."""
    status = snapshot.status
    right: tuple[Span, ...] = ((status.phase, "dim"),) if status.phase else ()
    if status.problem:
        right = ((clip(status.problem, 24), "attention"),)
    told = [engine for host in snapshot.hosts for engine in host.engines]
    rows = len(status.queues) + (status.learner_weight_version is not None) + bool(told)
    return Section(
        (("queues", "title"),),
        right,
        lambda width, height: [*queue_rows(status, width, glyphs), *_all_engines(told, width)][:height],
        least=1,
        wanted=rows,
        rank=rank,
    )


def _all_engines(engines: Sequence[EngineSample], width: int) -> list[Line]:
    """All engines in one row."""
    if not engines:
        return []
    running, waiting = sum(one.running or 0 for one in engines), sum(one.waiting or 0 for one in engines)
    fullest = max((one.kv_cache_usage for one in engines if one.kv_cache_usage is not None), default=None)
    words = f"{running:.0f} run, {waiting:.0f} wait"
    words += "" if fullest is None else f", KV {100 * fullest:.0f} %"
    name = "engine" if len(engines) == 1 else f"{len(engines)} engines"
    silent = sum(one.is_silent for one in engines)
    late: list[Span] = [(f"  {silent} silent", "attention")] if silent else []
    return [line((f" {pad(name, 12)} ", "dim"), (clip(words, max(8, width - 14 - 12 * bool(silent))), "text"), *late)]


def engine_rows(hosts: Sequence[HostSnapshot], width: int, glyphs: Glyphs) -> list[Line]:
    """A row an engine that serves HTTP, the fullest KV cache first; none where there is no such engine."""
    told = [(f"{host.host}:{engine.name}", engine) for host in hosts for engine in host.engines]
    if not told:
        return []
    told.sort(key=lambda one: (not one[1].is_silent, -(one[1].kv_cache_usage or 0.0), one[0]))
    speeds = [one.tokens_per_second for _, one in told if one.tokens_per_second is not None]
    right: list[Span] = [(f"{formats.count(sum(speeds))} tok/s", "dim")] if speeds else []
    name_width = min(24, max(len(name) for name, _ in told), max(6, width - 24))
    rows = [rule([("engines", "title")], right, width, glyphs)]
    for name, engine in told:
        first: Span = (f" {pad(clip(name, name_width), name_width)} ", "dim")
        room = width - name_width - 2
        silence = f"has not answered for {formats.duration(engine.silent_s)}"
        spans: list[Span] = [(clip(silence, room), "attention")] if engine.is_silent else []
        for group in () if engine.is_silent else _counters(engine, max(0, min(20, room - 59)), glyphs):
            if width_of((*spans, *group)) <= room:
                spans += group
        rows.append(line(first, *spans))
    return [*rows, BLANK]


def _counters(engine: EngineSample, size: int, glyphs: Glyphs) -> list[list[Span]]:
    """What the engine tells, the most important first; what has no room is left out."""
    held_up = (engine.waiting or 0.0) > (engine.running or 0.0) > 0
    groups: list[list[Span]] = [
        [(f"{_number(engine.running):>5} run", "text")],
        [(f" {_number(engine.waiting):>5} wait", "attention" if held_up else "text")],
    ]
    if engine.kv_cache_usage is not None:
        full, empty = braille.bar(engine.kv_cache_usage, size, glyphs)
        percent = f" {100 * engine.kv_cache_usage:>3.0f}%"
        groups.append([("  KV ", "dim"), (full, "bar"), (empty, "rule"), (percent, "text")])
    if engine.tokens_per_second is not None:
        groups.append([(f" {formats.count(engine.tokens_per_second):>6}/s", "text")])
    if engine.preemptions_total:
        groups.append([(f"  {engine.preemptions_total:.0f} preempted", "attention")])
    return groups


def _number(value: float | None) -> str:
    return formats.MISSING if value is None else f"{value:.0f}"


def tab(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """All about queues, for the tab that scrolls."""
    job = snapshot.summary.job
    lines: list[Line] = []
    if job is not None:
        lines += [*job_rows(job, snapshot.taken_at, width), BLANK]
    elif snapshot.summary.state == "queued" and (why := progress.state_detail(snapshot.summary, snapshot.taken_at)):
        lines += [*wrapped(why, width, "", "text", mark=_fact("it waits")), BLANK]
    status = snapshot.status
    if not snapshot.summary.is_live:
        status = StatusSnapshot()
    if status.problem:
        lines += wrapped(status.problem, width, " ", "attention")
    engines = engine_rows(snapshot.hosts, width, glyphs) if snapshot.summary.is_live else []
    lines += engines
    if not status.queues and status.learner_weight_version is None:
        if engines:
            return lines
        ended = "the run has ended, and its queues with it"
        words = "no queues of the trainer yet: they appear when it trains" if snapshot.summary.is_live else ended
        return [*lines, rule([("trainer", "title")], [], width, glyphs), *wrapped(words, width, " ", "dim")]
    phase = f"{status.phase} for {formats.duration(snapshot.taken_at - status.phase_since)}" if status.phase else ""
    if status.noted_at:
        phase = f"{phase}  {formats.ago(snapshot.taken_at - status.noted_at)}".strip()
    lines.append(rule([("trainer", "title")], [(phase, "dim")] if phase else [], width, glyphs))
    lines += queue_rows(status, width, glyphs)
    lines += _engines(status, width)
    return [*lines, *_rates(status)]


def tab_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """Which scheduler's word it is."""
    job = snapshot.summary.job
    right = f"job {job.job_id} in {job.partition or 'no partition'}" if job is not None else "no scheduler's job"
    return [rule([("queues", "title")], [(right, "dim")], width, glyphs)]


def job_rows(job: JobSnapshot, now: float, width: int) -> list[Line]:
    """What the scheduler says of the job: state, place in the line, expected start, nodes, requeues."""
    facts: list[tuple[str, str]] = [("scheduler says", f"{job.state}{f' ({job.word})' if job.word else ''}")]
    if job.reason and job.state == "pending":
        facts.append(("it waits because", reason_words(job)))
    if job.queue_position is not None:
        of = f" of {job.partition_pending} that wait" if job.partition_pending else ""
        facts.append(("place in the line", f"{job.queue_position}{of}"))
    if job.expected_start_at and job.state == "pending":
        facts.append(("expected start", start_words(job.expected_start_at - now).removeprefix("starts ")))
    if job.started_at and job.time_limit_s:
        left = job.started_at + job.time_limit_s - now
        facts.append(("time left", f"{formats.duration(left)} of {formats.duration(job.time_limit_s)}"))
    if job.nodes:
        facts.append((f"{len(job.nodes)} node{'s' * (len(job.nodes) > 1)}", " ".join(job.nodes)))
    if job.restarts:
        facts.append(("requeued", "once" if job.restarts == 1 else f"{job.restarts} times"))
    return [row for name, words in facts for row in wrapped(words, width, "", "text", mark=_fact(name))]


def _fact(name: str) -> Span:
    return f" {pad(name, 18)} ", "dim"


def _engines(status: StatusSnapshot, width: int) -> list[Line]:
    """The weight version that each engine has: one that lags trains the learner on old words."""
    newest = status.learner_weight_version
    if newest is None or not status.engine_weight_versions:
        return []
    behind = {name: newest - version for name, version in status.engine_weight_versions.items()}
    late = {name: lag for name, lag in behind.items() if lag > 0}
    words = ", ".join(f"{name} {lag} behind" for name, lag in sorted(late.items(), key=lambda one: -one[1]))
    all_have = f"all {len(behind)} engines have" if len(behind) > 1 else "the engine has"
    words = words or f"{all_have} the newest weights"
    return wrapped(words, width, "", "text", mark=_fact("engines"))


def _rates(status: StatusSnapshot) -> list[Line]:
    rates = (("decode", status.decode_tokens_per_second), ("prefill", status.prefill_tokens_per_second))
    return [line(_fact(name), (f"{formats.count(rate)} tok/s", "text")) for name, rate in rates if rate is not None]
