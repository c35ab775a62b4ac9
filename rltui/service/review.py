"""What there is to see before a launch: findings, who sits where, numbers, commands, script, and when it starts."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct, structs

from rltui.check.findings import Finding, Severity
from rltui.cluster.profile import LOCAL, Profile
from rltui.cluster.slurm.client import SlurmClient
from rltui.errors import RltuiError, tried
from rltui.layout.diff import change_lines, diff
from rltui.layout.load import load_layout
from rltui.layout.presets import resolve
from rltui.layout.schema import Layout
from rltui.memory.bars import lines
from rltui.memory.layouts import estimate_layout
from rltui.paths import state_dir
from rltui.plan.measured import read_measured
from rltui.plan.of_layout import predict
from rltui.plan.rates import read_calibration
from rltui.runs.directory import load_attempt_layout
from rltui.runs.script import preview_script
from rltui.runs.script_job import ScriptJob, Work, is_script
from rltui.service.bad_nodes import offers
from rltui.service.context import Context
from rltui.service.describe import attempt_path
from rltui.service.launch import remembered, review
from rltui.service.launch_review import LaunchReview
from rltui.service.scripts import Prepared, prepare
from rltui.service.sweep import require_limit, swept_layouts, swept_scripts
from rltui.service.sweep_points import NO_SWEEP, Sweep, points_of
from rltui.service.this_machine import here_instead_of_slurm
from rltui.service.wishes import read_wishes
from rltui.watch.snapshots import RunSummary


def review_launch(
    profile: Profile,
    source: str,
    overrides: Sequence[str] = (),
    context: Context | None = None,
    sweep: Sweep = NO_SWEEP,
) -> LaunchReview:
    """Check ``source`` (a preset, a layout's file or a script) and show what launching it on ``profile`` would do.

    Args:
        profile: Where to.
        source: What.
        overrides: What stands behind it in the shell: ``key.path=value``, or the words of ``launch --script``.
        context: The cluster, to be asked which nodes it remembers as bad; None: it is not asked.
        sweep: As each run of it; what is no finding is then of the first.

    Raises:
        UsageError: There is no such preset or file.
    """
    if sweep.words:
        return _review_sweep(profile, source, overrides, context, sweep)
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
            *(remembered(context, layout) if context is not None and layout is not None else ()),
        ),
        drawing=report.drawing,
        arithmetic=report.arithmetic_lines,
        commands=(shlex.join(words),),
        cluster=profile.name,
        script=_job_script(layout, profile) if layout is not None else "",
        memory=_memory(layout),
        plan=_plan(layout, profile.name),
    )


def _review_sweep(
    profile: Profile, source: str, overrides: Sequence[str], context: Context | None, sweep: Sweep
) -> LaunchReview:
    """What launching a sweep would do: the first run in full, and what is found of each other that is new."""
    first = (*overrides, *points_of(sweep.words)[0].settings)
    shown = review_launch(profile, source, first, context)
    findings, errors = list(shown.findings), []
    _, refused = tried(lambda: require_limit(profile, sweep.at_once))
    if refused is not None:
        findings.append(Finding(code="SWEEP", severity="error", message=refused.in_one_line))
    for settings, found in _swept(profile, source, overrides, sweep):
        said = {(one.code, one.key, one.message) for one in findings}
        new = [one for one in found if (one.code, one.key, one.message) not in said]
        findings += [structs.replace(one, message=f"{settings}: {one.message}", fix=()) for one in new]
        errors.append((settings, next((one.message for one in found if one.severity == "error"), "")))
    place = ["--cluster", profile.name] if profile.name != LOCAL else []
    words = ["--script", source] if is_script(source) else [source]
    command = ["rltui", "launch", *words, *sweep.arguments, *place, *overrides]
    return structs.replace(
        shown,
        overrides=tuple(overrides),
        findings=tuple(findings),
        commands=(shlex.join(command),),
        sweep=sweep,
        swept=tuple(errors),
        first=first,
    )


def _swept(
    profile: Profile, source: str, overrides: Sequence[str], sweep: Sweep
) -> Iterator[tuple[str, tuple[Finding, ...]]]:
    """The settings of each run of a sweep, and what is found of it."""
    points = points_of(sweep.words)
    settings = [" ".join(point.settings) for point in points]
    if not is_script(source):
        reports = swept_layouts(source, overrides, points, profile)
        yield from zip(settings, (report.findings for _, report in reports), strict=True)
        return
    wishes, _ = tried(lambda: read_wishes(overrides))
    if wishes is None:  # which the review of the first says
        return
    swept, refused = tried(lambda: swept_scripts(source, wishes, points, profile))
    if refused is not None:
        yield settings[0], (_of_script(refused.in_one_line),)
    for said, one in zip(settings, swept or (), strict=False):
        unheard = (_of_script(one.problem),) if one.problem else ()
        yield said, (*unheard, *_problems(one.prepared, wishes.anyway))


def _problems(prepared: Prepared, anyway: bool) -> tuple[Finding, ...]:
    """What stands in the way of a script, or where it is to be launched all the same, does not."""
    worst: Severity = "warning" if anyway else "error"
    return tuple(Finding(code="PLACE", severity=worst, message=text) for text in prepared.problems)


def _of_script(message: str) -> Finding:
    return Finding(code="SCRIPT", severity="error", message=message)


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
        return structs.replace(shown, findings=(_of_script(error.in_one_line),))
    mild = [structs.replace(one, severity="warning", fix=()) for one in prepared.findings]
    return structs.replace(
        shown,
        findings=(
            *_said_of_place(profile),
            *_problems(prepared, wishes.anyway),
            *mild,
            *(offers(context.cluster, prepared.job) if context is not None else ()),
        ),
        notes=prepared.notes,
        drawing=prepared.drawing,
        arithmetic=prepared.arithmetic,
        script=_job_script(prepared.job, profile) or prepared.text.decode("utf-8", "replace"),
    )


def _said_of_place(profile: Profile) -> tuple[Finding, ...]:
    """What the reviewer is asked before a launch here; the shell asks it in words."""
    said = here_instead_of_slurm(profile)
    return (Finding(code="HERE", severity="warning", message="; ".join(said)),) if said else ()


def _job_script(work: Work, profile: Profile) -> str:
    """The job script of ``work``, or as a comment why there can be none; empty where the cluster needs none."""
    if profile.scheduler != "slurm":
        return ""
    try:
        return preview_script(work, profile)
    except RltuiError as error:
        return f"# {error.message}"


class LaunchOutlook(Struct, frozen=True, kw_only=True):
    """What takes longer to know of a launch than a keystroke, and is shown with its age."""

    preset: str
    overrides: tuple[str, ...] = ()
    cluster: str = "local"
    start: str = ""
    """When it would start, in a few words; empty where nobody can tell."""
    refusal: str = ""
    """Why the scheduler would not take it; empty where it would."""
    last_run: str = ""
    """The last run of that name on the cluster whose layout can be read; empty: there is none."""
    changes: tuple[str, ...] = ()
    """What is different from it, a ``-`` and a ``+`` line a key."""
    taken_at: float = 0.0
    """When the cluster was asked, by this machine's clock."""
    problem: str = ""
    """Why nothing of that is known."""


def outlook(context: Context, source: str, overrides: Sequence[str], runs: Sequence[RunSummary]) -> LaunchOutlook:
    """When a launch would start, asked of the cluster, and what is different from the last run of that name there.

    Args:
        context: The cluster.
        source: A preset, a layout's file or a script.
        overrides: What stands behind it in the shell.
        runs: Those that are known, newest first.
    """
    asked = LaunchOutlook(preset=source, overrides=tuple(overrides), cluster=context.cluster.name, taken_at=time.time())
    try:
        work = _work(context, source, overrides)
        start, refusal = _start(context, work)
        last, changes = _since_last(context, work, runs)
    except RltuiError as error:
        return structs.replace(asked, problem=error.message)
    return structs.replace(asked, start=start, refusal=refusal, last_run=last, changes=changes)


def _work(context: Context, source: str, overrides: Sequence[str]) -> Work:
    if is_script(source):
        return prepare(source, read_wishes(overrides), context.cluster.profile).job
    return load_layout(resolve(source), overrides).layout


def _start(context: Context, work: Work) -> tuple[str, str]:
    """When it would start in a few words, and why it would not be taken; empty where nobody can tell."""
    profile = context.cluster.profile
    if profile.scheduler == "slurm":
        verdict = SlurmClient(context.cluster.client).test(preview_script(work, profile))
        if not verdict.accepted:
            return "", verdict.sentence
        nodes = f" on {len(verdict.nodes)} node{'s' * (len(verdict.nodes) != 1)}" if verdict.nodes else ""
        return f"{verdict.start.replace('T', ' ')} by the cluster's clock{nodes}", ""
    if profile.scheduler == "ray":
        return "", ""
    before = len(context.queue.look().waiting)
    waits = f"{before} run{'s wait' if before != 1 else ' waits'} in front of it"
    return waits if before else "nothing waits in front of it", ""


def _since_last(context: Context, work: Work, runs: Sequence[RunSummary]) -> tuple[str, tuple[str, ...]]:
    """The last run of that name on the cluster, and what is different from its layout, two lines a key."""
    last = next((run for run in runs if run.name == work.name and run.cluster == context.cluster.name), None)
    if last is None or isinstance(work, ScriptJob):
        return "", ()
    before, _ = tried(lambda: load_attempt_layout(context.cluster.client, attempt_path(last)).layout)
    return ("", ()) if before is None else (last.run_id, tuple(change_lines(diff(before, work))))
