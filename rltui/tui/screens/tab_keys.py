"""What keys of an open run do that mean one thing on one tab and another on the next, and the digits."""

from __future__ import annotations

from functools import partial, partialmethod

from rltui.tui.screens.log_keys import LogKeys
from rltui.tui.screens.metric_keys import MetricKeys
from rltui.tui.screens.parts import HasTabs, Part
from rltui.tui.screens.run_tabs import NUMBERS, TABS
from rltui.tui.screens.sample_keys import SampleKeys
from rltui.tui.widgets.actors_pane import ActorsPane
from rltui.tui.widgets.gpus_pane import GpusPane


class TabKeys(Part[HasTabs]):
    """What the digits do, and keys that mean one thing on one tab and another on the next."""

    def __init__(self, screen: HasTabs) -> None:
        super().__init__(screen)
        for tab in TABS:
            setattr(self, f"do_tab_{tab.id}", partial(screen.open_tab, NUMBERS[tab.id]))

    def do_go_right(self) -> None:
        """The next node of the map of GPUs, else the tab to the right."""
        pane = self._screen.mover()
        if not (isinstance(pane, GpusPane) and pane.sideways(1)):
            self.do_next_tab()

    def do_go_left(self) -> None:
        """The node before, else the tab to the left."""
        pane = self._screen.mover()
        if not (isinstance(pane, GpusPane) and pane.sideways(-1)):
            self.do_previous_tab()

    def do_next_tab(self) -> None:
        """The tab to the right."""
        self._screen.open_tab(self._screen.tab_bar.current + 1)

    def do_previous_tab(self) -> None:
        """The tab to the left."""
        self._screen.open_tab(self._screen.tab_bar.current - 1)

    def do_plugin_tab(self) -> None:
        """The next tab of a plug-in."""
        own, after = len(TABS), self._screen.tab_bar.current + 1
        self._screen.open_tab(after if own <= after < len(self._screen.tabs) else own)

    def do_worst_first(self) -> None:
        """GPUs and actors: the next order."""
        pane = self._screen.mover()
        if isinstance(pane, GpusPane | ActorsPane):
            pane.next_order()

    def do_stack(self) -> None:
        """Show what the process of the actor under the cursor is doing."""
        pane = self._screen.mover()
        if isinstance(pane, ActorsPane) and pane.actor is not None:
            self.cockpit.open("output", ("actors", self._screen.run_id, "--stack", pane.actor.actor_id), False)

    def do_queue(self) -> None:
        """Open the queue of the run's cluster."""
        if self._screen.target is not None:
            self.cockpit.open("queue", self._screen.target.cluster)

    def _sideways(self, step: int) -> None:
        if self._screen.tab == "metrics":
            self._screen.part(MetricKeys).step(step)
        else:
            self._screen.part(LogKeys).pan(step)

    do_pan_left = partialmethod(_sideways, -1)
    do_pan_right = partialmethod(_sideways, 1)

    def do_whole(self) -> None:
        """One chart or one sample alone, or all of them; the log of an actor; the cards of a node of the map."""
        pane = self._screen.mover()
        if isinstance(pane, GpusPane):
            pane.open_node()
        elif isinstance(pane, ActorsPane):
            if pane.actor is not None:
                self._screen.part(LogKeys).open_actor(pane.actor)
        elif self._screen.tab == "metrics":
            self._screen.part(MetricKeys).toggle_alone()
        else:
            self._screen.part(SampleKeys).toggle_whole()
