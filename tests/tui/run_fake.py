"""The real program over the fake cockpit: ``python tests/tui/run_fake.py`` (the tmux tests drive this)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--empty", action="store_true")
    parser.add_argument("--hostile", action="store_true")
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--readonly", action="store_true")
    parser.add_argument("--ascii", action="store_true")
    parser.add_argument("--open")
    parser.add_argument("--many", type=int, default=0, help="so many more runs")
    parser.add_argument("--sweep", type=int, default=0, help="so many runs of a sweep in front")
    options = parser.parse_args()

    from canned_runs import HOSTILE_LOG, HOSTILE_RUNS, RUNS, summary
    from canned_sweep import sweep
    from fake_cockpit import FakeCockpit

    from rltui.tui import app

    runs = () if options.empty else HOSTILE_RUNS if options.hostile else RUNS
    runs += tuple(summary(f"grpo-{index:05d}", "finished", "ended", index) for index in range(options.many))
    runs = (*runs[:1], *sweep(options.sweep), *runs[1:])
    fake = FakeCockpit(
        all_runs=runs, slow_s=options.slow, live=options.live, lines=HOSTILE_LOG if options.hostile else None
    )
    app.TWICE_WITHIN_S = 60.0  # who presses ctrl+c twice here is slower than fingers
    return app.run_cockpit(fake, open_run=options.open, readonly=options.readonly, ascii_only=options.ascii)


if __name__ == "__main__":
    raise SystemExit(main())
