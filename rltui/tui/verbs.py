"""Carries out what is typed behind ``:``, as the key of the same name would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui import commands, keys, theme
from rltui.tui.messages import Ask
from rltui.tui.screens.base import CockpitScreen

if TYPE_CHECKING:
    from collections.abc import Callable

    from rltui.tui.app import CockpitApp
    from rltui.tui.messages import Action


def complete(app: CockpitApp, text: str) -> str:
    """Complete a command with the runs, clusters and themes there are."""
    clusters = [cluster.name for cluster in app.pictures.clusters]
    return commands.complete(text, {"run": app.pictures.ids, "cluster": clusters, "theme": list(theme.NAMES)})


def obey(app: CockpitApp, text: str) -> None:
    """Do a command, or say why it cannot be done."""
    command = commands.parse(text)
    verb, argument = command.verb, command.argument
    if command.problem:
        app.say(command.problem, "warning")
    elif verb in commands.TABS:
        _tab(app, verb, argument)
    elif verb in _DIRECT and (argument or verb in ("clusters", "quit")):
        _DIRECT[verb](app, argument)
    elif verb == "launch" and not app.readonly:
        app.open_launch(argument)
    elif verb:
        _press(app, commands.KEY_OF.get(verb, verb))


def _theme(app: CockpitApp, name: str) -> None:
    app.theme = theme.NAMES.get(name, app.theme)


def _connect(app: CockpitApp, name: str) -> None:
    if name in [cluster.name for cluster in app.pictures.clusters]:
        app.controller.connect(name)
    else:
        app.say(f"there is no cluster {name!r}: :clusters lists them", "warning")


def _why(app: CockpitApp, name: str) -> None:
    run_id = commands.resolve(name, app.pictures.ids)
    if run_id:
        app.open_why(run_id)
    else:
        app.say(no_run(name), "warning")


def _tab(app: CockpitApp, tab: str, name: str) -> None:
    """Open a tab of the run that is named, else of the one that is open or selected."""
    from rltui.tui.screens.acting import ActingScreen
    from rltui.tui.screens.run import RunScreen
    from rltui.tui.screens.run_tabs import NUMBERS

    if not name and isinstance(app.top, RunScreen):
        app.top.open_tab(NUMBERS[tab])
        return
    if not name and isinstance(app.top, ActingScreen) and app.top.target is not None:
        name = app.top.target.run_id
    run_id = commands.resolve(name, app.pictures.ids) if name else ""
    if run_id:
        app.open_run(run_id, NUMBERS[tab])
    else:
        app.say(no_run(name), "warning")


def _question(app: CockpitApp, action: Action, name: str) -> None:
    run_id = commands.resolve(name, app.pictures.ids)
    run = app.pictures.summary(run_id)
    context = keys.KeyContext(readonly=app.readonly, run_state=run.state if run is not None else "")
    reason = keys.find("runs", action).off(context) if run is not None else no_run(name)
    if reason:
        app.say(reason, "warning")
    else:
        app.questions.ask(Ask(action, run_id))


_DIRECT: dict[str, Callable[[CockpitApp, str], None]] = {
    "open": lambda app, name: app.open_run(name),
    "why": _why,
    "theme": _theme,
    "connect": _connect,
    "clusters": lambda app, _: app.open_clusters(),
    "quit": lambda app, _: app.leave(),
    "cancel": lambda app, name: _question(app, "cancel", name),
    "resubmit": lambda app, name: _question(app, "resubmit", name),
}
"""Verbs that need no key of the present screen."""


def no_run(name: str) -> str:
    """What to say where no run, or more than one, fits a name."""
    return f"no run is named {name!r}, or several begin so\npress / to look for it in the list"


def _press(app: CockpitApp, verb: str) -> None:
    screen = app.screen
    if isinstance(screen, CockpitScreen) and any(key.id == verb for key in keys.keys_of(screen.SCOPE)):
        screen.act(verb)
    else:
        app.say(f"{verb} cannot be done here: esc goes back", "warning")
