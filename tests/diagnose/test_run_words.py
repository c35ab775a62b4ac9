"""What a run says besides logs: stages, steps, samples, jobs; each rule with the picture where it must keep still."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec import structs

from rltui.cluster.jobs import JobSnapshot
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.recent import RunPicture, Step
from rltui.diagnose.run_words import at_rest_words, symptoms_of, words_of
from rltui.diagnose.sources import Source
from rltui.diagnose.stuck import halted_at_the_end, halted_now
from rltui.watch.node_samples import EngineSample, GpuSample, HostSnapshot, ProcessSample
from rltui.watch.snapshots import EndSnapshot, StageSnapshot

NOW = 100_000.0
FAILED = EndSnapshot(outcome="failed", exit_code=1, at=NOW)
FINISHED = EndSnapshot(outcome="finished", exit_code=0, at=NOW)
HEALTHY = {
    "learner_tokens_per_second_step": 8000.0,
    "time/total": 60.0,
    "time/weight_sync": 2.0,
    "parity_max_abs": 0.05,
    "zero_std_fraction": 0.2,
    "reward": 0.1,
}


def steps(count: int = 20, every_s: float = 60.0, last_at: float = NOW - 30, **late: float) -> tuple[Step, ...]:
    """Return ``count`` steps, the last of them at ``last_at``; the last eight have the values ``late`` instead."""
    first = last_at - every_s * (count - 1)
    changed = {**HEALTHY, **{name.replace("__", "/"): value for name, value in late.items()}}
    return tuple(
        Step(first + every_s * number, changed if number >= count - 10 else HEALTHY) for number in range(count)
    )


def with_pause(pause_s: float, last_at: float) -> tuple[Step, ...]:
    """Healthy steps of a minute, with one pause in their midst."""
    return tuple(
        Step(step.at - (pause_s if number < 10 else 0.0), step.values)
        for number, step in enumerate(steps(last_at=last_at))
    )


def training(**more: object) -> RunPicture:
    stage = StageSnapshot(stage="training", since=NOW - 90_000, step=20, steps=500)
    return RunPicture(**{"now": NOW, "stage": stage, **more})  # type: ignore[arg-type]


def causes(picture: RunPicture) -> list[str]:
    """Return the ids found in the picture's words, first causes only."""
    sources = [Source(name, ("\n".join(lines).encode(),), False) for name, lines in words_of(picture).items()]
    return [one.id for one in diagnose(sources) if not one.secondary]


@pytest.mark.parametrize(
    ("picture", "cause"),
    [
        (training(steps=steps(last_at=NOW - 4000)), "run_stalled"),
        (training(steps=steps(last_at=NOW - 4000), end=FAILED), "run_stalled"),
        (training(steps=steps(learner_tokens_per_second_step=900.0)), "run_slowed"),
        (training(steps=steps(time__weight_sync=45.0)), "weight_sync_slow"),
        (training(steps=steps(parity_max_abs=0.9)), "parity_growth"),
        (training(steps=steps(zero_std_fraction=1.0)), "no_learning_signal"),
        (training(steps=steps(zero_std_fraction=1.0, reward=0.1)), "no_learning_signal"),
        (training(steps=with_pause(1500.0, last_at=NOW - 3200)), "run_stalled"),
        (training(bad_nodes={"n3": "GPU 4 has 3 uncorrectable errors"}), "preflight_failed"),
    ],
)
def test_the_runs_own_numbers_tell(picture: RunPicture, cause: str) -> None:
    assert causes(picture) == [cause]


@pytest.mark.parametrize(
    "picture",
    [
        training(steps=steps()),
        training(steps=steps(last_at=NOW - 500)),  # eight medians, but not ten minutes
        training(steps=steps(every_s=1800.0, last_at=NOW - 7200)),  # four medians of half an hour
        training(steps=steps(count=2, last_at=NOW - 9000)),  # too few steps to know
        training(steps=steps(last_at=NOW - 9000), end=FINISHED),
        training(steps=steps(learner_tokens_per_second_step=5000.0)),
        training(steps=steps(zero_std_fraction=0.9)),
        training(steps=steps(zero_std_fraction=1.0, reward=1.0)),  # solved
        training(steps=with_pause(1500.0, last_at=NOW - 2900)),  # it was as slow once before, say to evaluate
        training(steps=steps(count=8, learner_tokens_per_second_step=90.0)),
        RunPicture(now=NOW, stage=StageSnapshot(stage="saving", since=NOW - 900), steps=steps(last_at=NOW - 900)),
        RunPicture(now=NOW, stage=StageSnapshot(stage="queued", since=NOW - 90_000)),
        RunPicture(now=NOW, stage=StageSnapshot(stage="loading", since=NOW - 900)),
        RunPicture(now=NOW, end=EndSnapshot(outcome="cancelled", exit_code=-9, reason="cancelled by Slurm")),
        RunPicture(now=NOW),
    ],
)
def test_what_is_usual_is_none(picture: RunPicture) -> None:
    assert causes(picture) == []


def test_a_stage_that_lasts_names_who_is_missing() -> None:
    stage = StageSnapshot(stage="ray-up", since=NOW - 1300, detail="7/8 nodes, missing nid010869")
    sources = [Source(name, ("\n".join(lines).encode(),), False) for name, lines in words_of(stuck(stage)).items()]
    (diagnosis,) = diagnose(sources)
    assert diagnosis.id == "stage_stuck"
    assert "nid010869" in diagnosis.summary
    assert diagnosis.evidence[0].line == 0
    roles = {"learner 0": "ready", "engine 1": "loading"}
    loading = StageSnapshot(stage="loading", since=NOW - 4000, roles=roles)
    assert any("engine 1" in line for line in words_of(stuck(loading))["stage.json"])


def stuck(stage: StageSnapshot) -> RunPicture:
    return RunPicture(now=NOW, stage=stage)


@pytest.mark.parametrize(
    ("job", "cause"),
    [
        (JobSnapshot(job_id="7", state="failed", word="NODE_FAIL", nodes=("n3",)), "slurm_node_fail"),
        (JobSnapshot(job_id="7", state="failed", word="TIMEOUT"), "slurm_time_limit"),
        (JobSnapshot(job_id="7", state="failed", word="OUT_OF_MEMORY", exit_code=0, signal=125), "host_oom_slurm"),
        (JobSnapshot(job_id="7", state="failed", word="PREEMPTED"), "slurm_preempted"),
        (JobSnapshot(job_id="7", state="failed", word="BOOT_FAIL"), "slurm_node_fail"),
        (JobSnapshot(job_id="7", state="failed", word="DEADLINE"), "slurm_time_limit"),
        (JobSnapshot(job_id="7", state="cancelled", word="CANCELLED", cancelled_by="0"), "cancelled_by_other"),
        (JobSnapshot(job_id="7", state="failed", word="FAILED", signal=9), "host_oom_slurm"),
        (JobSnapshot(job_id="7", state="pending", word="PENDING", reason="PartitionTimeLimit"), "slurm_pending"),
        (
            JobSnapshot(job_id="7", state="pending", word="PENDING", reason="launch failed requeued held"),
            "slurm_launch_failed",
        ),
    ],
)
def test_the_schedulers_state_is_evidence(job: JobSnapshot, cause: str) -> None:
    assert causes(RunPicture(now=NOW, job=job)) == [cause]


@pytest.mark.parametrize(
    "job",
    [
        JobSnapshot(job_id="7", state="running", word="RUNNING"),
        JobSnapshot(job_id="7", state="completed", word="COMPLETED", exit_code=0),
        JobSnapshot(job_id="7", state="pending", word="PENDING", reason="Priority"),
        JobSnapshot(job_id="7", state="pending", word="PENDING", reason="Resources"),
        JobSnapshot(job_id="7", state="cancelled", word="CANCELLED", cancelled_by="me", signal=9),
        JobSnapshot(job_id="7", state="cancelled", word="CANCELLED", signal=9),
        JobSnapshot(job_id="7", state="running", word="COMPLETING", signal=9),
        JobSnapshot(job_id="7"),
    ],
)
def test_normal_states_of_jobs_are_none(job: JobSnapshot) -> None:
    assert causes(RunPicture(now=NOW, job=job)) == []


def host(used: float = 100.0, at: float = NOW - 10, idle_since: float = 0.0) -> HostSnapshot:
    return HostSnapshot(
        host="n1",
        taken_at=at,
        memory_used_gib=used,
        memory_total_gib=252.0,
        gpus=(GpuSample(index=0, name="H100"),),
        idle_since=idle_since,
    )


def test_a_full_host_just_before_the_end_speaks_for_memory() -> None:
    died = training(end=FAILED, hosts=(host(used=251.0),))
    assert causes(died) == ["host_oom_slurm"]
    assert causes(training(end=FAILED, hosts=(host(used=251.0, at=NOW - 4000),))) == []
    assert causes(training(end=FINISHED, hosts=(host(used=251.0),))) == []


@pytest.mark.parametrize(("known", "words"), [
    ({"hosts": (host(idle_since=NOW - 90),)}, ["no GPU of n1 has worked since "]),
    ({"hosts": (host(idle_since=NOW - 90),), "said_at": NOW - 400}, ["no GPU of n1", "its log has been silent since "]),
    ({"hosts": (host(),), "said_at": NOW - 200}, []),
    ({"hosts": (host(idle_since=NOW - 90), host())}, []),
    ({"hosts": (host(idle_since=NOW - 30),)}, []),
    ({"hosts": (host(idle_since=NOW - 90),), "steps": steps(every_s=2.0, last_at=NOW - 1)}, []),
    ({"hosts": (host(idle_since=NOW - 90),), "stage": StageSnapshot(stage="loading", since=NOW - 900)}, []),
], ids=["idle", "silent too", "busy", "one busy", "new", "a CPU layout on nodes with cards", "it loads"])  # fmt: skip
def test_cards_that_rest_and_a_silent_log_are_told_as_seen_and_are_no_cause(
    known: dict[str, Any], words: list[str]
) -> None:
    picture = training(**known)
    found = at_rest_words(picture)
    assert [one[: len(begin)] for one, begin in zip(found, words, strict=True)] == words
    assert "run_stalled" not in causes(picture)


def test_a_step_is_waited_for_from_the_end_of_the_checkpoint_on() -> None:
    """As on the node (``onnode/progress.py``), which would end a run of hands-off mode by another word."""
    saved = StageSnapshot(stage="training", since=NOW - 20, step=20, steps=500)
    assert causes(training(steps=steps(last_at=NOW - 4000), stage=saved)) == []
    hangs = StageSnapshot(stage="training", since=NOW - 3000, step=20, steps=500)
    assert causes(training(steps=steps(last_at=NOW - 4000), stage=hangs)) == ["run_stalled"]


def test_what_has_been_so_for_more_than_a_day_is_told_with_its_date() -> None:
    (words,) = at_rest_words(training(said_at=NOW - 2 * 86_400))
    assert re.search(r"silent since \d{4}-\d\d-\d\d \d\d:", words)


def test_a_program_of_unknown_words_that_loads_for_hours_may_be_training() -> None:
    loads = training(stage=StageSnapshot(stage="loading", since=NOW - 9000), hosts=(host(idle_since=NOW - 90),))
    assert causes(loads) == ["stage_stuck"]
    unknown = structs.replace(loads, tells_steps=False)
    assert (causes(unknown), len(at_rest_words(unknown))) == ([], 1)


@pytest.mark.parametrize(("silent_s", "found"), [(95.0, ["engine_silent"]), (30.0, []), (0.0, [])])
def test_an_engine_that_does_not_answer_is_named_after_a_minute(silent_s: float, found: list[str]) -> None:
    engines = (EngineSample(name="8000", pid=77, running=3.0), EngineSample(name="8001", pid=78, silent_s=silent_s))
    picture = training(steps=steps(), hosts=(HostSnapshot(host="node1", engines=engines),))
    assert causes(picture) == found
    assert [one.sentence for one in symptoms_of(picture)] == [
        f"engine 8001 of node1 (pid 78) of 2 has not answered for {silent_s:.0f} s" for _ in found
    ]
    assert causes(structs.replace(picture, end=EndSnapshot(outcome="finished", at=NOW))) == []


def test_a_run_that_has_gone_quiet_gets_no_advice_on_speed() -> None:
    """What held up its last steps is past; a minute later that would be advice to change a layout that is well."""
    slow, quiet = (training(steps=steps(last_at=NOW - ago_s, time__weight_sync=45.0)) for ago_s in (30, 300))
    assert [one.cause for one in symptoms_of(slow)] == ["weight_sync_slow"]
    assert not symptoms_of(quiet)
    evaluating = structs.replace(quiet.stage, detail="evaluating 3/20")
    assert symptoms_of(structs.replace(quiet, stage=evaluating)), "which takes its own time"


@pytest.mark.parametrize(
    ("state", "state_s", "sampled_at", "is_named"),
    [
        ("stopped", 20.0, NOW - 2, True),
        ("traced", 20.0, NOW - 2, True),
        ("stopped", 1.0, NOW - 2, False),
        ("stopped", 20.0, NOW - 40, False),
        ("zombie", 20.0, NOW - 2, False),
    ],
    ids=["stopped", "under a debugger", "for a moment", "a step has come since", "dead, as helpers are"],
)
def test_a_process_that_is_stopped_is_named_before_a_standstill_is_one(
    state: str, state_s: float, sampled_at: float, is_named: bool
) -> None:
    process = ProcessSample(pid=7, title="ray::Learner", state=state, state_s=state_s)
    host = HostSnapshot(host="n1", taken_at=NOW - 1, processes_at=sampled_at, processes=(process,))
    found = halted_now(training(steps=steps(), hosts=(host,)))
    named = [one.name for one in found.processes] if found is not None else []
    assert named == ["ray::Learner (pid 7 on n1)"] * is_named
    assert halted_now(training(steps=steps(), hosts=(host,), end=FAILED)) is None


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({-60: "stopped"}, True),
        ({-60: "traced"}, True),
        ({-60: "stopped", -40: "goes on again"}, False),
        ({-60: "disk wait"}, False),
        ({-1: "stopped"}, False),
        ({-900: "stopped"}, False),
    ],
    ids=["stopped", "under a debugger", "went on", "reads a disk", "as it is ended", "a step has come since"],
)
def test_who_was_stopped_until_a_deadline_of_the_trainer_passed_is_still_named(
    told: dict[int, str], named: bool
) -> None:
    events = [
        {"kind": "process", "time": FAILED.at + at, "text": f"ray::Learner.train (pid 7): {state} on n1", "host": "n1"}
        for at, state in told.items()
    ]
    died = training(steps=(Step(FAILED.at - 100, {}),), end=FAILED)
    found = halted_at_the_end([*events, {"text": "torn"}], died)
    names = [one.name for one in found.processes] if found is not None else []
    assert names == ["ray::Learner.train (pid 7 on n1)"] * named
    assert halted_at_the_end(events, structs.replace(died, end=structs.replace(FAILED, outcome="cancelled"))) is None


@pytest.mark.parametrize(
    ("used_gib", "ago_s", "word", "cause"),
    [
        (20.0, 2.0, "FAILED", "killed_from_outside"),
        (60.0, 2.0, "FAILED", "host_oom_slurm"),
        (20.0, 30.0, "FAILED", "host_oom_slurm"),
        (20.0, 2.0, "OUT_OF_MEMORY", "host_oom_slurm"),
    ],
    ids=["half free", "not so", "nobody knows", "Slurm says that it was"],
)
def test_a_kill_with_memory_to_spare_is_no_lack_of_it(used_gib: float, ago_s: float, word: str, cause: str) -> None:
    host = HostSnapshot(host="n1", taken_at=NOW - ago_s, memory_used_gib=used_gib, memory_total_gib=100.0)
    end = structs.replace(FAILED, exit_code=137, reason="the trainer exited with code 137; see out.log")
    job = JobSnapshot(job_id="7", state="failed", word=word)
    assert causes(training(steps=steps(), hosts=(host,), end=end, job=job)) == [cause]
    stood = structs.replace(end, hung="no new step for 700 s")
    assert "killed_from_outside" not in causes(training(steps=steps(), hosts=(host,), end=stood)), "by hands-off mode"
