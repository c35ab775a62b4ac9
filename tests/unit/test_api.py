"""``rltui.api`` as a notebook uses it: real runs on this machine, their pictures, ends and mending, as plain data."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rltui.api as rltui
from rltui.onnode import processes

ROOT = Path(__file__).parents[2]
SCRIPT = """#!/bin/bash
[ "$1" != watched ] || until [ -e "$2" ]; do sleep 0.1; done
for step in 1 2 3; do echo "step $step/3 reward: 0.$step"; sleep 0.2; done
[ "$1" != fail ] || { echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."; exit 1; }
[ "$1" != long ] || sleep 600
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_folders: Path) -> Iterator[Path]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "train.sh").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for path in (tmp_path / "run_root").glob("*/attempts/*/job.json"):
        processes.end_all(json.loads(path.read_text())["uuid"], grace_s=0.2)


def test_a_run_is_launched_watched_and_read(folder: Path) -> None:
    with rltui.open("local") as session:
        go_on = folder / "seen"  # else it could be over before the first picture
        run = session.launch("train.sh", "watched", str(go_on), wishes=rltui.Wishes(gpus_per_node=0))
        pictures = []
        for picture in run.watch(every_s=0.1):
            pictures.append(picture)
            go_on.touch()
        assert pictures[0].summary.is_live
        assert [one.summary.state for one in pictures][-1] == "finished"
        assert pictures[-1].metrics.latest["reward"] == 0.3
        metrics = run.metrics()
        assert (metrics.steps, metrics.series["reward"]) == ((1, 2, 3), (0.1, 0.2, 0.3))
        assert [hit.line for hit in run.search(r"reward: 0\.[23]")] == [2, 3]
        assert run.history().attempts[0].last_step == 3
        assert run.why() == ()
        assert [one.run_id for one in session.runs("state:finished")] == [run.run_id]
        assert session.runs("state:failed") == ()
        assert session.run("train").run_id == run.run_id
        assert json.loads(json.dumps(rltui.to_dict(run.summary)))["state"] == "finished"


def test_a_run_that_failed_is_explained_and_started_again(folder: Path) -> None:
    with rltui.open("local") as session:
        run = session.launch("train.sh", "fail", wishes=rltui.Wishes(gpus_per_node=0))
        ended = run.wait(timeout_s=60, every_s=0.1)
        assert (ended.state, ended.end.exit_code if ended.end else None) == ("failed", 1)
        assert any("oom" in one.id for one in run.why())
        run.resubmit()
        assert run.wait(timeout_s=60, every_s=0.1).attempt == 2
        assert any("oom" in one.id for one in run.why(attempt=1))
        assert rltui.to_dict(session.compare(run, run))


def test_a_run_that_lives_is_ended_only_when_it_is_said(folder: Path) -> None:
    with rltui.open("local") as session:
        run = session.launch("train.sh", "long", wishes=rltui.Wishes(gpus_per_node=0))
        with pytest.raises(TimeoutError):
            run.wait(timeout_s=0.5, every_s=0.1)
        with pytest.raises(rltui.RltuiError):
            run.resubmit()
        assert run.summary.is_live
        run.cancel()
        assert run.wait(timeout_s=60, every_s=0.1).state == "cancelled"
        with pytest.raises(rltui.RltuiError):
            run.cancel()


def test_what_cannot_be_is_refused_before_anything_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rltui.open("local") as session:
        assert not session.check("local/grpo-tiny", "batch.prompts_per_step=0").ok
        assert session.check("local/grpo-tiny").ok
        with pytest.raises(rltui.RefusedError):
            session.launch("local/grpo-tiny", "hardware.gpus_per_node=0", "roles.learner.micro_batch=7")
        with pytest.raises(rltui.UsageError):
            session.run("nothing")
        monkeypatch.setattr("rltui.service.this_machine.stands_before_slurm", lambda: True)
        with pytest.raises(rltui.UsageError, match="has Slurm"):
            session.launch("train.sh")
        assert session.runs() == ()
    with pytest.raises(rltui.UsageError), rltui.open("nowhere"):
        pass


def test_it_takes_nothing_heavy_to_import() -> None:
    code = "import sys, rltui.api; print(*{name.partition('.')[0] for name in sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not {"torch", "ray", "textual", "paramiko", "wandb", "vllm"} & set(said.split())


def test_every_name_is_there_typed_and_described() -> None:
    for name in rltui.__all__:
        thing = getattr(rltui, name)
        assert thing.__doc__, name
    for kind in (rltui.Session, rltui.Run):
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                assert method.__doc__, name
                assert "return" in method.__annotations__, name


def test_the_page_names_only_what_there_is() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    known = {*rltui.__all__, *dir(rltui.Session), *dir(rltui.Run)}
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, re.S))
    used = set(re.findall(r"\b(?:rltui|session|run)\.([a-z_]\w*)", code))
    assert used - {"api", "run_id"} <= known
    assert len(used) > 10
