"""Numbers at the ends of what a float holds, letters of two cells, consoles with ASCII only, keys of two scopes."""

from __future__ import annotations

import math
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from canned_runs import RUNS, snapshot
from fake_cockpit import FakeCockpit
from msgspec import structs
from pictures import cockpit, confirmation, press, until

from rltui.threads import RequestThread
from rltui.tui import braille, formats, keys, own_keys
from rltui.tui.controller import Controller
from rltui.tui.glyphs import ASCII, UNICODE, to_ascii
from rltui.tui.pictures import KEPT_RUNS, Pictures
from rltui.tui.screens.run import RunScreen
from rltui.tui.spans import cell_width, wrapped
from rltui.tui.views import charts, history
from rltui.tui.views.chart_view import ChartView
from rltui.tui.widgets.bars import TabBar
from rltui.watch.snapshots import RunIdentity
from waiting import eventually

if TYPE_CHECKING:
    from rltui.service.cockpit import WhyReport
    from rltui.watch.snapshots import RunSnapshot

EXTREME = [(-1e308, 1e308), (1e308, 1e308), (-1.7e308, -1.7e308), (5e-324, 0.0), (1e-320, 2e-320), (math.inf, 1.0)]


@pytest.mark.parametrize("values", EXTREME, ids=str)
@pytest.mark.parametrize("log_y", [False, True])
def test_any_numbers_are_drawn(values: tuple[float, float], log_y: bool) -> None:
    low, high = braille.bounds(values)
    assert low < high
    assert math.isfinite(high - low)
    picture = snapshot(RUNS[0])
    metrics = structs.replace(picture.metrics, steps=(1, 2), series={"loss": values}, latest={})
    page = charts.chart_page(structs.replace(picture, metrics=metrics), ChartView(log_y=log_y), None)
    assert len(charts.chart(page, "loss", 40, 6, UNICODE)) == 6
    assert len(braille.sparkline(values, 8, UNICODE, low=-1e308)) == 8


@pytest.mark.parametrize(("at", "words"), [(1e18, "–"), (math.inf, "–"), (math.nan, "–"), (0.0, "–")])
def test_a_time_that_no_clock_shows_is_none(at: float, words: str) -> None:
    assert formats.moment(at) == words


@pytest.mark.parametrize("text", ["漢字" * 40, "漢字 " * 40, "/路径/" * 30, "a" + "漢" * 99], ids=len)
def test_letters_of_two_cells_are_wrapped_by_cells_and_none_is_lost(text: str) -> None:
    rows = [row.plain for row in wrapped(text, 40, "  ", "text")]
    assert max(map(cell_width, rows)) <= 40
    assert "".join("".join(rows).split()) == "".join(text.split())


def test_ascii_has_a_word_or_sign_for_what_is_drawn(picture: RunSnapshot) -> None:
    assert [keys.shown(key, ASCII) for key in ("left", "right")] == ["left", "right"]
    assert [keys.shown(key, UNICODE) for key in ("left", "right")] == ["←", "→"]
    rows = "\n".join(to_ascii(row.plain) for row in history.tab(picture, 80, ASCII))
    assert "held" in rows
    assert "?" not in rows + to_ascii("±12 % of 70 °C, −3 ██░░ ▶")


@pytest.fixture
def picture() -> RunSnapshot:
    return snapshot(RUNS[0])


def test_a_tab_of_a_plug_in_is_named_with_its_key_and_opened_by_a_click() -> None:
    opened: list[int] = []
    bar = TabBar([f"tab{number}" for number in range(11)], opened.append)
    assert "".join(text for text, _ in bar._cells("tight", 0)).split()[-1] == keys.shown(
        RunScreen.KEYS.find("plugin_tab").keys[0], UNICODE
    )
    bar.tab_at = lambda _: 10  # type: ignore[method-assign]
    bar.on_click(cast("Any", SimpleNamespace(x=0)))
    assert opened == [10]


def test_a_key_that_a_screens_own_word_gives_is_not_given_to_what_stands_for_all_screens() -> None:
    own: own_keys.OwnKeys = {"everywhere": {"help": ("f1",)}, "run": {"shell": ("f1",)}}
    table, said = own_keys.with_own_keys("run", RunScreen.KEYS, own)
    assert (table.find("shell").keys, table.find("help").keys) == (("f1",), ())
    assert said == ("run: f1 is given to shell and to help; shell keeps it",)


def test_a_request_that_raises_is_told_and_what_waits_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(str(args.exc_value)))
    done: list[int] = []
    thread = RequestThread("test-thread", newest_only=False)
    thread.ask(lambda: done.append(1 // 0))
    thread.ask(lambda: done.append(1))
    eventually(lambda: not thread.busy, "the end of the thread")
    assert (told, done) == (["integer division or modulo by zero"], [1])


def test_what_waits_is_replaced_by_what_is_of_its_kind() -> None:
    done: list[str] = []
    gate = threading.Event()
    thread = RequestThread("test-thread", newest_only=True)
    thread.ask(lambda: (gate.wait(60.0), None)[1])
    for word in ("sample 1", "settings", "sample 2"):
        thread.ask(lambda word=word: done.append(word), kind=word.split()[0])  # type: ignore[misc]
    gate.set()
    eventually(lambda: not thread.busy, "the end of the thread")
    assert done == ["settings", "sample 2"]


def test_the_diagnosis_that_was_read_again_is_kept() -> None:
    def report(number: int) -> WhyReport:
        return cast("WhyReport", SimpleNamespace(run=RunIdentity("", str(number))))

    pictures = Pictures(lambda: 0.0)
    for number in (*range(KEPT_RUNS), 0, KEPT_RUNS):
        pictures.take_why(report(number))
    assert tuple(pictures.why(RunIdentity("", number)) is None for number in "01") == (False, True)


def test_a_cluster_that_waits_for_its_turn_is_not_asked_twice() -> None:
    gates = {"one": threading.Event(), "two": threading.Event()}
    asked: list[str] = []

    def connect(cluster: str, _: object) -> str:
        asked.append(cluster)
        gates[cluster].wait(60.0)
        return f"{cluster} answers"

    controller = Controller(cast("Any", SimpleNamespace(connect=connect)), lambda _: None)
    controller.connect("one")
    eventually(lambda: asked == ["one"], "the first one")
    controller.connect("two")
    gates["one"].set()
    eventually(lambda: asked == ["one", "two"], "the second one")
    controller.connect("two")
    gates["two"].set()
    eventually(lambda: not controller._doors.busy, "the end")
    assert asked == ["one", "two"]


async def test_a_fix_that_was_confirmed_is_done_also_where_a_signal_ends_the_cockpit() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "f")
        await confirmation(pilot)
        await press(pilot, "y")
        pilot.app.exit(return_code=128 + signal.SIGTERM)
        await until(pilot, lambda: pilot.app.return_code is not None, "the end")
    eventually(lambda: any(call[0] == "resubmit" for call in fake.calls), "the fix")
