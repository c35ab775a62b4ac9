"""`!`: causes, evidence that leads to its line in the log, remedies that are previewed, confirmed and done."""

from __future__ import annotations

import msgspec
import pytest
from canned_actions import EXCLUDE, FIX, WHY
from canned_runs import RUNS
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, flushed, notices, press, screen_lines, screen_text, settled, until, until_text

from rltui.diagnose.verdicts import Diagnosis, Evidence
from rltui.service.cockpit import WhyReport
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.screens.confirm import ConfirmScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.runs import RunsScreen
from rltui.tui.screens.why import WhyScreen
from rltui.tui.spans import width_of
from rltui.tui.views.why import confidence_word, why_lines
from rltui.watch.snapshots import RunIdentity

FAILED = RUNS[5].run_id


async def asked(pilot) -> WhyScreen:
    await press(pilot, *"jjjjj", "!")
    await until(pilot, lambda: isinstance(pilot.app.screen, WhyScreen), "the screen")
    await until(pilot, lambda: pilot.app.screen.pane.report is not None, "the report")
    await flushed(pilot)
    return pilot.app.screen


async def test_the_cause_comes_first_and_enter_jumps_to_its_line() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await asked(pilot)
        text = screen_text(pilot)
        assert "Engine 3 ran out of GPU memory on nid010798" in text
        assert text.index("cuda_oom_gpu_shared") < text.index("ecc_uncorrectable") < text.index("ray_actor_died")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        await until_text(pilot, "out.log:1043")
        assert ("log_part", FAILED, "out.log", "1043") in fake.calls
        rows = [row for row in screen_lines(pilot) if row.startswith("›")]
        assert [row.split()[0] for row in rows] == ["›"]
        assert "1043 " in rows[0]
        await press(pilot, "q")
        assert isinstance(pilot.app.screen, WhyScreen), "back to the next piece of evidence"


async def test_from_an_open_run_the_jump_stays_in_it_and_capital_f_goes_back_to_the_end() -> None:
    async with cockpit() as pilot:
        await press(pilot, *"jjjjj", "enter", "!")
        await until(pilot, lambda: isinstance(pilot.app.screen, WhyScreen), "the screen")
        await until_text(pilot, "out.log:1043")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        await until_text(pilot, "F back to the end")
        await enter(pilot, "F")
        await until_text(pilot, "follow")
        await press(pilot, "q")
        assert isinstance(pilot.app.screen, RunsScreen)


FIXED = ("resubmit", FAILED, "roles.rollout.memory_utilization=0.55", "nid010798")


async def confirmed_fix(pilot) -> None:
    """Four keys from the list: down to the run, f, y."""
    await press(pilot, *"jjjjj")
    await enter(pilot, "f")
    await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
    assert "ecc_uncorrectable: Exclude" in screen_text(pilot)
    assert "roles.rollout.memory_utilization: 0.55" in screen_text(pilot)
    await enter(pilot, "y")
    await until(pilot, lambda: "z takes it back" in notices(pilot), "the grace")


async def test_one_fix_for_all_causes_is_done_after_its_grace(monkeypatch) -> None:
    monkeypatch.setattr("rltui.tui.questions.GRACE_S", 0.3)
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await confirmed_fix(pilot)
        await until(pilot, lambda: FIXED in fake.calls, "the resubmission")
        await press(pilot, "z")
        await until(pilot, lambda: "nothing to take back" in notices(pilot), "the answer")
    assert fake.calls.count(FIXED) == 1


async def test_z_takes_a_fix_back() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await confirmed_fix(pilot)
        await press(pilot, "z")
        await until(pilot, lambda: "taken back" in notices(pilot), "the answer")
    assert FIXED not in fake.calls


async def test_a_fix_that_waits_is_done_when_the_cockpit_is_left() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await confirmed_fix(pilot)
        await press(pilot, "q")
    assert FIXED in fake.calls


async def test_an_edited_fix_still_sets_the_damaged_checkpoint_aside(monkeypatch) -> None:
    fake = FakeCockpit()
    monkeypatch.setattr("fake_cockpit.FIX", msgspec.structs.replace(FIX, set_aside="step-000030"))
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj")
        await enter(pilot, "f")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
        await enter(pilot, "e")
        await press(pilot, "enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview of what was edited")
        await enter(pilot, "y")
        await until(pilot, lambda: (*FIXED, "step-000030") in fake.calls, "the resubmission")


async def test_f_on_the_why_screen_is_the_fix_of_all_causes() -> None:
    async with cockpit() as pilot:
        await asked(pilot)
        await enter(pilot, "f")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
        assert "ecc_uncorrectable: Exclude" in screen_text(pilot)


async def test_a_remedy_that_keeps_away_from_a_node() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await asked(pilot)
        while screen.pane.selected.fix != EXCLUDE:
            await press(pilot, "j")
        await press(pilot, "enter")
        await until_text(pilot, "keeps away from nid010798")
        await until(pilot, lambda: isinstance(pilot.app.screen, ConfirmScreen), "the preview")
        await enter(pilot, "y")
        await until(pilot, lambda: ("resubmit", FAILED, "nid010798") in fake.calls, "the resubmission")


async def test_what_leads_nowhere_says_so() -> None:
    async with cockpit() as pilot:
        await asked(pilot)
        await press(pilot, "g", "enter")
        await until(pilot, lambda: "leads nowhere" in notices(pilot), "the reason")
        await press(pilot, "G", "enter")
        await until(pilot, lambda: "this is how the attempt ended" in notices(pilot), "the answer")


async def test_readonly_shows_remedies_and_applies_none() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, readonly=True) as pilot:
        screen = await asked(pilot)
        await enter(pilot, "f")
        await until(pilot, lambda: "read-only" in notices(pilot), "the reason")
        while screen.pane.selected.fix != EXCLUDE:
            await press(pilot, "j")
        await press(pilot, "enter")
        await settled(pilot)
        assert isinstance(pilot.app.screen, WhyScreen)
        assert not [call for call in fake.calls if call[0].startswith("preview")]


async def test_a_log_that_cannot_be_read_leaves_the_screen() -> None:
    fake = FakeCockpit(failing={"log_part"})
    async with cockpit(fake) as pilot:
        await asked(pilot)
        await press(pilot, "enter")
        await until(pilot, lambda: "isambard does not answer" in notices(pilot), "the error")
        assert isinstance(pilot.app.screen, RunScreen)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII])
def test_lines_fit_and_the_last_one_can_be_reached(width: int, glyphs: object) -> None:
    lines = why_lines(WHY, width, glyphs)
    assert [row.line.plain for row in lines if width_of(row.line.spans) > width] == []
    assert lines[-1].stop
    assert [row.evidence for row in lines if row.evidence] == [
        (one.file, one.line) for finding in WHY.findings for one in finding.evidence if one.line
    ]


def test_hostile_words_are_text() -> None:
    finding = Diagnosis(
        id="x", summary="[red]no[/]", confidence=0.1, evidence=(Evidence(file="a\x1b[2J", line=1, text="\x1b]0;t\x07"),)
    )
    lines = why_lines(WhyReport(run=RunIdentity("", "x"), headline="[b]", findings=(finding,)), 80, UNICODE)
    assert "\x1b" not in "".join(text for row in lines for text, _ in row.line.spans)


def test_sureness_is_a_word() -> None:
    assert [confidence_word(value) for value in (0.95, 0.7, 0.3)] == ["sure", "likely", "not sure"]


async def test_a_run_without_a_cause_says_what_to_collect() -> None:
    class Clueless(FakeCockpit):
        def why(self, run: RunIdentity) -> WhyReport:
            return msgspec.structs.replace(WHY, run=run, headline="No known cause is in its logs.", findings=())

    async with cockpit(Clueless()) as pilot:
        await asked(pilot)
        await until_text(pilot, "No known cause is in its logs.")


async def test_the_reason_is_sought_again_once_the_run_is_in_another_state() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await asked(pilot)
        times = fake.calls.count(("why", FAILED))
        again = [msgspec.structs.replace(run, state="starting", attempt=run.attempt + 1) for run in fake.all_runs]
        fake.all_runs = tuple(
            new if new.run_id == FAILED else old for new, old in zip(again, fake.all_runs, strict=True)
        )
        await until(pilot, lambda: fake.calls.count(("why", FAILED)) > times, "the second question")
        await flushed(pilot)
        assert fake.calls.count(("why", FAILED)) == times + 1


async def test_logs_that_cannot_be_read_are_not_read_for_ever() -> None:
    fake = FakeCockpit(failing={"why"})
    async with cockpit(fake) as pilot:
        await press(pilot, *"jjjjj", "!")
        await until(pilot, lambda: "isambard does not answer" in screen_lines(pilot)[1], "the reason")
        assert "reading the logs" not in screen_text(pilot)
        fake.failing.clear()
        await press(pilot, "r")
        await until_text(pilot, "Engine 3 ran out of GPU memory")


async def test_without_a_cause_the_first_exception_leads_to_its_line() -> None:
    class Unexplained(FakeCockpit):
        def why(self, run: RunIdentity) -> WhyReport:
            return WhyReport(
                run=run, headline="No known cause is in its logs.", exception=("out.log", 1043, "ValueError: no"),
                notes=("    /w/rewards.py:7 in grade", "Attempt 1 made steps up to 40; what is different since:"),
            )  # fmt: skip

    fake = Unexplained()
    async with cockpit(fake) as pilot:
        await asked(pilot)
        text = screen_text(pilot)
        assert "ValueError: no" in text
        assert "/w/rewards.py:7 in grade" in text
        assert "Attempt 1 made steps up to 40" in text
        await press(pilot, "enter")
        await until(pilot, lambda: ("log_part", FAILED, "out.log", "1043") in fake.calls, "the line")


def test_what_the_headline_says_is_no_evidence_a_second_time() -> None:
    stuck = "learner 0 (pid 7 on n1) is stopped (state T: SIGSTOP, or a debugger)"
    said = (("evidence", 0, f"stuck: {stuck}."), ("evidence", 0, "rank 1 of 2 waits for it"), ("out.log", 3, stuck))
    found = tuple(Evidence(file=file, line=line, text=text) for file, line, text in said)
    finding = msgspec.structs.replace(WHY.findings[0], summary="", evidence=found)
    report = msgspec.structs.replace(WHY, headline=f"One process holds up the others: {stuck}.", findings=(finding,))
    rows = [row.line.plain for row in why_lines(report, 200, UNICODE)]
    assert len([row for row in rows if stuck in row]) == 2, "the headline, and the line of a log that can be opened"
    assert [row for row in rows if "rank 1 of 2" in row]
