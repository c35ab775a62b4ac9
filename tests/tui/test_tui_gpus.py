"""The tab of GPUs: nodes with something wrong first, and cards that hold memory and compute nothing."""

from __future__ import annotations

import msgspec
from canned_runs import NOW, RUNS, gpu_hosts, snapshot
from pictures import cockpit, notices, press, screen_text, until, until_text

from rltui.tui.glyphs import UNICODE
from rltui.tui.views import gpus


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
