"""Hands-off mode switched on and off, from the shell and the cockpit."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import structs

from rltui.cluster.relay_types import RelayError
from rltui.errors import RltuiError, UsageError
from rltui.onnode import rundir
from rltui.onnode.hands_off import DECISION_S
from rltui.service.cockpit import ActionPreview
from rltui.service.context import Context
from rltui.service.hands_off_rules import Policy, Record, quiet_minutes, records_in
from rltui.watch.snapshots import RunSummary

_ENDED = "It has ended: until fix or resubmit starts it again, nothing happens"


def switch_on(context: Context, run: RunSummary, policy: Policy) -> str:
    """Let ``run`` go on by itself from now on; returns what that means, in a sentence.

    Raises:
        RltuiError: Nothing of rltui's runs in it, or its nodes cannot decide.
    """
    context.require_own(run)
    profile = context.cluster.profile
    _require_startable(run)
    require_sound(context, policy)
    _require_packages(context)
    way = {"host": "", "hosts": [], "user": "", "port": 0, "identity_file": "", "proxy_jump": [], "transport": "local"}
    near = structs.replace(profile, **way)
    told = {"schema": 1, "on": True, "since": time.time(), "policy": policy, "profile": near}
    context.journal.write("hands-off", "done", run=run.run_id, cluster=context.name, on=True)
    context.cluster.client.put(f"{run.path}/{rundir.HANDS_OFF}", msgspec.json.encode(told))
    ahead = ", its next job queued while one runs" if policy.queue_ahead else ""
    limits = f"in at most {policy.max_restarts} new attempts, {policy.max_without_progress} without a new checkpoint"
    later = "" if run.is_live else f" {_ENDED}."
    return f"{run.run_id} goes on by itself{ahead}, {limits}. rltui auto {run.run_id} --off ends that.{later}"


def switch_off(context: Context, run: RunSummary) -> str:
    """Let ``run`` be from now on; returns a sentence."""
    context.require_own(run)
    told = told_of(context, run)
    if not told.get("on"):
        return f"{run.run_id} is not in hands-off mode."
    context.journal.write("hands-off", "done", run=run.run_id, cluster=context.name, on=False)
    _write_off(context, f"{run.path}/{rundir.HANDS_OFF}", {**told, "on": False, "stopped": "switched off"})
    from rltui.service.actions import drop_waiting

    waiting = [*range(run.last_attempt, run.attempt, -1)] if told.get("policy", {}).get("queue_ahead") else []
    held = _held_until(context, run)
    waiting += [run.attempt] * (held is not None)
    drop_waiting(context, run, waiting, "cancelled", "not needed: hands-off mode was switched off")
    left = f"{run.run_id} is left alone from now on: what runs goes on, and nothing is started again."
    return left if held is None else f"{left} Attempt {run.attempt}, which was to wait until {held}, is cancelled."


def _write_off(context: Context, path: str, told: dict[str, Any]) -> None:
    """Say in ``hands-off.json`` that the mode is off, or take the file away: a full disk leaves room for that only."""
    client = context.cluster.client
    try:
        client.put(path, msgspec.json.encode(told))
    except RelayError as error:
        if error.kind != "full":
            raise
        done = client.run(["rm", "-f", "--", path], timeout_s=30)
        if done.rc:
            raise RltuiError(f"{path} can neither be written nor removed: {done.err.strip()[-200:]}") from error


def keep_through(context: Context, run: RunSummary) -> None:
    """Let hands-off mode stay on through the end of ``run``'s attempt, which is ended so that another one goes on."""
    told = told_of(context, run)
    if told.get("on"):
        told["replaced"] = run.attempt
        context.cluster.client.put(f"{run.path}/{rundir.HANDS_OFF}", msgspec.json.encode(told))


def waits_until(records: Sequence[Record], run: RunSummary, now: float) -> str | None:
    """Until when the scheduler holds back the attempt that ``run`` waits for, the node's time of day; None: not."""
    if not records or run.state != "queued":
        return None
    last = records[-1]
    is_held = last.decision == "restart" and last.next_attempt == run.attempt and last.time + last.hold_s > now
    return last.until if is_held else None


def _held_until(context: Context, run: RunSummary) -> str | None:
    return waits_until(records_of(context, run), run, now_of(context))


def now_of(context: Context) -> float:
    """Epoch seconds by the clock of the run's cluster, as its decisions and ends are told."""
    return context.cluster.client.hello().time


def preview_switch(context: Context, run: RunSummary) -> ActionPreview:
    """What switching hands-off mode of ``run`` to the other way would do.

    Raises:
        RltuiError: It cannot go on by itself.
    """
    context.require_own(run)
    on, policy = run.hands_off != "on", Policy()
    if on:
        _require_startable(run)
        lines: tuple[str, ...] = (
            *(() if run.is_live else (_ENDED,)),
            "after a fault of node, GPU, network or engine, a standstill, a time limit or a preemption, "
            "a new attempt goes on from the newest checkpoint",
            "an error of the run itself stops it, but for memory: there one change that is known to fit is tried once; "
            "a newest checkpoint that is damaged is set aside where the one before is whole",
            f"at most {policy.max_restarts} new attempts, {policy.max_without_progress} without a new checkpoint, "
            "and never twice for the same cause at the same step",
            "the job's own process decides, also when this cockpit is closed; every decision is an event of the run",
        )
    else:
        held = _held_until(context, run)
        dropped = () if held is None else (f"attempt {run.attempt}, which was to wait until {held}, is cancelled",)
        lines = ("what runs goes on, and nothing is started again when it ends", *dropped)
    return ActionPreview(
        run=run.identity,
        title=f"Let {run.run_id} go on by itself?" if on else f"End hands-off mode of {run.run_id}?",
        consequences=lines,
        commands=(f"rltui auto {run.run_id}{'' if on else ' --off'}",),
        switches_on=on,
    )


def told_of(context: Context, run: RunSummary) -> dict[str, Any]:
    """What ``hands-off.json`` says; empty where hands-off mode was never on, or the file is damaged."""
    found = context.cluster.client.collect(run.path, [rundir.HANDS_OFF], 1 << 16)
    try:
        told = json.loads(found[0].text or "{}") if found else {}
    except ValueError:
        return {}  # damaged, which the node takes for off too
    return told if isinstance(told, dict) else {}


def records_of(context: Context, run: RunSummary) -> list[Record]:
    """The decisions that were taken for ``run``, oldest first."""
    found = context.cluster.client.collect(run.path, [rundir.DECISIONS], 1 << 20)
    return list(records_in((found[0].text or "").encode()) if found else ())


def is_over(context: Context, run: RunSummary) -> bool:
    """Whether ``run`` has ended, and hands-off mode has not yet to decide what comes after it."""
    return not run.is_live and run.state != "unknown" and not _is_undecided(context, run)


def _is_undecided(context: Context, run: RunSummary) -> bool:
    if run.state in ("finished", "cancelled") or run.end is None or now_of(context) - run.end.at > DECISION_S:
        return False
    return bool(told_of(context, run).get("on"))


def _require_startable(run: RunSummary) -> None:
    """Refuse a run that nothing of rltui's could start again.

    Raises:
        RltuiError: It is adopted, in an allocation, or finished.
    """
    if run.is_adopted:
        raise RltuiError(f"{run.run_id} is adopted: nothing of rltui runs in it that could start it again.")
    if run.share is not None:
        words = f"{run.run_id} runs in the allocation {run.share.job_id}, which ends with you"
        raise RltuiError(f"{words}: it cannot go on by itself.", "Launch it as a job of its own for that.")
    if run.state == "finished":
        raise RltuiError(f"{run.run_id} is finished.")


NEEDED = ("msgspec", "yaml", "jinja2")
"""Packages without which a node can neither read a layout nor write a job script."""


def _require_packages(context: Context) -> None:
    argv = [context.cluster.python, "-c", f"import {', '.join(NEEDED)}"]
    answer = context.cluster.client.run(argv, timeout_s=30)
    if answer.rc:
        raise RltuiError(
            f"{context.cluster.python} lacks what decides on the node: {answer.err.strip().splitlines()[-1:]}.",
            f"pip install {' '.join(NEEDED)} into it (yaml is PyYAML), or name another `python:` in the profile.",
        )


def require_sound(context: Context, policy: Policy) -> None:
    """Refuse a policy that cannot be kept on the cluster.

    Raises:
        RltuiError: The quiet hours are none.
        UsageError: A job is to be queued ahead where there is no queue, or though nobody could keep it from starting in
            the quiet hours.
    """
    if policy.quiet_hours:
        _require_hours(policy.quiet_hours)
    if not policy.queue_ahead:
        return
    if context.cluster.profile.scheduler != "slurm":
        raise UsageError(
            f"{context.name} has no Slurm, so no time limit to go on after.", "--auto goes on after faults."
        )
    if policy.quiet_hours:
        raise UsageError(
            "A job that waits in the queue starts when Slurm says so, in quiet_hours too.", "Leave one out."
        )


def _require_hours(words: str) -> None:
    try:
        start, end = quiet_minutes(words)
    except ValueError:
        raise RltuiError(f"quiet_hours={words!r} are no hours.", "Such as 22:00-07:00.") from None
    if start == end:
        words = f"quiet_hours={words!r} begin and end at one time, so they hold nothing."
        raise RltuiError(words, "Such as 22:00-07:00; max_restarts=0 has nothing started again.")
