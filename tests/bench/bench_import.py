"""How long reading other systems takes: their scripts, in process and as a whole process, and their metrics.

Run as ``python tests/bench/bench_import.py``.
"""

from __future__ import annotations

import contextlib
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from rltui.dialects.load import load_dialects
from rltui.errors import UsageError
from rltui.importers.read import import_file
from rltui.onnode.line_reader import LineReader
from rltui.onnode.metric_sources import Sources
from rltui.onnode.script_output import Follower

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "import"
ROUNDS = 20
LINES, STEPS = 2000, 1_000_000


def in_process_ms(path: Path) -> float:
    """Return the median time of a core that reading ``path`` takes."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()  # a busy machine does not count
        import_file(path)
        times.append((time.process_time() - began) * 1000)
    return statistics.median(times)


def whole_process_ms(path: Path) -> float:
    """Return the median time of ``rltui import``."""
    command = [sys.executable, "-m", "rltui", "import", str(path), "--json"]
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=60, check=True)
        times.append((time.perf_counter() - began) * 1000)
    return statistics.median(times)


def long_script_ms(folder: Path) -> float:
    """Return the median time of reading a script of ``LINES`` lines, as launch does."""
    path = folder / "run.sh"
    lines = [f"export CASE_{number}=$((${{CASE_{number - 1}:-0}} + 1))" for number in range(LINES - 4)]
    command = FIXTURES.joinpath("verl_devices.sh").read_text()
    path.write_text("\n".join(["#!/bin/bash", *lines, command]))
    return in_process_ms(path)


def million_steps_s(folder: Path) -> float:
    """Return how long a run's metrics of ``STEPS`` steps take from the system's own file to ours."""
    dialect, source = msgspec.to_builtins(load_dialects()["verl"]), folder / "verl.jsonl"
    with source.open("w") as stream:
        for step in range(STEPS):
            stream.write(json.dumps({"step": step, "data": {"critic/rewards/mean": 0.5, "timing_s/step": 1.0}}) + "\n")
    (folder / "out.log").touch()
    reader, sources = LineReader(str(folder / "out.log")), Sources(dialect["metrics"], str(source))
    began = time.process_time()
    Follower(str(folder), dialect, reader, sources).look(is_last=True)
    taken_s = time.process_time() - began
    with (folder / "metrics.jsonl").open() as stream:
        assert sum(1 for _ in stream) == STEPS
    return taken_s


def main() -> None:
    """Print the slowest fixtures, the median of all, a whole process, a long script, and a long run's metrics."""
    times = {}
    for path in sorted(FIXTURES.rglob("*.*")):
        with contextlib.suppress(UsageError):  # what only stands beside a script, and what is no script
            times[str(path.relative_to(FIXTURES))] = in_process_ms(path)
    for name, taken in sorted(times.items(), key=lambda item: -item[1])[:5]:
        print(f"{taken:8.1f} ms  {name}")
    print(f"{statistics.median(times.values()):8.1f} ms  median of {len(times)} files, in process")
    print(f"{whole_process_ms(FIXTURES / 'verl_devices.sh'):8.1f} ms  rltui import verl_devices.sh, whole process")
    with tempfile.TemporaryDirectory() as made:
        print(f"{long_script_ms(Path(made)):8.1f} ms  a script of {LINES} lines (budget 100)")
        taken_s = million_steps_s(Path(made))
        most_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{taken_s:8.1f} s   metrics of {STEPS} steps, {most_mib:.0f} MiB at most")


if __name__ == "__main__":
    main()
