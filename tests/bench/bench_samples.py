"""Ranking and searching the samples of a file of 1 GB where it lies. Run: ``python tests/bench/bench_samples.py``.

Goal: a few seconds, and no more memory than a few blocks on either side.
"""

from __future__ import annotations

import json
import random
import resource
import tempfile
import time
from pathlib import Path

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.watch.samples import SampleFile, SampleQuery, find_samples, read_group

SIZE_BYTES = 1_000_000_000
WORDS = [
    "the",
    "sum",
    "of",
    "two",
    "numbers",
    "is",
    "therefore",
    "less",
    "than",
    "what",
    "we",
    "look",
    "for",
    "so",
    "that",
    "case",
    "cannot",
    "be",
]
QUERIES = {
    "newest": SampleQuery(),
    "worst": SampleQuery(order="worst"),
    "best": SampleQuery(order="best"),
    "longest": SampleQuery(order="longest"),
    "step:77777": SampleQuery(step=77777),
    "a word, whatever its case": SampleQuery(grep="(?i:needle)"),
    "a word as it stands": SampleQuery(grep="Needle"),
    "truncated, worst first": SampleQuery(grep='"finish_reason": "length"', order="worst"),
}


def write_samples(path: Path) -> int:
    """A file of a GB, of answers of about 2 kB; how many there are."""
    rng, written, count = random.Random(1), 0, 0
    with path.open("w", encoding="utf-8") as stream:
        while written < SIZE_BYTES:
            answer = " ".join(rng.choice(WORDS) for _ in range(40)) * rng.randrange(1, 20)
            one = {"step": count // 8, "prompt": answer[:300], "answer": answer, "right_answer": "4"}
            one |= {"reward": rng.gauss(0, 1), "tokens": len(answer) // 4, "weight_version": count // 8}
            one["finish_reason"] = "length" if count % 50 == 0 else "stop"
            one["answer"] += " Needle" if count % 100_000 == 99_999 else ""
            written += stream.write(json.dumps(one) + "\n")
            count += 1
    return count


def main() -> None:
    """Print seconds and MB/s of each kind of search."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "samples.jsonl"
        count = write_samples(path)
        file = SampleFile(path=str(path), size=path.stat().st_size)
        print(f"{count} samples, {file.size / 1e6:.0f} MB")
        client = RelayClient(LocalTransport())
        client.hello()
        for name, query in QUERIES.items():
            began = time.perf_counter()
            *_, found = find_samples(client, [file], query)
            took = time.perf_counter() - began
            speed = found.read_bytes / 1e6 / took
            print(f"{name:28} {len(found.samples):6} samples {took:8.2f} s {speed:8.0f} MB/s")
        began = time.perf_counter()
        one = found.samples[0]
        read_group(client, file, one.offset, one.length)
        print(f"{'one with its siblings':28} {1:6} samples {time.perf_counter() - began:8.2f} s")
        client.close()
        for name, who in (("this process", resource.RUSAGE_SELF), ("relay", resource.RUSAGE_CHILDREN)):
            print(f"{name:28} {resource.getrusage(who).ru_maxrss / 1024:9.0f} MiB at most")


if __name__ == "__main__":
    main()
