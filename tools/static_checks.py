"""Lint, format, types, import contracts and spelling: what ``make check`` runs, all at once, quiet when fine."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BINARIES = Path(sys.executable).parent
DEADLINE_S = 600
CHECKS: dict[str, tuple[str, ...]] = {
    "types (mypy)": ("mypy",),
    "lint (ruff)": ("ruff", "check", "."),
    "format (ruff)": ("ruff", "format", "--check", "."),
    "contracts (import-linter)": ("lint-imports",),
    "spelling (codespell)": ("codespell",),
}


def run(command: tuple[str, ...]) -> tuple[int, float, str]:
    """Return (exit code, seconds, output) of one tool of the environment."""
    began = time.monotonic()
    words = [str(BINARIES / command[0]), *command[1:]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, time.monotonic() - began, done.stdout + done.stderr


def main() -> int:
    """Run all checks, print one line each and the output of those that fail; return 1 if any does."""
    failed = False
    with ThreadPoolExecutor() as pool:
        for name, (code, took_s, output) in zip(CHECKS, pool.map(run, CHECKS.values()), strict=True):
            print(f"  {name}: {'FAILED' if code else 'ok'}, {took_s:.1f} s", flush=True)
            if code:
                failed = True
                print(output, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
