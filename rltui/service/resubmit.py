"""Starting a run again, with or without changes: previewed, checked anew, and decided by who makes the next attempt."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, structs

from rltui.check.findings import Finding
from rltui.check.run import Report, check_layout
from rltui.cluster.jobs import AllocationShare
from rltui.errors import ClusterError, RltuiError, UsageError
from rltui.layout.diff import Difference, change_lines, diff, differing, flat
from rltui.layout.load import load_text
from rltui.layout.origins import changed as changed_origins
from rltui.layout.schema import Layout
from rltui.onnode import rundir
from rltui.runs.claims import read_evidence, read_uuid, settle_unstarted
from rltui.runs.directory import read_layout, read_origins
from rltui.runs.script_job import LARGEST, ScriptJob, Work, read_script_job
from rltui.service.actions import cancel
from rltui.service.allocations import is_there, share_of
from rltui.service.bad_nodes import offers
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.describe import attempt_path, newest_checkpoint_step, start_words
from rltui.service.eligible import eligible_nodes
from rltui.service.hands_off_switch import keep_through
from rltui.service.launch import RefusedError, asked, launchable, require_modules
from rltui.service.login_facts import ask_cluster
from rltui.service.run_jobs import write_last_word
from rltui.service.script_changes import SECTIONS, changed_script, excluding, newest_checkpoint, resumed
from rltui.service.submit import Launched, submit_attempt
from rltui.service.this_machine import here_instead_of_slurm
from rltui.watch.snapshots import RunSummary

ENDING_S = 180.0
"""How long a cancelled run may take to end before a new attempt: the trainer saves, Slurm's KillWait passes."""

LOOK_S = 1.0


class Change(Struct, frozen=True, kw_only=True):
    """What the next attempt does, and what is new in it."""

    report: Report | None
    """Of a layout; a script of another system has none."""
    layout: Work | None
    words: tuple[str, ...]
    """All of the change as ``key.path=value`` words."""
    lines: tuple[str, ...]
    """The difference, a ``-`` and a ``+`` line a key."""
    findings: tuple[Finding, ...]
    """What stands in the way, and what a check says of the change."""
    start: str
    """Where it goes on, in words."""
    text: bytes = b""
    """The script, byte for byte."""
    script: str = ""
    """Where the edited script is, if it is one."""


def preview_resubmit(
    context: Context,
    run: RunSummary,
    overrides: Sequence[str] = (),
    exclude: Sequence[str] = (),
    change: Change | None = None,
) -> ActionPreview:
    """What resubmitting ``run`` with a change would do, and from where it would go on; a live run is ended first.

    Args:
        context: The run's cluster.
        run: The run.
        overrides: Changes of the layout, ``key.path=value``.
        exclude: Nodes to keep away from.
        change: What these come to, where that is worked out already.

    Raises:
        LayoutError: The change is not one.
    """
    change = change or changed(context, run, overrides, exclude)
    same = "same script" if isinstance(change.layout, ScriptJob) else "same layout, same seed"
    what = "changed as shown" if change.lines else same
    lines = [f"starts attempt {next_number(run)} of {run.run_id}, {what}", f"it {change.start}"]
    if run.is_live:
        lines.insert(0, f"cancels attempt {run.attempt} first, which is {run.state}, and waits until it has ended")
    if run.state == "unknown":
        lines.insert(0, f"whether attempt {run.attempt} was submitted is not known; it is barred from starting first")
    lines += here_instead_of_slurm(context.cluster.profile)
    lines.append(place_words(context, run))
    if exclude and (run.share is None or leaves_allocation(context, run)):
        lines.append(eligible_words(context, change.layout, exclude))
    return ActionPreview(
        run=run.identity,
        title=f"Resubmit {run.run_id}?",
        consequences=tuple(filter(None, lines)),
        commands=(command(run, overrides, exclude, change.script),),
        diff=change.lines,
        findings=(*change.findings, *_bad_nodes(context, run, change)),
        overrides=tuple(overrides),
        exclude=tuple(exclude),
        script=change.script,
    )


def require_possible(context: Context, run: RunSummary, change: Change, *, unchecked: bool) -> bool:
    """Whether ``run`` with ``change``, which nothing stands in the way of, takes a job of its own; see ``resubmit``.

    Raises:
        RltuiError: A finding stands in the way, the cluster's own word too unless it is ``unchecked``.
    """
    is_here = context.cluster.profile.scheduler == "local"
    report = change.report
    submits = run.share is None or leaves_allocation(context, run)
    if report is not None and not is_here and submits and not unchecked:
        report = asked(context, report)
    if isinstance(change.layout, ScriptJob) and submits and not unchecked:
        ask_cluster(context, change.layout)
    if change.layout is None or (report is not None and not report.ok):
        assert report is not None
        raise RefusedError(report, context.name, change.words)
    if is_here and not isinstance(change.layout, ScriptJob):
        require_modules(change.layout)
    return submits


def resubmit(
    context: Context,
    run: RunSummary,
    overrides: Sequence[str] = (),
    exclude: Sequence[str] = (),
    *,
    script: str = "",
    cancel_first: bool = False,
    unchecked: bool = False,
    tell: Callable[[Finding], None] | None = None,
    hold_s: float = 0.0,
    by: str = "resubmit",
) -> Launched:
    """Start a new attempt of ``run`` with a change; its trainer goes on from the newest complete checkpoint.

    Args:
        context: The run's cluster.
        run: The run as it was seen: of two that resubmit the same attempt, one wins.
        overrides: Changes of the layout, ``key.path=value``.
        exclude: Nodes to keep away from, besides those that the layout excludes.
        script: An edited script in the place of the run's own; see ``changed``.
        cancel_first: End a live run first, instead of refusing it.
        unchecked: Do not ask the cluster first whether it could run this.
        tell: Is told first of nodes that are remembered as bad and may be used.
        hold_s: How long the scheduler holds it back; see ``Cluster.submit``.
        by: Who changes it, in a word: it is remembered of each setting.

    Raises:
        RltuiError: The run is alive, a finding stands in the way, or the submission failed.
        ClaimedError: Another rltui was faster.
    """
    change = changed(context, run, overrides, exclude, script)
    submits = require_possible(context, run, change, unchecked=unchecked)
    assert change.layout is not None
    if tell is not None:
        for finding in _bad_nodes(context, run, change):
            tell(finding)
    share = share_of(context, run.share.job_id, change.layout, run.run_id) if run.share and not submits else None
    if run.is_live:
        if cancel_first:
            context.replacements.note(run, overrides, exclude)
            keep_through(context, run)
        run = _ended(context, run, cancel_first=cancel_first)
    settle(context, run)
    launched = submit_next(context, run, change, action="resubmit", hold_s=hold_s, by=by, share=share)
    return structs.replace(launched, start=change.start)


def submit_next(
    context: Context,
    run: RunSummary,
    change: Change,
    *,
    action: str = "submit",
    after_job: str = "",
    hold_s: float = 0.0,
    by: str = "resubmit",
    share: AllocationShare | None = None,
) -> Launched:
    """Submit the next attempt of ``run``; see ``submit_attempt``."""
    assert change.layout is not None
    number = next_number(run)
    known = read_origins(context.cluster.client, attempt_path(run))
    if known or change.text:
        own = [word for word in change.words if not change.text or word.partition(".")[0] in SECTIONS]
        known = changed_origins(known, own, f"{by}, attempt {number}")
    return submit_attempt(
        context,
        run.run_id,
        number,
        change.layout,
        text=change.text,
        action=action,
        after_job=after_job,
        hold_s=hold_s,
        before=attempt_path(run),
        origins=known,
        share=share,
    )


def leaves_allocation(context: Context, run: RunSummary) -> bool:
    """Whether ``run`` had a share of an allocation that is not there any more, so that it gets a job of its own."""
    return run.share is not None and not is_there(context, run.share.job_id)


def place_words(context: Context, run: RunSummary) -> str:
    """Where the next attempt of a run in an allocation runs; empty of every other run."""
    if run.share is None:
        return ""
    job_id = run.share.job_id
    if leaves_allocation(context, run):
        return f"job {job_id}, the allocation that it ran in, has ended: this is submitted as a job of its own"
    return f"it runs in job {job_id} again, which is still there"


def _bad_nodes(context: Context, run: RunSummary, change: Change) -> tuple[Finding, ...]:
    """What is remembered of nodes that the next attempt may get."""
    return offers(context.cluster, change.layout, resubmit=run.run_id) if change.layout is not None else ()


def needs_consent(context: Context, run: RunSummary) -> bool:
    """Whether somebody must agree first: what is not over would be ended, a login node trained on, a job asked for."""
    risky = run.is_live or run.state == "unknown" or bool(here_instead_of_slurm(context.cluster.profile))
    return risky or leaves_allocation(context, run)


def changed(
    context: Context, run: RunSummary, overrides: Sequence[str], exclude: Sequence[str], edited_script: str = ""
) -> Change:
    """What the next attempt of ``run`` does with the change, checked; ``edited_script`` is a file of this machine.

    Raises:
        LayoutError: A word is no override.
        UsageError: It leaves no step to do, there is no script to edit, or its run is not over.
        RltuiError: The run is archived, or not the user's to change here.
    """
    context.require_own(run)
    _refuse_archived(run)
    path = attempt_path(run)
    script = read_script_job(context.cluster.client, path)
    if edited_script and run.is_live:  # what is to follow its end is written down as words alone
        raise UsageError("An edited script waits for the end of its run.", f"rltui cancel {run.run_id}")
    if script is not None:
        words = (*overrides, *([excluding(script.slurm.exclude, exclude)] if exclude else []))
        return _changed_script(context, path, script, words, edited_script)
    if edited_script:
        raise UsageError(f"{run.run_id} is a run of a layout, not of a script.", "key=value changes its layout.")
    text, name = read_layout(context.cluster.client, path), f"{path}/{rundir.LAYOUT}"
    loaded_before = load_text(text, name)
    before, words = loaded_before.layout, tuple(overrides)
    if exclude:
        words += (excluding(load_text(text, name, words).layout.slurm.exclude, exclude),)
    loaded = load_text(text, name, words)
    step = newest_checkpoint_step(context, run)
    _require_steps_left(before, loaded.layout, step)
    report = launchable(check_layout(loaded))
    new = _new_findings(check_layout(loaded_before).findings, report.findings)
    return Change(
        report=report,
        layout=loaded.layout,
        words=words,
        lines=tuple(change_lines(diff(before, loaded.layout))),
        findings=new,
        start=start_words(step),
    )


def _require_steps_left(before: Layout, after: Layout, step: int | None) -> None:
    """Refuse a change of ``train.steps`` that leaves nothing to do: the trainer would load the checkpoint and end."""
    if step is not None and after.train.steps <= step and after.train.steps != before.train.steps:
        raise UsageError(
            f"train.steps={after.train.steps}: the newest checkpoint is of step {step} already.",
            f"Give more than {step} steps, or launch a new run.",
        )


def _changed_script(context: Context, path: str, before: ScriptJob, overrides: Sequence[str], source: str) -> Change:
    """The script of the attempt at ``path`` with the change, and with the words by which it goes on."""
    if not before.script:
        raise RltuiError(
            "This run was adopted without its script, so rltui cannot start it again.",
            "`rltui launch --script run.sh` makes a run that can go on.",
        )
    from rltui.service.edited_script import Edited, edited, newer_words  # a list of runs can do without importers
    from rltui.service.script_asks import read_again

    text = context.cluster.client.read(f"{path}/{before.script}", 0, LARGEST).data
    edit = edited(before, text, source, context.cluster.profile) if source else Edited(before, text)
    wanted = changed_script(edit.job, overrides)
    reading = read_again(edit.text.decode("utf-8", "replace"), edit.job, wanted, overrides)
    after, start = resumed(reading.job, newest_checkpoint(context, edit.job))
    lines = [f"- {word}" for word in before.words if word not in after.words]
    lines += [f"+ {word}" for word in after.words if word not in before.words]
    sides = [flat({name: msgspec.to_builtins(getattr(job, name)) for name in SECTIONS}) for job in (before, after)]
    lines += change_lines(Difference(key, *values) for key, values in differing(sides))
    return Change(
        report=None,
        layout=after,
        words=tuple(overrides),
        lines=(*edit.lines, *lines, *reading.lines),
        findings=(*edit.findings, *reading.findings),
        start=start + newer_words(edit.job, edit.text),
        text=edit.text,
        script=source,
    )


def _new_findings(before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Finding, ...]:
    """What the change brings, and what stands in the way anyhow: the run has lived with the rest."""
    known = {(finding.code, finding.key, finding.message) for finding in before}
    return tuple(
        finding
        for finding in after
        if finding.severity == "error" or (finding.code, finding.key, finding.message) not in known
    )


def settle(context: Context, run: RunSummary) -> None:
    """Make sure that the attempt that ``run`` is at never runs again, and that its directory says so.

    Raises:
        RltuiError: It may be running.
        ClusterError: Nobody can tell.
    """
    if run.end is not None or not run.attempt:
        return
    client, path = context.cluster.client, attempt_path(run)
    if run.job is not None and run.job.has_ended:
        write_last_word(client, run, run.job)
        return
    uuid = read_uuid(client, path)
    reason = f"never started; attempt {next_number(run)} took its place"
    if settle_unstarted(client, path, uuid, "cancelled", reason):
        return
    if read_evidence(client, path, uuid).ended:
        return
    raise RltuiError(
        f"Attempt {run.attempt} of {run.run_id} has started, and nobody can tell whether it has ended.",
        f"`rltui cancel {run.run_id}` ends it.",
    )


def next_number(run: RunSummary) -> int:
    """Number of the attempt that a resubmission makes."""
    return max(run.last_attempt, run.attempt) + 1


def command(run: RunSummary, overrides: Sequence[str], exclude: Sequence[str], script: str = "") -> str:
    """The verb that does the same."""
    words = ["rltui", "resubmit", run.run_id, *overrides, *(["--script", script] if script else [])]
    words += [word for node in exclude for word in ("--exclude", node)]
    return shlex.join(words + (["--cancel"] if run.is_live else []))


def eligible_words(context: Context, layout: Work | None, exclude: Sequence[str]) -> str:
    """How many nodes are left to choose from; empty where nobody can tell."""
    if context.cluster.profile.scheduler == "local":
        return f"runs on this machine all the same, the only one: nothing keeps away from {', '.join(exclude)}"
    left = eligible_nodes(context.cluster, layout) if layout is not None else None
    if left is None:
        return f"keeps away from {', '.join(exclude)}"
    words = f"keeps away from {', '.join(exclude)}: {left.eligible} of {left.known} nodes of {left.partition} are left"
    if left.eligible < left.needed:
        words += f", {left.needed} are needed: it would never start"
    return words


def _ended(context: Context, run: RunSummary, *, cancel_first: bool) -> RunSummary:
    """``run`` once it has ended."""
    if not cancel_first:
        raise RltuiError(f"{run.run_id} is still {run.state}.", f"rltui cancel {run.run_id} ends it first.")
    cancel(context, run)
    deadline = time.monotonic() + ENDING_S
    while run.is_live:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{run.run_id} was told to end and is still {run.state} after {ENDING_S:.0f} s.",
                f"Nothing was submitted. `rltui resubmit {run.run_id}` once it has ended.",
            )
        time.sleep(LOOK_S)
        run = context.find(run.run_id)
    return run


def _refuse_archived(run: RunSummary) -> None:
    if run.archived is not None:
        raise RltuiError(f"{run.run_id} is archived.", f"`rltui archive --back {run.run_id}` brings it back first.")
