"""Panes of the launch screen: the list of presets, and the review of the chosen one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from typing_extensions import override

from rltui.service.sweep_points import NO_SWEEP
from rltui.tui.spans import Line, line, rule, wrapped
from rltui.tui.views import launch as view
from rltui.tui.widgets.list_pane import ItemsPane, ListPane, TextPane

if TYPE_CHECKING:
    from textual.timer import Timer

    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.review import LaunchOutlook
    from rltui.service.sweep_points import Sweep
    from rltui.tui.spans import Span


OUTLOOK_SETTLE_S = 1.0
"""Seconds that nothing changes before a cluster is asked when it would start."""

OUTLOOK_APART_S = 5.0
"""Between two such questions: Slurm answers them out of the same hand as everybody's."""


class PresetList(ItemsPane["PresetSummary"]):
    """The presets that fit the filter."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._presets: tuple[PresetSummary, ...] = ()
        self._fetched = False
        self.query_words = ""

    def show(self, presets: tuple[PresetSummary, ...]) -> None:
        """Show the presets that were found, narrowed as before."""
        self._presets = presets
        self._fetched = True
        self.narrow(self.query_words)

    def narrow(self, words: str) -> None:
        """Show only presets that fit ``words``."""
        self.query_words = words
        self.put([preset for preset in self._presets if view.preset_fits(preset, words)])

    @override
    def key_of(self, item: PresetSummary) -> str:
        return item.name

    def choose(self, name: str) -> None:
        """Put the cursor on a preset by name."""
        names = [preset.name for preset in self.items]
        if name in names:
            self.go_to(names.index(name))

    def open(self, file: PresetSummary) -> None:
        """Put a file on top of the list, where it is not in it yet, and the cursor on it."""
        if file.name not in self.names:
            self._presets = (file, *self._presets)
        self.narrow("")
        self.choose(file.name)

    def close(self, name: str) -> None:
        """Take a file that cannot be read out of the list."""
        self._presets = tuple(preset for preset in self._presets if preset.name != name)
        self.narrow(self.query_words)

    @property
    def names(self) -> list[str]:
        """Names of all presets, narrowed or not."""
        return [preset.name for preset in self._presets]

    def head(self) -> Sequence[Line]:
        """The rule with the count."""
        shown = f"{len(self.items)} of {len(self._presets)}" if self.query_words else str(len(self._presets))
        return [rule([("presets", "title")], [(shown, "dim")], self.size.width, self.glyphs)]

    @override
    def row(self, index: int) -> Line:
        return view.preset_row(self.items[index], self.size.width, self.is_selected(index), self.glyphs)

    def empty(self) -> Sequence[Line]:
        """Why there are no presets."""
        if not self._fetched:
            return [line((f" reading {self.glyphs.ellipsis}", "dim"))]
        return [line((" no preset matches" if self._presets else " there are no presets", "dim"))]


class ReviewPane(TextPane):
    """What a launch would do; scrolls with the page keys."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._preset: PresetSummary | None = None
        self._review: LaunchReview | None = None
        self._overrides: tuple[str, ...] = ()
        self._sweep = NO_SWEEP
        self._readonly = False
        self.outlook: LaunchOutlook | None = None
        """What the cluster said last."""
        self._asking: Timer | None = None
        self._asked_at_s = -OUTLOOK_APART_S
        self._beside: list[Line] = []

    def look_ahead(self, ask: Callable[[], bool]) -> None:
        """Call ``ask`` once the fingers rest, and not more often than a cluster bears; it says whether it asked."""
        if self._asking is not None:
            self._asking.stop()

        def ask_now() -> None:
            if ask():
                self._asked_at_s = time.monotonic()

        pause_s = max(OUTLOOK_SETTLE_S, self._asked_at_s + OUTLOOK_APART_S - time.monotonic())
        self._asking = self.set_timer(pause_s, ask_now)

    def age(self, asked: tuple[str, tuple[str, ...], str], now: float) -> None:
        """Show what the cluster said, as old as it is, beside what is ``asked`` now: preset, overrides, cluster."""
        said, lines = self.outlook, []
        if said is not None and self._preset is not None and said.preset == self._preset.name:
            is_old = (said.preset, said.overrides, said.cluster) != asked
            lines = view.outlook_lines(said, is_old, now, self.size.width, self.glyphs)
        if lines != self._beside:
            self._beside = lines
            self.anew()

    def show(
        self,
        preset: PresetSummary | None,
        review: LaunchReview | None,
        overrides: tuple[str, ...],
        sweep: Sweep,
        readonly: bool,
    ) -> None:
        """Show a preset, and its review once it is there."""
        if preset != self._preset:
            self.top = 0
        self._preset, self._review, self._overrides, self._sweep = preset, review, overrides, sweep
        self._readonly = readonly
        self.anew()

    def head(self) -> Sequence[Line]:
        """The rule: which preset, and whether it can be launched."""
        name = self._preset.name if self._preset is not None else ""
        right = view.verdict(self._review, self._readonly, self.glyphs) if self._preset else ()
        return [rule([(name, "title")] if name else [], right, self.size.width, self.glyphs)]

    @override
    def make(self, width: int) -> Sequence[Line]:
        return view.review_lines(
            self._preset, self._review, self._overrides, width, self.glyphs, self._beside, self._sweep
        )


class ScriptPane(ListPane):
    """The job script, exactly as it would be submitted; scrolls with the page keys."""

    has_cursor = False

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._script: tuple[str, ...] = ()
        self._is_asked = True
        self._cluster = ""

    def show(self, review: LaunchReview | None, *, is_asked: bool) -> None:
        """Show the script of a review; None while there is none yet, or, where none ``is_asked`` for, at all."""
        self._is_asked = is_asked
        lines = tuple(review.script.splitlines()) if review is not None else ()
        self._cluster = review.cluster if review is not None else ""
        if lines != self._script:
            self._script = lines
            self.top = min(self.top, max(0, len(lines) - 1))
        self.repaint()

    def head(self) -> Sequence[Line]:
        """The rule with the number of lines."""
        right: list[Span] = [(f"{len(self._script)} lines  v review", "dim")] if self._script else []
        return [rule([("job script", "title")], right, self.size.width, self.glyphs)]

    @override
    def count(self) -> int:
        return len(self._script)

    @override
    def row(self, index: int) -> Line:
        return view.script_row(index + 1, self._script[index], self.size.width, self.glyphs)

    def empty(self) -> Sequence[Line]:
        """Why there is no script."""
        if not self._is_asked:
            return [line((" no preset is chosen", "dim"))]
        if not self._cluster:
            return [line((f" writing the script {self.glyphs.ellipsis}", "dim"))]
        return wrapped(f"{self._cluster} needs no job script: the commands are all of it", self.size.width, " ", "dim")
