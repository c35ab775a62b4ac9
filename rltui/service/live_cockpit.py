"""The real thing behind the cockpit's screens: the same services that the headless verbs use."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from rltui.service import actions
from rltui.service.cockpit import ActionPreview, LaunchReview, PresetSummary
from rltui.service.context import Context
from rltui.service.launch import launch, review
from rltui.service.presets import preset_summaries
from rltui.watch.run_watcher import RunWatcher

if TYPE_CHECKING:
    from rltui.check.run import Report
    from rltui.watch.snapshots import RunSnapshot, RunsSnapshot, RunSummary


class LiveCockpit:
    """Implements ``rltui.service.cockpit.Cockpit`` on an open cluster; safe to call from several threads."""

    def __init__(self) -> None:
        self.context = Context()
        self._watchers: dict[str, RunWatcher] = {}
        self._runs_lock = threading.Lock()
        self._watch_lock = threading.Lock()

    def runs(self) -> RunsSnapshot:
        """All runs, newest first."""
        with self._runs_lock:
            return self.context.runs()

    def watch(self, run_id: str) -> RunSnapshot:
        """A fresh picture of one run."""
        with self._watch_lock:
            if run_id not in self._watchers:
                self._watchers = {run_id: RunWatcher(self.context.cluster.client, self._find(run_id).path)}
            return self._watchers[run_id].snapshot()

    def presets(self) -> tuple[PresetSummary, ...]:
        """The presets that can be launched."""
        return preset_summaries()

    def review(self, preset: str, overrides: tuple[str, ...] = ()) -> LaunchReview:
        """Check ``preset`` with ``overrides``."""
        return _review(preset, overrides, review(preset, overrides), self.context.cluster.name)

    def launch(self, preset: str, overrides: tuple[str, ...] = ()) -> str:
        """Launch and return the run's id."""
        return launch(self.context, preset, overrides).run_id

    def preview_cancel(self, run_id: str) -> ActionPreview:
        """What cancelling would do."""
        return actions.preview_cancel(self.context, self._find(run_id))

    def cancel(self, run_id: str) -> str:
        """Cancel."""
        return actions.cancel(self.context, self._find(run_id))

    def preview_resubmit(self, run_id: str) -> ActionPreview:
        """What resubmitting would do."""
        return actions.preview_resubmit(self.context, self._find(run_id))

    def resubmit(self, run_id: str) -> str:
        """Start a new attempt of the run."""
        launched = actions.resubmit(self.context, self._find(run_id))
        return f"Attempt {launched.attempt} of {launched.run_id} is on its way."

    def close(self) -> None:
        """End the relay."""
        self.context.close()

    def _find(self, run_id: str) -> RunSummary:
        with self._runs_lock:
            return self.context.find(run_id)


def _review(preset: str, overrides: tuple[str, ...], report: Report, cluster: str) -> LaunchReview:
    return LaunchReview(
        preset=preset,
        overrides=overrides,
        findings=report.findings,
        drawing=report.drawing,
        arithmetic=report.arithmetic_lines,
        commands=(" ".join(["rltui launch", preset, *overrides]),),
        cluster=cluster,
    )
