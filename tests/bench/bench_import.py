"""How long ``rltui import`` takes: each fixture in process, and one as a whole process.

Run as ``python tests/bench/bench_import.py``.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from rltui.importers.read import import_file

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "import"
ROUNDS = 20


def in_process_ms(path: Path) -> float:
    """Return the median time of reading ``path``."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        import_file(path)
        times.append((time.perf_counter() - began) * 1000)
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


def main() -> None:
    """Print the slowest fixtures, the median of all, and a whole process."""
    files = [path for path in sorted(FIXTURES.rglob("*.*")) if not path.name.startswith("circle")]
    times = {str(path.relative_to(FIXTURES)): in_process_ms(path) for path in files}
    for name, taken in sorted(times.items(), key=lambda item: -item[1])[:5]:
        print(f"{taken:8.1f} ms  {name}")
    print(f"{statistics.median(times.values()):8.1f} ms  median of {len(times)} files, in process")
    print(f"{whole_process_ms(FIXTURES / 'verl_devices.sh'):8.1f} ms  rltui import verl_devices.sh, whole process")


if __name__ == "__main__":
    main()
