"""What requests to a relay cost, beside starting a program for each. Run: ``python tests/bench/bench_relay.py``.

Goal: a framed request in 0.1 to 0.3 ms. The ratio to a fresh process is the figure to compare between machines.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import FileRange
from rltui.watch.run_watcher import RunWatcher
from rltui.watch.runs import RunsReader

RUNS = 100


def make_runs(root: Path) -> None:
    """Lay out ``RUNS`` run directories with 1000 steps of metrics each."""
    metrics = b"".join(json.dumps({"step": step, "reward": 0.5, "loss": 1.0}).encode() + b"\n" for step in range(1000))
    for number in range(RUNS):
        attempt = root / f"run-{number}" / "attempts" / "01"
        attempt.mkdir(parents=True)
        (attempt.parents[1] / "run.json").write_text(json.dumps({"name": "bench", "created_at": number}))
        (attempt / "stage.json").write_text(json.dumps({"stage": "training"}))
        (attempt / "metrics.jsonl").write_bytes(metrics)
        (attempt / "out.log").write_bytes(b"a line of a log\n" * 10_000)


def median_ms(work: Callable[[], object], rounds: int) -> float:
    """Median wall time of ``work`` after one warm-up."""
    work()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times)


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder))
        client = RelayClient(LocalTransport())
        began = time.perf_counter()
        client.hello()
        print(f"{'first answer of a new relay':46}{1000 * (time.perf_counter() - began):9.3f} ms")
        run = f"{folder}/run-0"
        log = f"{run}/attempts/01/out.log"
        reader, watcher = RunsReader(client, folder), RunWatcher(client, run)
        table: list[tuple[str, Callable[[], object], int]] = [
            ("a fresh process (true)", lambda: subprocess.run(["true"], check=True), 50),
            ("hello", client.hello, 1000),
            ("read 100 bytes", lambda: client.read(log, 0, 100), 1000),
            ("tail 64 KiB of a log", lambda: client.tail(log, 1 << 16), 300),
            ("20 reads in one round trip", lambda: client.read_many([FileRange(log, 0, 100)] * 20), 200),
            ("run true", lambda: client.run(["true"]), 50),
            (f"list of {RUNS} runs", reader.read, 20),
            ("picture of one run, nothing new", watcher.snapshot, 100),
        ]
        for name, work, rounds in table:
            print(f"{name:46}{median_ms(work, rounds):9.3f} ms")
        client.close()


if __name__ == "__main__":
    main()
