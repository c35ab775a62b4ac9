"""What can be done with a run, from the list and from its own screen alike: always asked about first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui import messages
from rltui.tui.messages import Ask
from rltui.tui.palette import action_items
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.views.nodes import known_nodes, node_items

if TYPE_CHECKING:
    from rltui.service.cockpit import WhyReport
    from rltui.tui.messages import CockpitMessage
    from rltui.tui.screens.pick import PickScreen
    from rltui.watch.snapshots import RunSummary


class ActingScreen(CockpitScreen, inherit_bindings=False):
    """A screen on which a run is selected or open."""

    _picking: tuple[str, PickScreen] | None = None
    """The run whose nodes are being picked, and where."""

    @property
    def target(self) -> RunSummary | None:
        """The run that actions are for."""
        raise NotImplementedError

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of that run, as far as they are known by name."""
        run = self.target
        return known_nodes(run, self.cockpit.pictures.run(run.run_id)) if run is not None else ()

    def _ask(self, action: messages.Action) -> None:
        if self.target is not None:
            self.cockpit.questions.ask(Ask(action, self.target.run_id))

    def do_cancel(self) -> None:
        """Ask what cancelling would do."""
        self._ask("cancel")

    def do_resubmit(self) -> None:
        """Ask what resubmitting would do."""
        self._ask("resubmit")

    def do_lower_memory(self) -> None:
        """Ask what would lower the memory peak."""
        self._ask("lower_memory")

    def do_edit(self) -> None:
        """Type what a resubmission is to change."""
        if self.target is not None:
            self.ask_changes(Ask("edit", self.target.run_id))

    def do_why(self) -> None:
        """Say why it died or stands still."""
        if self.target is not None:
            self.cockpit.open_why(self.target.run_id)

    def do_actions(self) -> None:
        """A menu of all of these."""
        from rltui.tui.screens.pick import PickScreen

        run = self.target
        items = action_items(self.SCOPE, self.key_context(), self.cockpit.glyphs)

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids and self.on_top and self.target is not None and run is not None:
                # the list below may have moved while the menu was open
                if self.target.run_id == run.run_id:
                    self.act(ids[0])
                else:
                    self.cockpit.say("the list has changed: nothing was done", "warning")

        self.app.push_screen(PickScreen(run.run_id if run is not None else "actions", items), chosen)

    def do_exclude(self) -> None:
        """Pick the nodes that a resubmission keeps away from; the one that a diagnosis names comes first."""
        from rltui.tui.screens.pick import PickScreen

        run = self.target
        if run is None:
            return
        report = self.cockpit.pictures.why(run.run_id)
        screen = PickScreen(f"keep away from which node of {run.run_id}", node_items(self.nodes, report), marking=True)
        self._picking = (run.run_id, screen)

        def chosen(ids: tuple[str, ...] | None) -> None:
            self._picking = None
            if ids:
                self.cockpit.questions.ask(Ask("exclude", run.run_id, exclude=ids))

        self.app.push_screen(screen, chosen)
        if report is None:
            self.cockpit.controller.ask_why(run.run_id)

    def take_why(self, report: WhyReport) -> None:
        """A diagnosis is there: its nodes come first in a picker that is open."""
        if self._picking is not None and self._picking[0] == report.run_id:
            self._picking[1].pick_list.show(node_items(self.nodes, report))

    def receive(self, message: CockpitMessage) -> None:
        """Take a diagnosis."""
        if isinstance(message, messages.WhyFetched):
            self.take_why(message.report)
