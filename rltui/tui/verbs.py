"""Carries out what is typed behind ``:``, as the key of the same name would."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rltui.service.cockpit import Action, Ask
from rltui.service.run_filter import ORDERS, saved_filters
from rltui.tui import commands, theme
from rltui.tui.host import Host
from rltui.tui.keys import KeyContext
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.run_actions import ACT
from rltui.tui.screens.runs import RunsScreen
from rltui.watch.snapshots import RunIdentity


def complete(app: Host, text: str) -> commands.Completion:
    """Complete a command with the runs, clusters, presets and themes there are."""
    clusters = [cluster.name for cluster in app.pictures.clusters]
    choices = {
        "run": list(app.pictures.names.values()),
        "cluster": clusters,
        "theme": list(theme.NAMES),
        "preset": _presets(),
    }
    choices["filter"] = _filters()
    return commands.complete(text, choices)


def _presets() -> list[str]:
    from rltui.layout.presets import preset_files

    return [name for name, _ in preset_files()]


def _filters() -> list[str]:
    """What can stand behind ``filter``: a saved one, and what can be done with one."""
    names = list(saved_filters())
    return [*names, *(f"{order} {name}" for order in ORDERS for name in names), "save "]


def obey(app: Host, text: str) -> None:
    """Do a command, or say why it cannot be done."""
    command = commands.parse(text)
    verb, argument = command.verb, command.argument
    if command.problem:
        app.say(command.problem, "warning")
    elif command.words is not None:
        words = commands.filled(command, _current(app))
        app.open("output", words, commands.SHELL[verb].changes(words))
    elif verb in commands.TABS:
        _tab(app, verb, argument)
    elif verb in _DIRECT and (argument or not commands.OWN[verb]):
        _DIRECT[verb](app, argument)
    elif verb == "launch":
        app.open("launch", argument)
    elif verb == "wandb-sync":
        _wandb(app, argument)
    elif verb:
        _press(app, commands.KEY_OF.get(verb, verb))


def _theme(app: Host, name: str) -> None:
    if name not in theme.NAMES:
        app.say(f"there is no theme {name!r}: {', '.join(theme.NAMES)}", "warning")
        return
    app.theme = theme.NAMES[name]
    app.say(theme.remember(name), "warning")


def _at_cluster(app: Host, name: str, do: Callable[[str], None]) -> None:
    if name in [cluster.name for cluster in app.pictures.clusters]:
        do(name)
    else:
        app.say(f"there is no cluster {name!r}: :clusters lists them", "warning")


def _filter(app: Host, text: str) -> None:
    """Call a saved filter, save what the list shows, or forget one."""
    order, _, name = text.rpartition(" ")
    app.go_home()
    if not isinstance(app.top, RunsScreen):
        app.say("filter is for the list of runs, and here is none", "warning")
    elif order not in ("", *ORDERS):
        app.say(f"filter {order!r}: it is :filter NAME, :filter save NAME or :filter drop NAME", "warning")
    elif order:
        app.top.filters.change(order, name)
    else:
        app.top.filters.call(name)


def _at_run(app: Host, name: str, do: Callable[[RunIdentity], None]) -> None:
    fitting = commands.resolve(name, app.pictures.names)
    if len(fitting) == 1:
        do(fitting[0])
    else:
        app.say(commands.no_run(name, fitting), "warning")


def _tab(app: Host, tab: str, name: str) -> None:
    """Open a tab of the run that is named, else of the one that is open or selected."""
    from rltui.tui.screens.run import RunScreen
    from rltui.tui.screens.run_tabs import NUMBERS

    if not name and isinstance(app.screen, RunScreen):
        app.screen.tabs.open(NUMBERS[tab])
    else:
        _at_run(app, name or _current(app)["run"], lambda run: app.open_run(run, NUMBERS[tab]))


def _wandb(app: Host, name: str) -> None:
    """Open the metrics of a run, where its key for W&B is, and press that."""
    from rltui.tui.screens.run import RunScreen

    _tab(app, "metrics", name)
    if isinstance(app.screen, RunScreen):
        # a screen that is new opens its tab first
        app.screen.call_after_refresh(app.screen.act, "wandb")


def _current(app: Host) -> dict[str, str]:
    """What the screen is about: its run, or the one that is selected, and that one's cluster, if it has a name."""
    from rltui.cluster.profile import LOCAL

    screen: CockpitScreen | None = app.top
    run = screen.target if screen is not None else None
    identity = run.identity if run is not None else screen.identity if screen is not None else None
    name = app.pictures.name(identity) if identity is not None else ""
    return {"run": name, "cluster": run.cluster if run is not None and run.cluster != LOCAL else ""}


def _question(action: Action, app: Host, name: str) -> None:
    def ask(run: RunIdentity) -> None:
        row = app.pictures.summary(run)
        state, owner = (row.state, row.owner) if row is not None else ("", "")
        context = KeyContext(readonly=app.readonly, run_state=state, owner=owner)
        if reason := next(key for key in ACT.keys if key.id == action).off(context):
            app.say(reason, "warning")
        else:
            app.ask(Ask(action, run))

    _at_run(app, name, ask)


_DIRECT: dict[str, Callable[[Host, str], None]] = {
    "open": lambda app, name: _at_run(app, name, app.open_run),
    "why": lambda app, name: _at_run(app, name, partial(app.open, "why")),
    "theme": _theme,
    "connect": lambda app, name: _at_cluster(app, name, app.controller.connect),
    "filter": _filter,
    "queue": lambda app, name: _at_cluster(app, name, partial(app.open, "queue")),
    "clusters": lambda app, _: app.open("clusters"),
    "jobs": lambda app, _: app.open("jobs"),
    "adopt": lambda app, _: app.open("jobs"),
    "ps": lambda app, _: app.go_home(),
    "attach": lambda app, name: _at_run(app, name, app.open_run),
    "quit": lambda app, _: app.leave(),
    "cancel": partial(_question, "cancel"),
    "resubmit": partial(_question, "resubmit"),
    "fix": partial(_question, "fix"),
    "auto": partial(_question, "auto"),
}
"""Verbs that need no key of the present screen."""


def _press(app: Host, verb: str) -> None:
    screen = app.screen
    if isinstance(screen, CockpitScreen) and any(key.id == verb for key in screen.KEYS.keys):
        screen.act(verb)
    else:
        app.say(f"{verb} cannot be done here: esc goes back", "warning")
