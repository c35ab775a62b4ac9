"""Nodes and GPUs from samplers' lines: slow fields stay, histories are bounded, garbage is skipped."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from watch_support import append

from rltui.cluster.relay_client import RelayClient
from rltui.onnode.sampler import Sampler
from rltui.watch.hosts import HISTORY, LIST_EVERY_S, HostsReader, HostState
from rltui.watch.lines import follow
from rltui.watch.node_samples import HostSnapshot


def line(t: float = 1.0, host: str = "node1", **fields: Any) -> dict[str, Any]:
    return {"t": t, "host": host, "cpus": 8, "cpu": 50.0, "mem": [4.0, 16.0], **fields}


SLOW_GPU = {"i": 0, "name": "H100", "uuid": "GPU-0", "util": 90, "mem": [3.5, 80.0], "w": 350, "c": 61,
            "mhz": [1755, 1980], "ecc": [7, 2], "pids": [42]}  # fmt: skip


def test_slow_fields_stay_until_they_are_said_again(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "gpu-node1.jsonl"
    processes = [{"pid": 42, "title": "ray::Learner\x1b[1m", "cpu": 99.5, "rss": 1.25}]
    append(path, line(1.0, gpus=[SLOW_GPU], procs=processes, shm=[1.5, 8], disk=[90, 100]))
    append(path, line(2.0, gpus=[{"i": 0, "util": 10, "mem": [2, 80]}]))
    reader = HostsReader(client, str(tmp_path))
    follow(client, reader.followers())
    [host] = reader.snapshots()
    [gpu] = host.gpus
    assert (host.host, host.taken_at, host.cpus, host.cpu_percent) == ("node1", 2.0, 8, 50.0)
    assert (host.memory_used_gib, host.memory_total_gib) == (4.0, 16.0)
    assert (gpu.index, gpu.name, gpu.uuid, gpu.temperature_c, gpu.pids) == (0, "H100", "GPU-0", 61.0, (42,))
    assert (gpu.utilization_percent, gpu.memory_used_gib, gpu.memory_peak_gib, gpu.power_w) == (10.0, 2.0, 3.5, None)
    assert gpu.recent_w == 350, "a line that does not say it counts for nothing"
    assert (gpu.clock_mhz, gpu.clock_most_mhz, gpu.ecc_corrected, gpu.ecc_uncorrected) == (1755, 1980, 7, 2)
    assert (host.shm_used_gib, host.shm_total_gib, host.disk_used_gib, host.disk_total_gib) == (1.5, 8, 90, 100)
    [process] = host.processes
    assert (process.pid, process.title, process.cpu_percent) == (42, "ray::Learner", 99.5)
    assert (host.gpu_history, host.idle_since) == (((90.0, 10.0),), 0.0)
    assert host.cpu_history == (50.0, 50.0)
    for at, util in ((3.0, 0), (4.0, 1), (5.0, 30), (6.0, 0), (7.0, 0)):
        append(path, line(at, gpus=[{"i": 0, "util": util, "mem": [2, 80]}]))
    follow(client, reader.followers())
    assert reader.snapshots()[0].idle_since == 6.0


def test_a_sampler_s_own_lines_are_understood(tmp_path: Path) -> None:
    state = HostState()
    state.take([Sampler("none", str(tmp_path)).line().rstrip()])
    host = state.snapshot()
    assert host is not None
    assert host.cpus == len(os.sched_getaffinity(0))
    assert host.memory_total_gib > 0
    assert 0 <= host.shm_used_gib < host.shm_total_gib
    assert 0 < host.disk_used_gib < host.disk_total_gib
    assert host.processes == ()


def test_histories_are_bounded_and_follow_their_gpu() -> None:
    def entry(number: int) -> bytes:
        gpus = [{"i": 1, "util": number}] if number >= 50 else [{"i": 0, "util": 1}, {"i": 1, "util": number}]
        return repr(line(number, cpu=float(number), gpus=gpus)).replace("'", '"').encode()

    state = HostState()
    state.take([entry(number) for number in range(100)])
    host = state.snapshot()
    assert host is not None
    assert [gpu.index for gpu in host.gpus] == [1]
    assert host.gpu_history == (tuple(float(number) for number in range(100 - HISTORY, 100)),)
    assert host.cpu_history == tuple(float(number) for number in range(100 - HISTORY, 100))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0\0",
        b"{}",
        b"[]",
        b'{"t": "x", "host": 1}',
        b'{"t": 1, "host": "n", "gpus": [{"i": "a"}]}',
        random.Random(7).randbytes(99),
    ],
)
def test_lines_that_are_none_are_skipped(garbage: bytes) -> None:
    state = HostState()
    state.take([garbage])
    assert state.snapshot() is None
    state.take([garbage, b'{"t": 3, "host": "n"}', garbage])
    host = state.snapshot()
    assert host is not None
    assert (host.taken_at, host.cpus, host.gpus) == (3.0, 0, ())


def test_nodes_are_found_as_they_come_and_sorted(client: RelayClient, tmp_path: Path) -> None:
    now = 0.0
    reader = HostsReader(client, str(tmp_path / "attempt"), lambda: now)

    def read() -> list[HostSnapshot]:
        follow(client, reader.followers())
        return list(reader.snapshots())

    assert read() == []
    for host in ("node2", "node1"):
        append(tmp_path / f"attempt/gpu-{host}.jsonl", line(host=host))
    append(tmp_path / "attempt/gpu-node1.jsonl.1", line(host="older half"))
    append(tmp_path / "attempt/metrics.jsonl", line(host="no sampler"))
    assert read() == []
    now = LIST_EVERY_S
    assert [host.host for host in read()] == ["node1", "node2"]


def test_a_rotated_file_goes_on(client: RelayClient, tmp_path: Path) -> None:
    path = tmp_path / "gpu-node1.jsonl"
    reader = HostsReader(client, str(tmp_path))
    append(path, line(1.0, gpus=[SLOW_GPU]))
    follow(client, reader.followers())
    os.replace(path, tmp_path / "gpu-node1.jsonl.1")
    append(path, line(2.0, gpus=[{"i": 0, "util": 5}]))
    follow(client, reader.followers())
    [host] = reader.snapshots()
    assert (host.taken_at, host.gpus[0].name, host.gpu_history) == (2.0, "H100", ((90.0, 5.0),))


def test_engines_are_as_the_sampler_last_said_and_their_names_are_harmless() -> None:
    state = HostState()
    state.take(
        [
            json.dumps(
                line(1.0, procs=[], engines=[{"name": "80\x1b[2J00", "running": 3.0, "kv_cache_usage": 0.5}])
            ).encode()
        ]
    )
    state.take([json.dumps(line(2.0)).encode()])
    host = state.snapshot()
    assert host is not None
    (engine,) = host.engines
    assert (engine.name, engine.running, engine.waiting, engine.kv_cache_usage) == ("8000", 3.0, None, 0.5)
    state.take([json.dumps(line(3.0, procs=[], engines=[])).encode()])
    assert (state.snapshot() or host).engines == ()
