"""Marked runs in the list: actions are for all of them."""

from __future__ import annotations

from canned_runs import RUNS
from fake_cockpit import FakeCockpit
from msgspec import structs
from pictures import cockpit, confirmation, enter, notices, press, screen_text, until, until_text

from rltui.errors import RltuiError

FIRST, SECOND = RUNS[0].run_id, RUNS[1].run_id
THIRD = RUNS[2].run_id


async def test_marked_runs_are_acted_on_together_and_what_cannot_be_is_left_alone() -> None:
    class Picky(FakeCockpit):
        def preview_cancel(self, run_id):
            preview = super().preview_cancel(run_id)
            if run_id == RUNS[2].run_id:
                raise RltuiError("it is ended already")
            return preview

    fake = Picky()
    async with cockpit(fake) as pilot:
        await enter(pilot, "  j ")  # the first two and the fourth; the third is passed over
        await until_text(pilot, "3 marked")
        await press(pilot, "escape")
        assert "marked" not in screen_text(pilot)
        await enter(pilot, "g   c")
        await confirmation(pilot)
        text = screen_text(pilot)
        assert "Cancel 2 runs?" in text
        assert f"{RUNS[2].run_id} is left alone: it is ended already" in text
        assert " e edit" not in text
        await press(pilot, "y")
        await until(pilot, lambda: "cancel: done for 2" in notices(pilot), "what was done")
        assert [call for call in fake.calls if call[0] == "cancel"] == [("cancel", FIRST), ("cancel", SECOND)]
        assert not pilot.app.screen.table.marked, "what was done is not done again by the next key"


async def test_of_marked_runs_one_that_fails_does_not_stop_the_others_and_marks_stay() -> None:
    class Failing(FakeCockpit):
        def resubmit(self, run_id, overrides=(), exclude=(), set_aside=""):
            super().resubmit(run_id, overrides, exclude, set_aside)
            if run_id == FIRST:
                raise RltuiError("another rltui was faster")
            return "done"

    fake = Failing()
    async with cockpit(fake) as pilot:
        await enter(pilot, "  r")
        await confirmation(pilot)
        await press(pilot, "y")
        await until(pilot, lambda: "done for 1 of 2" in notices(pilot), "what was done")
        assert f"{FIRST}: another rltui was faster" in notices(pilot)
        assert [call[1] for call in fake.calls if call[0] == "resubmit"] == [FIRST, SECOND]
        assert pilot.app.screen.table.marked == (RUNS[0].identity, RUNS[1].identity)


async def test_marks_follow_what_is_shown_and_keys_of_one_run_say_so() -> None:
    async with cockpit(FakeCockpit(), size=(80, 24)) as pilot:
        await press(pilot, "*")
        assert len(pilot.app.screen.table.marked) == len(RUNS)
        await enter(pilot, f"/{SECOND}\n")
        assert pilot.app.screen.table.marked == (RUNS[1].identity,)
        assert "✓" in screen_text(pilot)
        await press(pilot, "m")
        assert "it is for one run, and 1 are marked" in notices(pilot)
        await press(pilot, "*")
        assert not pilot.app.screen.table.marked


async def test_marked_runs_are_compared_and_one_is_not() -> None:
    async with cockpit(FakeCockpit()) as pilot:
        await enter(pilot, " =")
        await until(pilot, lambda: "mark two runs or more" in notices(pilot), "the reason")
        await enter(pilot, " =")
        await until(pilot, lambda: getattr(pilot.app.screen, "command", None) is not None, "the comparison")
        assert pilot.app.screen.command.words == ("compare", FIRST, SECOND)


async def test_a_baseline_is_kept_and_marked_runs_are_held_against_it() -> None:
    async with cockpit(FakeCockpit(), size=(80, 24)) as pilot:
        await press(pilot, "g", "j", "j", "B")
        await until(pilot, lambda: f"{THIRD} is the baseline" in notices(pilot), "what was done")
        assert f"={THIRD}" in screen_text(pilot)
    async with cockpit(FakeCockpit()) as pilot:
        await until_text(pilot, f"={THIRD}")
        await enter(pilot, f"/{FIRST}\n =")  # one mark is enough, and the baseline may be out of sight
        await until(pilot, lambda: getattr(pilot.app.screen, "command", None) is not None, "the comparison")
        assert pilot.app.screen.command.words == ("compare", THIRD, FIRST)
        await press(pilot, "escape", "escape", "escape", "g", "j", "j", "B")
        await until(pilot, lambda: "there is no baseline any more" in notices(pilot), "what was done")
        assert f"={THIRD}" not in screen_text(pilot)
    async with cockpit(FakeCockpit(all_runs=RUNS[:2])) as pilot:
        pilot.app.screen.table.pin(THIRD)
        await enter(pilot, " =")  # a baseline that was removed counts as none
        await until(pilot, lambda: "mark two runs or more" in notices(pilot), "the reason")


async def test_of_two_runs_with_one_id_the_one_under_the_cursor_is_shown_marked_and_asked_about() -> None:
    here, there = (structs.replace(RUNS[1], cluster=name) for name in ("local", "isambard"))
    fake = FakeCockpit(all_runs=(here, there))
    async with cockpit(fake, size=(120, 30)) as pilot:
        table = pilot.app.screen.table
        await enter(pilot, "j ")
        assert table.marked == (there.identity,)
        await enter(pilot, " c")
        await confirmation(pilot)
        assert pilot.app.screen.preview.run == there.identity
        await enter(pilot, "n\n")
        await until(pilot, lambda: pilot.app.screen.identity == there.identity, "its own screen")
        await until(pilot, lambda: pilot.app.pictures.run(there.identity) is not None, "its picture")
        assert pilot.app.screen.snapshot.summary.cluster == "isambard"
        await press(pilot, "escape")
        await enter(pilot, f":cancel {here.run_id}\n")
        await until(pilot, lambda: f"could be {here.identity}, {there.identity}" in notices(pilot), "the refusal")
        await enter(pilot, f":cancel {here.identity}\n")
        await confirmation(pilot)
        assert pilot.app.screen.preview.run == here.identity
        await enter(pilot, "n*c")
        await confirmation(pilot)
        assert str(here.identity) in screen_text(pilot)
        await enter(pilot, "n=")
        await until(pilot, lambda: getattr(pilot.app.screen, "command", None) is not None, "the comparison")
        assert pilot.app.screen.command.words == ("compare", str(here.identity), str(there.identity))
