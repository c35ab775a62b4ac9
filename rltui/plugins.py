"""Plug-ins: verbs and tabs that other packages bring by entry points (docs/plugins.md). Nothing is looked for before.

An entry point is read when an unknown verb is named, or when the first run is opened: a start without plug-ins costs
nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from rltui.errors import RltuiError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

VERBS, PANELS = "rltui.verbs", "rltui.panels"


class PluginError(RltuiError):
    """A plug-in cannot be loaded, or failed; rltui itself is well."""


class Plugin(NamedTuple):
    """One verb or tab of another package."""

    name: str
    group: str
    package: str
    version: str
    entry: EntryPoint

    @property
    def title(self) -> str:
        """What it is, and whose."""
        return f"{self.name} of {self.package} {self.version}"

    def load(self) -> Any:
        """The module of a verb, or the function of a panel.

        Raises:
            PluginError: It cannot be imported.
        """
        try:
            return self.entry.load()
        except Exception as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> PluginError:
        """Its own error, said to be its own."""
        return PluginError(
            f"The plug-in {self.title} failed: {type(error).__name__}: {str(error)[:300]}",
            f"Tell its authors, or take it away: pip uninstall {self.package}",
        )


@cache
def plugins(group: str) -> tuple[Plugin, ...]:
    """The plug-ins of a group that are installed, by name; of several with one name, the first."""
    from importlib.metadata import entry_points

    found: dict[str, Plugin] = {}
    for entry in entry_points(group=group):
        whose = entry.dist
        name, version = (whose.name, whose.version) if whose is not None else ("an unknown package", "")
        found.setdefault(entry.name, Plugin(entry.name, group, name, version, entry))
    return tuple(found[name] for name in sorted(found))
