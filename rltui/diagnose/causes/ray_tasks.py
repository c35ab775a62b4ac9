"""Ray at work: its actors and its scheduling."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import structs

from rltui.diagnose.cause import Cause, Fields
from rltui.diagnose.frames import frames_of
from rltui.diagnose.matches import Match, Matches, Verdict, surest, unless_followed_by
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_LOGS = (
    "worker-<id>.err and raylet.out of the named pid on the named node, in Ray's session_latest/logs",
    "dmesg of that node: kernel kills and Xid events",
    "ulimit -u and ulimit -n as the job sees them",
)
TINY = 0.1
"""Ray asks for shares like 0.001 of a node's own resource to pin something to it; the autoscaler cannot know that."""
PATIENCE_S = 60
LONG_S = 180
_NOTICE = 0.55
"""Confidence that a demand is never met which cannot be met right now: every start says so while actors come up."""
_SOON_LINES = 200
_RAISED = re.compile(r"ray\.exceptions\.\w+")
_AMOUNT = re.compile(r"['\"]?([\w.:-]+)['\"]?: (\d+(?:\.\d+)?)(?!\.?\d)")
_DEMAND = re.compile(r"\{[^{}]{1,300}\}")
_GPU_NAMES = ("GPU", "NPU", "accelerator_type")


_ENDED_AS_MEANT = (
    r"killed by `?ray\.kill|The process receives a SIGTERM|INTENDED_(?:USER_|SYSTEM_)?EXIT|"
    r"all references to the actor were removed|^\s*except |owner has exited|"
    r"W \d+ \d+\] actor_manager"  # a name was asked for that nobody has yet
)
_REMOVED = 0.62
"""Confidence of wordings that a placement group is gone: whoever ended the run removes it as well."""


def ray_pg_infeasible(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A group that was removed is news only where nothing says why the run ended."""
    verdict = surest(matches)
    if verdict is None or verdict.confidence > _REMOVED:
        return verdict
    others = all_matches.causes - {"ray_pg_infeasible", "ray_actor_died"}
    return None if others else verdict


def _waits_since_s(hit: Hit) -> int:
    """Seconds that the autoscaler has run for when it said this, by its own prefix ``(autoscaler +1m2s)``."""
    prefix = hit.context.raw[hit.context.start : hit.context.end][:80].decode("ascii", "replace")
    match = re.search(r"\+(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?\)", prefix)
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    return hours * 3600 + minutes * 60 + seconds


def _work_follows(hit: Hit) -> bool:
    """Whether workers write after it: resources that are claimed for a moment at the start are free soon."""
    later = [line for line in hit.context.after(40) if line.text.strip()]
    return any(line.actor not in ("", "autoscaler", "raylet", "gcs_server") for line in later)


def read_demand(hit: Hit) -> Reading | None:
    """A demand is infeasible if it is one at all: pinning shares and empty demands are not."""
    demand = hit.groups.get("demand", "")
    if not demand and (match := _DEMAND.search(hit.context.line.text)):
        demand = match[0]
    amounts = {name: float(number) for name, number in _AMOUNT.findall(demand)}
    if amounts and all(value <= TINY or name.startswith("node:") for name, value in amounts.items()):
        return None
    wants_gpu = any(name.startswith(_GPU_NAMES) for name in amounts)
    if re.search("pending tasks|right now", hit.context.line.text) and not wants_gpu:
        return None  # tasks queue for CPUs all the time
    if "right now" in hit.context.line.text and _waits_since_s(hit) < LONG_S:
        return None if _work_follows(hit) else Reading(_NOTICE, fields={"demand": demand.strip()})
    if "pending" in hit.context.line.text:
        return Reading(0.7 if wants_gpu else 0.65, fields={"demand": demand.strip()})
    return Reading(0.9 if wants_gpu else 0.8, fields={"demand": demand.strip()} if amounts else {})


def read_placement_wait(hit: Hit) -> Reading | None:
    """VLLM says how long it has waited for its placement group, 10 s, 20 s, 40 s …; early ones are normal."""
    return Reading(0.75) if int(hit.groups["seconds"]) >= PATIENCE_S else None


def read_get_timeout(hit: Hit) -> Reading | None:
    """Waiting in vain for a placement group shows as a plain timeout; the traceback tells what was waited for."""
    frames = "\n".join(map(str, frames_of(hit.context)))
    return Reading(0.7) if re.search(r"placement_group|\bpg\.ready|\.ready\(\)", frames) else None


def ray_actor_died(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A dead actor that nobody started again; where threads could not be started, that is why, whatever Ray guesses."""
    limits = all_matches.of("thread_limit")
    left = unless_followed_by(matches, all_matches.of("role_restarted"))
    verdict = surest(_before_the_end(left, all_matches))
    if not limits:
        return verdict
    if verdict is None:
        return Verdict(confidence=0.65, matches=tuple(limits), fields={"threads": "yes"})
    return structs.replace(
        verdict,
        confidence=0.85,
        matches=(*limits, *verdict.matches),
        fields={**verdict.fields, "threads": "yes"},
    )


def _before_the_end(matches: Sequence[Match], all_matches: Matches) -> list[Match]:
    """Deaths right after the training said that it was done are Ray going down, unless somebody failed by it.

    Somebody did who still waited for the worker, and has its death raised: a last checkpoint, an evaluation.
    """
    ends, failures = all_matches.of("training_done"), all_matches.of("failed_end")
    failures = [*failures, *(one for one in matches if _RAISED.match(one.evidence.text))]
    return [
        one
        for one in matches
        if not any(_soon_after(one, end) for end in ends) or any(_soon_after(failure, one) for failure in failures)
    ]


def _soon_after(one: Match, other: Match, lines: int = _SOON_LINES) -> bool:
    return one.source == other.source and 0 <= one.order - other.order <= lines


def actor_remedies(fields: Fields) -> tuple[Remedy, ...]:
    """Once more from the checkpoint; the limit of processes where that is what was hit."""
    once = Remedy(
        id="retry-once",
        summary="Read the worker's own log and dmesg on its node first; then once more from the newest checkpoint.",
        safe="auto",
    )
    if "threads" not in fields:
        return (once,)
    limit = Remedy(
        id="raise-process-limit",
        summary="The limit of processes and threads was hit: raise it, and start fewer workers and BLAS threads.",
        commands=("ulimit -u $(ulimit -Hu)", "export OMP_NUM_THREADS=1"),
        safe="auto",
    )
    return (limit, once)


CAUSES = (
    Cause(
        id="ray_actor_died",
        tier="wrapper",
        recovery="restart",
        title="A Ray worker died; Ray only knows that its connection ended",
        tell="SYSTEM_ERROR with 'End of file' says no more than that. Ray's list of possible reasons, the OOM "
        "killer first, is the same for every death. A thread limit shows as 'Resource temporarily unavailable'.",
        wordings=(
            *worded(
                ("actordiederror", ""),
                ("rayactorerror", ""),
                ("actorunavailableerror", ""),
                ("workercrashederror", ""),
                ("nodediederror", ""),
                ("ownerdiederror", ""),
                ("objectlosterror", ""),
                ("ray", r"(?i)\bray (?:sub)?process(?:es)? (?:have )?(?:died|exited)|\bstarted by ray exited"),
                ("actor", r"(?i)\bfailed to (?:look up|get|find) (?:\w*_)?actor\b"),
                (
                    "worker exit type",
                    r"Worker exit type: (?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY|WORKER_DIED)",
                ),
                ("exit_type", r"(?i)exit_type ?[=:] ?SYSTEM_ERROR"),
                ("worker died or was killed", r"worker died or was killed(?: while executing (?:a )?task|\s*$)"),
                ("crashed due to other reasons", r"(?<!\d)[1-9]\d* Workers crashed due to other reasons"),
                ("raylet", r"(?i)local raylet died|raylet is terminated|raylet (?:process )?(?:crashed|terminated) "),
                confidence=0.7,
                unless=_ENDED_AS_MEANT,
            ),
            # of any of Ray's nodes, workers and actors, that it ended without being told to
            *worded(
                (
                    "",
                    r"(?i)\b(?:actor|raylet|node|worker|process(?:es)?)\b(?:[^.;]|\.(?! )){0,300}?"
                    r"\b(?:marked dead|is dead|has died|"
                    r"(?:died|exit(?:ed|s)) unexpectedly|(?:died|exited) with exit code|crashed during start)\b",
                    "actor raylet node worker process processes",
                ),
                confidence=0.7,
                unless=_ENDED_AS_MEANT + r"|(?i:vllmworker|worker ?proc\b|\bengine)|\(PID: \d+\) died with",
            ),
            *worded(
                ("ray died", r"Ray died \(exit code"),
                confidence=0.7,
            ),
        ),
        weigh=ray_actor_died,
        remedies=actor_remedies,
        wrong=("Believing the OOM hint without a line of the kernel or of Ray's monitor.",),
        collect=_LOGS,
        sources=("https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html", "verl-project/verl#472"),
    ),
    Cause(
        id="ray_pg_infeasible",
        tier="root",
        title="Ray has not got the resources that were asked for",
        detail="{demand} cannot be placed",
        tell="Ray names a demand that no node, or not enough nodes, can hold. A demand of a few hundredths of a "
        "node's own resource is noise of the autoscaler.",
        wordings=(
            # the autoscaler and the scheduler, whichever way they say that no node can hold it
            Wording(
                anchor="request",
                words=("request", "requests"),
                pattern=r"(?:No available node types can fulfill|could not find a node type to satisfy|"
                r"cannot be scheduled right now|The following)\b.{0,20}\brequests?\b"
                r"(?:[^{}]{0,60}(?P<demand>\{[^{}]*\}))?",
                check=read_demand,
            ),
            Wording(
                anchor="pending",
                pattern=r"^\s{0,20}>?\s{0,20}(?P<demand>\{[^{}]{0,300}\}.{0,40}): \d+\+? pending (?:tasks|placement "
                r"groups)",
                check=read_demand,
                confidence=0.7,
            ),
            *worded(
                ("scheduling_state", r"scheduling_state: (?:NO_RESOURCES|INFEASIBLE)"),
                ("placement group", r"(?i)cannot provide a placement group"),
                (
                    "placement group",
                    r"(?i)placement groups?\b.{0,120}(?:infeasible|not ready|timed out|"
                    r"could not be (?:created|scheduled)|cannot be (?:created|scheduled))",
                    "placement",
                ),
                (
                    "placement group",
                    r"(?i)(?:timed? ?out|failed).{0,60}(?:waiting for|creating|to create).{0,40}placement groups?\b",
                    "placement",
                ),
                (
                    "unschedulableerror",
                    r"(?:Task|Actor)UnschedulableError",
                    "taskunschedulableerror actorunschedulableerror",
                ),
                (
                    "less than total desired gpus",
                    r"Total available GPUs (?P<offered>[\d.]+) is less than total desired GPUs (?P<asked>[\d.]+)",
                ),
                ("exceeds the total number of available gpus", ""),
                ("insufficient cluster resources to launch", ""),
                ("placement group bundle index", r"placement group bundle index \d+ is invalid"),
                ("tasks with infeasible resource requests", ""),
                (
                    "parallel size",
                    r"(?i)tensor[ _]parallel[ _]size.{0,30}(?:exceeds|larger than)[^.]{0,40}available gpus",
                ),
                "max local gpu count",
                ("no gpu available", r"(?i)node has no GPU available"),
                ("cannot fit into any bundles", ""),
                (
                    "gpus",
                    r"(?i)\b(?:not enough|insufficient|too few) (?:available |free |visible |total )?GPUs?\b"
                    r"(?! memory| ram| blocks)|requires? (?:at least )?\d+ GPUs?,? but (?:only )?(?:got |found |have "
                    r")?\d+",
                    "gpus gpu",
                ),
                (
                    "gpus",
                    r"(?i)(?:request|requir|need|want|ask)\w*\b.{0,40}\b\d+ GPUs?\b.{0,40}\b(?:only|"
                    r"but)\b.{0,60}\b(?:available|found|visible)",
                    "gpu gpus",
                ),
                ("gpus", r"(?i)(?:Error|Exception): .{0,60}\bnum_gpus\w*\b.{0,60} is less than .{0,80}gpus", "gpus"),
                ("does not allocate any gpus", ""),
                ("not enough resources to allocate", r"to allocate \d+ (?:placement groups|DP ranks)"),
                ("not enough total available nodes", r"available nodes \(\d+\) and devices per node"),
                ("resource request cannot be satisfied", ""),
                ("world size", r"(?i)world size \(\d+\) is larger than the number of available GPUs"),
                ("resourceinsufficienterror", ""),
                ("placement group", r"(?i)placement group was not ready within"),
                ("is infeasible", r"(?i)(?:task|actor|bundle|resource request).{0,160}is infeasible"),
                confidence=0.85,
            ),
            *worded(
                ("waited for a place", r"^\d+ Ray actors have waited for a place for \d+ s: (?P<demand>.+)"),
                confidence=0.7,
            ),
            Wording(anchor="gettimeouterror", check=read_get_timeout),
            Wording(
                anchor="placementgroupremoved",
                words=("taskplacementgroupremoved", "actorplacementgroupremoved"),
                confidence=_REMOVED,
            ),
            Wording(
                anchor="placement group",
                pattern=r"(?i)placement group (?:backing this (?:task|actor) )?(?:has been|was) removed",
                confidence=_REMOVED,
            ),
            Wording(
                anchor="waiting for creating a placement group",
                pattern=r"Waiting for creating a placement group of specs for (?P<seconds>\d+) seconds",
                check=read_placement_wait,
            ),
            *worded(("bundles found no place", r"the \w+ bundles found no place within"), confidence=0.95),
        ),
        weigh=ray_pg_infeasible,
        remedies=(
            Remedy(
                id="compare-resources",
                summary="Compare the GPUs Ray has with those the layout asks for; wait for late nodes, then fix "
                "the layout.",
                commands=("ray status",),
                safe="auto",
            ),
            Remedy(
                id="count-gpus",
                summary="If Ray counts no GPU, start it with --num-gpus and look at CUDA_VISIBLE_DEVICES and the "
                "job's gres.",
                commands=("nvidia-smi -L",),
                safe="confirm",
            ),
        ),
        wrong=("Waiting on: what is infeasible now stays so unless a node joins.",),
        sources=("https://docs.ray.io/en/latest/ray-core/scheduling/placement-group.html", "ray-project/ray#18979"),
    ),
)

STATES = {
    # our own trainers' word on an engine, teacher or reference that died (trainers/roles/restarts.py)
    "role_restarted": (Wording(anchor="starting it again (", pattern=r"starting it again \(\d+ of \d+ restarts"),),
    "thread_limit": (
        Wording(
            anchor="resource temporarily unavailable",
            pattern=r"(?i)(?:thread: |Thread creation failed: |pthread_create.{0,60}|fork.{0,40}|what\(\): +|"
            r"BlockingIOError.{0,40})Resource temporarily unavailable",
        ),
        Wording(anchor="can't start new thread"),
    ),
}
