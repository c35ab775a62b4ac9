"""All there is to see before a launch: findings, who sits where, the numbers, the commands and the script."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rltui.check.findings import Finding
from rltui.cluster.profile import LOCAL
from rltui.errors import RltuiError
from rltui.service.cockpit import LaunchReview
from rltui.service.launch import review
from rltui.service.login_node import here_instead_of_slurm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.check.run import Report
    from rltui.cluster.profile import Profile


def review_launch(profile: Profile, source: str, overrides: Sequence[str] = ()) -> LaunchReview:
    """Check the preset or file ``source`` and show what launching it on the cluster of ``profile`` would do.

    Raises:
        UsageError: There is no such preset or file.
    """
    report = review(source, overrides, profile)
    words = ["rltui", "launch", source, *overrides]
    words += ["--cluster", profile.name] if profile.name != LOCAL else []
    return LaunchReview(
        preset=source,
        overrides=tuple(overrides),
        findings=(*_said_of_place(profile), *report.findings),
        drawing=report.drawing,
        arithmetic=report.arithmetic_lines,
        commands=(shlex.join(words),),
        cluster=profile.name,
        script=_script(report, profile),
    )


def _said_of_place(profile: Profile) -> tuple[Finding, ...]:
    """What the reviewer is asked before a launch here; the shell asks it in words."""
    said = here_instead_of_slurm(profile)
    return (Finding(code="HERE", severity="warning", message="; ".join(said)),) if said else ()


def _script(report: Report, profile: Profile) -> str:
    """The job script; of a layout that cannot be written as one, the reason as a comment."""
    if profile.scheduler != "slurm" or report.loaded is None:
        return ""
    from rltui.runs.script import preview_script

    try:
        return preview_script(report.loaded.layout, profile)
    except RltuiError as error:
        return f"# {error.message}"
