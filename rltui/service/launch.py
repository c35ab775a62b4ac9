"""Launching: check, make the run, journal, submit once."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from rltui.check.run import Report, check_file
from rltui.errors import MissingExtraError, RltuiError
from rltui.layout.presets import resolve
from rltui.runs.directory import MODULES, Attempt, make_attempt, make_run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.layout.schema import Layout
    from rltui.service.context import Context


NOT_BUNDLED = "E390"
"""The finding that names what the bundled trainers cannot run; a note in a check, an obstacle to a launch."""


class Launched(Struct, frozen=True, kw_only=True):
    """What a launch made."""

    run_id: str
    attempt: int
    job_id: str
    cluster: str
    path: str


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
            f"Fix: {' '.join(first.fix)}" if first.fix else f"`rltui check {report.file}` shows everything.",
        )
        self.report = report
        self.exit_code = 1 if report.readable else 2


def review(source: str, overrides: Sequence[str] = ()) -> Report:
    """Check the preset or file ``source`` with ``overrides``.

    Raises:
        UsageError: There is no such preset or file.
    """
    return launchable(check_file(resolve(source), overrides))


def launchable(report: Report) -> Report:
    """``report`` with what the bundled trainers cannot run as errors: a sound layout, but not one to launch here."""
    findings = tuple(
        structs.replace(finding, severity="error") if finding.code == NOT_BUNDLED else finding
        for finding in report.findings
    )
    return structs.replace(report, findings=tuple(sorted(findings, key=lambda finding: finding.severity != "error")))


def launch(context: Context, source: str, overrides: Sequence[str] = ()) -> Launched:
    """Check ``source``, make a run of it and submit its first attempt.

    Raises:
        RefusedError: A finding stands in the way.
        MissingExtraError: The trainers are not installed where they would run.
        RltuiError: The run directory or the journal cannot be written, or the submission failed.
    """
    report = review(source, overrides)
    if not report.ok or report.loaded is None:
        raise RefusedError(report)
    layout = report.loaded.layout
    require_modules(layout)
    cluster = context.cluster
    run_id = make_run(cluster.client, cluster.run_root, layout, cluster.name)
    return submit_attempt(context, run_id, layout, "submit")


def submit_attempt(context: Context, run_id: str, layout: Layout, action: str) -> Launched:
    """Make the next attempt of ``run_id`` and submit it; the intent is in the journal before anything starts.

    Raises:
        RltuiError: The journal or the run root cannot be written, or the supervisor did not start.
    """
    cluster = context.cluster
    context.journal.write(action, "intent", run=run_id, cluster=cluster.name)
    attempt = make_attempt(cluster.client, cluster.run_root, run_id, layout, cluster.python)
    job_id = _submit(context, attempt, action)
    return Launched(
        run_id=run_id, attempt=attempt.number, job_id=job_id, cluster=cluster.name, path=f"{cluster.run_root}/{run_id}"
    )


def _submit(context: Context, attempt: Attempt, action: str) -> str:
    about = {"run": attempt.run_id, "attempt": attempt.number, "uuid": attempt.uuid, "cluster": context.cluster.name}
    context.journal.write(action, "submitting", **about)
    try:
        job_id = context.cluster.submit(attempt)
    except RltuiError as error:
        context.journal.write(action, "failed", **about, reason=error.message)
        raise
    context.journal.write(action, "done", **about, job=job_id)
    return job_id


def require_modules(layout: Layout) -> None:
    """Refuse early, in this process, what the trainers could not import on this machine.

    Raises:
        MissingExtraError: Names the missing packages and the command that installs them.
    """
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"The trainers need {', '.join(missing)}, which this Python does not have.",
            "Install them: pip install 'rltui[trainers]'",
        )
    if layout.roles.rollout.engine == "vllm" and importlib.util.find_spec("vllm") is None:
        raise MissingExtraError(
            "The layout asks for vLLM, which this Python does not have.",
            "Install it: pip install 'rltui[vllm]' (in a checkout: make demo ENGINE=vllm), "
            "or launch with roles.rollout.engine=hf",
        )
