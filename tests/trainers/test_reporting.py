"""What a step tells the world: metrics, stage file, status endpoint, W&B and log; and numbers that end a run."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from trainer_support import LAYOUT, ROOT

from rltui.layout.load import dump_layout, load_layout
from rltui.onnode import rundir
from trainers import stages as stages_module
from trainers.metrics import MetricsLog, TrainingError, check_numbers, clock, merge, pace, sample_metrics, summary
from trainers.roles.completions import Completion
from trainers.roles.step_report import StepReport
from trainers.rollouts import QueueDepth
from trainers.stages import Stages
from trainers.status import StatusBoard, StatusServer
from trainers.stopping import Stop, StopRequestedError
from trainers.tracking import Tracker, run_id
from waiting import DEADLINE_S, eventually, slowness

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.trainers


def report(**values: Any) -> StepReport:
    zero = dict.fromkeys(StepReport.__dataclass_fields__, 0) | {"loss_scale": 1}
    return StepReport(**{**zero, **values})


def test_ranks_are_folded_by_what_the_numbers_mean() -> None:
    merged = merge(
        [
            report(loss=0.1, grad_norm=2.0, tokens=30, trained_tokens=10, clipped_tokens=2, limited_tokens=4,
                   entropy_sum=30.0, fresh_tokens=20, parity_abs_sum=6e-6, mismatch_kl_sum=2e-6,
                   fresh_mismatch_kl_sum=1e-6,
                   parity_max_abs=1e-6, learning_rate=0.5, memory_gib=1.0),
            report(loss=0.2, grad_norm=2.0, tokens=10, trained_tokens=10, clipped_tokens=3, entropy_sum=50.0,
                   parity_max_abs=3e-6, learning_rate=0.5, memory_gib=2.0),
        ]
    )  # fmt: skip
    assert merged == {
        "loss": pytest.approx(0.3), "grad_norm": 2.0, "clip_fraction": 0.25, "entropy": 2.0, "learning_rate": 0.5,
        "parity_mean_abs": pytest.approx(3e-7), "mismatch_kl": pytest.approx(5e-8),
        "fresh_mismatch_kl": pytest.approx(5e-8),
        "importance_limited_fraction": 0.2, "parity_max_abs": 3e-6, "learner_memory_gib": 2.0,
    }  # fmt: skip
    broken = merge([report(fresh_tokens=1, parity_max_abs=1.0), report(parity_max_abs=math.nan)])
    assert math.isnan(broken["parity_max_abs"])
    assert "parity_max_abs" not in merge([report(tokens=5)])  # all samples came from older weights


def test_sample_metrics() -> None:
    def sample(length: int, reason: Any) -> Completion:
        return Completion(0, (5,) * length, (-0.1,) * length, reason, 1)

    groups = [[sample(4, "stop"), sample(2, "stop")], [sample(4, "length"), sample(2, "stop")]]
    assert sample_metrics(groups, [[1.0, 0.0], [1.0, 1.0]]) == {
        "reward": 0.75, "reward_std": 0.25, "response_length": 3.0, "response_length_max": 4.0,
        "truncated_fraction": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("metrics", "words", "message"),
    [
        ({"loss": math.nan, "parity_max_abs": 0.0}, [], r"step 9: the loss is nan"),
        ({"loss": 0.0, "grad_norm": math.nan}, [], r"step 9: the gradient is nan"),
        ({"loss": 0.0, "grad_norm": 1.0, "critic_grad_norm": math.inf}, [], r"step 9: the critic gradient is inf"),
        ({"loss": 0.0, "critic_loss": math.nan}, [], r"step 9: the critic loss is nan"),
        ({"loss": 0.0, "parity_max_abs": 1.1e-4}, [], r"disagree by 1\.1e-04"),
        ({"loss": 0.0, "parity_max_abs": math.nan}, [], "disagree by nan"),
        ({"loss": 0.0, "parity_max_abs": 0.9e-4}, [], None),
        ({"loss": 0.0}, [], None),
        ({"loss": 0.0, "parity_max_abs": 0.5}, ["roles.rollout.precision=bf16"], None),
        ({"loss": 0.0, "parity_max_abs": 0.5}, ["roles.learner.precision=fp16"], None),
        (
            {"loss": 0.0, "parity_max_abs": 9.0, "fresh_mismatch_kl": 0.2},
            ["roles.rollout.precision=bf16"],
            r"of 0\.2 a",
        ),
        ({"loss": 0.0, "parity_max_abs": 9.0, "fresh_mismatch_kl": math.nan}, ["roles.rollout.precision=fp16"], "nan"),
    ],
)
def test_wrong_numbers_end_the_run(metrics: dict[str, float], words: list[str], message: str | None) -> None:
    layout, metrics = load_layout(LAYOUT, words).layout, {"fresh_mismatch_kl": 0.0, **metrics}
    if message is None:
        check_numbers(9, metrics, layout)
    else:
        with pytest.raises(TrainingError, match=message):
            check_numbers(9, metrics, layout)


def test_experts_are_bounded_by_their_mean() -> None:
    layout = load_layout(LAYOUT, []).layout
    metrics = {"loss": 0.0, "parity_max_abs": 0.3, "fresh_mismatch_kl": 1e-3}
    check_numbers(9, metrics, layout, has_experts=True)
    with pytest.raises(TrainingError, match="KL divergence"):
        check_numbers(9, metrics | {"fresh_mismatch_kl": 0.2}, layout, has_experts=True)


def test_pace_and_time_left() -> None:
    assert pace([(10.0, 5)]) == 0.0
    assert pace([(10.0, 5), (11.0, 15), (12.0, 25)]) == 10.0
    assert [clock(seconds) for seconds in (44.6, 72, 7500)] == ["45s", "1m12s", "2h05m"]
    line = summary(120, 1000, {"reward": 0.871, "learner_tokens_per_second_step": 14900.0}, 12.3)
    assert line == "step 120/1000  reward 0.871  14.9k tok/s  12.30 steps/s  ETA 1m12s"
    assert summary(10, 40, {"loss": 0.5}, 2.0) == "step 10/40  2.00 steps/s  ETA 15s"  # on given answers


def disabled_tracker(run: Path, attempt: Path) -> Tracker:
    return Tracker(load_layout(LAYOUT, ["tracking.wandb=disabled"]).layout, str(run), str(attempt))


def test_metrics_lines_are_valid_json_whatever_the_numbers(tmp_path: Path) -> None:
    log = MetricsLog(str(tmp_path), 10, disabled_tracker(tmp_path, tmp_path))
    log.record(1, {"reward": 0.5, "grad_norm": math.inf, "loss": math.nan})
    line = json.loads((tmp_path / rundir.METRICS).read_text())
    assert (line["step"], line["reward"]) == (1, 0.5)
    assert {"grad_norm", "loss"}.isdisjoint(line)


def test_stage_file_is_written_seldom_but_never_late_at_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[tuple[str, int | None]] = []
    monkeypatch.setattr(
        stages_module.rundir, "write_stage", lambda attempt, stage, step, **rest: written.append((stage, step))
    )
    monkeypatch.setattr(stages_module, "INTERVAL_S", 3600.0)
    stages = Stages(str(tmp_path), 10)
    for step in range(1, 4):
        stages.show("training", step=step)
    stages.show("saving", step=3)
    stages.show("saving", step=4)
    stages.flush()
    stages.flush()
    assert written == [("training", 1), ("saving", 3), ("saving", 4)]
    monkeypatch.setattr(stages_module, "INTERVAL_S", 0.0)
    stages.show("saving", step=5)
    assert written[-1] == ("saving", 5)


def test_status_board_averages_the_newest_steps_and_counts_all() -> None:
    board = StatusBoard(load_layout(LAYOUT).layout)
    board.watch_queues({"Prompt Queue": QueueDepth(32, lambda: 3)})
    for _ in range(150):
        board.count_step(2.0, 0.5, 100, 400, 256)
    board.enter("train")
    found = board.snapshot()
    assert found["queues"] == {"Prompt Queue": {"current": 3, "maxsize": 32}}
    assert found["token_stats"] == {
        "total_prefill_tokens": 15000, "total_decode_tokens": 60000, "sample_count": 38400,
        "prefill_tokens_per_sec": 200.0, "decode_tokens_per_sec": 800.0,
    }  # fmt: skip
    assert found["timing_stats"] == {
        "avg_training_step_time": 2.0, "avg_batch_generation_time": 0.5, "training_step_count": 150,
        "batch_generation_count": 150,
    }  # fmt: skip
    assert found["phase"]["name"] == "train"
    assert time.time() - found["last_updated"] < 600


def test_status_server_wants_its_token(tmp_path: Path) -> None:
    server = StatusServer(str(tmp_path), StatusBoard(load_layout(LAYOUT).layout))
    server.start()
    file = tmp_path / rundir.STATUS_ENDPOINT
    endpoint = json.loads(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", endpoint["url"])

    def code(path: str, **headers: str) -> int:
        try:
            request = urllib.request.Request(endpoint["url"] + path, headers=headers)
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    bearer = f"Bearer {endpoint['token']}"
    assert code("/api/status", Authorization=bearer) == 200
    assert code("/api/other", Authorization=bearer) == 404
    for wrong in ({}, {"Authorization": "Bearer "}, {"Authorization": bearer[:-1]}, {"Authorization": bearer + "x"}):
        assert code("/api/status", **wrong) == 401
    server.close()
    assert not file.exists()
    with pytest.raises(urllib.error.URLError):
        code("/api/status", Authorization=bearer)


def test_stop_is_remembered_and_patient() -> None:
    stop = Stop()
    stop.check()
    stop._note(15, None)
    assert stop.requested
    with pytest.raises(StopRequestedError):
        stop.check()
    stop.check_patience()
    stop._since = time.monotonic() - 60
    with pytest.raises(StopRequestedError):
        stop.check_patience()


def events(attempt: Path) -> list[str]:
    file = attempt / rundir.EVENTS
    lines = file.read_text().splitlines() if file.exists() else []
    return [event["text"] for event in map(json.loads, lines) if event["kind"] == "tracking"]


def test_disabled_tracking_does_nothing(tmp_path: Path) -> None:
    tracker = disabled_tracker(tmp_path, tmp_path)
    tracker.log({"reward": 1.0})
    tracker.close(0, 1.0)
    assert list(tmp_path.iterdir()) == []


def test_all_attempts_have_one_wandb_id_also_after_a_disk_that_was_full(tmp_path: Path) -> None:
    (tmp_path / "run-id").write_text("")  # as far as the first attempt came
    made = run_id(tmp_path)
    assert re.fullmatch("[0-9a-f]{8}", made)
    assert run_id(tmp_path) == made


def test_wandb_trouble_is_an_event_and_not_an_end(tmp_path: Path) -> None:
    (tmp_path / "wandb").write_text("a file where the folder should be")
    tracker = Tracker(load_layout(LAYOUT, ["tracking.wandb=offline"]).layout, str(tmp_path), str(tmp_path))
    found = eventually(lambda: events(tmp_path), "the event")
    assert found[0].startswith("W&B failed, the run goes on without it: FileExistsError")
    tracker.log({"reward": 1.0})
    tracker.close(0, 1.0)


def is_model(path: Path) -> bool:
    try:
        return path.is_file() and path.read_bytes() == b"weights"
    except OSError:  # gone since it was listed
        return False


def test_wandb_gets_answers_as_tables_and_the_model_as_an_artefact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read back from what W&B writes offline; the table comes once in five minutes, the model is not copied."""
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_ARTIFACT_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "caches"))
    model = tmp_path / "export" / "step-000002"
    model.mkdir(parents=True)
    (model / "model.safetensors").write_bytes(b"weights")
    words = ["tracking.wandb=offline", "tracking.samples=true", "tracking.artifact=true"]
    tracker = Tracker(load_layout(LAYOUT, words).layout, str(tmp_path), str(tmp_path))
    tracker.send_samples([{"step": 1, "answer": "abc", "reward": 0.5}])
    tracker.send_samples([{"step": 2, "answer": "too soon", "reward": 0.5}])
    tracker.send_model(model)
    tracker.close(0, 60.0)
    assert all(text.startswith("W&B run ") for text in events(tmp_path))
    folder = tmp_path / "wandb"  # W&B's own process writes and tidies up at its leisure

    def tables() -> list[Path]:
        return [one for one in folder.glob("offline-run-*/files/media/table/samples_*.json") if one.read_bytes()]

    [table] = eventually(tables, "the table")
    assert json.loads(table.read_text()) == {"columns": ["step", "answer", "reward"], "data": [[1, "abc", 0.5]]}
    [written] = folder.glob("offline-run-*/run-*.wandb")
    eventually(lambda: f"{tmp_path.name}-model".encode() in written.read_bytes(), "the artefact")

    def copies() -> list[str]:
        return [one.name for one in tmp_path.rglob("*") if is_model(one)]

    eventually(lambda: copies() == ["model.safetensors"], "no copy of the model", saw=copies)


@pytest.mark.slow
def test_unreachable_wandb_holds_nobody_up(tmp_path: Path) -> None:
    """Online mode, and a server that refuses: the process ends in seconds, with an event."""
    (tmp_path / rundir.LAYOUT).write_text(dump_layout(load_layout(LAYOUT, ["tracking.wandb=online"]).layout))
    program = """
import sys, time
from rltui.layout.load import load_layout
from trainers.stopping import leave
from trainers.tracking import Tracker

tracker = Tracker(load_layout(sys.argv[1] + "/layout.yaml").layout, sys.argv[1], sys.argv[1])
began = time.monotonic()
tracker.log({"step": 1, "reward": 1.0})
tracker.close(0, 3.0)
print(time.monotonic() - began, flush=True)
leave(0)
"""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "x" * 40,
        "WANDB_MODE": "online", rundir.ATTEMPT_VARIABLE: "tests-trainers",
    }  # fmt: skip
    words = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(words, env=environment, stdout=subprocess.PIPE)
    assert ended.returncode == 0
    assert float(ended.stdout.split()[-1]) < 30 * slowness()
    assert events(tmp_path)


def test_who_hangs_up_leaves_no_traceback_in_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = StatusServer(str(tmp_path), StatusBoard(load_layout(LAYOUT).layout))._server
    for error, is_told in ((BrokenPipeError("gone"), False), (ValueError("wrong"), True)):
        with suppress(type(error)), ExitStack() as stack:
            stack.push(lambda *_: server.handle_error(None, ("127.0.0.1", 1)))
            raise error
        assert ("Traceback" in capsys.readouterr().err) == is_told
    server.server_close()
