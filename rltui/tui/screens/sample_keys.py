"""What the keys of an open run do with its samples: which are shown, in which order, and one of them in full."""

from __future__ import annotations

from functools import partialmethod

from msgspec import structs

from rltui.errors import UsageError
from rltui.tui.messages import SampleRead, SamplesArrived
from rltui.tui.screens.base import CockpitScreen, Part
from rltui.tui.screens.run_tabs import Tabs
from rltui.tui.widgets.samples_pane import SamplesPane
from rltui.watch.samples import Order, SampleQuery, read_sample_query
from rltui.watch.snapshots import RunSnapshot

AGAIN_S = 5.0
"""Between two looks for new samples of a live run, which writes some every 10 s."""


class SampleKeys(Part):
    """What the keys of the samples do."""

    def __init__(self, screen: CockpitScreen, tabs: Tabs) -> None:
        super().__init__(screen)
        self._tabs = tabs
        self._asked_at: float | None = None

    def opened(self) -> None:
        """The tab is in sight again: ask for what could not be read before, and for the one under the cursor."""
        pane = self._tabs.samples_pane
        if pane is not None and pane.problem:
            self._asked_at = None
        self.moved()

    def look(self, snapshot: RunSnapshot) -> None:
        """Ask for samples when the tab is opened, and for new ones while the run lives."""
        pane = self._tabs.samples_pane
        if pane is None:
            return
        if self._asked_at is None:
            self._ask(pane.query_shown)
            self._asked_at = snapshot.taken_at
        elif snapshot.summary.is_live and pane.costs_little and snapshot.taken_at - self._asked_at >= AGAIN_S:
            self._asked_at = snapshot.taken_at
            self._ask(pane.query_shown)

    def receive(self, message: SamplesArrived | SampleRead) -> None:
        """Take what was found, or a sample in full; another tab may be in sight by then."""
        pane = self._tabs.opened(SamplesPane)
        if pane is None:
            return
        if isinstance(message, SampleRead):
            pane.take_group(message.group)
            return
        pane.take(message.query, message.found)
        self.moved()

    def moved(self) -> None:
        """Ask for the sample under the cursor in full, unless it was read."""
        pane = self._tabs.samples_pane
        one = pane.selected if pane is not None else None
        if pane is None or one is None:
            return
        if not pane.knows(one):
            self.cockpit.controller.ask_sample(self._identity, one, pane.query_shown.evaluation)

    def search(self, text: str) -> str:
        """Search for what was typed, in the order at hand; why it cannot be searched comes back."""
        pane = self._tabs.samples_pane
        if pane is None:
            return ""
        try:
            query = read_sample_query(text)
        except UsageError as error:
            return error.in_one_line
        self._ask(structs.replace(query, order=pane.query_shown.order, evaluation=pane.query_shown.evaluation))
        return ""

    def clear(self) -> bool:
        """Leave the search and the order; whether there was anything to leave."""
        pane = self._tabs.samples_pane
        if pane is None:
            return False
        plainly = SampleQuery(evaluation=pane.query_shown.evaluation)
        if pane.query_shown == plainly:
            return False
        self._ask(plainly)
        return True

    def ask_words(self) -> None:
        """Open the prompt for what samples are searched for."""
        pane = self._tabs.samples_pane
        words = pane.query_shown.text if pane is not None else ""
        self._screen.prompting.ask("samples", "/", words, hint="words  step:12  re:REGEX")

    def _ask(self, query: SampleQuery) -> None:
        pane = self._tabs.samples_pane
        if pane is not None:
            pane.expect(query)
            self.cockpit.controller.searches.samples(self._identity, query)

    def _order(self, order: Order) -> None:
        pane = self._tabs.samples_pane
        if pane is not None:
            wanted: Order = "newest" if pane.query_shown.order == order else order
            self._ask(structs.replace(pane.query_shown, order=wanted))

    do_worst = partialmethod(_order, "worst")
    do_best = partialmethod(_order, "best")
    do_longest = partialmethod(_order, "longest")

    def do_evaluation(self) -> None:
        """Answers of evaluations, or of the training again."""
        pane = self._tabs.samples_pane
        if pane is not None:
            self._ask(structs.replace(pane.query_shown, evaluation=not pane.query_shown.evaluation))
