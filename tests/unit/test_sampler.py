"""The sampler as a process of its own; a GPU is played by a module named pynvml, since there is none to be had here."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watch_support import await_that

from rltui.onnode import processes, sample_host, sampler
from rltui.onnode.rundir import ATTEMPT_VARIABLE

ROOT = Path(__file__).parents[2]

FAKE_NVML = """
import types
NVML_TEMPERATURE_GPU = 0
class NVMLError(Exception): pass
def nvmlInit():
    if {broken!r}: raise NVMLError("no driver")
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUtilizationRates(handle): return types.SimpleNamespace(gpu=90 + handle)
def nvmlDeviceGetMemoryInfo(handle):
    if handle == 1: raise NVMLError("not supported")
    return types.SimpleNamespace(used=3 * 2**30, total=80 * 2**30)
def nvmlDeviceGetPowerUsage(handle): return 350_400
def nvmlDeviceGetName(handle): return b"NVIDIA H100"
def nvmlDeviceGetUUID(handle): return "GPU-%d" % handle
def nvmlDeviceGetTemperature(handle, which): return 61
def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    if handle == 1: raise NVMLError("not supported")
    return 0x40 | 0x04
NVML_CLOCK_SM, NVML_VOLATILE_ECC, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1, 0, 0, 1
def nvmlDeviceGetClockInfo(handle, kind): return 1755
def nvmlDeviceGetMaxClockInfo(handle, kind): return 1980
def nvmlDeviceGetTotalEccErrors(handle, kind, counter):
    if handle == 1: raise NVMLError("not supported")
    return 7 if kind == NVML_MEMORY_ERROR_TYPE_CORRECTED else 2
def nvmlDeviceGetComputeRunningProcesses(handle): return [types.SimpleNamespace(pid=4242)]
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts samplers of ``tmp_path``, and ends them."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*options: str, nvml: str = "raise ImportError") -> subprocess.Popen[bytes]:
        (tmp_path / "modules").mkdir(exist_ok=True)
        (tmp_path / "modules" / "pynvml.py").write_text(nvml)
        (tmp_path / "attempt").mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "modules"), str(ROOT)])}
        argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", str(tmp_path / "attempt"), *options]
        started.append(subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def read_lines(tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "attempt" / f"gpu-{sampler.host_name()}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def test_lines_tell_of_the_host_and_of_the_attempt_s_processes(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    attempt = uuid.uuid4().hex

    def busiest() -> float:
        return max(one["cpu"] for line in read_lines(tmp_path) for one in line.get("procs", ()))

    busy = subprocess.Popen(
        [sys.executable, "-c", "while True: pass"], env={**os.environ, ATTEMPT_VARIABLE: attempt, "PYTHONPATH": ""}
    )
    try:
        process = start("--mark", attempt, "--interval", "0.1")
        await_that(lambda: len(read_lines(tmp_path)) >= 7, "seven lines are written")
        await_that(lambda: busiest() > 1, "it was given more than a hundredth of a core")
    finally:
        busy.kill()
        busy.wait()
    process.terminate()
    assert process.wait(60) == 0
    lines = read_lines(tmp_path)
    first, slow = lines[0], lines[5]
    assert abs(first["t"] - time.time()) < 60
    assert first["cpus"] == len(os.sched_getaffinity(0))
    assert all(0 <= line["cpu"] <= 100 for line in lines)
    assert 0 < first["mem"][0] <= first["mem"][1]
    assert ["procs" in line for line in lines[:7]] == [True, False, False, False, False, True, False]
    assert "gpus" not in first
    [one] = slow["procs"]
    assert (one["pid"], one["rss"] > 0) == (busy.pid, True)
    assert one["ppid"] == os.getpid()
    assert one["title"].endswith("-c while True: pass")


def test_a_process_that_is_stopped_is_said_soon_and_when_it_goes_on(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    attempt = uuid.uuid4().hex
    sleeper = subprocess.Popen(["sleep", "600"], env={**os.environ, ATTEMPT_VARIABLE: attempt})

    def states() -> list[str]:
        slow = [line for line in read_lines(tmp_path) if "procs" in line]
        return [one.get("state", "") for one in slow[-1]["procs"]] if slow else []

    def events() -> list[str]:
        path = tmp_path / "attempt" / "events.jsonl"
        return [json.loads(line)["text"] for line in path.read_text().splitlines()] if path.exists() else []

    try:
        start("--mark", attempt, "--interval", "0.05")
        await_that(lambda: states() == [""], "it runs")
        sleeper.send_signal(signal.SIGSTOP)
        await_that(lambda: states() == ["stopped"], "it is stopped")
        await_that(events, "an event")
        assert f"(pid {sleeper.pid}): stopped on {sampler.host_name()}" in events()[0]
        sleeper.send_signal(signal.SIGCONT)
        await_that(lambda: len(events()) == 2, "the second event")
        assert "goes on again" in events()[1]
        assert states() == [""]
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_process_that_runs_in_turns_is_slow_and_not_stopped() -> None:
    attempt = uuid.uuid4().hex
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"], env={**os.environ, ATTEMPT_VARIABLE: attempt})

    def stat() -> processes.Stat:
        found = processes.read_stat(busy.pid)
        assert found is not None
        return found

    def stop() -> None:
        busy.send_signal(signal.SIGSTOP)
        await_that(lambda: stat().state == "T", "it is stopped")

    try:
        reader = sampler.ProcessReader(attempt)
        stop()
        assert reader.news(reader.sample()) == []
        for _ in range(3):  # as cpulimit does, so that each look finds it stopped
            taken = stat().cpu_ticks
            busy.send_signal(signal.SIGCONT)
            await_that(lambda taken=taken: stat().cpu_ticks > taken, "it has taken CPU time")
            stop()
            assert reader.news(reader.sample()) == []
        [said] = reader.news(reader.sample())
        assert said.endswith(f"(pid {busy.pid}): stopped")
    finally:
        busy.kill()
        busy.wait()


def test_gpus_have_slow_fields_every_fifth_time_and_leave_out_what_they_lack(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    start("--mark", "none", "--interval", "0.1", nvml=FAKE_NVML.format(broken=False))
    await_that(lambda: len(read_lines(tmp_path)) >= 6, "six lines are written")
    slow, fast = read_lines(tmp_path)[5]["gpus"], read_lines(tmp_path)[1]["gpus"]
    assert fast == [{"i": 0, "util": 90, "mem": [3.0, 80.0], "w": 350}, {"i": 1, "util": 91, "w": 350}]
    more = {"name": "NVIDIA H100", "c": 61, "pids": [4242], "mhz": [1755, 1980]}
    held = [{"held": ["heat"], "ecc": [7, 2]}, {}]  # its power cap is no fault, and the second card does not say
    assert slow == [{**one, **more, **why, "uuid": f"GPU-{one['i']}"} for one, why in zip(fast, held, strict=True)]


def test_without_a_driver_it_goes_on_without_gpus(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = start("--mark", "none", "--interval", "0.1", nvml=FAKE_NVML.format(broken=True))
    await_that(lambda: len(read_lines(tmp_path)) >= 2, "two lines are written")
    assert "gpus" not in read_lines(tmp_path)[0]
    assert process.poll() is None


def test_it_ends_with_its_parent(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    parent = subprocess.Popen(["sleep", "600"])
    process = start("--mark", "none", "--interval", "0.1", "--parent", str(parent.pid))
    await_that(lambda: read_lines(tmp_path), "it writes")
    parent.kill()  # and left as a zombie: it counts as gone all the same
    assert process.wait(60) == 0
    parent.wait()
    assert start("--mark", "none", "--parent", str(parent.pid)).wait(60) == 0


def test_it_ends_with_its_directory_and_on_every_polite_signal(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    process = start("--mark", "none", "--interval", "0.1")
    await_that(lambda: read_lines(tmp_path), "it writes")
    (tmp_path / "attempt").rename(tmp_path / "elsewhere")
    assert process.wait(60) == 0
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = start("--mark", "none")
        await_that(lambda: read_lines(tmp_path), "it writes")
        (tmp_path / "attempt" / f"gpu-{sampler.host_name()}.jsonl").unlink()
        process.send_signal(number)
        assert process.communicate(timeout=60)[1] == b""
        assert process.returncode == 0


def test_it_does_not_end_by_a_disk_that_is_away_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, looks = os.stat, 0

    def away_at_first(path: Any, **options: Any) -> os.stat_result:
        nonlocal looks
        looks += path == str(tmp_path)
        if path == str(tmp_path) and looks < 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))  # as a client that Lustre has evicted
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", away_at_first)
    sampler.sample_until_end(str(tmp_path), "none", 0.05, None, most_s=0.3)
    assert len((tmp_path / f"gpu-{sampler.host_name()}.jsonl").read_text().splitlines()) > 2


def test_it_can_be_started_by_its_path_from_anywhere(tmp_path: Path) -> None:
    argv = [sys.executable, sampler.__file__, "--attempt", str(tmp_path), "--mark", "none", "--parent", "1"]
    process = subprocess.Popen(argv, cwd="/", env={}, stderr=subprocess.PIPE)
    await_that(lambda: list(tmp_path.glob("gpu-*.jsonl")), "it writes")
    process.terminate()
    assert process.communicate(timeout=60)[1] == b""


def test_the_file_is_private_and_keeps_one_older_half(tmp_path: Path) -> None:
    path = tmp_path / "gpu-x.jsonl"
    sink = sampler.Sink(str(path), cap_bytes=2000)
    for number in range(300):
        sink.write(b"%09d\n" % number)
    older = tmp_path / "gpu-x.jsonl.1"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_size <= 1000
    assert older.stat().st_size <= 1000
    kept = (older.read_bytes() + path.read_bytes()).split()
    assert kept == [b"%09d" % number for number in range(300 - len(kept), 300)]
    assert len(kept) >= 100


def test_a_disk_that_refuses_is_tried_again(tmp_path: Path) -> None:
    sink = sampler.Sink(str(tmp_path / "no" / "file"))
    sink.write(b"lost\n")
    (tmp_path / "no").mkdir()
    sink.write(b"kept\n")
    assert (tmp_path / "no" / "file").read_bytes() == b"kept\n"


def test_a_full_device_does_not_end_it() -> None:
    sink = sampler.Sink("/dev/full")
    for _ in range(3):
        sink.write(b"line\n")


def test_a_full_disk_does_not_end_it_where_there_is_something_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    reports, full = [["Xid 79"], [], []], [True, True, False]

    def log_event(attempt: str, kind: str, text: str, **details: Any) -> None:
        if full.pop(0) if full else False:
            raise OSError(errno.ENOSPC, "full")
        told.append(f"{kind} {text}")

    monkeypatch.setattr(sampler.rundir, "log_event", log_event)
    monkeypatch.setattr(sampler.Sampler, "xids", lambda _: reports.pop(0) if reports else [])
    monkeypatch.setattr(sampler.Sampler, "line", lambda _: b"{}\n")
    (tmp_path / "attempt").mkdir()
    sampler.sample_until_end(str(tmp_path / "attempt"), "none", 0.01, None, most_s=0.2)
    assert told == ["xid Xid 79"]


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_memory_limit_above_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    root = tmp_path if version == 2 else tmp_path / "memory"
    limit, usage = (
        ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    )
    cache = "inactive_file" if version == 2 else "total_inactive_file"
    for group, limit_gib in (("job", 4), ("job/step", 8), ("job/step/task", None)):
        folder = root / group
        folder.mkdir(parents=True)
        (folder / limit).write_text("max\n" if limit_gib is None else f"{limit_gib << 30}\n")
        (folder / usage).write_text(f"{3 << 30}\n")
        (folder / "memory.stat").write_text(f"anon 5\n{cache} {1 << 30}\n")
    line = "0::/job/step/task" if version == 2 else "9:cpu,memory:/job/step/task"
    files = {"/proc/self/cgroup": f"1:name=systemd:/x\n{line}\n".encode()}
    original = sample_host.contents
    monkeypatch.setattr(sample_host, "CGROUPS", str(tmp_path))
    monkeypatch.setattr(sample_host, "contents", lambda path: files.get(path) or original(path))
    assert sample_host.HostReader().memory_gib() == (2.0, 4.0)


def test_bound_to_some_cpus_only_those_count(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [b"cpu  1 0 0 1 0 0 0 0 0 0\ncpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 7 0 0 9 0 0 0 0 0 0\nintr 1\n"]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(sample_host, "_read", lambda descriptor, size: files[-1])
    reader = sample_host.HostReader()
    files.append(files[0].replace(b"cpu0 100 0 0 100 0", b"cpu0 120 0 10 150 20"))
    assert reader.cpus == 1
    assert reader.cpu_percent() == 30.0


def test_without_proc_it_says_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS."""
    monkeypatch.setattr(sample_host, "_open", lambda _: -1)
    monkeypatch.setattr(sample_host, "contents", lambda _: b"")
    monkeypatch.delattr(os, "sched_getaffinity")
    reader = sample_host.HostReader()
    assert (reader.cpu_percent(), reader.memory_gib()) == (0.0, (0.0, 0.0))
    assert reader.cpus == os.cpu_count()
