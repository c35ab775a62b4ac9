"""Hands-off mode: an attempt that ended is started again by itself, within guard rails, and stops when in doubt.

``decide`` is a pure function from what is known to one decision. The program at the end of this file takes it: the
attempt's own process starts it as its last deed (``onnode/hands_off.py``), on the node, with the files at hand.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct, structs

from rltui.errors import ClusterError, RltuiError
from rltui.onnode import progress, rundir
from rltui.service.cockpit import ActionPreview
from rltui.watch.lines import decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rltui.diagnose.cause import Recovery
    from rltui.service.context import Context
    from rltui.service.one_fix import CauseFix
    from rltui.watch.snapshots import RunSummary

HOLDS_S = (0.0, 0.0, 300.0, 1200.0)
"""How long a new attempt waits, by how many attempts in a row brought no new checkpoint: what fails again and again
gets rarer (5 and 20 minutes)."""

ENDED_S = 60.0
"""How long to wait for the scheduler to agree that the attempt is over."""

SUBMIT_TRIES_S = (0.0, 10.0, 30.0)
"""A scheduler that does not answer is asked again after these seconds; what is unknown is never asked twice."""


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Guard rails of a run."""

    max_restarts: int = 20
    max_without_progress: int = 3
    """Attempts in a row that bring no new checkpoint."""
    max_gpu_hours: float = 0.0
    """Of all attempts together; 0: no limit."""
    max_excluded: float = 0.1
    """Of the partition's nodes; one may always be left out."""
    quiet_hours: str = ""
    """``22:00-07:00``: in these hours nothing is started; it waits for their end."""


class Record(Struct, frozen=True, kw_only=True):
    """A decision that was taken, a line of ``hands-off.jsonl``."""

    time: float
    attempt: int
    decision: Literal["restart", "stop"]
    cause: str
    why: str
    step: int = 0
    checkpoint_step: int | None = None
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hold_s: float = 0.0
    next_attempt: int = 0


class Situation(Struct, frozen=True, kw_only=True):
    """What is known when an attempt has ended."""

    now: float
    attempt: int
    outcome: str
    """One of ``rundir.OUTCOMES``."""
    reason: str = ""
    causes: tuple[CauseFix, ...] = ()
    step: int = 0
    checkpoint_step: int | None = None
    can_resume: bool = True
    gpu_hours: float = 0.0
    excluded: int = 0
    """Nodes that are left out already."""
    known_nodes: int = 0
    """Of the partition; 0: nobody knows."""
    spare_nodes: int | None = None
    """Usable ones beyond those that the run needs; None: nobody knows."""
    is_proven: bool = True
    """Whether an estimate says that the changed layout fits; True where nothing is changed."""


def decide(policy: Policy, past: Sequence[Record], now: Situation) -> Record:
    """Whether the run goes on, with what, when, and why; in doubt it does not."""
    stop = _why_not(policy, past, now)
    cause = now.causes[0].cause if now.causes else now.outcome
    record = Record(
        time=now.now,
        attempt=now.attempt,
        decision="stop" if stop else "restart",
        cause=cause,
        why=stop or "; ".join(one.sentence for one in now.causes) or now.reason,
        step=now.step,
        checkpoint_step=now.checkpoint_step,
    )
    if stop:
        return record
    in_vain = _without_progress(past, now)
    hold_s = HOLDS_S[min(in_vain, len(HOLDS_S) - 1)] + quiet_s(policy.quiet_hours, now.now)
    return structs.replace(
        record,
        overrides=tuple(word for one in now.causes for word in one.overrides),
        exclude=tuple(dict.fromkeys(node for one in now.causes for node in one.exclude)),
        hold_s=hold_s,
        next_attempt=now.attempt + 1,
    )


def _why_not(policy: Policy, past: Sequence[Record], now: Situation) -> str:
    """Why the run is left as it is; empty: it goes on."""
    restarts = [one for one in past if one.decision == "restart"]
    unmended = [one for one in now.causes if not one.helps]
    if now.outcome == "finished":
        return "all steps are done"
    if not now.causes:
        return now.reason if now.outcome == "cancelled" else f"no known cause, so nobody knows what helps: {now.reason}"
    if unmended:
        return f"{unmended[0].cause} needs a person: {unmended[0].sentence}"
    if not now.can_resume:
        return "the training cannot go on from a checkpoint"
    return _repeats(restarts, now) or _limits(policy, past, restarts, now)


def _repeats(restarts: Sequence[Record], now: Situation) -> str:
    cause = now.causes[0]
    same = [one for one in restarts if one.cause == cause.cause]
    if cause.recovery == "change" and same:
        return f"{cause.cause} again, after {' '.join(same[-1].overrides)}"
    if not now.is_proven:
        return f"no estimate says that {' '.join(cause.overrides)} is enough"
    if cause.cause not in PASSING and same and same[-1].step == now.step:
        return f"{cause.cause} a second time at step {now.step}"
    return ""


KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a trainer, or of a shell that waited for one, that was killed without a word."""

PASSING = frozenset({"slurm_time_limit", "slurm_preempted", "slurm_node_fail"})
"""Ends that say nothing of the run, wherever they come."""


def _limits(policy: Policy, past: Sequence[Record], restarts: Sequence[Record], now: Situation) -> str:
    if len(restarts) >= policy.max_restarts:
        return f"it was started again {len(restarts)} times already (max_restarts)"
    in_vain = _without_progress(past, now)
    if in_vain >= policy.max_without_progress:
        return f"{in_vain + 1} attempts in a row brought no new checkpoint (max_without_progress)"
    if policy.max_gpu_hours and now.gpu_hours >= policy.max_gpu_hours:
        return f"{now.gpu_hours:.1f} GPU-hours are used (max_gpu_hours={policy.max_gpu_hours:g})"
    new = {node for one in now.causes for node in one.exclude}
    allowed = max(1, int(policy.max_excluded * now.known_nodes))
    if new and now.excluded + len(new) > allowed:
        return f"{now.excluded} nodes are left out already, and {allowed} may be (max_excluded)"
    if new and now.spare_nodes is not None and len(new) > now.spare_nodes:
        return f"without {', '.join(sorted(new))} too few nodes are left"
    return ""


def _without_progress(past: Sequence[Record], now: Situation) -> int:
    """How many restarts before brought no checkpoint newer than the one they began from, this attempt included."""
    count = 0
    newest = now.checkpoint_step
    for one in reversed([one for one in past if one.decision == "restart"]):
        if one.checkpoint_step != newest or one.cause in PASSING:
            break
        count += 1
    return count


def quiet_s(hours: str, now: float) -> float:
    """Seconds until the quiet hours end in which ``now`` lies, by the node's own clock; 0 outside of them.

    Args:
        hours: ``22:00-07:00``, or nothing.
        now: Epoch seconds.
    """
    if not hours:
        return 0.0
    start, end = (_minutes(word) for word in hours.split("-"))
    local = datetime.datetime.fromtimestamp(now)
    at = local.hour * 60 + local.minute + local.second / 60
    length, since = (end - start) % 1440, (at - start) % 1440
    return (length - since) * 60 if since < length else 0.0


def _minutes(word: str) -> int:
    hour, _, minute = word.strip().partition(":")
    return int(hour) * 60 + int(minute or 0)


# what the decision rests on


def situation_of(context: Context, run: RunSummary) -> Situation:
    """What is known of the end of ``run``'s newest attempt.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    from rltui.runs.script_job import read_script_job
    from rltui.service.describe import attempt_path, newest_checkpoint_step

    attempt = Path(attempt_path(run))
    end = rundir.read_json(str(attempt / rundir.END)) or {}
    script = read_script_job(context.cluster.client, str(attempt))
    causes, proven = causes_of(context, run, end)
    excluded, known, spare = _nodes(context, run)
    return Situation(
        now=time.time(),
        attempt=run.attempt,
        outcome=str(end.get("outcome") or "lost"),
        reason=str(end.get("reason") or ""),
        causes=causes,
        step=run.stage.step or 0,
        checkpoint_step=newest_checkpoint_step(context, run),
        can_resume=script is None or script.dialect.resume.possible,
        gpu_hours=gpu_hours_of(Path(run.path), run.nodes * run.gpus_per_node),
        excluded=excluded,
        known_nodes=known,
        spare_nodes=spare,
        is_proven=proven,
    )


def causes_of(context: Context, run: RunSummary, end: dict[str, Any]) -> tuple[tuple[CauseFix, ...], bool]:
    """Why the attempt ended and what helps; and whether a change of the layout is known to fit."""
    from rltui.service.one_fix import CauseFix, compose_causes

    def once(cause: str, sentence: str, recovery: Recovery = "restart") -> tuple[tuple[CauseFix, ...], bool]:
        return (CauseFix(cause=cause, recovery=recovery, sentence=sentence),), True

    outcome = end.get("outcome")
    if outcome == "time-limit":
        return once("slurm_time_limit", "goes on in a new job, as the time limit came first")
    if end.get("slurm") == "PREEMPTION":
        return once("slurm_preempted", "goes on in a new job, as Slurm took this one's nodes for another")
    if outcome in ("finished", "cancelled"):
        return (), True
    if end.get("hung"):
        return once("run_stalled", f"a new attempt, as this one stood still: {end['hung']}")
    causes = compose_causes(context, run)
    if not causes and outcome == "lost":
        return once("lost", "a new attempt, as this one's processes vanished without a word")
    if not causes and end.get("exit_code") in KILLED:
        return once("killed", "a new attempt, as somebody killed this one's trainer from outside")
    return causes, all(one.recovery != "change" or one.is_proven for one in causes)


def _nodes(context: Context, run: RunSummary) -> tuple[int, int, int | None]:
    """How many nodes are left out, how many the partition has, and how many it could lose."""
    from rltui.service.resubmit import changed

    layout = changed(context, run, (), ()).layout
    if layout is None or context.cluster.profile.scheduler == "local":
        return 0, 0, None
    from rltui.service.eligible import eligible_nodes

    left = eligible_nodes(context, layout)
    if left is None:
        return len(layout.slurm.exclude), 0, None
    return len(layout.slurm.exclude), left.known, left.eligible - layout.hardware.nodes


def gpu_hours_of(run: Path, gpus: int) -> float:
    """GPU-hours of all attempts that have ended, from when each got its nodes; CPU runs have none."""
    total = 0.0
    for attempt in sorted((run / rundir.ATTEMPTS).glob("[0-9]*")):
        stage = rundir.read_json(str(attempt / rundir.STAGE)) or {}
        end = rundir.read_json(str(attempt / rundir.END)) or {}
        began = [one["at"] for one in stage.get("history", []) if one.get("stage") not in ("submitted", "queued")]
        if began and end.get("at"):
            total += max(0.0, float(end["at"]) - float(began[0]))
    return total / 3600 * gpus


# on and off


def switch_on(context: Context, run: RunSummary, policy: Policy) -> str:
    """Let ``run`` go on by itself from now on; returns what that means, in a sentence.

    Raises:
        RltuiError: Nothing of rltui's runs in it, or its nodes cannot decide.
        ClusterError: The cluster cannot be reached.
    """
    context.require_own(run)
    profile = context.cluster.profile
    if run.is_adopted:
        raise RltuiError(f"{run.run_id} is adopted: nothing of rltui runs in it that could start it again.")
    if profile.scheduler == "ray":
        raise RltuiError("Runs on a standing Ray cluster cannot go on by themselves yet.", "rltui fix does it by hand.")
    if run.state == "finished":
        raise RltuiError(f"{run.run_id} is finished.")
    if policy.quiet_hours:
        _require_hours(policy.quiet_hours)
    _require_packages(context)
    near = structs.replace(profile, host="", user="", port=0, identity_file="", proxy_jump=[], transport="local")
    told = {"schema": 1, "on": True, "since": time.time(), "policy": policy, "profile": near}
    context.journal.write("hands-off", "done", run=run.run_id, cluster=context.name, on=True)
    context.cluster.client.put(f"{run.path}/{rundir.HANDS_OFF}", msgspec.json.encode(told))
    limits = f"at most {policy.max_restarts} times, {policy.max_without_progress} without a new checkpoint"
    later = "" if run.is_live else f" It has ended: rltui fix {run.run_id} starts it."
    return f"{run.run_id} goes on by itself, {limits}. rltui auto {run.run_id} --off ends that.{later}"


def switch_off(context: Context, run: RunSummary) -> str:
    """Let ``run`` be from now on; returns a sentence.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    context.require_own(run)
    told = told_of(context, run)
    if not told.get("on"):
        return f"{run.run_id} is not in hands-off mode."
    context.journal.write("hands-off", "done", run=run.run_id, cluster=context.name, on=False)
    told = {**told, "on": False, "stopped": "switched off"}
    context.cluster.client.put(f"{run.path}/{rundir.HANDS_OFF}", msgspec.json.encode(told))
    return f"{run.run_id} is left alone from now on: what runs goes on, and nothing is started again."


def preview_switch(context: Context, run: RunSummary) -> ActionPreview:
    """What switching hands-off mode of ``run`` to the other way would do.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    context.require_own(run)
    on, policy = run.hands_off != "on", Policy()
    if on:
        lines: tuple[str, ...] = (
            "after a fault of node, GPU, network or engine, a standstill, a time limit or a preemption, "
            "a new attempt goes on from the newest checkpoint",
            "an error of the run itself stops it, but for memory: there one change that is known to fit is tried once",
            f"at most {policy.max_restarts} times, {policy.max_without_progress} without a new checkpoint, "
            "and never twice for the same cause at the same step",
            "the job's own process decides, also when this cockpit is closed; every decision is an event of the run",
        )
    else:
        lines = ("what runs goes on, and nothing is started again when it ends",)
    return ActionPreview(
        run_id=run.run_id,
        title=f"Let {run.run_id} go on by itself?" if on else f"End hands-off mode of {run.run_id}?",
        consequences=lines,
        commands=(f"rltui auto {run.run_id}{'' if on else ' --off'}",),
        switches_on=on,
    )


def told_of(context: Context, run: RunSummary) -> dict[str, Any]:
    """What ``hands-off.json`` says; empty where hands-off mode was never on.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    found = context.cluster.client.collect(run.path, [rundir.HANDS_OFF], 1 << 16)
    return dict(json.loads(found[0].text or "{}")) if found else {}


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


def _require_hours(words: str) -> None:
    try:
        quiet_s(words, 0.0)
    except ValueError:
        raise RltuiError(f"quiet_hours={words!r} are no hours.", "Such as 22:00-07:00.") from None


# taking it


def read_records(run: Path) -> tuple[Record, ...]:
    """The decisions that were taken for the run in the directory ``run``, oldest first; torn lines are left out."""
    try:
        lines = (run / rundir.DECISIONS).read_bytes().splitlines()
    except OSError:
        return ()
    return tuple(record for line in lines if (record := decode(line, Record)) is not None)


def policy_of(told: dict[str, Any]) -> Policy:
    """The policy in ``hands-off.json``."""
    return msgspec.convert(told.get("policy", {}), Policy)


def take(context: Context, run_path: Path) -> Record | None:
    """Decide how the run goes on whose newest attempt has ended, and do it; None where nothing is to be decided.

    Raises:
        RltuiError: It could not be submitted.
    """
    told = rundir.read_json(str(run_path / rundir.HANDS_OFF)) or {}
    run = _once_ended(context, run_path.name)
    if not told.get("on") or run is None or run.last_attempt > run.attempt:
        return None  # switched off, alive, or a chain's next job waits already
    situation = situation_of(context, run)
    record = decide(policy_of(told), read_records(run_path), situation)
    attempt = rundir.attempt_folder(str(run_path), run.attempt)
    if record.decision == "stop":
        _note(run_path, attempt, record)
        if situation.outcome != "finished":
            rundir.write_json(str(run_path / rundir.HANDS_OFF), {**told, "on": False, "stopped": record.why})
        return record
    _submit(context, run, record)
    _note(run_path, attempt, record)
    return record


def _once_ended(context: Context, run_id: str) -> RunSummary | None:
    """The run as soon as its attempt counts as over: its end is written, and the process that wrote it goes."""
    deadline = time.monotonic() + ENDED_S
    while True:
        run = context.find(run_id)
        if run.end is not None or not run.is_live:
            return run
        if time.monotonic() > deadline:
            return None
        time.sleep(0.5)


def _submit(context: Context, run: RunSummary, record: Record) -> None:
    from rltui.cluster.cluster import SubmitUnknownError
    from rltui.service.resubmit import resubmit

    hold_s = record.hold_s * progress.scale()
    if context.cluster.profile.scheduler == "local" and hold_s:
        time.sleep(hold_s)
    for number, pause_s in enumerate(SUBMIT_TRIES_S, start=1):
        time.sleep(pause_s)
        try:
            launched = resubmit(context, run, record.overrides, record.exclude, unchecked=True)
            break
        except SubmitUnknownError:
            raise
        except ClusterError:
            if number == len(SUBMIT_TRIES_S):
                raise
    if context.cluster.profile.scheduler == "slurm" and hold_s:
        context.cluster.client.run(
            ["scontrol", "update", f"JobId={launched.job_id}", f"StartTime=now+{hold_s:.0f}"], timeout_s=30
        )


def _note(run_path: Path, attempt: str, record: Record) -> None:
    """Write a decision where people and programs look: the run's own list, and the attempt's events."""
    rundir.append_line(str(run_path / rundir.DECISIONS), msgspec.to_builtins(record))
    words = f"attempt {record.next_attempt}" if record.decision == "restart" else "stopped"
    rundir.log_event(attempt, "hands-off", f"{words}: {record.cause}: {record.why}")


def _context(told: dict[str, Any]) -> Context:
    """The run's cluster as its own nodes see it: without a way there."""
    from rltui.cluster.open_cluster import cluster_of
    from rltui.cluster.profile import LOCAL, Profile
    from rltui.service.context import Context

    profile = msgspec.convert(told["profile"], Profile)
    if profile.name == LOCAL:
        return Context()
    return Context(profile.name, cluster=cluster_of(profile))


def main(argv: Sequence[str]) -> int:
    """Entry point: ``python -m rltui.service.hands_off ATTEMPT``, on a node, after the attempt's end."""
    attempt = Path(argv[0]).absolute()
    run_path = attempt.parent.parent
    told = rundir.read_json(str(run_path / rundir.HANDS_OFF)) or {}
    os.umask(0o077)
    try:
        context = _context(told)
        try:
            record = take(context, run_path)
        finally:
            context.close()
    except RltuiError as error:
        rundir.log_event(str(attempt), "warning", f"hands-off: not started again: {error.message}")
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        return 1
    sys.stderr.write(json.dumps(msgspec.to_builtins(record)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
