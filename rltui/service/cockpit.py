"""The cockpit's view of the services: what a screen may ask for, as one small interface.

Every method may block (files, relay, HTTP), so the TUI calls them in worker threads only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from rltui.check.findings import Finding
    from rltui.watch.snapshots import RunSnapshot, RunsSnapshot


class PresetSummary(Struct, frozen=True, kw_only=True):
    """One row of the list of presets."""

    name: str
    """What ``launch`` takes, such as ``local/grpo-tiny``."""
    summary: str
    algorithm: str
    nodes: int
    gpus_per_node: int
    gpu: str


class LaunchReview(Struct, frozen=True, kw_only=True):
    """All there is to see before a launch: findings, who sits where, the numbers, and the commands that would run."""

    preset: str
    overrides: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    drawing: tuple[str, ...] = ()
    """Lines of the nodes × GPUs picture."""
    arithmetic: tuple[str, ...] = ()
    """Lines such as ``1000 steps × 256 samples = 256000 samples``."""
    commands: tuple[str, ...] = ()
    cluster: str = "local"

    @property
    def can_launch(self) -> bool:
        """Whether no finding stands in the way."""
        return not any(finding.severity == "error" for finding in self.findings)


class ActionPreview(Struct, frozen=True, kw_only=True):
    """What a destructive action would do, shown before it is confirmed; its target is fixed here."""

    run_id: str
    title: str
    """A question, such as ``Cancel grpo-tiny-1a2b?``."""
    consequences: tuple[str, ...]
    """Plain sentences: age, step, newest checkpoint, what will be lost."""
    commands: tuple[str, ...]


class Cockpit(Protocol):
    """What screens may ask of the services."""

    def runs(self) -> RunsSnapshot:
        """All runs of all clusters, newest first; never raises for a cluster that is away."""

    def watch(self, run_id: str) -> RunSnapshot:
        """A fresh picture of one run; reads only what is new since the last call.

        Raises:
            RltuiError: The run is not there.
        """

    def presets(self) -> tuple[PresetSummary, ...]:
        """The presets that can be launched."""

    def review(self, preset: str, overrides: tuple[str, ...] = ()) -> LaunchReview:
        """Check ``preset`` with ``overrides`` (``key.path=value``); errors in the overrides are findings."""

    def launch(self, preset: str, overrides: tuple[str, ...] = ()) -> str:
        """Launch and return the run's id.

        Raises:
            RltuiError: A finding stands in the way, or the submission failed.
        """

    def preview_cancel(self, run_id: str) -> ActionPreview:
        """What cancelling would do."""

    def cancel(self, run_id: str) -> str:
        """Cancel; returns one sentence on what was done."""

    def preview_resubmit(self, run_id: str) -> ActionPreview:
        """What resubmitting would do, and from which checkpoint."""

    def resubmit(self, run_id: str) -> str:
        """Start a new attempt of the run from its newest complete checkpoint; returns one sentence on what was done."""
