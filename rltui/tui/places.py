"""The screens that can be opened: a new one is its file and a line here. Each is imported when first opened."""

from __future__ import annotations

from importlib import import_module

from textual.screen import Screen

from rltui.tui.keys import KeyTable

PLACES: dict[str, str] = {
    "runs": "RunsScreen",
    "run": "RunScreen",
    "launch": "LaunchScreen",
    "why": "WhyScreen",
    "form": "FormScreen",
    "clusters": "ClustersScreen",
    "jobs": "JobsScreen",
    "queue": "QueueScreen",
    "help": "HelpScreen",
    "output": "OutputScreen",
    "replay": "ReplayScreen",
}
"""Module below ``rltui.tui.screens`` → the class of its screen."""

DIALOGS = {"confirm": "ConfirmScreen", "pick": "PickScreen", "columns": "ColumnsScreen"}
"""The same of screens that only answer."""


def screen_class(place: str) -> type[Screen[None]]:
    """The class of a screen."""
    found: type[Screen[None]] = getattr(import_module(f"rltui.tui.screens.{place}"), PLACES[place])
    return found


def key_tables() -> dict[str, KeyTable]:
    """The keys of every screen, as they are where the user has none of their own."""
    return {
        name: getattr(import_module(f"rltui.tui.screens.{name}"), kind).KEYS
        for name, kind in {**PLACES, **DIALOGS}.items()
    }
