"""How long a search of a whole log takes where it lies. Run: ``python tests/bench/bench_log_search.py``.

Goal: 1 GB on a local disk in a few seconds, and no more memory than a few blocks on either side.
"""

from __future__ import annotations

import resource
import tempfile
import time
from pathlib import Path

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.watch.log_search import search_log

SIZE_BYTES = 1_000_000_000
LINE = b"2026-01-01 12:00:00 (learner pid=4242) step %9d reward 0.512 loss 0.0123 tokens/s 5123\n"
PATTERNS = (r"CUDA out of memory", r"step +9\d{5}7 ", r"(?i)cuda out of memory", r"reward [1-9]")


def write_log(path: Path) -> None:
    """A log of a GB with one line that is looked for, near its end."""
    block = b"".join(LINE % number for number in range(10_000))
    with path.open("wb") as stream:
        for _ in range(SIZE_BYTES // len(block)):
            stream.write(block)
        stream.write(b"torch.OutOfMemoryError: CUDA out of memory\n")


def main() -> None:
    """Print a line for each pattern."""
    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder) / "out.log")
        client = RelayClient(LocalTransport())
        client.hello()
        for pattern in PATTERNS:
            began = time.perf_counter()
            hits = sum(len(piece.hits) for piece in search_log(client, folder, "out.log", pattern))
            print(f"{pattern:28} {hits:9} lines {time.perf_counter() - began:8.2f} s")
        client.close()
        for name, who in (("this process", resource.RUSAGE_SELF), ("relay", resource.RUSAGE_CHILDREN)):
            print(f"{name:28} {resource.getrusage(who).ru_maxrss / 1024:9.0f} MiB at most")


if __name__ == "__main__":
    main()
