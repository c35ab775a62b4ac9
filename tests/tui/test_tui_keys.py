"""The key table: no key twice, every key does something, footer and help say so, and a key that is off says why."""

from __future__ import annotations

from collections import Counter

import pytest
from textual.events import Key
from textual.keys import _character_to_key

from rltui.tui import key_table, keys
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.screens.clusters import ClustersScreen
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.help import HelpScreen, help_lines
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.pick import PickScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.run_tabs import TABS
from rltui.tui.screens.runs import RunsScreen
from rltui.tui.screens.why import WhyScreen
from rltui.tui.spans import width_of
from rltui.tui.views.bars import footer

SCREENS = {
    "runs": RunsScreen,
    "run": RunScreen,
    "launch": LaunchScreen,
    "why": WhyScreen,
    "clusters": ClustersScreen,
    "confirm": ConfirmScreen,
    "pick": PickScreen,
    "help": HelpScreen,
}
CONTEXTS = [
    keys.KeyContext(),
    keys.KeyContext(readonly=True, run_state="running", review="ready", has_fix=True),
    keys.KeyContext(run_state="running", tab="logs", searching=True, review="ready", has_overrides=True, has_fix=True),
    keys.KeyContext(run_state="failed", review="errors"),
]


@pytest.mark.parametrize("screen", keys.STACKS)
def test_no_key_stands_twice_on_a_screen(screen: keys.Scope) -> None:
    used = Counter(name for key in keys.keys_of(screen) for name in key.keys)
    assert [name for name, times in used.items() if times > 1] == []


@pytest.mark.parametrize("screen", keys.STACKS)
def test_no_id_stands_twice_on_a_screen(screen: keys.Scope) -> None:
    used = Counter(key.id for key in keys.keys_of(screen))
    assert [key_id for key_id, times in used.items() if times > 1] == []


@pytest.mark.parametrize("screen", [screen for screen in keys.STACKS if screen != "help"])
def test_every_key_does_something(screen: keys.Scope) -> None:
    missing = [key.id for key in keys.keys_of(screen) if not hasattr(SCREENS[screen], f"do_{key.id}")]
    assert missing == []


@pytest.mark.parametrize("screen", keys.STACKS)
def test_keys_are_found_by_name_or_character(screen: keys.Scope) -> None:
    for key in keys.keys_of(screen):
        for name in key.keys:
            event = Key(_character_to_key(name) if len(name) == 1 else name, name if len(name) == 1 else None)
            assert keys.pressed(screen, event.key, event.character) is key
    assert keys.pressed(screen, "f12", None) is None


def test_every_tab_has_its_digit() -> None:
    digits = {key.id.removeprefix("tab_"): key.keys[0] for key in key_table.KEYS if key.id.startswith("tab_")}
    assert digits == {tab.id: str(number) for number, tab in enumerate(TABS, start=1)}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("screen", keys.STACKS)
def test_the_footer_fits_one_line(screen: keys.Scope, context: keys.KeyContext) -> None:
    hints = keys.hints(screen, context, UNICODE)
    assert len(hints) <= keys.MAX_HINTS
    for width in (10, 40, 80, 200):
        assert width_of(footer(hints, width).spans) <= width
    assert len(footer(hints, 80).spans) >= 2 * min(len(hints), 7), "seven hints fit eighty columns"


@pytest.mark.parametrize("screen", keys.STACKS)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_help_has_every_key(screen: keys.Scope, glyphs: object) -> None:
    page = "\n".join(line.plain for line in help_lines(screen, 100, glyphs))
    for key in keys.keys_of(screen):
        assert key.help.split()[0] in page
        assert all(keys.shown(name, glyphs) in page for name in key.keys)


@pytest.mark.parametrize(
    ("screen", "key_id", "context", "reason"),
    [
        ("runs", "open", keys.KeyContext(), "no run is selected"),
        ("runs", "cancel", keys.KeyContext(run_state="failed"), "failed already"),
        ("runs", "cancel", keys.KeyContext(run_state="running"), ""),
        ("runs", "cancel", keys.KeyContext(run_state="running", readonly=True), "read-only"),
        ("runs", "resubmit", keys.KeyContext(run_state="running"), ""),
        ("runs", "resubmit", keys.KeyContext(), "no run is selected"),
        ("runs", "exclude", keys.KeyContext(run_state="failed"), "nodes are not known"),
        ("run", "exclude", keys.KeyContext(run_state="failed", num_nodes=2), ""),
        ("runs", "answer", keys.KeyContext(), "no cluster waits"),
        ("runs", "next_cluster", keys.KeyContext(), "one cluster only"),
        ("why", "open", keys.KeyContext(can_open=False), "leads nowhere"),
        ("why", "fix", keys.KeyContext(), "no remedy"),
        ("confirm", "yes", keys.KeyContext(problem="errors stand in the way"), "errors"),
        ("pick", "mark", keys.KeyContext(), "one line"),
        ("run", "wall", keys.KeyContext(tab="logs"), "for the GPUs"),
        ("runs", "resubmit", keys.KeyContext(run_state="lost"), ""),
        ("runs", "launch", keys.KeyContext(readonly=True), "read-only"),
        ("launch", "submit", keys.KeyContext(review="pending"), "still checking"),
        ("launch", "submit", keys.KeyContext(review="errors"), "errors"),
        ("launch", "submit", keys.KeyContext(review="none"), "no preset"),
        ("launch", "submit", keys.KeyContext(review="ready"), ""),
        ("run", "follow", keys.KeyContext(tab="metrics"), "for the log"),
        ("run", "next_hit", keys.KeyContext(tab="logs"), "/ starts"),
    ],
)
def test_a_key_that_is_off_says_why(screen: keys.Scope, key_id: str, context: keys.KeyContext, reason: str) -> None:
    said = keys.find(screen, key_id).off(context)
    assert reason in said
    assert bool(reason) == bool(said)
