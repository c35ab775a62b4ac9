"""What can be done with a run, from the list and from its own screen alike: always asked about first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, partialmethod
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from textual.app import SuspendNotSupported

from rltui.service.actions import SIGNALS
from rltui.service.cockpit import Action, Ask, WhyReport
from rltui.tui import keys
from rltui.tui.keys import Key, KeyContext, KeyGroup
from rltui.tui.messages import CockpitMessage, NodeShellReady, WhyFetched, shell_phrase
from rltui.tui.picking import PickItem
from rltui.tui.screens.base import CockpitScreen, Part
from rltui.watch.snapshots import LIVE_STATES, RunIdentity, RunSnapshot, RunSummary

if TYPE_CHECKING:
    from rltui.service.node_shell import NodeShell
    from rltui.tui.host import Host
    from rltui.tui.screens.pick import PickScreen


def _is_own(context: KeyContext) -> str:
    return f"this is {context.owner}'s run: you may read it" if context.owner else ""


_can_act = keys.first_of(keys.may_change, keys.needs_run, _is_own)
_can_act_on_one = keys.first_of(keys.may_change, keys.needs_one_run, _is_own)


def _can_cancel(context: KeyContext) -> str:
    ended = "" if context.run_state in LIVE_STATES else f"nothing to cancel: the run is {context.run_state} already"
    return _can_act(context) or ended


def _can_signal(context: KeyContext) -> str:
    ended = "" if context.run_state in LIVE_STATES else f"no process is left: the run is {context.run_state}"
    return _can_act(context) or ended


_can_exclude = keys.first_of(
    _can_act_on_one,
    keys.needs(attrgetter("num_nodes"), "none of the run's nodes is known"),
)

ACT = KeyGroup(
    "acting on a run, always previewed first",
    (
        Key("why", ("!",), "why", "Why it died or stands still: causes, evidence, remedies.", 3, keys.needs_one_run),
        Key("fix", ("f",), "fix", "Preview one fix for all causes, and resubmit with it.", 0, _can_act),
        Key("actions", ("x",), "act", "A menu of all actions, with the reason where one cannot be done.", 4),
        Key("cancel", ("c",), "cancel", "Cancel the run.", 5, _can_cancel),
        Key("resubmit", ("r",), "resubmit", "Start a new attempt from the newest checkpoint.", 0, _can_act),
        Key("exclude", ("e",), "exclude", "Resubmit without some of its nodes.", 0, _can_exclude),
        Key("lower_memory", ("m",), "less memory", "Resubmit with a lower memory peak.", 0, _can_act_on_one),
        Key("auto", ("H",), "hands-off", "Let it go on by itself after faults, or stop that.", 0, _can_act_on_one),
        Key("edit", ("s",), "edit", "Resubmit with changes: key.path=value.", 0, _can_act_on_one),
        Key("form", ("M",), "form", "Resubmit with changes made in a form of all keys.", 0, _can_act_on_one),
        Key("shell", ("$",), "shell", "Open a shell on one of its nodes, inside its job.", 0, _can_act_on_one),
        Key("signal", ("K",), "signal", "Send a signal, and say first what it would do.", 0, _can_signal),
    ),
)


def nodes_of(run: RunSummary | None, host: Host) -> tuple[str, ...]:
    """Nodes of a run, as far as they are known by name."""
    return known_nodes(run, host.pictures.run(run.identity)) if run is not None else ()


def lend_terminal(host: Host, shell: NodeShell, otherwise: str) -> None:
    """Give the terminal to a command until it ends; ``otherwise`` is said where a terminal cannot be lent."""
    host.hush()
    # nobody looks meanwhile, and what is read waits until somebody does
    host.controller.attend("gone")
    try:
        with host.suspend():
            problem = shell.run_beside()
    except SuspendNotSupported:
        problem = otherwise
    host.controller.attend("here")
    host.say(problem, "error")


class Target(NamedTuple):
    """What actions are for.

    Attributes:
        run: The run that is selected or open, as it was last seen.
        marked: The runs that are marked, for which actions are instead.
        node: The node that is in sight; empty where none is looked at.
    """

    run: RunSummary | None
    marked: tuple[RunIdentity, ...] = ()
    node: str = ""

    @property
    def runs(self) -> tuple[RunIdentity, ...]:
        """The runs that an action is for: where several are marked, the cursor may be on a line that is no run."""
        return self.marked or ((self.run.identity,) if self.run is not None else ())


class RunActions(Part):
    """What the keys of ``ACT`` do.

    Args:
        screen: Where a run is selected or open.
        target: Says which one.
    """

    def __init__(self, screen: CockpitScreen, target: Callable[[], Target]) -> None:
        super().__init__(screen)
        self._target = target
        self._picking: tuple[RunIdentity, PickScreen] | None = None
        """The run whose nodes are being picked, and where."""
        self._shell_of: RunIdentity | None = None
        """The run a shell of which was asked for."""

    @property
    def _run(self) -> RunSummary | None:
        return self._target().run

    def receive(self, message: CockpitMessage) -> None:
        """Take a diagnosis, and a shell that was asked for."""
        if isinstance(message, WhyFetched):
            self._take_why(message.report)
        elif isinstance(message, NodeShellReady):
            self._take_shell(message)

    def _ask_for(self, action: Action, signal: str = "") -> None:
        run, marked, _ = self._target()
        if marked:
            self.cockpit.ask(Ask(action, marked[0], others=marked[1:], signal=signal))
        elif run is not None:
            self.cockpit.ask(Ask(action, run.identity, signal=signal))

    do_cancel = partialmethod(_ask_for, "cancel")
    do_resubmit = partialmethod(_ask_for, "resubmit")
    do_lower_memory = partialmethod(_ask_for, "lower_memory")
    do_fix = partialmethod(_ask_for, "fix")
    do_auto = partialmethod(_ask_for, "auto")

    def do_edit(self) -> None:
        """Type what a resubmission is to change."""
        if self._run is not None:
            self._screen.ask_changes(Ask("edit", self._run.identity))

    def do_form(self) -> None:
        """Make the changes of a resubmission in a form."""
        if self._run is not None:
            self.cockpit.open("form", "", (), lambda _: None, self._run.identity)

    def do_why(self) -> None:
        """Say why it died or stands still."""
        if self._run is not None:
            self.cockpit.open("why", self._run.identity)

    def do_actions(self) -> None:
        """A menu of all of these."""
        run, marked, _ = self._target()
        screen = self._screen
        items = keys.action_items(screen.bound.group(ACT.title), screen.key_context(), self.cockpit.glyphs)
        title = f"{len(marked)} marked runs" if marked else run.run_id if run is not None else "actions"
        self._pick(title, items, screen.act)

    def _pick(self, title: str, items: Sequence[PickItem], do: Callable[[str], None]) -> None:
        """Let one of ``items`` be chosen, and do it unless the list has moved meanwhile."""
        from rltui.tui.screens.pick import PickScreen

        wanted = self._target().runs

        def chosen(ids: tuple[str, ...] | None) -> None:
            if ids and self._screen.on_top:
                # the list below may have moved while the menu was open
                if self._target().runs == wanted:
                    do(ids[0])
                else:
                    self.cockpit.say("the list has changed: nothing was done", "warning")

        self._screen.app.push_screen(PickScreen(title, items), chosen)

    def do_signal(self) -> None:
        """Choose a signal, then ask what it would do."""
        items = [PickItem(id=name, label=name, detail=does) for name, does in SIGNALS.items()]
        self._pick("a signal", items, lambda name: self._ask_for("signal", name))

    def do_exclude(self) -> None:
        """Pick the nodes that a resubmission keeps away from; the one that a diagnosis names comes first."""
        from rltui.tui.screens.pick import NodesScreen

        run = self._run
        if run is None:
            return
        report = self.cockpit.pictures.why(run.identity)
        screen = NodesScreen(run.identity, node_items(nodes_of(run, self.cockpit), report))
        self._picking = (run.identity, screen)

        def chosen(ids: tuple[str, ...] | None) -> None:
            self._picking = None
            if ids:
                self.cockpit.ask(Ask("exclude", run.identity, exclude=ids))

        self._screen.app.push_screen(screen, chosen)
        if report is None:
            self.cockpit.controller.ask_why(run.identity)

    def do_shell(self) -> None:
        """Open a shell on the only node, or on one that is picked: the one in sight comes first."""
        from rltui.cluster.profile import LOCAL

        run, _, in_sight = self._target()
        if run is None:
            return
        nodes = nodes_of(run, self.cockpit) if run.cluster != LOCAL else ()
        if len(nodes) < 2:
            self._open_shell(run.identity, "")
            return
        nodes = tuple(sorted(nodes, key=lambda node: node != in_sight))
        self._pick("a shell on", node_items(nodes, None), partial(self._open_shell, run.identity))

    def _open_shell(self, run: RunIdentity, node: str) -> None:
        self._shell_of = run
        self.cockpit.say(f"{shell_phrase(run)} {self.cockpit.glyphs.ellipsis}")
        self.cockpit.controller.ask_node_shell(run, node)

    def _take_shell(self, message: NodeShellReady) -> None:
        """Give the terminal to a shell that was asked for here, unless the user has turned to something else."""
        wanted, self._shell_of = self._shell_of, None
        if not self._screen.on_top or wanted != message.run:
            return
        otherwise = (
            f"this terminal cannot be lent: rltui shell {self.cockpit.pictures.name(message.run)} in another one"
        )
        lend_terminal(self.cockpit, message.shell, otherwise)

    def _take_why(self, report: WhyReport) -> None:
        """A diagnosis is there: its nodes come first in a picker that is open."""
        if self._picking is not None and self._picking[0] == report.run:
            nodes = nodes_of(self.cockpit.pictures.summary(report.run), self.cockpit)
            self._picking[1].pane.show(node_items(nodes, report))


def known_nodes(run: RunSummary, picture: RunSnapshot | None) -> tuple[str, ...]:
    """Names of the nodes of a run: the scheduler's word, then the samplers', then those of Ray's actors."""
    found: dict[str, None] = dict.fromkeys(run.job.nodes if run.job is not None else ())
    if picture is not None:
        found |= dict.fromkeys(picture.summary.job.nodes if picture.summary.job is not None else ())
        found |= dict.fromkeys(host.host for host in picture.hosts)
        found |= dict.fromkeys(actor.node for actor in picture.actors if actor.node)
    return tuple(found)


def node_items(nodes: Sequence[str], report: WhyReport | None) -> list[PickItem]:
    """One line a node; a node that a diagnosis would keep away from comes first and says why."""
    blamed = _blamed(report)
    here = {node: because for node, because in blamed.items() if node in nodes}
    # a diagnosis may also name nodes that are kept away from already; only where it knows better are they all shown
    blamed = here or blamed
    others = [node for node in nodes if node not in blamed]
    first = [PickItem(id=node, label=node, detail=because, urgent=True) for node, because in blamed.items()]
    return first + [PickItem(id=node, label=node) for node in others]


def _blamed(report: WhyReport | None) -> dict[str, str]:
    """Node → the diagnosis that names it, causes first."""
    blamed: dict[str, str] = {}
    for finding in report.findings if report is not None else ():
        for remedy in finding.remedies:
            for node in remedy.exclude:
                blamed.setdefault(node, finding.id)
    return blamed
