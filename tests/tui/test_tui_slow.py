"""Services that are slow, hang or fail: keys never wait for them, nothing opens late, leaving takes no time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from canned_runs import RUNS
from fake_cockpit import HANG_S, FakeCockpit
from pictures import cockpit, enter, flushed, notices, press, screen_lines, screen_text, until, until_text

from rltui.errors import ClusterError, UsageError
from rltui.service.sweep_points import NO_SWEEP
from rltui.threads import Poller, RequestThread
from rltui.tui import messages
from rltui.tui.controller import Controller
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.runs import RunsScreen
from rltui.watch.snapshots import RunsSnapshot
from waiting import eventually, longest_s


def wait_for(condition: Callable[[], bool], what: str) -> None:
    eventually(condition, what, poll_s=0.002)


class Hanging(FakeCockpit):
    """Answers for a while, then every call hangs until the gate opens."""

    def hang(self) -> None:
        self.gate.clear()
        self.slow_s = HANG_S


@pytest.fixture
def fake() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.gate.set()  # also after a failure: Python waits for the threads of actions


async def test_the_first_frame_does_not_wait_for_the_first_answer(fake: Hanging) -> None:
    fake.hang()
    async with cockpit(fake) as pilot:
        await until_text(pilot, "looking for runs")
        fake.gate.set()
        await until_text(pilot, RUNS[0].run_id)


async def test_keys_act_at_once_while_services_hang(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await until_text(pilot, "ada-laptop")
        fake.hang()
        pilot.app.controller.refresh()
        for key, words in (
            ("j", RUNS[1].run_id),
            ("/", "words, state:running"),
            ("\n", "open"),
            ("G", "grpo-weird-0000"),
        ):
            await enter(pilot, key)
            await until_text(pilot, words)
        await enter(pilot, "n")
        await until_text(pilot, "reading")


async def test_leaving_does_not_wait_for_a_hanging_service(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        fake.hang()
        pilot.app.controller.refresh()
        await enter(pilot, "jn")
        await until_text(pilot, "reading")
        await enter(pilot, "qq")
        await until(pilot, lambda: pilot.app.return_code == 0, "the end")


async def test_another_request_that_fails_takes_no_question_away(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await until_text(pilot, "ada-laptop")
        fake.hang()
        await enter(pilot, "c")
        await until(pilot, lambda: any(call[0] == "preview_cancel" for call in fake.calls), "the question")
        pilot.app.post_message(messages.RequestFailed("connect to mila", "it was left without an answer", ""))
        await flushed(pilot)
        fake.gate.set()
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")


async def test_a_confirmation_that_comes_late_does_not_open_over_something_else(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await until_text(pilot, "ada-laptop")
        fake.hang()
        await enter(pilot, "c")
        await until(pilot, lambda: any(call[0] == "preview_cancel" for call in fake.calls), "the question")
        await enter(pilot, "j")
        answered = []
        pilot.app.controller._post_message = lambda message, post=pilot.app.post_message: (
            answered.append(message),
            post(message),
        )
        fake.gate.set()
        await until(pilot, lambda: any(isinstance(m, messages.PreviewFetched) for m in answered), "the answer")
        await flushed(pilot)
        assert isinstance(pilot.app.screen, RunsScreen)
        await enter(pilot, "c")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the confirmation")
        assert pilot.app.screen.preview.run.run_id == RUNS[1].run_id


async def test_the_age_of_stale_data_stands_in_the_header(fake: Hanging) -> None:
    now = [0.0]
    async with cockpit(fake, clock=lambda: now[0]) as pilot:
        await until_text(pilot, "ada-laptop")
        fake.hang()
        assert "old" not in screen_lines(pilot)[0]
        for age, words in ((4.0, "▲ 4s old"), (65.0, "✗ 1m05 old")):
            now[0] = pilot.app.pictures._received["runs"] + age
            pilot.app.screen.tick()
            await until_text(pilot, words)
        fake.gate.set()
        pilot.app.controller.refresh()
        await until(pilot, lambda: "old" not in screen_lines(pilot)[0], "fresh data")


@pytest.mark.parametrize("moment", ["at once", "later"])
async def test_answers_that_come_while_the_cockpit_closes_do_no_harm(fake: Hanging, moment: str) -> None:
    async with cockpit(fake) as pilot:
        await until_text(pilot, "ada-laptop")
        fake.hang()
        calls = len(fake.calls)
        pilot.app.controller.refresh()
        await enter(pilot, "c")
        await until(pilot, lambda: len(fake.calls) >= calls + 3, "three calls that hang")
        if moment == "at once":
            fake.gate.set()
            for answer in (
                messages.RunsFetched(RunsSnapshot()),
                messages.Launched((RUNS[0].identity,)),
                messages.FetchFailed("runs", "a", "b"),
            ):
                pilot.app.post_message(answer)
    fake.gate.set()


async def test_an_action_under_way_is_finished_when_one_leaves(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await enter(pilot, "c")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the confirmation")
        fake.hang()
        await enter(pilot, "y")
        await until(pilot, lambda: any(call[0] == "cancel" for call in fake.calls), "the action")
        await enter(pilot, "q")
        assert "Finishing what was under way" in str(pilot.app._exit_renderables)
    action = next(thread for thread in threading.enumerate() if thread.name == "rltui-actions")
    assert not action.daemon, "Python waits for it when the program ends"
    fake.gate.set()
    wait_for(lambda: not action.is_alive(), "the end of the action")


async def test_reviews_asked_for_in_a_row_are_not_all_made() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await enter(pilot, "n")
        await until(pilot, lambda: getattr(pilot.app.screen, "review", None) is not None, "the review")
        fake.calls.clear()
        await enter(pilot, "jjjkkkjjj")
        screen = pilot.app.screen
        await until(pilot, lambda: screen.review is not None and "32b" in screen.review.preset, "the last review")
        assert len([call for call in fake.calls if call[0] == "review"]) <= 3


def test_a_thread_drops_what_is_out_of_date_and_that_of_actions_nothing() -> None:
    for newest_only, expected in ((True, [0, 3]), (False, [0, 1, 2, 3])):
        done: list[int] = []
        gate = threading.Event()
        thread = RequestThread("test-thread", newest_only)
        thread.ask(lambda done=done, gate=gate: (gate.wait(longest_s()), done.append(0)))
        for number in (1, 2, 3):
            thread.ask(lambda done=done, number=number: done.append(number))
        gate.set()
        wait_for(lambda thread=thread: not thread.busy, "the end of the thread")
        assert done == expected


def test_a_poller_reads_the_new_target_at_once_and_rests_without_one() -> None:
    seen: list[str] = []
    poller = Poller("test-poller", lambda target: None if target is None else (seen.append(target), HANG_S)[1])
    poller.start()
    poller.aim("a")
    wait_for(lambda: seen == ["a"], "the first read")
    poller.aim("b")
    wait_for(lambda: seen == ["a", "b"], "the second read")
    poller.hurry()
    wait_for(lambda: seen == ["a", "b", "b"], "the hurried read")
    poller.aim(None)
    poller.hurry()
    poller.stop()
    wait_for(lambda: not any(thread.name == "test-poller" for thread in threading.enumerate()), "the end")
    assert seen == ["a", "b", "b"]


def test_a_source_that_fails_is_told_once_and_slows_down() -> None:
    fake = FakeCockpit(failing={"runs"}, error=ClusterError("away", "wait"))
    posted: list[object] = []
    controller = Controller(fake, posted.append)
    pauses = [controller._read_runs("") for _ in range(7)]
    assert [type(message).__name__ for message in posted] == ["FetchFailed"]
    assert (posted[0].error, posted[0].hint) == ("away", "wait")
    assert pauses == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    fake.failing.clear()
    assert controller._read_runs("") == 1.0
    assert controller.periods["runs"] < 2.0


def test_a_run_of_the_list_as_last_seen_that_was_taken_away_since_is_no_failure() -> None:
    posted: list[object] = []
    Controller(FakeCockpit(failing={"watch"}, error=UsageError("No run is called that.")), posted.append)._read_run(
        RUNS[0].identity
    )
    assert posted == []
    Controller(FakeCockpit(failing={"watch"}, error=ClusterError("away")), posted.append)._read_run(RUNS[0].identity)
    assert [message.error for message in posted] == ["away"]


def test_a_fault_in_what_is_told_of_runs_does_not_end_their_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(*_: object) -> None:
        raise ValueError("a fault")

    posted: list[object] = []
    controller = Controller(FakeCockpit(), posted.append)
    monkeypatch.setattr(controller._events, "look", faulty)
    assert controller._read_runs("") == 2.0
    assert [type(message).__name__ for message in posted] == ["RunsFetched", "FetchFailed"]


def test_a_question_of_one_screen_does_not_drop_that_of_another() -> None:
    fake, posted, gate = FakeCockpit(), [], threading.Event()
    controller = Controller(fake, lambda message: posted.append(type(message).__name__))
    controller._questions.ask(gate.wait)
    controller._readings.ask(gate.wait)
    controller.ask_jobs()
    controller.ask_presets()
    controller.ask_review("local/grpo-tiny", (), "local", NO_SWEEP)
    gate.set()
    wait_for(lambda: len(posted) == 3, "all three answers")
    assert sorted(posted) == ["JobsFetched", "PresetsFetched", "ReviewFetched"]


def test_nothing_is_posted_after_the_end() -> None:
    posted: list[object] = []
    controller = Controller(FakeCockpit(), posted.append)
    controller.stop()
    controller._read_runs("")
    assert posted == []


def test_a_closed_loop_is_no_error_after_the_end_and_one_before() -> None:
    def closed(_: object) -> None:
        controller.stop()
        raise RuntimeError("Event loop is closed")

    controller = Controller(FakeCockpit(), closed)
    controller._read_runs("")
    controller = Controller(FakeCockpit(), lambda _: (_ for _ in ()).throw(RuntimeError("a fault")))
    with pytest.raises(RuntimeError, match="a fault"):
        controller._read_runs("")


async def test_two_threads_at_most_read_and_one_acts() -> None:
    inside, most = [0], [0]
    lock = threading.Lock()

    class Counting(FakeCockpit):
        def _called(self, name: str, *words: str) -> None:
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            super()._called(name, *words)
            with lock:
                inside[0] -= 1

    async with cockpit(Counting(slow_s=0.02)) as pilot:
        await until_text(pilot, RUNS[0].run_id)
        await enter(pilot, "jjcnjjj")
        await until(pilot, lambda: getattr(pilot.app.screen, "review", None) is not None, "the review")
        assert "guide-2" in screen_text(pilot)
    assert most[0] <= 4


async def test_a_launch_is_awaited_until_it_is_answered_itself(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await enter(pilot, "n")
        await until_text(pilot, "ready")
        fake.hang()
        await press(pilot, "enter")
        pilot.app.post_message(messages.RequestFailed("ask isambard of it", "isambard does not answer", ""))
        await press(pilot, "enter")
        await until(pilot, lambda: "still checking" in notices(pilot), "why it is not launched twice")
        await press(pilot, "escape", "n", "?")
        await press(pilot, "escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, LaunchScreen), "another launch")
        fake.gate.set()
        await until(pilot, lambda: "launched" in notices(pilot), "the first launch")
        await flushed(pilot)
        assert isinstance(pilot.app.screen, LaunchScreen), "this one is nothing of the other"
        assert len([call for call in fake.calls if call[0] == "launch"]) == 1


async def test_a_launch_that_is_answered_below_the_help_leaves_the_screen_ready(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await enter(pilot, "n")
        await until_text(pilot, "ready")
        fake.hang()
        await press(pilot, "enter", "?")
        fake.gate.set()
        await until(pilot, lambda: "launched" in notices(pilot), "the launch")
        await press(pilot, "escape", "enter")
        assert "still checking" not in notices(pilot)


async def test_a_review_that_another_question_has_replaced_is_asked_for_again(fake: Hanging) -> None:
    async with cockpit(fake) as pilot:
        await enter(pilot, "n")
        await until_text(pilot, "ready")
        fake.hang()
        await press(pilot, "j", "?")
        await until(pilot, lambda: pilot.app.controller._questions.busy, "a review under way")
        pilot.app.controller.ask_review("local/other", (), "local", NO_SWEEP)
        pilot.app.screen_stack[-2]._asked = ("", (), "", NO_SWEEP)  # its own was the one that waited
        await press(pilot, "escape")
        fake.gate.set()
        await until(pilot, lambda: pilot.app.screen.review is not None, "the review")
