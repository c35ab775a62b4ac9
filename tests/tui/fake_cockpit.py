"""A cockpit over canned data, with faults that real services cannot be asked for: errors and slowness at will."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

import msgspec
from canned_launch import PRESETS, review
from canned_runs import NOW, RUNS, snapshot, summary

from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.service.cockpit import ActionPreview, LaunchReview, PresetSummary
from rltui.watch.snapshots import RunSnapshot, RunsSnapshot, RunSummary


@dataclass
class FakeCockpit:
    """A cockpit for tests and pictures.

    Attributes:
        all_runs: What ``runs`` gives, newest first.
        slow_s: Seconds that every call takes; ``gate`` lets them go earlier.
        failing: Calls that raise, by name.
        live: Let the steps of running runs advance with the clock.
    """

    all_runs: tuple[RunSummary, ...] = RUNS
    slow_s: float = 0.0
    failing: set[str] = field(default_factory=set)
    live: bool = False
    lines: tuple[str, ...] | None = None
    calls: list[tuple[str, ...]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    error: RltuiError = field(
        default_factory=lambda: ClusterError("isambard does not answer", "try: ssh isambard true")
    )

    def _called(self, name: str, *words: str) -> None:
        self.calls.append((name, *words))
        if self.slow_s:
            self.gate.wait(self.slow_s)
        if name in self.failing:
            raise self.error

    def _find(self, run_id: str) -> RunSummary:
        for run in self.all_runs:
            if run.run_id == run_id:
                return self._advanced(run)
        raise UsageError(f"there is no run {run_id!r}", "rltui ps lists all runs")

    def _advanced(self, run: RunSummary) -> RunSummary:
        if not self.live or run.state != "running":
            return run
        step = (run.stage.step or 0) + int(time.monotonic() * 2) % 500
        rate = (run.tokens_per_second or 0.0) * random.uniform(0.9, 1.1)
        stage = msgspec.structs.replace(run.stage, step=min(step, run.stage.steps or step))
        rates = (*run.tokens_per_second_history[1:], rate)
        return msgspec.structs.replace(run, stage=stage, tokens_per_second=rate, tokens_per_second_history=rates)

    def runs(self) -> RunsSnapshot:
        self._called("runs")
        return RunsSnapshot(runs=tuple(self._advanced(run) for run in self.all_runs), taken_at=NOW)

    def watch(self, run_id: str) -> RunSnapshot:
        self._called("watch", run_id)
        return snapshot(self._find(run_id), self.lines)

    def presets(self) -> tuple[PresetSummary, ...]:
        self._called("presets")
        return PRESETS

    def review(self, preset: str, overrides: tuple[str, ...] = ()) -> LaunchReview:
        self._called("review", preset, *overrides)
        return review(next(each for each in PRESETS if each.name == preset), overrides)

    def launch(self, preset: str, overrides: tuple[str, ...] = ()) -> str:
        self._called("launch", preset, *overrides)
        run_id = f"{preset.split('/')[-1]}-new{len(self.all_runs)}"
        self.all_runs = (summary(run_id, "queued", "queued", 1, detail="first in line"), *self.all_runs)
        return run_id

    def preview_cancel(self, run_id: str) -> ActionPreview:
        self._called("preview_cancel", run_id)
        return ActionPreview(
            run_id=run_id,
            title=f"Cancel {run_id}?",
            consequences=(
                "It has run for 2m14 and is at step 412 of 1000.",
                "Newest checkpoint: step 400; 12 steps will be lost.",
                "It can be resubmitted from that checkpoint.",
            ),
            commands=(f"kill -TERM 20951   # supervisor of {run_id}, attempt 2",),
        )

    def cancel(self, run_id: str) -> str:
        self._called("cancel", run_id)
        return f"{run_id} was asked to save and end"

    def preview_resubmit(self, run_id: str) -> ActionPreview:
        self._called("preview_resubmit", run_id)
        return ActionPreview(
            run_id=run_id,
            title=f"Resubmit {run_id}?",
            consequences=("Attempt 3 starts from checkpoint step 400 of 1000.",),
            commands=(f"python3 -m rltui.onnode.supervise /home/ada/runs/{run_id}/attempts/03",),
        )

    def resubmit(self, run_id: str) -> str:
        self._called("resubmit", run_id)
        return f"{run_id} is queued again as attempt 3"
