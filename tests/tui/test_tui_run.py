"""An open run, driven as a user would: tabs, log, search, actions, runs that grow, end or never answer."""

from __future__ import annotations

import re

import msgspec
import pytest
from canned_runs import HOSTILE_LOG, HOSTILE_RUNS, RUNS, log_lines
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, flushed, notices, press, screen_lines, screen_text, settled, until, until_text

from rltui.tui import messages
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.run_tabs import TABS
from rltui.tui.screens.runs import RunsScreen
from rltui.watch.snapshots import RunIdentity, RunSnapshot, RunSummary

FIRST = RUNS[0].run_id


async def opened(pilot, run: RunSummary = RUNS[0], tab: str = "1") -> RunScreen:
    pilot.app.open_run(run.identity)
    await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
    await until(pilot, lambda: pilot.app.pictures.run(run.identity) is not None, "the first picture")
    await enter(pilot, tab)
    return pilot.app.screen


@pytest.mark.parametrize(
    ("digit", "words"),
    [
        ("1", "41.2%"),
        ("2", "ray::Engine.generate"),
        ("3", "Learner learner 1"),
        ("4", "inference results"),
        ("5", "reward_std"),
        ("6", "step 399 reward"),
        ("7", "checkpoint  step-000350 is complete"),
        ("8", "goodput 76%"),
    ],
)
async def test_digits_open_tabs(digit: str, words: str) -> None:
    async with cockpit() as pilot:
        await opened(pilot, tab=digit)
        await until_text(pilot, words)


async def test_brackets_go_through_all_tabs_and_around() -> None:
    async with cockpit() as pilot:
        screen = await opened(pilot)
        seen = []
        for _ in TABS:
            seen.append(screen.tabs.current)
            await enter(pilot, "]")
        assert seen == [tab.id for tab in TABS]
        assert screen.tabs.current == "overview"
        await enter(pilot, "[")
        assert screen.tabs.current == TABS[-1].id


async def test_a_click_opens_a_tab() -> None:
    async with cockpit() as pilot:
        screen = await opened(pilot)
        await pilot.click("#tabs", offset=(screen_lines(pilot)[1].index("Logs"), 0))
        await until(pilot, lambda: screen.tabs.current == "logs", "the log")


@pytest.mark.parametrize("run", RUNS, ids=[run.state for run in RUNS])
async def test_every_tab_of_a_run_in_any_state(run) -> None:
    async with cockpit() as pilot:
        await opened(pilot, run)
        for digit in "1234567890":
            await enter(pilot, digit)
            await flushed(pilot)
            assert run.run_id in screen_lines(pilot)[0]


@pytest.mark.parametrize("size", [(80, 24), (40, 10)], ids=str)
async def test_the_history_says_what_each_loss_cost(size: tuple[int, int]) -> None:
    async with cockpit(size=size) as pilot:
        screen = await opened(pilot, tab="8")
        await until_text(pilot, "goodput 76%")
        assert screen.tabs.current == "history"
        seen = screen_lines(pilot)
        for _ in range(40):
            await enter(pilot, "j")
            seen += screen_lines(pilot)
        text = "\n".join(seen)
        assert re.search(r"lost by xid_memory_ecc +2.4 h +16%", text)
        assert re.search(r"steps that count +11.1 h +76%", text)
        assert re.search(r"attempt 1 .*xid_memory_ecc", text)
        for words in ("queued 30m00", "done again 6m00", "steps 1 to 400, 50 done again", "after 7m00", "killed by"):
            assert words in text.replace("\u00a0", " "), words
        assert re.search(r"attempt 2 .*lives", text)


async def test_a_run_that_waits_has_no_history_yet() -> None:
    run = next(run for run in RUNS if run.state == "queued")
    async with cockpit() as pilot:
        await opened(pilot, run, tab="8")
        await until_text(pilot, "no attempt has begun yet")


async def test_gpus_of_two_nodes_with_their_roles() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        await opened(pilot, RUNS[1])
        await until_text(pilot, "GPUs 8 · L learner · E engine")
        rows = [row for row in screen_lines(pilot) if row.startswith(" nid0107") and "cpu" not in row]
        assert len(rows) == 2
        assert "L▕" in rows[0]
        assert "·▕" in rows[1]
        await enter(pilot, "2")
        await until_text(pilot, "612 W")


async def test_a_failed_run_says_why_at_the_top() -> None:
    async with cockpit() as pilot:
        await opened(pilot, RUNS[5])
        await until_text(pilot, "✗ failed  CUDA out of memory in engine 3 on nid010798 (exit 1)")
        await until_text(pilot, "cuda_oom_gpu_shared  ! shows evidence and remedies")


async def test_a_loading_run_shows_its_roles() -> None:
    async with cockpit() as pilot:
        await opened(pilot, RUNS[2])
        await until_text(pilot, "engine 0 loading weights")
        await until_text(pilot, "67%")


async def test_the_log_follows_until_one_scrolls_and_stays_where_one_is() -> None:
    fake = FakeCockpit(lines=log_lines(300))
    async with cockpit(fake) as pilot:
        screen = await opened(pilot, tab="6")
        await until_text(pilot, "step 299 ")
        await enter(pilot, "kkk")
        await until(pilot, lambda: not screen.tabs.log_pane.following, "the scroll")
        top = screen_lines(pilot)[3]
        fake.lines = log_lines(310)[5:]  # ten more at the end, five gone at the start
        pilot.app.controller.refresh()
        await until(pilot, lambda: "step 309 " in screen.tabs.log_pane.lines[-1], "the new tail")
        await flushed(pilot)
        assert screen_lines(pilot)[3] == top
        await enter(pilot, "F")
        await until_text(pilot, "step 309 ")
        fake.lines = log_lines(320)
        pilot.app.controller.refresh()
        await until_text(pilot, "step 319 ")


async def test_search_goes_from_hit_to_hit_and_around() -> None:
    async with cockpit(FakeCockpit(lines=log_lines(300))) as pilot:
        screen = await opened(pilot)
        await enter(pilot, "/kv cache\n")
        await until(pilot, lambda: screen.tabs.current == "logs" and screen.tabs.log_pane.hit is not None, "the hit")
        await until_text(pilot, "kv cache 3 lines")
        hits = [screen.tabs.log_pane.hit]
        for key in "nnnN":
            await enter(pilot, key)
            await flushed(pilot)
            hits.append(screen.tabs.log_pane.hit)
        assert hits[0] > hits[2] > hits[1]
        assert hits[3] == hits[0]
        assert hits[4] == hits[2]
        assert "KV cache" in screen_text(pilot)
        await enter(pilot, "y")
        await until(pilot, lambda: "preempted" in pilot.app.clipboard, "the copied line")
        await press(pilot, "escape")
        await flushed(pilot)
        assert not screen.tabs.log_pane.sought.pattern
        assert isinstance(pilot.app.screen, RunScreen)
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_scrolling_goes_on_beyond_the_end_of_the_log_and_back() -> None:
    fake = FakeCockpit(lines=log_lines(2000)[-2000:])
    async with cockpit(fake) as pilot:
        screen = await opened(pilot, tab="6")
        await until_text(pilot, "step 1999 ")
        await enter(pilot, "gk")
        await until(pilot, lambda: screen.tabs.log_pane.part is not None, "the lines before")
        assert any(call[:3] == ("log_piece", RUNS[0].run_id, "") for call in fake.calls)
        await until_text(pilot, "a part")
        first = screen.tabs.log_pane.part.top
        await enter(pilot, "gk")
        await until(pilot, lambda: screen.tabs.log_pane.part.top != first, "what is before these")
        while any(screen.tabs.log_pane.part.top.values()):
            before = screen.tabs.log_pane.part
            await enter(pilot, "gk")
            await until(pilot, lambda before=before: screen.tabs.log_pane.part is not before, "the next piece")
        await enter(pilot, "gk")
        await until(pilot, lambda: "this is the first line" in notices(pilot), "the word that it is the first")
        await enter(pilot, "F")
        await until(pilot, lambda: screen.tabs.log_pane.following and screen.tabs.log_pane.part is None, "the end")


async def test_a_search_of_all_logs_goes_from_hit_to_hit_in_time_order() -> None:
    fake = FakeCockpit(lines=log_lines(2000)[1500:])
    async with cockpit(fake) as pilot:
        screen = await opened(pilot, tab="6")
        screen.logs.log_name = "*"
        pilot.app.controller.watch_log("*")
        await until_text(pilot, "all logs")
        await enter(pilot, "/since:2h re:step 7\n")
        await until_text(pilot, "111 in a")
        await until(pilot, lambda: screen.tabs.log_pane.part is not None, "the newest hit")
        pane = screen.tabs.log_pane
        seen = [pane.lines[pane.hit]]
        for _ in range(3):
            await enter(pilot, "N")
            await until(pilot, lambda: pane.lines[pane.hit] != seen[-1], "the hit before")
            seen.append(pane.lines[pane.hit])
        steps = [int(re.search(r"step (\d+)", text)[1]) for text in seen]
        assert steps == sorted(steps, reverse=True)
        assert all(str(step).startswith("7") for step in steps)


async def test_repeats_are_one_line_until_plus_or_a_search_shows_them() -> None:
    lines = ("begin", *(f"step {number}%|## {number}/9 [" for number in range(9)), "end")
    async with cockpit(FakeCockpit(lines=lines)) as pilot:
        screen = await opened(pilot, tab="6")
        await until_text(pilot, "8/9 [  [×9]")
        assert len(screen.tabs.log_pane.lines) == 3
        await enter(pilot, "+")
        await until_text(pilot, "3/9 [")
        await enter(pilot, "+")
        await until(pilot, lambda: len(screen.tabs.log_pane.lines) == 3, "one line")
        await enter(pilot, "/3/9\n")
        await until_text(pilot, "3/9 [")
        assert "3/9" in screen.tabs.log_pane.lines[screen.tabs.log_pane.hit]


async def test_long_lines_can_be_panned() -> None:
    async with cockpit(FakeCockpit(lines=("begin " + "x" * 200 + " end",))) as pilot:
        await opened(pilot, tab="6")
        await until_text(pilot, "begin")
        await enter(pilot, ">" * 10)
        await until_text(pilot, " end")
        await enter(pilot, "<" * 12)
        await until_text(pilot, "begin")


async def test_log_text_cannot_act() -> None:
    fake = FakeCockpit(all_runs=HOSTILE_RUNS, lines=HOSTILE_LOG)
    async with cockpit(fake, size=(120, 30)) as pilot:
        screen = await opened(pilot, HOSTILE_RUNS[1], tab="6")
        await until_text(pilot, "[bold red]not markup[/]")
        text = screen_text(pilot)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert all(len(row) <= 120 for row in screen_lines(pilot))
        await pilot.click("#logs", offset=(45, 1))
        await enter(pilot, "/[bold\n")
        await until(pilot, lambda: screen.tabs.log_pane.hit == 0, "the hit")
        await enter(pilot, "y")
        await until(pilot, lambda: pilot.app.clipboard.startswith("[bold red]"), "the copy")
        assert "\x1b" not in pilot.app.clipboard
        await enter(pilot, "75421")
        await settled(pilot)
        assert pilot.app.return_code is None


async def test_cancel_from_the_open_run() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot)
        await enter(pilot, "c")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the confirmation")
        await enter(pilot, "y")
        await until(pilot, lambda: ("cancel", FIRST) in fake.calls, "the cancellation")


async def test_the_open_run_is_read_often_and_the_list_goes_on() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot, RUNS[1])
        fake.calls.clear()
        fake.all_runs = (*RUNS[:2], *RUNS[3:])  # the list changes, and its cursor is on another run
        await until(pilot, lambda: len([call for call in fake.calls if call[0] == "watch"]) >= 4, "four reads")
        names = [call[0] for call in fake.calls]
        assert 1 <= names.count("runs") <= 4
        assert {call[1] for call in fake.calls if call[0] == "watch"} == {RUNS[1].run_id}


async def test_a_run_that_vanished_is_an_error_with_a_hint_and_keys_go_on() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot)
        fake.all_runs = RUNS[1:]
        pilot.app.controller.refresh()
        await until(pilot, lambda: f"there is no run '{FIRST}'" in notices(pilot), "the error")
        assert "rltui ps lists all runs" in notices(pilot)
        await enter(pilot, "4q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen), "the list")


async def test_a_run_can_be_opened_from_the_start() -> None:
    async with cockpit(open_run="grpo-7b-r2") as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        assert pilot.app.screen.identity.run_id == RUNS[5].run_id
        await until_text(pilot, "CUDA out of memory")


async def test_a_run_that_is_not_there_at_the_start_leaves_the_list() -> None:
    async with cockpit(open_run="nobody") as pilot:
        await until(pilot, lambda: "no run is named 'nobody'" in notices(pilot), "the notice")
        assert isinstance(pilot.app.screen, RunsScreen)


async def test_the_problem_of_a_picture_stands_in_the_header() -> None:
    class Away(FakeCockpit):
        def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
            return msgspec.structs.replace(super().watch(run, log), problem="the relay is away")

    async with cockpit(Away(), size=(120, 30)) as pilot:
        await opened(pilot)
        await until_text(pilot, "▲ the relay is away")


async def test_pictures_of_another_run_do_not_land_here() -> None:
    async with cockpit() as pilot:
        screen = await opened(pilot)
        await settled(pilot)
        other = RunSnapshot(summary=RUNS[1])
        pilot.app.post_message(messages.RunFetched(other))
        await flushed(pilot)
        assert screen.snapshot.summary.run_id == FIRST


async def test_a_run_that_ends_while_it_is_watched() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot)
        ended = msgspec.structs.replace(RUNS[6], run_id=FIRST)
        fake.all_runs = (ended, *RUNS[1:])
        pilot.app.controller.refresh()
        await until_text(pilot, "✓ finished  1000 steps")
        await enter(pilot, "c")
        await until(pilot, lambda: "the run is finished already" in notices(pilot), "the reason")


async def test_a_new_picture_repaints_only_what_is_new() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await opened(pilot)
        await settled(pilot)
        frames: list[str] = []
        display = pilot.app._display

        def spy(screen, renderable) -> None:
            frames.append(type(renderable).__name__)
            display(screen, renderable)

        pilot.app._display = spy
        run = RUNS[0]
        stage = msgspec.structs.replace(run.stage, step=413)
        fake.all_runs = (msgspec.structs.replace(run, stage=stage), *RUNS[1:])
        pilot.app.controller.refresh()
        await until_text(pilot, "413/1000")
        await settled(pilot)
        assert set(frames) == {"ChopsUpdate"}, "the whole screen was laid out again"
        frames.clear()
        reads = fake.calls.count(("watch", FIRST))
        await until(pilot, lambda: fake.calls.count(("watch", FIRST)) >= reads + 2, "two more pictures")
        await flushed(pilot)
        assert frames == [], "nothing is new, and nothing was painted"


async def test_hands_off_mode_is_switched_on_and_off_after_a_question() -> None:
    fake = FakeCockpit()
    run_id = RUNS[1].run_id
    async with cockpit(fake) as pilot:
        await opened(pilot, RUNS[1])
        for word, wanted in (("on", "hands-off"), ("off", "hands-off ended")):
            await enter(pilot, "H")
            await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the question")
            await enter(pilot, "y")
            await until(pilot, lambda word=word: ("auto", run_id, word) in fake.calls, "the switch")
            pilot.app.controller.refresh()
            await until_text(pilot, wanted)


async def test_actors_have_their_gpus_and_memory_and_are_filtered() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        pilot.app.open_run(RUNS[1].identity, 2)
        await until_text(pilot, "RSS GIB")
        rows = [row.split() for row in screen_text(pilot).splitlines() if "learner 0" in row]
        assert rows[0][-3:] == ["0", "61.3", "14.2"], rows
        await enter(pilot, "/engine nid010702")
        await until(pilot, lambda: "learner" not in screen_text(pilot), "only those")
        assert screen_text(pilot).count("engine") >= 2
        await enter(pilot, " nobody")
        await until_text(pilot, "no actor has 'engine nid010702 nobody' in class")
        await press(pilot, "escape")
        await until_text(pilot, "learner 0")
