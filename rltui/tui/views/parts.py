"""The smaller parts of a run's picture: where a step goes, the log's tail, events, the lines of a plug-in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rltui.plugins import Plugin, PluginError
from rltui.tui import braille, formats
from rltui.tui.compose import Section
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Role, Span, cell_width, clean, clip, line, pad, rule, width_of, wrapped
from rltui.tui.views import step_time
from rltui.watch.events import details
from rltui.watch.phases import REST, TOTAL, stacked
from rltui.watch.snapshots import RunSnapshot

_TROUBLE = re.compile(
    r"\b(?:error|exception|traceback|fatal|out of memory|killed|uncorrectable)\b|Error\b", re.IGNORECASE
)
_CARE = re.compile(r"\b(?:warn(?:ing)?|preempt(?:ed|ion)?|retry(?:ing)?|throttl\w*)\b", re.IGNORECASE)


MOST_PANEL_LINES = 10_000
"""Lines of a plug-in that are shown."""


def step_parts(latest: Mapping[str, float]) -> list[tuple[str, float]]:
    """The phases of the last step with their seconds; what the total has beyond them is the last one."""
    return [(step_time.word(name), value) for name, value in stacked(latest).items()]


def step_rows(latest: Mapping[str, float], width: int, glyphs: Glyphs, height: int = 99) -> list[Line]:
    """Where the time of the last step went, one bar a phase; the bars add up to the step.

    Where there are more than ``height``, the shortest phases are put together as the rest.
    """
    found = _longest(step_parts(latest), height)
    total = max(latest.get(TOTAL, 0.0), sum(value for _, value in found))
    size = max((cell_width(word) for word, _ in found), default=0)
    size = min(max(9, size), max(9, width // 3))
    rows = []
    for word, value in found:
        full, empty = braille.bar(value / total, max(4, min(32, width - 15 - size)), glyphs)
        tail = f"{formats.seconds(value):>7}{value / total * 100:4.0f}%"
        name = pad(clip(word, size, glyphs.ellipsis), size)
        rows.append(line((f" {name}", "dim"), (full, "bar"), (empty, "rule"), (tail, "text")))
    return rows


def _longest(found: list[tuple[str, float]], rows: int) -> list[tuple[str, float]]:
    """``found`` in its order, in at most so many rows: what the longest leave over is the rest."""
    if len(found) <= rows:
        return found
    if rows < 2:
        return sorted(found, key=lambda part: -part[1])[: max(0, rows)]
    named = [part for part in found if part[0] != REST]
    kept = sorted(named, key=lambda part: -part[1])[: rows - 1]
    shown = [part for part in named if part in kept]
    return [*shown, (REST, sum(value for _, value in found) - sum(value for _, value in shown))]


def step_section(snapshot: RunSnapshot, glyphs: Glyphs) -> Section:
    """Where a step's time goes, phase by phase."""
    latest = snapshot.metrics.latest
    rows = step_rows(latest, 60, glyphs)
    total: tuple[Span, ...] = ((formats.seconds(latest.get(TOTAL)), "text"),) if rows else ()
    return Section(
        (("step", "title"),),
        total,
        lambda width, height: step_rows(latest, width, glyphs, height),
        least=1,
        wanted=len(rows),
        rank=1,
    )


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


def event_rows(event: Mapping[str, Any], first: float, width: int) -> list[Line]:
    """One event: seconds since the first, its kind, its words to their end."""
    at, kind, words = float(event.get("time", first)), str(event.get("kind", "")), str(event.get("text", ""))
    rest = "  ".join(f"{key}={value}" for key, value in details(event).items())
    words = "  ".join(part for part in (words, rest) if part)
    begin: tuple[Span, ...] = ((f" {'+' + formats.duration(at - first):>7}  ", "dim"), (pad(kind, 11), "accent"))
    indent = width_of(begin)
    rows = wrapped(words, width - indent, " ", log_role(words))
    return [line(*(((" " * indent, "dim"),) if index else begin), *row.spans) for index, row in enumerate(rows)]


def events_head(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """How many events there are."""
    return [rule([("events", "title")], [(f"{len(snapshot.events)}, newest first", "dim")], width, glyphs)]


def events(snapshot: RunSnapshot, width: int, _: Glyphs) -> Sequence[Line]:
    """All events, the newest first, with the time since the first."""
    if not snapshot.events:
        return wrapped("nothing has happened yet", width, " ", "dim")
    first = float(snapshot.events[0].get("time", 0.0))
    return [row for event in reversed(snapshot.events) for row in event_rows(event, first, width)]


def panel_head(plugin: Plugin, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:  # noqa: ARG001 a view
    """The plugin that draws the tab, its package and version."""
    return [rule([(plugin.name, "title")], [(f"{plugin.package} {plugin.version}", "dim")], width, glyphs)]


def panel(plugin: Plugin, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """What it shows; what it raises is shown in its place, and harms nothing."""
    try:
        told = [str(text) for text in plugin.load()(snapshot)][:MOST_PANEL_LINES]
    except PluginError as error:
        return wrapped(error.in_one_line, width, " ", "attention")
    except Exception as error:  # noqa: BLE001 another package's code: it must not end the cockpit
        return wrapped(plugin.failed(error).in_one_line, width, " ", "attention")
    return [line((clip(f" {clean(text)}", width, glyphs.ellipsis), "text")) for text in told]
