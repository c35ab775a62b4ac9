"""A signal is chosen, shown and confirmed; a terminal that cannot be lent to a shell is said to be one."""

from __future__ import annotations

from canned_runs import RUNS
from fake_cockpit import FakeCockpit
from pictures import cockpit, confirmation, notices, press, until, until_text


async def test_a_signal_is_chosen_shown_and_confirmed() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, open_run=RUNS[0].run_id) as pilot:
        await until_text(pilot, "Learner 2/2")
        await press(pilot, "x")
        await until_text(pilot, "Send a signal")
        await press(pilot, "escape", "K")
        await until_text(pilot, "save nothing")
        await press(pilot, "j", "j", "j", "enter")
        await confirmation(pilot)
        await press(pilot, "e")
        assert "there is nothing to edit in it" in notices(pilot)
        assert ("send_signal", RUNS[0].run_id, "USR1") not in fake.calls
        await press(pilot, "y")
        await until(pilot, lambda: ("send_signal", RUNS[0].run_id, "USR1") in fake.calls)
        await until(pilot, lambda: "SIGUSR1 was sent" in notices(pilot))


async def test_readonly_opens_no_shell_and_sends_no_signal() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, open_run=RUNS[0].run_id, readonly=True) as pilot:
        await until_text(pilot, "Learner 2/2")
        await press(pilot, "$", "K")
        assert "read-only" in notices(pilot)
        assert not {"node_shell", "preview_signal"} & {call[0] for call in fake.calls}


async def test_a_terminal_that_cannot_be_lent_names_the_way() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, open_run=RUNS[0].run_id) as pilot:
        await until_text(pilot, "Learner 2/2")
        await press(pilot, "$")
        await until(pilot, lambda: f"rltui shell {RUNS[0].run_id}" in notices(pilot))
