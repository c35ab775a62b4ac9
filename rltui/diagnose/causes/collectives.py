"""Collective operations: a missing rank told from ranks that took different ways, by what each of them waited for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from msgspec import structs

from rltui.diagnose.cause import Cause
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_WORK = (
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)"
    r"(?:, (?:NumelIn=(?P<numel>\d+)|Tensor[Ss]hape=\[(?P<shape>[\d, ]*)\]))?"
)
_RANKS = (
    "the log of the rank that is missing from the watchdog's lines, and dmesg of its node",
    "torch's flight record (TORCH_FR_BUFFER_SIZE=2000) or py-spy dump of every rank",
)
MOST_RANKS = 1 << 17
"""Above this a number is no rank: lines of several ranks may be written into each other."""

_NCCL_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"


def read_lost_store(hit: Hit) -> Reading | None:
    """The store ends with the first rank; the others' monitor, or a warning at the end, tells that it was so."""
    around = hit.context.around(20, 60)
    return None if re.search(r"destroy_process_group|TCPStore server has shut down", around) else Reading(0.8)


def _waits(matches: Sequence[Match]) -> dict[str, Match]:
    """The first wait that timed out of each rank, by rank."""
    first: dict[str, Match] = {}
    for one in matches:
        rank = one.fields.get("rank") or one.evidence.rank
        if rank and "op" in one.fields:
            first.setdefault(rank, one)
    return first


def nccl_desync(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """Somebody says so, or two ranks wait for different things."""
    if matches:
        return surest(matches)
    waits = list(_waits(all_matches.of("nccl_timeout")).values())
    for index, other in enumerate(waits):
        for one in waits[:index]:
            confidence = _contradiction(one, other, all_matches)
            if confidence:
                words = f"{_wait_in_words(one)}, but {_wait_in_words(other)}"
                return Verdict(confidence=confidence, matches=(one, other), fields={"difference": words})
    return None


def _contradiction(one: Match, other: Match, all_matches: Matches) -> float:
    """How surely two ranks wait for different operations of one process group; each group counts from zero."""
    if all(one.fields.get(name) == other.fields.get(name) for name in ("op", "seq", "numel")):
        return 0.0
    groups = [_group(wait, all_matches) for wait in (one, other)]
    if groups[0] == groups[1]:
        return 0.75
    return 0.6 if "" in groups else 0.0


def _group(wait: Match, all_matches: Matches) -> str:
    """The process group of a wait, from the watchdog's next line; empty where the log has none."""
    for position in all_matches.of("nccl_position"):
        if all(position.fields.get(name) == wait.fields.get(name) for name in ("rank", "seq")):
            return position.fields.get("group", "")
    return ""


def _wait_in_words(match: Match) -> str:
    fields = match.fields
    rank = fields.get("rank") or match.evidence.rank
    return f"rank {rank} waits for {fields['op']} number {fields.get('seq', '?')}"


def nccl_timeout(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """Ranks that wait for the same thing; those that do not complain are named."""
    verdict = surest(matches)
    if verdict is None:
        return None
    missing = _missing_ranks(all_matches.waiting_ranks.get("nccl_timeout", ()))
    words = f"; no word of rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}" if missing else ""
    fields = {"missing": words, **verdict.fields}
    if "op" in fields:
        fields.setdefault("seq", "?")
    return structs.replace(verdict, fields=fields)


def _missing_ranks(waiting: Iterable[str]) -> list[str]:
    """Ranks below the highest that complained which did not; at most four, as many silent ones mean a cut log."""
    heard = {int(rank) for rank in waiting if rank.isdecimal() and int(rank) < MOST_RANKS}
    if len(heard) < 3:
        return []
    missing = sorted(set(range(max(heard) + 1)) - heard)
    return [str(rank) for rank in missing] if len(missing) <= 4 else []


CAUSES = (
    Cause(
        id="nccl_timeout",
        tier="effect",
        recovery="restart",
        title="A collective operation waited in vain for a rank",
        detail="{op} number {seq}{missing}",
        tell="All ranks that complain name the same operation and number: somebody did not come. The rank that is "
        "missing from the complaints is the one to look at.",
        wordings=(
            Wording(
                anchor="caught collective opera",  # often the last words of a log that was cut off
                words=("caught",),
                pattern=rf"(?:\[Rank (?P<rank>\d+)\].*)?[Cc]aught collective opera(?:tion timeout(?:: {_WORK})?|\w*$)",
                confidence=0.9,
            ),
            *worded(
                ("detected by watchdog at work", ""),
                ("nccl work", r"(?i)timeout at NCCL work"),
                ("", r"\bE(?:I000[26]|E1002): ", "ei ee"),  # Ascend: a notify, a socket or a stream waited for in vain
                ("nccl operations have failed or timed out", ""),
                ("flight recorder dumps", r"(?i)timed out after waiting for \d+ ?ms flight recorder dumps"),
                ("collective timeout", r"(?i)dump signal due to a collective timeout|due to (?:a )?collective timeout"),
                (
                    "heartbeat",
                    r"(?i)nccl.{0,80}heartbeat monitor.{0,40}(?:timed out|timeout)|Heartbeat monitor timed "
                    r"out",
                ),
                ("nccl communicator was aborted", r"(?i)nccl communicator was aborted"),
                ("nccluniqueid", r"(?i)retr(?:ie|ei)ving ncclUniqueId.{0,200}(?:timeout|timed out|Socket Timeout)"),
                ("wait timeout", r"(?i)(?:nccl|DistBackendError|process group).{0,200}wait timeout after"),
                ("collective", r"(?i)\bcollective\b.{0,80}\btimed out\b|\btimed out\b.{0,80}\bcollective\b"),
                ("nccl", r"(?i)\bnccl (?:watchdog )?timeout\b"),
                ("worknccl", r"WorkNCCL\(.{0,300}timed out (?:in blocking wait|after \d)"),
                ("heartbeat of its watchdog", r"detected no heartbeat of its watchdog"),
                ("dump debug info", r"(?i)after attempting to dump debug info, due to collective timeout"),
                confidence=0.8,
                unless=r"(?i)set to|default(?!_pg)|NCCL_TIMEOUT|to avoid|increase|with exception: CUDA error",
            ),
            *worded(
                ("watchdog thread terminated with exception", r"watchdog thread terminated with exception: \[Rank"),
                confidence=0.8,
            ),
            *worded(
                ("watchdog got stuck", r"(?i)watchdog got stuck for \d+ ?s"),
                ("watchdog hang", r"due to ProcessGroup\w+ watchdog hang"),
                confidence=0.8,
            ),
            *worded(
                ("some nccl operations have failed or timed out", ""),
                confidence=0.6,
            ),
        ),
        weigh=nccl_timeout,
        remedies=(
            Remedy(
                id="find-missing-rank",
                summary="Find the rank that did not come and its node; if the node has an Xid or failed, exclude "
                "it and resubmit.",
                commands=("py-spy dump --pid <pid>", "sbatch --exclude=<node> …"),
                safe="confirm",
            ),
            Remedy(id="restart-once", summary="Restart once from the newest checkpoint.", safe="confirm"),
        ),
        wrong=(
            "A longer timeout: one user waited five hours instead of thirty minutes for the same hang. It is right "
            "only "
            "where the step is known to be slow.",
            "GPU utilization as a sign of life: it shows 100 % while a collective is stuck; power and tokens tell.",
        ),
        collect=_RANKS,
        sources=("https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html", _NCCL_DOC),
    ),
    Cause(
        id="nccl_desync",
        tier="root",
        title="Ranks called different collectives: the program took different ways on them",
        detail="{difference}",
        tell="At one number, or in one group, ranks name different operations or sizes; or NCCL or torch say mismatch.",
        wordings=worded(
            # DeepSpeed ZeRO-3, which gathers parameters in the order of the first pass
            ("parameter fetch queue", ""),
            ("mismatched collective", r"(?i)mismatched collective"),
            ("collective", r"(?i)mismatch(?:es)? between collectives|collective mismatch", "collective collectives"),
            ("running collective", r"(?i)rank \d+ is running collective.{0,400}but rank \d+ is running collective"),
            (
                "desync",
                r"(?i)desync(?:hronized|ed)? (?:detected|report|between ranks)|caused the desync|ranks? (?:are|is) "
                r"desync",
                "desync desynced desynchronized",
            ),
            ("has different values for", r"Rank \d+ has different values for \w+: "),
            ("disagreement between", r"disagreement between rank\d+ and rank\d+: "),
            ("detected a disagreement on", r"a disagreement on list \w+ between rank0 and rank\d"),
            ("message truncated", r"NCCL WARN.*[Mm]essage truncated ?:"),
            ("desync:", r"^desync: (?P<difference>at number .+)"),
            confidence=0.9,
            unless=r"(?i)DESYNC_DEBUG\b.{0,20}[=:]|set to|enabled",
        ),
        weigh=nccl_desync,
        explains=frozenset({"nccl_timeout"}),
        remedies=(
            Remedy(
                id="find-the-branch",
                summary="Find the branch that depends on the rank or on its data (empty batches, uneven steps, "
                "errors caught on one rank).",
                commands=("export TORCH_DISTRIBUTED_DEBUG=DETAIL",),
                safe="never",
            ),
        ),
        wrong=("A longer timeout or a restart: the same branch is taken again.",),
        collect=_RANKS,
        sources=("NVIDIA/nccl#1409", "pytorch/pytorch#118369"),
    ),
    Cause(
        id="gloo_timeout",
        tier="effect",
        recovery="restart",
        title="Processes lost each other over TCP (gloo or torch's store)",
        tell="A peer closed or reset the connection, or did not come to the rendezvous in time.",
        wordings=(
            *worded(
                ("connectfullmesh", r"(?i)connectFullMesh failed"),
                (
                    "gloo",
                    r"(?i)gloo.{0,200}(?:timed out|(?:connect|read|write|socket) timeout|Connection closed by peer|"
                    r"Connection reset|Read error|Broken pipe|"
                    r"Connection refused|SO_ERROR|timeout caused pair closure|"
                    r"Unable to find (?:address|interface) for)",
                ),
                (
                    "monitoredbarrier",
                    r"(?i)failed to pass monitoredBarrier|monitoredBarrier.{0,80}(?:timed out|timeout|received errors)",
                ),
                ("waiting for clients", r"(?i)timed out after \d+ seconds waiting for clients"),
                ("client socket has timed out", r"(?i)client socket has timed out after \d+"),
                ("failed to connect to any network address", r"socket has failed to connect to any network address of"),
                (
                    "",
                    r"(?i)(?:tcpstore|DistNetworkError).{0,200}(?:timed? ?out|Socket Timeout|Connection reset|"
                    r"failed to recv|Broken pipe)",
                    "tcpstore distnetworkerror",
                ),
                (
                    "nccluniqueid",
                    r"(?i)retr(?:ie|ei)ving ncclUniqueId.{0,200}"
                    r"(?:failed to recv|connection reset|broken pipe|connection closed)",
                ),
                ("unbound_buffer", r"unbound_buffer\.cc:\d+\] Timed out waiting"),
                ("wait timeout", r"(?i)wait timeout after \d+ms, keys:"),
                ("distnetworkerror", r"(?i)DistNetworkError:.{0,120}(?:timed out|failed to connect|refused)"),
                ("diststoreerror", ""),
                ("check failed", r"Check failed: .{0,200}\b[Cc]onnection (?:refused|reset|timed out|closed)\b"),
                ("on socketimpl", r"(?:Error|Exception): .{0,80}(?:send|recv)\w+ failed on SocketImpl"),
                ("members to join", r"(?i)timed out waiting for all \d+ members to join"),
                ("barrier", r"RuntimeError: Barrier (?:departure )?timed out after \d"),
                ("waitforinput", r"waitForInput: .{0,300}(?:timed out after \d|likely a timeout)"),
                ("store based barrier", r"(?i)timed out initializing process group in store based barrier"),
                (
                    "rendezvous",
                    r"(?i)rendezvous(?:timeout|connection)error|rendezvous.{0,80}timed "
                    r"out",
                    "rendezvous rendezvoustimeouterror rendezvousconnectionerror",
                ),
                confidence=0.8,
                unless=r"EADDRINUSE|Address already in use|TCPStore server has shut down|recvValue|"
                r"sendBytes failed.{0,200}\): ",
            ),
            Wording(
                anchor="",
                words=("recvvalue", "sendbytes"),
                pattern=r"(?i)(?:recvValue|sendBytes failed on .{0,200}\):).{0,200}"
                r"(?:timed? ?out|Connection reset|failed to recv|Broken pipe)",
                check=read_lost_store,
            ),
        ),
        remedies=(
            Remedy(
                id="name-the-interface",
                summary="Name the interface that the nodes share, and look for the rank that is late or dead.",
                commands=("export GLOO_SOCKET_IFNAME=<interface> NCCL_SOCKET_IFNAME=<interface>",),
                safe="auto",
            ),
        ),
        wrong=("A longer timeout where a peer is dead.",),
        collect=_RANKS,
        sources=("https://docs.pytorch.org/docs/stable/distributed.html#common-environment-variables",),
    ),
)

STATES = {
    "nccl_position": (
        Wording(
            anchor="detected by watchdog at work",
            pattern=r"(?:PG (?:ID )?(?P<group>\S+).*)?Rank (?P<rank>\d+)\].*watchdog at work: (?P<seq>\d+)"
            r"(?:, last enqueued NCCL work: (?P<enqueued>-?\d+), last completed NCCL work: (?P<completed>-?\d+))?",
        ),
    ),
}
