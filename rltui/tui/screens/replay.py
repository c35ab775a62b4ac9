"""A recorded run: the run's own screen, with the recording's clock below and keys that set it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partialmethod
from typing import ClassVar

from textual.widget import Widget
from typing_extensions import override

from rltui.errors import UsageError
from rltui.service.replay import ReplayClock, ReplayCockpit, moment_of
from rltui.tui.glyphs import Glyphs
from rltui.tui.keys import Key, KeyContext, KeyGroup, KeyTable
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.run_actions import ACT
from rltui.tui.spans import Line, Span, cell_width, clip, line
from rltui.tui.widgets.pane import Pane

EVERY_S = 0.5
SHARE = 0.02
"""Of the whole recording, how far one press goes."""

CLOCK = KeyGroup(
    "replay",
    (
        Key("play", ("space",), "play", "Stop the recording's clock, or let it go on; at the end, begin again.", 1),
        Key("forward", (".",), "forward", "A fiftieth of the recording forward.", 2),
        Key("backward", (",",), "back", "A fiftieth of the recording back.", 2),
        Key("next_event", ("}",), "event", "To the next event.", 2),
        Key("previous_event", ("{",), "event before", "To the event before."),
        Key("faster", ("=",), "faster", "Twice as fast.", 3),
        Key("slower", ("-",), "slower", "Half as fast.", 3),
        Key("moment", ("t",), "time", "Go to a time: 90s, 12m, 1:02:03, 50%, end.", 3),
    ),
)
_ACT = ACT._replace(keys=tuple(replace(key, hint=0) for key in ACT.keys))


class ReplayBar(Pane):
    """The line of the clock.

    Args:
        recording: Has the clock.
    """

    def __init__(self, recording: ReplayCockpit) -> None:
        super().__init__(id="replay")
        self._recording = recording

    @override
    def build(self) -> Sequence[Line]:
        return [replay_line(self._recording.clock, self._recording.said, self.size.width, self.glyphs)]


class ReplayScreen(RunScreen, inherit_bindings=False):
    """The recorded run.

    Args:
        recording: What is shown.
    """

    KEYS: ClassVar[KeyTable] = KeyTable((CLOCK, *(_ACT if group is ACT else group for group in RunScreen.KEYS.groups)))

    def __init__(self, recording: ReplayCockpit) -> None:
        super().__init__(recording.identity, None, None)
        self._recording = recording
        self._bar = ReplayBar(recording)

    def body(self) -> Sequence[Widget]:
        """The run's, and the clock."""
        return [*super().body(), self._bar]

    def on_mount(self) -> None:
        """Show the first moment, and let the clock go on."""
        super().on_mount()
        self.set_interval(EVERY_S, self._go_on)

    def _go_on(self) -> None:
        if not self._recording.clock.paused:
            self._moved()

    def _moved(self) -> None:
        self._bar.repaint()
        self.cockpit.controller.refresh()

    def key_context(self) -> KeyContext:
        """Nothing can be changed, and the reason is that this is over."""
        return super().key_context()._replace(recorded=True)

    def do_play(self) -> None:
        """Stop the clock, or let it go on."""
        self._recording.clock.toggle()
        self._moved()

    def go_to(self, moment: float) -> None:
        """Show another moment, epoch seconds."""
        self._recording.clock.go_to(moment)
        self._moved()

    def _step(self, share: float) -> None:
        clock = self._recording.clock
        self.go_to(clock.now + share * (clock.end - clock.begin))

    do_forward = partialmethod(_step, SHARE)
    do_backward = partialmethod(_step, -SHARE)

    def _jump(self, forward: bool) -> None:
        if self._recording.jump(forward) is None:
            self.cockpit.say(f"there is no event {'after' if forward else 'before'} this one", "warning")
        self._moved()

    do_next_event = partialmethod(_jump, True)
    do_previous_event = partialmethod(_jump, False)

    def _hurry(self, faster: bool) -> None:
        self._recording.clock.hurry(faster)
        self._moved()

    do_faster = partialmethod(_hurry, True)
    do_slower = partialmethod(_hurry, False)

    def do_moment(self) -> None:
        """Open the prompt for the moment to go to."""
        self.prompting.ask("moment", "time", hint="90s, 12m, 1:02:03, 50%, end")

    def answer(self, purpose: str, text: str) -> str:
        """Go to a time, or what the run's own prompts do."""
        if purpose != "moment":
            return super().answer(purpose, text)
        clock = self._recording.clock
        try:
            self.go_to(moment_of(text, clock.begin, clock.end))
        except UsageError as error:
            return error.message
        return ""

    def leave(self) -> None:
        """Leave the cockpit: there is nothing behind."""
        self.cockpit.leave()


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
