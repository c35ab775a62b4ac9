"""The tab of GPUs: nodes with something wrong first, and cards that hold memory and compute nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from canned_runs import NOW, RUNS, gpu_hosts, snapshot
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, notices, press, screen_text, until, until_text
from test_tui_run import opened

from rltui.service.run_picture import stragglers_of
from rltui.tui.glyphs import UNICODE
from rltui.tui.screens.run import RunScreen
from rltui.tui.spans import width_of
from rltui.tui.views import gpus, hosts, overview
from rltui.tui.views.gpu_map import MapTable
from rltui.tui.views.gpus import ChosenTable
from rltui.watch.node_samples import ProcessSample
from rltui.watch.snapshots import RunIdentity

if TYPE_CHECKING:
    from rltui.watch.snapshots import RunSnapshot


def test_nodes_with_something_wrong_come_first_and_a_card_that_only_holds_memory_is_named() -> None:
    replace = msgspec.structs.replace
    fine, slow, held, silent = gpu_hosts(4)
    histories = [list(each) for each in slow.gpu_history]
    histories[2] = [1.0] * gpus.RECENT_SAMPLES
    slow = replace(slow, gpu_history=tuple(tuple(each) for each in histories))
    held = replace(held, gpus=(replace(held.gpus[0], held_back=("heat",)), *held.gpus[1:]))
    silent = replace(silent, taken_at=NOW - 600)
    picture = replace(snapshot(RUNS[1]), hosts=(fine, slow, held, silent))
    assert gpus.worst_first(picture) == (silent, held, slow, fine)
    table = gpus.GpuTable(picture, 120, UNICODE, wall=False)
    rows = [table.row(index).plain for index in range(table.count)]
    assert [row.split()[1] for row in rows if "  idle" in row] == ["GPU2"]
    assert not gpus.is_idle(replace(slow, gpu_history=((1.0,),) * 4), 2), "too few samples to say"


def test_processes_of_roles_and_large_ones_stand_before_those_of_ray_itself() -> None:
    [host] = gpu_hosts(1)
    said = [
        ("ray-dashboard-DataHead-0", 0.1, ""),
        ("python -m trainers.grpo", 0.5, ""),
        ("ray::Learner.train", 0.3, ""),
    ]
    said += [("python score.py", 0.1, "stopped")]
    processes = tuple(
        ProcessSample(pid=100 + place, title=title, resident_gib=gib, state=state)
        for place, (title, gib, state) in enumerate(said)
    )
    picture = msgspec.structs.replace(
        snapshot(RUNS[1]), hosts=(msgspec.structs.replace(host, gpus=(), processes=processes),), actors=()
    )
    table = gpus.GpuTable(picture, 120, UNICODE, wall=False)
    rows = [table.row(index).plain for index in range(1, table.count)]
    assert [next(pid for pid in range(100, 104) if f" {pid} " in row) for row in rows] == [103, 102, 101, 100]


def test_the_overview_tells_once_of_a_stopped_process_and_gives_its_place_to_others() -> None:
    replace = msgspec.structs.replace
    titles = ("ray::Learner", "ray::EngineActor.generate", "raylet", "python score.py")
    states = ("stopped", "", "", "disk wait")
    processes = tuple(
        ProcessSample(pid=100 + place, title=title, cpu_percent=10.0 * place, state=state)
        for place, (title, state) in enumerate(zip(titles, states, strict=True))
    )
    words = {"kind": "process", "host": "n1", "time": NOW - 30, "text": "ray::Learner (pid 100): stopped on n1"}
    host = replace(gpu_hosts(1)[0], host="n1", gpus=(), processes=processes)
    untold = replace(snapshot(RUNS[1]), hosts=(host,), actors=(), events=(words,))
    symptom = "Learner stopped (pid 100 on n1)"
    told = replace(untold, summary=replace(untold.summary, symptom=symptom))

    def first(picture: RunSnapshot) -> list[str]:
        section = hosts.host_section(picture, UNICODE, rank=1, processes=2)
        return [next(name for name in titles if name in row.plain) for row in section.body(100, 3)[1:]]

    assert first(untold) == ["python score.py", "ray::Learner"]
    assert first(told) == ["python score.py", "raylet"]
    assert symptom in "\n".join(row.plain for row in overview.overview(told, 80, 24, UNICODE, ()))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_the_run_names_its_job(size: tuple[int, int]) -> None:
    async with cockpit(size=size) as pilot:
        await opened(pilot, RUNS[1])
        await until_text(pilot, "stage training · job 4711198")


async def test_gpus_are_shown_worst_first_on_a_key() -> None:
    async with cockpit() as pilot:
        pilot.app.open_run(RUNS[1].identity, 1)
        await until_text(pilot, "v wall")
        assert "worst first" not in screen_text(pilot)
        await press(pilot, "O")
        await until_text(pilot, "worst first")
        await press(pilot, "O")
        await until(pilot, lambda: "worst first" not in screen_text(pilot), "the order of names")
        await press(pilot, "3", "v")
        await until(pilot, lambda: "for the GPUs: 2 opens them" in notices(pilot), "where the key belongs")


def test_a_role_s_row_has_what_its_cards_held_against_what_was_estimated() -> None:
    table = ChosenTable(snapshot(RUNS[1]), 120, UNICODE, "", by_role=True)
    rows = [table.row(index).plain.rstrip() for index in range(table.count)]
    learner, engine = (row for row in rows if "estimated" in row)
    assert learner.startswith(" L learner  3 on 2 nodes  median ")
    assert "held 66.1 of 57.2 GiB estimated  at backward; nid010701 GPU0" in learner
    assert [role for text, role in table.row(rows.index(learner)).spans if "held" in text] == ["attention"]
    assert [role for text, role in table.row(rows.index(engine)).spans if "held" in text] == ["text"]
    free = next(index for index, row in enumerate(rows) if "no role of the run" in row)
    assert "GPU1" in rows[free + 1]
    assert table.node(free + 1) == "nid010702"
    assert all("MHz" in row for row in rows if " W  " in row)


def test_clocks_errors_of_memory_and_full_disks_are_said_where_there_is_room() -> None:
    replace = msgspec.structs.replace
    [host] = gpu_hosts(1)
    host = replace(host, gpus=(replace(host.gpus[0], ecc_uncorrected=2), *host.gpus[1:]), disk_used_gib=870.0)
    picture = replace(snapshot(RUNS[1]), hosts=(host,))
    for width, node, card in (
        (160, "shm 12/240  disk 870/880", "1755 MHz  ECC 2"),
        (120, "shm 12/240  disk 870/880", "1755 MHz  2 ECC errors"),
        (80, "disk 99%", "2 ECC errors"),
    ):
        table = gpus.GpuTable(picture, width, UNICODE, wall=False)
        assert node in table.row(0).plain, width
        assert card in table.row(1).plain, width
        assert tuple(role for text, role in table.row(0).spans if "870/880" in text or "99%" in text) == ("attention",)


def test_a_straggler_is_named_where_it_is_by_the_rule_of_the_verdict() -> None:
    replace = msgspec.structs.replace
    hosts = [
        replace(host, gpus=tuple(replace(gpu, recent_w=612.0 if gpu.pids else 90.0) for gpu in host.gpus))
        for host in gpu_hosts(4)
    ]
    assert stragglers_of(replace(snapshot(replace(RUNS[1], nodes=4)), hosts=tuple(hosts))) == frozenset()
    slow = hosts[2].gpus
    hosts[2] = replace(hosts[2], gpus=(slow[0], replace(slow[1], recent_w=300.0), *slow[2:]))
    engine = hosts[3].gpus
    hosts[3] = replace(hosts[3], gpus=(*engine[:3], replace(engine[3], recent_w=200.0)))
    picture = replace(snapshot(replace(RUNS[1], nodes=4)), hosts=tuple(hosts))
    found = stragglers_of(picture)
    assert found == {("nid010703", 1)}, "engines have loads of their own"
    hosts[2] = replace(hosts[2], taken_at=hosts[2].taken_at - 90.0)
    assert not stragglers_of(replace(picture, hosts=tuple(hosts))), "what a silent node said is of the past"
    picture = replace(picture, stragglers=found)
    assert gpus.worst_first(picture)[0].host == "nid010703"
    table = gpus.GpuTable(picture, 120, UNICODE, wall=False)
    rows = [table.row(index).plain for index in range(table.count)]
    assert [row.split()[1] for row in rows if "  straggler" in row] == ["GPU1"]
    assert ChosenTable(picture, 120, UNICODE, "straggler", by_role=False).num_cards == 1
    assert "worst GPU1 learner" in MapTable(picture, 120, UNICODE).under(2).plain
    assert "  straggler" in MapTable(picture, 120, UNICODE).under(2).plain


async def test_cards_are_shown_by_role_and_filtered_by_anything() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        pilot.app.open_run(RUNS[1].identity, 1)
        await until_text(pilot, "v wall")
        await press(pilot, "O", "O")
        await until_text(pilot, "by role")
        await until_text(pilot, "GiB estimated")
        await press(pilot, "/")
        await enter(pilot, "learner nid010702")
        await until_text(pilot, "/learner nid010702 1")
        text = screen_text(pilot)
        assert "GPU3" not in text
        assert "1 on 1 node " in text
        await enter(pilot, "\n")
        await press(pilot, "escape")
        await until_text(pilot, "GPU3")
        await press(pilot, "/")
        await enter(pilot, "nobody\n")
        await until_text(pilot, "no card has 'nobody'")


def _many(nodes: int) -> RunSnapshot:
    """A run on many nodes: one card of the third is held back, the fifth is silent, the sixth has errors."""
    replace = msgspec.structs.replace
    hosts = list(gpu_hosts(nodes))
    hosts[2] = replace(hosts[2], gpus=(replace(hosts[2].gpus[0], held_back=("heat",)), *hosts[2].gpus[1:]))
    hosts[4] = replace(hosts[4], taken_at=NOW - 600)
    hosts[5] = replace(hosts[5], gpus=(*hosts[5].gpus[:3], replace(hosts[5].gpus[3], ecc_uncorrected=2)))
    hosts[6] = replace(hosts[6], gpus=tuple(replace(gpu, pids=()) for gpu in hosts[6].gpus))
    run = replace(RUNS[1], nodes=nodes)
    return replace(snapshot(run), hosts=tuple(hosts))


def test_the_map_has_a_mark_for_each_node_and_says_what_its_worst_card_does() -> None:
    table = MapTable(_many(1000), 80, UNICODE)
    assert (table.columns, table.count) == (78, 13)
    marks = table.row(0, cursor=3)
    assert marks.plain[1:8] == "▇▇▇▇▲▲·"
    assert len(marks.plain) == 79
    roles = [role for text, role in marks.spans for _ in text][1:8]
    assert roles == ["bar", "bar", "attention", "match", "bad", "bad", "dim"]
    assert len(table.row(12, cursor=3).plain.strip()) == 1000 - 12 * 78
    assert table.under(0).plain == " nid010701  worst GPU0 learner  84%  61/80 GiB  ⏎ its cards"
    assert "worst GPU0 learner" in table.under(2).plain
    assert "held back: heat" in table.under(2).plain
    assert "silent for 10m" in table.under(4).plain
    assert "worst GPU3 engine" in table.under(5).plain
    assert "2 ECC errors" in table.under(5).plain
    assert "no process on any" in table.under(6).plain
    assert all(width_of(MapTable(_many(8), 40, UNICODE).under(index).spans) <= 40 for index in range(8))


async def test_the_cursor_of_the_map_names_a_node_and_leads_to_its_cards_and_back() -> None:
    picture, fake = _many(1000), FakeCockpit()
    fake.watch = lambda *_: picture
    async with cockpit(fake, size=(80, 24)) as pilot:
        pilot.app.open_run(RUNS[1].identity, 1)
        await until_text(pilot, "v cards")
        screen = pilot.app.screen
        await until_text(pilot, "worst GPU0 learner")
        assert "nid010701" in screen_text(pilot)
        await press(pilot, "right", "l", "j", "left", "k", "j", "down")
        assert screen.tabs.node == f"nid{10701 + 1 + 2 * 78:06d}"
        await until_text(pilot, f"{screen.tabs.node}  worst")
        assert screen.tabs.current == "gpus", "the arrows stay on the map"
        await press(pilot, "G")
        assert screen.tabs.node == "nid011700"
        await press(pilot, "enter")
        await until_text(pilot, "v wall")
        assert "nid011700" in screen_text(pilot)
        assert "GPU3" in screen_text(pilot).split("nid011700")[1], "its cards below it"
        await press(pilot, "right")
        await until(pilot, lambda: screen.tabs.current == "actors", "the next tab")
        await press(pilot, "left", "escape")
        await until_text(pilot, "nid011700  worst")
        await press(pilot, "g")
        assert screen.tabs.node == "nid010701"
        await press(pilot, "v")
        await until_text(pilot, "v wall")
        await press(pilot, "enter")
        await until(pilot, lambda: "v shows it" in notices(pilot), "where the key belongs")
        await press(pilot, "v")
        await until_text(pilot, "v map")


async def test_a_run_without_nodes_is_not_said_to_be_read_for_ever() -> None:
    class Bare(FakeCockpit):
        def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
            picture = super().watch(run, log)
            self.gate.wait(60.0)
            return msgspec.structs.replace(picture, hosts=(), actors=())

    fake = Bare()
    async with cockpit(fake, open_run=RUNS[0].run_id) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        await press(pilot, "2")
        await until_text(pilot, "reading …")
        fake.gate.set()
        await until_text(pilot, "no sampler has spoken yet")
