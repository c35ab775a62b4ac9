"""What the sampler costs: CPU share and bytes a second. Run: ``python tests/bench/bench_sampler.py [SECONDS]``.

Goals: at most 0.2 % of a core and 1 kB/s, beside an attempt of 20 processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rltui.onnode import processes
from rltui.onnode.rundir import ATTEMPT_VARIABLE

WARM_UP_S = 2.0


def main(seconds: float) -> None:
    """Sample for ``seconds`` and print what it took."""
    hertz = os.sysconf("SC_CLK_TCK")
    with tempfile.TemporaryDirectory() as attempt:
        environment = {**os.environ, ATTEMPT_VARIABLE: "bench"}
        crowd = [subprocess.Popen(["sleep", "600"], env=environment) for _ in range(20)]
        argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", attempt, "--mark", "bench"]
        sampler = subprocess.Popen([*argv, "--parent", str(os.getpid())])
        try:
            time.sleep(WARM_UP_S)
            before, size = processes.read_stat(sampler.pid), folder_size(attempt)
            time.sleep(seconds)
            after = processes.read_stat(sampler.pid)
            assert before is not None
            assert after is not None
            cpu = 100.0 * (after.cpu_ticks - before.cpu_ticks) / hertz / seconds
            rate = (folder_size(attempt) - size) / seconds
            resident = after.resident_pages * os.sysconf("SC_PAGE_SIZE") / 2**20
            print(f"sampler: {cpu:.2f} % of a core (goal 0.2), {rate:.0f} B/s (goal 1000), {resident:.1f} MiB")
        finally:
            for process in [sampler, *crowd]:
                process.terminate()
                process.wait()


def folder_size(path: str) -> int:
    """Bytes of all files in ``path``."""
    return sum(entry.stat().st_size for entry in Path(path).iterdir())


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20.0)
