"""What is shown adds up, says all of a reason, and does not alarm where nothing is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from canned_launch import script_review
from canned_runs import NOW, RUNS, log_lines, snapshot
from fake_cockpit import FakeCockpit
from pictures import cockpit, enter, flushed, notices, press, screen_text, settled, until, until_text

from rltui.service.run_filter import matches
from rltui.tui import commands, formats, theme
from rltui.tui.app import CockpitApp
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.views import actors, charts, launch, metrics, overview, parts, queues, stage
from rltui.tui.widgets import log_pane
from rltui.watch.owners import ActorSnapshot
from rltui.watch.runs import RATES
from rltui.watch.snapshots import (
    EndSnapshot,
    LogSnapshot,
    MetricsSnapshot,
    QueueSnapshot,
    RunIdentity,
    RunSnapshot,
    StageSnapshot,
    StatusSnapshot,
)

if TYPE_CHECKING:
    from pathlib import Path

TIMES = {
    "time/total": 20.0,
    "time/generate": 8.0,
    "time/teacher": 4.0,
    "time/critic": 3.0,
    "time/measure": 2.0,
    "time/train": 1.0,
    "time/engine_idle": 6.0,
}


def test_the_bars_of_a_step_add_up_with_phases_that_nobody_named() -> None:
    found = parts.step_parts(TIMES)
    assert [word for word, _ in found] == ["generate", "train", "critic", "measure", "teacher", "other"]
    assert sum(seconds for _, seconds in found) == pytest.approx(TIMES["time/total"])
    shares = [int(row.plain.split()[-1].rstrip("%")) for row in parts.step_rows(TIMES, 60, UNICODE)]
    assert sum(shares) == pytest.approx(100, abs=3)
    few = [row.plain.split() for row in parts.step_rows(TIMES, 60, UNICODE, height=3)]
    assert [row[0] for row in few] == ["generate", "teacher", "other"], "what has no row of its own is in the rest"
    assert sum(int(row[-1].rstrip("%")) for row in few) == pytest.approx(100, abs=2)


def test_the_speed_of_a_run_is_the_same_series_in_the_list_and_beside_it() -> None:
    picture = snapshot(RUNS[0])
    series = {name: values for name, values in picture.metrics.series.items() if "tokens" in name}
    assert len(series) == 2
    assert charts.SPEEDS == RATES
    text = "\n".join(line.plain for line in overview.overview(picture, 80, 30, UNICODE, ()))
    assert "learner tok/s" in text
    assert "actor tok/s" not in text


def test_an_ended_run_has_neither_dead_actors_in_red_nor_queues() -> None:
    run = next(run for run in RUNS if run.state == "finished")
    dead = tuple(
        ActorSnapshot(actor_id=str(n), class_name="Engine", name=f"engine {n}", state="DEAD", death_cause="exited")
        for n in range(3)
    )
    status = StatusSnapshot(queues=(QueueSnapshot(name="Prompt Queue", current=0, maxsize=32),))
    picture = msgspec.structs.replace(snapshot(run), actors=dead, status=status)
    rows = actors.tab(picture, 80, UNICODE)
    assert not any(role == "bad" for row in rows for _, role in row.line.spans)
    assert any("the run has ended" in row.plain for row in actors.tab_head(picture, 80, UNICODE))
    text = "\n".join(row.plain for row in queues.tab(picture, 80, UNICODE))
    assert "prompt" not in text
    assert "the run has ended" in text
    failed = msgspec.structs.replace(picture, summary=next(run for run in RUNS if run.state == "failed"))
    assert any(role == "bad" for row in actors.tab(failed, 80, UNICODE) for _, role in row.line.spans)


@pytest.mark.parametrize(
    ("state", "log", "metric"),
    [
        ("starting", "nothing has been printed yet", "no steps yet"),
        ("running", "nothing has been printed yet", "was seen, and no number of it"),
        ("finished", "nothing was printed", "was seen, and no number of it"),
    ],
)
async def test_of_an_ended_run_nothing_is_expected_any_more(state: str, log: str, metric: str) -> None:
    class Silent(FakeCockpit):
        def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
            return msgspec.structs.replace(super().watch(run), log=LogSnapshot(), metrics=MetricsSnapshot())

    fake = Silent()
    async with cockpit(fake, open_run=next(run.run_id for run in RUNS if run.state == state)) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await until_text(pilot, log)
        await press(pilot, "5")
        await until_text(pilot, metric)


def test_a_run_that_ended_before_its_first_step_awaits_none() -> None:
    run = msgspec.structs.replace(next(run for run in RUNS if run.state == "failed"), stage=StageSnapshot())
    assert metrics.no_series(run) == "there was no training step"


def test_the_overview_of_a_run_without_reward_or_speed_shows_what_it_measures() -> None:
    def told(*names: str) -> tuple[str, str]:
        series = dict.fromkeys(names, (1.0, 2.0))
        run = msgspec.structs.replace(RUNS[0], tokens_per_second_history=())
        return overview.two_series(RunSnapshot(summary=run, metrics=MetricsSnapshot(steps=(1, 2), series=series)))

    assert told("loss", "grad_norm") == ("loss", "grad_norm")
    assert told("loss") == ("loss", charts.SPEEDS[0])
    assert told("reward", "loss") == ("reward", "loss")
    assert told("reward", "loss", charts.TOKENS) == ("reward", charts.TOKENS)
    assert told() == (charts.REWARD, charts.SPEEDS[0])


async def test_of_a_run_that_is_still_being_read_nothing_is_said_to_be_missing() -> None:
    class Slow(FakeCockpit):
        def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
            return RunSnapshot(summary=super().watch(run, log).summary, taken_at=NOW)

    run = next(run for run in RUNS if run.state == "running" and run.tokens_per_second_history)
    async with cockpit(Slow(), open_run=run.run_id) as pilot:
        await until_text(pilot, "reading …")
        assert "no steps" not in screen_text(pilot)
        for tab in "24567":
            await press(pilot, tab)
            await settled(pilot)
            assert "reading …" in screen_text(pilot)
            assert " yet" not in screen_text(pilot)


def test_a_run_that_waits_stands_at_queued_whatever_its_files_have_said() -> None:
    run = next(run for run in RUNS if run.stage.stage == "training")
    for stage_of in ("submitted", "loading"):
        waiting = msgspec.structs.replace(run, state="queued", stage=msgspec.structs.replace(run.stage, stage=stage_of))
        assert "✓submitted ▶queued ·preflight" in " ".join(stage.rail(waiting, 100, UNICODE).plain.split())


def test_an_event_is_told_to_its_end_in_few_columns() -> None:
    event = {"time": NOW, "kind": "stage", "text": "asked to save and end by SIGUSR2; there is no checkpoint yet"}
    rows = parts.event_rows(event, NOW, 40)
    assert " ".join(" ".join(row.plain for row in rows).split()) == f"+0s stage {event['text']}"
    assert all(len(row.plain) <= 40 for row in rows)


def test_what_an_event_says_for_programs_only_is_left_to_json() -> None:
    event = {"time": NOW, "kind": "roles", "text": "learner 0", "roles": [{"pid": 7}], "step": 3}
    [row] = parts.event_rows(event, NOW, 80)
    assert row.plain.split() == ["+0s", "roles", "learner", "0", "step=3"]


def test_what_speaks_against_a_launch_stands_before_its_drawing() -> None:
    drawn = [row.plain for row in launch.review_lines(None, script_review("train.sh", (), "hpc"), (), 40, UNICODE)]
    [warnings] = [number for number, row in enumerate(drawn) if "─ warnings ─" in row]
    assert warnings < next(number for number, row in enumerate(drawn) if "─ layout ─" in row)


def test_a_run_that_was_adopted_shows_no_stage_that_nobody_saw() -> None:
    run = next(run for run in RUNS if run.stage.stage == "training")
    assert "✓ray-up" in stage.rail(run, 100, UNICODE).plain
    seen = msgspec.structs.replace(run.stage, history=({"stage": "training", "at": NOW - 5},))
    adopted = msgspec.structs.replace(run, is_adopted=True, stage=seen)
    assert stage.rail(adopted, 100, UNICODE).plain.split() == ["▶training", "·ended"]


def test_the_reason_of_a_failure_is_told_to_its_end() -> None:
    reason = "CUDA out of memory in engine 3 on nid010798: 61.2 GiB wanted by the KV cache, 58.9 GiB free of 95.6 GiB"
    run = next(run for run in RUNS if run.state == "failed")
    run = msgspec.structs.replace(run, end=EndSnapshot(outcome="failed", exit_code=1, reason=reason))
    text = " ".join(" ".join(row.plain.split()) for row in stage.verdict(run, 60, UNICODE))
    assert reason in text
    whole = overview.overview(snapshot(run), 80, 24, UNICODE, ())
    assert "58.9 GiB free of 95.6 GiB" in " ".join(" ".join(row.plain.split()) for row in whole)


def test_a_console_without_braille_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "linux")
    assert CockpitApp(FakeCockpit()).glyphs is ASCII
    monkeypatch.setenv("TERM", "xterm-256color")
    assert CockpitApp(FakeCockpit()).glyphs is UNICODE


async def test_a_readonly_cockpit_opens_launch_and_refuses_to_launch() -> None:
    async with cockpit(readonly=True) as pilot:
        await press(pilot, "n")
        assert pilot.app.screen.crumbs()[0] == "launch"
        assert "read-only" in pilot.app.screen.KEYS.find("submit").off(pilot.app.screen.key_context())


async def test_the_newest_failure_is_two_keys_away_and_times_are_told() -> None:
    async with cockpit(size=(100, 24)) as pilot:
        screen = pilot.app.screen
        assert "AGE" in screen_text(pilot)
        await press(pilot, "t")
        assert "STARTED" in screen_text(pilot)
        assert formats.moment(screen.table.selected.created_at) in screen_text(pilot)
        await press(pilot, "F")
        ends = [run.end.at for run in screen.table.rows]
        assert ends == sorted(ends, reverse=True)
        assert {run.state for run in screen.table.rows} == {"failed"}
        await press(pilot, "/")
        await until(pilot, lambda: screen.prompt is not None)
        await enter(pilot, "since:900d\n")
        assert screen.table.query_words == "state:failed since:900d", (
            "what is typed behind a filter is a word of its own"
        )
        await press(pilot, "!")
        assert pilot.app.screen.identity.run_id == screen.table.rows[0].run_id


async def test_the_list_is_sorted_by_shifted_letters_and_escape_sorts_as_before() -> None:
    async with cockpit() as pilot:
        table = pilot.app.screen.table
        before = list(table.rows)
        await press(pilot, "R")
        rewards = [run.reward for run in table.rows if run.reward is not None]
        assert rewards == sorted(rewards, reverse=True)
        assert table.rows != before
        await press(pilot, "escape")
        assert table.rows == before


@pytest.mark.parametrize(("query", "fits"), [("since:2h", True), ("since:30m", False), ("since:soon", True)])
def test_a_filter_by_time(query: str, fits: bool) -> None:
    run = next(run for run in RUNS if run.state == "finished")
    run = msgspec.structs.replace(run, created_at=NOW - 90_000, end=EndSnapshot(outcome="finished", at=NOW - 4000))
    assert matches(run, query, NOW) is fits


async def test_notices_are_few_and_go_with_escape() -> None:
    async with cockpit() as pilot:
        for number in range(5):
            pilot.app.say(f"notice {number}\n" + "more\n" * 9, "error")
        await flushed(pilot)
        assert len(pilot.app._notifications) <= 3
        await press(pilot, "escape")
        assert not pilot.app._notifications


def test_an_unknown_command_names_the_nearest_only() -> None:
    problem = commands.parse("lanch x").problem
    assert "launch" in problem
    assert len(problem) < 80


async def test_the_theme_is_kept_for_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path))
    async with cockpit() as pilot:
        await enter(pilot, ":theme light\n")
        assert pilot.app.theme == theme.LIGHT
    async with cockpit() as pilot:
        assert pilot.app.theme == theme.LIGHT


@pytest.mark.parametrize(
    ("lines", "end_bytes", "tail"),
    [
        (("x" * 99,) * 2000, 165_000_000, True),
        (("x" * 199,) * 1310, 400_000, True),
        (("x" * 99,) * 1000, 100_000, False),
        (("x" * 299,) * 1500, 450_000, False),
        ((), 0, False),
    ],
)
def test_whether_a_log_is_seen_from_its_beginning(lines: tuple[str, ...], end_bytes: int, tail: bool) -> None:
    assert log_pane.is_tail(lines, end_bytes) is tail


class LongLog(FakeCockpit):
    """A log of which only the end is at hand."""

    def watch(self, run: RunIdentity, log: str = "") -> RunSnapshot:
        picture = super().watch(run, log)
        return msgspec.structs.replace(picture, log=msgspec.structs.replace(picture.log, offset=165_000_000))


async def test_a_search_without_a_hit_stays_where_it_was_begun() -> None:
    async with cockpit(FakeCockpit(lines=log_lines(300)), open_run=RUNS[0].run_id) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await until_text(pilot, "step 299 ")
        screen = pilot.app.screen
        await enter(pilot, "/kv cache")
        await until(pilot, lambda: screen.tabs.log_pane.hit is not None, "the hit of what is typed so far")
        assert not screen.tabs.log_pane.following
        await enter(pilot, "z\n")
        await until_text(pilot, "kv cachez 0 lines")
        assert screen.tabs.log_pane.following
        assert "step 299 " in screen_text(pilot)


async def test_a_search_in_the_end_of_a_long_log_goes_on_in_all_of_it() -> None:
    fake = LongLog()
    async with cockpit(fake, open_run=RUNS[0].run_id) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await until_text(pilot, "end of 165 MB")
        await enter(pilot, "/kv cache\n")
        await until_text(pilot, "4 here, 21 in all")
        await enter(pilot, "NNNN")
        await until(pilot, lambda: any(call[0] == "log_part" for call in fake.calls), "what is before the end")
        wanted = [number for number, text in enumerate(log_lines(2000), 1) if "KV cache" in text]
        (call,) = (call for call in fake.calls if call[0] == "log_part")
        assert call[2:] == ("out.log", str(wanted[-5]), str(100 * (wanted[-5] - 1)))
        await until_text(pilot, f"out.log:{wanted[-5]}")
        pane = pilot.app.screen.tabs.log_pane
        assert (pane.sought.words, "KV cache" in pane.line_to_copy) == ("kv cache", True)
        await enter(pilot, "N")  # it is among the lines that are there
        assert pane.part.first_line + pane.hit == wanted[-6]
        await enter(pilot, "nnnnn")
        await flushed(pilot)
        assert "KV cache" in pane.line_to_copy
        await press(pilot, "escape")
        assert not pane.sought.pattern


async def test_what_is_only_far_before_the_end_is_shown_at_once_and_what_is_nowhere_said() -> None:
    async with cockpit(LongLog(lines=("nothing",) * 2000), open_run=RUNS[0].run_id) as pilot:
        await settled(pilot)
        await press(pilot, "6")
        await enter(pilot, "/no-such-word\n")
        await until_text(pilot, "0 in all")
        await press(pilot, "escape")
        await enter(pilot, "/level:warning kv\n")
        await until_text(pilot, "21 in all")
        await until(pilot, lambda: pilot.app.screen.tabs.log_pane.part is not None, "the newest one")
        assert "WARNING" in pilot.app.screen.tabs.log_pane.line_to_copy
        await press(pilot, "escape")
        await enter(pilot, "/level:terrible\n")
        await until(pilot, lambda: "There is no level 'terrible'" in notices(pilot), "the reason")


@pytest.mark.parametrize(("num_bytes", "words"), [(0, "0 B"), (9_400, "9.4 kB"), (165e6, "165 MB"), (1.2e9, "1.2 GB")])
def test_sizes(num_bytes: float, words: str) -> None:
    assert formats.size(num_bytes) == words


@pytest.mark.parametrize(("width", "words"), [(80, "7Events 8History"), (66, "7Even 8Hist"), (40, " 7  8  9 ")])
async def test_names_of_tabs_get_shorter_before_they_go(width: int, words: str) -> None:
    async with cockpit(FakeCockpit(), (width, 24), open_run=RUNS[0].run_id) as pilot:
        await settled(pilot)
        assert words in screen_text(pilot)
        assert "1Overview" in screen_text(pilot).replace(" ", "")


def test_a_run_that_waits_without_a_scheduler_says_for_what_on_the_tab_of_queues() -> None:
    waiting = next(run for run in RUNS if run.state == "queued" and run.job is None)
    rows = "\n".join(row.plain for row in queues.tab(snapshot(waiting), 80, UNICODE))
    assert "it waits           2 ahead of it, 3 CPU slots wanted" in rows


def test_a_cancelled_run_says_how_it_goes_on_and_no_code_of_a_signal() -> None:
    cancelled = next(run for run in RUNS if run.state == "cancelled")
    rows = "\n".join(row.plain for row in stage.verdict(cancelled, 80, UNICODE))
    assert "r starts it again, from a checkpoint if it has one" in rows
    assert "143" not in rows
    adopted = msgspec.structs.replace(cancelled, is_adopted=True)
    assert not any("starts it again" in row.plain for row in stage.verdict(adopted, 80, UNICODE))


async def test_another_log_has_nothing_of_what_was_found_in_the_one_before() -> None:
    async with cockpit(LongLog(), open_run=RUNS[0].run_id) as pilot:
        await settled(pilot)
        await enter(pilot, "6/kv cache\n")
        await until_text(pilot, "4 here, 21 in all")
        await enter(pilot, "oj\n")
        await until_text(pilot, "[*]")
        assert "in all" not in screen_text(pilot).replace("all logs", "")


async def test_the_list_shows_each_run_with_its_own_output_whatever_log_was_chosen_in_one() -> None:
    fake = FakeCockpit()
    async with cockpit(fake, open_run=RUNS[0].run_id) as pilot:
        await settled(pilot)
        await enter(pilot, "6oj\n")
        await until_text(pilot, "[*]")
        await enter(pilot, "qj")
        await until(pilot, lambda: any(call[:2] == ("watch", RUNS[1].run_id) for call in fake.calls), "the next run")
        assert not [call for call in fake.calls if call[:3] == ("watch", RUNS[1].run_id, "*")]
