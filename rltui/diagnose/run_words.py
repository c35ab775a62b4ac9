"""What a run directory and the scheduler say besides logs, put into lines, so that they are evidence like any other.

Every function is pure: snapshots in, lines out. The lines are recognised by ``wordings/own.py``; states of jobs are
worded as Slurm words them. Rules are relative to the run's own history, as steps of RL take seconds or half an hour.
"""

from __future__ import annotations

import itertools
import math
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator

from rltui.cluster.jobs import JobSnapshot
from rltui.diagnose.recent import RunPicture, Symptom
from rltui.diagnose.silent_rules import silent_symptoms
from rltui.diagnose.slow_rules import slow_symptoms
from rltui.diagnose.stuck import stood_still
from rltui.onnode import rundir
from rltui.onnode.progress import LEAST_STEPS, STAGE_S, patience_s, scale

IDLE_S, WORDLESS_S = 60.0, 300.0
"""From when on it is worth a word that no GPU works, and that a log is silent, while no step comes."""
FULL_MEMORY = 0.97
ROOMY_MEMORY = 0.5
ROOMY_S = 10.0
"""Nodes whose memory was half free so shortly before the end did not run out of it."""

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a trainer, or of a shell that waited for one, that was killed without a word."""

SILENT_S = 60.0
"""An engine whose server is busy answers late; not that late."""
BEFORE_THE_END_S = 120.0
PLACED_S = 180.0
"""How long Ray's actors may take to come up: their programs are read from a shared disk, by all of them at once."""


def words_of(picture: RunPicture) -> dict[str, list[str]]:
    """Return the lines by the name of what they are from."""
    return {
        "stage.json": list(stage_words(picture)),
        "end.json": list(end_words(picture)),
        "preflight.json": [f"preflight: node {node} is bad: {why}" for node, why in picture.bad_nodes.items()],
        "metrics.jsonl": [*metrics_words(picture), *symptom_words(picture)],
        "sampler": [*unheard_words(picture), *sampler_words(picture)],
        rundir.ACTORS: list(placement_words(picture)),
        "scheduler": list(job_words(picture.job)) if picture.job is not None else [],
    }


def stage_words(picture: RunPicture) -> Iterator[str]:
    """The stage, and that it lasts longer than it should: its detail names the node, bundle or role that is missing."""
    stage = picture.stage
    yield f"stage: {stage.stage} {stage.detail}"
    # what a program of unknown words loads, it may be training with
    is_bound = picture.tells_steps or stage.stage != "loading"
    usual = STAGE_S.get(stage.stage, math.inf) * scale() if is_bound else math.inf
    lasted = picture.until - stage.since
    if not stage.since or picture.was_wanted or lasted <= usual:
        return
    waiting = [name for name, state in stage.roles.items() if state != "ready"]
    missing = stage.detail or (f"not ready: {', '.join(waiting[:8])}" if waiting else "nothing says what is missing")
    yield f"stage {stage.stage} lasted {lasted:.0f} s, {usual:.0f} are usual: {missing}"


def end_words(picture: RunPicture) -> Iterator[str]:
    """How the attempt ended, in the words of its supervisor."""
    end = picture.end
    if end is not None:
        yield from (f"outcome: {end.outcome}", f"reason: {end.reason}")
        # who ends a trainer kills it where it does not go in time, which is no sign of a lack of memory, nor of others
        if not picture.was_wanted and not end.hung:
            yield f"exit code: {end.exit_code}"
            yield from _killed_with_room(picture)


def _killed_with_room(picture: RunPicture) -> Iterator[str]:
    """That a kill was not for lack of memory, where the newest sample of each node says so."""
    is_full = picture.job is not None and picture.job.word == "OUT_OF_MEMORY"
    if picture.end is None or picture.end.exit_code not in KILLED or is_full or not picture.hosts:
        return
    fresh = all(host.memory_total_gib and picture.until - host.taken_at <= ROOMY_S for host in picture.hosts)
    used = max(host.memory_used_gib / host.memory_total_gib for host in picture.hosts) if fresh else 1.0
    if used <= ROOMY_MEMORY:
        yield f"killed by SIGKILL while host memory was {100 * used:.0f} % full"


def placement_words(picture: RunPicture) -> Iterator[str]:
    """That Ray has no place for some of a run's actors, which wait without a word."""
    waited = picture.now - picture.stage.since
    if picture.waiting_actors and picture.end is None and waited > PLACED_S * scale():
        count, kinds = len(picture.waiting_actors), Counter(picture.waiting_actors).most_common(4)
        named = ", ".join(f"{kind} x{number}" for kind, number in kinds)
        yield f"{count} Ray actors have waited for a place for {waited:.0f} s: {named}"


def job_words(job: JobSnapshot) -> Iterator[str]:
    """The scheduler's picture in Slurm's words: terminal state, exit code and signal, reason, who cancelled."""
    if job.word:
        code = f"{job.exit_code or 0}:{job.signal or 0}"
        nodes = f" NodeList={','.join(job.nodes[:8])}" if job.nodes else ""
        yield f"JobState={job.word} ExitCode={code}{nodes}"
    yield from (f"Node failure on {node}" for node in job.failed_nodes)
    if job.state == "pending" and job.reason:
        yield f"{job.job_id} PD ({job.reason})"
    if job.state == "cancelled" and job.cancelled_by not in ("", "me"):
        yield f"the job was cancelled by user {'root' if job.cancelled_by == '0' else job.cancelled_by}, not by you"
    # scancel ends with SIGKILL what has not gone in time, and accounting says later who it was
    if job.signal == 9 and job.state == "failed" and job.word != "OUT_OF_MEMORY":
        yield "the job's batch process ended by Signal 9 (SIGKILL)"


def metrics_words(picture: RunPicture) -> Iterator[str]:
    """That steps stopped coming, by the run's own pace; nothing before there are enough of them."""
    # a checkpoint is written between steps; its stage has a bound of its own
    if picture.was_wanted or picture.stage.stage not in ("training", "ended"):
        return
    if picture.stage.detail.startswith(rundir.EVALUATING):
        return  # the engines' answers have a deadline of their own
    steps = picture.steps
    if len(steps) < LEAST_STEPS:
        return
    took_s = [later.at - before.at for before, later in itertools.pairwise(steps)]
    median = statistics.median(took_s)
    waited = picture.until - picture.waits_since
    if waited > patience_s(took_s, scale()):
        yield f"no new step for {waited:.0f} s, a step takes {median:.1f} s"


def symptom_words(picture: RunPicture) -> Iterator[str]:
    """What a run that goes on suffers from; of one that has ended, only what its numbers say of its learning."""
    for symptom in symptoms_of(picture):
        yield from symptom.lines


def symptoms_of(picture: RunPicture) -> tuple[Symptom, ...]:
    """Warnings of silent failures, then what holds up the run, unless it stands still or does no steps now."""
    warnings = (*silent_symptoms(picture.recent), *_silent_engines(picture))
    goes_on = picture.end is None and picture.stage.stage in ("training", "saving") and not _is_quiet(picture)
    return (*warnings, *slow_symptoms(picture.recent)) if goes_on else warnings


def _is_quiet(picture: RunPicture) -> bool:
    """Whether steps ought to come and do not, long before that is a standstill: what held up the last ones is past."""
    waits = picture.stage.stage == "training" and not picture.stage.detail.startswith(rundir.EVALUATING)
    return waits and bool(picture.steps) and stood_still(picture.now, picture, scale())


def unheard_words(picture: RunPicture) -> Iterator[str]:
    """Nodes of which nothing is heard: of their samplers, or by Slurm; which of both tells network from node."""
    for node in dict.fromkeys((*picture.unanswering, *picture.silent)):
        silent_s = picture.silent.get(node, 0.0)
        said = [f"its sampler has been silent for {silent_s:.0f} s"] if silent_s else []
        said += ["it does not answer Slurm"] if node in picture.unanswering else []
        yield f"symptom node silent: node {node}: {', and '.join(said)}"


def _silent_engines(picture: RunPicture) -> Iterator[Symptom]:
    """Engines that told their counters and have not answered for long: who asks them for samples waits."""
    told = [(host.host, engine) for host in picture.hosts for engine in host.engines]
    silent = [(host, engine) for host, engine in told if engine.silent_s >= SILENT_S * scale()]
    if silent and picture.end is None:
        names = ", ".join(f"engine {engine.name} of {host} (pid {engine.pid})" for host, engine in silent[:4])
        more = f" and {len(silent) - 4} more" if len(silent) > 4 else ""
        seconds = max(engine.silent_s for _, engine in silent)
        yield Symptom(
            cause="engine_silent",
            word="engine silent",
            sentence=f"{names}{more} of {len(told)} has not answered for {seconds:.0f} s",
        )


def sampler_words(picture: RunPicture) -> Iterator[str]:
    """Host memory that was full when the attempt ended badly."""
    if picture.was_wanted or picture.end is None:
        return
    for host in picture.hosts:
        share = host.memory_used_gib / host.memory_total_gib if host.memory_total_gib else 0.0
        if share >= FULL_MEMORY and picture.until - host.taken_at <= BEFORE_THE_END_S:
            yield (
                f"host memory of {host.host} was at {100 * share:.0f} % ({host.memory_used_gib:.0f} of "
                f"{host.memory_total_gib:.0f} GiB) just before the end"
            )


def at_rest_words(picture: RunPicture) -> tuple[str, ...]:
    """What is seen of a live run that makes no steps, whatever it means: GPUs that do not work, a log that is silent.

    A program that nobody knows the words of may be well; and a step that came while the cards rested says that the run
    does not train on them (a CPU layout on GPU nodes).
    """
    makes_steps = picture.stage.stage == "training" or (picture.stage.stage == "loading" and not picture.tells_steps)
    if picture.end is not None or not makes_steps:
        return ()
    waited_s = picture.now - picture.steps[-1].at if picture.steps else math.inf
    idle = [host.idle_since for host in picture.hosts if host.gpus]
    found = []
    if idle and all(idle) and min(waited_s, picture.now - max(idle)) > IDLE_S:
        names = ", ".join(host.host for host in picture.hosts[:8] if host.gpus)
        found.append(f"no GPU of {names} has worked since {_clock(max(idle), picture.now)} at the latest")
    if picture.said_at and min(waited_s, picture.now - picture.said_at) > WORDLESS_S:
        found.append(f"its log has been silent since {_clock(picture.said_at, picture.now)}")
    return tuple(found)


def _clock(at: float, now: float) -> str:
    date = "" if time.localtime(at)[:3] == time.localtime(now)[:3] else "%Y-%m-%d "
    return time.strftime(f"{date}%H:%M:%S", time.localtime(at))
