"""The list of runs: columns by width, one line a run, the filter, and what an empty list teaches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from rltui.layout.presets import FIRST
from rltui.service.run_columns import COLUMNS as WORDS
from rltui.service.run_columns import DEFAULTS, GPUS, Fold, shape_of
from rltui.service.run_filter import latest
from rltui.tui import braille, formats, progress
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Role, Span, cell_width, clip, clip_middle, line, pad
from rltui.tui.states import RUN_STATES, run_look
from rltui.watch.pending import is_stuck, pending_short, waiting_job
from rltui.watch.snapshots import RunsSnapshot, RunSummary

Times = Literal["age", "date"]
"""How times are shown: since when, or on which day and at what hour."""


Value: TypeAlias = "Callable[[RunSummary, Glyphs, float], str]"
"""What a column shows: takes the run, the alphabet and the time now."""


class Column(NamedTuple):
    """One column: its title, width, edge, the list width from which it is shown, and its value."""

    title: str
    width: int
    right: bool
    shown_from: int
    value: Value
    role: Role = "text"
    if_several: bool = False
    """Shown only where there is more than one cluster."""
    gives_way: bool = False
    """Left out where the clusters need its cells."""
    times: Times | None = None
    """Shown only where times are shown in this way."""


def _steps(summary: RunSummary, *_: object) -> str:
    step, steps = summary.stage.step, summary.stage.steps
    if step is None:
        return formats.MISSING
    return f"{step}/{steps}" if steps else str(step)  # a script of another system may not say how many there are


def _shape(summary: RunSummary, glyphs: Glyphs, _: float) -> str:
    return shape_of(summary, glyphs.times)


def _age(summary: RunSummary, _: Glyphs, now: float) -> str:
    return formats.duration(now - summary.created_at) if now and summary.created_at else formats.MISSING


def _spark(summary: RunSummary, glyphs: Glyphs, _: float) -> str:
    values = [value for value in summary.tokens_per_second_history if math.isfinite(value)]
    # A steady rate would be eight full blocks on a scale from zero: twice the swing is shown, never below zero.
    low = max(0.0, 2 * min(values) - max(values)) if values else 0.0
    return braille.sparkline(summary.tokens_per_second_history, 8, glyphs, low=low)


def _ended(summary: RunSummary, *_: object) -> str:
    return formats.moment(summary.end.at) if summary.end is not None else formats.MISSING


def _said(word: str) -> Value:
    """The text of a column that is the same in the shell."""
    text = WORDS[word].text
    assert text is not None
    return lambda run, _, now: text(run, now)


def _column(word: str, width: int, value: Value | None = None, role: Role = "dim", **more: Any) -> Column:
    known = WORDS[word]
    return Column(known.title, width, known.right, more.pop("shown_from", 0), value or _said(word), role, **more)


COLUMNS: dict[str, Column] = {
    "algo": _column("algo", 5, shown_from=72, gives_way=True),
    "shape": _column("shape", 5, _shape, shown_from=62, gives_way=True),
    "cluster": _column("cluster", 10, shown_from=78, if_several=True),
    "step": _column("step", 9, _steps, "text", shown_from=48),
    "tok/s": _column("tok/s", 5, lambda run, *_: formats.count(run.tokens_per_second), "text", shown_from=64),
    "trend": _column("trend", 8, _spark, "bar", shown_from=92),
    "reward": _column("reward", 6, lambda run, *_: formats.reward(run.reward), "text", shown_from=84),
    "age": _column("age", 5, _age, shown_from=66, times="age"),
    "started": _column("started", 11, lambda run, *_: formats.moment(run.created_at), shown_from=58, times="date"),
    "ended": _column("ended", 11, _ended),
    "attempts": _column("attempts", 3),
    "nodes": _column("nodes", 5),
    GPUS: _column(GPUS, 4, role="text"),
    "verdict": _column("verdict", 16),
    "cause": _column("cause", 18, role="text"),
    "expected": _column("expected", 6),
}
"""The word of a column → how it looks here."""

USUAL = tuple(COLUMNS[word] for word in (*DEFAULTS, "started"))
"""What is shown where nobody has chosen, as far as it is wide enough for it."""

BASELINE = "="
"""The mark of the run that others are held against: the key that does so."""

NAME_LEAST = 12
"""Cells of a name where columns were chosen: enough to know a run by."""

WIDENS_FROM, WIDEST = 100, 13
"""Width of a list in which programs and numbers of nodes are shown whole, and the cells that they get at most."""

STATE_LEAST = 11
"""Cells of glyph and word of a state."""

DETAIL_FROM_HEIGHT, DETAIL_FROM_WIDTH = 16, 58
SIDE_BY_SIDE_FROM = 160


def table_size(num_lines: int, width: int, height: int) -> tuple[int, int]:
    """Columns and rows of the list on a screen: above the detail what it needs, at most two fifths of the body.

    Args:
        num_lines: Lines of the list.
        width: Columns of the screen.
        height: Its lines, with header and footer.
    """
    body = height - 2
    list_width = (width - 1) * 5 // 9 if width >= SIDE_BY_SIDE_FROM else width  # 5fr beside 4fr and a gap in app.tcss
    has_detail = num_lines > 0 and height >= DETAIL_FROM_HEIGHT and width >= DETAIL_FROM_WIDTH
    return list_width, max(3, min(num_lines + 1, body * 2 // 5)) if has_detail else body


def name_cells(runs: Sequence[RunSummary]) -> int:
    """Cells that the names of ``runs`` would take, within reason."""
    return max(14, min(max((len(run.run_id) for run in runs), default=3), 40))


def wide_cells(runs: Sequence[RunSummary]) -> dict[str, int]:
    """Cells that the longest algorithm or program of ``runs`` and the longest nodes × GPUs take, by column."""
    sizes = {(run.kinds, run.nodes, run.gpus_per_node, run.gpu): run for run in runs}
    algorithms = {len(run.algorithm) for run in runs}
    shapes = {len(shape_of(run)) for run in sizes.values()}
    return {"algo": max(algorithms, default=0), "shape": max(shapes, default=0)}


class Plan(NamedTuple):
    """Widths for one width of the list."""

    name: int
    columns: tuple[Column, ...]
    state: int
    marks: bool = False
    """Whether a cell before the name says which runs are marked."""
    baseline: str = ""
    """The run that a cell of its own marks as what others are held against; empty: there is no such cell."""


def plan(
    width: int,
    longest_name: int,
    several_clusters: bool = False,
    times: Times = "age",
    marks: bool = False,
    chosen: Sequence[str] = (),
    baseline: str = "",
    order: str = "",
    wide: Mapping[str, int] | None = None,
) -> Plan:
    """Which columns are shown, and how wide the name and the state may be.

    Args:
        width: Cells of the list.
        longest_name: Cells that the longest name would take.
        several_clusters: Whether there is more than one cluster.
        times: How times are shown.
        marks: Whether a cell says which runs are marked.
        chosen: Words of ``COLUMNS`` that the user wants, in this order; empty: the usual ones.
        baseline: The run that others are held against, if it is in the list.
        order: The word of the column that the list is sorted by, which is always shown; empty: the usual order.
        wide: Cells that columns would take to show all that is in them, by word.
    """
    before = 2 + marks + bool(baseline)
    if chosen:
        words = chosen if order in ("", *chosen) else (order, *chosen)
        columns = _fitting(words, width - before - NAME_LEAST, several_clusters, times)
    else:
        columns = tuple(column for column in USUAL if _is_shown(column, width, several_clusters, times))
        columns += (COLUMNS[order],) if order and COLUMNS[order] not in columns else ()
    room = width - before - sum(column.width + 1 for column in columns)
    if wide and width >= WIDENS_FROM:
        columns = _widened(columns, wide, room - NAME_LEAST - STATE_LEAST - 1)
        room = width - before - sum(column.width + 1 for column in columns)
    state = STATE_LEAST if width < 72 else max(STATE_LEAST, min(56, room * 11 // 20))
    name = max(6, min(longest_name, room - state - 1))
    return Plan(name, columns, max(0, room - name - 1), marks, baseline)


def _widened(columns: Sequence[Column], wide: Mapping[str, int], room: int) -> tuple[Column, ...]:
    """``columns`` with as many cells as what is in them takes, as far as there is ``room`` for more."""
    wished = {COLUMNS[word].title: min(cells, WIDEST) for word, cells in wide.items()}
    found: list[Column] = []
    for column in columns:
        more = max(0, min(wished.get(column.title, 0) - column.width, room))
        room -= more
        found.append(column._replace(width=column.width + more))
    return tuple(found)


def _fitting(chosen: Sequence[str], room: int, several_clusters: bool, times: Times) -> tuple[Column, ...]:
    """The columns that were chosen as far as there is room beside name and state: the last ones go first."""
    words = ["started" if word == "age" and times == "date" else word for word in chosen]
    shown: list[Column] = []
    room -= STATE_LEAST + 1
    for column in (COLUMNS[word] for word in dict.fromkeys(words)):
        if column.if_several and not several_clusters:
            continue
        room -= column.width + 1
        if room < 0:
            break
        shown.append(column)
    return tuple(shown)


def _is_shown(column: Column, width: int, several_clusters: bool, times: Times) -> bool:
    if (column.if_several and not several_clusters) or column.times not in (None, times):
        return False
    return width >= column.shown_from + (20 if column.gives_way and several_clusters else 0)


def head(layout: Plan) -> Line:
    """Titles of the chosen columns, the one that is sorted by marked."""
    cells = [" " * (layout.marks + bool(layout.baseline)) + pad("RUN", layout.name)] + [
        pad(column.title, column.width, column.right) for column in layout.columns
    ]
    return line((" " + " ".join([*cells, "STATE"]), "dim"))


def row(
    summary: RunSummary,
    layout: Plan,
    selected: bool,
    glyphs: Glyphs,
    now: float = 0.0,
    stale_s: float | None = None,
    marked: bool = False,
) -> Line:
    """One run.

    Args:
        summary: The run.
        layout: The columns.
        selected: Whether the cursor is on it.
        glyphs: The alphabet.
        now: Epoch seconds by the cluster's clock, for how long a job still waits.
        stale_s: Seconds since its cluster answered, where that is away.
        marked: Whether actions are for it too.
    """
    look = run_look(summary.state)
    spans: list[Span] = [
        (glyphs.cursor if selected else " ", "accent"),
        (pad(clip_middle(summary.run_id, layout.name, glyphs.ellipsis), layout.name), "text"),
    ]
    if layout.marks:
        spans.insert(1, (glyphs.done if marked else " ", "match"))
    if layout.baseline:
        spans.insert(1, (BASELINE if summary.identity.is_called(layout.baseline) else " ", "accent"))
    for column in layout.columns:
        text = pad(column.value(summary, glyphs, now), column.width, column.right)
        spans.append((f" {text}", column.role if summary.is_live else "dim"))
    state = f"{look.sign(glyphs)} {progress.state_word(summary, look.word)}"
    room = layout.state - cell_width(state) - 2
    detail = clip(_detail(summary, now, stale_s, room), room, glyphs.ellipsis) if room > 3 else ""
    state_role: Role = look.role if stale_s is None else "dim"
    spans += [(f" {clip(state, layout.state)}", state_role), (f"  {detail}" if detail else "", _detail_role(summary))]
    return line(*spans, selected=selected)


def fold_row(
    fold: Fold, layout: Plan, selected: bool, glyphs: Glyphs, is_open: bool = False, marked: bool = False
) -> Line:
    """Runs that belong together: how many, and how many are in each state.

    Args:
        fold: The runs.
        layout: The columns.
        selected: Whether the cursor is on it.
        glyphs: The alphabet.
        is_open: Whether each of them stands below.
        marked: Whether actions are for all of them.
    """
    count = f" {glyphs.times}{len(fold.runs)}"
    room = max(1, layout.name - 2 - cell_width(count))
    name = f"{'-' if is_open else '+'} {clip_middle(fold.name, room, glyphs.ellipsis)}{count}"
    look = run_look(next(iter(fold.counts)))
    spans: list[Span] = [(glyphs.cursor if selected else " ", "accent"), (pad(name, layout.name), "title")]
    if layout.marks:
        spans.insert(1, (glyphs.done if marked else " ", "match"))
    if layout.baseline:
        spans.insert(1, (" ", "accent"))
    room = sum(column.width + 1 for column in layout.columns) + layout.state
    spans.append((f" {clip(f'({fold.words})', room, glyphs.ellipsis)}", look.role))
    return line(*spans, selected=selected)


def _detail(summary: RunSummary, now: float, stale_s: float | None, room: int) -> str:
    words = progress.state_detail(summary, now)
    job = waiting_job(summary)
    if job is not None and cell_width(words) > room:
        words = pending_short(job, now or summary.stage.updated)
    elif summary.symptom and summary.is_live and cell_width(words) > room:
        words = summary.symptom
    if stale_s is None:
        return words
    stale = f"stale {formats.duration(stale_s)}" if stale_s else "stale"
    return f"{stale}  {words}" if words else stale


def _detail_role(summary: RunSummary) -> Role:
    job = waiting_job(summary)
    if job is not None and is_stuck(job):
        return "attention"
    if summary.symptom and summary.is_live:
        return "attention"
    return "bad" if summary.failure and not summary.is_live else "dim"


def cluster_names(runs: Sequence[RunSummary], profiles: Sequence[str]) -> tuple[str, ...]:
    """All clusters there are: those of the profiles, then others that runs are on."""
    return tuple(dict.fromkeys((*profiles, *(run.cluster for run in runs))))


ORDERS: dict[str, Callable[[RunSummary], float]] = {
    "age": lambda run: -run.created_at,
    "ended": lambda run: -latest(run) if run.end is not None else math.inf,
    "reward": lambda run: -run.reward if formats.is_number(run.reward) and run.reward is not None else math.inf,
    "tok/s": lambda run: -(run.tokens_per_second or 0.0),
}
"""Orders of the list → what stands first has the least of."""


def totals(runs: Sequence[RunSummary], glyphs: Glyphs) -> tuple[Span, ...]:
    """How many runs are in each state."""
    counts = Counter(run.state for run in runs)
    spans: list[Span] = []
    for state, look in RUN_STATES.items():
        if counts[state]:  # type: ignore[index]
            spans.append((f"{look.sign(glyphs)}{counts[state]} ", look.role))  # type: ignore[index]
    return tuple(spans)


def empty(snapshot: RunsSnapshot, query: str, fetched: bool, glyphs: Glyphs, cluster: str = "") -> list[Line]:
    """What a list without rows says: it teaches the next key."""
    if not fetched:
        return [line((f"  looking for runs {glyphs.ellipsis}", "dim"))]
    if cluster and snapshot.runs and not query:
        return [line("  no run on ", (clip(cluster, 40), "accent"), ("   ] shows the next cluster", "dim"))]
    if query and snapshot.runs:
        return [line("  no run matches ", (clip(query, 40), "match"), ("   esc shows all again", "dim"))]
    if snapshot.unread:
        return [line((f"  no run is known yet: {', '.join(snapshot.unread)} is still being read", "dim"))]
    return [
        BLANK,
        line("  no runs yet"),
        BLANK,
        line("  press ", ("n", "key"), " to choose a preset and launch it"),
        line((f"  {FIRST} needs no GPU and takes about two minutes", "dim")),
    ]
