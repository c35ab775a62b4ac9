"""The tab of a plug-in: the lines that its function gives for a picture of the run."""

from __future__ import annotations

from collections.abc import Sequence

from rltui.plugins import Plugin, PluginError
from rltui.tui.glyphs import Glyphs
from rltui.tui.spans import Line, clean, clip, line, rule, wrapped
from rltui.watch.snapshots import RunSnapshot

MOST_LINES = 10_000


def head(plugin: Plugin, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:  # noqa: ARG001 a view
    """The plugin that draws the tab, its package and version."""
    return [rule([(plugin.name, "title")], [(f"{plugin.package} {plugin.version}", "dim")], width, glyphs)]


def lines(plugin: Plugin, snapshot: RunSnapshot, width: int, glyphs: Glyphs) -> Sequence[Line]:
    """What it shows; what it raises is shown in its place, and harms nothing."""
    try:
        told = [str(text) for text in plugin.load()(snapshot)][:MOST_LINES]
    except PluginError as error:
        return wrapped(error.in_one_line, width, " ", "attention")
    except Exception as error:  # noqa: BLE001 another package's code: it must not end the cockpit
        return wrapped(plugin.failed(error).in_one_line, width, " ", "attention")
    return [line((clip(f" {clean(text)}", width, glyphs.ellipsis), "text")) for text in told]
