"""Why a job waits, in plain words, and whether it will ever start: Slurm's reasons as a table.

Slurm shows one reason even where several hold, and the limits' numbers that users can read are not always those that
count: so a reason is explained, and no number is computed from it.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from rltui.cluster.plain_text import plain

ReasonKind = Literal["wait", "own", "shared", "never", "dead", "unknown"]
"""``wait``: the normal queue. ``own``: something its owner asked for or has running. ``shared``: a cap that others use
up too. ``never``: cannot start as it was submitted. ``dead``: will not start unless somebody does something."""


class PendingReason(Struct, frozen=True):
    """Why a job waits, in Slurm's word and in a sentence for people."""

    word: str
    """Slurm's own."""
    sentence: str
    kind: ReasonKind = "unknown"
    next_step: str = ""
    """What to do; ``explain_reason`` puts the run's id for ``{run}``."""
    starts_by_itself: bool = True
    """Whether it will start some day if nobody does anything."""


def _wait(word: str, sentence: str, next_step: str = "") -> PendingReason:
    return PendingReason(word, sentence, "wait", next_step)


def _own(word: str, sentence: str, next_step: str = "", starts: bool = True) -> PendingReason:
    return PendingReason(word, sentence, "own", next_step, starts)


def _never(word: str, sentence: str, next_step: str) -> PendingReason:
    return PendingReason(word, sentence, "never", next_step, False)


def _dead(word: str, sentence: str, next_step: str) -> PendingReason:
    return PendingReason(word, sentence, "dead", next_step, False)


_SMALLER = "`rltui resubmit {run} --cancel KEY=VALUE` asks for less, or for another slurm.partition or slurm.qos."
_LARGER = "`rltui resubmit {run} --cancel KEY=VALUE` asks for more, or for another slurm.qos."
_RELEASE = "`rltui release {run}` lets it start, once the cause is gone."
_ANEW = "`rltui resubmit {run} --cancel` submits it anew."
_WHY_FIRST = "`rltui why {run}` says why it failed; `rltui release {run}` lets it start then."
_WITHOUT_THE_NODE = "`rltui update {run} --exclude NODE` keeps it away; `rltui release {run}` lets it start then."
_OTHERS = "`rltui resubmit {run} --cancel slurm.account=A slurm.qos=Q slurm.partition=P` asks for others."
_NO_RESERVATION = "`rltui resubmit {run} --cancel slurm.reservation=` submits it without."
_ASK = "Ask the site."

TABLE = (
    _wait("None", "It was only just queued."),
    _wait("Priority", "Jobs with a higher priority are in front of it."),
    _wait("Resources", "It is next and waits for enough free nodes."),
    _wait("Cleaning", "Its last start is still being cleaned up."),
    _wait("Prolog", "Its nodes are being prepared."),
    _wait("SchedDefer", "The scheduler looks at it only in its next round."),
    _wait("FedJobLock", "Another cluster of the federation is trying to start it."),
    _wait("BurstBufferResources", "It waits for room in the burst buffer."),
    _wait("BurstBufferStageIn", "Its data is being copied into the burst buffer."),
    _wait("BurstBufferOperation", "The burst buffer is working for it.", "If it stays, ask the site."),
    _wait("Licenses", "It waits for a licence that other jobs hold."),
    _wait("NodeDown", "A node that it needs is down.", "It starts when the node is back, or elsewhere if the job may."),
    _wait("FrontEndDown", "No front-end node is up.", _ASK),
    _wait("MaxPoweredUpNodes", "As many nodes as the site powers at once are up already."),
    _wait("MpiPortsBusy", "It waits for network ports of its nodes that other jobs hold."),
    _wait("PartitionDown", "Its partition is closed for new starts.", "Wait for the site, or use another partition."),
    _wait("PartitionInactive", "Its partition is switched off.", "Wait for the site, or use another partition."),
    _wait("Reservation", "Its reservation has not begun, or is full."),
    _own(
        "BeginTime",
        "It may not start yet: after a requeue Slurm waits a little; or hands-off mode, or you, gave it a begin time.",
    ),
    _own("Dependency", "It waits for another job to end."),
    _own("JobArrayTaskLimit", "As many tasks of its array run as were allowed at once."),
    _own("JobHeldUser", "You hold it.", "`rltui release {run}` lets it start.", starts=False),
    _dead("DependencyNeverSatisfied", "The job that it waits for did not end as it should have.", _ANEW),
    _dead("DeadLine", "It can no longer end before the deadline it was given.", _ANEW),
    _dead("JobHeldAdmin", "An administrator holds it.", _ASK),
    _dead("JobHoldMaxRequeue", "It was requeued too often and is held.", _WHY_FIRST),
    _dead("JobLaunchFailure", "It could not be launched on its node.", _WITHOUT_THE_NODE),
    _dead("launch failed requeued held", "Its launch failed, and Slurm holds it.", _WITHOUT_THE_NODE),
    _dead("job requeued in held state", "It was requeued and is held.", _RELEASE),
    _dead("ReservationDeleted", "Its reservation was deleted.", _NO_RESERVATION),
    _dead("ReservationInvalid", "Its reservation cannot be used.", _NO_RESERVATION),
    _dead("AccountNotAllowed", "Its account may not use this partition.", _OTHERS),
    _dead(
        "Job's account not permitted to use this partition",
        "Its account may not use this partition.",
        _OTHERS,
    ),
    _dead("Job's QOS not permitted to use this partition", "Its QOS may not use this partition.", _OTHERS),
    _dead("InvalidAccount", "Its account does not exist (any more).", _OTHERS),
    _dead("InvalidQOS", "Its QOS does not exist (any more).", _OTHERS),
    _dead("QOSNotAllowed", "Its account or partition may not use its QOS.", _OTHERS),
    _dead("SystemFailure", "Slurm, the file system or the network failed under it.", _RELEASE),
    _dead("NonZeroExitCode", "It ended with an error and was requeued on hold.", _WHY_FIRST),
    _dead("RaisedSignal", "It died of a signal and was requeued on hold.", _WHY_FIRST),
    _dead(
        "TimeLimit",
        "It reached its time limit and was requeued on hold.",
        "`rltui update {run} --time D-HH:MM:SS` gives it more; `rltui release {run}` lets it start then.",
    ),
    _dead(
        "OutOfMemory",
        "It ran out of memory and was requeued on hold.",
        "`rltui resubmit {run} --cancel slurm.mem_gib=N` gives it more.",
    ),
    _never(
        "PartitionNodeLimit",
        "It asks for more or fewer nodes than its partition allows.",
        "`rltui resubmit {run} --cancel hardware.nodes=N` asks for others; `rltui nodes` shows the limits.",
    ),
    _never(
        "PartitionTimeLimit",
        "Its time limit is over that of its partition.",
        "`rltui update {run} --time HH:MM:SS` lowers it; `rltui nodes` shows the limits.",
    ),
    _never("MaxMemPerLimit", "It asks for more memory than its partition allows per CPU or node.", _SMALLER),
    _never("PartitionConfig", "Its partition does not fit what it asks for.", _SMALLER),
    _never("Constraints", "No nodes fit what it asks for any more.", _SMALLER),
    _never("InactiveLimit", "It was idle for too long.", _ANEW),
    PendingReason(
        "BadConstraints",
        "No nodes fit what it asks for.",
        "never",
        "`rltui nodes` shows features and GPUs; `rltui resubmit {run} --cancel KEY=VALUE` asks for others. With "
        "several partitions this can pass.",
        False,
    ),
    PendingReason(
        "ReqNodeNotAvail",
        "Nodes that it could use are down, drained or reserved, or a maintenance begins before its time limit ends.",
        "wait",
        "`rltui update {run} --time HH:MM:SS` may let it start before a maintenance.",
    ),
    PendingReason(
        "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
        "Nodes that it needs are down, drained, or kept for jobs of a higher partition.",
        "wait",
        "See `rltui nodes` for the reasons of drained nodes.",
    ),
    PendingReason(
        "QOSUsageThreshold", "Your use is over the threshold of its QOS.", "shared", "Wait, or use another QOS."
    ),
    PendingReason("AccountingPolicy", "A limit of your account is reached.", "shared", "Wait, or use another account."),
)
"""Reasons with a meaning of their own."""

FAMILIES: tuple[tuple[str, PendingReason], ...] = (
    (
        r"(?:QOS|Assoc)Max\w*(?:PerJob|PerNode)\w*|(?:QOS|Association)TimeLimit",
        PendingReason("", "It asks for more than {whose} allows for one job.", "never", _SMALLER, False),
    ),
    (
        r"(?:QOS|Assoc)Min\w+",
        PendingReason("", "It asks for less than {whose} wants of a job.", "never", _LARGER, False),
    ),
    (
        r"(?:QOS|Assoc)Max\w*(?:PerUser|Jobs|SubmitJob)\w*|Max\w+RunMinsPerUser|QOSJobLimit|AssociationJobLimit",
        PendingReason("", "Your other jobs use up what {whose} allows you.", "own", "It starts when one of them ends."),
    ),
    (
        r"Max\w+PerAccount",
        PendingReason("", "Your account's jobs use up what {whose} allows.", "shared", "Wait, or use another account."),
    ),
    (
        r"(?:QOS|Assoc)Grp(?!\w*Run)\w*(?:Minutes|Wall)\w*",
        PendingReason("", "The budget of {whose} is used up.", "shared", "Wait for its renewal, or use another."),
    ),
    (
        r"(?:QOS|Assoc)Grp\w*|(?:QOS|Association)ResourceLimit",
        PendingReason("", "Everybody's jobs together reach the limit of {whose}.", "shared", "Wait, or use another."),
    ),
)
"""Reasons named after a limit: whose it is, what of, and per what. The first pattern that fits counts."""

_DETAIL = re.compile(r"unavailable\s?nodes:\s*([A-Za-z0-9._,\[\]-]+)", re.IGNORECASE)


def _key(word: str) -> str:
    return re.sub(r"[\s_]+", " ", word).strip(" ()").lower()


_BY_WORD = {_key(one.word): one for one in TABLE}


def explain_reason(reason: str, run_id: str = "") -> PendingReason:
    """Explain what squeue gives as a pending job's reason, in either spelling; an unknown one is shown as it is.

    Args:
        reason: Slurm's word.
        run_id: The run whose job it is, for the command that helps.
    """
    word = plain(reason).strip()
    if word.startswith("("):
        word = word.strip("()")
    head = re.split(r"[,(:]", word)[0].strip()
    found = _BY_WORD.get(_key(word)) or _BY_WORD.get(_key(head)) or _of_family(head)
    if found is None:
        if not word:
            return PendingReason("", "The scheduler gives no reason.")
        return PendingReason(word, f"The scheduler says {word[:120]!r}.")
    step = found.next_step.replace("{run}", run_id or "RUN")
    return replace(found, word=word, sentence=found.sentence + _detail(word), next_step=step)


def _of_family(word: str) -> PendingReason | None:
    for pattern, reason in FAMILIES:
        if re.fullmatch(pattern, word):
            whose = "your account" if word.startswith("Assoc") else "its QOS"
            return replace(reason, sentence=reason.sentence.format(whose=whose))
    return None


def _detail(word: str) -> str:
    if match := _DETAIL.search(word):
        return f" Not available: {match[1]}."
    if "maintenance" in word.lower():
        return " They are reserved for maintenance."
    return ""
