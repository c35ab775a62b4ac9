"""Commands of remedies for one run: what is known of the run stands in them, so that they can be copied."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from rltui.cluster.jobs import JobSnapshot
from rltui.diagnose.diagnose import examine
from rltui.diagnose.index import CAUSES
from rltui.diagnose.sources import text_source
from rltui.diagnose.verdicts import Diagnosis
from rltui.dialects.load import load_dialects
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.layout.roles import Hardware
from rltui.runs.script_job import ScriptJob
from rltui.service.run_commands import with_next_start, with_run_commands
from rltui.watch.snapshots import RunState, RunSummary, StageSnapshot

A_SCRIPT = ScriptJob(
    name="run",
    dialect=load_dialects()["verl"],
    script="run.sh",
    source="/home/alice/run.sh",
    hardware=Hardware(nodes=1, gpus_per_node=4),
)
ROOT = Path(__file__).parents[2] / "rltui"
KNOWN = ("run", "id", "node", "run folder", "model", "script")
"""Blanks that a run of one node, with one model or a script, can fill."""


def a_run(state: RunState = "failed", **more: object) -> RunSummary:
    return RunSummary(
        run_id="tiny-4f2a", name="tiny", algorithm="grpo", cluster="lab", state=state, attempt=1, created_at=0.0,
        nodes=1, gpus_per_node=4, gpu="H100-SXM-80GB", **more,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "log", "command"),
    [
        ("failed", "srun: error: Node failure on node7", "rltui resubmit tiny-4f2a --exclude node7"),
        ("running", "srun: error: Node failure on node7", "rltui resubmit tiny-4f2a --exclude node7 --cancel"),
        ("failed", "JobHeldAdmin: launch failed requeued held", "rltui release tiny-4f2a"),
    ],
)
def test_a_run_s_remedies_are_commands_for_that_run(state: RunState, log: str, command: str) -> None:
    said = with_run_commands(examine([text_source("out.log", log)]).diagnoses, a_run(state))
    commands = [one for remedy in said[0].remedies for one in remedy.commands]
    assert command in commands
    assert not [one for one in commands if one.startswith(("sbatch", "scontrol"))]


def test_a_machine_without_slurm_is_offered_none_of_its_commands() -> None:
    remedies = CAUSES["node_silent"].remedies_for({"node": "box2"})
    found = (Diagnosis(id="node_silent", confidence=1.0, summary="", remedies=remedies),)

    def offered(has_slurm: bool) -> list[str]:
        [said] = with_run_commands(found, a_run("running"), has_slurm=has_slurm)
        return [command for remedy in said.remedies for command in remedy.commands]

    assert "sinfo -R" in offered(True)
    assert offered(False) == [one for one in offered(True) if not one.startswith(("sinfo", "scontrol"))] != []


@pytest.mark.parametrize(
    ("restarts", "reason", "is_done_for_you"),
    [(1, "Resources", True), (0, "Resources", False), (1, "BadConstraints", False)],
)
def test_nothing_is_to_be_done_for_a_run_whose_job_slurm_has_queued_again(
    restarts: int, reason: str, is_done_for_you: bool
) -> None:
    job = JobSnapshot(job_id="7", state="pending", reason=reason, restarts=restarts)
    found = examine([text_source("out.log", "srun: error: Node failure on node7")]).diagnoses
    [said] = with_next_start(found, a_run("queued", job=job, job_restart=0))
    assert ([one.id for one in said.remedies] == ["goes-on"]) == is_done_for_you
    assert ("Slurm has queued job 7 again" in said.remedies[0].summary) == is_done_for_you


@pytest.mark.parametrize("cause_id", sorted(CAUSES))
def test_no_remedy_leaves_a_blank_for_what_the_run_knows(cause_id: str) -> None:
    run = a_run(
        job_id="4711",
        path="/home/alice/my runs/tiny-4f2a",
        job=JobSnapshot(job_id="4711", state="failed", nodes=("node3",)),
    )
    remedies = CAUSES[cause_id].remedies_for({})
    found = (Diagnosis(id=cause_id, confidence=1.0, summary="", remedies=remedies),)
    for work in (load_layout(resolve("local/grpo-tiny")).layout, A_SCRIPT):
        [said] = with_run_commands(found, run, work)
        words = [text for remedy in said.remedies for text in (remedy.summary, *remedy.commands)]
        left = {blank for text in words for blank in re.findall(r"<([a-z ]+)>", text)}
        unknown = "script" if work is not A_SCRIPT else "model"
        assert not left & (set(KNOWN) - {unknown}), words
        assert not [text for text in words if re.search(r"\b(?:RUN|NODE)\b", text)], words


@pytest.mark.parametrize(
    ("stages", "path"),
    [
        (("placing", "loading", "ended"), "'/my runs/t/checkpoints/step-000040'"),
        (("loading", "training", "ended"), "<checkpoint>"),
    ],
)
def test_a_checkpoint_that_cannot_be_loaded_is_named(stages: tuple[str, ...], path: str) -> None:
    log = "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"
    stage = StageSnapshot(stage="ended", step=40, history=tuple({"stage": one, "at": 1.0} for one in stages))
    layout = load_layout(resolve("local/grpo-tiny")).layout
    found = examine([text_source("out.log", log)]).diagnoses
    [said] = with_run_commands(found, a_run(stage=stage, path="/my runs/t"), layout)
    assert said.remedies[0].commands == (f"mv {path} {path}-damaged", "rltui resubmit tiny-4f2a")


def test_what_is_several_stays_a_blank_and_a_path_is_quoted() -> None:
    job = JobSnapshot(job_id="7", state="failed", nodes=("node1", "node2"))
    log = "OSError: [Errno 28] No space left on device"
    [full] = with_run_commands(examine([text_source("out.log", log)]).diagnoses, a_run(job=job, path="/my runs/t"))
    assert full.remedies[0].commands[0] == "df -h '/my runs/t'"
    remedies = CAUSES["nccl_timeout"].remedies_for({})
    found = (Diagnosis(id="nccl_timeout", confidence=1.0, summary="", remedies=remedies),)
    commands = with_run_commands(found, a_run(job=job))[0].remedies[0].commands
    assert "rltui resubmit tiny-4f2a --exclude <node>" in commands


def messages(path: Path) -> list[str]:
    """All texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [node.value for node in texts if id(node) not in said]


WITHOUT_A_RUN = {"recording.py"}
"""Modules whose messages name a verb where there is no run yet."""


def test_messages_about_a_run_name_it() -> None:
    rooms = (ROOT / "service", ROOT / "cluster", ROOT / "diagnose" / "causes")
    nameless = {
        f"{path.name}: {text}"
        for room in rooms
        for path in room.rglob("*.py")
        if path.name not in WITHOUT_A_RUN
        for text in messages(path)
        if re.search(r"\brltui [a-z-]+ RUN\b", text)
    }
    assert not nameless
