"""Panes of one run: the overview, and lists of lines made from the snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from typing_extensions import override

from rltui.tui.compose import stack
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, Span
from rltui.tui.views import overview, parts
from rltui.tui.widgets.list_pane import TextPane
from rltui.tui.widgets.pane import Pane
from rltui.watch.snapshots import RunSnapshot

LOG_FROM_HEIGHT = 20
"""Terminal rows below which the end of the log is not shown beside other things."""


class OverviewPane(Pane):
    """Everything of one run at once."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._snapshot: RunSnapshot | None = None
        self._title: tuple[Span, ...] = ()
        self.with_log = True

    def show(self, snapshot: RunSnapshot | None, title: tuple[Span, ...]) -> None:
        """Show another picture; None leaves the pane empty."""
        self._snapshot = snapshot
        self._title = title
        self.repaint()

    @override
    def build(self) -> Sequence[Line]:
        if self._snapshot is None:
            return ()
        log = self.with_log and self.app.size.height >= LOG_FROM_HEIGHT
        return overview.overview(self._snapshot, *self.size, self.glyphs, self._title, log)


class LogTail(Pane):
    """The end of the log of one run."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._snapshot: RunSnapshot | None = None

    def show(self, snapshot: RunSnapshot | None) -> None:
        """Show another picture; None leaves the pane empty."""
        self._snapshot = snapshot
        self.repaint()

    def build(self) -> Sequence[Line]:
        """As many lines as fit."""
        if self._snapshot is None or not self._snapshot.log.lines:
            return ()
        return stack([parts.log_section(self._snapshot, self.glyphs, rank=0)], *self.size, self.glyphs)


class LinesPane(TextPane):
    """Lines that a view makes from the snapshot, to scroll over.

    Args:
        view: Makes all lines for a width.
        head: Makes the lines that stay on top.
        id: The widget's id.
    """

    def __init__(
        self,
        view: Callable[[RunSnapshot, int, Glyphs], Sequence[Line]],
        head: Callable[[RunSnapshot, int, Glyphs], Sequence[Line]],
        *,
        id: str | None,
    ) -> None:
        super().__init__(id=id)
        self._view = view
        self._head = head
        self._snapshot: RunSnapshot | None = None

    def show(self, snapshot: RunSnapshot) -> None:
        """Show the lines of a newer picture of the run."""
        self._snapshot = snapshot
        self.anew()

    @override
    def make(self, width: int) -> Sequence[Line]:
        return () if self._snapshot is None or self.is_awaited else self._view(self._snapshot, width, self.glyphs)

    def head(self) -> Sequence[Line]:
        """Lines that stay on top."""
        return () if self._snapshot is None else self._head(self._snapshot, self.size.width, self.glyphs)
