"""The key table: no key twice, every key does something, footer and help say so, and a key that is off says why."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from types import SimpleNamespace

import pytest
from textual.events import Key
from textual.keys import _character_to_key
from textual.screen import Screen

from rltui.service.cockpit import ActionPreview, Ask
from rltui.tui import keys
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.places import DIALOGS, PLACES, screen_class
from rltui.tui.screens.base import CockpitScreen
from rltui.tui.screens.help import help_lines
from rltui.tui.screens.keyed import BoxScreen, KeyedScreen
from rltui.tui.screens.pick import NodesScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.run_tabs import TABS
from rltui.tui.spans import width_of
from rltui.tui.views.bars import footer
from rltui.watch.snapshots import RunIdentity

SCREENS = {
    name: getattr(import_module(f"rltui.tui.screens.{name}"), kind) for name, kind in {**PLACES, **DIALOGS}.items()
} | {"nodes": NodesScreen}
RUN = RunIdentity("local", "run-1")
PREVIEW = ActionPreview(run=RUN, title="", consequences=(), commands=())
MADE_OF: dict[str, tuple[object, ...]] = {
    "run": (RUN, None, None),
    "why": (RUN,),
    "form": ("local/grpo-tiny", (), lambda _: None),
    "queue": ("hpc",),
    "help": (keys.dialog_keys("nothing"),),
    "output": (("list",),),
    "replay": (SimpleNamespace(identity=RUN),),
    "confirm": (Ask("cancel", RUN), PREVIEW),
    "pick": ("which", ()),
    "columns": ((),),
    "nodes": (RUN, ()),
}
"""What a screen is made of, where it is anything."""
CONTEXTS = [
    keys.KeyContext(),
    keys.KeyContext(readonly=True, run_state="running", review="ready", has_fix=True),
    keys.KeyContext(run_state="running", tab="logs", searching=True, review="ready", has_overrides=True, has_fix=True),
    keys.KeyContext(run_state="failed", review="errors"),
]


@pytest.mark.parametrize("screen", SCREENS)
def test_no_key_stands_twice_on_a_screen(screen: str) -> None:
    used = Counter(name for key in SCREENS[screen].KEYS.keys for name in key.keys)
    assert [name for name, times in used.items() if times > 1] == []


@pytest.mark.parametrize("screen", SCREENS)
def test_no_id_stands_twice_on_a_screen(screen: str) -> None:
    used = Counter(key.id for key in SCREENS[screen].KEYS.keys)
    assert [key_id for key_id, times in used.items() if times > 1] == []


@pytest.mark.parametrize("screen", SCREENS)
def test_every_key_does_something(screen: str) -> None:
    made = SCREENS[screen](*MADE_OF.get(screen, ()))
    panes = [tab.pane() for tab in TABS] if isinstance(made, RunScreen) else [made.pane]
    doers = (made, *made.parts, *panes)
    keys_of = [key.id for key in made.KEYS.keys]
    assert [key_id for key_id in keys_of if not any(hasattr(doer, f"do_{key_id}") for doer in doers)] == []


@pytest.mark.parametrize("screen", SCREENS)
def test_keys_are_found_by_name_or_character(screen: str) -> None:
    for key in SCREENS[screen].KEYS.keys:
        for name in key.keys:
            event = Key(_character_to_key(name) if len(name) == 1 else name, name if len(name) == 1 else None)
            assert SCREENS[screen].KEYS.pressed(event.key, event.character) is key
    assert SCREENS[screen].KEYS.pressed("f12", None) is None


def test_every_tab_has_its_digit() -> None:
    digits = {key.id.removeprefix("tab_"): key.keys[0] for key in RunScreen.KEYS.keys if key.id.startswith("tab_")}
    assert digits == {tab.id: str(number % 10) for number, tab in enumerate(TABS, start=1)}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("screen", SCREENS)
def test_the_footer_fits_one_line(screen: str, context: keys.KeyContext) -> None:
    hints = SCREENS[screen].KEYS.hints(context, UNICODE)
    assert len(hints) <= keys.MAX_HINTS
    for width in (10, 40, 80, 200):
        shown = footer(hints, width)
        assert width_of(shown.spans) <= width
        stays = [f" {hint.key} {hint.label}" for hint in hints if hint.stays]
        assert width < 40 or all(words in shown.plain for words in stays), "help and the way back are always named"
    assert len(footer(hints, 80).spans) >= 2 * min(len(hints), 7), "seven hints fit eighty columns"


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_the_help_has_every_key(screen: str, glyphs: object) -> None:
    page = "\n".join(line.plain for line in help_lines(SCREENS[screen].KEYS, 100, glyphs))
    for key in SCREENS[screen].KEYS.keys:
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
        ("runs", "exclude", keys.KeyContext(run_state="failed"), "none of the run's nodes is known"),
        ("run", "exclude", keys.KeyContext(run_state="failed", num_nodes=2), ""),
        ("runs", "answer", keys.KeyContext(), "no cluster waits"),
        ("runs", "next_cluster", keys.KeyContext(), "one cluster only"),
        ("why", "open", keys.KeyContext(can_open=False), "leads nowhere"),
        ("why", "fix", keys.KeyContext(readonly=True), "read-only"),
        ("confirm", "yes", keys.KeyContext(problem="errors stand in the way"), "errors"),
        ("pick", "mark", keys.KeyContext(), "one line"),
        ("run", "wall", keys.KeyContext(tab="logs"), "for the GPUs"),
        ("runs", "resubmit", keys.KeyContext(run_state="lost"), ""),
        ("runs", "launch", keys.KeyContext(readonly=True), ""),
        ("launch", "submit", keys.KeyContext(review="ready", readonly=True), "read-only"),
        ("launch", "submit", keys.KeyContext(review="pending"), "still checking"),
        ("launch", "submit", keys.KeyContext(review="errors"), "errors"),
        ("launch", "submit", keys.KeyContext(review="none"), "no preset"),
        ("launch", "submit", keys.KeyContext(review="ready"), ""),
        ("run", "follow", keys.KeyContext(tab="metrics"), "for the log"),
        ("run", "next_hit", keys.KeyContext(tab="logs"), "/ starts"),
    ],
)
def test_a_key_that_is_off_says_why(screen: str, key_id: str, context: keys.KeyContext, reason: str) -> None:
    said = SCREENS[screen].KEYS.find(key_id).off(context)
    assert reason in said
    assert bool(reason) == bool(said)


def test_every_place_can_be_opened() -> None:
    assert {place: screen_class(place) for place in PLACES} == {place: SCREENS[place] for place in PLACES}


@pytest.mark.parametrize("screen", SCREENS)
def test_a_screen_is_made_of_parts_and_has_no_parents_of_its_own(screen: str) -> None:
    kind = SCREENS[screen]
    parents = set(kind.__mro__[1 : kind.__mro__.index(Screen)])
    assert parents <= {KeyedScreen, CockpitScreen, BoxScreen, *SCREENS.values()}
