"""The queue of a cluster on its screen: what is free, whose places, hostile names, and looks only while it is open."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from canned_queue import HOSTILE, MINE, QUEUE, running, waiting
from canned_runs import NOW
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_lines, screen_text, settled, until, until_text

from rltui.service.cluster_queue import ClusterQueue
from rltui.tui.screens import queue as screen
from rltui.tui.screens.clusters import ClustersScreen
from rltui.tui.screens.queue import QueueScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.runs import RunsScreen

if TYPE_CHECKING:
    import pytest
    from textual.pilot import Pilot


async def test_the_queue_opens_from_the_run_that_waits_in_it() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await enter(pilot, "j\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        await press(pilot, "Q")
        await until_text(pilot, "[5 waiting]")
        assert ("queue", "isambard") in fake.calls
        await press(pilot, "q")
        assert isinstance(pilot.app.screen, RunScreen)


async def test_what_is_free_who_waits_and_where_you_stand() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "[5 waiting]  3 running   4 nodes")
        text = screen_text(pilot)
        assert ("queue", "isambard") in fake.calls
        assert "11 of 20 GPUs free   h100 8/12  a100 3/8" in text, "a drained node's GPUs are not free"
        assert "you #3  12s ago" in text
        assert "   #3 4712003    you         8  ~3h00" in text
        await press(pilot, "v")
        assert "[3 running]" in screen_text(pilot)
        await press(pilot, "v")
        assert "1 drained: Xid 79" in screen_text(pilot)
        await press(pilot, "enter", "y")
        assert "no run of yours" in notices(pilot)
        await press(pilot, "v", "m")
        assert [job.job_id for job in pilot.app.screen.pane.items] == ["4712003"]


async def test_partitions_are_looked_at_one_by_one() -> None:
    async with cockpit() as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "[5 waiting]")
        await press(pilot, "]")
        assert "[1 waiting]  0 running   1 node " in screen_text(pilot)
        assert "debug only" in screen_text(pilot)
        await press(pilot, "]", "]")
        assert "[5 waiting]" in screen_text(pilot)
        await press(pilot, "[")
        assert "gpu only" in screen_text(pilot)


async def test_enter_opens_the_run_whose_job_it_is() -> None:
    async with cockpit() as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "[5 waiting]")
        await press(pilot, "v", "j", "enter")
        assert isinstance(pilot.app.screen, RunScreen)
        assert pilot.app.screen.identity.run_id == MINE.run_id


async def test_hostile_names_are_only_text() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "mallory")
        text = screen_text(pilot)
        assert "[bold]evil[/]abc" in text
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert HOSTILE not in text
        assert all(len(line) == 120 for line in screen_lines(pilot))


async def ten_refreshes(pilot: Pilot[int], fake: FakeCockpit) -> None:
    """Let more time go by than lies between two looks: ten lists of runs are asked for, one after the other."""
    for _ in range(10):
        before = sum(call[0] == "runs" for call in fake.calls)
        pilot.app.controller.refresh()
        await until(pilot, lambda n=before: sum(call[0] == "runs" for call in fake.calls) > n, "the next list")
        await pilot.pause(screen.LOOK_S / 4)


async def test_it_is_asked_for_only_while_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "LOOK_S", 0.02)
    fake = FakeCockpit()

    def asked() -> int:
        return sum(call[0] == "queue" for call in fake.calls)

    async with cockpit(fake) as pilot:
        await settled(pilot)
        assert not asked()
        await enter(pilot, "C")
        assert isinstance(pilot.app.screen, ClustersScreen)
        await enter(pilot, "Q")
        assert isinstance(pilot.app.screen, QueueScreen)
        await until(pilot, lambda: asked() > 2, "more looks")
        await press(pilot, "?")
        await settled(pilot)
        before = asked()
        await until(pilot, lambda: not pilot.app.controller._queues.busy, "the end of the last look")
        await ten_refreshes(pilot, fake)
        assert asked() == before, "nobody sees it behind the help"
        await press(pilot, "escape", "u", "q", "q")
        assert isinstance(pilot.app.screen, RunsScreen)
        await until(pilot, lambda: any("again" in call for call in fake.calls), "the look at once")
        await until(pilot, lambda: not pilot.app.controller._queues.busy, "the end of the last look")
        before = asked()
        await ten_refreshes(pilot, fake)
        assert asked() == before


async def test_a_cluster_that_does_not_answer_says_so_and_an_old_picture_keeps_its_age() -> None:
    away = ClusterQueue(cluster="isambard", problem="slurmctld does not answer")
    fake = FakeCockpit(cluster_queue=away)
    async with cockpit(fake) as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "slurmctld does not answer")
        fake.cluster_queue = msgspec.structs.replace(QUEUE, problem="slurmctld does not answer", taken_at=NOW - 600)
        await enter(pilot, "u")
        await until_text(pilot, "▲ slurmctld")
        assert "10m00 ago" in screen_text(pilot)
        assert "[5 waiting]" in screen_text(pilot)


async def test_why_it_cannot_be_asked_is_said_to_its_end() -> None:
    why = "The key of login.example.org is not known yet: ssh-ed25519 SHA256:0123456789abcdefghijklmnopqrstuvwxyz."
    async with cockpit(
        FakeCockpit(cluster_queue=ClusterQueue(cluster="isambard", problem=why)), size=(60, 20)
    ) as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "pqrstuvwxyz.")


async def test_the_command_opens_it_and_an_unknown_cluster_is_named() -> None:
    async with cockpit() as pilot:
        await enter(pilot, ":queue isam\t\n")
        assert isinstance(pilot.app.screen, QueueScreen)
        await enter(pilot, ":queue nowhere\n")
        assert "there is no cluster 'nowhere'" in notices(pilot)


async def test_ten_thousand_jobs_are_shown_as_fast_as_ten() -> None:
    jobs = tuple(waiting(number + 1, is_mine=number == 7000) for number in range(9000))
    jobs += tuple(running(number) for number in range(1000))
    fake = FakeCockpit(cluster_queue=msgspec.structs.replace(QUEUE, jobs=jobs))
    async with cockpit(fake) as pilot:
        await enter(pilot, "jQ")
        await until_text(pilot, "[9000 waiting]  1000 running")
        assert "you #7001" in screen_text(pilot)
        shown = pilot.app.screen.pane
        took = []
        for _ in range(20):
            began = time.process_time()
            shown.show(fake.cluster_queue, NOW)
            shown.build()
            took.append(time.process_time() - began)
        assert min(took) < 0.025
