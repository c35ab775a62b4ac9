"""What can be launched, and all there is to see before a launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rltui.service.sweep_points import NO_SWEEP, Sweep

if TYPE_CHECKING:
    from rltui.check.findings import Finding


class PresetSummary(Struct, frozen=True, kw_only=True):
    """One row of the list of presets."""

    name: str
    """What ``launch`` takes, such as ``local/grpo-tiny``."""
    summary: str
    algorithm: str
    nodes: int
    gpus_per_node: int
    gpu: str
    is_script: bool = False
    """Whether it is another system's script; what it takes is known once it is reviewed."""


def opened_file(path: str) -> PresetSummary:
    """The row of a file that the user names: a layout by its ending, else a script."""
    is_script = not path.endswith((".yaml", ".yml"))
    kind = "script" if is_script else "file"
    return PresetSummary(name=path, summary="", algorithm=kind, nodes=0, gpus_per_node=0, gpu="", is_script=is_script)


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
    script: str = ""
    """The job script exactly as it would be submitted; where the cluster needs none, a script of the user's own."""
    notes: tuple[str, ...] = ()
    """What was read of a script, a line each."""
    memory: tuple[str, ...] = ()
    """What each role takes of its cards, a bar a moment; none on CPU slots."""
    plan: tuple[str, ...] = ()
    """What ``rltui plan`` expects of it, or why it cannot tell; none on CPU slots."""
    sweep: Sweep = NO_SWEEP
    swept: tuple[tuple[str, str], ...] = ()
    """Of a sweep: what each run has set, and the error that stands in its way; all else is of its first run."""
    first: tuple[str, ...] = ()
    """All overrides of the first run."""

    @property
    def can_launch(self) -> bool:
        """Whether no finding stands in the way."""
        return not any(finding.severity == "error" for finding in self.findings)
