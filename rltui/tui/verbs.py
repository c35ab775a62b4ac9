"""Carries out what is typed behind ``:``, as the key of the same name would."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rltui.tui import commands, keys, theme
from rltui.tui.screens.base import CockpitScreen

if TYPE_CHECKING:
    from rltui.tui.app import CockpitApp
    from rltui.tui.messages import Action


def complete(app: CockpitApp, text: str) -> str:
    """Complete a command with the runs and themes there are."""
    return commands.complete(text, {"run": app.pictures.ids, "theme": list(theme.NAMES)})


def obey(app: CockpitApp, text: str) -> None:
    """Do a command, or say why it cannot be done."""
    command = commands.parse(text)
    verb, argument = command.verb, command.argument
    if command.problem:
        app.say(command.problem, "warning")
    elif verb == "open":
        app.open_run(argument)
    elif verb == "theme":
        app.theme = theme.NAMES.get(argument, app.theme)
    elif verb == "quit":
        app.leave()
    elif verb == "launch" and not app.readonly:
        app.open_launch(argument)
    elif (verb == "cancel" or verb == "resubmit") and argument:
        _question(app, "cancel" if verb == "cancel" else "resubmit", argument)
    elif verb:
        _press(app, verb)


def _question(app: CockpitApp, action: Action, name: str) -> None:
    run_id = commands.resolve(name, app.pictures.ids)
    run = app.pictures.summary(run_id)
    context = keys.KeyContext(readonly=app.readonly, run_state=run.state if run is not None else "")
    reason = keys.find("runs", action).off(context) if run is not None else no_run(name)
    if reason:
        app.say(reason, "warning")
    else:
        app.question(action, run_id)


def no_run(name: str) -> str:
    """What to say where no run, or more than one, fits a name."""
    return f"no run is named {name!r}, or several begin so\npress / to look for it in the list"


def _press(app: CockpitApp, verb: str) -> None:
    screen = app.screen
    if isinstance(screen, CockpitScreen) and any(key.id == verb for key in keys.keys_of(screen.SCOPE)):
        screen.act(verb)
    else:
        app.say(f"{verb} cannot be done here: esc goes back", "warning")
