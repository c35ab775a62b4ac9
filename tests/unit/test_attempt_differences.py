"""What was different in an attempt of unknown end from the last one that made steps."""

from __future__ import annotations

import json
from pathlib import Path

from rltui.cluster.relay_client import RelayClient
from rltui.layout.load import dump_layout, load_layout
from rltui.layout.presets import resolve
from rltui.onnode import rundir
from rltui.service.attempt_differences import differences
from rltui.watch.snapshots import RunSummary


def attempt(
    run: Path, number: int, step: int | None, *words: str, nodes: str = "n1 n2", torch: str = "2.9", code: str = "a"
) -> None:
    folder = run / "attempts" / f"{number:02d}"
    folder.mkdir(parents=True)
    layout = load_layout(resolve("local/grpo-tiny"), words).layout
    assert layout is not None
    report = {"nodes": {"n1": {"versions": {"torch": torch}}}}
    files = {
        rundir.LAYOUT: dump_layout(layout),
        rundir.STAGE: json.dumps({"stage": "ended", "step": step}),
        rundir.JOB: json.dumps({"code": f"/runs/.code/{code}"}),
        rundir.SLURM: json.dumps({"nodes": nodes.split()}),
        rundir.PREFLIGHT: json.dumps(report),
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def row(run: Path, number: int) -> RunSummary:
    return RunSummary(
        run_id="r", name="r", algorithm="grpo", cluster="c", state="failed", attempt=number, created_at=0.0, nodes=1,
        gpus_per_node=1, gpu="cpu", path=str(run),
    )  # fmt: skip


def test_every_kind_of_difference_is_named(client: RelayClient, tmp_path: Path) -> None:
    attempt(tmp_path, 1, 40)
    attempt(tmp_path, 2, None)
    attempt(tmp_path, 3, 0, "train.learning_rate=0.5", nodes="n1 n7", torch="2.10", code="b")
    found = differences(client, row(tmp_path, 3))
    assert found is not None
    assert (found.attempt, found.step) == (1, 40), "the second made no steps"
    text = "\n".join(found.in_words())
    assert "train.learning_rate: " in text
    assert "→ 0.5" in text
    assert "nodes: n1, n2 → n1, n7" in text
    assert "torch" in text
    assert "another version" in text


def test_where_nothing_differs_that_is_said(client: RelayClient, tmp_path: Path) -> None:
    attempt(tmp_path, 1, 40)
    attempt(tmp_path, 2, 3)
    found = differences(client, row(tmp_path, 2))
    assert found is not None
    assert found.changes == ()
    assert "nothing that is written down" in found.in_words()[0]


def test_without_an_attempt_that_made_steps_there_is_nothing_to_compare(client: RelayClient, tmp_path: Path) -> None:
    attempt(tmp_path, 1, 0)
    attempt(tmp_path, 2, 0)
    assert differences(client, row(tmp_path, 2)) is None
    assert differences(client, row(tmp_path, 1)) is None
