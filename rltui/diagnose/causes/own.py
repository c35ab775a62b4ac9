"""What only rltui can see: stages that last, steps that stop coming, nodes that fail the check, drifting numbers."""

from __future__ import annotations

import re
from datetime import datetime

from rltui.diagnose.cause import Cause, Fields, exclude_node
from rltui.diagnose.verdicts import Change, Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_STACKS = Remedy(
    id="dump-stacks",
    summary="See where every process waits before you end it: py-spy, or the flight recorder of NCCL.",
    commands=("py-spy dump --pid <pid>",),
    safe="never",
)
_RESUME = Remedy(
    id="resume",
    summary="Cancel, and resubmit from the newest complete checkpoint: once, not in a loop.",
    commands=("rltui resubmit <run>",),
    safe="confirm",
)
_OURS = ("the rules of rltui, relative to the run's own history",)
_FOLLOWS = frozenset({"gloo_timeout", "nccl_timeout", "ray_actor_died"})
"""What the others say where a role of the run dies or hangs."""


def _without_node(fields: Fields) -> tuple[Remedy, ...]:
    return (exclude_node(fields, "Leave the node out and resubmit."),)


SILENCE_S = 3600
"""A log that says nothing for this long before somebody cancels the job was not at work."""

LONGEST_SILENCE_S = 3 * 86_400
ZONE_STEP_S = 900
"""Clocks of containers and of Slurm may differ by whole quarters of an hour; such a gap proves nothing."""

_NEAR_S = 120


def read_silence(hit: Hit) -> Reading | None:
    """A job that was cancelled long after its last line hung: nothing else tells where there is no error line."""
    last = next((line.time for line in hit.context.before(200) if line.time[:1] == "2"), "")
    try:
        before, at = (datetime.fromisoformat(re.sub("[_ ]", "T", one[:19])) for one in (last, hit.groups["at"]))
    except ValueError:
        return None
    waited = (at - before).total_seconds()
    if not SILENCE_S <= waited <= LONGEST_SILENCE_S or not _NEAR_S < waited % ZONE_STEP_S < ZONE_STEP_S - _NEAR_S:
        return None
    return Reading(0.65, fields={"silent": f"{waited:.0f}"})


CAUSES = (
    Cause(
        id="preflight_failed",
        tier="root",
        recovery="elsewhere",
        title="A node failed the check before the start",
        detail="{node}: {reason}",
        tell="preflight.json names the node and what is wrong with it; Ray was not started.",
        wordings=worded(
            ("is bad:", r"^preflight: node (?P<node>[\w.-]+) is bad: (?P<reason>.+)"),
            confidence=0.9,
        ),
        remedies=_without_node,
        wrong=("Turning the check off: the run then fails later, with less to read.",),
        sources=_OURS,
    ),
    Cause(
        id="cancelled_by_other",
        tier="site",
        title="Somebody else cancelled the job",
        detail="user {who}",
        tell="The scheduler names another user than you; root is an administrator or a script of the site.",
        wordings=worded(
            ("not by you", r"^the job was cancelled by user (?P<who>\S+), not by you"),
            confidence=0.9,
        ),
        remedies=(Remedy(id="ask-site", summary="Ask the site why, before you resubmit.", safe="never"),),
        wrong=("Resubmitting at once: what made them cancel it may still hold.",),
        sources=("https://slurm.schedmd.com/sacct.html",),
    ),
    Cause(
        id="stage_stuck",
        tier="effect",
        recovery="restart",
        title="A stage takes much longer than it should",
        detail="{stage} for {lasted} s, {missing}",
        tell="stage.json says since when, and which node, bundle or role has not come.",
        wordings=worded(
            ("are usual", r"^stage (?P<stage>[\w-]+) lasted (?P<lasted>\d+) s, \d+ are usual: (?P<missing>.+)"),
            confidence=0.75,
        ),
        remedies=(_STACKS, _RESUME),
        wrong=("Waiting: each stage has a deadline after which nothing more is to be expected.",),
        collect=("the log of the node or role that is missing", "ray status on the head"),
        sources=_OURS,
    ),
    Cause(
        id="ray_start_slow",
        tier="root",
        recovery="restart",
        title="Ray did not come up in the time that it has",
        detail="{limit} s on {host}, {busy}",
        tell="rltui's own words where deadlines.ray_s has passed. A healthy Ray takes minutes on a machine with more "
        "to do than CPUs, or with its Python on a slow disk. The load says which.",
        wordings=worded(
            (
                "(deadlines.ray_s), at a load",
                r"Ray did not come up on (?P<host>[\w.-]+) within (?P<limit>\d+) s \(deadlines\.ray_s\), "
                r"(?P<busy>at a load of \d+ on \d+ CPUs)",
            ),
            confidence=0.85,
        ),
        explains=frozenset({"ray_head_unreachable", "stage_stuck"}),
        remedies=(
            Remedy(
                id="wait-longer",
                summary="Start it again once the machine has less to do, and give Ray twice the time.",
                changes=(Change("deadlines.ray_s", "times", 2, most=1800),),
                safe="auto",
            ),
        ),
        wrong=("Another address or port: nobody refused to answer.",),
        sources=_OURS,
    ),
    Cause(
        id="run_stalled",
        tier="effect",
        recovery="restart",
        title="The run stopped making steps",
        detail="none for {waited} s, where one takes {median} s",
        tell="No line in metrics.jsonl for five times the median step and ten minutes. Or no line at all in a log for "
        "an hour before the job was cancelled. GPUs that wait in a collective show 100 % utilisation at little power.",
        wordings=(
            *worded(
                ("no new step for", r"^no new step for (?P<waited>\d+) s, a step takes (?P<median>[\d.]+) s"),
                confidence=0.8,
            ),
            *worded(
                (
                    "timeout (",
                    r"^Timeout "
                    r"\(\d+:\d\d:\d\d\)!$",
                ),
                confidence=0.65,
            ),  # faulthandler's, before its stacks
            Wording(
                anchor="cancelled at",
                pattern=r"\*\*\* (?:JOB|STEP) .{1,80} CANCELLED AT (?P<at>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?! DUE)",
                check=read_silence,
            ),
        ),
        remedies=(_STACKS, _RESUME),
        wrong=(
            "Judging by utilisation: a hanging collective shows 100 %.",
            "A longer timeout: the step does not come.",
        ),
        collect=("py-spy dump of the learner and of one engine", "the queues: which one is empty, which one is full"),
        sources=_OURS,
    ),
    Cause(
        id="killed_from_outside",
        tier="root",
        recovery="restart",
        title="Somebody killed the program from outside (SIGKILL), and not for lack of memory",
        detail="host memory was {percent} % full",
        tell="The exit code is that of signal 9, and half of each node's memory was free in the ten seconds before.",
        wordings=worded(
            ("killed by sigkill while", r"^killed by SIGKILL while host memory was (?P<percent>\d+) % full$"),
            confidence=0.7,
        ),
        remedies=(
            Remedy(
                id="ask-who",
                summary="Ask who ended it (a clean-up of the node, a colleague, a script), and go on from the newest "
                "checkpoint.",
                safe="confirm",
            ),
        ),
        wrong=("More host memory: it was not full.",),
        sources=_OURS,
    ),
    Cause(
        id="role_died",
        tier="effect",
        recovery="restart",
        title="A process of the run died without a word",
        detail="{role} on {node}, while {doing}",
        tell="The trainer names the role whose process is gone. That Ray lost a worker, and that others lost their "
        "connection to it, follows from it.",
        wordings=worded(
            (
                "died while",
                r"(?:^reason: |RoleDiedError: )(?P<role>[a-z]+ \d+) \(pid \d+ on (?P<node>[\w.-]+)\) died while "
                r"(?P<doing>[^:;]{1,120})",
            ),
            confidence=0.75,
        ),
        remedies=(
            Remedy(
                id="read-kernel",
                summary="Look who ended it: dmesg on {node} names what the kernel killed; then go on once from the "
                "newest checkpoint.",
                commands=("dmesg -T | tail -50",),
                safe="confirm",
            ),
        ),
        wrong=("Mending the network, or Ray: their errors come from the process that is gone.",),
        collect=("dmesg of its node", "the last lines of its own log"),
        explains=_FOLLOWS,
        sources=_OURS,
    ),
    Cause(
        id="role_hung",
        tier="effect",
        recovery="restart",
        title="A role of the run did not answer in time",
        detail="{roles}, {seconds} s while {doing}",
        tell="The trainer gave up after the deadline of the layout. All that it waited for are named: one of them "
        "holds up the others.",
        wordings=worded(
            (
                "no answer from",
                r"(?:^reason: |RoleHungError: )no answer from (?P<roles>.{1,300}) within (?P<seconds>[\d.e+]+) s while "
                r"(?P<doing>[^:;]{1,120})",
            ),
            confidence=0.75,
        ),
        remedies=(_STACKS, _RESUME),
        wrong=("A longer deadline, before you know that the step takes so long.",),
        collect=("the evidence of its nodes: rltui bundle <run>, while it hangs",),
        explains=_FOLLOWS,
        sources=_OURS,
    ),
    Cause(
        id="policies_apart",
        tier="root",
        title="The engine does not run the learner's weights",
        detail="{said}",
        tell="rltui's own trainer compares what trainer and engine say of the same tokens. It also compares the "
        "versions of the weights that sampled them. It ends the run where they cannot be one policy. parity_growth "
        "comes before.",
        wordings=worded(
            (
                "does not run the learner's weights",
                r"TrainingError: (?P<said>.{10,300}?): the engine does not run the learner's weights",
            ),
            confidence=0.9,
        ),
        remedies=(
            Remedy(
                id="look-at-transfers",
                summary="See in its events how the last weights were handed over, and from which step on "
                "fresh_mismatch_kl grew: at once, a layer is wrong; by and by, a precision that does not bear it.",
                commands=("rltui events <run>",),
                safe="never",
            ),
            Remedy(
                id="other-engine",
                summary="Go on from the newest checkpoint with the transformers engine, where it is another, which "
                "tells whether that is at fault, or with the learner's precision in the engine.",
                commands=("rltui resubmit <run> roles.rollout.engine=hf",),
                safe="confirm",
            ),
        ),
        wrong=("Training on: it would follow samples of another policy.",),
        sources=_OURS,
    ),
    Cause(
        id="process_awaited",
        tier="root",
        recovery="restart",
        title="One process holds up the others",
        detail="{who} {what}",
        tell="The evidence that was taken of every process says so. One is stopped or gone, or has begun fewer of a "
        "group's collectives than the ranks that wait for it. Or its Python stack is elsewhere than the stacks of "
        "most that run the same program. Or torch's flight records, which rltui why --log nccl_trace_rank_* reads too.",
        wordings=worded(
            ("stuck:", r"^stuck: (?P<who>.{1,200}? \(pid \d+ on (?P<node>[\w.-]+)\)|rank \d+ of \d+):? (?P<what>.+)"),
            confidence=0.9,
        )
        + worded(("flight:", r"^flight: (?P<who>rank \d+ of \d+) (?P<what>.+)"), confidence=0.55),
        remedies=(
            Remedy(
                id="read-stacks",
                summary="Read its stack in the evidence: rltui bundle <run> packs it. A process that somebody stopped "
                "goes on with kill -CONT.",
                safe="never",
            ),
            _RESUME,
        ),
        wrong=("A longer timeout: who waits is not at fault, and the step does not come.",),
        explains=frozenset({"run_stalled", "stage_stuck", "nccl_timeout", "role_hung"}),
        sources=_OURS,
    ),
    Cause(
        id="own_variant",
        tier="root",
        recovery="person",
        title="A variant of GRPO of your own cannot be used",
        detail="{kind} {function} {what}",
        tell="The trainer looks at what your function returns before a loss is made of it, and names what is wrong.",
        wordings=worded(
            (
                "varianterror: grpo.",
                r"VariantError: grpo\.(?P<kind>[a-z_]{1,20}) (?P<function>[\w.]{1,200}:\w{1,100}) (?P<what>.{1,300})",
            ),
            confidence=0.95,
        ),
        remedies=(
            Remedy(
                id="mend-function",
                summary="Mend the function, or its settings in grpo.<kind>_settings; docs/algorithms.md has what each "
                "kind is called with and returns. Resubmit from the folder that it is in.",
            ),
        ),
        wrong=("Putting 0 where a number is not finite: the run then trains on what nobody meant.",),
        sources=("trainers/variants.py",),
    ),
)
