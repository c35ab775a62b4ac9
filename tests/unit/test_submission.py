"""What follows from a journal, from attempts and from a layout: the pure parts of a run's life cycle."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from rltui.cluster.relay_client import RelayClient
from rltui.diagnose.verdicts import Change, Diagnosis, Remedy
from rltui.errors import RltuiError, UsageError
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.onnode import chain, rundir
from rltui.runs import claims
from rltui.runs.journal import Journal, Submission, fold_submissions
from rltui.runs.script_job import read_script_job
from rltui.service.context import find_run
from rltui.service.fixes import choose, shares_gpu
from rltui.service.recover import Recoverer, Replacements, in_words
from rltui.watch.run_facts import run_facts
from rltui.watch.snapshots import EndSnapshot, RunSummary


def entry(phase: str, **keys: object) -> dict[str, object]:
    return {"time": 100.0, "action": "submit", "phase": phase, "uuid": "u", "run": "r", "cluster": "c", **keys}


@pytest.mark.parametrize(
    ("entries", "phase", "undecided", "care"),
    [
        ([entry("intent")], "intent", True, True),
        ([entry("intent"), entry("submitting")], "submitting", True, True),
        ([entry("intent"), entry("submitting"), entry("done", job="7")], "done", False, False),
        ([entry("intent"), entry("submitting"), entry("done", job="7", recorded=False)], "done", False, True),
        (
            [entry("intent"), entry("submitting"), entry("done", job="7", recorded=False), entry("recorded")],
            *("done", False, False),
        ),
        ([entry("intent"), entry("failed", recorded=False)], "failed", False, True),
        ([entry("intent"), entry("submitting"), entry("unknown")], "unknown", True, True),
        ([entry("intent"), entry("submitting"), entry("unknown"), entry("absent")], "absent", True, True),
        ([entry("intent"), entry("submitting"), entry("adopted", job="7")], "adopted", False, False),
    ],
)
def test_a_submission_is_what_its_entries_say(
    entries: list[dict[str, object]], phase: str, undecided: bool, care: bool
) -> None:
    found = fold_submissions(entries)["u"]
    assert (found.phase, found.is_undecided, found.needs_care) == (phase, undecided, care)
    assert found.intended_at == 100.0


def test_entries_that_make_no_sense_are_passed_over() -> None:
    strange: list[dict[str, object]] = [
        {},
        {"action": "submit"},
        entry("intent", uuid=7),
        {"action": "cancel", "phase": "done", "uuid": "u"},
    ]
    assert not fold_submissions(strange)
    assert fold_submissions([entry("done", job=None, attempt="x", time="y", pid={})])["u"].phase == "done"


def test_what_is_unknown_is_said_with_what_comes_next() -> None:
    lost = Submission(uuid="u", run="grpo-1", phase="unknown", sent_at=100.0)
    assert in_words(lost, 130.0).endswith("sure in 30 s")
    assert "rltui resubmit grpo-1" in in_words(Submission(uuid="u", run="grpo-1", phase="absent"), 0.0)


def past(outcome: str, *, at: float = 100.0, lasted_s: float = 1000.0, number: str = "01") -> chain.EndedAttempt:
    return chain.EndedAttempt(number, outcome, at, lasted_s)


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [
        ([], None),
        ([past("time-limit")], None),
        ([past("finished")], "finished"),
        ([past("cancelled")], "cancelled"),
        ([past("failed")], None),  # it failed after a while: the next link may get further
        ([past("failed", lasted_s=20)], "failed"),
        ([past("failed", lasted_s=20), past("time-limit", at=200.0, number="02")], None),
        ([past("time-limit"), past("failed", at=200.0, lasted_s=0.0, number="02")], "failed"),
    ],
)
def test_a_link_of_a_chain_looks_back(ended: list[chain.EndedAttempt], outcome: str | None) -> None:
    verdict = chain.judge(ended)
    assert (verdict.outcome if verdict else None) == outcome


def test_only_later_links_look_back_and_a_file_stops_them(tmp_path: Path) -> None:
    attempts = [tmp_path / "attempts" / name for name in ("01", "02")]
    for attempt, after in zip(attempts, ("", "17"), strict=True):
        attempt.mkdir(parents=True)
        (attempt / rundir.JOB).write_text(json.dumps({"uuid": "u", "after_job": after}))
    rundir.write_stage(str(attempts[0]), "training", step=3, steps=9)
    rundir.write_end(str(attempts[0]), "failed", 1, "out of memory")
    assert chain.verdict(str(attempts[0])) is None
    second = chain.verdict(str(attempts[1]))
    assert second is not None
    assert (second.outcome, "attempt 01" in second.reason) == ("failed", True)
    assert (second.step, second.steps) == (3, 9)
    for word, outcome in (("PREEMPTION", "cancelled"), ("NODE FAILURE", "lost")):  # Slurm's doing, not the run's
        (attempts[0] / rundir.END).unlink()
        rundir.write_end(str(attempts[0]), outcome, None, "ended by Slurm", slurm=word)
        assert chain.verdict(str(attempts[1])) is None
    (tmp_path / chain.STOP).touch()
    stopped = chain.verdict(str(attempts[1]))
    assert stopped is not None
    assert stopped.outcome == "cancelled"


def files(**attempts: dict[str, object]) -> dict[str, str]:
    texts = {rundir.RUN: '{"name": "grpo"}'}
    for number, contents in attempts.items():
        for name, value in contents.items():
            texts[f"attempts/{number[1:]}/{name.replace('_', '.')}"] = json.dumps(value)
    return texts


def stage(at: float) -> dict[str, object]:
    return {"stage": "training", "history": [{"stage": "preflight", "at": at}]}


JOB = {"uuid": "u"}
END = {"outcome": "time-limit", "at": 50.0}


@pytest.mark.parametrize(
    ("attempts", "number"),
    [
        ({"n01": {"job_json": JOB}, "n02": {"job_json": JOB}, "n03": {"job_json": JOB}}, 1),
        ({"n01": {"job_json": JOB, "stage_json": stage(10)}, "n02": {"job_json": JOB}}, 1),
        ({"n01": {"job_json": JOB, "stage_json": stage(10), "end_json": END}, "n02": {"job_json": JOB}}, 2),
        # the first link was requeued: its second start is attempt 3, and attempt 2 still waits
        (
            {
                "n01": {"job_json": JOB, "stage_json": stage(10), "end_json": END},
                "n02": {"job_json": JOB},
                "n03": {"job_json": JOB, "stage_json": stage(20)},
            },
            3,
        ),
        (
            {
                "n01": {"job_json": JOB, "stage_json": stage(10), "end_json": END},
                "n02": {"job_json": JOB, "stage_json": stage(30)},
                "n03": {"job_json": JOB, "stage_json": stage(20), "end_json": END},
            },
            2,
        ),
    ],
)
def test_a_run_is_at_the_attempt_that_runs_or_comes_next(attempts: dict[str, dict[str, object]], number: int) -> None:
    facts = run_facts("grpo-1", files(**attempts))
    assert facts is not None
    assert facts.newest.number == number


def test_a_submission_is_barred_unless_it_has_started_even_as_a_requeue(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "attempts" / "01"
    path.mkdir(parents=True)
    assert read_script_job(client, str(path)) is None
    (path / rundir.JOB).write_text(json.dumps({"uuid": "u", "requeue_of": "01"}))
    assert claims.read_evidence(client, str(path), "u").started
    assert not claims.withdraw(client, str(path), "u", "refused")
    (path / rundir.JOB).write_text(json.dumps({"uuid": "u"}))
    assert not claims.read_evidence(client, str(path), "u").started
    assert claims.withdraw(client, str(path), "u", "refused")
    assert not tmp_path.exists()  # with the run, which never was one


@pytest.mark.parametrize(
    "before", [[("unknown", {}), ("absent", {})], [("done", {"job": "7", "recorded": False})]], ids=["absent", "done"]
)
def test_a_submission_whose_folder_somebody_removed_is_looked_at_once_and_never_again(
    client: RelayClient, tmp_path: Path, before: list[tuple[str, dict[str, object]]]
) -> None:
    journal, path = Journal(tmp_path / "state"), str(tmp_path / "removed" / "attempts" / "01")
    for phase, told in [("intent", {}), ("submitting", {}), *before]:
        journal.write("submit", phase, uuid="u", run="r", attempt=1, cluster="c", path=path, **told)
    cluster = SimpleNamespace(name="c", client=client, find_submission=lambda *_: None)
    assert Recoverer(cluster, journal).recover() == ()  # type: ignore[arg-type]
    assert not Path(path).exists()


def test_a_full_disk_keeps_nobody_from_looking_at_runs_while_a_submission_is_open(
    client: RelayClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(tmp_path / "state")
    for phase in ("intent", "submitting", "unknown"):
        journal.write(
            "submit", phase, uuid="u", run="r", attempt=1, cluster="c", path=str(tmp_path / "attempts" / "01")
        )
    monkeypatch.setattr(os, "fsync", full)
    cluster = SimpleNamespace(name="c", client=client, find_submission=lambda *_: "7")
    assert [one.uuid for one in Recoverer(cluster, journal).recover()] == ["u"]  # type: ignore[arg-type]


def row(run_id: str, name: str, created_at: float) -> RunSummary:
    return RunSummary(
        run_id=run_id, name=name, algorithm="grpo", cluster="local", state="running", attempt=1, created_at=created_at,
        nodes=1, gpus_per_node=1, gpu="cpu",
    )  # fmt: skip


@pytest.mark.parametrize(("ended_after_s", "is_half_done"), [(60.0, True), (5 * 86400.0, False)])
def test_a_change_is_not_half_done_of_a_run_that_went_on_and_ended_days_later(
    tmp_path: Path, ended_after_s: float, is_half_done: bool
) -> None:
    changes = Replacements(Journal(tmp_path), "c")
    run = row("grpo-1", "grpo", 0.0)
    changes.note(run, ("train.learning_rate=1e-6",), ())
    end = EndSnapshot(outcome="failed", at=time.time() + ended_after_s)
    run = structs.replace(run, state="failed", end=end)
    assert (changes.interrupted(run) is not None) == is_half_done
    assert ("is half done" in changes.unfinished_words(run)) == is_half_done


def test_a_word_names_one_run_or_is_refused() -> None:
    runs = [row("grpo-7b-aa11", "grpo-7b", 2.0), row("grpo-7b-ab22", "grpo-7b", 1.0)]
    assert find_run(runs, "grpo-7b").run_id == "grpo-7b-aa11"
    assert find_run(runs, "grpo-7b-ab").run_id == "grpo-7b-ab22"
    with pytest.raises(UsageError, match="could be grpo-7b-aa11, grpo-7b-ab22"):
        find_run(runs, "grpo-7b-a")
    with pytest.raises(UsageError, match="No run is called"):
        find_run(runs, "")


def out_of_memory(
    key: str = "roles.learner.micro_batch", value: float = 1, cause: str = "cuda_oom_fwd_bwd"
) -> Diagnosis:
    remedy = Remedy(id="r", summary="Halve it.", changes=(Change(key, "set", value),), safe="auto")
    return Diagnosis(id=cause, confidence=0.9, summary="", remedies=(remedy,))


APART = load_layout(resolve("open-instruct/grpo-7b-2x4-uneven")).layout
SHARED = load_layout(resolve("verl-ppo/ppo-1x4-standard"), ["roles.rollout.sleep_while_training=false"]).layout
ASLEEP = load_layout(resolve("verl-ppo/ppo-1x4-standard")).layout


def test_memory_of_a_learner_alone_is_not_lowered_at_the_engine() -> None:
    assert not shares_gpu(APART, "learner")
    for diagnoses in ((), (out_of_memory("roles.rollout.memory_utilization", 0.5),)):
        fix = choose(APART, diagnoses)
        assert (fix.role, len(fix.overrides)) == ("learner", 1)
        assert not fix.overrides[0].startswith("roles.rollout")
        assert "do not share a GPU" in " ".join(fix.words)


def test_memory_of_a_shared_card_is_lowered_at_the_engine_that_is_awake() -> None:
    fix = choose(SHARED, (out_of_memory(),))
    assert fix.overrides == (f"roles.rollout.memory_utilization={SHARED.roles.rollout.memory_utilization - 0.1:g}",)


def test_memory_that_a_sleeping_engine_does_not_hold_is_the_trainers() -> None:
    fix = choose(ASLEEP, (out_of_memory(),))
    assert fix.overrides == ("roles.learner.micro_batch=1",)
    assert "sleeps" in " ".join(fix.words)
    awake = choose(ASLEEP, (out_of_memory(cause="oom_weight_sync"),))
    assert awake.overrides[0].startswith("roles.rollout.memory_utilization=")


def test_memory_of_which_nothing_is_known_is_not_guessed() -> None:
    with pytest.raises(RltuiError, match="Nothing is known about the memory"):
        choose(load_layout(resolve("local/grpo-tiny")).layout, ())
