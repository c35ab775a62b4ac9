"""Following a run to its end in plain lines, for ``launch --wait`` and terminals without a screen."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rltui.cli import words
from rltui.cli.output import print_json, talk

if TYPE_CHECKING:
    from rltui.service.context import Context
    from rltui.watch.snapshots import RunSummary

PERIOD_S = 0.5
SPEAK_EVERY_S = 5.0


def follow(context: Context, run_id: str, as_json: bool) -> int:
    """Report the run's progress on stderr until it ends; returns 0 where it finished, else 1."""
    last, spoken_at = "", 0.0
    while True:
        run = context.find(run_id)
        line = progress(run)
        key = f"{run.state} {run.stage.stage} {run.stage.detail}"
        if key != last or time.monotonic() - spoken_at > SPEAK_EVERY_S:
            talk(line)
            last, spoken_at = key, time.monotonic()
        if not run.is_live:
            if as_json:
                print_json({"schema": 1, "run": run})
            else:
                print(f"{run.run_id} {run.state}")
            return 0 if run.state == "finished" else 1
        time.sleep(PERIOD_S)


def progress(run: RunSummary) -> str:
    """One line on where the run stands."""
    if run.end is not None:
        return f"{words.state(run)}: {run.end.reason} (step {words.step(run)}, reward {words.number(run.reward)})"
    if run.stage.stage in ("training", "saving"):
        return (
            f"{words.state(run)}  step {words.step(run)}  reward {words.number(run.reward)}  "
            f"{words.rate(run.tokens_per_second)} tok/s"
        )
    return f"{words.state(run)}  {words.about(run)}"
