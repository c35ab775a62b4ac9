"""Hands-off mode: whether a run goes on after an attempt's end, from what is known of it; in doubt it stops."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from rltui.diagnose.cause import Recovery
from rltui.onnode import rundir
from rltui.watch.lines import decode

HOLDS_S = (0.0, 0.0, 300.0, 1200.0)
"""How long a new attempt waits, by how many attempts in a row brought no new checkpoint: what fails again and again
gets rarer (5 and 20 minutes)."""


class CauseFix(Struct, frozen=True, kw_only=True):
    """What is done about one cause."""

    cause: str
    recovery: Recovery
    sentence: str
    happened: str = ""
    """What went wrong, where a person has to see to it: that one may read of it far from the logs."""
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    set_aside: str = ""
    """A damaged checkpoint that is renamed, so that the run goes on from the one before."""
    commands: tuple[str, ...] = ()
    """For a person to run, where rltui cannot do it."""
    is_proven: bool = True
    """Whether every role fits its card by the estimate once this is changed; True where nothing is."""

    @property
    def helps(self) -> bool:
        """Whether a new attempt with this may go better than the one before."""
        return bool(self.overrides or self.exclude) or self.recovery == "restart"


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Guard rails of a run."""

    max_restarts: Annotated[int, Meta(ge=0)] = 20
    max_without_progress: Annotated[int, Meta(ge=0)] = 3
    """Attempts in a row that bring no new checkpoint."""
    max_gpu_hours: Annotated[float, Meta(ge=0, le=1e9)] = 0.0
    """Of all attempts together; 0: no limit."""
    max_excluded: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Of the partition's nodes; one may always be left out."""
    quiet_hours: str = ""
    """``22:00-07:00``: in these hours nothing is started; it waits for their end."""
    queue_ahead: bool = False
    """On Slurm: the next job is queued behind the one that runs, once that will not be the last (``--until-done``)."""


class Record(Struct, frozen=True, kw_only=True):
    """A decision that was taken, a line of ``hands-off.jsonl``."""

    time: float
    attempt: int
    decision: Literal["restart", "wait", "stop"]
    """``wait``: to be started again once ``hold_s`` is over, where no scheduler does that waiting."""
    cause: str
    why: str
    step: int = 0
    checkpoint_step: int | None = None
    overrides: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    set_aside: str = ""
    """A damaged checkpoint that is renamed first."""
    hold_s: float = 0.0
    until_clock: str = ""
    """The end of the wait, the node's time of day: who reads it may be in another time zone."""
    held: str = ""
    """Until when, the node's time of day, and why it waits; empty where it does not."""
    next_attempt: int = 0

    @property
    def what(self) -> str:
        """What comes next, in words, with the node's time of day where it is not at once."""
        if self.decision == "stop":
            return "stopped"
        later = f" waits until {self.until}" if self.decision == "wait" else f", not before {self.until}"
        return f"attempt {self.next_attempt}{later if self.hold_s else ''}"

    @property
    def sentence(self) -> str:
        """What comes next, and why."""
        return f"{self.what}: {self.cause}: {self.why}"

    @property
    def until(self) -> str:
        """The end of the wait, the node's time of day; of a line that does not say it, as on this machine."""
        return self.until_clock or time.strftime("%H:%M", time.localtime(self.time + self.hold_s))


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
    remembered: tuple[str, ...] = ()
    """Nodes that other runs have found bad, and that this one does not leave out yet."""
    is_proven: bool = True
    """Whether an estimate says that the changed layout fits; True where nothing is changed."""


def decide(policy: Policy, past: Sequence[Record], now: Situation, refused: Sequence[str] = ()) -> Record:
    """Whether the run goes on, with what, when, and why; in doubt it does not.

    Args:
        policy: The user's.
        past: What was decided before.
        now: The attempt that has ended.
        refused: What the user set besides and no guard rail here can be: without it nothing goes on by itself.
    """
    stop = _why_not(policy, past, now)
    if refused and not stop:
        stop = f"its guard rails are not allowed: {', '.join(refused)}; switch hands-off mode on again without them"
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
    back_off_s, quiet = HOLDS_S[min(in_vain, len(HOLDS_S) - 1)], quiet_s(policy.quiet_hours, now.now)
    quiet += quiet_s(policy.quiet_hours, now.now + quiet + back_off_s)  # the back-off may lead into them
    reasons = [f"quiet hours {policy.quiet_hours}"] * bool(quiet)
    reasons += [f"{in_vain} attempts in a row brought no new checkpoint"] * bool(back_off_s)
    hold_s = back_off_s + quiet
    until = time.strftime("%H:%M", time.localtime(now.now + hold_s)) if hold_s else ""
    return structs.replace(
        record,
        overrides=tuple(word for one in now.causes for word in one.overrides),
        exclude=_to_avoid(policy, now),
        set_aside=next((one.set_aside for one in now.causes if one.set_aside), ""),
        hold_s=hold_s,
        until_clock=until,
        held=f"until {until}: {' and '.join(reasons)}" if reasons else "",
        next_attempt=now.attempt + 1,
    )


def _to_avoid(policy: Policy, now: Situation) -> tuple[str, ...]:
    """The nodes that the causes blame, and as many of those that others found bad as may be left out besides."""
    blamed = tuple(dict.fromkeys(node for one in now.causes for node in one.exclude))
    room = _may_be_out(policy, now) - now.excluded - len(blamed)
    if now.spare_nodes is not None:
        room = min(room, now.spare_nodes - len(blamed))
    others = [node for node in now.remembered if node not in blamed]
    return (*blamed, *others[: max(0, room)])


def _may_be_out(policy: Policy, now: Situation) -> int:
    return max(1, int(policy.max_excluded * now.known_nodes))


def _why_not(policy: Policy, past: Sequence[Record], now: Situation) -> str:
    """Why the run is left as it is; empty: it goes on."""
    restarts = [one for one in past if one.decision == "restart"]
    unmended = [one for one in now.causes if not one.helps]
    if now.outcome == "finished":
        return "all steps are done"
    if not now.causes and now.outcome == "cancelled":
        return now.reason or now.outcome
    if not now.causes:
        return f"no known cause, so nobody knows what helps: {now.reason}"
    if unmended:
        first = unmended[0]
        return f"{f'{first.happened} It' if first.happened else first.cause} needs a person: {first.sentence}"
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


TIME_LIMIT = "slurm_time_limit"
FROM_OUTSIDE = frozenset({"slurm_preempted", "slurm_node_fail"})
"""Ends that say nothing of the run, whatever it has got done until then."""

PASSING = FROM_OUTSIDE | {TIME_LIMIT}
"""Ends that may come at one step twice. A time limit that comes before any checkpoint comes so again, though."""


def _limits(policy: Policy, past: Sequence[Record], restarts: Sequence[Record], now: Situation) -> str:
    if len(restarts) >= policy.max_restarts:
        return f"no more new attempts: {len(restarts)} of {policy.max_restarts} are made (max_restarts)"
    in_vain = _without_progress(past, now)
    if in_vain >= policy.max_without_progress:
        longer = "; a longer slurm.time or a smaller checkpoint.every is needed" * (now.causes[0].cause == TIME_LIMIT)
        return f"{in_vain} new attempts in a row brought no new checkpoint (max_without_progress){longer}"
    if policy.max_gpu_hours and now.gpu_hours >= policy.max_gpu_hours:
        return f"{now.gpu_hours:.3g} GPU-hours are used (max_gpu_hours={policy.max_gpu_hours:g})"
    new = {node for one in now.causes for node in one.exclude}
    allowed = _may_be_out(policy, now)
    if new and now.excluded + len(new) > allowed:
        return f"nodes left out already: {now.excluded}, of {allowed} that may be (max_excluded)"
    if new and now.spare_nodes is not None and len(new) > now.spare_nodes:
        return f"without {', '.join(sorted(new))} too few nodes are left"
    return ""


def _without_progress(past: Sequence[Record], now: Situation) -> int:
    """How many restarts before brought no checkpoint newer than the one they began from, this attempt included."""
    count = 0
    newest = now.checkpoint_step
    for one in reversed([one for one in past if one.decision == "restart"]):
        if one.checkpoint_step != newest or one.cause in FROM_OUTSIDE:
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
    start, end = quiet_minutes(hours)
    local = datetime.datetime.fromtimestamp(now)
    at = local.hour * 60 + local.minute + local.second / 60
    if (at - start) % 1440 >= (end - start) % 1440:
        return 0.0
    ends = local.replace(hour=end // 60, minute=end % 60, second=0, microsecond=0)
    ends += datetime.timedelta(days=at >= end)
    return ends.timestamp() - now  # a night in which clocks are changed has an hour more or less


def quiet_minutes(hours: str) -> tuple[int, int]:
    """When ``22:00-07:00`` begins and ends, in minutes from midnight.

    Raises:
        ValueError: These are no two times of day.
    """
    start, end = (_minutes(word) % 1440 for word in hours.split("-"))
    return start, end


def _minutes(word: str) -> int:
    hour, _, minute = word.strip().partition(":")
    if not (0 <= int(hour) <= 24 and 0 <= int(minute or 0) < 60):
        raise ValueError(f"{word} is no time of day")
    return int(hour) * 60 + int(minute or 0)


def read_records(run: Path) -> tuple[Record, ...]:
    """The decisions that were taken for the run in the directory ``run``, oldest first; torn lines are left out."""
    try:
        return records_in((run / rundir.DECISIONS).read_bytes())
    except OSError:
        return ()


def records_in(text: bytes) -> tuple[Record, ...]:
    """The decisions in the file's text; torn lines are left out."""
    return tuple(record for line in text.splitlines() if (record := decode(line, Record)) is not None)


def policy_of(told: dict[str, Any]) -> tuple[Policy, tuple[str, ...]]:
    """The user's policy as ``hands-off.json`` holds it, and the ``key=value`` of it that are no guard rails here.

    What the file does not say is by default. Another version of rltui may have taken what this one does not.
    """
    stored, policy, refused = told.get("policy") or {}, Policy(), []
    for key, value in stored.items():
        try:
            one = msgspec.convert({key: value}, Policy)
        except msgspec.ValidationError:  # noqa: PERF203 each value is judged by itself
            refused.append(f"{key}={value}")
        else:
            policy = structs.replace(policy, **{key: getattr(one, key)})
    return policy, tuple(refused)
