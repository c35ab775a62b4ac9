"""The picture of one run: which sections stand where at each size of the pane."""

from __future__ import annotations

from msgspec import structs

from rltui.tui.compose import EXTRA, Section, abreast, stack
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Span
from rltui.tui.views import actors, charts, hosts, parts, queues, stage
from rltui.watch.snapshots import RunSnapshot, StatusSnapshot

PAIRS = 64
"""Cells from which two small sections stand side by side."""

WIDE = 100
"""Cells from which sections stand in two columns."""

VERY_WIDE = 160
"""Cells from which they stand in three."""


def overview(
    snapshot: RunSnapshot, width: int, height: int, glyphs: Glyphs, title: tuple[Span, ...], log: bool = True
) -> list[Line]:
    """All there is to see of a run at once, exactly ``height`` lines of at most ``width`` cells.

    Args:
        snapshot: The run.
        width: Cells of a line.
        height: Lines.
        glyphs: The alphabet.
        title: Left end of the first rule.
        log: Whether the end of the log may be shown.
    """
    live = snapshot.summary.is_live
    snapshot = snapshot if live else _post_mortem(snapshot)
    first = stage.section(snapshot, glyphs, title)
    if live and width >= VERY_WIDE:
        middle = _three_columns(snapshot, glyphs)
    elif live and width >= WIDE:
        middle = _two_columns(snapshot, glyphs)
    else:
        middle = _one_column(snapshot, width, glyphs, curve_rows=max(4, height // 5))
    few = 1 if height < 20 else 3 if height < 30 else 5
    rank = 2 if live else 1  # of a run that has ended, the last words say more than its curves
    tail = [parts.log_section(snapshot, glyphs, rank=rank, least=few)] if log and snapshot.log.lines else []
    return stack([first, *middle, *tail], width, height, glyphs)


def _post_mortem(snapshot: RunSnapshot) -> RunSnapshot:
    """The picture of an ended run without what was true only while it ran; its tabs still have all of it."""
    return structs.replace(snapshot, hosts=(), actors=(), actors_problem="", status=StatusSnapshot())


def _curves(snapshot: RunSnapshot, glyphs: Glyphs, wanted: int) -> tuple[Section, Section]:
    first, second = two_series(snapshot)
    rates = snapshot.summary.tokens_per_second_history if second in charts.SPEEDS else ()
    return (
        charts.series_section(snapshot, first, glyphs, wanted),
        charts.series_section(snapshot, second, glyphs, wanted, fallback=rates),
    )


def two_series(snapshot: RunSnapshot) -> tuple[str, str]:
    """Reward and speed; in the place of one that the run does not measure another that it does."""
    known, speed = charts.ordered_names(snapshot.metrics), _speed(snapshot)
    others = [name for name in known if name not in (charts.REWARD, *charts.SPEEDS)]
    first = charts.REWARD if charts.REWARD in known or not others else others.pop(0)
    has_speed = speed in known or snapshot.summary.tokens_per_second_history or not others
    return first, speed if has_speed else others.pop(0)


def _speed(snapshot: RunSnapshot) -> str:
    """The series behind TOK/S of the list of runs."""
    return next((name for name in charts.SPEEDS if name in snapshot.metrics.series), charts.SPEEDS[0])


def _has_curves(snapshot: RunSnapshot) -> bool:
    return bool(snapshot.metrics.steps or snapshot.summary.tokens_per_second_history)


def _one_column(snapshot: RunSnapshot, width: int, glyphs: Glyphs, curve_rows: int) -> list[Section]:
    reward, tokens = _curves(snapshot, glyphs, wanted=curve_rows)
    small = [queues.queue_section(snapshot, glyphs, 1), parts.step_section(snapshot, glyphs)]
    curves = [reward, tokens] if _has_curves(snapshot) else []
    pairs = width >= PAIRS
    sections = [abreast([[reward], [tokens]], (1, 1), glyphs, rank=2)] if curves and pairs else curves
    if pairs and all(section.wanted for section in small):
        sections.append(abreast([[small[0]], [small[1]]], (1, 1), glyphs, rank=1))
    else:
        sections += small
    sections.append(hosts.gpu_section(snapshot, glyphs, rank=1))
    patterns = snapshot.role_patterns
    counts = actors.actor_counts(snapshot.actors, False, patterns).spans if snapshot.actors else ()
    rank = EXTRA if any(host.gpus for host in snapshot.hosts) else 1
    sections.append(hosts.host_section(snapshot, glyphs, rank, processes=3, extra=counts))
    return sections


def _two_columns(snapshot: RunSnapshot, glyphs: Glyphs) -> list[Section]:
    reward, tokens = _curves(snapshot, glyphs, wanted=6)
    left = [
        hosts.gpu_section(snapshot, glyphs, rank=0),
        hosts.host_section(snapshot, glyphs, rank=1, processes=4),
        actors.actor_section(snapshot, glyphs),
    ]
    right = [queues.queue_section(snapshot, glyphs, 0), parts.step_section(snapshot, glyphs)]
    if _has_curves(snapshot):
        right = [reward, tokens, *right]
    return _columns([left, right], (3, 2), glyphs)


def _three_columns(snapshot: RunSnapshot, glyphs: Glyphs) -> list[Section]:
    reward, tokens = _curves(snapshot, glyphs, wanted=10)
    left = [
        hosts.gpu_section(snapshot, glyphs, rank=0),
        hosts.host_section(snapshot, glyphs, rank=1, processes=8),
    ]
    middle = [reward, tokens] if _has_curves(snapshot) else []
    middle += [
        charts.series_section(snapshot, name, glyphs, wanted=8)
        for name in charts.SPEEDS
        if name != _speed(snapshot) and name in snapshot.metrics.series
    ]
    if charts.LEARNER_MFU in snapshot.metrics.series:
        middle.append(charts.series_section(snapshot, charts.LEARNER_MFU, glyphs, wanted=6))
    right = [
        queues.queue_section(snapshot, glyphs, 0),
        parts.step_section(snapshot, glyphs),
        actors.actor_section(snapshot, glyphs),
    ]
    return _columns([left, middle, right], (6, 5, 5), glyphs)


def _columns(columns: list[list[Section]], shares: tuple[int, ...], glyphs: Glyphs) -> list[Section]:
    """Columns that have something to show, side by side."""
    kept = [
        (column, part)
        for column, part in zip(columns, shares, strict=True)
        if any(section.rows_wanted for section in column)
    ]
    if not kept:
        return []
    return [abreast([column for column, _ in kept], [part for _, part in kept], glyphs, rank=1)]
