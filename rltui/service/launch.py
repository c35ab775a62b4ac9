"""Launching: check, make the run, journal, submit once."""

from __future__ import annotations

import importlib.util
import shlex
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.check.run import Report, check_file
from rltui.errors import MissingExtraError, RltuiError, UsageError
from rltui.layout.presets import resolve
from rltui.runs.directory import MODULES, ClaimedError, new_run_id, optional_modules
from rltui.service.submit import submit_attempt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.cluster.facts import ClusterFacts
    from rltui.cluster.profile import Profile
    from rltui.layout.schema import Layout
    from rltui.service.context import Context
    from rltui.service.submit import Launched


MOST_LINKS = 50

NOT_BUNDLED = "E390"
INSTALLS = {
    "vllm": "Install it: pip install 'rltui[vllm]' (in a checkout: make demo ENGINE=vllm), "
    "or launch with roles.rollout.engine=hf",
    "peft": "Install it: pip install 'rltui[trainers]', or launch with roles.learner.lora_rank=0",
    "bitsandbytes": "Install it: pip install 'rltui[eight-bit]', or launch with roles.learner.optimizer=adamw",
}
"""What to do where a module is missing that only some layouts need."""
"""The finding that names what the bundled trainers cannot run; a note in a check, an obstacle to a launch."""


class RefusedError(RltuiError):
    """Findings at error level stand in the way of a launch.

    Attributes:
        report: The report with the findings.
    """

    def __init__(self, report: Report) -> None:
        errors = [finding for finding in report.findings if finding.severity == "error"]
        first = errors[0]
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        super().__init__(
            f"Not launched: {first.code} {first.key + ': ' if first.key else ''}{first.message}{more}",
            f"Fix: {shlex.join(first.fix)}" if first.fix else f"`rltui check {report.file}` shows everything.",
        )
        self.report = report
        self.exit_code = 1 if report.readable else 2


def review(source: str, overrides: Sequence[str], profile: Profile) -> Report:
    """Check the preset or file ``source`` with ``overrides`` for the cluster of ``profile``, which is not asked.

    Raises:
        UsageError: There is no such preset or file.
    """
    return launchable(advised(check_file(resolve(source), overrides), profile))


def advised(report: Report, profile: Profile) -> Report:
    """``report`` with what the profile says against it.

    These are warnings: a profile speaks of one partition, and the layout may name another. That this machine is one
    node is certain.
    """
    from rltui.check.live import LIVE_REGISTRY, check_on

    if profile.scheduler == "local":
        return check_on(report, profile, _machine(report))
    found = check_on(report, profile)
    findings = tuple(
        structs.replace(finding, severity="warning")
        if finding.code in LIVE_REGISTRY and finding.severity == "error"
        else finding
        for finding in found.findings
    )
    return structs.replace(found, findings=findings)


def _machine(report: Report) -> ClusterFacts | None:
    """This machine's GPUs, where the layout wants any: the driver takes a moment to list them."""
    from rltui.service.machine import machine_facts

    wants_any = report.loaded is not None and not report.loaded.layout.hardware.on_cpu
    return machine_facts() if wants_any else None


def launchable(report: Report) -> Report:
    """``report`` with what the bundled trainers cannot run as errors: a sound layout, but not one to launch here."""
    findings = tuple(
        structs.replace(finding, severity="error") if finding.code == NOT_BUNDLED else finding
        for finding in report.findings
    )
    return structs.replace(report, findings=tuple(sorted(findings, key=lambda finding: finding.severity != "error")))


def launch(context: Context, source: str, overrides: Sequence[str] = (), *, chain: int = 1) -> Launched:
    """Check ``source``, make a run of it and submit its first attempt.

    Args:
        context: Where.
        source: A preset's name or a file.
        overrides: Changes, ``key.path=value``.
        chain: Jobs to submit, each to start when the one before has ended: for runs longer than a time limit. The
            trainer of each goes on from the newest checkpoint, and those that find nothing to do end at once.

    Raises:
        RefusedError: A finding stands in the way.
        MissingExtraError: The trainers are not installed where they would run.
        RltuiError: The run directory or the journal cannot be written, or the submission failed. Links of a chain that
            were submitted before that stay.
    """
    if not 1 <= chain <= MOST_LINKS:
        raise UsageError(f"A chain has 1 to {MOST_LINKS} jobs, not {chain}.")
    if chain > 1 and context.cluster.profile.scheduler != "slurm":
        raise UsageError(f"{context.name} has no Slurm, so no time limit that a chain would help over.", "Launch once.")
    report = review(source, overrides, context.cluster.profile)
    if not report.ok or report.loaded is None:
        raise RefusedError(report)
    layout = report.loaded.layout
    if context.cluster.profile.scheduler == "local":
        require_modules(layout)
    first = link = _first_attempt(context, layout)
    for number in range(2, chain + 1):
        link = submit_attempt(context, first.run_id, number, layout, after_job=link.job_id)
    return first


def _first_attempt(context: Context, layout: Layout, tries: int = 5) -> Launched:
    try:
        return submit_attempt(context, new_run_id(layout.name), 1, layout)
    except ClaimedError:  # the id's four digits were drawn before; nothing of this draw is anywhere
        if tries <= 1:
            raise
    return _first_attempt(context, layout, tries - 1)


def require_modules(layout: Layout) -> None:
    """Refuse early, in this process, what the trainers could not import on this machine.

    Raises:
        MissingExtraError: Names the missing packages and the command that installs them.
    """
    missing = [name for name in MODULES if _is_missing(name)]
    if missing:
        raise MissingExtraError(
            f"The trainers need {', '.join(missing)}, which this Python does not have.",
            "Install them: pip install 'rltui[trainers]'",
        )
    for name in filter(_is_missing, optional_modules(layout)):
        raise MissingExtraError(f"The layout needs {name}, which this Python does not have.", INSTALLS[name])


def _is_missing(module: str) -> bool:
    return importlib.util.find_spec(module) is None
