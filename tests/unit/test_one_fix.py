"""One fix for all causes of a run: what is put together, what is left out, and what is refused."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs

from rltui.cli.words import about
from rltui.cluster.jobs import JobSnapshot
from rltui.diagnose.index import CAUSES
from rltui.errors import RltuiError, UsageError
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.onnode import processes, rundir
from rltui.onnode.checkpoints import mark_complete, step_name
from rltui.service.context import Context
from rltui.service.damaged_checkpoints import set_aside
from rltui.service.hands_off_rules import CauseFix
from rltui.service.one_fix import Fix, compose_causes, compose_fix, preview_fix
from rltui.tui.progress import state_detail
from rltui.watch.snapshots import RunsSnapshot, RunSummary

RUN = "grpo-7b-0a1b"
NODES = ["n1", "n2"]
OOM = (
    '  File "/w/trainers/roles/deepspeed_learner.py", line 88, in backward\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.11 GiB "
    "of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.80 GiB memory in use.\n"
)
XID = "[Mon Nov 23 10:00:00 2026] n2 kernel: NVRM: Xid (PCI:0000:4e:00): 79, pid=12, GPU has fallen off the bus.\n"
TORN = (
    "trainers.roles.calls.RoleError: learner 1 (pid 7 on n1) failed while loading a checkpoint: RuntimeError: "
    "PytorchStreamReader failed reading zip archive: failed finding central directory.\n"
)
NO_TORCH = "ModuleNotFoundError: No module named 'torch'\n"


class Runs:
    """A run root with one run, whose attempt ended as a test wants it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.context = Context()

    def ended(
        self,
        log: str,
        *words: str,
        bad_nodes: dict[str, str] | None = None,
        outcome: str = "failed",
        stage: str = "training",
    ) -> RunSummary:
        layout = load_layout(resolve("open-instruct/grpo-7b-2x4-tp1"), words).layout
        assert layout is not None
        attempt = self.root / RUN / "attempts/01"
        attempt.mkdir(parents=True)
        record = {
            "schema": 1, "run_id": RUN, "name": layout.name, "algorithm": "grpo", "cluster": "local",
            "created_at": time.time(), "nodes": 2, "gpus_per_node": 4, "gpu": "H100-SXM-80GB",
        }  # fmt: skip
        (attempt.parent.parent / rundir.RUN).write_text(json.dumps(record))
        (attempt / rundir.LAYOUT).write_text(dump_layout(layout))
        (attempt / rundir.JOB).write_text(json.dumps({"schema": 1, "uuid": "u", "run_id": RUN, "attempt": 1}))
        (attempt / rundir.SLURM).write_text(json.dumps({"schema": 1, "nodes": NODES}))
        (attempt / rundir.OUT_LOG).write_text(log)
        rundir.write_stage(str(attempt), stage, step=7, steps=100)
        rundir.write_end(str(attempt), outcome, 1, "", bad_nodes=bad_nodes or {})
        return self.context.find(RUN)

    def checkpoint(self, step: int) -> Path:
        folder = self.root / RUN / rundir.CHECKPOINTS / step_name(step)
        (folder / "ranks").mkdir(parents=True)
        (folder / "state.json").write_text("{}")
        (folder / "ranks/rank_0.pt").write_bytes(bytes(100))
        mark_complete(str(folder), step)
        return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    monkeypatch.setenv("RLTUI_RUN_ROOT", str(tmp_path / "runs"))
    monkeypatch.setenv("RLTUI_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("RLTUI_CACHE_DIR", str(tmp_path / "cache"))
    made = Runs(tmp_path / "runs")
    yield made
    made.context.close()


def test_every_cause_of_an_end_says_how_a_run_recovers_from_it() -> None:
    assert {cause.recovery for cause in CAUSES.values()} == {"restart", "elsewhere", "change", "person"}
    for cause in CAUSES.values():
        if cause.recovery == "change":
            assert any(remedy.changes for remedy in cause.remedies_for({})) or "oom" in cause.id, cause.id
        if cause.tier == "aside":
            assert cause.recovery != "elsewhere", cause.id


def test_a_fix_has_a_part_for_each_cause(runs: Runs) -> None:
    run = runs.ended(XID + OOM, bad_nodes={"n2": "Xid 79"})
    fix = compose_fix(runs.context, run)
    assert fix.exclude == ("n2",)
    assert {one.cause for one in fix.causes} == {"xid_79_fell_off_bus"}, "an error after the GPU was lost is its effect"
    preview = preview_fix(runs.context, run, fix)
    assert preview.exclude == ("n2",)
    assert any("slurm.exclude" in line for line in preview.diff)
    assert preview.title == f"Fix {RUN}?"


def test_memory_is_mended_by_what_lowers_that_peak(runs: Runs) -> None:
    run = runs.ended(OOM)
    runs.checkpoint(5)
    fix = compose_fix(runs.context, run)
    assert fix.exclude == ()
    assert len(fix.overrides) == 1
    assert fix.overrides[0].startswith("roles.learner.")
    assert "memory_utilization" not in fix.overrides[0]
    preview = preview_fix(runs.context, run, fix)
    assert any("checkpoint at step 5" in line for line in preview.consequences)
    assert any(line.startswith("cuda_oom_fwd_bwd: ") for line in preview.consequences)


def test_a_fault_of_all_nodes_is_no_reason_to_leave_nodes_out(runs: Runs) -> None:
    run = runs.ended("", bad_nodes=dict.fromkeys(NODES, "no module named torch"))
    (runs.root / RUN / "attempts/01" / rundir.PREFLIGHT).write_text(
        json.dumps({"schema": 1, "bad_nodes": dict.fromkeys(NODES, "python3 has no module torch")})
    )
    with pytest.raises(RltuiError, match="preflight_failed needs you"):
        compose_fix(runs.context, run)


def test_one_bad_node_of_two_is_left_out(runs: Runs) -> None:
    run = runs.ended("", bad_nodes={"n1": "a GPU is missing"})
    (runs.root / RUN / "attempts/01" / rundir.PREFLIGHT).write_text(
        json.dumps({"schema": 1, "bad_nodes": {"n1": "3 of 4 GPUs"}})
    )
    assert compose_fix(runs.context, run).exclude == ("n1",)


def test_what_nobody_can_mend_by_a_layout_is_said(runs: Runs) -> None:
    run = runs.ended(NO_TORCH)
    with pytest.raises(RltuiError, match="env_import_broken needs you"):
        compose_fix(runs.context, run)
    assert compose_fix(runs.context, run, ["train.seed=7"]).overrides == ("train.seed=7",)


@pytest.mark.parametrize(("outcome", "words"), [("finished", "nothing to fix"), ("failed", "no known cause")])
def test_no_fix_is_made_up(runs: Runs, outcome: str, words: str) -> None:
    run = runs.ended("step 1\n", outcome=outcome)
    with pytest.raises(RltuiError, match=words):
        compose_fix(runs.context, run)


def test_steps_that_are_done_already_are_refused(runs: Runs) -> None:
    run = runs.ended(OOM)
    runs.checkpoint(5)
    fix = compose_fix(runs.context, run, ["train.steps=5"])
    with pytest.raises(UsageError, match="of step 5 already"):
        preview_fix(runs.context, run, fix)


def test_a_fix_whose_rltui_died_after_the_end_of_the_old_attempt_is_gone_on_with(runs: Runs) -> None:
    run = runs.ended("", outcome="cancelled")
    runs.context.replacements.note(run, ("train.learning_rate=1e-7",), ("n2",))
    fix = compose_fix(runs.context, run)
    assert (fix.overrides, fix.exclude) == (("train.learning_rate=1e-7",), ("n2",))
    assert "to go on with train.learning_rate=1e-7 --exclude n2, and no new attempt was made" in fix.causes[0].sentence
    assert f"rltui fix {RUN}" in runs.context.replacements.unfinished_words(run)
    newer = structs.replace(run, last_attempt=2)
    assert runs.context.replacements.unfinished_words(newer) == "", "its attempt is there"


def test_a_job_that_slurm_has_queued_again_is_left_in_the_queue_but_for_what_the_user_wants(runs: Runs) -> None:
    ended = runs.ended("srun: error: Node failure on node7\n")
    assert [one.cause for one in compose_causes(runs.context, ended)] == ["slurm_node_fail"]
    job = JobSnapshot(job_id="7", state="pending", reason="Resources", restarts=1)
    again = structs.replace(ended, state="queued", end=None, job=job, job_restart=0)
    with pytest.raises(RltuiError, match="nothing to fix: Slurm has queued job 7 again"):
        compose_fix(runs.context, again)
    fix = compose_fix(runs.context, again, (), ("n2",))
    assert (fix.causes, fix.exclude) == ((), ("n2",))


def torn(folder: Path) -> None:
    os.truncate(folder / "ranks/rank_0.pt", 7)


def gone(folder: Path) -> None:
    (folder / "ranks/rank_0.pt").unlink()


def unreadable(folder: Path) -> None:
    (folder / "state.json").write_text("")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (torn, "step-000007 aside, of which ranks/rank_0.pt has 7 bytes of 100, and goes on from step 5"),
        (gone, "of which ranks/rank_0.pt is missing"),
        (unreadable, "of which state.json has 0 bytes of 2"),
    ],
)
def test_a_newest_checkpoint_that_is_damaged_is_set_aside_once_and_nothing_is_deleted(
    runs: Runs, harm: Callable[[Path], None], words: str
) -> None:
    run = runs.ended(TORN, stage="loading")
    before, newest = runs.checkpoint(5), runs.checkpoint(7)
    harm(newest)
    fix = compose_fix(runs.context, run)
    assert fix.set_aside == newest.name
    assert words in fix.causes[0].sentence
    preview = preview_fix(runs.context, run, fix)
    assert "it goes on from the checkpoint at step 5" in preview.consequences
    assert preview.commands[0] == f"mv -T -- {newest} {newest}-damaged"
    edited = preview_fix(runs.context, run, Fix(overrides=("train.steps=90",), set_aside=newest.name))
    assert "it goes on from the checkpoint at step 5" in edited.consequences
    assert any(line.startswith("ckpt_broken: ") and words in line for line in edited.consequences)
    assert edited.commands[0] == preview.commands[0]

    left = {path.name for path in newest.rglob("*")}
    assert set_aside(runs.context, run, newest.name) == f"{newest}-damaged"
    assert {path.name for path in Path(f"{newest}-damaged").rglob("*")} == left
    assert before.is_dir()
    with pytest.raises(RltuiError, match="cannot be set aside"):
        set_aside(runs.context, run, newest.name)
    phases = [one["phase"] for one in runs.context.journal.entries() if one["action"] == "set-aside"]
    assert phases == ["intent", "done", "intent", "failed"]
    again = compose_fix(runs.context, run)  # as after a fix that was cut off here
    assert again.set_aside == ""
    assert "step-000007 is out of the way: goes on from step 5" in again.causes[0].sentence


def test_one_that_is_damaged_again_gets_another_name(runs: Runs) -> None:
    run = runs.ended(TORN, stage="loading")
    for number in ("", "-2", "-3"):
        assert set_aside(runs.context, run, runs.checkpoint(7).name).endswith(f"step-000007-damaged{number}")


def no_sizes(folder: Path) -> None:
    rundir.write_json(str(folder / rundir.CHECKPOINT_COMPLETE), {"schema": 1, "step": 5})


@pytest.mark.parametrize(
    ("steps", "harm", "harm_before", "stage"),
    [
        ((5, 7), None, None, "loading"),  # it has all its bytes, and does not fit the model
        ((7,), torn, None, "loading"),
        ((5, 7), torn, torn, "loading"),
        ((5, 7), torn, no_sizes, "loading"),  # of an earlier release
        ((5, 7), no_sizes, None, "loading"),
        ((5, 7), torn, None, "training"),  # it was loaded, so what is wrong is something else
    ],
)
def test_what_is_not_proven_of_a_checkpoint_needs_a_person(
    runs: Runs,
    steps: tuple[int, ...],
    harm: Callable[[Path], None] | None,
    harm_before: Callable[[Path], None] | None,
    stage: str,
) -> None:
    run = runs.ended(TORN, stage=stage)
    folders = [runs.checkpoint(step) for step in steps]
    for how, folder in zip((harm, harm_before), reversed(folders), strict=False):
        if how is not None:
            how(folder)
    with pytest.raises(RltuiError, match="ckpt_broken needs you"):
        compose_fix(runs.context, run)
    assert {path.name for path in folders[0].parent.iterdir()} == {folder.name for folder in folders}


@pytest.mark.parametrize(
    ("age_s", "who", "words"),
    [
        (10.0, "this rltui", "is ended by rltui (pid {pid} on {host}), to go on with train.steps=9 --exclude n2"),
        (
            10.0,
            "one that has ended",
            "is half done (rltui resubmit {run} --cancel train.steps=9 --exclude n2 goes on): it was to end at",
        ),
        (10.0, "one on another host", "is ended by rltui (pid 1 on elsewhere), to go on"),
        (400.0, "this rltui", "is half done (rltui resubmit"),
        (400.0, "one on another host", "is half done (rltui resubmit"),
        (4000.0, "one that has ended", ""),
    ],
)
def test_a_fix_of_a_run_that_still_lives_is_under_way_or_cut_off(
    runs: Runs, age_s: float, who: str, words: str
) -> None:
    live = structs.replace(runs.ended("", outcome="cancelled"), state="running", end=None)
    writer = {"pid": os.getpid(), "started": processes.start_time(os.getpid()), "host": socket.gethostname()}
    if who == "one that has ended":
        writer["started"] = "1"
    elif who == "one on another host":
        writer.update(pid=1, host="elsewhere")
    change = {"overrides": ["train.steps=9"], "exclude": ["n2"], "attempt": live.attempt, "time": time.time() - age_s}
    runs.context.journal.write("replace", "intent", run=RUN, cluster=runs.context.name, **{**writer, **change})
    said = runs.context.replacements.unfinished_words(live)
    assert words.format(run=RUN, pid=writer["pid"], host=writer["host"]) in said
    assert bool(said) == bool(words)
    (row,) = runs.context.replacements.explained(RunsSnapshot(runs=(live,))).runs
    assert said in ("", f"{RUN} {row.unfinished}.")
    assert about(row) == (row.unfinished or about(live))
    assert state_detail(row, 0.0) == (row.unfinished or state_detail(live, 0.0))
    newer = structs.replace(live, last_attempt=live.attempt + 1)
    assert runs.context.replacements.unfinished_words(newer) == "", "its attempt is there"


@pytest.mark.parametrize(
    ("mended", "left", "unmended"),
    [
        (("save_overhead", ("checkpoint.every=9",)), "learner_bound", ()),
        (("save_overhead", ()), "learner_bound", ("save_overhead", "learner_bound")),  # nothing would change
        (("save_overhead", ("checkpoint.every=9",)), "nan_or_loss_scale", ("nan_or_loss_scale",)),
    ],
)
def test_what_only_holds_up_a_run_is_no_reason_to_leave_the_rest_unmended(
    mended: tuple[str, tuple[str, ...]], left: str, unmended: tuple[str, ...]
) -> None:
    (cause, overrides) = mended
    one = CauseFix(cause=cause, recovery="person", sentence="", overrides=overrides)
    other = CauseFix(cause=left, recovery="person", sentence="")
    assert tuple(one.cause for one in Fix(causes=(one, other)).unmended) == unmended
