"""Hands-off mode: what is known of an attempt's end, the decision, and the new attempt.

The attempt's own process starts this program as its last deed (``onnode/hands_off.py``), on the node, with the files at
hand; the rules are in ``hands_off_rules.py``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import structs

from rltui.cluster.cluster import SubmitUnknownError
from rltui.cluster.open_cluster import cluster_of
from rltui.cluster.profile import LOCAL, Profile
from rltui.errors import ClusterError, RltuiError
from rltui.onnode import progress, queue_ahead, rundir
from rltui.onnode.tell_once import tell_of
from rltui.runs.script_job import read_script_job
from rltui.service.attempts import at_attempt
from rltui.service.bad_nodes import remembered as remembered_nodes
from rltui.service.context import Context
from rltui.service.damaged_checkpoints import set_aside
from rltui.service.describe import attempt_path, newest_checkpoint_step
from rltui.service.hands_off_rules import CauseFix, Record, Situation, decide, policy_of, read_records
from rltui.watch.lines import decode
from rltui.watch.run_facts import JobFile

if TYPE_CHECKING:
    from rltui.diagnose.cause import Recovery
    from rltui.service.submit import Launched
    from rltui.watch.snapshots import RunSummary

ENDED_S = 60.0
"""How long to wait for the scheduler to agree that the attempt is over."""

SUBMIT_TRIES_S = (0.0, 10.0, 30.0)
"""A scheduler that does not answer is asked again after these seconds; what is unknown is never asked twice."""

LOOK_S = 5.0
"""How often what waits looks whether it is still wanted."""


def situation_of(context: Context, run: RunSummary, end: dict[str, Any] | None = None) -> Situation:
    """What is known of the end of ``run``'s newest attempt.

    Args:
        context: The run's cluster.
        run: The run.
        end: How it will end, where it has not yet; None: as ``end.json`` says.
    """
    attempt = Path(attempt_path(run))
    end = end or rundir.read_json(str(attempt / rundir.END)) or {}
    script = read_script_job(context.cluster.client, str(attempt))
    causes, proven = causes_of(context, run, end)
    excluded, known, spare = _nodes(context, run)
    remembered = remembered_nodes(context.cluster.client, context.cluster.run_root)
    saved = newest_checkpoint_step(context, run)
    if context.cluster.profile.scheduler == "ray":
        causes, remembered = tuple(map(where_ray_decides, causes)), ()
    return Situation(
        now=time.time(),
        attempt=run.attempt,
        outcome=str(end.get("outcome") or "lost"),
        reason=str(end.get("reason") or ""),
        causes=causes,
        step=(run.stage.step if run.stage.step is not None else saved) or 0,  # it would have begun there
        checkpoint_step=saved,
        can_resume=script is None or script.dialect.resume.possible,
        gpu_hours=gpu_hours_of(Path(run.path), run.num_gpus),
        excluded=len(excluded),
        remembered=tuple(bad.node for bad in remembered if bad.node not in excluded),
        known_nodes=known,
        spare_nodes=spare,
        is_proven=proven,
    )


def causes_of(context: Context, run: RunSummary, end: dict[str, Any]) -> tuple[tuple[CauseFix, ...], bool]:
    """Why the attempt ended and what helps; and whether a change of the layout is known to fit."""
    from rltui.diagnose.run_words import KILLED
    from rltui.service.one_fix import compose_causes

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
    # an exception of no known kind ends a program by its own exit: it neither kills nor loses one
    is_open = all(one.cause == "program_failed" for one in causes)
    if is_open and outcome == "lost":
        return once("lost", "a new attempt, as this one's processes vanished without a word")
    if is_open and end.get("exit_code") in KILLED:
        return once("killed", "a new attempt, as somebody killed this one's trainer from outside")
    return causes, all(one.recovery != "change" or one.is_proven for one in causes)


def where_ray_decides(one: CauseFix) -> CauseFix:
    """What helps on a standing Ray: nothing keeps a run of it away from one of its nodes."""
    if not one.exclude:
        return one
    words = f"{one.sentence}: but Ray, not rltui, chooses the nodes; take {', '.join(one.exclude)} out of it"
    return structs.replace(one, recovery="person", exclude=(), sentence=words)


def _nodes(context: Context, run: RunSummary) -> tuple[tuple[str, ...], int, int | None]:
    """Which nodes are left out, how many the partition has, and how many it could lose."""
    from rltui.service.resubmit import changed

    layout = changed(context, run, (), ()).layout
    if layout is None or context.cluster.profile.scheduler != "slurm":
        return (), 0, None
    from rltui.service.eligible import eligible_nodes

    left = eligible_nodes(context.cluster, layout)
    if left is None:
        return tuple(layout.slurm.exclude), 0, None
    return tuple(layout.slurm.exclude), left.known, left.eligible - left.needed


def gpu_hours_of(run: Path, gpus: int) -> float:
    """GPU-hours (on CPUs, slot-hours) of all attempts that have ended, from when each got its nodes.

    Args:
        run: The run directory.
        gpus: Those of an attempt that does not say how many it has.
    """
    gpu_seconds = 0.0
    for attempt in sorted((run / rundir.ATTEMPTS).glob("[0-9]*")):
        stage = rundir.read_json(str(attempt / rundir.STAGE)) or {}
        end = rundir.read_json(str(attempt / rundir.END)) or {}
        began = [one["at"] for one in stage.get("history", []) if one.get("stage") not in ("submitted", "queued")]
        if began and end.get("at"):
            gpu_seconds += max(0.0, float(end["at"]) - float(began[0])) * (_gpus_held(attempt) or gpus)
    return gpu_seconds / 3600


def _gpus_held(attempt: Path) -> int:
    """GPUs of all nodes of one attempt, which a change of the layout makes others than the next one's; 0: unknown."""
    told = decode(rundir.read_tail(str(attempt / rundir.JOB)), JobFile)
    return told.held.num_gpus if told is not None and told.held is not None else 0


def take(context: Context, attempt: Path) -> Record | None:
    """Decide how a run goes on whose attempt has ended, and do it; None where nothing is to be decided.

    Raises:
        RltuiError: It could not be submitted.
    """
    run_path = attempt.parent.parent
    told = rundir.read_json(str(run_path / rundir.HANDS_OFF)) or {}
    (policy, refused), ahead = policy_of(told), queue_ahead.waiting(str(run_path))
    if not told.get("on") or (ahead and not policy.queue_ahead):
        return None  # switched off, or a chain's next job waits
    run = _once_ended(context, attempt)
    if run is None or (run.last_attempt > run.attempt and not ahead):
        return None  # alive, or somebody was faster
    situation = situation_of(context, run)
    if situation.outcome == "cancelled" and told.get("replaced") == run.attempt:
        return None  # whoever ended it starts the next one
    record = decide(policy, read_records(run_path), situation, refused)
    if ahead:
        record = _with_what_waits(context, run, record, ahead, situation.outcome)
    changes = {"overrides": list(record.overrides), "exclude": list(record.exclude)}
    about = {"run": run.run_id, "attempt": record.attempt, "cluster": context.name, **changes}
    context.journal.write("hands-off", "done", **about, reason=record.sentence)
    if record.decision == "stop":
        try:
            if situation.outcome != "finished":  # first: who is told of it may switch it on again at once
                rundir.write_json(str(run_path / rundir.HANDS_OFF), {**told, "on": False, "stopped": record.why})
        finally:
            _note(run_path, str(attempt), record, situation.outcome)
        return record
    if record.set_aside:
        set_aside(context, run, record.set_aside)
    if record.hold_s and context.cluster.profile.scheduler != "slurm":
        _note(run_path, str(attempt), structs.replace(record, decision="wait"), situation.outcome)
    if record.next_attempt not in ahead and not _submit(context, run, record):
        return None
    _note(run_path, str(attempt), record, situation.outcome)
    return record


def _with_what_waits(context: Context, run: RunSummary, record: Record, ahead: Sequence[int], outcome: str) -> Record:
    """``record`` where a job waits already: that one goes on, or is cancelled as nothing is to, or something else."""
    from rltui.service.actions import drop_waiting
    from rltui.service.resubmit import next_number

    is_same = not (record.overrides or record.exclude or record.hold_s)
    if record.decision == "restart" and is_same:
        return structs.replace(record, next_attempt=ahead[0])
    drop_waiting(context, run, ahead, outcome, f"not needed: {record.why}")
    return structs.replace(record, next_attempt=next_number(run) if record.decision == "restart" else 0)


def submit_ahead(context: Context, attempt: Path) -> Launched | None:
    """Queue the next job of a run behind the one that runs; None where its guard rails would not let that one start.

    Raises:
        RltuiError: It could not be submitted.
    """
    from rltui.service.resubmit import changed, submit_next

    run_path = attempt.parent.parent
    told = rundir.read_json(str(run_path / rundir.HANDS_OFF)) or {}
    (policy, refused), run = policy_of(told), context.find(run_path.name)
    is_mine = run.is_live and run.attempt == int(attempt.name)
    if not told.get("on") or not policy.queue_ahead or not is_mine or queue_ahead.has_next(str(attempt)):
        return None
    situation = situation_of(context, run, {"outcome": "time-limit"})
    decided = decide(policy, read_records(run_path), situation, refused)
    if decided.decision == "stop":
        rundir.log_event(str(attempt), "hands-off", f"no job is queued behind this one: {decided.why}")
        return None
    launched = submit_next(context, run, changed(context, run, (), ()), after_job=run.job_id)
    words = f"attempt {launched.attempt}, job {launched.job_id}, is queued behind this one"
    rundir.log_event(str(attempt), "hands-off", words)
    return launched


def _once_ended(context: Context, attempt: Path) -> RunSummary | None:
    """The run as soon as its attempt counts as over: its end is written, and the process that wrote it goes."""
    deadline = time.monotonic() + ENDED_S
    while True:
        run = at_attempt(context.cluster.client, context.find(attempt.parent.parent.name), int(attempt.name))
        if run.end is not None or not run.is_live:
            return run
        if time.monotonic() > deadline:
            return None
        time.sleep(0.5)


def _submit(context: Context, run: RunSummary, record: Record) -> bool:
    """Submit the next attempt; False where hands-off mode was switched off while that had to wait."""
    from rltui.service.resubmit import resubmit

    hold_s = record.hold_s * progress.scale()
    if context.cluster.profile.scheduler != "slurm" and hold_s and not _waited(run, hold_s):
        return False
    for number, pause_s in enumerate(SUBMIT_TRIES_S, start=1):
        time.sleep(pause_s)
        try:
            resubmit(context, run, record.overrides, record.exclude, unchecked=True, hold_s=hold_s, by="hands-off mode")
        except SubmitUnknownError:
            raise
        except ClusterError:
            if number == len(SUBMIT_TRIES_S):
                raise
        else:
            break
    return True


def _waited(run: RunSummary, hold_s: float) -> bool:
    """Wait; False as soon as hands-off mode is switched off, so that nothing of it is left for hours."""
    until = time.monotonic() + hold_s
    while (rundir.read_json(f"{run.path}/{rundir.HANDS_OFF}") or {}).get("on"):
        left_s = until - time.monotonic()
        if left_s <= 0:
            return True
        time.sleep(min(left_s, LOOK_S))
    return False


def _note(run_path: Path, attempt: str, record: Record, outcome: str) -> None:
    """Write a decision where people and programs look: the run's own list, the attempt's events, and messages."""
    with suppress(OSError):  # people are told of it on a full disk, too
        rundir.append_line(str(run_path / rundir.DECISIONS), msgspec.to_builtins(record))
        rundir.log_event(attempt, "hands-off", record.sentence)
    if record.decision == "restart":
        tell_of(attempt, "fixed", words=f"{record.what}: {record.why}")
    elif record.decision == "stop" and outcome not in ("finished", "cancelled"):
        tell_of(attempt, "needs you", words=record.why)


def _context(told: dict[str, Any]) -> Context:
    """The run's cluster as its own nodes see it: without a way there."""
    # on a node the cluster is its own, and the database that knows others may be out of reach
    profile = structs.replace(msgspec.convert(told["profile"], Profile), slurm_cluster="")
    if profile.name == LOCAL:
        return Context()
    return Context(profile.name, cluster=cluster_of(profile))


def _say_why_not(attempt: Path, why: str) -> None:
    """Nobody decides a second time: whoever relies on this mode has to know that it did nothing."""
    with suppress(OSError):
        rundir.log_event(str(attempt), "warning", f"hands-off: not started again: {why}")
    tell_of(str(attempt), "needs you", words=f"not started again: {why}")


def main(argv: Sequence[str]) -> int:
    """Entry point: ``python -m rltui.service.hands_off ATTEMPT``, on a node, after the attempt's end.

    With ``--ahead``, while it runs: only the next job is queued behind it.
    """
    attempt = Path(argv[0]).absolute()
    run_path = attempt.parent.parent
    told = rundir.read_json(str(run_path / rundir.HANDS_OFF)) or {}
    rundir.keep_private(str(run_path))
    try:
        context = _context(told)
        try:
            done = submit_ahead(context, attempt) if "--ahead" in argv else take(context, attempt)
        finally:
            context.close()
    except RltuiError as error:
        _say_why_not(attempt, error.message)
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        return 1
    except Exception as error:
        _say_why_not(attempt, f"{type(error).__name__}: {error}")
        raise
    sys.stderr.write(json.dumps(msgspec.to_builtins(done)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
