"""The tab of GPUs: nodes with something wrong first, and cards that hold memory and compute nothing."""

from __future__ import annotations

import msgspec
from canned_runs import NOW, RUNS, gpu_hosts, snapshot
from pictures import cockpit, enter, notices, press, screen_text, until, until_text

from rltui.tui.glyphs import UNICODE
from rltui.tui.views import gpus
from rltui.tui.views.gpu_roles import ChosenTable


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


async def test_gpus_are_shown_worst_first_on_a_key() -> None:
    async with cockpit() as pilot:
        pilot.app.open_run(RUNS[1].run_id, 1)
        await until_text(pilot, "v wall")
        assert "worst first" not in screen_text(pilot)
        await press(pilot, "O")
        await until_text(pilot, "worst first")
        await press(pilot, "O")
        await until(pilot, lambda: "worst first" not in screen_text(pilot), "the order of names")
        await press(pilot, "3", "O")
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


async def test_cards_are_shown_by_role_and_filtered_by_anything() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        pilot.app.open_run(RUNS[1].run_id, 1)
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
