"""The list of runs, driven as a user would: moving, opening, filtering, cancelling, resubmitting, copying, leaving."""

from __future__ import annotations

import msgspec
import pytest
from canned_runs import HOSTILE_RUNS, RUNS, summary
from fake_cockpit import FakeCockpit
from pictures import (
    cockpit,
    confirmation,
    enter,
    flushed,
    notices,
    press,
    screen_lines,
    screen_text,
    settled,
    until,
    until_text,
)
from textual import events

from rltui.errors import RltuiError
from rltui.tui.screens.help import HelpScreen
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.runs import RunsScreen
from rltui.watch.snapshots import RunIdentity

FIRST, SECOND = RUNS[0].run_id, RUNS[1].run_id


async def test_the_selected_run_is_read_and_shown() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await until_text(pilot, "ada-laptop")
        await press(pilot, "j")
        await until_text(pilot, "nid010702")
        assert f"─ {SECOND} " in screen_text(pilot)
        assert [call for call in fake.calls if call[0] == "watch"][-1] == ("watch", SECOND)


async def test_moving_fast_reads_only_where_the_cursor_rests() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await settled(pilot)
        fake.calls.clear()
        await enter(pilot, "jjjjjjkGgj")
        await settled(pilot)
        assert {call[1] for call in fake.calls if call[0] == "watch"} <= {FIRST, SECOND}


async def test_the_cursor_stays_on_its_run_while_rows_come_and_go() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "j")
        fake.all_runs = (summary("grpo-new-1", "queued", "queued", 1), *RUNS[1:])
        pilot.app.controller.refresh()
        await until_text(pilot, "grpo-new-1")
        assert pilot.app.screen.table.selected.run_id == SECOND
        fake.all_runs = RUNS[3:]
        pilot.app.controller.refresh()
        await until(pilot, lambda: len(pilot.app.screen.table.rows) == 8, "the shorter list")
        assert pilot.app.screen.table.selected.run_id == RUNS[4].run_id


async def test_enter_opens_and_q_comes_back() -> None:
    async with cockpit() as pilot:
        await press(pilot, "j", "enter")
        assert isinstance(pilot.app.screen, RunScreen)
        assert pilot.app.screen.identity.run_id == SECOND
        await press(pilot, "q")
        assert isinstance(pilot.app.screen, RunsScreen)
        assert pilot.app.screen.table.selected.run_id == SECOND


async def test_a_click_selects_and_a_double_click_opens() -> None:
    async with cockpit() as pilot:
        await pilot.click("#table", offset=(5, 3))
        assert pilot.app.screen.table.selected.run_id == RUNS[2].run_id
        await pilot.click("#table", offset=(5, 2), times=2)
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        assert pilot.app.screen.identity.run_id == SECOND


async def test_filter_narrows_while_typing_and_escape_clears() -> None:
    async with cockpit() as pilot:
        await press(pilot, "/", *"7b")
        await until_text(pilot, "3 of 11 /7b")
        await press(pilot, "enter", "j")
        assert pilot.app.screen.table.selected.run_id == RUNS[2].run_id
        await press(pilot, "/", *" zzz", "enter")
        await until_text(pilot, "no run matches 7b zzz")
        await press(pilot, "escape")
        await until(pilot, lambda: len(pilot.app.screen.table.rows) == len(RUNS), "all runs")


async def test_no_runs_teach_the_next_key_and_it_works() -> None:
    async with cockpit(FakeCockpit(all_runs=()), size=(80, 24)) as pilot:
        await until_text(pilot, "press n to choose a preset and launch it")
        await press(pilot, "enter")
        assert "no run is selected" in notices(pilot)
        await press(pilot, "n")
        assert isinstance(pilot.app.screen, LaunchScreen)


async def test_cancel_is_previewed_and_no_is_the_default() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        for answer in ("enter", "escape", "n", "q"):
            await press(pilot, "c")
            await confirmation(pilot)
            text = screen_text(pilot)
            assert f"Cancel {FIRST}?" in text
            assert "12 steps will be lost" in text
            assert "kill -TERM 20951" in text
            await press(pilot, answer)
            assert isinstance(pilot.app.screen, RunsScreen)
        assert not [call for call in fake.calls if call[0] == "cancel"]


async def test_cancel_acts_on_the_run_it_was_asked_for_even_if_the_list_moves() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "c")
        await confirmation(pilot)
        fake.all_runs = (summary("grpo-new-1", "running", "training", 1), *RUNS)
        pilot.app.controller.refresh()
        await until(pilot, lambda: len(pilot.app.pictures.names) == len(RUNS) + 1, "the new run")
        await press(pilot, "y")
        await until(pilot, lambda: ("cancel", FIRST) in fake.calls, "the cancellation")
        await until(pilot, lambda: "asked to save and end" in notices(pilot), "what was done")
        assert [call for call in fake.calls if call[0] == "cancel"] == [("cancel", FIRST)]


async def test_resubmit_goes_on_from_the_checkpoint() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, "r")
        await confirmation(pilot)
        assert "It is still alive: it is cancelled first." in screen_text(pilot)
        await press(pilot, "n", *"jjjjj", "r")
        await confirmation(pilot)
        assert "Attempt 3 starts from checkpoint step 400" in screen_text(pilot)
        await press(pilot, "y")
        await until(pilot, lambda: ("resubmit", RUNS[5].run_id) in fake.calls, "the resubmission")


async def test_readonly_changes_nothing_and_says_so() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, readonly=True) as pilot:
        await until_text(pilot, "read-only")
        await enter(pilot, f"cr:cancel {FIRST}\n")
        assert isinstance(pilot.app.screen, RunsScreen)
        assert "this cockpit is read-only" in notices(pilot)
        await press(pilot, "n")
        await settled(pilot)
        await press(pilot, "escape", "n", "enter")
        assert "this cockpit is read-only" in notices(pilot)
    assert {call[0] for call in fake.calls} <= {"runs", "watch", "presets", "review", "outlook"}


@pytest.mark.parametrize("failing", ["preview_cancel", "cancel"])
async def test_a_failing_action_says_what_and_what_next(failing: str) -> None:
    fake = FakeCockpit(failing={failing}, error=RltuiError("the supervisor is gone", "rltui ps shows what is left"))
    async with cockpit(fake) as pilot:
        await press(pilot, "c")
        if failing == "cancel":
            await confirmation(pilot)
            await press(pilot, "y")
        await until(pilot, lambda: "the supervisor is gone" in notices(pilot), "the error")
        assert "rltui ps shows what is left" in notices(pilot)
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_sources_that_fail_say_so_once_and_come_back() -> None:
    fake = FakeCockpit(failing={"runs"})
    async with cockpit(fake) as pilot:
        await until(pilot, lambda: "isambard does not answer" in notices(pilot), "the error")
        assert "try: ssh isambard true" in notices(pilot)
        fake.failing = {"watch"}
        pilot.app.controller.refresh()
        await until_text(pilot, FIRST)
        fake.failing = set()
        pilot.app.controller.refresh()
        await until_text(pilot, "ada-laptop")
        assert len([1 for notice in pilot.app._notifications if "isambard" in notice.message]) == 1


async def test_a_fault_in_a_service_is_shown_and_polling_goes_on() -> None:
    fake = FakeCockpit(failing={"watch"}, error=ZeroDivisionError("division by zero"))
    async with cockpit(fake) as pilot:
        await until(pilot, lambda: "ZeroDivisionError: division by zero" in notices(pilot), "the fault")
        fake.failing = set()
        pilot.app.controller.refresh()
        await until_text(pilot, "ada-laptop")


async def test_the_problem_of_a_cluster_stands_in_the_header() -> None:
    class Away(FakeCockpit):
        def runs(self):
            return msgspec.structs.replace(super().runs(), problem="isambard is away")

    async with cockpit(Away(), size=(100, 24)) as pilot:
        await until_text(pilot, "▲ isambard is away")
        assert FIRST in screen_text(pilot)


async def test_pause_stops_drawing_and_goes_on_with_the_newest() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, size=(100, 30)) as pilot:
        await settled(pilot)
        await press(pilot, "p")
        await until_text(pilot, "‖ paused")
        fake.all_runs = (summary("grpo-new-1", "queued", "queued", 1), *RUNS)
        pilot.app.controller.refresh()
        await until(pilot, lambda: len(pilot.app.pictures.names) == len(RUNS) + 1, "the new run")
        await flushed(pilot)
        assert "grpo-new-1" not in screen_text(pilot)
        await press(pilot, "p")
        await until_text(pilot, "grpo-new-1")


async def test_copy_puts_the_run_id_on_the_clipboard() -> None:
    async with cockpit() as pilot:
        await press(pilot, "j", "y")
        assert pilot.app.clipboard == SECOND
        assert f"copied the run id: {SECOND}" in notices(pilot)


async def test_help_lists_the_keys_of_the_screen_and_closes() -> None:
    async with cockpit(size=(100, 40)) as pilot:
        await press(pilot, "?")
        await until_text(pilot, "Choose a preset")
        assert isinstance(pilot.app.screen, HelpScreen)
        await press(pilot, "j", "G", "g", "escape")
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_q_quits_at_the_root_and_says_that_runs_go_on() -> None:
    async with cockpit() as pilot:
        await press(pilot, "q")
        assert pilot.app.return_code == 0
        assert [str(words) for words in pilot.app._exit_renderables] == ["6 runs go on without the cockpit."]


async def test_ctrl_c_twice_quits_and_once_does_not() -> None:
    now = [100.0]
    async with cockpit(clock=lambda: now[0]) as pilot:
        await press(pilot, "ctrl+c")
        assert "ctrl+c again within 2 s quits; runs go on" in notices(pilot)
        now[0] += 2.5
        await press(pilot, "ctrl+c")
        assert pilot.app.return_code is None
        now[0] += 1.0
        await press(pilot, "ctrl+c")
        assert pilot.app.return_code == 0


@pytest.mark.parametrize("keys", [["n"], ["enter"], ["question_mark"], ["c"], ["slash"]])
async def test_ctrl_c_twice_quits_from_anywhere(keys: list[str]) -> None:
    async with cockpit() as pilot:
        await press(pilot, *keys)
        await settled(pilot)
        await press(pilot, "ctrl+c", "ctrl+c")
        assert pilot.app.return_code == 0


async def test_commands_do_what_the_keys_do() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await press(pilot, ":")
        await enter(pilot, "op grpo-7b-r2\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        assert pilot.app.screen.identity.run_id == RUNS[5].run_id
        await press(pilot, "q", ":")
        await enter(pilot, "cancel grpo-tiny-4\n")
        await confirmation(pilot)
        assert pilot.app.screen.preview.run.run_id == FIRST
        await press(pilot, "n", ":")
        await enter(pilot, "theme light\n")
        assert pilot.app.theme == "rltui-light"
        await press(pilot, ":")
        await enter(pilot, "nonsense\n")
        assert "no command 'nonsense'" in notices(pilot)
        await press(pilot, ":")
        await enter(pilot, "open nobody\n")
        assert "no run is named 'nobody'" in notices(pilot)
        await press(pilot, ":")
        await enter(pilot, "quit\n")
        assert pilot.app.return_code == 0


async def test_commands_complete_with_tab() -> None:
    async with cockpit() as pilot:
        await press(pilot, ":")
        await enter(pilot, "op\tgrpo-w\t")
        assert pilot.app.screen.prompt.text == "open grpo-weird-0000"
        await press(pilot, "escape")
        assert pilot.app.screen.prompt is None


async def test_keys_typed_behind_a_prompt_are_for_the_prompt_and_behind_its_answer_are_not() -> None:
    async with cockpit() as pilot:
        await enter(pilot, "/q7b\njy")  # q would quit, the j behind the answer moves
        await until_text(pilot, "0 of 11 /q7b")
        assert pilot.app.return_code is None
    async with cockpit() as pilot:
        await enter(pilot, "/7b\njy")
        await until(pilot, lambda: pilot.app.clipboard == RUNS[2].run_id, "the copy of the second run that fits")


async def test_pasted_text_is_no_keys() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await settled(pilot)
        pilot.app.post_message(events.Paste("cyqn\n"))
        await settled(pilot)
        assert pilot.app.return_code is None
        assert isinstance(pilot.app.screen, RunsScreen)
        await press(pilot, "/")
        await until(pilot, lambda: pilot.app.focused is not None, "the prompt")
        pilot.app.post_message(events.Paste("7b"))
        await until_text(pilot, "3 of 11 /7b")
    assert {call[0] for call in fake.calls} <= {"runs", "watch"}


async def test_hostile_names_are_text() -> None:
    async with cockpit(FakeCockpit(all_runs=HOSTILE_RUNS), size=(120, 30)) as pilot:
        await until_text(pilot, "[red]markup[/red]-[@click=app.quit]x[/]")
        said = ""
        for _ in HOSTILE_RUNS:
            await press(pilot, "y", "j")
            said += notices(pilot)
        await settled(pilot)
        text = screen_text(pilot)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "日本語" in text
        assert pilot.app.return_code is None
        assert "copied the run id: [red]markup" in said


async def test_ascii_only_draws_nothing_else() -> None:
    async with cockpit(ascii_only=True, size=(120, 40)) as pilot:
        await until_text(pilot, "ada-laptop")
        assert screen_text(pilot).isascii()
        assert "> training" in screen_text(pilot)
        await press(pilot, "c")
        await confirmation(pilot)
        await settled(pilot)
        assert screen_text(pilot).isascii()


@pytest.mark.parametrize(("height", "detail", "log"), [(15, False, False), (16, True, False), (21, True, True)])
async def test_what_a_low_terminal_leaves_out(height: int, detail: bool, log: bool) -> None:
    async with cockpit(size=(80, height)) as pilot:
        await settled(pilot)
        text = screen_text(pilot)
        assert (f"─ {FIRST} " in text) == detail
        assert ("─ log " in text) == log


async def test_the_list_beside_the_detail_from_160_columns() -> None:
    async with cockpit(size=(160, 45)) as pilot:
        await until_text(pilot, "ada-laptop")
        first = screen_lines(pilot)[1]
        assert first.startswith(" RUN")
        assert f"─ {FIRST} · local" in first


async def test_the_cursor_is_on_the_run_that_one_comes_back_from() -> None:
    async with cockpit() as pilot:
        await until_text(pilot, "ada-laptop")
        await enter(pilot, f":open {SECOND}\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        await press(pilot, "q")
        assert pilot.app.screen.table.selected.run_id == SECOND


async def test_the_cursor_goes_to_a_launched_run_once_it_is_in_the_list_unless_it_was_moved() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await until_text(pilot, "ada-laptop")
        table = pilot.app.screen.table
        for run_id, keys, expected in (("new-1", (), "new-1"), ("new-2", ("j",), SECOND)):
            await press(pilot, "g")
            table.choose(RunIdentity("local", run_id))
            await press(pilot, *keys)
            fake.all_runs = (*RUNS, summary(run_id, "queued", "submitted", 1))
            pilot.app.controller.refresh()
            await until(pilot, lambda run_id=run_id: any(run.run_id == run_id for run in table.rows), "the run")
            assert table.selected.run_id == expected
