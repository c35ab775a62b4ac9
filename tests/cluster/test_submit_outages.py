"""What else can be broken while runs are made: the controller, accounting, disks, clocks, and hostile values."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from slurm_support import SLEEPS, CutTransport, LabTransport, Link, context_on, profile, small_layout

from rltui.cluster.cluster import SubmitUnknownError
from rltui.errors import RltuiError
from rltui.runs.directory import new_run_id
from rltui.runs.journal import Journal
from rltui.service.actions import cancel
from rltui.service.job_changes import hold, release, update
from rltui.service.launch import launch
from rltui.service.recover import Recoverer
from rltui.service.resubmit import resubmit
from rltui.service.submit import submit_attempt
from waiting import eventually

if TYPE_CHECKING:
    from lab import Lab

    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

HOSTILE = (
    "$(touch /home/alice/pwned)",
    "`touch /home/alice/pwned`",
    "'; touch /home/alice/pwned; '",
    '"; touch /home/alice/pwned; "',
    "x\ntouch /home/alice/pwned",
    "--wrap=touch /home/alice/pwned",
    "a\0b",
    "A" * 100_000,
)
TEXT_FIELDS = (
    *("name", "summary", "tracking.project", "tracking.entity", "data.train", "data.eval", "roles.learner.model"),
    *("slurm.partition", "slurm.account", "slurm.qos", "slurm.constraint", "slurm.time"),
)


def queued(lab: Lab) -> list[str]:
    return lab.exec("login", ["squeue", "--me", "-h", "-o", "%A"]).stdout.split()


def polled(context: Context, run_id: str) -> RunSummary:
    """The run after a fresh look at Slurm."""
    context.cluster.poller._due = 0.0  # type: ignore[attr-defined]
    return next(run for run in context.runs().runs if run.run_id == run_id)


def test_a_controller_that_is_away_makes_no_run_end(slurm_cluster: Lab, tmp_path: Path) -> None:
    context = context_on(LabTransport(slurm_cluster), tmp_path, SLEEPS)
    running = submit_attempt(context, new_run_id("runs"), 1, small_layout()).run_id
    waiting = submit_attempt(context, new_run_id("waits"), 1, small_layout("slurm.options=['--hold']")).run_id
    eventually(lambda: polled(context, running).state == "starting", "the start")
    before = {run_id: polled(context, run_id).state for run_id in (running, waiting)}
    with slurm_cluster.controller_away():
        for _ in range(3):
            assert {run_id: polled(context, run_id).state for run_id in (running, waiting)} == before
        assert "controller" in context.runs().scheduler_problem.lower()
        assert context.runs().problem == ""
        assert polled(context, waiting).job_as_of
        stage = f"runs/{running}/attempts/01/stage.json"
        told = json.dumps({"stage": "training", "since": 1.0, "updated": 1.0, "step": 7, "steps": 9})
        slurm_cluster.exec("login", ["tee", stage], input=told)
        assert context.find(running).stage.step == 7
        with pytest.raises(RltuiError) as refused:
            submit_attempt(context, new_run_id("refused"), 1, small_layout())
        assert refused.value.exit_code in (1, 3)
        assert {run.run_id for run in context.runs().runs} == {running, waiting}
    eventually(lambda: not polled(context, running).job_as_of, "the controller's return")
    assert {run_id: polled(context, run_id).state for run_id in (running, waiting)} == {**before, running: "running"}
    context.close()


def lose_the_answer(lab: Lab, state: Path) -> tuple[Context, str]:
    """A submission that Slurm has taken and whose answer was lost."""
    link = Link()
    context = context_on(CutTransport(LabTransport(lab), link), state, profile(setup_lines=["sleep 600"]))
    submit = context.cluster.slurm.submit  # type: ignore[attr-defined]

    def lost(*arguments: object, **options: object) -> str:
        submit(*arguments, **options)
        raise SubmitUnknownError("the answer was lost")

    context.cluster.slurm.submit = lost  # type: ignore[attr-defined]
    run_id = new_run_id("unanswered")
    with pytest.raises(SubmitUnknownError):
        submit_attempt(context, run_id, 1, small_layout())
    return context, run_id


def test_a_lost_answer_is_said_and_adopted_without_accounting(slurm_cluster: Lab, tmp_path: Path) -> None:
    slurm_cluster.service("ctl", "slurmdbd", "stop")
    context, run_id = lose_the_answer(slurm_cluster, tmp_path)
    assert polled(context, run_id).job_id in queued(slurm_cluster)  # found at the first look
    assert len(queued(slurm_cluster)) == 1
    slurm_cluster.service("ctl", "slurmdbd", "start")
    context.close()


def test_another_machine_without_the_journal_adopts_it_too(slurm_cluster: Lab, tmp_path: Path) -> None:
    lose_the_answer(slurm_cluster, tmp_path / "lost")[0].close()
    other = context_on(LabTransport(slurm_cluster), tmp_path / "other", SLEEPS)
    [run] = other.runs().runs
    assert run.submission.startswith("found: it is job")
    assert other.runs().runs[0].job_id in queued(slurm_cluster)
    other.close()


def test_what_cannot_be_found_is_offered_and_barred_from_starting_late(slurm_cluster: Lab, tmp_path: Path) -> None:
    context = context_on(LabTransport(slurm_cluster), tmp_path)

    def lost(*_: object, **__: object) -> str:
        raise SubmitUnknownError("the answer was lost")

    submit, context.cluster.slurm.submit = context.cluster.slurm.submit, lost  # type: ignore[attr-defined]
    run_id = new_run_id("vanished")
    with pytest.raises(SubmitUnknownError):
        submit_attempt(context, run_id, 1, small_layout())
    context.cluster.slurm.submit = submit  # type: ignore[attr-defined]
    assert "looked for by its mark" in polled(context, run_id).submission

    def a_minute_later() -> float:
        return time.time() + 61

    context.cluster.slurm._clock = a_minute_later  # type: ignore[attr-defined]
    context.recoverer = Recoverer(context.cluster, context.journal, a_minute_later)
    seen = polled(context, run_id)
    assert f"rltui resubmit {run_id}" in seen.submission
    assert resubmit(context, seen).attempt == 2
    # the lost one turns up after all: it finds the bar and ends without a trace
    script = f"{seen.path}/attempts/01/job.sbatch"
    slurm_cluster.exec("login", ["sbatch", "--wait", script])
    names = slurm_cluster.exec("login", ["ls", f"{seen.path}/attempts/01"]).stdout
    assert "supervisor.json" not in names
    assert "given up" in slurm_cluster.exec("login", ["sh", "-c", f"cat {seen.path}/attempts/01/slurm-*.out"]).stdout
    context.close()


@pytest.mark.parametrize("options", ["size=16k", "size=1m,ro"], ids=["full", "read-only"])
def test_a_run_root_that_cannot_be_written_refuses_before_anything_is_submitted(
    slurm_cluster: Lab, tmp_path: Path, options: str
) -> None:
    folder = "/home/alice/small"
    slurm_cluster.exec("login", ["mkdir", "-p", folder])
    mounted = f"{options},uid=2001,mode=0700"
    slurm_cluster.exec("login", ["mount", "-t", "tmpfs", "-o", mounted, "tmpfs", folder], user="root")
    try:
        context = context_on(LabTransport(slurm_cluster), tmp_path)
        context.cluster._root._path = folder  # type: ignore[attr-defined]
        with pytest.raises(RltuiError) as refused:
            submit_attempt(context, new_run_id("refused"), 1, small_layout())
        assert any(words in str(refused.value) for words in ("No space left", "Read-only"))
        context.close()
    finally:
        slurm_cluster.exec("login", ["umount", folder], user="root")
    assert not queued(slurm_cluster)


@pytest.mark.parametrize("offset_s", [-600, 600])
def test_clocks_that_differ_by_ten_minutes_lose_nothing(slurm_cluster: Lab, tmp_path: Path, offset_s: int) -> None:
    slurm_cluster.clock("login", offset_s)
    context, run_id = lose_the_answer(slurm_cluster, tmp_path)
    run = polled(context, run_id)
    assert [run.job_id] == queued(slurm_cluster)
    assert "ending" in cancel(context, run)
    eventually(lambda: polled(context, run_id).state == "cancelled", "the end")
    context.close()


def test_an_id_that_was_drawn_before_is_drawn_again(
    slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = context_on(LabTransport(slurm_cluster), tmp_path)
    drawn = iter(("grpo-tiny-0001", "grpo-tiny-0001", "grpo-tiny-0002"))
    monkeypatch.setattr("rltui.runs.directory.new_run_id", lambda _: next(drawn))
    assert [launch(context, "local/grpo-tiny").run_id for _ in range(2)] == ["grpo-tiny-0001", "grpo-tiny-0002"]
    assert {run.attempt for run in context.runs().runs} == {1}
    context.close()


def is_taken(context: Context, word: str) -> bool:
    try:
        return bool(launch(context, "local/grpo-tiny", [word]).job_id)
    except RltuiError:
        return False


def test_hostile_values_execute_nothing(slurm_cluster: Lab, tmp_path: Path) -> None:
    context = context_on(LabTransport(slurm_cluster), tmp_path)
    words = [f"{field}={json.dumps(value)}" for field in TEXT_FIELDS for value in HOSTILE]
    # some are harmless as data, and travel as such
    assert 0 < sum(is_taken(context, word) for word in words) < len(words)
    eventually(lambda: not queued(slurm_cluster), "the end of all jobs")
    assert not list(Path(slurm_cluster.folder, "home").rglob("*pwned*"))
    context.close()


def test_no_secret_is_in_anything_that_was_written(
    slurm_cluster: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-9f3b7c21"
    for name in ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, canary)
    slurm_cluster.exec("login", ["sh", "-c", f"umask 077; echo WANDB_API_KEY={canary} > secrets.env"])
    told = profile(setup_lines=["sleep 600"], env_file="~/secrets.env", env={"HF_HUB_OFFLINE": "1"})
    context = context_on(LabTransport(slurm_cluster), tmp_path / "state", told)
    run_id = launch(context, "local/grpo-tiny").run_id
    run = polled(context, run_id)
    script = slurm_cluster.exec("login", ["scontrol", "write", "batch_script", run.job_id, "-"]).stdout
    shown = slurm_cluster.exec("login", ["scontrol", "show", "job", run.job_id]).stdout
    cancel(context, run)
    context.close()
    eventually(lambda: not queued(slurm_cluster), "the end of the job, which writes too")
    written = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    written += [path for path in Path(slurm_cluster.folder, "home/alice/runs").rglob("*") if path.is_file()]
    assert len(written) > 5
    assert canary not in script + shown
    assert not [path for path in written if canary.encode() in path.read_bytes()]


def test_a_pending_job_is_held_changed_and_released(slurm_cluster: Lab, tmp_path: Path) -> None:
    context = context_on(LabTransport(slurm_cluster), tmp_path, SLEEPS)
    run_id = submit_attempt(
        context, new_run_id("changed"), 1, small_layout("slurm.options=['--begin=now+1hour']")
    ).run_id
    run = polled(context, run_id)
    assert run.state == "queued"
    assert "held" in hold(context, run)
    assert polled(context, run_id).job.reason == "JobHeldUser"  # type: ignore[union-attr]
    update(context, run, time="00:20:00", exclude=["node1", "node2"])
    update(context, run, exclude=["node3"])
    job = polled(context, run_id).job
    assert job is not None
    assert job.time_limit_s == 1200
    excluded = slurm_cluster.exec("login", ["squeue", "-h", "-j", run.job_id, "-o", "%x"]).stdout.strip()
    assert excluded == "node[1-3]"
    assert "may start" in release(context, run)
    told = [(entry["action"], entry["phase"]) for entry in Journal(tmp_path).entries()][3:]
    actions = ("hold", "update", "update", "update", "release")
    assert told == [(action, phase) for action in actions for phase in ("intent", "done")]
    context.close()
