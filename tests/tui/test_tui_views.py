"""The views at every size: no line wider than the terminal, columns in line, ASCII when asked, nothing hostile left."""

from __future__ import annotations

import msgspec
import pytest
from canned_launch import PRESETS, review
from canned_runs import HOSTILE_LOG, HOSTILE_RUNS, NOW, RUNS, gpu_hosts, snapshot, summary

from rltui.service.run_filter import matches
from rltui.tui import progress
from rltui.tui.glyphs import ASCII, UNICODE, Glyphs
from rltui.tui.screens.confirm import confirm_lines
from rltui.tui.screens.help import help_lines
from rltui.tui.screens.run import RunScreen
from rltui.tui.spans import Line, clean, width_of
from rltui.tui.views import actors, bars, charts, gpus, hosts, launch, metrics, overview, parts, queues, runs
from rltui.tui.views.chart_view import ChartView
from rltui.watch.node_samples import EngineSample
from rltui.watch.owners import OUR_PATTERNS, ROLE_NAMES, ActorSnapshot, Owners, role_letter, title_letter
from rltui.watch.snapshots import EndSnapshot, MetricsSnapshot, RunSnapshot, RunsSnapshot, StatusSnapshot

SIZES = [(1, 1), (8, 3), (40, 10), (57, 14), (70, 20), (80, 24), (99, 30), (100, 30), (120, 40), (160, 45), (200, 60)]
PICTURES = [snapshot(run) for run in RUNS] + [snapshot(run, HOSTILE_LOG) for run in HOSTILE_RUNS]
WALL = msgspec.structs.replace(PICTURES[1], hosts=gpu_hosts(40))
TITLE = (("name", "title"), (" and more", "dim"))


def ids(value: object) -> str:
    if isinstance(value, RunSnapshot):
        return f"{value.summary.state}-{clean(value.summary.run_id)[:12]}"
    return "ascii" if value is ASCII else "unicode" if value is UNICODE else str(value)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("picture", [*PICTURES, WALL, RunSnapshot(summary=RUNS[0])], ids=ids)
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=ids)
def test_the_overview_fits(picture: RunSnapshot, size: tuple[int, int], glyphs: Glyphs) -> None:
    width, height = size
    lines = overview.overview(picture, width, height, glyphs, TITLE)
    assert len(lines) == height
    if width >= 40:  # below, the pane cuts
        assert [line.plain for line in lines if width_of(line.spans) > width] == []


@pytest.mark.parametrize("width", [40, 58, 70, 72, 80, 100, 118, 120, 200])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=ids)
def test_rows_of_the_list_fit_and_stand_in_columns(width: int, glyphs: Glyphs) -> None:
    for some in (RUNS, HOSTILE_RUNS):
        plan = runs.plan(width, 24)
        rows = [runs.row(run, plan, run is some[0], glyphs) for run in some]
        assert all(width_of(row.spans) <= width for row in [runs.head(plan), *rows])
        # the state begins at the same cell in each row and under its title
        starts = {width_of(row.spans[: 2 + len(plan.columns)]) for row in rows}
        assert starts == {runs.head(plan).plain.index("STATE") - 1}


def test_numbers_keep_their_columns_while_they_change() -> None:
    plan = runs.plan(100, 20)
    widths = set()
    for rate in (0.4, 9.9, 999.6, 1234.0, 99_990.0, 1.5e6):
        run = msgspec.structs.replace(RUNS[0], tokens_per_second=rate, reward=rate % 1)
        widths.add(width_of(runs.row(run, plan, False, UNICODE).spans))
    assert len(widths) == 1


def test_the_state_is_a_word_and_a_glyph_without_colour() -> None:
    plan = runs.plan(80, 20)
    start = runs.head(plan).plain.index("STATE")
    words = [runs.row(run, plan, False, UNICODE).plain[start:].split() for run in RUNS]
    assert [word[:2] for word in words] == [
        ["▶", "training"],
        ["▶", "training"],
        ["◔", "loading"],
        ["◷", "queued"],
        ["◌", "stopping"],
        ["✗", "failed"],
        ["✓", "finished"],
        ["■", "cancelled"],
        ["▲", "lost"],
        ["◷", "queued"],
        ["?", "unknown"],
    ]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 11),
        ("tiny", 6),
        ("7b isambard", 3),
        ("state:running", 2),
        ("state:run 7b", 1),
        ("algo:ppo", 0),
        ("nix:1", 0),
        ("TINY-88", 1),
        ("name:coin", 1),
    ],
)
def test_the_filter(query: str, count: int) -> None:
    assert sum(matches(run, query) for run in RUNS) == count


def test_empty_lists_teach() -> None:
    def said(snapshot_: RunsSnapshot, query: str, fetched: bool) -> str:
        return "\n".join(line.plain for line in runs.empty(snapshot_, query, fetched, UNICODE))

    assert "looking for runs" in said(RunsSnapshot(), "", False)
    assert "press n" in said(RunsSnapshot(), "", True)
    assert "no run matches zzz" in said(RunsSnapshot(runs=RUNS), "zzz", True)


def test_gpus_know_whose_they_are() -> None:
    picture = PICTURES[1]
    rows = hosts.gpu_rows(picture.hosts, Owners(picture.actors), 80, 4, UNICODE)
    assert [[word for word in row.plain.split() if word in "LE·"] for row in rows[:1]] != []
    letters = [[span[0].strip() for span in row.spans if span[0].strip() in ("L", "E", "·")] for row in rows]
    assert letters == [["L", "L", "E", "E"], ["L", "·", "E", "E"]]


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120, 200])
def test_the_wall_of_gpus_fits_and_counts_the_rest(width: int) -> None:
    rows = hosts.gpu_rows(WALL.hosts, Owners(WALL.actors), width, 6, UNICODE)
    assert len(rows) == 6
    assert all(width_of(row.spans) <= width for row in rows)
    assert "35 more nodes" in rows[-1].plain


def test_memory_that_is_nearly_full_is_pointed_out() -> None:
    rows = hosts.gpu_rows(PICTURES[1].hosts, Owners(()), 80, 4, UNICODE)
    assert [text.strip() for row in rows for text, role in row.spans if role == "attention"] == ["76"]


def charts_rows(picture: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    return metrics.rows(charts.chart_page(picture, ChartView(), None), width, glyphs)


def charts_head(picture: RunSnapshot, width: int, glyphs: Glyphs) -> list[Line]:
    return metrics.head(charts.chart_page(picture, ChartView(), None), width, glyphs)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("picture", PICTURES, ids=ids)
def test_tabs_fit(picture: RunSnapshot, width: int) -> None:
    for tab in (charts_rows, charts_head, parts.events, actors.tab_head, queues.tab, queues.tab_head):
        assert len(tab(picture, width, UNICODE)) >= 1
    for tab in (charts_rows, charts_head, actors.tab_head, parts.events_head, queues.tab, queues.tab_head):
        assert all(width_of(line.spans) <= width for line in tab(picture, width, UNICODE))


def test_dead_actors_come_first_and_say_why() -> None:
    dead = ActorSnapshot(actor_id="1", class_name="Engine", name="engine 3", state="DEAD", death_cause="exit 137")
    picture = msgspec.structs.replace(PICTURES[1], actors=(*PICTURES[1].actors, dead))
    text = "\n".join(line.plain for line in overview.overview(picture, 140, 40, UNICODE, TITLE))
    assert "1 dead" in text
    assert text.index("exit 137") < text.index("Learner learner 0")


def test_an_ended_run_shows_no_hosts_that_are_not_its_own_any_more() -> None:
    ended = msgspec.structs.replace(PICTURES[5], hosts=PICTURES[1].hosts, actors=PICTURES[1].actors)
    for width in (80, 120, 200):
        text = "\n".join(line.plain for line in overview.overview(ended, width, 40, UNICODE, TITLE))
        assert "CUDA out of memory" in text
        assert "reward" in text
        assert "nid010701" not in text
    table = gpus.GpuTable(ended, 80, UNICODE, wall=False)
    assert any("nid010701" in table.row(index).plain for index in range(table.count))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
@pytest.mark.parametrize("wall", [True, False])
@pytest.mark.parametrize("picture", [*PICTURES, WALL], ids=ids)
def test_every_row_of_the_gpu_tab(picture: RunSnapshot, wall: bool, width: int) -> None:
    table = gpus.GpuTable(picture, width, UNICODE, wall)
    rows = [table.row(index) for index in range(table.count)]
    if width >= 80:
        assert [row.plain for row in rows if width_of(row.spans) > width] == []
    for host in picture.hosts:
        assert sum(row.plain.startswith(f" {clean(host.host)[:10]}") for row in rows) == 1
    if not wall:
        assert sum("GPU" in row.plain for row in rows) == sum(len(host.gpus) for host in picture.hosts)


def test_gpus_are_joined_to_roles_and_processes() -> None:
    table = gpus.GpuTable(PICTURES[1], 120, UNICODE, wall=False)
    text = "\n".join(table.row(index).plain for index in range(table.count))
    assert "learner 0  211034" in text
    assert "engine 2  211036" in text
    assert "free" in text


def test_a_process_without_an_actor_is_known_by_its_title() -> None:
    host = msgspec.structs.replace(PICTURES[1].hosts[0])
    owners = Owners(())
    assert owners.of(host, (211034,)).letter == "L"
    assert owners.of(host, (1,)).letter == ""


def test_of_several_processes_on_a_card_the_name_and_the_id_are_of_one() -> None:
    host = PICTURES[1].hosts[0]
    assert Owners(()).of(host, (1, 211034)).pid == 211034
    host = msgspec.structs.replace(host, gpus=(msgspec.structs.replace(host.gpus[0], pids=(1, 211034)),))
    table = gpus.GpuTable(msgspec.structs.replace(PICTURES[1], hosts=(host,)), 120, UNICODE, wall=False)
    text = "\n".join(table.row(index).plain for index in range(table.count))
    assert "learner 0  211034" in text


def test_actors_stand_in_the_order_of_their_roles() -> None:
    def actor(kind: str, name: str) -> ActorSnapshot:
        return ActorSnapshot(actor_id=name, class_name=kind, name=name, state="ALIVE")

    mixed = [actor("Status", "s"), actor("RewardWorker", "reward 0"), actor("Learner", "learner 0")]
    mixed[2:2] = [actor("Engine", f"engine {number}") for number in (10, 9)]
    names = [each.name for each in actors.in_order(mixed, OUR_PATTERNS)]
    assert names == ["learner 0", "engine 9", "engine 10", "reward 0", "s"]


def test_every_kind_of_role_has_a_letter_that_the_legend_and_the_help_explain() -> None:
    """The class names are those of the bundled trainers' actors; helpers have none."""
    classes = ["Learner", "EngineActor", "Reference", "Critic", "Teacher", "Judge", "RewardModel", "RewardWorker"]
    letters = [role_letter(name) for name in classes]
    assert letters == ["L", "E", "R", "C", "T", "J", "M", "W"]
    assert title_letter("ray::RewardWorker.score") == "W"
    assert role_letter("StatusBoard") == ""
    members = [
        ActorSnapshot(actor_id=name, class_name=name, name=name, state="ALIVE", node="n1", pid=number)
        for number, name in enumerate(classes, start=1)
    ]
    told = hosts.legend(Owners(members[::-1]))
    assert told == " · L learner · E engine · R reference · C critic · T teacher · J judge · M reward_model · W reward"
    for width in (40, 80):
        text = [row.plain for row in help_lines(RunScreen.KEYS, width, UNICODE)]
        assert all(len(row.rstrip()) <= width for row in text)
        assert all(any(f" {letter} {name}" in row for row in text) for letter, name in ROLE_NAMES.items())


ENGINES = (
    EngineSample(name="8000", running=12, waiting=31, kv_cache_usage=0.97, preemptions_total=4, tokens_per_second=1834),
    EngineSample(name="8001", running=12, waiting=0, kv_cache_usage=0.2, tokens_per_second=2100),
    EngineSample(name="8002", running=3),
    EngineSample(name="8003", silent_s=95.0),
)


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_engines_that_serve_http_are_rows_with_the_worst_first(width: int) -> None:
    hosts_with = tuple(msgspec.structs.replace(host, engines=ENGINES) for host in PICTURES[1].hosts)
    picture = msgspec.structs.replace(PICTURES[1], hosts=hosts_with, status=StatusSnapshot())
    rows = queues.tab(picture, width, UNICODE)
    assert all(width_of(row.spans) <= width for row in rows)
    text = [row.plain for row in rows]
    first = next(index for index, row in enumerate(text) if "engines" in row)
    many = len(hosts_with)
    assert all("has not answered for" in row for row in text[first + 1 : first + 1 + many])
    assert "12 run    31 wait" in text[first + 1 + many]
    if width >= 80:
        assert "97%" in text[first + 1 + many]
        assert "1.8k/s" in text[first + 1 + many]
        assert "4 preempted" in text[first + 1 + many]
        assert any(f"{4 * many} engines" in row and f"{many} silent" in row for row in whole(picture, width))
    ended = msgspec.structs.replace(PICTURES[5], hosts=hosts_with)
    assert not any("has not answered" in row.plain for row in queues.tab(ended, width, UNICODE))


def whole(picture: RunSnapshot, width: int) -> list[str]:
    return [row.plain for row in overview.overview(picture, width, 40, UNICODE, TITLE)]


def test_problems_of_sources_are_shown_where_their_data_would_be() -> None:
    status = StatusSnapshot(queues=PICTURES[0].status.queues, problem="status: refused")
    picture = msgspec.structs.replace(PICTURES[0], status=status, actors_problem="Ray: timed out")
    text = "\n".join(line.plain for line in overview.overview(picture, 140, 40, UNICODE, TITLE))
    assert "status: refused" in text
    assert "Ray: timed out" in text


def test_gaps_in_a_series_do_no_harm() -> None:
    nan = float("nan")
    series = {"reward": (nan, nan), "loss": (nan, 1.0), "grad_norm": (float("inf"), 2.0)}
    picture = msgspec.structs.replace(PICTURES[0], metrics=MetricsSnapshot(steps=(1, 2), series=series))
    assert charts_rows(picture, 80, UNICODE)
    assert overview.overview(picture, 80, 24, UNICODE, TITLE)


@pytest.mark.parametrize("width", [30, 41, 80, 120])
def test_the_review_says_everything(width: int) -> None:
    preset = PRESETS[2]
    lines = launch.review_lines(preset, review(preset, ()), ("train.steps=5",), width, UNICODE)
    text = "".join(line.plain.strip() for line in lines).replace(" ", "")
    for words in (
        "train.steps=5",
        "node1",
        "256000samples",
        "P107",
        "roles.rollout.engines=5",
        "supervise",
        "attempts/01",
    ):
        assert words in text
    assert all(width_of(line.spans) <= width for line in lines if "┃" not in line.plain and ".yaml" not in line.plain)


def test_errors_stand_first() -> None:
    preset = PRESETS[3]
    shown = msgspec.structs.replace(review(preset, ()), memory=("learner   4 GPUs", "  backward  ████ " + "x" * 90))
    assert [line.plain for line in launch.review_lines(preset, shown, (), 80, UNICODE)][-2:] == [
        "  learner   4 GPUs",
        "  " + ("  backward  ████ " + "x" * 90)[:77] + "…",
    ]
    text = [line.plain for line in launch.review_lines(preset, review(preset, ()), (), 80, UNICODE)]
    assert next(i for i, row in enumerate(text) if "P101" in row) < next(
        i for i, row in enumerate(text) if "layout" in row
    )


def plain_lines(glyphs: Glyphs) -> list[Line]:
    lines = overview.overview(PICTURES[1], 120, 40, glyphs, TITLE)
    lines += launch.review_lines(PRESETS[0], review(PRESETS[0], ()), (), 80, glyphs)
    lines.append(bars.header(["run"], (), bars.Health("lost", 12.0, True, True, "away"), 80, glyphs))
    return lines


def test_views_use_the_alphabet_they_are_given() -> None:
    drawn = {char for glyph in UNICODE if isinstance(glyph, str) for char in glyph if not char.isascii()}
    braille_cells = {chr(code) for code in range(0x2800, 0x2900)}
    neutral = set("·–…×")  # these become ASCII at the terminal's gate
    text = "".join(line.plain for line in plain_lines(ASCII))
    assert set(text) & (drawn | braille_cells) - neutral == set()


def test_the_confirmation_says_title_consequences_and_commands() -> None:
    from fake_cockpit import FakeCockpit

    preview = FakeCockpit().preview_cancel(RUNS[0].run_id)
    text = "\n".join(line.plain for line in confirm_lines(preview, 60, UNICODE))
    assert preview.title in text
    assert "12 steps will be lost" in text
    assert "kill -TERM 20951" in text


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (bars.Health(), ""),
        (bars.Health("late", 4.0), "▲ 4s old"),
        (bars.Health("lost", 75.0), "✗ 1m15 old"),
        (bars.Health(paused=True), "‖ paused"),
        (bars.Health(readonly=True), "read-only"),
        (bars.Health(problem="isambard is away"), "▲ isambard is away"),
    ],
)
def test_the_header_tells_the_age_of_stale_data(health: bars.Health, words: str) -> None:
    plain = bars.header(["a run"], (("▶ training", "ok"),), health, 80, UNICODE).plain
    assert len(plain) == 80
    assert words in plain
    assert ("old" in plain) == (health.freshness != "fresh")


def test_now_is_the_clock_of_the_data() -> None:
    lines = overview.overview(PICTURES[0], 80, 24, UNICODE, TITLE)
    assert "2m14" in lines[0].plain
    later = msgspec.structs.replace(PICTURES[0], taken_at=NOW + 60)
    assert "3m14" in overview.overview(later, 80, 24, UNICODE, TITLE)[0].plain


def test_one_of_a_thing_is_not_many() -> None:
    run = next(run for run in RUNS if run.job is not None and run.job.restarts == 1)
    status = StatusSnapshot(learner_weight_version=7, engine_weight_versions={"engine 0": 7})
    lines = [line.plain.split() for line in queues.tab(RunSnapshot(summary=run, status=status), 80, UNICODE)]
    assert ["engines", "the", "engine", "has", "the", "newest", "weights"] in lines
    assert ["requeued", "once"] in lines
    end = EndSnapshot(outcome="finished", exit_code=0, at=NOW)
    assert progress.end_words(summary("r-1", "finished", "ended", 60, step=1, steps=1, end=end)) == "1 step"


@pytest.mark.parametrize(
    ("state", "ages", "said"),
    [
        ("running", (1.0, 2.0), ""),
        ("running", (1.0, 400.0), "nid010702 silent for 6m39"),
        ("running", (400.0, 420.0), "2 nodes silent for 6m40"),
        ("running", (200.0, 210.0), ""),
        ("failed", (9000.0, 1.0), ""),
        ("queued", (9000.0, 1.0), ""),
    ],
)
def test_numbers_of_a_node_that_is_silent_are_marked_as_old(state: str, ages: tuple[float, ...], said: str) -> None:
    run = snapshot(next(run for run in RUNS if run.state == state and run.gpu != "cpu"))
    nodes = tuple(
        msgspec.structs.replace(host, taken_at=NOW - age) for host, age in zip(gpu_hosts(2), ages, strict=True)
    )
    picture = msgspec.structs.replace(run, hosts=nodes, taken_at=NOW)
    right = "".join(text for text, _ in hosts.gpu_section(picture, UNICODE, 0).right)
    for text in (right, gpus.head(picture, 100, UNICODE, ()).plain):
        assert ("silent" in text) == bool(said)
        assert said in text
