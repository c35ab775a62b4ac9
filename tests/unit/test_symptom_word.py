"""The word of a live run in lists, with what its GPUs show."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs
from watch_support import append, make_run, supervisor, write_json

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileRange
from rltui.service.symptoms import symptom_word
from rltui.watch.runs import RunsReader

TRAINING = {"schema": 1, "stage": "training", "step": 20, "steps": 100}
WELL, HOT, LOW = (62, 630, 1500), (91, 300, 1100), (60, 240, 700)
"""Temperature, power and clock."""


def sample(host: str, *cards: tuple[int, int, int]) -> dict[str, Any]:
    """A sampler's line of a node whose GPUs work for one program."""
    gpus = [
        {"i": place, "name": "NVIDIA H100", "util": 97, "w": w, "c": c, "mhz": [mhz, 1980], "pids": [7 + place]}
        for place, (c, w, mhz) in enumerate(cards)
    ]  # fmt: skip
    procs = [{"pid": 7 + place, "title": f"python -u train.py --rank {place}"} for place in range(len(cards))]
    return {"t": time.time(), "host": host, "cpus": 8, "gpus": gpus, "procs": procs}


def training(root: Path, gpu: str = "H100", **nodes: list[tuple[int, int, int]]) -> Path:
    """A run that makes steps on ``nodes``."""
    slurm = {"schema": 1, "job_id": "7", "nodes": list(nodes)}
    run = make_run(root, supervisor=supervisor(), stage=TRAINING, slurm=slurm)
    write_json(run / "run.json", {**json.loads((run / "run.json").read_text()), "gpu": gpu, "algorithm": "generic"})
    now = time.time()
    steps = [{"step": n, "time": now - 20 + n, "time/total": 1.0, "reward": 0.3 + 0.01 * n} for n in range(20)]
    append(run / "attempts/01/metrics.jsonl", *steps)
    for node, cards in nodes.items():
        append(run / f"attempts/01/gpu-{node}.jsonl", *[sample(node, *cards)] * 3)
    return run


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [
        ([WELL] * 4, [WELL] * 4, ""),
        ([WELL] * 4, [WELL, WELL, HOT, WELL], "throttled: GPU 2 of n2"),
        ([WELL, LOW], [WELL] * 2, "straggler: GPU 1 of n1"),
    ],
)
def test_the_word_names_the_gpu(
    tmp_path: Path, first: list[tuple[int, int, int]], second: list[tuple[int, int, int]], word: str
) -> None:
    training(tmp_path, n1=first, n2=second)
    client = RelayClient(LocalTransport())
    try:
        reader = RunsReader(client, str(tmp_path))
        [run] = reader.read().runs
        assert symptom_word(run, reader) == word
        assert symptom_word(run, reader, with_gpus=False) == ""
    finally:
        client.close()


@pytest.mark.parametrize(("gpu", "asked"), [("H100", 1), ("cpu", 0)])
def test_samplers_are_asked_once_a_minute_and_only_of_gpus(
    tmp_path: Path, gpu: str, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    training(tmp_path, gpu, n1=[WELL] * 4)
    client = RelayClient(LocalTransport())
    try:
        reader = RunsReader(client, str(tmp_path))
        [run] = reader.read().runs
        read, requests = client.read_many, []

        def counted(ranges: list[FileRange]) -> Any:
            requests.append(ranges)
            return read(ranges)

        now = [1000.0]
        monkeypatch.setattr(client, "read_many", counted)
        monkeypatch.setattr("rltui.watch.runs.time", SimpleNamespace(monotonic=lambda: now[0]))
        for _ in range(3):
            reader.sampler_ends(run)
        assert len(requests) == asked
        now[0] += 61.0
        reader.sampler_ends(run)
        assert len(requests) == 2 * asked
    finally:
        monkeypatch.undo()
        client.close()


def test_a_fault_that_a_row_tells_already_comes_first(tmp_path: Path) -> None:
    training(tmp_path, n1=[WELL, WELL, WELL, HOT])
    client = RelayClient(LocalTransport())
    try:
        reader = RunsReader(client, str(tmp_path))
        [run] = reader.read().runs

        told = structs.replace(run, symptom="Xid 79: GPU 0 of n1 is lost")
        assert symptom_word(told, reader) == "Xid 79: GPU 0 of n1 is lost"
    finally:
        client.close()
