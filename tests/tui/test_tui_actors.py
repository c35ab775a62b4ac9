"""The tab of actors: a cursor, orders, the log of one, what its process is doing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from canned_runs import RUNS, snapshot
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_text, until, until_text

from rltui.service.shell import ShellCommand
from rltui.tui.glyphs import UNICODE
from rltui.tui.screens.output import OutputScreen
from rltui.tui.views import actors
from rltui.tui.widgets.actors_pane import ActorsPane
from rltui.watch.node_samples import ProcessSample
from rltui.watch.owners import Owners
from rltui.watch.snapshots import LogFile

if TYPE_CHECKING:
    import pytest

PICTURE = snapshot(RUNS[1])


def names(order: actors.Order) -> list[str]:
    return [one.name for one in actors.arranged(CHANGED, order)]


def _changed() -> tuple[object, ...]:
    found = {one.name: one for one in PICTURE.actors}
    found["engine 3"] = msgspec.structs.replace(found["engine 3"], restarts=2)
    found["engine 5"] = msgspec.structs.replace(found["engine 5"], state="DEAD", death_cause="out of memory")
    return tuple(found.values())


CHANGED = msgspec.structs.replace(PICTURE, actors=_changed())


def test_actors_are_put_in_order_of_what_is_wrong_memory_and_node() -> None:
    assert names("")[:2] == ["learner 0", "learner 1"]
    assert names("worst first")[:2] == ["engine 5", "engine 3"]
    most = names("most memory")
    assert most[0] == "engine 3", "76.2 GiB on its card"
    assert most[-1] == "status"
    nodes = [one.node for one in actors.arranged(CHANGED, "by node")]
    assert nodes == sorted(nodes)


def test_an_actor_s_own_log_is_ray_s_of_its_process_on_its_node() -> None:
    learner = PICTURE.actors[0]
    pid = learner.pid
    logs = (
        LogFile(name="out.log", size=900),
        LogFile(name=f"ray-logs/worker-ab-01000000-{pid}.out", size=10),
        LogFile(name=f"ray-logs/worker-ab-01000000-{pid}.err", size=70),
        LogFile(name=f"ray-logs-n9/worker-cd-01000000-{pid}.err", size=700, node="n9"),
        LogFile(name=f"ray-logs/worker-ef-01000000-1{pid}.err", size=800),
    )
    assert actors.own_log(learner, logs) == f"ray-logs/worker-ab-01000000-{pid}.err"
    assert actors.own_log(learner, logs[:1]) == ""
    assert actors.own_log(msgspec.structs.replace(learner, pid=0), logs) == ""


def test_a_card_on_which_an_actor_s_child_computes_is_the_actor_s() -> None:
    """As of vLLM: the actor's process starts the engine's core, which starts a worker a card."""
    engine = next(one for one in PICTURE.actors if one.name == "engine 2")
    [host] = [one for one in PICTURE.hosts if one.host == engine.node]
    cards = tuple(
        msgspec.structs.replace(gpu, pids=(9000 + gpu.index,)) if gpu.index >= 2 else gpu for gpu in host.gpus
    )
    started = (
        ProcessSample(pid=8000, title="VLLM::EngineCore", parent=engine.pid),
        ProcessSample(pid=9002, title="VLLM::Worker_TP0", parent=8000),
        ProcessSample(pid=9003, title="VLLM::Worker_TP1", parent=8000),
    )
    host = msgspec.structs.replace(host, gpus=cards, processes=(*host.processes, *started))
    held = actors.held_by({host.host: host}, engine)
    assert held.gpus == (2, 3)
    assert held.gpu_gib == sum(gpu.memory_used_gib for gpu in cards[2:])
    assert Owners(PICTURE.actors).of(host, (9003,)) == ("E", "engine 2", 9003)
    endless = msgspec.structs.replace(host, processes=(ProcessSample(pid=9002, title="x", parent=9002),))
    assert actors.held_by({host.host: endless}, engine).gpus == ()


def test_an_actor_whose_process_is_stopped_is_not_said_to_be_alive() -> None:
    engine = next(one for one in PICTURE.actors if one.name == "engine 2")
    [host] = [one for one in PICTURE.hosts if one.host == engine.node]
    others = tuple(one for one in host.processes if one.pid != engine.pid)
    for state, word in (("stopped", "▲ stopped"), ("disk wait", "▶ alive"), ("", "▶ alive")):
        own = ProcessSample(pid=engine.pid, title="ray::EngineActor", state=state, state_s=9.0)
        held = actors.held_by({host.host: msgspec.structs.replace(host, processes=(*others, own))}, engine)
        for width in (80, 120):
            assert word in actors.actor_row(engine, width, UNICODE, held=held).plain
            assert "stopped" not in actors.actor_row(engine, width, UNICODE, ended=True, held=held).plain


def test_a_line_of_why_one_died_belongs_to_its_actor() -> None:
    rows = actors.tab(CHANGED, 120, UNICODE, "worst first")
    assert [(row.actor.name, row.is_first) for row in rows[:3]] == [
        ("engine 5", True),
        ("engine 5", False),
        ("engine 3", True),
    ]


async def test_the_cursor_stays_on_its_actor_and_passes_over_why_one_died() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        pilot.app.open_run(RUNS[1].identity, 2)
        await until_text(pilot, "RSS GIB")
        screen = pilot.app.screen
        pane = screen.mover()
        assert isinstance(pane, ActorsPane)
        await press(pilot, "O")
        await until_text(pilot, "worst first")
        pane.show(CHANGED)
        assert pane.actor.name == "learner 0", "where it was"
        await press(pilot, "g")
        assert pane.actor.name == "engine 5"
        await press(pilot, "j")
        assert pane.actor.name == "engine 3"
        await press(pilot, "k")
        assert pane.actor.name == "engine 5"
        await press(pilot, "O", "O", "O")
        assert pane.order == ""


async def test_enter_opens_the_log_of_an_actor() -> None:
    async with cockpit(fake := FakeCockpit(), size=(120, 40)) as pilot:
        pilot.app.open_run(RUNS[1].identity, 2)
        await until_text(pilot, "RSS GIB")
        await press(pilot, "j", "enter")
        await until(pilot, lambda: pilot.app.screen.tabs.current == "logs", "the log")
        pid = PICTURE.actors[1].pid
        assert pilot.app.screen.tabs.log_pane.sought.text == rf"re:\(.*\bpid={pid}\b"
        assert f"Ray's log of pid {pid} is not here" in notices(pilot)
        own = LogFile(name=f"ray-logs/worker-ab-01000000-{pid}.err", size=70)
        await press(pilot, "3")
        pilot.app.screen.snapshot = msgspec.structs.replace(PICTURE, logs=(own,))
        await press(pilot, "enter")
        await until(pilot, lambda: ("watch", RUNS[1].run_id, own.name) in fake.calls, "the log of its process")
        assert not pilot.app.screen.tabs.log_pane.sought.pattern


async def test_the_stack_of_one_process_is_asked_for_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cockpit(size=(120, 40)) as pilot:
        ran: list[tuple[str, ...]] = []
        monkeypatch.setattr(pilot.app.controller, "shell", lambda words, *_: ran.append(words) or ShellCommand(words))
        pilot.app.open_run(RUNS[1].identity, 1)
        await enter(pilot, "T")
        await until(pilot, lambda: "for the actors: 3 opens them" in notices(pilot), "where the key belongs")
        await enter(pilot, "3T")
        await until(pilot, lambda: isinstance(pilot.app.screen, OutputScreen), "what was said")
        assert ran == [("actors", RUNS[1].run_id, "--stack", PICTURE.actors[0].actor_id)]
        await press(pilot, "q")
        await until_text(pilot, "learner 0")
    async with cockpit(size=(120, 40), readonly=True) as pilot:
        pilot.app.open_run(RUNS[1].identity, 2)
        await enter(pilot, "T")
        await until(pilot, lambda: "read-only" in notices(pilot), "that it asks no process")
        assert "Ray" not in screen_text(pilot)
