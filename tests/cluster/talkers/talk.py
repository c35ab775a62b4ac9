"""What the talkers share: the loop over steps, words of a command line, and faults that a test plants.

A talker says and writes what a training system says and writes, from the system's own sources, and trains nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

SAVE_EVERY = 5
STEP_S = 0.1
OUT_OF_MEMORY = Path("out-of-memory")
"""A file with the traceback that ends a talker."""
STANDSTILL = Path("standstill")
"""A file after which a talker goes on and says nothing any more."""

HURRY = Path("hurry")
"""A file beside which steps take no time."""


def words() -> dict[str, str]:
    """``--flag value``, ``--flag=value``, ``key=value`` of the command line; a flag alone is empty. The last counts."""
    found: dict[str, str] = {}
    for word, after in zip(sys.argv[1:], [*sys.argv[2:], "--"], strict=True):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
        elif word.startswith("--"):
            found[word] = "" if after.startswith("--") else after
    return found


def talk(first: int, last: int, say: Callable[[int], list[str]], save: Callable[[int], None]) -> None:
    """Say each step from ``first`` to ``last``, and save every fifth."""
    for step in range(first, last + 1):
        for line in say(step):
            print(line, flush=True)
        if step % SAVE_EVERY == 0:
            save(step)
        pause(STEP_S)


def pause(step_s: float) -> None:
    """Let a step take its time, with what a test has planted for it."""
    if OUT_OF_MEMORY.exists():
        print(OUT_OF_MEMORY.read_text(), file=sys.stderr, flush=True)
        OUT_OF_MEMORY.unlink()
        sys.exit(1)
    time.sleep(0 if HURRY.exists() else step_s)
    if STANDSTILL.exists():
        STANDSTILL.unlink()
        time.sleep(3600)
