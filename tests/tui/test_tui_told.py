"""The terminal is told when a run ends, by a bell or by words that are nothing but words; people are told beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from canned_runs import NOW, RUNS, summary
from fake_cockpit import FakeCockpit
from msgspec import structs
from pictures import cockpit, flushed, notices, until

from rltui.errors import ClusterError
from rltui.tui.notices import signal as terminal_signal
from rltui.watch.snapshots import EndSnapshot

if TYPE_CHECKING:
    from textual.pilot import Pilot

HOSTILE = "grpo'\"; \x1b]52;c;cm0=\x07\x1b[2J\x9c\u202e\n4;1;100 \x1b\\"
LIVE = summary(f"live-{HOSTILE}", "running", "training", 60.0, step=3, steps=10)
ENDED = structs.replace(LIVE, state="failed", end=EndSnapshot(outcome="failed", reason=f"{HOSTILE}\nmore", at=NOW))


def test_the_sequences() -> None:
    none: dict[str, str] = {}
    assert terminal_signal("none", "a", "b", none) == ""
    assert terminal_signal("bell", "a", "b", none) == "\a"
    assert terminal_signal("osc9", "run: failed", "why\nmore", none) == "\x1b]9;rltui – run: failed: why\a\a"
    assert terminal_signal("osc777", "run: failed", "why", none) == "\x1b]777;notify;rltui – run: failed;why\a\a"
    tmux = terminal_signal("osc9", "run: failed", "", {"TMUX": "/tmp/x"})
    assert tmux == "\x1bPtmux;\x1b\x1b]9;rltui – run: failed\a\x1b\\\a"


@pytest.mark.parametrize("multiplexer", [{}, {"TMUX": "/tmp/x"}])
@pytest.mark.parametrize(("kind", "separators"), [("osc9", 1), ("osc777", 3)])
def test_a_hostile_name_ends_no_sequence_and_begins_none(
    kind: str, separators: int, multiplexer: dict[str, str]
) -> None:
    said = terminal_signal(kind, HOSTILE, HOSTILE, multiplexer)
    own = terminal_signal(kind, "a", "b", multiplexer)
    assert [char for char in said if not char.isprintable()] == [char for char in own if not char.isprintable()]
    assert said.count(";") == own.count(";") == separators + bool(multiplexer)
    assert len(terminal_signal(kind, "x" * 9999, "y" * 9999, multiplexer)) < 500


def heard(pilot: Pilot[int]) -> list[str]:
    """What the application writes to its terminal from now on."""
    said: list[str] = []
    driver = pilot.app._driver
    assert driver is not None
    driver.write = said.append  # type: ignore[method-assign]
    return said


async def end_a_run(pilot: Pilot[int], fake: FakeCockpit, by: str) -> None:
    """Let the run of ``fake`` end, and wait until the cockpit has drawn that."""
    fake.all_runs = (ENDED, *RUNS)
    pilot.app.controller.refresh()
    await until(pilot, lambda: any(run.state == "failed" for run in pilot.app.pictures.runs.runs[:1]), by)
    await flushed(pilot)


@pytest.mark.parametrize(("signal", "times"), [("bell", 1), ("none", 0)])
async def test_an_end_rings_once_and_is_told_once(signal: str, times: int) -> None:
    fake = FakeCockpit(all_runs=(LIVE, *RUNS), signal=signal)
    async with cockpit(fake) as pilot:
        said = heard(pilot)
        await end_a_run(pilot, fake, "the end")
        await until(pilot, lambda: ("tell", "ended", LIVE.run_id) in fake.calls)
        looks = fake.calls.count(("runs",))
        pilot.app.controller.refresh()
        await until(pilot, lambda: fake.calls.count(("runs",)) > looks + 1, "another look")
        await flushed(pilot)
        assert "".join(said).count("\a") == times
        assert [call for call in fake.calls if call[0] == "tell"] == [("tell", "ended", LIVE.run_id)]


async def test_words_reach_the_terminal_harmless() -> None:
    fake = FakeCockpit(all_runs=(LIVE, *RUNS), signal="osc9")
    async with cockpit(fake) as pilot:
        said = heard(pilot)
        await end_a_run(pilot, fake, "the end")
        await until(pilot, lambda: bool(said))
        assert said[0].startswith("\x1b]9;rltui – live-grpo")
        assert said[0].count("\x1b") == 1
        assert "]52" not in "".join(said)


async def test_a_cockpit_that_only_shows_tells_nobody_but_its_terminal() -> None:
    fake = FakeCockpit(all_runs=(LIVE, *RUNS))
    async with cockpit(fake, readonly=True) as pilot:
        said = heard(pilot)
        await end_a_run(pilot, fake, "the end")
        await until(pilot, lambda: "\a" in said)
        assert not pilot.app.controller._tellings.busy
        assert not [call for call in fake.calls if call[0] == "tell"]


async def test_who_could_not_be_told_is_said() -> None:
    fake = FakeCockpit(all_runs=(LIVE, *RUNS), failing={"tell"}, error=ClusterError("no mail today"))
    async with cockpit(fake) as pilot:
        await end_a_run(pilot, fake, "the end")
        await until(pilot, lambda: "no mail today" in notices(pilot))
