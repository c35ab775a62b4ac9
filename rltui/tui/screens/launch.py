"""The launch screen: choose a preset, see what it would do, change values, launch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, partialmethod, reduce
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Container
from textual.reactive import var
from typing_extensions import override

from rltui.layout.presets import FIRST
from rltui.paths import with_home
from rltui.service.launch_review import opened_file
from rltui.service.sweep_points import NO_SWEEP
from rltui.tui import keys, messages
from rltui.tui.commands import with_override
from rltui.tui.keys import Key, KeyContext, KeyTable
from rltui.tui.picking import after
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.launch_typing import LaunchTyping
from rltui.tui.widgets.launch_panes import PresetList, ReviewPane, ScriptPane

if TYPE_CHECKING:
    from textual.timer import Timer
    from textual.widget import Widget

    from rltui.service.launch_review import LaunchReview, PresetSummary
    from rltui.service.sweep_points import Sweep
    from rltui.tui.messages import CockpitMessage


def _can_launch(context: KeyContext) -> str:
    reasons = {
        "none": "no preset is selected",
        "pending": "still checking: wait for the findings",
        "errors": "errors stand in the way: see the findings",
        "ready": "",
    }
    return keys.may_change(context) or reasons[context.review]


_needs_overrides = keys.needs(attrgetter("has_overrides"), "there is no override yet: s sets one")
_needs_layout = keys.first_of(
    keys.what_is_wrong, keys.needs(lambda context: context.review != "none", "no preset is selected")
)
_needs_one = keys.needs(
    lambda context: not context.has_sweep, "hands-off mode goes without a sweep: a run that goes on takes no turn"
)
_needs_fix = keys.needs(attrgetter("has_fix"), "no finding comes with a fix")

KEYS = keys.key_table(
    "launch",
    Key("submit", ("enter",), "launch", "Launch what is shown, then open the run.", 1, _can_launch),
    Key("cluster", ("c",), "cluster", "Launch on the next cluster.", 2, keys.needs_clusters, quiet=True),
    Key("cluster_before", ("C",), "cluster", "Launch on the cluster before.", 0, keys.needs_clusters),
    Key("set", ("s",), "set", "Set a value: key.path=value; of a script, its options and words.", 3),
    Key("script", ("v",), "preview", "Show the job script exactly as it would be submitted, or the review.", 4),
    Key("fix", ("f",), "fix", "Apply the fix of the first finding that has one.", 5, _needs_fix, quiet=True),
    Key("edit", ("e",), "edit", "Edit the newest override.", 7, _needs_overrides, quiet=True),
    Key("form", ("E",), "all keys", "Edit every key of the layout as a form.", 0, _needs_layout),
    Key("sweep", ("S",), "sweep", "Give settings several values, each a run: train.seed=1,2,3 --at-once 2."),
    Key("drop", ("d",), "drop", "Drop the sweep, or the newest override.", 8, _needs_overrides, quiet=True),
    Key("open", ("o",), "open", "Launch a file: your own script, or a layout, by its path.", 6),
    Key("auto", ("H",), "hands-off", "Launch it so that it goes on by itself after faults.", 0, _needs_one),
    Key("filter", ("/",), "filter", "Show only presets with these words.", 9),
    Key("copy", ("y",), "copy", "Copy the commands, or the script where it is shown."),
)


SETTLE_S = 0.03
"""Seconds that the cursor rests before the preset under it is checked."""

TYPED_SETTLE_S = 0.12
"""Seconds that the fingers rest before what they typed is checked."""

SIDE_BY_SIDE_FROM = 160
"""Width from which review and script are both in sight."""


class LaunchScreen(CockpitScreen):
    """Presets on the left, the review of the chosen one on the right."""

    KEYS: ClassVar[KeyTable] = KEYS

    pane: PresetList
    review: var[LaunchReview | None] = var(None, init=False)
    """What is known of what was checked last."""

    def __init__(self, preset: str = "") -> None:
        super().__init__()
        self.presets = self.pane = PresetList(id="presets")
        self.typing = LaunchTyping(self, self.presets, partial(self.changed, at_once=True), self._check_typed)
        self.parts = (self.typing,)
        self.review_pane = ReviewPane(id="review")
        self.script_pane = ScriptPane(id="script")
        self.with_script = self.auto = False
        self._wished = preset
        self._asked: tuple[str, tuple[str, ...], str, Sweep] = ("", (), "", NO_SWEEP)
        self._reviewed: PresetSummary | None = None
        self._settling: Timer | None = None
        self._opened = ""

    @override
    def body(self) -> Sequence[Widget]:
        return [Container(self.presets, self.review_pane, self.script_pane, id="launch")]

    @override
    def on_mount(self) -> None:
        super().on_mount()
        self._share_width()
        self.cockpit.controller.ask_presets()

    def receive(self, message: CockpitMessage) -> None:
        """Take presets, the review of what is chosen, and failures."""
        if isinstance(message, messages.PresetsFetched):
            self.presets.show(message.presets)
            if self._wished and self._wished not in self.presets.names:
                self.presets.open(opened_file(self._wished))
            self.presets.choose(self._wished or FIRST)
            self.changed(at_once=True)
        elif isinstance(message, messages.ReviewFetched):
            review = message.review
            if (review.preset, tuple(review.overrides), review.cluster, review.sweep) == self._asked:
                self.review = review
                self._look_ahead()
        elif isinstance(message, messages.OutlookFetched):
            self.review_pane.outlook = message.outlook
            self.tick()
        elif isinstance(message, messages.Launched):
            self.launching = ""
        elif isinstance(message, messages.RequestFailed):
            self.launching = "" if message.asked == self.launching else self.launching
            if message.asked == f"check {self._opened}":
                self.presets.close(self._opened)
                self.changed()

    def on_screen_resume(self) -> None:
        """Check what is chosen, unless that was done: what was asked on the screen above may have taken its turn."""
        super().on_screen_resume()
        if self.review is None:
            self._check()

    def watch_review(self) -> None:
        """Draw the review that has come, with its findings."""
        self._show()

    def tick(self) -> None:
        """Header and footer, and how old the cluster's word is."""
        super().tick()
        self.review_pane.age(self._first, self.cockpit.wall_clock())

    @property
    def _first(self) -> tuple[str, tuple[str, ...], str]:
        """What is asked for, or the first run of a sweep: preset, overrides, cluster."""
        preset, overrides, cluster, sweep = self._asked
        return (preset, self.review.first if sweep.words and self.review is not None else overrides, cluster)

    def _look_ahead(self) -> None:
        """Ask the cluster of what was reviewed, if that is still what is wanted then."""
        asked = self._asked

        def ask() -> bool:
            if wanted := asked == self._asked and self.review is not None and self.review.can_launch:
                self.cockpit.controller.ask_outlook(*self._first)
            return wanted

        self.review_pane.look_ahead(ask)

    def moved(self) -> None:
        """Another preset: what was set for the one before does not fit it."""
        if self.presets.selected != self._reviewed:
            self.typing.unset()
            self.changed()

    def changed(self, at_once: bool = False) -> None:
        """Something else is to be launched: check it."""
        self._asked = ("", (), "", NO_SWEEP)
        self._reviewed = self.presets.selected
        self.review = None
        self._show()
        self._check_in(0.0 if at_once else SETTLE_S)

    def _check(self) -> None:
        preset = self.presets.selected
        if preset is not None:
            overrides, sweep = self.typing.tried
            self._asked = (preset.name, overrides, self.cluster, sweep)
            self.cockpit.controller.ask_review(*self._asked)

    def _check_typed(self) -> None:
        """Check once the fingers rest; what was found before stays in sight until then."""
        self._check_in(TYPED_SETTLE_S)

    def _check_in(self, pause_s: float) -> None:
        if self._settling is not None:
            self._settling.stop()
        if pause_s:
            self._settling = self.set_timer(pause_s, self._check)
        else:
            self._check()

    def _show(self) -> None:
        self.review_pane.show(self.presets.selected, self.review, *self.typing.tried, self.cockpit.readonly)
        self.script_pane.show(self.review, is_asked=self.presets.selected is not None)
        self.tick()

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters that one can launch on."""
        return tuple(cluster.name for cluster in self.cockpit.pictures.clusters) or ("local",)

    @property
    def cluster(self) -> str:
        """Where a launch would go: the one chosen last."""
        chosen = self.cockpit.launch_cluster
        return chosen if chosen in self.clusters else self.clusters[0]

    def _share_width(self) -> None:
        both = self.app.size.width >= SIDE_BY_SIDE_FROM
        self.script_pane.display = both or self.with_script
        self.review_pane.display = both or not self.with_script

    def on_resize(self) -> None:
        """Share the width of the new size."""
        self._share_width()

    def key_context(self) -> KeyContext:
        """Preset, review and overrides decide."""
        review = self.review
        state = "pending" if review is None else "ready" if review.can_launch else "errors"
        return KeyContext(
            readonly=self.cockpit.readonly,
            review="none" if self.presets.selected is None else "pending" if self.launching else state,  # type: ignore[arg-type]
            has_overrides=self.typing.is_any,
            has_sweep=bool(self.typing.sweep.words),
            has_fix=bool(self._fix),
            num_clusters=len(self.clusters),
            problem="a script has no keys: s edits its options and words" if self.typing.on_script else "",
        )

    def crumbs(self) -> Sequence[str]:
        """Where you are, and where it would run."""
        return ["launch", f"on {self.cluster}", *(["hands-off"] if self.auto and not self.typing.sweep.words else [])]

    def pager(self) -> ReviewPane | ScriptPane:
        """The review, or the script where it is shown in its place."""
        return self.script_pane if self.with_script else self.review_pane

    def do_submit(self) -> None:
        """Launch the layout that is shown, as it was reviewed."""
        self.launching = messages.launch_phrase(self._asked[0])
        self.cockpit.controller.launch(*self._asked, self.auto and not self.typing.sweep.words)
        self.cockpit.say(f"launching {self._asked[0]} {self.cockpit.glyphs.ellipsis}")

    def do_open(self) -> None:
        """Type the path of a file."""
        self.prompting.ask("file", "open", hint="run.sh, ~/work/train.sbatch, layout.yaml")

    def _open(self, path: str) -> None:
        self._opened = str(with_home(path))
        self.presets.open(opened_file(self._opened))
        self.moved()

    def _turn_to(self, step: int) -> None:
        self.cockpit.launch_cluster = after(self.clusters, self.cluster, step)
        self.changed(at_once=True)

    do_cluster = partialmethod(_turn_to, 1)
    do_cluster_before = partialmethod(_turn_to, -1)

    def do_script(self) -> None:
        """Show the script, or the review again; where both are in sight, the page keys move the other one."""
        self.with_script = not self.with_script
        self._share_width()

    def back_to_all(self) -> bool:
        """Show the review again where the script stands in its place."""
        if alone := self.with_script and not self.review_pane.display:
            self.do_script()
        return alone

    def do_escape(self) -> None:
        """Leave the script, then clear the filter, else go back."""
        if self.back_to_all():
            return
        if self.presets.query_words:
            self.narrow("")
        else:
            self.leave()

    @property
    def _fix(self) -> tuple[str, ...]:
        """The fix of the first finding that has one."""
        findings = self.review.findings if self.review is not None else ()
        return next((finding.fix for finding in findings if finding.fix), ())

    def do_fix(self) -> None:
        """Apply the fix of the first finding that has one."""
        self.typing.set(reduce(with_override, self._fix, self.typing.overrides))

    def do_auto(self) -> None:
        """Launch in hands-off mode, or not."""
        self.auto = not self.auto
        self.cockpit.say(f"hands-off mode {'on' if self.auto else 'off'} for this launch")

    def do_copy(self) -> None:
        """Copy the commands, or the script where it is shown."""
        if self.review is not None and self.with_script and self.review.script:
            self.cockpit.copy(self.review.script, "script")
        else:
            self.cockpit.copy("\n".join(self.review.commands) if self.review is not None else "", "commands")

    def do_filter(self) -> None:
        """Open the prompt for words that a preset has to have."""
        self.prompting.ask("filter", "/", self.presets.query_words, hint="words")

    @override
    def typed(self, purpose: str, text: str) -> None:
        super().typed(purpose, text)
        self.typing.typed(purpose, text)

    def answer(self, purpose: str, text: str) -> str:
        """Open a file, or set what was typed."""
        if purpose == "file" and text.strip():
            self._open(text.strip())
        return self.typing.answer(purpose, text)

    @override
    def left(self, purpose: str) -> None:
        super().left(purpose)
        self.typing.left(purpose)

    @override
    def narrow(self, words: str) -> None:
        self.presets.narrow(words)
        self.moved()
        self.tick()
