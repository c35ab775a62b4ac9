"""The tab of a run's history: sums, what each loss cost, and where the time of each attempt went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rltui.tui import formats
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import BLANK, Line, Role, Span, line, pad, rule, wrapped
from rltui.watch.history import loss_words
from rltui.watch.snapshots import AttemptHistory, RunHistory, RunSnapshot

BAR_WIDTH = 24
NAME_WIDTH = 32
NUMBERS_WIDTH = 17


def head(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """The tab's title with the run's goodput."""
    goodput = snapshot.history.goodput
    right: list[Span] = [(f"goodput {formats.percent(goodput * 100)}", "title")] if goodput is not None else []
    return [rule([("history", "title")], right, width, glyphs)]


def tab(snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """All attempts of the run: what each was given, did, and ended of."""
    history = snapshot.history
    if not history.attempts:
        return wrapped("no attempt has begun yet", width, " ", "dim")
    rows = [*_sums(history, width, glyphs)]
    for one in history.attempts:
        rows += [BLANK, *_attempt(one, width, glyphs)]
    return rows


def _sums(history: RunHistory, width: int, glyphs: Glyphs) -> Iterator[Line]:
    if history.held_h is not None:
        held = f"{_hours(history.held_h)} of {history.unit}s held"
        waited = f", {formats.duration(history.queue_s)} waited in queues" if history.queue_s is not None else ""
        yield from wrapped(f"{held}{waited}", width, " ", "dim")
        for name, hours, role in _shares(history):
            yield _share(name, hours, history.held_h, role, width, glyphs)
    if history.unknown:
        numbers = ", ".join(map(str, history.unknown))
        yield from wrapped(f"in no sum, as their times are not known: attempts {numbers}", width, " ", "dim")


def _shares(history: RunHistory) -> Iterator[tuple[str, float, Role]]:
    yield "steps that count", history.kept_h or 0.0, "ok"
    yield "overhead", history.overhead_h or 0.0, "dim"
    if history.under_way_h:
        yield "under way", history.under_way_h, "dim"
    for cause, hours in history.lost_h.items():
        yield loss_words(cause), hours, "bad"


def _share(name: str, hours: float, of_hours: float, role: Role, width: int, glyphs: Glyphs) -> Line:
    share = hours / of_hours if of_hours else 0.0
    name_width = min(NAME_WIDTH, width - NUMBERS_WIDTH)
    room = max(0, min(BAR_WIDTH, width - name_width - NUMBERS_WIDTH - 4))
    bar = pad(glyphs.bar_full * round(room * share), room) if room else ""
    return line(
        (f" {pad(name, name_width, ellipsis=glyphs.ellipsis)}", role),
        (pad(_hours(hours), 9, right=True), "text"),
        (pad(formats.percent(share * 100), 7, right=True), "dim"),
        (f"  {bar}" if bar else "", "bar"),
    )


def _attempt(one: AttemptHistory, width: int, glyphs: Glyphs) -> Iterator[Line]:
    started = formats.moment(one.started_at) if one.started_at else "not started"
    end = one.cause or one.outcome or ("waits" if one.started_at is None else "lives")
    role: Role = "bad" if one.cause else "ok" if one.outcome else "text"
    right: list[Span] = [(end, role)]
    yield rule([(f"attempt {one.number}", "title"), (f"  {started}", "dim")], right, width, glyphs)
    yield from wrapped("  ".join(_facts(one)), width, " ", "text")
    if one.reason and one.reason != end:
        yield from wrapped(one.reason, width, " ", "dim")


def _facts(one: AttemptHistory) -> Iterator[str]:
    """What is known of it; no-break spaces keep a number with its name."""
    times = {
        "queued": one.queue_s,
        "held": one.held_s,
        "start-up": one.start_up_s,
        "kept": one.kept_s,
        "done again": one.overtaken_s,
        "between": one.between_s,
        "after": one.tail_s,
    }
    for name, seconds in times.items():
        if seconds is not None and (seconds or name in ("held", "kept")):
            yield f"{name} {formats.duration(seconds)}".replace(" ", "\u00a0")
    if one.steps:
        again = f", {one.overtaken_steps} done again" if one.overtaken_steps else ""
        yield f"steps {one.first_step} to {one.last_step}{again}".replace(" ", "\u00a0")


def _hours(hours: float) -> str:
    return f"{hours:.1f} h" if hours >= 1 else f"{hours:.3f} h"
