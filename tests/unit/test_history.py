"""Where a run's time went: sums over real files of attempts that were killed, resumed, requeued and adopted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from watch_support import append, write_json

from rltui.cli.main import main
from rltui.cluster.relay_client import RelayClient
from rltui.watch.history import loss_words
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.snapshots import RunHistory

T = 1_793_000_000.0
RUN = "grpo-tiny-1a2b"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / RUN
    about = {"name": "grpo-tiny", "algorithm": "grpo", "cluster": "local", "created_at": T}
    write_json(path / "run.json", {**about, "nodes": 2, "gpus_per_node": 4, "gpu": "H100-SXM-80GB"})
    return path


def attempt(
    run: Path,
    number: int,
    started: float,
    steps: tuple[int, ...] = (),
    *,
    ended: float | None = None,
    outcome: str = "failed",
    job: dict[str, Any] | None = None,
    submitted: float | None = None,
) -> Path:
    """An attempt on 2 × 4 GPUs that trains from 100 s after its start, a step of 8 s every 10 s."""
    path = run / "attempts" / f"{number:02d}"
    history = [{"stage": "preflight", "at": started}, {"stage": "training", "at": started + 100}]
    write_json(path / "job.json", {"resources": {"gpus": 4}} if job is None else job)
    write_json(path / "stage.json", {"stage": "training", "history": history[: 1 + bool(steps)]})
    if submitted is not None:
        write_json(path / "submitted.json", {"job_id": "7", "at": submitted})
    for place, step in enumerate(steps):
        line = {"step": step, "time": started + 110 + 10 * place, "time/total": 8.0}
        append(path / "metrics.jsonl", json.dumps(line).encode() + b"\n")
    if ended is not None:
        write_json(path / "end.json", {"outcome": outcome, "reason": "it ended", "at": ended})
    return path


def history(client: RelayClient, run: Path) -> RunHistory:
    return RunWatcher(client, str(run)).whole().history


def sums_up(found: RunHistory) -> None:
    assert found.held_h is not None
    parts = [found.kept_h or 0.0, found.overhead_h or 0.0, found.under_way_h or 0.0, *found.lost_h.values()]
    assert sum(parts) == pytest.approx(found.held_h)
    held = sum((one.held_s or 0.0) * (one.slots or 0) for one in found.attempts if one.number not in found.unknown)
    assert held / 3600 == pytest.approx(found.held_h)


def test_steps_that_a_resume_did_again_are_lost_to_the_end_that_made_it_necessary(
    client: RelayClient, run: Path
) -> None:
    # 7 steps to 170 s, dead at 200 s; a checkpoint at step 5, so that 6 and 7 are done again
    died = attempt(run, 1, T, (1, 2, 3, 4, 5, 6, 7), ended=T + 200, submitted=T - 60)
    write_json(died / "failure.json", {"word": "xid_memory_ecc"})
    attempt(run, 2, T + 300, (6, 7, 8), ended=T + 450, outcome="finished", submitted=T + 260)
    found = history(client, run)
    first, second = found.attempts
    assert (first.queue_s, first.held_s, first.start_up_s, first.slots) == (60, 200, 102, 8)
    assert (first.steps, first.overtaken_steps, first.kept_s, first.overtaken_s) == (7, 2, 40, 16)
    assert (first.between_s, first.tail_s, first.cause) == (12, 30, "xid_memory_ecc")
    assert (second.queue_s, second.overtaken_steps, second.kept_s, second.tail_s, second.cause) == (40, 0, 24, 20, "")
    hour = 8 / 3600
    # the steps done again, what came after the last step, and the start-up of the attempt that took over
    assert found.lost_h == pytest.approx({"xid_memory_ecc": (16 + 30 + 102) * hour})
    assert found.kept_h == pytest.approx(64 * hour)
    assert found.goodput == pytest.approx(64 / 350)
    assert (found.unit, found.queue_s, found.unknown) == ("GPU", 100, ())
    sums_up(found)


def test_an_attempt_that_never_came_to_a_step_is_lost_to_its_own_cause(client: RelayClient, run: Path) -> None:
    attempt(run, 1, T, (1, 2), ended=T + 130, outcome="cancelled")
    attempt(run, 2, T + 200, ended=T + 260, outcome="failed")
    attempt(run, 3, T + 300, (3,), ended=T + 410, outcome="finished")
    found = history(client, run)
    hour = 8 / 3600
    assert found.lost_h == pytest.approx({"failed": (60 + 102) * hour, "cancelled": 10 * hour})
    assert [one.overtaken_steps for one in found.attempts] == [0, 0, 0]
    sums_up(found)


def test_what_slurm_took_for_another_job_is_not_called_cancelled(client: RelayClient, run: Path) -> None:
    taken = attempt(run, 1, T, (1, 2), ended=T + 150)
    write_json(taken / "end.json", {"outcome": "cancelled", "at": T + 150, "slurm": "PREEMPTION"})
    attempt(run, 2, T + 300, (3,), ended=T + 450, outcome="cancelled")
    found = history(client, run)
    assert [one.cause for one in found.attempts] == ["slurm_preempted", "cancelled"]
    assert found.lost_h.keys() == {"slurm_preempted", "cancelled"}


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({"outcome": "failed", "hung": "no new step for 63 s"}, "run_stalled"),
        ({"outcome": "time-limit"}, "slurm_time_limit"),
    ],
)
def test_what_only_the_end_knows_is_a_cause(client: RelayClient, run: Path, end: dict[str, Any], cause: str) -> None:
    write_json(attempt(run, 1, T, (1, 2), ended=T + 150) / "end.json", {"at": T + 150, **end})
    attempt(run, 2, T + 300, (3,), ended=T + 450, outcome="finished")
    assert list(history(client, run).lost_h) == [cause]


def test_a_resume_from_scratch_takes_all_steps_of_all_attempts_before(client: RelayClient, run: Path) -> None:
    attempt(run, 1, T, (1, 2, 3), ended=T + 130)
    attempt(run, 2, T + 200, (4, 5), ended=T + 320)
    attempt(run, 3, T + 400, (1,), ended=T + 510, outcome="finished")
    found = history(client, run)
    assert [one.overtaken_steps for one in found.attempts] == [3, 2, 0]
    assert found.goodput == pytest.approx(8 / 360)
    sums_up(found)


def test_what_is_not_known_is_blank_and_in_no_sum(client: RelayClient, run: Path) -> None:
    attempt(run, 1, T, (1, 2))  # vanished: nobody knows when
    attempt(run, 2, T + 1000, (3,), ended=T + 1110, outcome="finished")
    append(attempt(run, 3, T + 2000, ended=T + 2500) / "metrics.jsonl", b'{"step": 9, "reward": 1}\n')
    found = history(client, run)
    assert found.unknown == (1, 3)
    assert (found.attempts[0].held_s, found.attempts[0].kept_s, found.attempts[0].steps) == (None, 16, 2)
    assert (found.attempts[2].held_s, found.attempts[2].kept_s, found.attempts[2].steps) == (500, None, 1)
    assert found.goodput == pytest.approx(8 / 110)
    sums_up(found)


def test_a_script_that_prints_steps_without_numbers_has_no_goodput_instead_of_none(
    client: RelayClient, run: Path
) -> None:
    job = {"resources": {"gpus": 4}, "argv": ["python3", "-m", "rltui.onnode.script_run", "--attempt", "x"]}
    path = attempt(run, 1, T, ended=T + 60, outcome="finished", job=job)
    write_json(path / "stage.json", {"stage": "ended", "step": 5, "history": [{"stage": "preflight", "at": T}]})
    found = history(client, run)
    assert (found.attempts[0].held_s, found.attempts[0].kept_s) == (60, None)
    assert (found.unknown, found.goodput, found.held_h) == ((1,), None, None)
    write_json(path / "stage.json", {"stage": "ended", "history": [{"stage": "preflight", "at": T}]})
    assert history(client, run).goodput == 0.0, "it never came to a step"


def test_a_run_that_waits_has_a_queue_and_nothing_else(client: RelayClient, run: Path) -> None:
    write_json(run / "attempts/01/job.json", {"resources": {"gpus": 4}})
    found = history(client, run)
    assert [(one.number, one.held_s, one.slots) for one in found.attempts] == [(1, None, None)]
    assert (found.held_h, found.goodput, found.unknown) == (None, None, ())


def test_a_requeued_start_waited_from_the_end_of_the_one_before_on_the_nodes_it_got(
    client: RelayClient, run: Path
) -> None:
    first = attempt(run, 1, T, (1, 2), ended=T + 130, outcome="lost", submitted=T - 500)
    write_json(first / "slurm.json", {"job_id": 7, "started_at": T - 20, "nodes": ["n1", "n2", "n3"]})
    again = attempt(
        run, 4, T + 400, (2,), ended=T + 520, outcome="finished", job={"resources": {"gpus": 2}, "requeue_of": 1}
    )
    write_json(again / "slurm.json", {"job_id": 7, "restart": 1, "started_at": T + 390, "nodes": ["n1", "n2"]})
    found = history(client, run)
    assert [(one.number, one.queue_s, one.slots) for one in found.attempts] == [(1, 480, 12), (4, 260, 4)]
    assert found.attempts[0].start_up_s == 122
    sums_up(found)


def test_the_next_job_of_a_chain_waits_from_the_end_of_the_one_before(client: RelayClient, run: Path) -> None:
    attempt(run, 1, T, (1,), ended=T + 130, outcome="time-limit", submitted=T - 10)
    attempt(run, 2, T + 150, (2,), ended=T + 270, outcome="finished", submitted=T - 9)
    assert [one.queue_s for one in history(client, run).attempts] == [10, 20]


def test_an_adopted_job_has_the_schedulers_times_and_cpu_runs_count_slots(client: RelayClient, run: Path) -> None:
    write_json(run / "run.json", {"name": "x", "gpu": "cpu", "nodes": 1, "gpus_per_node": 3, "created_at": T})
    path = attempt(run, 1, T + 900, (1, 2), ended=T + 200, outcome="finished", job={}, submitted=T + 80)
    (path / "metrics.jsonl").write_text(
        f'{{"step": 1, "time": {T + 50}, "time/total": 9}}\n{{"step": 2, "time": {T + 55}, "time/total": 9}}\n'
    )
    write_json(path / "stage.json", {"stage": "training", "history": []})
    write_json(path / "adopted.json", {"job": {"submitted_at": T - 30, "started_at": T, "node_count": 1}})
    found = history(client, run)
    [one] = found.attempts
    assert (found.unit, one.slots, one.queue_s, one.started_at) == ("CPU slot", 3, 30, T)
    assert one.kept_s == 9 + 5, "a step takes no longer than the time since the one before"
    assert one.start_up_s == 41
    sums_up(found)


def test_the_verb_prints_the_sums_and_a_line_an_attempt(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("STATE_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"RLTUI_{name}", str(run.parent / name.lower()))
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(run.parent))
    died = attempt(run, 1, T, (1, 2, 3), ended=T + 130)
    (died / "out.log").write_text("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.\n")
    attempt(run, 2, T + 200, (3, 4), ended=T + 320, outcome="finished")
    assert main(["history", RUN]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{RUN}: goodput 13%, 0.071 of 0.556 GPU hours in steps that count"
    assert any(line.split() == ["0.244", "lost", "by", "xid_79_fell_off_bus"] for line in lines), lines
    assert any("1–3 (1 again)  xid_79_fell_off_bus: it ended" in line for line in lines), lines
    assert main(["history", RUN, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["schema"], shown["run_id"]) == (1, RUN)
    assert [one["cause"] for one in shown["history"]["attempts"]] == ["xid_79_fell_off_bus", ""]
    (died / "out.log").unlink()
    (died / "failure.json").unlink()
    assert main(["history", RUN]) == 0
    assert " lost by unknown cause (failed)\n" in capsys.readouterr().out
    (died / "failure.json").unlink()
    write_json(died / "end.json", {"outcome": "failed", "reason": "signal 9", "exit_code": -9, "at": T + 130})
    sample = {"t": T + 128, "host": "n1", "cpus": 8, "cpu": 41.0, "mem": [2.0, 31.0], "gpus": []}
    append(died / "gpu-n1.jsonl", json.dumps(sample).encode() + b"\n")
    assert main(["history", RUN]) == 0
    assert " lost by killed_from_outside\n" in capsys.readouterr().out, "it needs the exit code of that attempt"
    assert [loss_words(word) for word in ("cancelled", "lost")] == [
        "lost by being cancelled",
        "lost by unknown cause (lost)",
    ]
