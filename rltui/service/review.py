"""All there is to see before a launch: findings, who sits where, the numbers, the commands and the script."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from msgspec import structs

from rltui.check.findings import Finding
from rltui.cluster.profile import LOCAL
from rltui.errors import RltuiError, tried
from rltui.memory.bars import lines
from rltui.memory.layouts import estimate_layout
from rltui.paths import state_dir
from rltui.plan.measured import read_measured
from rltui.plan.of_layout import predict
from rltui.plan.rates import read_calibration
from rltui.runs.script_job import is_script
from rltui.service.cockpit import LaunchReview
from rltui.service.launch import review
from rltui.service.login_node import here_instead_of_slurm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.check.run import Report
    from rltui.cluster.profile import Profile
    from rltui.layout.schema import Layout
    from rltui.runs.script_job import ScriptJob
    from rltui.service.context import Context


def review_launch(
    profile: Profile, source: str, overrides: Sequence[str] = (), context: Context | None = None
) -> LaunchReview:
    """Check ``source`` (a preset, a layout's file or a script) and show what launching it on ``profile`` would do.

    Args:
        profile: Where to.
        source: What.
        overrides: What stands behind it in the shell: ``key.path=value``, or the words of ``launch --script``.
        context: The cluster, to be asked which nodes it remembers as bad; None: it is not asked.

    Raises:
        UsageError: There is no such preset or file.
    """
    if is_script(source):
        return _review_script(profile, source, overrides, context)
    report = review(source, overrides, profile)
    layout = report.loaded.layout if report.loaded is not None else None
    words = ["rltui", "launch", source, *overrides]
    words += ["--cluster", profile.name] if profile.name != LOCAL else []
    return LaunchReview(
        preset=source,
        overrides=tuple(overrides),
        findings=(
            *_said_of_place(profile),
            *report.findings,
            *_bad_nodes(context, layout),
            *_measured(context, layout),
        ),
        drawing=report.drawing,
        arithmetic=report.arithmetic_lines,
        commands=(shlex.join(words),),
        cluster=profile.name,
        script=_script(report, profile),
        memory=_memory(layout),
        plan=_plan(layout, profile.name),
    )


def _memory(layout: Layout | None) -> tuple[str, ...]:
    """What ``rltui mem`` prints; nothing of a layout that cannot be estimated, of which a finding tells."""
    if layout is None or layout.hardware.on_cpu:
        return ()
    estimate, _ = tried(lambda: estimate_layout(layout))
    return tuple(lines(estimate)) if estimate is not None else ()


def _plan(layout: Layout | None, cluster: str) -> tuple[str, ...]:
    """What ``rltui plan`` expects of a layout, or why it cannot tell."""
    if layout is None or layout.hardware.on_cpu:
        return ()
    try:
        known, measured = read_calibration(state_dir()), read_measured(state_dir()).get(cluster)
        return tuple(predict(layout, known, measured).lines())
    except (RltuiError, ValueError) as error:  # a file of measured rates that somebody broke tells by itself
        return (str(error),)


def _review_script(profile: Profile, source: str, words: Sequence[str], context: Context | None) -> LaunchReview:
    """What launching a script would do. Only what cannot be placed or read stands in the way: it is not ours."""
    from rltui.service.scripts import prepare
    from rltui.service.wishes import read_wishes

    place = ["--cluster", profile.name] if profile.name != LOCAL else []
    shown = LaunchReview(
        preset=source,
        overrides=tuple(words),
        commands=(shlex.join(["rltui", "launch", "--script", source, *place, *words]),),
        cluster=profile.name,
    )
    try:
        wishes = read_wishes(words)
        prepared = prepare(source, wishes, profile)
    except RltuiError as error:
        message = f"{error.message} {error.hint}".strip()
        return structs.replace(shown, findings=(Finding(code="SCRIPT", severity="error", message=message),))
    worst = "warning" if wishes.anyway else "error"
    problems = [Finding(code="PLACE", severity=worst, message=text) for text in prepared.problems]  # type: ignore[arg-type]
    mild = [structs.replace(one, severity="warning", fix=()) for one in prepared.findings]
    return structs.replace(
        shown,
        findings=(*_said_of_place(profile), *problems, *mild, *_bad_nodes(context, prepared.job)),
        notes=prepared.notes,
        drawing=prepared.drawing,
        arithmetic=prepared.arithmetic,
        script=_job_script(prepared.job, profile) or prepared.text.decode("utf-8", "replace"),
    )


def _said_of_place(profile: Profile) -> tuple[Finding, ...]:
    """What the reviewer is asked before a launch here; the shell asks it in words."""
    said = here_instead_of_slurm(profile)
    return (Finding(code="HERE", severity="warning", message="; ".join(said)),) if said else ()


def _bad_nodes(context: Context | None, work: Layout | ScriptJob | None) -> tuple[Finding, ...]:
    """The offer to leave out nodes that the cluster remembers as bad."""
    from rltui.service.bad_nodes import offers

    return offers(context, work) if context is not None and work is not None else ()


def _measured(context: Context | None, layout: Layout | None) -> tuple[Finding, ...]:
    """What earlier runs like this one took of their cards."""
    from rltui.service.memory_peaks import measured_findings

    return measured_findings(context, layout) if context is not None and layout is not None else ()


def _script(report: Report, profile: Profile) -> str:
    """The job script; of a layout that cannot be written as one, the reason as a comment."""
    return _job_script(report.loaded.layout, profile) if report.loaded is not None else ""


def _job_script(work: Layout | ScriptJob, profile: Profile) -> str:
    """The job script of ``work``; empty where the cluster needs none."""
    if profile.scheduler != "slurm":
        return ""
    from rltui.runs.script import preview_script

    try:
        return preview_script(work, profile)
    except RltuiError as error:
        return f"# {error.message}"
