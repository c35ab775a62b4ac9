"""The list of runs as it was last seen, on the screen before Textual is imported, which takes most of a second.

It is drawn by the cockpit's own views, without the colours of a theme. The cockpit begins with the same picture and
draws it in the same place, so that nothing jumps.
"""

from __future__ import annotations

import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from msgspec import structs

from rltui.paths import cache_dir
from rltui.service.last_rows import last_of_all
from rltui.service.run_columns import Fold, folded, kept_columns
from rltui.tui import formats
from rltui.tui.glyphs import Glyphs, alphabet, to_ascii
from rltui.tui.spans import BLANK, Line, clean, fit, line
from rltui.tui.views import bars, runs
from rltui.watch.snapshots import RunsSnapshot, RunSummary

LEAST_SIZE = (40, 10)
"""Columns and lines of the smallest terminal that the cockpit is made for."""

_LOOKS = {"title": "1", "dim": "2", "rule": "2"}
"""Role → bold or faint."""


def last_picture(now: float) -> RunsSnapshot:
    """All runs as last seen from here, which says of when it is and that newer ones are being read."""
    last = last_of_all(cache_dir())
    if not last.taken_at:
        return last
    is_today = time.localtime(last.taken_at)[:3] == time.localtime(now)[:3]
    seen = time.strftime("%H:%M", time.localtime(last.taken_at)) if is_today else formats.moment(last.taken_at)
    return structs.replace(last, problem=f"as of {seen}, reading …")


def frame(
    snapshot: RunsSnapshot, width: int, height: int, glyphs: Glyphs, readonly: bool = False, columns: Sequence[str] = ()
) -> list[Line]:
    """Every line of a screen.

    Args:
        snapshot: The runs as last seen; without a time: they never were.
        width: Columns of the terminal.
        height: Its lines.
        glyphs: The alphabet.
        readonly: Whether the cockpit will change nothing.
        columns: What the user chose to see; empty: the usual.
    """
    health = bars.Health(problem=snapshot.problem, readonly=readonly)
    lines = folded(snapshot.runs)
    table_width, table_height = runs.table_size(len(lines), width, height)
    body = _table(snapshot, lines[: table_height - 1], table_width, glyphs, columns)
    rows = [bars.header((), runs.totals(snapshot.runs, glyphs), health, width, glyphs), *body]
    rows += [BLANK] * (height - 1 - len(rows))
    return [fit(row, width, glyphs.ellipsis) for row in (*rows, line((" opening the cockpit …", "dim")))]


def _table(
    snapshot: RunsSnapshot, lines: Sequence[RunSummary | Fold], width: int, glyphs: Glyphs, columns: Sequence[str]
) -> list[Line]:
    if not lines:
        return runs.empty(snapshot, "", bool(snapshot.taken_at), glyphs)
    several = len(runs.cluster_names(snapshot.runs, ())) > 1
    wide = runs.wide_cells(snapshot.runs)
    layout = runs.plan(width, runs.name_cells(snapshot.runs), several, chosen=columns, wide=wide)
    rows = [runs.head(layout)]
    for one in lines:
        is_first = len(rows) == 1
        if isinstance(one, Fold):
            rows.append(runs.fold_row(one, layout, is_first, glyphs))
        else:
            rows.append(runs.row(one, layout, is_first, glyphs, snapshot.taken_at))
    return rows


def painted(rows: Sequence[Line], ascii_only: bool) -> str:
    """What a terminal is sent for ``rows``: nothing in them can be more than text."""
    return "".join(
        f"\x1b[{number};1H" + "".join(_span(clean(text), _LOOKS.get(role), ascii_only) for text, role in row.spans)
        for number, row in enumerate(rows, 1)
    )


def _span(text: str, look: str | None, ascii_only: bool) -> str:
    text = to_ascii(text) if ascii_only else text
    return f"\x1b[{look}m{text}\x1b[m" if look else text


class FirstFrame:
    """The frame on the terminal, until the cockpit takes over or :meth:`close` gives the terminal back.

    Args:
        readonly: Whether the cockpit will change nothing.
        ascii_only: Draw with ASCII characters only.
    """

    def __init__(self, *, readonly: bool = False, ascii_only: bool = False) -> None:
        self.snapshot = last_picture(time.time())
        """What it shows."""
        self._readonly = readonly
        self._glyphs = alphabet(ascii_only)
        self._undo: list[Callable[[], object]] = []

    def show(self) -> None:
        """Show it, where it fits."""
        width, height = shutil.get_terminal_size()
        if width >= LEAST_SIZE[0] and height >= LEAST_SIZE[1]:
            self._keep_still()
            rows = frame(self.snapshot, width, height, self._glyphs, self._readonly, kept_columns())
            _write("\x1b[?1049h\x1b[?25l\x1b[2J" + painted(rows, self._glyphs.ascii_only))

    def _keep_still(self) -> None:
        """Let SIGTERM come out as an exception, and keys wait for the cockpit without being echoed."""
        modes, handler = termios.tcgetattr(sys.stdin), signal.getsignal(signal.SIGTERM)
        self._undo = [
            lambda: termios.tcsetattr(sys.stdin, termios.TCSANOW, modes),
            lambda: signal.signal(signal.SIGTERM, handler),
        ]
        signal.signal(signal.SIGTERM, _terminated)
        termios.tcsetattr(sys.stdin, termios.TCSANOW, [*modes[:3], modes[3] & ~termios.ECHO, *modes[4:]])

    def hand_over(self) -> None:
        """The cockpit takes the terminal now, as it was, and will give it back."""
        while self._undo:
            self._undo.pop()()

    def close(self) -> None:
        """Give the terminal back as it was, unless the cockpit has taken over: after an error, ctrl+c or SIGTERM."""
        if self._undo:
            _write("\x1b[?1049l\x1b[?25h")
            self.hand_over()


def _write(text: str) -> None:
    sys.stderr.write(text)  # where Textual draws
    sys.stderr.flush()


def _terminated(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)
