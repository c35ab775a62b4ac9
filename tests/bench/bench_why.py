"""How fast ``rltui why`` reads: megabytes of log a second on one core, and the time of the whole command.

Run as ``python tests/bench/bench_why.py``. Aims: 50 MB/s on logs as runs write them, 200 MB in at most five seconds,
and at most 150 ms for a short log, start-up included.
"""

from __future__ import annotations

import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rltui.diagnose.diagnose import diagnose
from rltui.diagnose.sources import Source

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
ROUNDS = 9

TYPICAL = """\
(TaskRunner pid=4711) INFO:2026-03-01 10:11:12,123:Total steps: 1200
INFO 10-25 13:08:43 [kv_cache_utils.py:864] GPU KV cache size: 412,320 tokens
(EngineCore_DP0 pid=9911) INFO 10-25 13:08:59 [core.py:218] init engine (profile, warmup model) took 16.02 seconds
2026-03-01 10:12:00,331 INFO trainer.py:88 -- step 17 reward 0.412 kl 0.0031 lr 1.0e-06
[2026-03-01 10:12:01,022] [INFO] [timer.py:199:stop] epoch=0/micro_step=17/global_step=17, MaxMemAllocated=61.3GB
node-3:1220:1288 [2] NCCL INFO Channel 03/0 : 10[2] -> 11[3] via P2P/CUMEM
 45%|####5     | 451/1000 [1:02:11<1:15:20,  8.23s/it]
wandb: Tracking run with wandb version 0.21.1
Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:02<00:02,  1.10s/it]
(raylet) [2026-03-01 10:10:00,111 I 1200 1200] (raylet) node_manager.cc:525: Sending Python GC request to 12 workers.
{'loss': 0.0021, 'grad_norm': 0.38, 'learning_rate': 1e-06, 'epoch': 0.02}
INFO:     10.0.3.7:51820 - "POST /v1/completions HTTP/1.1" 200 OK
""".splitlines()
ERROR = "ValueError: No available memory for the cache blocks.\n"


def typical(source: random.Random, size: int) -> bytes:
    """Return a log as runs write it: the same kinds of lines again and again, with other numbers."""

    def other_number(match: re.Match[str]) -> str:
        return str(source.randrange(10 ** len(match[0])))

    lines: list[str] = []
    while size > 0:
        lines.append(re.sub(r"\d+", other_number, source.choice(TYPICAL)))
        size -= len(lines[-1]) + 1
    return "\n".join(lines).encode()


def prose(source: random.Random, size: int) -> bytes:
    """Return text in which no line is like another, such as printed responses of a model."""
    words = ["".join(source.choices("etaoinshrdlucmfw", k=source.randrange(2, 9))) for _ in range(5000)]
    lines: list[str] = []
    while size > 0:
        lines.append(" ".join(source.choices(words, k=16)))
        size -= len(lines[-1]) + 1
    return "\n".join(lines).encode()


def megabytes_a_second(block: bytes, times: int) -> float:
    """Return how fast ``block``, ``times`` over, is diagnosed, by processor time."""
    began = time.process_time()
    diagnose([Source("log", (block for _ in range(times)))])
    return len(block) * times / 1e6 / (time.process_time() - began)


def command_ms() -> list[float]:
    """Return the wall times of ``rltui why --log`` on a short log."""
    times = []
    with tempfile.NamedTemporaryFile("w", suffix=".out") as log:
        log.write(ERROR)
        log.flush()
        for _ in range(ROUNDS):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "rltui", "why", "--log", log.name],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                timeout=60,
                check=False,
            )
            times.append((time.perf_counter() - began) * 1000)
    return times


def main() -> None:
    """Print the figures."""
    source = random.Random(1)
    block = typical(source, 8 * MIB)
    print(f"logs as runs write them  {megabytes_a_second(block, 24):6.0f} MB/s (24 × {len(block) / 1e6:.0f} MB)")
    text = prose(source, 8 * MIB)
    print(f"no line like another     {megabytes_a_second(text, 2):6.0f} MB/s (2 × {len(text) / 1e6:.0f} MB)")
    times = command_ms()
    print(f"why --log on one line    {min(times):6.0f} ms best, {statistics.median(times):.0f} ms median")


if __name__ == "__main__":
    main()
