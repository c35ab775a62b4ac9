"""The settings of the open run, to scroll over and to filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from rltui.tui.picking import fits
from rltui.tui.spans import line, wrapped
from rltui.tui.views import config as view
from rltui.tui.widgets.list_pane import TextPane

if TYPE_CHECKING:
    from rltui.service.config import RunConfig, Setting
    from rltui.tui.spans import Line
    from rltui.watch.snapshots import RunSnapshot


class ConfigPane(TextPane):
    """Every setting, or those with some words in key, value or origin, or those that differ from before."""

    FILTERS_BY = "key, value or origin"

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.config: RunConfig | None = None
        self.filtered = ""
        self.changed_only = False
        self._problem = ""

    def show(self, snapshot: RunSnapshot) -> None:
        """A picture of the run has no settings in it: they are asked for."""

    def take(self, config: RunConfig) -> None:
        """Show the run's settings, which were read when the tab was opened."""
        self.config, self._problem = config, ""
        self.anew()

    def fail(self, problem: str) -> None:
        """Say why they cannot be shown."""
        self._problem = problem
        self.repaint()

    def filter(self, words: str) -> None:
        """Show only settings with these words."""
        self.filtered, self.top = words, 0
        self.anew()

    def do_differences(self) -> None:
        """Show only what differs from before, or all of it."""
        self.changed_only, self.top = not self.changed_only, 0
        self.anew()

    def _settings(self) -> list[Setting]:
        return [
            one
            for one in (self.config.settings if self.config is not None else ())
            if (one.differs or not self.changed_only) and fits(f"{one.key} {one.value} {one.origin}", self.filtered)
        ]

    @override
    def make(self, width: int) -> Sequence[Line]:
        return () if self.config is None else view.rows(self.config, self._settings(), width, self.glyphs)

    def head(self) -> Sequence[Line]:
        """Of which attempt they are."""
        shown = len(self._settings())
        return [view.head(self.config, shown, self.filtered, self.changed_only, self.size.width, self.glyphs)]

    def empty(self) -> Sequence[Line]:
        """What stands there until they were read, or why they could not be."""
        if self._problem:
            return wrapped(self._problem, self.size.width, " ", "attention")
        return [line((f" reading {self.glyphs.ellipsis}", "dim"))]
