"""How long a search of whole logs takes where they lie. Run: ``python tests/bench/bench_log_search.py``.

Goal: 1 GB on a local disk in a few seconds, and no more memory than a few blocks on either side. Of 1 GB in 8 logs that
are merged by time: the first screen, one in the middle and the one above it in well under a second.
"""

from __future__ import annotations

import resource
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.watch.log_merge import MergedReader, end_of, open_sources, place_of, search_merged
from rltui.watch.log_search import LogQuery, query_of, search_log
from rltui.watch.snapshots import LogFile

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


LOGS, BEGAN = 8, 1_767_268_800
SCREEN_LINES = 2000


def write_logs(folder: Path) -> None:
    """A GB in logs of nodes that take turns, ten lines a second each."""
    for log in range(LOGS):
        with (folder / f"node-n{log}.log").open("w") as stream:
            for second in range(SIZE_BYTES // LOGS // 10 // len(LINE)):
                at = f"{datetime.fromtimestamp(BEGAN + second, timezone.utc):%Y-%m-%d %H:%M:%S}"
                lines = (
                    f"{at},{100 * part + log:03} (learner pid=4242) step {second:9d} reward 0.512 loss 0.0123\n"
                    for part in range(10)
                )
                stream.write("".join(lines))
            stream.write("torch.OutOfMemoryError: CUDA out of memory\n")


def bench_merged(client: RelayClient, folder: str) -> None:
    """Print a line for each thing that is done with all logs together."""
    names = sorted(path.name for path in Path(folder).glob("node-*.log"))
    files = [LogFile(name=name) for name in names]
    began = time.perf_counter()

    def told(what: str, lines: int) -> None:
        nonlocal began
        print(f"{what:28} {lines:9} lines {time.perf_counter() - began:8.2f} s")
        began = time.perf_counter()

    sources = open_sources(client, folder, files, timezone.utc, BEGAN)
    reader = MergedReader(client, sources, end_of(sources), backwards=True)
    told("merged: the end", len(reader.lines(SCREEN_LINES)))
    told("merged: the screen above", len(reader.lines(SCREEN_LINES)))
    place = place_of(client, sources, BEGAN + SIZE_BYTES // LOGS // 10 // len(LINE) // 2)
    reader = MergedReader(client, sources, place)
    told("merged: a time in the middle", len(reader.lines(SCREEN_LINES)))
    told("merged: the next 100,000", sum(len(reader.lines(SCREEN_LINES)) for _ in range(50)))
    for grep in (r"CUDA out of memory", r"step +\d*77777 "):
        query = query_of(grep=grep)
        assert query is not None
        told(f"merged: {grep}", sum(1 for _ in search_merged(client, folder, sources, query)))


def main() -> None:
    """Print a line for each pattern, and for each thing that is done with merged logs."""
    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder) / "out.log")
        client = RelayClient(LocalTransport())
        client.hello()
        for pattern in PATTERNS:
            began = time.perf_counter()
            hits = sum(len(piece.hits) for piece in search_log(client, folder, "out.log", LogQuery(pattern)))
            print(f"{pattern:28} {hits:9} lines {time.perf_counter() - began:8.2f} s")
        (Path(folder) / "out.log").unlink()
        write_logs(Path(folder))
        bench_merged(client, folder)
        client.close()
        for name, who in (("this process", resource.RUSAGE_SELF), ("relay", resource.RUSAGE_CHILDREN)):
            print(f"{name:28} {resource.getrusage(who).ru_maxrss / 1024:9.0f} MiB at most")


if __name__ == "__main__":
    main()
