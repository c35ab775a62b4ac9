"""A gloo collective that one rank does not come to, by real processes: who it is, and where, is read from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from trainer_support import ROOT

from free_ports import free_ports
from rltui.cli.main import main
from rltui.diagnose.flight_record import lines_of
from rltui.diagnose.recent import RunPicture, Step
from rltui.diagnose.stuck import Evidence, stuck_words
from rltui.onnode import evidence, flight_recorder, rundir
from rltui.service.read_evidence import joined, parse_answer
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.trainers]

RANK = """
import os, sys, time
import torch
import torch.distributed as dist
from trainers.roles.flight_recorder import record_torch, tell_stacks

tell_stacks()
record_torch()
rank = int(sys.argv[1])
dist.init_process_group("gloo", rank=rank, world_size=2)

def away_for_long():
    open(sys.argv[2], "w").close()
    time.sleep(600)

for step in range(3):
    dist.all_reduce(torch.ones(8))
if rank == 1:
    away_for_long()
dist.all_reduce(torch.ones(1024))
"""


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two ranks, of which the second sleeps where the first calls a fourth all_reduce."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **where, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
    environment[rundir.ATTEMPT_VARIABLE] = tmp_path.name
    words = [sys.executable, "-c", RANK]
    started = [subprocess.Popen([*words, str(rank), str(tmp_path / "asleep")], env=environment) for rank in range(2)]
    yield started
    for process in started:
        process.kill()
        process.wait(60)


def seen(folder: Path, number: int, ranks: list[subprocess.Popen[bytes]]) -> Evidence:
    """Take evidence of the ranks."""
    evidence.take(str(folder), folder.name, "n1", str(number))
    answer = parse_answer((folder / "evidence" / f"{number}-n1.json").read_bytes())
    assert answer is not None
    return joined([answer], {("n1", process.pid): f"learner {rank}" for rank, process in enumerate(ranks)})


@pytest.mark.parametrize("spy", [True, False], ids=["py-spy", "faulthandler"])
def test_the_rank_that_does_not_come_is_named_with_what_it_does(
    tmp_path: Path, ranks: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, spy: bool
) -> None:
    if not spy:
        monkeypatch.setattr(evidence, "py_spy", lambda: "")
    (tmp_path / "evidence").mkdir()
    eventually((tmp_path / "asleep").exists, "the second rank's nap")

    def waited() -> bool:
        calls = evidence.read_collectives(ranks[0].pid)
        return bool(calls) and calls[-1]["seq"] == 4 and time.time() - calls[-1]["began"] > 6.0

    eventually(waited, "the fourth all_reduce of the first rank")
    now = time.time()
    picture = RunPicture(now=now, steps=tuple(Step(now - 700 + step, {}) for step in range(5)))
    (line,) = stuck_words(seen(tmp_path, 1, ranks), picture)
    assert line.startswith(f"stuck: learner 1 (pid {ranks[1].pid} on n1) has not come: it is in ")
    assert "away_for_long" in line
    assert f"; learner 0 (pid {ranks[0].pid} on n1) waits for it in all_reduce 4 of all learners (4096 bytes)" in line
    assert json.loads((tmp_path / "evidence" / "1-n1.json").read_text())["versions"]["torch"]
    for request in (1795641803000, 1795641804000):
        (line,) = flight_lines_of(tmp_path, request, ranks)
        assert line.startswith(f"stuck: rank 1 of 2 (pid {ranks[1].pid} on n1) has not joined all_reduce 4 of ")
        assert "([[1024]] Float): its last there is all_reduce 3; rank 0 waits in it" in line
    assert all(process.poll() is None for process in ranks), "looking at them changes nothing"


def flight_lines_of(folder: Path, request: int, ranks: list[subprocess.Popen[bytes]]) -> list[str]:
    """What the records of both ranks say, taken now."""
    seen(folder, request, ranks)
    names = [flight_recorder.live_name(str(request), rank) for rank in range(2)]
    lines, unusable = lines_of({name: (folder / "evidence" / name).read_bytes() for name in names})
    assert unusable == []
    return lines


NCCL = """
import pickle, sys, time
from torch._C import _distributed_c10d
from trainers.roles.flight_recorder import record_torch

rank, began = int(sys.argv[1]), time.time_ns()

def call(number, state):
    sizes = {"input_sizes": [[1024]], "input_dtypes": ["Float"], "output_sizes": [[1024]], "output_dtypes": ["Float"]}
    when = {"time_created_ns": began - 60 * 10**9, "time_discovered_started_ns": None, "duration_ms": None}
    ids = {"record_id": number, "pg_id": 0, "op_id": number, "collective_seq_id": number, "p2p_seq_id": 0}
    kind = {"profiling_name": "nccl:all_reduce", "process_group": ("0", "default_pg"), "is_p2p": False}
    return {**sizes, **when, **ids, **kind, "state": state, "retired": state == "completed", "timeout_ms": 600000}

def dump(includeCollectives=None, includeStackTraces=None, onlyActive=None):
    entries = [call(number, "completed") for number in (1, 2, 3)] + [call(4, "started")] * (rank == 0)
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return pickle.dumps({"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries}, 2)

_distributed_c10d._dump_nccl_trace = dump
import torch.distributed as dist

dist.get_rank, dist.is_initialized = lambda *of: rank, lambda: True
record_torch()
open(sys.argv[2] + str(rank), "w").close()
time.sleep(600)
"""
"""Two ranks on cards: a queued all_reduce has returned, and both wait in Python. Only torch's record, of the form that
torch gives of NCCL, knows that rank 0 is in one that rank 1 has not joined."""


def test_a_collective_that_hangs_on_the_cards_is_known_from_the_record_of_nccl(tmp_path: Path) -> None:
    """No card is here: NCCL's recorder itself is the fake, and nothing above it is."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), rundir.ATTEMPT_VARIABLE: tmp_path.name}
    words = [sys.executable, "-c", NCCL]
    ranks = [subprocess.Popen([*words, str(rank), str(tmp_path / "asleep")], env=environment) for rank in range(2)]
    try:
        (tmp_path / "evidence").mkdir()
        eventually(lambda: all((tmp_path / f"asleep{rank}").exists() for rank in range(2)), "both ranks")
        (line,) = flight_lines_of(tmp_path, 1795641805000, ranks)
    finally:
        for process in ranks:
            process.kill()
            process.wait(60)
    assert line.startswith(f"stuck: rank 1 of 2 (pid {ranks[1].pid} on n1) has not joined all_reduce 4 of default_pg ")
    assert "([[1024]] Float): its last there is all_reduce 3; rank 0 waits in it" in line


THREE = """
import datetime, sys, time
import torch
import torch.distributed as dist
from trainers.roles.flight_recorder import leave_flight_record, record_torch

record_torch()
rank = int(sys.argv[1])
patience = datetime.timedelta(seconds=45)
dist.init_process_group("gloo", rank=rank, world_size=3, timeout=patience)
pair = dist.new_group([0, 2], timeout=patience)
for step in range(3):
    dist.all_reduce(torch.ones(8))
dist.all_reduce(torch.ones(8), group=pair) if rank != 1 else None

def away_for_long():
    leave_flight_record(rank, failed=False)
    time.sleep(600)

if rank == 2:
    away_for_long()
dist.all_reduce(torch.ones(7, 5), group=pair) if rank == 0 else dist.all_reduce(torch.ones(1024))
"""


def test_a_collective_that_times_out_leaves_records_that_name_who_did_not_join(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rank 0 waits in a group of two, rank 1 in that of all, and both for rank 2."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "PYTHONPATH": str(ROOT)}
    environment = {**os.environ, **where, "OMP_NUM_THREADS": "1", **flight_recorder.variables(str(tmp_path))}
    ranks = [subprocess.Popen([sys.executable, "-c", THREE, str(rank)], env=environment) for rank in range(3)]
    try:
        assert [ranks[rank].wait(250) for rank in (0, 1)] == [1, 1]
    finally:
        for process in ranks:
            process.kill()
            process.wait(60)
    files = {str(path): path.read_bytes() for path in sorted(tmp_path.glob(f"{rundir.FLIGHT_RECORD}*"))}
    assert len(files) == 3
    lines, unusable = lines_of(files)
    assert unusable == []
    assert {line.split(" of ")[0] for line in lines} == {"stuck: rank 2"}
    assert main(["why", "--log", *files]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "rank 2 of " in told
    assert "[[7, 5]] Float" in told or "[[1024]] Float" in told
    absent = {name: data for name, data in files.items() if not name.endswith("2")}
    assert {line.split(" of ")[0] for line in lines_of(absent)[0]} == {"flight: rank 2"}
