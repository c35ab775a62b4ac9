"""How full engines are where answers have long tails: ``python tests/bench/bench_long_tail.py``.

Prompts go the way of a real run, from the draw of a step to vLLM's queue; a stand-in for ``LLMEngine`` gives each slot
a token a step, so time is steps of decoding and other load of the machine hardly counts. Goals: at least 90 % of the
slots busy while prompts wait, and one step ahead at most 1.15 times the ideal, in which no slot is ever idle. The ideal
has no tail, so a run of few steps is far from it by that of its last step alone. The exit code is 1 where a goal is
missed.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "trainers")]

import test_streaming  # noqa: E402
from test_streaming import Load, simulate  # noqa: E402

LOADS = {
    "2 engines, 32 slots": Load(),
    "8 engines, 32 slots": Load(engines=8, prompts=256),
    "2 engines, 256 slots": Load(slots=256, prompts=512, steps=20),
    "2 engines, 32 slots, sigma 1.5": Load(sigma=1.5, most=400, prompts=128),
}
NO_GOAL = {"a step has a sample a slot": Load(prompts=16, samples=4, median=50.0, most=500)}
"""Nothing is left to fill the slots that the tail leaves free."""
LEAST_BUSY, MOST_TIMES = 0.9, 1.15


def main() -> int:
    """Print a line for each load, in turns and one step ahead."""
    test_streaming.rollouts_module.call_all = lambda calls, deadline_s, doing: [call() for _, call in calls]
    missed = 0
    for name, load in (LOADS | NO_GOAL).items():
        for ahead in (0, 1):
            found = simulate(replace(load, ahead=ahead))
            times = found.steps / found.ideal
            if name in LOADS:
                missed += found.occupancy < LEAST_BUSY or (ahead == 1 and times > MOST_TIMES)
            print(
                f"{name:32s}{'one step ahead' if ahead else 'in turns':16s}{100 * found.occupancy:4.0f} % busy while "
                f"prompts wait, {times:.2f} x ideal ({found.steps} steps of decoding, longest answer {load.most})",
                flush=True,
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
