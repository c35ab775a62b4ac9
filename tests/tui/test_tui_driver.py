"""The thread that reads the terminal: it sleeps where nobody types, and ends at once all the same."""

from __future__ import annotations

import os
import selectors
import threading
import time
from collections.abc import Iterator

import pytest
from fake_cockpit import FakeCockpit
from textual.drivers import linux_driver

from rltui.tui import driver
from rltui.tui.app import CockpitApp
from rltui.tui.driver import PatientDriver, PatientSelector
from waiting import longest_s


class Ends:
    """Two pipes: what is typed, and what ends the sleep."""

    def __init__(self) -> None:
        self.typed, self.keyboard = os.pipe()
        self.heard, self.wake = os.pipe()
        self.selector = PatientSelector(self.heard)
        self.selector.register(self.typed, selectors.EVENT_READ)

    def later(self, act: object) -> threading.Timer:
        timer = threading.Timer(0.3, act)  # type: ignore[arg-type]
        timer.start()
        return timer


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ends]:
    monkeypatch.setattr(driver, "QUIET_S", -1.0)
    monkeypatch.setattr(driver, "MOST_S", 2 * longest_s())
    ends = Ends()
    yield ends
    ends.selector.close()
    for one in (ends.typed, ends.keyboard, ends.heard):
        os.close(one)


def test_it_sleeps_until_somebody_types(ends: Ends) -> None:
    began = time.monotonic()
    timer = ends.later(lambda: os.write(ends.keyboard, b"j"))
    [(key, _)] = ends.selector.select(0.01)
    assert key.fd == ends.typed
    assert time.monotonic() - began > 0.2
    timer.join()
    os.close(ends.wake)


def test_while_somebody_types_it_looks_as_often_as_textual(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "QUIET_S", 2 * longest_s())
    asked: list[float | None] = []
    monkeypatch.setattr(selectors.SelectSelector, "select", lambda _, timeout: asked.append(timeout) or [])
    assert ends.selector.select(0.01) == []
    assert asked == [0.01]
    os.close(ends.wake)


def test_closing_the_pipe_ends_the_sleep_and_every_later_one(ends: Ends) -> None:
    began = time.monotonic()
    timer = ends.later(lambda: os.close(ends.wake))
    assert ends.selector.select(0.01) == []
    assert ends.selector.select(0.01) == []
    ends.selector.unregister(ends.typed)
    assert ends.selector.select(0.01) == []
    assert time.monotonic() - began < longest_s()
    timer.join()


def test_the_cockpit_reads_the_terminal_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEXTUAL_DRIVER", raising=False)
    assert CockpitApp(FakeCockpit()).driver_class is PatientDriver
    assert hasattr(linux_driver, "selectors"), "where Textual looks for its selector"
