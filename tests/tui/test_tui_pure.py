"""The pure parts of the cockpit: text, numbers, curves, sharing of rows, time to go, refresh, commands, logs."""

from __future__ import annotations

import math
import queue
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from canned_runs import NOW, RUNS, metrics, summary
from textual.geometry import Region

from rltui.onnode.rundir import STAGES
from rltui.tui import braille, commands, compose, formats, progress, refresh, spans
from rltui.tui.glyphs import ASCII, UNICODE
from rltui.tui.searches import Searches
from rltui.tui.widgets import log_pane
from rltui.tui.widgets.pane import changed_part
from rltui.watch.log_search import LogHit, LogQuery, Searched, read_query
from rltui.watch.snapshots import EndSnapshot, MetricsSnapshot, RunIdentity

BELL, ESC = "\x07", "\x1b"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("plain", "plain"),
        (f"{ESC}[31mred{ESC}[0m", "red"),
        (f"{ESC}]0;title{BELL}after", "after"),
        (f"{ESC}]52;c;aGk={ESC}\\after", "after"),
        (f"{ESC}]8;;http://x{ESC}\\link{ESC}]8;;{ESC}\\", "link"),
        (f"{ESC}Pq#0{ESC}\\x", "x"),
        (f"{ESC}cx", "x"),
        (f"a{ESC}", "a"),
        ("tab\there", "tab    here"),
        ("\r\b\x00\x7f\x9b31m", "31m"),
        ("one\ntwo", "one two"),
        ("\u202eabc\u202c\u200b\ufeff\u2066", "abc"),
        ("\udcff", ""),
        ("[red]as it is[/]", "[red]as it is[/]"),
        ("日本語", "日本語"),
    ],
)
def test_nothing_that_could_act_is_left(text: str, clean: str) -> None:
    assert spans.clean(text) == clean


@pytest.mark.parametrize("width", range(12))
@pytest.mark.parametrize("text", ["short", "日本語テスト", "a日b本c語", "", f"{ESC}[1mbold text that is long"])
def test_clip_and_pad_keep_the_width(text: str, width: int) -> None:
    assert spans.cell_width(spans.clip(text, width)) <= width
    assert spans.cell_width(spans.clip_middle(text, width)) <= width
    assert spans.cell_width(spans.clip_start(text, width)) <= width
    assert spans.cell_width(spans.pad(text, width)) == width
    assert spans.cell_width(spans.pad(text, width, right=True)) == width


def test_names_that_differ_at_their_end_stay_apart() -> None:
    assert spans.clip_middle("grpo-7b-2x4-uneven-91c0", 14) == "grpo-7b-2…91c0"


def test_of_a_preset_the_name_is_kept_rather_than_the_family() -> None:
    assert spans.clip_start("open-instruct-32b/math-16x4-sharded", 24) == "…t-32b/math-16x4-sharded"
    assert spans.clip_start("local/grpo-tiny", 15) == "local/grpo-tiny"


@pytest.mark.parametrize("width", [0, 3, 8, 20, 80])
def test_a_rule_is_as_wide_as_its_pane(width: int) -> None:
    row = spans.rule([("a long name of a pane", "title")], [("and its state", "dim")], width, UNICODE)
    assert spans.width_of(row.spans) == width


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0"),
        (999, "999"),
        (999.7, "1.0k"),
        (9412, "9.4k"),
        (38104, "38.1k"),
        (99960, "100k"),
        (381040, "381k"),
        (1.2e6, "1.2M"),
        (2.5e9, "2.5G"),
        (-1500, "-1.5k"),
    ],
)
def test_counts(value: float | None, text: str) -> None:
    assert formats.count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (-3, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m00"),
        (3599, "59m59"),
        (3600, "1h00"),
        (8040, "2h14"),
        (86399, "23h59"),
        (86400, "1d00h"),
        (86400 * 12, "12d"),
        (math.inf, "–"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


@pytest.mark.parametrize("exponent", range(-9, 13))
def test_numbers_never_outgrow_their_column(exponent: int) -> None:
    for lead in (1.0, 4.4449, 9.9999):
        value = lead * 10.0**exponent
        assert len(formats.metric(value)) <= 7
        assert len(formats.count(value)) <= 5 or value >= 1e15
        assert len(formats.duration(value)) <= 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.8124, "0.812"),
        (-9.999, "-9.999"),
        (9.9996, "10.00"),
        (-99.999, "-100.0"),
        (123.456, "123.5"),
        (-10000.5, "-10.0k"),
        (-1234.5, "-1.2k"),
    ],
)
def test_a_large_reward_loses_decimals_and_not_its_size(value: float, text: str) -> None:
    assert formats.reward(value) == text
    assert len(text) <= 6


def test_resample_takes_means_and_keeps_gaps() -> None:
    assert braille.resample([1, 3, 5, 7], 2) == [2, 6]
    assert braille.resample([1, 2], 4) == [1, 1, 2, 2]
    gap = braille.resample([1, math.nan, math.nan, 4], 4)
    assert gap[0] == 1
    assert math.isnan(gap[1])
    assert all(math.isnan(value) for value in braille.resample([], 3))


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ([], (0.0, 1.0)),
        ([math.nan], (0.0, 1.0)),
        ([0.0, 0.0], (0.0, 1.0)),
        ([5.0], (0.0, 10.0)),
        ([-2.0], (-4.0, 0.0)),
        ([0.1, 0.83], (0.0, 1.0)),
        ([7000, 9800], (7000, 10000)),
        ([-0.02, 0.03], (-0.02, 0.04)),
    ],
)
def test_axes_have_round_ends(values: list[float], limits: tuple[float, float]) -> None:
    assert braille.bounds(values) == pytest.approx(limits)


def test_a_ramp_fills_half_of_its_dots() -> None:
    rows = braille.area([float(i) for i in range(64)], 32, 4, 0.0, 63.0, UNICODE)
    dots = sum((ord(cell) & 0xFF).bit_count() for row in rows for cell in row if cell != " ")
    assert [len(row) for row in rows] == [32] * 4
    assert rows[0].strip() == rows[0].lstrip() != ""  # only the right end reaches the top
    assert dots == pytest.approx(64 * 16 / 2, rel=0.1)


def test_curves_in_ascii_are_ascii() -> None:
    rows = braille.area([1.0, 5.0, 3.0], 10, 3, 0.0, 5.0, ASCII)
    assert all(row.isascii() and len(row) == 10 for row in rows)
    assert braille.sparkline([1.0, 2.0], 6, ASCII).isascii()


def test_sparkline_of_nothing_is_dots() -> None:
    assert braille.sparkline([], 8, UNICODE) == "·" * 8
    assert braille.sparkline([math.nan], 8, UNICODE) == "·" * 8
    assert braille.sparkline([0.0, 8.0], 2, UNICODE) == "▁█"


@pytest.mark.parametrize(("share", "full"), [(-1, 0), (0, 0), (0.5, 5), (1, 10), (7, 10), (math.nan, 0)])
def test_bars_stay_in_their_bounds(share: float, full: int) -> None:
    done, rest = braille.bar(share, 10, UNICODE)
    assert (len(done), len(rest)) == (full, 10 - full)


def section(least: int, wanted: int, rank: int = 0, grows: bool = False) -> compose.Section:
    return compose.Section((), (), lambda w, h: [spans.line(f"{w}x{h}")] * h, least, wanted, rank, grows)


@pytest.mark.parametrize(
    ("height", "rows"),
    [(0, [0, 0, 0]), (2, [2, 0, 0]), (5, [3, 2, 0]), (7, [4, 3, 0]), (9, [4, 3, 2]), (20, [4, 3, 13])],
)
def test_rows_go_to_what_must_be_there_then_to_what_is_wanted(height: int, rows: list[int]) -> None:
    sections = [section(1, 3), section(1, 2, rank=1), section(1, 4, rank=compose.EXTRA, grows=True)]
    assert compose.share_rows(sections, height) == rows


def test_sections_with_nothing_to_show_take_no_row() -> None:
    assert compose.share_rows([section(1, 0), section(1, 1)], 10) == [0, 2]


@pytest.mark.parametrize("width", [20, 61, 80])
def test_columns_fill_the_width(width: int) -> None:
    row = compose.abreast([[section(1, 2)], [section(1, 3)]], (3, 2), UNICODE)
    lines = row.body(width, 4)
    assert {spans.width_of(line.spans) for line in lines} == {width}


def test_the_rail_is_made_of_the_stages_of_the_run_directory() -> None:
    assert set(STAGES) - set(progress.STAGE_RAIL) == {"saving"}


def test_a_failed_run_stands_where_it_failed() -> None:
    failed = next(run for run in RUNS if run.state == "failed")
    assert progress.stage_shown(failed) == "training"
    assert progress.end_words(failed).startswith("CUDA out of memory")
    assert progress.state_detail(failed).startswith("cuda_oom_gpu_shared  CUDA out of memory")


@pytest.mark.parametrize(
    ("state", "outcome", "exit_code", "reason", "words"),
    [
        ("finished", "finished", 0, "", "10 steps"),
        ("failed", "failed", 9, "", "exit 9"),
        ("failed", "failed", 9, "out of memory", "out of memory"),
        ("cancelled", "cancelled", 143, "", "at step 10"),
        ("lost", "lost", None, "power cut", "power cut"),
    ],
)
def test_verdicts(state: str, outcome: str, exit_code: int | None, reason: str, words: str) -> None:
    end = EndSnapshot(outcome=outcome, exit_code=exit_code, reason=reason, at=NOW)
    assert progress.state_detail(summary("r-1", state, "ended", 60, step=10, steps=10, end=end)) == words


def test_time_to_go_is_the_recent_pace() -> None:
    run = RUNS[0]
    assert progress.remaining_s(run, metrics(run), NOW) == pytest.approx(0.29 * (1000 - 412))
    began = progress.reached(run)["training"]
    assert progress.remaining_s(run, MetricsSnapshot(), began + 412) == pytest.approx(1000 - 412)
    done = msgspec.structs.replace(run, state="finished")
    assert progress.remaining_s(done, metrics(run), NOW) is None


def test_elapsed_ends_with_the_run() -> None:
    failed = next(run for run in RUNS if run.state == "failed")
    assert progress.elapsed_s(failed, NOW + 9999) == pytest.approx(2460 - 300)
    assert progress.elapsed_s(RUNS[0], NOW + 6) == pytest.approx(140)


@pytest.mark.parametrize(
    ("source", "live", "failures", "took_s", "seconds"),
    [
        ("runs", True, 0, 0.0, 1.0),
        ("runs", False, 0, 0.0, 5.0),
        ("peek", True, 0, 0.0, 1.0),
        ("run", True, 0, 0.0, 0.5),
        ("run", False, 0, 0.0, 5.0),
        ("run", True, 1, 0.0, 1.0),
        ("runs", True, 3, 0.0, 8.0),
        ("runs", True, 99, 0.0, 30.0),
        ("runs", True, 0, 4.0, 4.0),
        ("runs", True, 0, 400.0, 30.0),
    ],
)
def test_refresh_interval(source: refresh.Source, live: bool, failures: int, took_s: float, seconds: float) -> None:
    assert refresh.refresh_interval_s(source, live, failures, took_s) == seconds


@pytest.mark.parametrize(("age_s", "word"), [(0, "fresh"), (2.9, "fresh"), (3.1, "late"), (9.9, "late"), (11, "lost")])
def test_freshness(age_s: float, word: str) -> None:
    assert refresh.freshness(age_s, 1.0) == word


@pytest.mark.parametrize(
    ("text", "verb", "argument", "problem"),
    [
        ("", "", "", ""),
        ("launch", "launch", "", ""),
        ("lau local/x", "launch", "local/x", ""),
        ("la local/x", "", "", "launch, layouts?"),
        ("cancel grpo", "cancel", "grpo", ""),
        ("q", "quit", "", ""),
        ("o", "", "", "open what"),
        ("zap", "", "", "no command"),
        ("quit now", "", "", "takes nothing"),
        ("open a b", "", "", "takes one run"),
    ],
)
def test_commands(text: str, verb: str, argument: str, problem: str) -> None:
    command = commands.parse(text)
    assert (command.verb, command.argument) == (verb, argument)
    assert problem in command.problem
    assert bool(problem) == bool(command.problem)


@pytest.mark.parametrize(
    ("text", "completed"),
    [
        ("lau", "launch "),
        ("la", "la"),
        ("dra", "draw "),
        ("show gr", "show grpo-"),
        ("zzz", "zzz"),
        ("open gr", "open grpo-"),
        ("open grpo-a", "open grpo-abc"),
        ("open x", "open x"),
        ("", ""),
    ],
)
def test_completion(text: str, completed: str) -> None:
    assert commands.complete(text, {"run": ["grpo-abc", "grpo-b"]}).text == completed


def test_a_name_is_resolved_only_where_it_is_certain() -> None:
    one, two, coin = (RunIdentity("local", run_id) for run_id in ("grpo-1", "grpo-12", "coin-1"))
    known = [one, two, coin, there := RunIdentity("hpc", "coin-1")]
    assert commands.resolve("grpo-1", known) == [one]
    assert commands.resolve("grpo", known) == [one, two]
    assert commands.resolve("coin-1", known) == [coin, there]
    assert commands.resolve("co@hpc", known) == [there]
    assert commands.resolve("x", known) == commands.resolve("", known) == commands.resolve("@hpc", known) == []
    assert commands.no_run("coin-1", [coin, there]) == "'coin-1' could be coin-1@local, coin-1@hpc"


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("", "ab", 0),
        ("abc", "abc", 0),
        ("abc", "abcd", 0),
        ("abc", "bcd", 1),
        ("aab", "aabaab", 0),
        ("abc", "xyz", 3),
        ("abc", "", 3),
        ("abcd", "cd", 2),
    ],
)
def test_a_sliding_tail(old: str, new: str, gone: int) -> None:
    assert log_pane.dropped(tuple(old), tuple(new)) == gone


def test_hits_go_around() -> None:
    found = log_pane.hits(["Error one", "fine", "an ERROR"], read_query("error"))
    assert found == [0, 2]
    assert log_pane.next_hit(found, 0, 1) == 2
    assert log_pane.next_hit(found, 2, 1) == 0
    assert log_pane.next_hit(found, 0, -1) == 2
    assert log_pane.next_hit([], 0, 1) is None


def test_hits_are_marked_as_text() -> None:
    marked = log_pane.marked("an [b]Error[/b] here", "error", "text", 80, "…")
    assert ("Error", "match") in marked
    assert "".join(text for text, _ in marked) == "an [b]Error[/b] here"


@pytest.mark.parametrize("width", [9, 12, 40, 200])
def test_all_of_a_line_that_has_changed_is_painted_also_where_it_is_longer_than_the_pane(width: int) -> None:
    before, after = (spans.line(" ", (word, "title"), ("x" * 50, "text")) for word in ("replay", "paused"))
    assert changed_part(before, after, 3, width) == Region(1, 3, min(6, width - 1), 1)
    assert not changed_part(before, before, 3, width)


def test_a_path_that_is_longer_than_a_line_goes_on_behind_one_of_its_marks() -> None:
    text = "saved to /scratch/project_12/alice/runs/grpo-7b/attempts/01/checkpoints/step-000500 in 3 s"
    rows = ["".join(piece for piece, _ in row.spans) for row in spans.wrapped(text, 31, " ", "text")]
    assert rows == [
        " saved to",
        " /scratch/project_12/alice/",
        " runs/grpo-7b/attempts/01/",
        " checkpoints/step-000500 in 3 s",
    ]
    assert [row.spans[1][0] for row in spans.wrapped("x" * 25, 11, " ", "text")] == ["x" * 10, "x" * 10, "x" * 5]


def test_a_search_that_was_given_up_for_the_same_words_does_not_say_that_it_has_seen_all() -> None:
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def pieces(_: str, __: str, query: LogQuery) -> Iterator[Searched]:
        yield Searched((LogHit("out.log", 1, 0, "loss"),), 10, 100)
        if query is first:
            searches.log("run", "out.log", read_query("loss"))
        yield Searched((), 20, 100)

    cockpit = cast("Any", SimpleNamespace(search_log=pieces))
    searches, first = Searches(cockpit, told.put, lambda _, call: told.put(call())), read_query("loss")
    searches.log("run", "out.log", first)
    assert [told.get(timeout=60).share for _ in range(5)] == [0.1, 0.2, 0.1, 0.2, 1.0]
