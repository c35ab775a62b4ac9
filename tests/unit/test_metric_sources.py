"""Metrics from the files of W&B, TensorBoard and the systems themselves: by the real writers, where possible."""

from __future__ import annotations

import json
import math
import os
import struct
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tensorboardX import SummaryWriter
from wandb.proto.wandb_internal_pb2 import HistoryItem, HistoryRecord
from wandb.proto.wandb_internal_pb2 import Record as WandbRecord

from rltui.dialects.load import load_dialects
from rltui.onnode import rundir
from rltui.onnode.line_reader import LineReader
from rltui.onnode.metric_files import EventFile, JsonFile, WandbFile, wandb_file
from rltui.onnode.metric_names import canonical_values
from rltui.onnode.metric_sources import CONSOLE, COUNTED, FILE, WANDB, Sources, StepLines
from rltui.onnode.progress import step_times
from rltui.onnode.script_output import Follower, parse_values
from rltui.onnode.script_run import ScriptRun
from rltui.service.wandb_history import read_history
from rltui.watch.runs import last_metrics

DIALECTS = load_dialects()
WRITER = """
import json, sys, wandb

run = wandb.init(mode="offline", project="x", dir=sys.argv[1])
for line in json.load(sys.stdin):
    run.log(line)
run.finish()
"""


def wandb_run(folder: Path, lines: list[dict[str, object]]) -> tuple[Path, str]:
    """A run that the real W&B wrote, and what it said."""
    folder.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(folder)], input=json.dumps(lines),
        capture_output=True, text=True, check=True, cwd=folder, env=environment, timeout=120,
    )  # fmt: skip
    (run,) = folder.glob("wandb/offline-run-*")
    return run, done.stdout + done.stderr


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of 300 steps whose records cross the blocks of its file."""
    noise = {f"perf/{name}-{'x' * (name % 40)}": name / 7 for name in range(80)}
    lines = [{"train/global_step": 2 * step, "train/reward": step / 3, "note": "text", **noise} for step in range(300)]
    return wandb_run(tmp_path_factory.mktemp("wandb"), [*lines])


def follow(attempt: Path, name: str, said: str, sources: Sources | None = None) -> Follower:
    (attempt / rundir.OUT_LOG).write_text(said)
    log = LineReader(str(attempt / rundir.OUT_LOG), also_returns=True)
    follower = Follower(str(attempt), msgspec.to_builtins(DIALECTS[name]), log, sources, lambda: 1e9 + 1)
    follower.look()
    follower.look(is_last=True)
    return follower


def written(attempt: Path) -> list[dict[str, float]]:
    path = attempt / rundir.METRICS
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def by_step(attempt: Path, name: str) -> dict[float, float | None]:
    """What a reader makes of the lines: a step that comes again drops those behind it."""
    found: dict[float, float | None] = {}
    for line in written(attempt):
        found = {step: value for step, value in found.items() if step < line["step"]}
        found[line["step"]] = line.get(name)
    return found


def test_the_file_of_a_real_run_is_read_as_wandb_reads_it(long_run: tuple[Path, str]) -> None:
    path = wandb_file(str(long_run[0]))
    assert path is not None
    assert Path(path).stat().st_size > 3 * 32768
    read = list(WandbFile(path).read())
    theirs = read_history(path)
    assert [record.step for record in read] == [2 * step for step in range(300)]
    assert [record.values["train/reward"] for record in read] == [step / 3 for step in range(300)]
    assert len(read[0].values) == 82
    assert theirs.steps == tuple(record.step for record in read)
    for name in ("reward", "perf/3-xxx", "perf/79-" + "x" * 39):
        assert theirs.series[name] == tuple(record.values.get(name, record.step / 6) for record in read)
    assert not any(record.is_counted for record in read)
    assert all(record.at is not None and record.at > 1.7e9 for record in read)


@pytest.mark.parametrize("cut", [0, 5, 7, 100, 32768, 40000, 70001])
def test_a_file_that_grows_gives_each_record_once(long_run: tuple[Path, str], tmp_path: Path, cut: int) -> None:
    path = wandb_file(str(long_run[0]))
    data, grown = Path(path or "").read_bytes(), tmp_path / "run-x.wandb"
    grown.write_bytes(data[:cut])
    first = WandbFile(str(grown))
    steps = [record.step for record in first.read(4096)]
    grown.write_bytes(data)
    second = WandbFile(**first.state())
    for _ in range(len(data) // 5_000 + 2):
        steps += [record.step for record in second.read(5_000)]
    assert steps == [2 * step for step in range(300)]


def test_typed_whole_numbers_are_read_with_their_sign(long_run: tuple[Path, str], tmp_path: Path) -> None:
    head = Path(wandb_file(str(long_run[0])) or "").read_bytes()[:7]
    (tmp_path / "run-x.wandb").write_bytes(head)
    with (tmp_path / "run-x.wandb").open("ab") as stream:
        for step in (0, 7):
            items = [HistoryItem(key="reward", integer=step - 5), HistoryItem(key="_step", integer=step)]
            body = WandbRecord(history=HistoryRecord(item=items)).SerializeToString()
            stream.write(struct.pack("<IHB", 0, len(body), 1) + body)
    found = [(record.step, dict(record.values)) for record in WandbFile(str(tmp_path / "run-x.wandb")).read()]
    assert found == [(0, {"reward": -5.0}), (7, {"reward": 2.0})]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1", "1" + 400 * "0"])
def test_a_step_that_is_none_costs_only_its_record(long_run: tuple[Path, str], tmp_path: Path, number: str) -> None:
    rows = [f'{{"step": 4, "loss": 1{400 * "0"}}}', f'{{"step": {number}, "loss": 2}}', '{"step": 5, "loss": 3}']
    (tmp_path / "own.jsonl").write_text("\n".join([*rows, ""]))
    read = [(record.step, record.values) for record in JsonFile(str(tmp_path / "own.jsonl")).read()]
    assert read == [(4, {}), (5, {"loss": 3.0})]
    path = tmp_path / "run-x.wandb"
    path.write_bytes(Path(wandb_file(str(long_run[0])) or "").read_bytes()[:7])
    with path.open("ab") as stream:
        for step in (number, "6"):
            items = [HistoryItem(key="_step", value_json="3"), HistoryItem(key="training_step", value_json=step)]
            body = WandbRecord(history=HistoryRecord(item=items)).SerializeToString()
            stream.write(struct.pack("<IHB", 0, len(body), 1) + body)
    assert [record.step for record in WandbFile(str(path)).read()][-1] == 6
    assert parse_values(f"{{'a': 1{400 * '0'}, 'b': 2}}", "python") == {"b": 2.0}
    assert canonical_values({"step": int("1" + 400 * "0"), "loss": 1}) == {"loss": 1.0}


def test_a_broken_block_costs_only_its_records(long_run: tuple[Path, str], tmp_path: Path) -> None:
    data = bytearray(Path(wandb_file(str(long_run[0])) or "").read_bytes())
    data[32768:65536] = bytes(32768)
    (tmp_path / "run-x.wandb").write_bytes(data)
    steps = [record.step for record in WandbFile(str(tmp_path / "run-x.wandb")).read()]
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == 598
    assert 100 < len(steps) < 300
    noise = tmp_path / "run-y.wandb"
    for place in range(0, 4000, 13):  # whatever it holds, reading it ends
        noise.write_bytes(data[:7] + bytes([place % 251]) * 50 + data[place : place + 3000])
        list(WandbFile(str(noise)).read())


def test_wandbs_own_word_leads_to_its_file_and_its_numbers_replace_the_consoles(
    long_run: tuple[Path, str], tmp_path: Path
) -> None:
    console = "".join(
        f"  1%| | {2 * step}/598 [00:01<00:10, 1s/it]\n{{'reward': '{step / 3:.2f}'}}\n" for step in range(300)
    )
    follower = follow(tmp_path, "trl", f"(TaskRunner pid=7) {long_run[1].splitlines()[2]}\n{console}")
    assert (follower.step, follower.steps) == (598, 598)
    assert by_step(tmp_path, "reward") == {2 * step: step / 3 for step in range(300)}
    assert written(tmp_path)[-1]["time"] > 1.7e9


def test_wandbs_word_counts_from_where_the_script_runs(
    long_run: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.sh").write_text("cd wandb\npython train.py\n")
    told = {"script": "script.sh", "folder": str(long_run[0].parents[1]), "dialect": "trl", "words": []}
    dialect = {"metrics": msgspec.to_builtins(DIALECTS["trl"].metrics), "export": {}}
    rundir.write_json(str(tmp_path / rundir.SCRIPT_RUN), {**told, "dialect": dialect})
    monkeypatch.chdir(tmp_path)
    sources = ScriptRun(str(tmp_path)).sources()
    follow(tmp_path, "trl", f"wandb: Run data is saved locally in ./{long_run[0].name}\n", sources)
    assert by_step(tmp_path, "reward")[598] == 299 / 3


def test_a_wandb_run_beside_the_trainings_is_not_read_and_the_next_one_is(tmp_path: Path) -> None:
    training, said = wandb_run(tmp_path / "training", [{"global_step": step, "reward": step / 3} for step in range(9)])
    beside, of_other = wandb_run(tmp_path / "evaluation", [{"global_step": 0, "reward": 99.0}])
    attempt = tmp_path / "attempt"
    attempt.mkdir()
    follower = follow(attempt, "generic", said + of_other)
    assert by_step(attempt, "reward") == {step: step / 3 for step in range(9)}
    then = Path(wandb_file(str(training)) or "").stat().st_mtime + 61  # the first has ended, and the next goes on
    os.utime(wandb_file(str(beside)) or "", (then, then))
    follower.look(is_last=True)
    assert by_step(attempt, "reward") == {0: 99.0}


def test_where_no_line_says_so_no_folder_is_searched(long_run: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "wandb").symlink_to(long_run[0].parent)
    follow(tmp_path, "generic", "step 1 reward: 0.5\n")
    assert by_step(tmp_path, "reward") == {1: 0.5}


def test_a_count_of_records_is_a_step_only_where_nothing_else_tells_steps(tmp_path: Path) -> None:
    run, said = wandb_run(
        tmp_path / "own", [{"reward": 0.5}, {"reward": float("nan")}, {"flag": True}, {"reward": 0.75}]
    )
    silent = tmp_path / "silent"
    silent.mkdir()
    follower = follow(silent, "generic", said)
    assert follower.step == 3
    found = by_step(silent, "reward")
    assert (found[0], found[3]) == (0.5, 0.75)
    assert math.isnan(found[1] or 0.0)
    telling = tmp_path / "telling"
    telling.mkdir()
    follow(telling, "generic", f"{said}step 7 reward: 0.25\n")
    assert by_step(telling, "reward") == {7: 0.25}
    passed_on = tmp_path / "passed-on"  # verl gives its step to W&B as W&B's own
    passed_on.mkdir()
    follow(passed_on, "verl", f"wandb: Run data is saved locally in {run}\nstep:0 - reward:0.1\n")
    assert by_step(passed_on, "reward")[0] == 0.5


def test_the_files_of_a_real_tensorboard_writer_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "tensorboard"
    with SummaryWriter(str(folder / "deeper"), flush_secs=1) as writer:
        for step in range(1, 50):
            writer.add_scalar("train/reward", step / 3, step)
            writer.add_text("note", "no number", step)
        writer.add_scalar("before/reward", 0.1, -1)
    sources = Sources(msgspec.to_builtins(DIALECTS["openrlhf"].metrics), tensorboard=str(folder))
    follow(tmp_path, "openrlhf", "Global step 1: {'reward': 0.3, 'x': 1}\n", sources)
    assert by_step(tmp_path, "reward") == pytest.approx({step: step / 3 for step in range(1, 50)}, rel=1e-6)
    (path,) = folder.glob("deeper/*tfevents*")
    data, grown, steps = path.read_bytes(), tmp_path / "grown", []
    reader = EventFile(str(grown))
    for end in range(0, len(data) + 97, 97):
        grown.write_bytes(data[:end])
        steps += [record.step for record in reader.read()]
    assert steps == list(range(1, 50))


def test_two_writers_of_one_file_tell_one_step_together(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    agent = "train/agg/effective/solver"
    rows: list[dict[str, float]] = [{"step": 3, "time": 5e8, f"{agent}/reward/mean": 9.0}]  # of an earlier start
    for step in range(1, 6):  # the orchestrator is ahead, and both say how long their step took
        at = 1.8e9 + step
        rows.append(
            {"step": step, "time": at, "time/step": 1.0, f"{agent}/reward/mean": step / 10, "progress/tokens": 9}
        )
        rows.append({"step": step - 1, "time": at, "time/step": 2.0, "loss/mean": -step, "optim/grad_norm": 0.5})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = f"12:00:00    INFO Logging metrics to {path} and episodes to {path.parent}/rollouts\n"
    metrics = msgspec.to_builtins(DIALECTS["prime-rl"].metrics)
    follow(tmp_path, "prime-rl", f"{said}SUCCESS Step 1 | 4.5s | Reward 0.1000\n", Sources(metrics, since=1.7e9))
    assert by_step(tmp_path, f"{agent}/reward/mean") == {0: None, 1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4, 5: 0.5}
    assert by_step(tmp_path, "loss/mean") == {0: -1, 1: -2, 2: -3, 3: -4, 4: -5, 5: None}


def test_a_run_that_goes_back_is_told_from_a_writer_that_is_behind(tmp_path: Path) -> None:
    lines = StepLines(str(tmp_path / rundir.METRICS))
    for step in range(1, 6):
        lines.add(FILE, step, {"reward": float(step)}, 1e9)
    lines.add(FILE, 4, {"loss": 4.0}, 1e9)
    lines.write()
    assert by_step(tmp_path, "reward") == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    lines.add(FILE, 3, {"reward": 30.0}, 1e9)
    lines.write()
    assert by_step(tmp_path, "reward") == {1: 1, 2: 2, 3: 30}


def test_a_source_that_is_behind_neither_hides_nor_repeats_what_the_console_says(tmp_path: Path) -> None:
    lines = StepLines(str(tmp_path / rundir.METRICS))
    for step in range(1, 1001):
        lines.add(CONSOLE, step, {"reward": 0.5}, 1e9)
        if step % 300 == 0:
            for behind in range(step - 299, step - 9):
                lines.add(WANDB, behind, {"reward": behind / 7}, 1e9)
            lines = _gone_on(lines, tmp_path)
        lines.write()
    for behind in range(901, 1001):
        lines.add(WANDB, behind, {"reward": behind / 7}, 1e9)
    lines.write()
    found = by_step(tmp_path, "reward")
    assert list(found) == list(range(1, 1001))
    assert [found[step] for step in (1, 150, 290, 890, 950, 1000)] == [
        step / 7 for step in (1, 150, 290, 890, 950, 1000)
    ]


def _gone_on(lines: StepLines, folder: Path) -> StepLines:
    lines.write()
    fresh = StepLines(str(folder / rundir.METRICS))
    fresh.restore(json.loads(json.dumps(lines.state())))
    return fresh


def test_what_was_only_counted_is_forgotten_when_steps_are_told(tmp_path: Path) -> None:
    lines = StepLines(str(tmp_path / rundir.METRICS))
    lines.add(COUNTED, 40, {"reward": 0.1}, 1e9)
    lines.forget(0, COUNTED)
    lines.add(CONSOLE, 1, {"reward": 0.2}, 1e9)
    lines.write()
    assert by_step(tmp_path, "reward") == {1: 0.2}


def test_what_only_the_console_knows_stays_beside_what_a_file_knows_better(tmp_path: Path) -> None:
    lines = StepLines(str(tmp_path / rundir.METRICS))
    lines.add(CONSOLE, 1, {"reward": 0.3, "loss": 0.5}, 1e9)
    lines.add(WANDB, 1, {"reward/avg_raw_reward": 0.3333, "mine": 1.0}, 1e9 + 5)
    lines.write()
    (line,) = written(tmp_path)
    assert line == {"reward/avg_raw_reward": 0.3333, "mine": 1.0, "loss": 0.5, "time": 1e9 + 5, "step": 1}


def test_steps_that_are_told_again_are_no_steps_of_their_own(tmp_path: Path) -> None:
    lines = StepLines(str(tmp_path / rundir.METRICS))
    for step in range(1, 21):
        lines.add(CONSOLE, step, {"reward": 0.1, "tokens_per_second": 1.0}, 1e9 + 10 * step)
        lines.write()
        if step % 5 == 0:
            for behind in range(step - 4, step):
                lines.add(WANDB, behind, {"reward": behind / 10}, 1e9 + 10 * behind)
            lines.write()
    assert len(written(tmp_path)) > 30
    assert step_times(str(tmp_path)) == [1e9 + 10 * step for step in range(1, 21)]
    known = last_metrics((tmp_path / rundir.METRICS).read_bytes())
    assert known.usual_step_s == 10.0
    assert [line["time"] for line in known.lines] == sorted({line["time"] for line in known.lines})
