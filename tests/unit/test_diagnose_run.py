"""Why a run died: its logs and its end, read through a real relay."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from rltui.cluster import relay_client
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.diagnose.verdicts import Diagnosis
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.service import why
from rltui.service.attempts import Ending
from rltui.service.why import diagnose_run, examine_run, failure_of, failure_word, last_words, nothing_found, why_report
from rltui.watch.snapshots import EndSnapshot, RunSummary, StageSnapshot

KILLED = EndSnapshot(outcome="failed", exit_code=-9, reason="the trainer was killed by signal 9 (SIGKILL)")


@pytest.fixture
def context() -> Iterator[Any]:
    client = RelayClient(LocalTransport())
    profile = SimpleNamespace(scheduler="slurm")
    yield SimpleNamespace(cluster=SimpleNamespace(client=client, profile=profile))
    client.close()


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    path = tmp_path / "run-1a2b" / "attempts" / "02"
    path.mkdir(parents=True)
    return path


def failed_run(attempt: Path, end: EndSnapshot | None, **more: Any) -> RunSummary:
    """The run that ``attempt`` is of."""
    given = {"run_id": "run-1a2b", "name": "run", "algorithm": "grpo", "cluster": "local", "state": "failed"}
    shape = {"created_at": 0.0, "nodes": 1, "gpus_per_node": 2, "gpu": "cpu"}
    return RunSummary(**given, **shape, attempt=2, end=end, path=str(attempt.parents[1]), **more)


def diagnosed(context: Any, attempt: Path, end: EndSnapshot | None = None) -> tuple[Diagnosis, ...]:
    """Diagnose the run that ``attempt`` is of."""
    run = failed_run(attempt, end, stage=StageSnapshot(stage="training", detail="step 3"))
    return diagnose_run(context, run)


def test_the_cause_is_found_in_any_log_of_the_attempt(context: Any, attempt: Path) -> None:
    attempt.joinpath("out.log").write_text("step 1\nray.exceptions.ActorDiedError: The actor died unexpectedly\n")
    attempt.joinpath("ray-logs").mkdir()
    packed = gzip.compress(b"started\nOSError: [Errno 24] Too many open files\n")
    attempt.joinpath("ray-logs", "worker-1.err.gz").write_bytes(packed)
    found = diagnosed(context, attempt, KILLED)
    assert [(one.id, one.secondary) for one in found[:1]] == [("too_many_open_files", False)]
    assert (found[0].evidence[0].file, found[0].evidence[0].line) == ("ray-logs/worker-1.err.gz", 2)
    assert ("ray_actor_died", True) in [(one.id, one.secondary) for one in found]
    assert failure_word(found) == "too_many_open_files"
    guess = structs.replace(found[0], confidence=0.5)
    assert failure_word((guess, *found[1:])) == "", "a guess is no word of a list"


def test_of_an_end_that_nobody_knows_the_last_words_are_shown(context: Any, attempt: Path) -> None:
    attempt.joinpath("out.log").write_text("".join(f"loss {step}\n" for step in range(9)) + "\x1b[31mI give up\n\n")
    run = failed_run(attempt, EndSnapshot(outcome="failed", exit_code=7, reason="the trainer exited with code 7"))
    found = examine_run(context, run)
    assert last_words(run, found) == (
        "The last it said (`rltui logs run-1a2b` has all):",
        "  loss 5",
        "  loss 6",
        "  loss 7",
        "  loss 8",
        "  I give up",
    )
    assert why_report(run, found).notes[:6] == last_words(run, found)
    attempt.joinpath("out.log").write_text("loss 1\nOSError: [Errno 24] Too many open files\n")
    assert last_words(run, examine_run(context, run)) == ()


def test_what_events_told_of_a_standstill_is_of_its_time(context: Any, attempt: Path) -> None:
    told = {"time": 5.0, "kind": "evidence", "text": "no new step for 61 s, a step takes 0.1 s; evidence is taken"}
    attempt.joinpath("events.jsonl").write_text(json.dumps(told) + "\n")
    assert diagnosed(context, attempt) == ()
    attempt.joinpath("out.log").write_text(json.dumps({"level": "error", "message": "Too many open files"}) + "\n")
    assert [one.id for one in diagnosed(context, attempt)] == ["too_many_open_files"]


def test_events_and_the_end_are_evidence_too(context: Any, attempt: Path) -> None:
    reason = "the run directory (/scratch/me) has 0.4 GiB free, 2 are needed"
    found = diagnosed(context, attempt, EndSnapshot(outcome="failed", exit_code=1, reason=reason))
    assert found[0].id == "disk_full"
    assert found[0].evidence[0].file == "end.json"
    assert "/scratch/me" in found[0].summary


@pytest.mark.parametrize(
    ("where", "cause"), [("the run directory", "disk_full"), ("the temporary directory", "preflight_failed")]
)
def test_a_full_run_directory_is_no_fault_of_the_node_that_says_so(
    context: Any, attempt: Path, where: str, cause: str
) -> None:
    said = f"{where} (/scratch/me) has 0.4 GiB free, 1 are needed"
    attempt.joinpath("preflight.json").write_text(json.dumps({"bad_nodes": {"n1": said}}))
    reason = f"1 of 1 nodes cannot run this job; n1: {said}"
    found = diagnosed(context, attempt, EndSnapshot(outcome="failed", exit_code=1, reason=reason))
    assert [one.id for one in found if not one.secondary] == [cause]
    commands = [command for remedy in found[0].remedies for command in remedy.commands]
    assert any("--exclude" in command for command in commands) == (cause == "preflight_failed")


def test_remedies_come_in_the_numbers_of_the_layout(context: Any, attempt: Path) -> None:
    layout = load_layout(resolve("local/grpo-tiny"), ["roles.rollout.memory_utilization=0.5"]).layout
    attempt.joinpath("layout.yaml").write_text(dump_layout(layout))
    attempt.joinpath("out.log").write_text("ValueError: No available memory for the cache blocks.\n")
    (diagnosis,) = diagnosed(context, attempt)
    (change,) = diagnosis.remedies[0].changes
    assert (change.key, change.operation, change.value) == ("roles.rollout.memory_utilization", "set", 0.6)


def test_a_kill_without_a_reason_asks_for_more(context: Any, attempt: Path) -> None:
    (diagnosis,) = diagnosed(context, attempt, KILLED)
    assert diagnosis.confidence < 0.6
    assert diagnosis.remedies[0].id == "collect-more"
    assert "dmesg" in diagnosis.remedies[0].summary


def test_a_wanted_end_is_no_death(context: Any, attempt: Path) -> None:
    attempt.joinpath("out.log").write_text("ray.exceptions.ActorDiedError: The actor died unexpectedly\n")
    attempt.joinpath("ray-logs").mkdir()
    late = 'Traceback (most recent call last):\n  File "head.py", line 7, in poll\n    poll()\nAioRpcError: too late\n'
    attempt.joinpath("ray-logs/dashboard_NodeHead.log").write_text(late)
    cancelled = EndSnapshot(outcome="cancelled", exit_code=143, reason="cancelled by the user")
    assert diagnosed(context, attempt, cancelled) == ()
    assert diagnosed(context, attempt, EndSnapshot(outcome="finished", exit_code=0, reason="all steps done")) == ()
    assert [one.id for one in diagnosed(context, attempt, EndSnapshot(outcome="failed", exit_code=1))] != []
    assert failure_word(()) == ""


def test_of_a_huge_log_beginning_and_end_are_read(context: Any, attempt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "HEAD_BYTES", 1 << 16)
    monkeypatch.setattr(why, "TAIL_BYTES", 1 << 16)
    monkeypatch.setattr(why, "BLOCK_LINES", 1000)
    monkeypatch.setattr(relay_client, "PIECE_BYTES", 1 << 14)
    filler = "step done in 3 s\n" * 40_000
    with attempt.joinpath("out.log").open("w") as log:
        log.write("OSError: [Errno 24] Too many open files\n" + filler + "No space left on device\n" + filler)
        log.write("ValueError: No available memory for the cache blocks.\n")
    found = {(one.id, one.evidence[0].line) for one in diagnosed(context, attempt)}
    assert found == {("too_many_open_files", 1), ("engine_kv_no_blocks", 80_003)}


def test_secrets_and_numbers_are_not_read(context: Any, attempt: Path) -> None:
    error = json.dumps({"text": "No available memory for the cache blocks."})
    for name in ("ray.token", "metrics.jsonl", "gpu-n1.jsonl", "ray.json", "env"):
        attempt.joinpath(name).write_text(error)
    assert diagnosed(context, attempt) == ()


def test_stages_checks_steps_and_samples_are_read(context: Any, attempt: Path) -> None:
    attempt.joinpath("preflight.json").write_text(json.dumps({"schema": 1, "bad_nodes": {"n3": "no GPU answers"}}))
    attempt.joinpath("metrics.jsonl").write_text("".join(f'{{"step": {n}, "time": {60 * n}}}\n' for n in range(9)))
    full = {"t": 9000.0, "host": "n1", "mem": [251.0, 252.0]}
    attempt.joinpath("gpu-n1.jsonl").write_text(json.dumps(full) + "\n")
    end = EndSnapshot(outcome="failed", exit_code=-9, reason="killed", at=9010.0)
    found = {one.id: one.evidence[0].file for one in diagnosed(context, attempt, end)}
    assert found["preflight_failed"] == "preflight.json"
    assert found["run_stalled"] == "metrics.jsonl"
    assert found["host_oom_slurm"] == "sampler"


def test_what_a_run_suffered_from_is_not_what_ended_it(context: Any, attempt: Path) -> None:
    attempt.joinpath("out.log").write_text(
        'Traceback (most recent call last):\n  File "own.py", line 3, in f\nOwnError: no\n'
    )
    lines = ({"step": n, "time": 60 * n, "reward": 0.1, "zero_std_fraction": 1.0} for n in range(20))
    attempt.joinpath("metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    end = EndSnapshot(outcome="failed", exit_code=1, reason="nobody knows", at=1170.0)
    run = failed_run(attempt, end, stage=StageSnapshot(stage="training", detail="step 3"))
    found, first = why.examine_run(context, run).diagnoses, why.examine_run(context, run).first_exception
    assert [(one.id, one.secondary) for one in found] == [("program_failed", False), ("no_learning_signal", True)]
    assert first is not None


def test_broken_files_of_a_run_cost_nothing_else(context: Any, attempt: Path) -> None:
    for name in ("preflight.json", "metrics.jsonl", "gpu-n1.jsonl", "stage.json"):
        attempt.joinpath(name).write_bytes(b'{"bad_nodes": [1, \xff\x00')
    attempt.joinpath("out.log").write_text("OSError: [Errno 24] Too many open files\n")
    assert [one.id for one in diagnosed(context, attempt, KILLED)] == ["too_many_open_files"]


def test_the_word_for_a_list_is_read_from_the_ends_of_logs(context: Any, attempt: Path) -> None:
    with attempt.joinpath("out.log").open("w") as log:
        log.write("step done in 3 s\n" * 200_000 + "ValueError: No available memory for the cache blocks.\n")
    run = failed_run(attempt, KILLED)
    assert failure_of(context, run) == "engine_kv_no_blocks"
    assert failure_of(context, structs.replace(run, state="running")) == ""
    assert "finished" in nothing_found(structs.replace(run, state="finished"))
    assert "no known cause" in nothing_found(run)
    end = EndSnapshot(outcome="failed", reason="the disk is full")
    assert " (the disk is full), but" in nothing_found(structs.replace(run, state="failed", end=end))
    before = [Ending(attempt=1, reason="the disk was full"), Ending(attempt=2, reason="preempted by Slurm.")]
    again = nothing_found(structs.replace(run, state="starting"), before)
    assert again.endswith(" Attempt 2 ended: preempted by Slurm. Nothing is known to be wrong with it.")
    quiet = structs.replace(run, state="running", no_step_s=84.0, usual_step_s=0.23)
    assert nothing_found(quiet).endswith(" There has been no step for 1m24, usually 0.23 s, and nothing says why yet.")
    found = nothing_found(structs.replace(run, state="running"), at_rest=("no GPU works", "its log is silent"))
    assert found.endswith(" No GPU works; its log is silent, and nothing says why yet.")


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("PartitionTimeLimit", "rltui update run-1a2b --time HH:MM:SS"),
        ("PartitionNodeLimit", "rltui resubmit run-1a2b --cancel hardware.nodes=N"),
        ("ReqNodeNotAvail, Reserved for maintenance", "rltui update run-1a2b --time HH:MM:SS"),
        ("QOSMaxWallDurationPerJobLimit", "rltui resubmit run-1a2b --cancel KEY=VALUE"),
    ],
)
def test_a_run_that_waits_in_vain_gets_the_very_command(context: Any, attempt: Path, reason: str, command: str) -> None:
    job = JobSnapshot(job_id="7", state="pending", word="PENDING", reason=reason)
    run = structs.replace(failed_run(attempt, None, job=job), state="queued")
    [pending] = diagnose_run(context, run)
    assert pending.id == "slurm_pending"
    assert pending.remedies[0].commands[0] == command


def test_a_run_that_waits_says_for_what(attempt: Path) -> None:
    job = JobSnapshot(job_id="7", state="pending", word="PENDING", reason="JobHeldUser", run_id="run-1a2b")
    run = structs.replace(failed_run(attempt, None, job=job), state="queued")
    assert nothing_found(run).startswith("run-1a2b is queued: You hold it. `rltui release run-1a2b` lets it start.")
    local = structs.replace(run, job=None, stage=StageSnapshot(stage="queued", detail="behind run-9f for 3 CPU slots"))
    assert nothing_found(local).startswith("run-1a2b is queued: behind run-9f for 3 CPU slots. Nothing is known")
