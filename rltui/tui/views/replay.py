"""The line of a replay: whether it plays, which moment it is, how far that is, and what happened last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui.spans import Line, cell_width, clip, line

if TYPE_CHECKING:
    from rltui.service.replay import ReplayClock
    from rltui.tui.glyphs import Glyphs
    from rltui.tui.spans import Span

NARROW = 60
BAR = 16


def replay_line(clock: ReplayClock, said: str, width: int, glyphs: Glyphs) -> Line:
    """The line of a clock.

    Args:
        clock: Which moment it is.
        said: The event before it.
        width: Cells of the line.
        glyphs: The alphabet.
    """
    over, paused = clock.is_over, clock.paused
    sign: Span = (glyphs.done, "ok") if over else (glyphs.paused, "attention") if paused else (glyphs.current, "accent")
    state = "end of recording" if over else "paused" if paused else "replay"
    head = f" {state} {glyphs.times}{clock.speed:g} "
    words = clock.in_words if width >= NARROW else clock.in_words.partition(",")[0]
    full = round(BAR * (clock.now - clock.begin) / (clock.end - clock.begin))
    used = cell_width(f" {sign[0]}{head} {words} ") + BAR + 2
    bar: tuple[Span, ...] = (glyphs.bar_full * full, "accent"), (glyphs.bar_empty * (BAR - full), "dim")
    rest = clip(f"  {said}", max(0, width - used), glyphs.ellipsis)
    return line(" ", sign, (head, "title"), (f" {words} ", "text"), *bar, (rest, "dim"))
