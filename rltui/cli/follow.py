"""Following a run to its end in plain lines, for ``launch --wait`` and terminals without a screen."""

from __future__ import annotations

import time

from rltui.cli import words
from rltui.cli.output import print_json, talk
from rltui.cluster.profile import LOCAL
from rltui.errors import ClusterError
from rltui.service.context import Context
from rltui.service.hands_off_switch import is_over
from rltui.watch.snapshots import RunSummary

PERIOD_S = 0.5
REMOTE_PERIOD_S = 2.0
SPEAK_EVERY_S = 5.0
SPEAK_OF_QUEUE_EVERY_S = 300.0


def follow(context: Context, run_id: str, as_json: bool) -> int:
    """Report the run's progress on stderr until it ends; returns 0 where it finished, else 1.

    A cluster that goes away for a while is said once and waited for.
    """
    speaker = _Speaker()
    while True:
        try:
            run = context.find(run_id)
            is_last = is_over(context, run)
        except ClusterError as error:
            speaker.say(f"waiting for {context.name}: {error.message}", error.message)
        else:
            speaker.tell(run)
            if is_last:
                return _ended(run, as_json)
        time.sleep(PERIOD_S if context.name == LOCAL else REMOTE_PERIOD_S)


class _Speaker:
    """Says a line when it is new, and now and then again."""

    def __init__(self) -> None:
        self._last = ""
        self._spoken_at = 0.0

    def tell(self, run: RunSummary) -> None:
        every = SPEAK_OF_QUEUE_EVERY_S if run.state == "queued" else SPEAK_EVERY_S
        key = f"{run.state} {run.attempt} {run.stage.stage} {run.stage.detail}"
        self.say(progress(run), key, every)

    def say(self, line: str, key: str, every_s: float = SPEAK_OF_QUEUE_EVERY_S) -> None:
        if key != self._last or time.monotonic() - self._spoken_at > every_s:
            talk(line)
            self._last, self._spoken_at = key, time.monotonic()


def _ended(run: RunSummary, as_json: bool) -> int:
    if as_json:
        print_json({"schema": 1, "run": run})
    else:
        print(f"{run.run_id} {run.state}")
    return 0 if run.state == "finished" else 1


def progress(run: RunSummary) -> str:
    """One line on where the run stands."""
    if run.end is not None:
        return f"{words.state(run)}: {words.about(run)} (step {words.step(run)}, reward {words.number(run.reward)})"
    if run.stage.stage in ("training", "saving"):
        return (
            f"{words.state(run)}  step {words.step(run)}  reward {words.number(run.reward)}  "
            f"{words.rate(run.tokens_per_second)} tok/s"
        )
    return f"{words.state(run)}  {words.about(run)}"
