"""The smaller parts of a run's picture: queues and weights, where a step goes, actors, the log's tail, events."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from rltui.tui import braille, formats
from rltui.tui.compose import Section
from rltui.tui.spans import Line, clip, clip_middle, line, pad
from rltui.tui.states import actor_look, role_letter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Role, Span
    from rltui.watch.snapshots import ActorSnapshot, RunSnapshot, StatusSnapshot

PHASES = (("generate", "time/generate"), ("train", "time/train"), ("sync", "time/weight_sync"), ("save", "time/saving"))
"""Parts of a step: the word shown and its metric."""

_TROUBLE = re.compile(
    r"\b(?:error|exception|traceback|fatal|out of memory|killed|uncorrectable)\b|Error\b", re.IGNORECASE
)
_CARE = re.compile(r"\b(?:warn(?:ing)?|preempt(?:ed|ion)?|retry(?:ing)?|throttl\w*)\b", re.IGNORECASE)


RESTARTS_FROM, NODE_FROM = 64, 56
"""Cells from which the list of actors has columns of restarts and of nodes."""

_ROLE_ORDER = "LERCT-"


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
    rows = len(status.queues) + (status.learner_weight_version is not None)
    return Section(
        (("queues", "title"),),
        right,
        lambda width, height: queue_rows(status, width, glyphs)[:height],
        least=1,
        wanted=rows,
        rank=rank,
    )


def step_rows(latest: Mapping[str, float], width: int, glyphs: Glyphs) -> list[Line]:
    """Where the time of the last step went, one bar a phase."""
    total = latest.get("time/total") or sum(latest.get(name, 0.0) for _, name in PHASES)
    rows = []
    for word, name in PHASES:
        value = latest.get(name)
        if not value or not formats.is_number(value) or not total:
            continue
        full, empty = braille.bar(value / total, max(4, min(32, width - 24)), glyphs)
        tail = f"{formats.seconds(value):>7}{value / total * 100:4.0f}%"
        rows.append(line((f" {word:<9}", "dim"), (full, "bar"), (empty, "rule"), (tail, "text")))
    return rows


def step_section(snapshot: RunSnapshot, glyphs: Glyphs, rank: int) -> Section:
    """Where a step goes."""
    latest = snapshot.metrics.latest
    rows = step_rows(latest, 60, glyphs)
    total: tuple[Span, ...] = ((formats.seconds(latest.get("time/total")), "text"),) if rows else ()
    return Section(
        (("step", "title"),),
        total,
        lambda width, height: step_rows(latest, width, glyphs)[:height],
        least=1,
        wanted=len(rows),
        rank=rank,
    )


def actor_counts(actors: Sequence[ActorSnapshot], with_restarts: bool = True) -> Line:
    """Alive of all, for each class, and restarts."""
    total = Counter(actor.class_name for actor in actors)
    alive = Counter(actor.class_name for actor in actors if actor.state == "ALIVE")
    spans: list[Span] = []
    for name in sorted(total, key=lambda name: (_ROLE_ORDER.find(role_letter(name) or "-"), name)):
        whole = alive[name] == total[name]
        spans += [
            (f" {clip(name, 28)} ", "dim"),
            (f"{alive[name]}/{total[name]} alive", "text" if whole else "attention"),
        ]
        spans.append((" ", "text"))
    restarts = sum(actor.restarts for actor in actors)
    if not with_restarts and not restarts:
        return line(*spans)
    return line(*spans, (" restarts ", "dim"), (str(restarts), "attention" if restarts else "text"))


def in_order(actors: Sequence[ActorSnapshot]) -> list[ActorSnapshot]:
    """Actors by role, class and name, where ``engine 2`` comes before ``engine 10``."""

    def place(actor: ActorSnapshot) -> tuple[int, str, int, str]:
        letter = role_letter(actor.class_name) or "-"
        return _ROLE_ORDER.find(letter), actor.class_name, len(actor.name), actor.name

    return sorted(actors, key=place)


def actor_head(width: int) -> Line:
    """Titles of the columns of :func:`actor_row`."""
    node = f" {pad('NODE', 12)}" if width >= NODE_FROM else ""
    restarts = " RESTARTS" if width >= RESTARTS_FROM else ""
    return line((f"   {pad('ACTOR', _actor_name(width))} {'STATE':<11}{node} {'PID':>8}{restarts}", "dim"))


def _actor_name(width: int) -> int:
    others = 24 + 13 * (width >= NODE_FROM) + 9 * (width >= RESTARTS_FROM)
    return max(10, min(40, width - others))


def actor_row(actor: ActorSnapshot, width: int, glyphs: Glyphs) -> Line:
    """One actor: role, class and name, state, node, process, restarts."""
    look = actor_look(actor.state)
    label = f"{actor.class_name} {actor.name}" if actor.name and actor.name != actor.class_name else actor.class_name
    letter = role_letter(actor.class_name) or glyphs.dot
    state = f"{look.ascii_glyph if glyphs.ascii_only else look.glyph} {look.word}"
    name_width = _actor_name(width)
    spans: list[Span] = [
        (f" {letter} ", "text"),
        (pad(clip_middle(label, name_width, glyphs.ellipsis), name_width), "text"),
        (f" {pad(state, 11)}", look.role),
        (f" {pad(clip_middle(actor.node, 12, glyphs.ellipsis), 12)}" if width >= NODE_FROM else "", "dim"),
        (f" {actor.pid or formats.MISSING:>8}", "dim"),
    ]
    if width >= RESTARTS_FROM:
        spans.append((f" {actor.restarts:>8}", "attention" if actor.restarts else "dim"))
    return Line(tuple(spans))


def actor_rows(actor: ActorSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    """One actor, and below it why it died."""
    rows = [actor_row(actor, width, glyphs)]
    if actor.death_cause:
        rows.append(line((f"     {clip(actor.death_cause, max(0, width - 5), glyphs.ellipsis)}", "bad")))
    return rows


def actor_section(snapshot: RunSnapshot, glyphs: Glyphs, rank: int, listed: bool) -> Section:
    """Actors: a line of counts, or the list where there is room."""
    actors = snapshot.actors
    dead = sum(actor.state == "DEAD" for actor in actors)
    right: tuple[Span, ...] = ((f"{dead} dead", "bad"),) if dead else ((f"{len(actors)} alive", "dim"),)
    if snapshot.actors_problem:
        right = ((clip(snapshot.actors_problem, 40), "attention"),)

    def body(width: int, height: int) -> list[Line]:
        if not listed or height < 3:
            return [actor_counts(actors)]
        worst_first = sorted(in_order(actors), key=lambda actor: actor.state == "ALIVE")
        rows = [actor_head(width), *(row for actor in worst_first for row in actor_rows(actor, width, glyphs))]
        if len(rows) <= height:
            return rows
        return [*rows[: height - 1], line((f" {glyphs.ellipsis} {len(rows) - height + 1} more", "dim"))]

    rows = sum(1 + bool(actor.death_cause) for actor in actors)
    wanted = 0 if not actors else rows + 1 if listed else 1
    return Section((("actors", "title"),), right, body, least=1, wanted=wanted, rank=rank)


def log_role(text: str) -> Role:
    """Colour role of a log line by the words in it."""
    if _TROUBLE.search(text):
        return "bad"
    return "attention" if _CARE.search(text) else "text"


def log_section(snapshot: RunSnapshot, glyphs: Glyphs, rank: int, least: int = 1) -> Section:
    """The end of the log, in at least ``least`` lines."""
    lines = snapshot.log.lines

    def body(width: int, height: int) -> list[Line]:
        tail = lines[-height:] if height > 0 else ()
        return [line((f" {clip(text, width - 1, glyphs.ellipsis)}", log_role(text))) for text in tail]

    return Section((("log", "title"),), (), body, min(least, len(lines)), min(6, len(lines)), rank, grows=True)


def event_row(event: Mapping[str, Any], first: float, width: int, glyphs: Glyphs) -> Line:
    """One event: seconds since the first, its kind, its words."""
    at, kind, words = float(event.get("time", first)), str(event.get("kind", "")), str(event.get("text", ""))
    rest = "  ".join(f"{key}={value}" for key, value in event.items() if key not in ("time", "kind", "text"))
    words = clip("  ".join(part for part in (words, rest) if part), max(0, width - 22), glyphs.ellipsis)
    return line(
        (f" {'+' + formats.duration(at - first):>7}  ", "dim"),
        (pad(kind, 11), "accent"),
        (f" {words}", log_role(words)),
    )
