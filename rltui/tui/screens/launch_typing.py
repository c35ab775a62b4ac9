"""What is typed on the launch screen: values, the words of a script, a sweep, a file; checked before it is set."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from rltui.errors import UsageError
from rltui.service.sweep_points import NO_SWEEP, Sweep, read_sweep
from rltui.tui.commands import complete_override, override_problem, script_words, with_override
from rltui.tui.screens.base import CockpitScreen, Part
from rltui.tui.widgets.launch_panes import PresetList

Tried = tuple[tuple[str, ...], Sweep]
"""Overrides, or the words of a script, and the sweep."""

CHECKED = ("override", "words", "sweep")
"""Prompts whose text is checked while it is typed."""


class LaunchTyping(Part):
    """What is set beside the chosen preset, and the keys to type it.

    Args:
        screen: The launch screen.
        presets: What can be launched.
        changed: Called when something else is set.
        typed: Called when something else would be set by what stands in the prompt now.

    Attributes:
        overrides: What is set.
        sweep: The settings that have several values.
    """

    def __init__(
        self, screen: CockpitScreen, presets: PresetList, changed: Callable[[], None], typed: Callable[[], None]
    ) -> None:
        super().__init__(screen)
        self._presets, self._changed, self._typed = presets, changed, typed
        self.unset()

    def unset(self) -> None:
        """Forget all overrides and the sweep."""
        self.overrides: tuple[str, ...] = ()
        self.sweep = NO_SWEEP
        self._typing: Tried | None = None

    @property
    def tried(self) -> Tried:
        """What is set, with what is being typed once it has its form."""
        return (self.overrides, self.sweep) if self._typing is None else self._typing

    @property
    def is_any(self) -> bool:
        """Whether any override or sweep is set."""
        return bool(self.overrides or self.sweep.words)

    @property
    def on_script(self) -> bool:
        """Whether a script is chosen, which has words and no keys."""
        selected = self._presets.selected
        return selected is not None and selected.is_script

    def set(self, overrides: tuple[str, ...], sweep: Sweep | None = None) -> None:
        """Launch with these overrides from now on; without a sweep, that stays as it is."""
        self.overrides, self._typing = overrides, None
        self.sweep = self.sweep if sweep is None else sweep
        self._changed()

    def do_set(self) -> None:
        """Type an override; a draft that was left is still there. Of a script, all words behind it are edited."""
        self._ask_words() if self.on_script else self._ask_override(self._screen.prompting.draft)

    def do_edit(self) -> None:
        """Open the prompt for the newest override, or for the words beside a script."""
        if self.on_script:
            self._ask_words()
        elif self.overrides:
            self._ask_override(self.overrides[-1])
        else:
            self.do_sweep()

    def do_sweep(self) -> None:
        """Type which settings have several values."""
        hint = "train.seed=1,2,3 --at-once 2, tab completes"
        self._screen.prompting.ask("sweep", "sweep", str(self.sweep), hint, complete_override)

    def do_form(self) -> None:
        """Edit every key as a form; what is set there is set here."""
        selected = self._presets.selected
        if selected is not None:
            self.cockpit.open("form", selected.name, self.overrides, self.set)

    def _ask_override(self, text: str) -> None:
        self._screen.prompting.ask("override", "set", text, "key.path=value, tab completes", complete_override)

    def _ask_words(self) -> None:
        hint = "--nodes 2 slurm.time=1:00:00 -- its words"
        self._screen.prompting.ask("words", "run with", shlex.join(self.overrides), hint)

    def do_drop(self) -> None:
        """Drop the sweep, or the newest override."""
        if self.sweep.words:
            self.set(self.overrides, NO_SWEEP)
        else:
            self.set(self.overrides[:-1])

    def _as_set(self, purpose: str, text: str) -> tuple[Tried, str]:
        """What would be set with what is typed, and what is wrong with its form."""
        if purpose == "sweep":
            try:
                return (self.overrides, read_sweep(text)), ""
            except UsageError as error:
                return (self.overrides, self.sweep), error.in_one_line
        if purpose == "words":
            words, problem = script_words(text)
            return (words, self.sweep), problem
        problem = override_problem(text)
        return (self.overrides if problem else with_override(self.overrides, text.strip()), self.sweep), problem

    def typed(self, purpose: str, text: str) -> None:
        """Check what is being typed, as if it were set."""
        if purpose in CHECKED:
            tried, problem = self._as_set(purpose, text)
            tried = (self.overrides, self.sweep) if problem else tried
            if tried != self.tried:
                self._typing = tried
                self._typed()

    def answer(self, purpose: str, text: str) -> str:
        """Set what was typed; what has no proper form stays in the prompt."""
        text = text.strip()
        if purpose not in CHECKED or (purpose == "override" and not text):
            return ""
        tried, problem = self._as_set(purpose, text)
        if not problem:
            self._screen.prompting.draft = ""
            self.set(*tried)
        return problem

    def left(self, purpose: str) -> None:
        """Set nothing of what was typed; a draft is kept."""
        if purpose in CHECKED and self._typing is not None:
            self._typing = None
            self._changed()
