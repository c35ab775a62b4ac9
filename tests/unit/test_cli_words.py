"""How verbs speak of runs: a line that can be read, and the same words for a job that waits as on the screens."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from rltui.cli import gpus, ps, show, words
from rltui.cli.output import talk
from rltui.cluster.jobs import JobSnapshot
from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.report import as_text
from rltui.diagnose.sources import text_source
from rltui.service.actions import preview_cancel
from rltui.service.describe import state_began, steps_done
from rltui.watch.node_samples import GpuSample, HostSnapshot
from rltui.watch.pending import pending_words
from rltui.watch.snapshots import EndSnapshot, RunSnapshot, RunSummary, StageSnapshot


def summary(**keys: Any) -> RunSummary:
    given = {"run_id": "grpo-1a2b", "name": "grpo", "algorithm": "grpo", "cluster": "lab", "attempt": 1}
    return RunSummary(**{**given, "created_at": 50.0, "nodes": 1, "gpus_per_node": 8, "gpu": "H100", **keys})


def waits(**keys: Any) -> RunSummary:
    return summary(state="queued", job_id="7", job=JobSnapshot(job_id="7", state="pending", **keys))


def test_a_long_reason_is_cut_in_the_list_and_whole_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "the trainer failed\nTraceback: " + "word " * 500
    run = summary(state="failed", failure="cuda_oom", end=EndSnapshot(outcome="failed", reason=reason))
    ps._print([run, summary(run_id="short", state="failed", end=EndSnapshot(outcome="failed", reason="no room"))])
    header, first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("…")
    assert "cuda_oom: the trainer failed Traceback: word word" in first
    assert len(first) == len(header.rstrip()) + 2 + ps.LONGEST_TEXT
    assert second.endswith("no room")
    assert words.about(run) == f"cuda_oom: {reason}"


@pytest.mark.parametrize("reason", ["Priority", "QOSMaxGRESPerUser", ""])
def test_a_job_that_waits_has_one_wording(reason: str) -> None:
    start = time.time() + 7859.0
    run = waits(reason=reason, queue_position=31, expected_start_at=start)
    assert words.about(run) == pending_words(run.job, start - 7859.0)
    assert "#31 in line, starts in ~2h10" in words.about(run)
    assert f"  waits: {words.about(run)}" in list(show.lines(RunSnapshot(summary=run)))


def test_a_card_with_a_fault_is_no_idle_card_in_show() -> None:
    cards = tuple(GpuSample(index=index, name="H100", answers=index > 0) for index in range(2))
    event = {"kind": "xid", "text": "Xid (PCI:0): 79, GPU 0 of n1", "host": "n1", "attempt": 1}
    hosts = (HostSnapshot(host="n1", gpus=cards),)
    shown = list(show.lines(RunSnapshot(summary=summary(state="running"), hosts=hosts, events=(event,))))
    assert [line.partition(" GiB")[2] for line in shown[-2:]] == ["  does not answer, Xid 79", ""]


def test_the_numbers_of_cards_end_below_each_other() -> None:
    idle = GpuSample(
        index=3, name="H100", utilization_percent=7, memory_used_gib=3, memory_total_gib=80, power_w=90,
        temperature_c=40, clock_mhz=800, ecc_uncorrected=0,
    )  # fmt: skip
    busy = GpuSample(
        index=10, name="H100", utilization_percent=100, memory_used_gib=71.5, memory_total_gib=80, power_w=699,
        temperature_c=101, clock_mhz=1980, ecc_uncorrected=120000,
    )  # fmt: skip
    hosts = (HostSnapshot(host="n1", gpus=(idle, busy)),)
    assert list(gpus._table(RunSnapshot(summary=summary(state="running"), hosts=hosts))) == [
        "NODE  GPU  ROLE  UTIL %  MEM GIB    W   °C   MHZ     ECC  PROCESS",
        "n1      3  –          7   3.0/80   90   40   800       0  free",
        "n1     10  –        100  71.5/80  699  101  1980  120000  free",
    ]


def test_a_scheduler_that_says_nothing_is_said_to_say_nothing() -> None:
    assert words.about(waits()) == "the scheduler has not said why"


def test_a_node_that_failed_is_named_once() -> None:
    lines = list(as_text(diagnose([text_source("scheduler", "Node failure on node2\n")])))
    assert lines[0] == "✗ A node failed under the job: node2."
    assert "  scheduler:1 (on node2)" in lines


@pytest.mark.parametrize(("nodes", "named"), [("node1", ": node1"), ("node[1-2]", ""), ("node1,node2", "")])
def test_the_node_of_a_job_of_one_is_the_one_that_failed(nodes: str, named: str) -> None:
    told = text_source("scheduler", f"JobState=NODE_FAIL ExitCode=0:0 NodeList={nodes}\n")
    assert next(iter(as_text(diagnose([told])))) == f"✗ A node failed under the job{named}."


@pytest.mark.parametrize("checkpoints", [(), ("checkpoints/step-00000010/COMPLETE",)], ids=["none yet", "one"])
@pytest.mark.parametrize("step", [None, 12])
def test_cancelling_says_where_a_resubmit_would_go_on(checkpoints: tuple[str, ...], step: int | None) -> None:
    client = SimpleNamespace(collect=lambda *_: [SimpleNamespace(path=f"/run/{name}") for name in checkpoints])
    context: Any = SimpleNamespace(cluster=SimpleNamespace(client=client), require_own=lambda _: None)
    stage = StageSnapshot(stage="training", step=step, steps=20)
    *_, last = preview_cancel(context, summary(state="running", stage=stage, path="/run")).consequences
    kept = "goes on from the checkpoint at step 10" if checkpoints else "starts at step 0: there is no checkpoint yet"
    saved = "goes on from there; should that fail, it " if step else ""  # a training run saves before it ends
    assert last == f"resubmitted later, it {saved}{kept}"


def test_a_run_waits_since_it_was_queued() -> None:
    """It has no stage of its own yet."""
    submitted = JobSnapshot(job_id="7", state="pending", submitted_at=500.0)
    assert state_began(summary(state="queued", stage=StageSnapshot(), created_at=90.0)) == 90.0
    assert state_began(summary(state="queued", stage=StageSnapshot(), created_at=90.0, job=submitted)) == 500.0
    assert state_began(summary(state="starting", stage=StageSnapshot(since=600.0), job=submitted)) == 600.0


@pytest.mark.parametrize(
    ("stage", "words_of_it"),
    [
        (StageSnapshot(step=12, steps=300), "12 of 300 steps"),
        (StageSnapshot(step=12), "12 steps"),
        (StageSnapshot(steps=300), "0 of 300 steps"),
    ],
)
def test_steps_done_say_of_how_many_where_that_is_known(stage: StageSnapshot, words_of_it: str) -> None:
    assert steps_done(summary(state="failed", stage=stage)) == words_of_it


def test_what_is_said_breaks_between_words_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "  warning B205: the only checkpoint is the final one\n  $ rltui resubmit run-1a2b train.steps=1000"
    talk(said)
    assert capsys.readouterr().err == f"{said}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "30")
    talk(said)
    first = "  warning B205: the only\n    checkpoint is the final\n    one\n"
    assert capsys.readouterr().err == f"{first}  $ rltui resubmit run-1a2b train.steps=1000\n"
