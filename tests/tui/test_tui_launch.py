"""The launch screen, driven as a user would: few keys, overrides that are never lost, errors that stand in the way."""

from __future__ import annotations

import threading

import pytest
from canned_launch import PRESETS
from fake_cockpit import HANG_S, FakeCockpit
from pictures import cockpit, enter, flushed, notices, press, screen_text, settled, until, until_text

from rltui.errors import UsageError
from rltui.service.review import LaunchOutlook
from rltui.tui.commands import complete_override, override_problem, with_override
from rltui.tui.screens.launch import LaunchScreen
from rltui.tui.screens.run import RunScreen
from rltui.tui.screens.runs import RunsScreen
from waiting import longest_s


async def launching(pilot) -> LaunchScreen:
    await enter(pilot, "n")
    await until(pilot, lambda: isinstance(pilot.app.screen, LaunchScreen), "the launch screen")
    await until(pilot, lambda: pilot.app.screen.review is not None, "the review")
    await flushed(pilot)
    return pilot.app.screen


def launches(fake: FakeCockpit) -> list[tuple[str, ...]]:
    return [call[1:] for call in fake.calls if call[0] == "launch"]


async def test_three_keys_from_the_list_to_a_launched_run() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "j")
        await until(pilot, lambda: screen.review is not None and "coin" in screen.review.preset, "the second review")
        await enter(pilot, "\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        assert launches(fake) == [("local/grpo-tiny-coin",)]
        assert pilot.app.screen.identity.run_id == "grpo-tiny-coin-new11"
        await until_text(pilot, "first in line")
        await enter(pilot, "q")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen), "the list")


async def test_the_review_shows_what_would_happen() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        await launching(pilot)
        text = screen_text(pilot)
        for words in (
            "node0 ┃ L0 ┃ L1 ┃ E0 ┃",
            "256 000 samples",
            "nothing to say against it",
            "rltui.onnode.supervise",
        ):
            assert words in text
        assert "✓ ready: ⏎ launches" in text


async def test_errors_stand_in_the_way() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "G")
        await until(pilot, lambda: screen.review is not None and "32b" in screen.review.preset, "its review")
        await until_text(pilot, "✗ 1 error: cannot launch")
        await enter(pilot, "\n")
        await until(pilot, lambda: "errors stand in the way" in notices(pilot), "the reason")
        assert launches(fake) == []


async def test_enter_before_the_findings_does_nothing() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        fake.slow_s = HANG_S
        await enter(pilot, "n\n")
        await until(pilot, lambda: bool(notices(pilot)), "the reason")
        fake.gate.set()
        await settled(pilot)
        assert launches(fake) == []


async def test_an_override_is_checked_and_launched_with() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "strain.steps=5\n")
        await until(pilot, lambda: screen.review is not None and screen.review.overrides == ("train.steps=5",), "it")
        await enter(pilot, "strain.steps=7\n")
        await until(pilot, lambda: screen.review is not None and screen.review.overrides == ("train.steps=7",), "it")
        await until_text(pilot, "train.steps=7")
        await enter(pilot, "\n")
        await until(pilot, lambda: launches(fake) == [("local/grpo-tiny", "train.steps=7")], "the launch")


async def test_bad_input_is_a_finding_and_can_be_edited_or_dropped() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "strian.steps=5\n")
        await until_text(pilot, "did you mean train.steps?")
        assert screen.typing.overrides == ("trian.steps=5",)
        await enter(pilot, "e")
        await until(
            pilot, lambda: screen.prompt is not None and screen.prompt.text == screen.typing.overrides[-1], "the text"
        )
        await press(pilot, "escape")
        await enter(pilot, "d")
        await until_text(pilot, "nothing to say against it")
        assert screen.typing.overrides == ()


async def test_what_is_no_override_stays_in_the_prompt() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "strain.steps\n")
        await until(pilot, lambda: "an override is key.path=value" in notices(pilot), "the reason")
        assert screen.prompt is not None
        assert screen.prompt.text == "train.steps"
        await enter(pilot, "=9\n")
        await until(pilot, lambda: screen.typing.overrides == ("train.steps=9",), "the override")


async def test_a_draft_survives_escape() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "slengths.resp")
        await until(pilot, lambda: screen.prompt is not None and screen.prompt.text == "lengths.resp", "the draft")
        await press(pilot, "escape")
        assert screen.prompt is None
        await enter(pilot, "s")
        await until(
            pilot, lambda: screen.prompt is not None and screen.prompt.text == "lengths.resp", "the draft again"
        )


async def test_a_fix_is_one_key() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "f")
        await until(pilot, lambda: "no finding comes with a fix" in notices(pilot), "the reason")
        await enter(pilot, "jj")
        await until(pilot, lambda: screen.review is not None and bool(screen.review.findings), "the finding")
        await enter(pilot, "f")
        await until(pilot, lambda: screen.review is not None and not screen.review.findings, "the review without it")
        assert screen.typing.overrides == ("roles.rollout.engines=5",)


async def test_another_preset_does_not_inherit_overrides() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "strain.steps=5\n")
        await until(pilot, lambda: screen.typing.overrides != (), "the override")
        await enter(pilot, "j")
        await until(pilot, lambda: screen.review is not None and "coin" in screen.review.preset, "its review")
        assert screen.typing.overrides == ()
        assert screen.review.overrides == ()


async def test_the_filter_finds_presets() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "/32b\n")
        await until(pilot, lambda: [preset.name for preset in screen.presets.items] == [PRESETS[3].name], "the preset")
        await until(pilot, lambda: screen.review is not None and "32b" in screen.review.preset, "its review")


async def test_a_launch_that_fails_keeps_everything_as_it_was() -> None:
    fake = FakeCockpit(
        failing={"launch"}, error=UsageError("the run root is not writable", "set run_root in config.yaml")
    )
    async with cockpit(fake) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "strain.steps=5\n")
        await until(pilot, lambda: screen.review is not None and screen.review.overrides != (), "the review")
        await enter(pilot, "\n")
        await until(pilot, lambda: "the run root is not writable" in notices(pilot), "the error")
        assert "set run_root in config.yaml" in notices(pilot)
        assert pilot.app.screen is screen
        assert screen.typing.overrides == ("train.steps=5",)
        fake.failing.clear()
        await enter(pilot, "\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")


async def test_two_enters_launch_once() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await launching(pilot)
        fake.slow_s = 0.3
        await enter(pilot, "\n\n\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen), "the run")
        await settled(pilot)
        assert len(launches(fake)) == 1


async def test_readonly_shows_but_does_not_launch() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, readonly=True) as pilot:
        pilot.app.open("launch")
        await until_text(pilot, "read-only: cannot launch")
        await enter(pilot, "\n")
        await until(pilot, lambda: "read-only" in notices(pilot), "the reason")
        assert launches(fake) == []


async def test_the_command_opens_the_preset_it_names() -> None:
    async with cockpit() as pilot:
        await enter(pilot, ":launch guide-2/grpo-32b-16x4\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, LaunchScreen), "the launch screen")
        await until_text(pilot, "learner.gpus lists 8 bundles")


@pytest.mark.parametrize("size", [(40, 10), (60, 16), (80, 24), (200, 60)], ids=str)
async def test_the_screen_at_every_size(size: tuple[int, int]) -> None:
    async with cockpit(size=size) as pilot:
        await launching(pilot)
        await settled(pilot)
        assert "local/grpo-tiny" in screen_text(pilot)
        assert "ready" in screen_text(pilot)


@pytest.mark.parametrize(
    ("text", "problem"),
    [("a.b=1", ""), (" a.b = 1 ", ""), ("a.b", "key.path=value"), ("=1", "key.path=value"), ("a.b=", "no value")],
)
def test_the_form_of_an_override(text: str, problem: str) -> None:
    assert problem in override_problem(text)
    assert bool(problem) == bool(override_problem(text))


def test_a_newer_override_of_a_key_replaces_the_older() -> None:
    assert with_override(("a=1", "b=2"), "a=3") == ("b=2", "a=3")
    assert with_override((), "a=[1, 2]") == ("a=[1, 2]",)


async def test_what_is_typed_is_checked_before_enter_and_forgotten_with_escape() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "strian.steps=5")
        await until_text(pilot, "did you mean train.steps?")
        assert screen.prompt is not None
        assert screen.typing.overrides == ()
        assert not launches(fake)
        await press(pilot, "escape")
        await until_text(pilot, "nothing to say against it")
        assert screen.review.overrides == ()


async def test_tab_completes_keys_of_a_layout() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "sroles.rollout.mem\t")
        await until(pilot, lambda: screen.prompt.text == "roles.rollout.memory_utilization=", "the key")


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("train.ste", "train.steps="),
        ("train.st", "train.st"),  # train.stop too
        ("roles.ro", "roles.rollout."),
        ("train.steps=1", "train.steps=1"),
        ("train.steps=1 lengths.resp", "train.steps=1 lengths.response="),
        ("no.such", "no.such"),
    ],
)
def test_completion_of_overrides(text: str, completed: str) -> None:
    assert complete_override(text).text == completed


async def test_a_launch_in_hands_off_mode() -> None:
    fake = FakeCockpit()
    async with cockpit(fake) as pilot:
        await launching(pilot)
        await enter(pilot, "H")
        await until_text(pilot, "hands-off")
        await press(pilot, "enter")
        await until(pilot, lambda: any(call[0] == "launch" for call in fake.calls), "the launch")
    assert next(call for call in fake.calls if call[0] == "launch")[-1] == "hands-off"


class Waited(FakeCockpit):
    """Says when a run would start once ``answers`` is set."""

    answers = threading.Event()

    def outlook(self, preset: str, overrides: tuple[str, ...] = (), cluster: str = "local") -> LaunchOutlook:
        self.answers.wait(longest_s())
        return super().outlook(preset, overrides, cluster)


def outlooks(fake: FakeCockpit) -> list[tuple[str, ...]]:
    return [call[1:] for call in fake.calls if call[0] == "outlook"]


async def test_a_cluster_is_asked_for_the_start_once_the_fingers_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltui.tui.widgets.launch_panes.OUTLOOK_SETTLE_S", 0.3)
    monkeypatch.setattr("rltui.tui.widgets.launch_panes.OUTLOOK_APART_S", 0.3)
    fake = Waited()
    fake.answers.set()
    async with cockpit(fake, size=(120, 40)) as pilot:
        screen = await launching(pilot)
        await until_text(pilot, "nothing waits in front of it")
        assert outlooks(fake) == [("local/grpo-tiny",)]
        assert "nothing is different" in screen_text(pilot)
        fake.answers.clear()
        await enter(pilot, "strain.steps=7")
        await until(pilot, lambda: screen.review is not None and screen.review.overrides == ("train.steps=7",), "it")
        await until_text(pilot, "s ago, outdated")
        fake.answers.set()
        await until_text(pilot, "+ train.steps=7")
        assert "outdated" not in screen_text(pilot)
        assert outlooks(fake)[-1] == ("local/grpo-tiny", "train.steps=7")
        assert len(outlooks(fake)) < 5, "not at each key"
        await enter(pilot, "\n")
        monkeypatch.setattr("rltui.tui.widgets.launch_panes.OUTLOOK_SETTLE_S", 60.0)
        await enter(pilot, "j")
        await until(pilot, lambda: screen.review is not None and "coin" in screen.review.preset, "another preset")
        assert "ago" not in screen_text(pilot), "that was the start of another"


async def test_a_sweep_is_checked_run_by_run_and_launched_as_several_runs() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, size=(120, 40)) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "Strain.steps=5,x")
        await until_text(pilot, "✗ train.steps=x")
        await until_text(pilot, "1 error: cannot launch")
        assert screen.typing.sweep.words == ()
        await pilot.press("ctrl+u")
        await enter(pilot, "train.steps=5\n")
        await until(pilot, lambda: "is no sweep" in notices(pilot), "the reason")
        await enter(pilot, ",7,9 --at-once 2\n")
        await until_text(pilot, "launches 3 runs")
        assert "sweep, 2 at the same time" in screen_text(pilot)
        await enter(pilot, "H")
        await until(pilot, lambda: "hands-off mode goes without a sweep" in notices(pilot), "the reason")
        await enter(pilot, "\n")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen), "the list")
        assert launches(fake) == [("local/grpo-tiny", "--sweep", "train.steps=5,7,9", "--at-once", "2")]
        await until_text(pilot, "×3")


async def test_a_sweep_is_edited_and_dropped() -> None:
    async with cockpit(size=(120, 40)) as pilot:
        screen = await launching(pilot)
        await enter(pilot, "Strain.steps=5,7\n")
        await until_text(pilot, "launches 2 runs")
        await enter(pilot, "e")
        await until(pilot, lambda: screen.prompt is not None and screen.prompt.text == "train.steps=5,7", "the text")
        await press(pilot, "escape")
        await enter(pilot, "d")
        await until_text(pilot, "ready: ⏎ launches")
        assert not screen.typing.is_any


@pytest.mark.parametrize("key", ["q", "escape"])
async def test_q_and_escape_leave_the_script_before_the_screen(key: str) -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await press(pilot, "v")
        await until_text(pilot, "job script")
        await press(pilot, key)
        await until_text(pilot, "findings")
        assert pilot.app.screen is screen
        await press(pilot, key)
        assert pilot.app.screen is not screen


async def test_where_no_preset_is_left_no_job_script_is_waited_for() -> None:
    async with cockpit() as pilot:
        await launching(pilot)
        await press(pilot, "v")
        await until_text(pilot, "job script")
        await enter(pilot, "/zzz\n")
        await until_text(pilot, "no preset is chosen")


async def test_escape_clears_the_filter_of_presets_before_it_leaves() -> None:
    async with cockpit() as pilot:
        screen = await launching(pilot)
        await enter(pilot, "/zzz\n")
        await until(pilot, lambda: not screen.presets.items, "the filter")
        await press(pilot, "escape")
        assert screen.presets.items
        assert pilot.app.screen is screen
