"""What reading a long queue costs. Run: ``python tests/bench/bench_slurm_parse.py``.

Goal: 10 000 rows of squeue in under 250 ms, so that a poll of a big cluster is never felt; host lists as in big jobs.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping

from rltui.cluster.slurm.nodelist import expand, fold
from rltui.cluster.slurm.queries import (
    ACCOUNTING_FIELDS,
    QUEUE_FIELDS,
    by_id,
    read_accounting,
    read_pending,
    read_queue,
)

ROWS = 10_000
MARK = "^c0ffeec0ffee^"


def rows(fields: Mapping[str, object]) -> str:
    """``ROWS`` records of running and pending jobs."""
    text = []
    for number in range(ROWS):
        values = {
            "id": str(1_000_000 + number),
            "state": "RUNNING" if number % 3 else "PENDING",
            "reason": "None" if number % 3 else "Priority",
            "uid": "2001",
            "user": "alice",
            "partition": "gpu",
            "account": "rl",
            "submit": str(1_795_310_241 + number),
            "start": str(1_795_310_300 + number),
            "end": str(1_795_396_641 + number),
            "limit": "1-00:00:00",
            "nodes": f"nid[{number % 90000:06d}-{number % 90000 + 7:06d}]" if number % 3 else "",
            "count": "8",
            "restarts": "0",
            "status": "0",
            "exit": "0:0",
            "name": f"grpo-7b-2x8-{number:08x}",
            "comment": f"rltui:{number:032x}",
        }
        text.append("".join(f"{values[field]}{MARK}" for field in fields) + "\n")
    return "".join(text)


def median_ms(work: Callable[[], object], rounds: int = 7) -> float:
    """Median processor time of ``work`` after one warm-up."""
    work()
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1000 * statistics.median(times)


def main() -> None:
    """Print a table."""
    queue, records = rows(QUEUE_FIELDS), rows(ACCOUNTING_FIELDS)
    pending = "".join(f"{number}{MARK}gpu,low{MARK}{number % 997}{MARK}\n" for number in range(1, ROWS + 1))
    jobs = [job for _, job in read_queue(queue, MARK)]
    names = [f"nid{number:06d}" for number in range(0, 2000, 2)]
    works: dict[str, Callable[[], object]] = {
        f"squeue, {ROWS} jobs, {len(queue) / 1e6:.1f} MB": lambda: read_queue(queue, MARK),
        f"sacct, {ROWS} records": lambda: read_accounting(records, MARK),
        f"places in a queue of {ROWS}": lambda: read_pending(pending, MARK),
        "newest record of each id": lambda: by_id(jobs),
        "fold and expand 1000 names": lambda: expand(fold(names)),
    }
    for name, work in works.items():
        print(f"{name:46}{median_ms(work):9.1f} ms")
    print(f"{'peak memory':46}{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:9.1f} MiB")


if __name__ == "__main__":
    main()
