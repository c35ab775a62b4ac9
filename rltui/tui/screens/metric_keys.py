"""What the keys of the charts do that their pane cannot do alone: another axis, another run beside, W&B."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rltui.tui import commands
from rltui.tui.keys import may_change
from rltui.tui.messages import BesideFetched, WandbFound
from rltui.tui.picking import PickItem
from rltui.tui.screens.base import CockpitScreen, Part
from rltui.tui.screens.run_actions import lend_terminal
from rltui.tui.screens.run_tabs import Tabs
from rltui.tui.widgets.metrics_pane import MetricsPane

if TYPE_CHECKING:
    from rltui.service.wandb_place import WandbPlace
    from rltui.watch.snapshots import RunIdentity, RunSnapshot

AGAIN_S = 5.0
"""Between two looks at a live run that is drawn beside."""


PAGE, LOOK, SEND = "page's address", "command that opens its files", "command that uploads its files"
"""What is offered of W&B, and what it is called when it was copied."""


def wandb_items(place: WandbPlace, problem: str = "") -> list[PickItem]:
    """What can be done with what W&B has of a run; a ``problem`` is why nothing can be sent from here."""
    items = [PickItem(PAGE, "copy its page", place.page)] if place.page else []
    if place.look_command:
        label = "open its files (wandb leet)" if place.look else "copy what opens its files"
        items.append(PickItem(LOOK, label, place.look_command))
    if place.send_command:
        label = "upload them (wandb sync)" if place.send and not problem else "copy what uploads them"
        items.append(PickItem(SEND, label, place.send_command))
    return items


class MetricKeys(Part):
    """What the keys of the charts do."""

    def __init__(self, screen: CockpitScreen, tabs: Tabs) -> None:
        super().__init__(screen)
        self._tabs = tabs
        self._beside: RunIdentity | None = None
        """The run that is drawn beside."""
        self._asked_at = 0.0
        self._wants_wandb = False

    @property
    def _pane(self) -> MetricsPane | None:
        pane = self._tabs.pane
        return pane if isinstance(pane, MetricsPane) else None

    def follow(self, snapshot: RunSnapshot) -> None:
        """Look again at the run beside, while it lives."""
        pane = self._pane
        due = snapshot.taken_at - self._asked_at >= AGAIN_S
        if pane is not None and pane.beside is not None and pane.beside.summary.is_live and due:
            self._ask(snapshot.taken_at)

    def _ask(self, at: float) -> None:
        self._asked_at = at
        if self._beside is not None:
            self.cockpit.controller.ask_beside(self._identity, self._beside)

    def receive(self, message: BesideFetched | WandbFound) -> None:
        """Draw the run beside, if it is still the one that is wanted; or offer what W&B has of this run."""
        if isinstance(message, WandbFound):
            self._offer(message.place)
        elif (pane := self._tabs.opened(MetricsPane)) is not None and message.snapshot.summary.identity == self._beside:
            if not message.snapshot.metrics.series:
                self.cockpit.say(f"{message.snapshot.summary.run_id} has no series yet", "warning")
            pane.show_beside(message.snapshot)

    def choose(self, text: str) -> str:
        """Draw the run that was typed; why it cannot be drawn comes back."""
        name, pictures = text.strip(), self.cockpit.pictures
        named = (run.identity for run in pictures.runs.runs if run.name == name and run.identity != self._identity)
        fitting = commands.resolve(name, pictures.names)
        found = fitting[0] if len(fitting) == 1 else next(named, None)
        if found is None:
            return commands.no_run(name, fitting)
        if found == self._identity:
            return "this is the run itself: name another"
        self._beside = found
        self._ask(0.0)
        return ""

    def do_beside(self) -> None:
        """Ask which run is drawn beside, or draw it no more."""
        if self._beside is not None:
            self._beside = None
            if self._pane is not None:
                self._pane.show_beside(None)
            return
        ids = [name for run, name in self.cockpit.pictures.names.items() if run != self._identity]
        complete = partial(commands.extend, choices=ids)
        hint = "a run's id, its beginning, or a name; tab completes"
        self._screen.prompting.ask("beside", "beside", hint=hint, complete=complete)

    def clear(self) -> bool:
        """Leave what was looked at closely; whether there was anything to leave."""
        return self._pane is not None and self._pane.clear()

    def do_axis(self) -> None:
        """Draw over the next axis: steps, time or GPU-hours."""
        if self._pane is not None and not self._pane.next_axis():
            self.cockpit.say("nobody has noted when its steps were: there are steps only", "warning")

    def do_wandb(self) -> None:
        """Look where W&B has this run."""
        self.cockpit.say(f"looking for W&B{self.cockpit.glyphs.ellipsis}")
        self._wants_wandb = True
        self.cockpit.controller.ask_wandb(self._identity)

    def _offer(self, place: WandbPlace) -> None:
        """Let what can be done with it be chosen, unless the user has turned to something else."""
        from rltui.tui.screens.pick import PickScreen

        host = self.cockpit
        wanted, self._wants_wandb = self._wants_wandb, False
        if not wanted or not self._screen.on_top or self._pane is None:
            return
        host.hush()
        problem = may_change(self._screen.key_context())

        def chosen(ids: tuple[str, ...] | None) -> None:
            if not ids:
                return
            shell = {LOOK: place.look, SEND: None if problem else place.send}.get(ids[0])
            words = {PAGE: place.page, LOOK: place.look_command, SEND: place.send_command}[ids[0]]
            if shell is not None:
                lend_terminal(host, shell, f"this terminal cannot be lent: {words}")
            else:
                host.copy(words, ids[0])

        self._screen.app.push_screen(PickScreen("W&B", wandb_items(place, problem)), chosen)
