"""Columns of the list of runs in the shell, and how busy the GPUs are by the samplers' own lines."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from watch_support import append, make_run, supervisor

from rltui.cli.main import main
from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.watch.runs import MOST_NODES, RunsReader, load_percent, sample_ranges

TRAINING = {"schema": 1, "stage": "training", "since": 1.0, "updated": 2.0, "step": 3, "steps": 9}


def line(*loads: float, at: float | None = None, host: str = "n1") -> dict[str, object]:
    gpus = [{"i": index, "util": load} for index, load in enumerate(loads)]
    return {"t": time.time() if at is None else at, "host": host, "cpus": 8, "gpus": gpus}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable, folder in (("RUN_ROOT", "runs"), ("STATE_DIR", "state"), ("CACHE_DIR", "c"), ("CONFIG_DIR", "f")):
        monkeypatch.setenv(f"RLTUI_{variable}", str(tmp_path / folder))
    return tmp_path / "runs"


def test_the_shell_prints_the_columns_that_are_asked_for(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(root, "tiny-1", supervisor=supervisor(host="n1.example.org"), stage=TRAINING)
    append(root / "tiny-1/attempts/01/gpu-n1.jsonl", line(90.0, 70.0), b'{"t": 17')
    assert main(["ps", "--columns", "gpu%,state,nodes,cause,attempts"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["RUN", "GPU%", "STATE", "NODES", "CAUSE", "ATT"]
    assert row.split() == ["tiny-1", "80%", "▶", "running", "1", "–", "1"]
    assert main(["ps", "--columns", "gpu%", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["gpu_percent"] == 80.0
    assert main(["ps"]) == 0
    assert capsys.readouterr().out.split()[:4] == ["RUN", "STATE", "N×G", "STEP"]
    assert main(["ps", "--columns", "gpus"]) == 2
    assert "There are algo, shape" in capsys.readouterr().err


def test_samples_are_read_only_where_somebody_wants_them(tmp_path: Path) -> None:
    slurm = {"schema": 1, "job_id": "7", "nodes": ["n1", "n2", "n3"]}
    run = make_run(tmp_path, supervisor=supervisor(), stage=TRAINING, slurm=slurm)
    append(run / "attempts/01/gpu-n1.jsonl", line(100.0), line(40.0))
    append(run / "attempts/01/gpu-n2.jsonl", line(60.0, host="n2"))
    client = RelayClient(LocalTransport())
    try:
        reader = RunsReader(client, str(tmp_path))
        assert reader.read().runs[0].gpu_percent is None
        reader.with_gpus = True
        assert reader.read().runs[0].gpu_percent == 50.0
        reader.with_gpus = False
        assert reader.read().runs[0].gpu_percent is None
    finally:
        client.close()


def test_old_torn_and_strange_lines_tell_nothing() -> None:
    good = json.dumps(line(30.0, at=1000.0)).encode() + b"\n"
    assert load_percent([good], 1010.0) == 30.0
    assert load_percent([good + b'{"t": 1001, "gp'], 1010.0) == 30.0
    assert load_percent([good, b"", b"\x00\xff\n", json.dumps(line(at=1000.0)).encode() + b"\n"], 1010.0) == 30.0
    assert load_percent([good], 1100.0) is None
    assert load_percent([], 0.0) is None


def test_a_run_of_many_nodes_opens_few_files(tmp_path: Path) -> None:
    make_run(tmp_path, supervisor=supervisor(), stage=TRAINING)
    client = RelayClient(LocalTransport())
    [run] = RunsReader(client, str(tmp_path)).read().runs
    client.close()
    ranges = sample_ranges(run, [f"n{index}.site" for index in range(1000)])
    assert len(ranges) == MOST_NODES
    assert ranges[0].path.endswith("attempts/01/gpu-n0.jsonl")


def test_a_sweep_is_one_line_and_unfold_shows_each(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for index in range(3):
        run = make_run(root, f"tiny-seed-{index}", stage=TRAINING, supervisor=supervisor())
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, "sweep": "tiny-1f0a"}))
    assert main(["ps"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[1].split() == ["tiny", "×3", "1×3c", "(3", "running)"]
    assert "--unfold shows each" in told.err
    assert main(["ps", "--columns", "step"]) == 0
    assert "tiny ×3 (3 running)" in capsys.readouterr().out
    assert main(["ps", "--unfold"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    assert main(["ps", "--json"]) == 0
    assert {run["sweep"] for run in json.loads(capsys.readouterr().out)["runs"]} == {"tiny-1f0a"}
