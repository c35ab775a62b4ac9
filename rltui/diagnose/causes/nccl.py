"""NCCL itself: its network, its devices, its library."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause
from rltui.diagnose.matches import Match, Matches, Verdict, surest
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_RANKS = (
    "the log of the rank that is missing from the watchdog's lines, and dmesg of its node",
    "a flight recorder dump (TORCH_NCCL_TRACE_BUFFER_SIZE=2000) or py-spy dump of every rank",
)
_NCCL_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
_REMOTE_ERROR = 0.65
"""Confidence of the wording ``ncclRemoteError``."""
_VIRTUAL = re.compile(r"\b(?:br-[0-9a-f]{6,}|veth[0-9a-f]+|docker\d+|virbr\d+|cni\d+|flannel\S*|cali[0-9a-f]+):")


def read_socket_interfaces(hit: Hit) -> Reading | None:
    """Bridges and veth pairs of containers look like interfaces and lead nowhere; NCCL lists what it uses.

    One alone stands on many a host that works: two or more speak.
    """
    listed = [
        hit.context.line.text,
        *(
            line.text
            for line in hit.context.after(20)
            if re.match(
                r"\s*\["
                r"\d+\]",
                line.text,
            )
        ),
    ]
    return Reading(0.65) if sum(len(_VIRTUAL.findall(text)) for text in listed) > 1 else None


def read_loaded_version(hit: Hit) -> Reading | None:
    """torch.cuda.nccl.version() prints a tuple on the line after it."""
    for line in hit.context.after(2):
        match = re.match(r"\s*\(2, (\d+), \d+\)", line.text)
        if match is not None:
            return Reading(0.6, fields={"minor": match[1]})
    return None


def nccl_ib_error(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """A remote error is what NCCL reports of any peer that went; where sockets failed it says nothing of InfiniBand."""
    said_so = [one for one in matches if one.confidence > _REMOTE_ERROR]
    if not said_so and all_matches.of("nccl_system_error"):
        return None
    return surest(matches)


def nccl_lib_mismatch(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """Somebody says so, or a listing of the environment shows two NCCLs: of two CUDAs, or not the one torch loaded."""
    if matches:
        return surest(matches)
    packages = {one.fields["cuda"]: one for one in all_matches.of("nccl_package")}
    if len(packages) > 1:
        return Verdict(confidence=0.55, matches=tuple(packages.values()))
    loaded, system = all_matches.of("nccl_loaded"), all_matches.of("nccl_system")
    if not loaded or not system or loaded[0].fields["minor"] == system[0].fields["minor"]:
        return None
    return Verdict(confidence=0.65, matches=(*system[:1], *loaded[:1]))


CAUSES = (
    Cause(
        id="nccl_system_error",
        tier="effect",
        recovery="restart",
        title="NCCL or NVSHMEM could not connect: interface, firewall, or a node that is gone",
        tell="A failed system call with its reason (no route, refused, timed out), or bridges such as br-… and "
        "veth… among the interfaces NCCL uses.",
        wordings=(
            *worded(
                ("ncclsystemerror", ""),
                ("unhandled system error", ""),
                ("remote process exited or there was a network error", ""),  # ncclRemoteError
                ("no socket interface found", r"Bootstrap ?: no socket interface found"),
                (
                    "nccl warn",
                    r"NCCL WARN.{0,40}(?:No usable listening interface|No transport found for rank|"
                    r"socket progress error|Could not find any local path from gpu)",
                ),
                ("nics of only one link type", ""),
                (
                    "nccl warn",
                    r"NCCL WARN.{0,200}(?:Connection refused|No route to host|timed out|Network is unreachable|"
                    r"Connection "
                    r"reset|Connection closed|Broken pipe|shared memory|/dev/shm/|Bad address)",
                ),
                ("", r"socket\.(?:h|cc):\d+.{0,20}WARN.{0,200}(?:failed|refused|No route|timed out|closed)", "socket"),
                (
                    "nccl warn",
                    r"NCCL WARN.{0,40}(?:Bootstrap|NET/Socket|Net|socket\w*) ?:? .{0,120}(?:no socket interface|no "
                    r"interface "
                    r"found|failed|timeout)",
                ),
                (
                    "",
                    r"socket(?:StartConnect|PollConnect|Progress(?:Opt)?|Recv|Send|Accept|"
                    r"TryAccept)\b.{0,160}(?:failed|refused|closed|"
                    r"exceeded)",
                    "socketstartconnect socketpollconnect socketprogress socketprogressopt socketrecv socketsend "
                    "socketaccept "
                    "sockettryaccept",
                ),
                (
                    "call to",
                    r"\bCall to (?:recv|recvmsg|send|connect|accept|bind|listen|poll)\b.{0,80}(?:failed|returned) ?:? "
                    r"(?:Connection|No route|Network is|Broken pipe|Host is|Cannot assign)",
                ),
                ("nvshmem", r"(?i)nvshmem/\S+: .{0,80}(?:non-zero status: -?\d|\binit\w* failed|unable to init)"),
                ("net", r"(?:^|\s)(?:Net|NET/Socket) ?: Connection closed by remote peer"),
                ("bootstrap root", r"Bootstrap Root : .{0,80}(?:already checked in|mismatch)"),
                ("nccl", r"(?i)nccl.{0,120}(?:No route to host|Network is unreachable|no socket interface found)"),
                confidence=0.85,
                unless=r"(?i)\bretrying\b",
            ),
            *worded(
                ("socketpollconnect", r"NCCL WARN socketPollConnect poll\(\)"),
                ("retrying", r"socketPollConnect.{0,120}retrying \((?P<tries>\d+)/(?P=tries)\)"),
                (
                    "nccl info",
                    r"NCCL INFO (?:bootstrap|init|group|enqueue)\.cc:\d+ -> "
                    r"2\b",
                    "bootstrap init group enqueue",
                ),
                confidence=0.65,
            ),
            Wording(
                anchor="net/socket",
                pattern=r"NET/Socket ?: Using",
                check=read_socket_interfaces,
            ),
        ),
        explains=frozenset({"nccl_timeout"}),
        remedies=(
            Remedy(
                id="name-the-interface",
                summary="Name the interface that the nodes share.",
                commands=("export NCCL_SOCKET_IFNAME=<interface> GLOO_SOCKET_IFNAME=<interface>",),
                safe="auto",
            ),
            Remedy(
                id="exclude-node",
                summary="If one node only is behind the address, exclude it.",
                commands=("sbatch --exclude=<node> …",),
                safe="confirm",
            ),
        ),
        wrong=("NCCL_IB_DISABLE=1 for good: it hides the fault and costs most of the bandwidth.",),
        collect=("NCCL_DEBUG=INFO lines of all ranks: the interfaces in use", *_RANKS),
        sources=(_NCCL_DOC, "NVIDIA/nccl#697"),
    ),
    Cause(
        id="nccl_ib_error",
        tier="effect",
        recovery="restart",
        title="InfiniBand gave up on a peer",
        detail="peer {peer}, status {status}",
        tell="Status 12 (vendor error 129) means that retries ran out: link or peer. Status 5 (249) are requests "
        "flushed after an earlier error.",
        wordings=(
            *worded(
                (
                    "got completion",
                    r"(?i)got completion (?:from peer (?P<peer>[\w.:%]+)(?:<\d+>)? )?(?:with )?(?:error|"
                    r"status)[ =]?(?P<status>\d+)",
                ),
                (
                    "ib",
                    r"(?i)NET/IBP? ?:.{0,160}(?:vendor err \d+|async(?:hronous)? (?:fatal )?(?:event|error)|failed|"
                    r"catastrophic|timed out)",
                    "ib ibp",
                ),
                ("ibv_", r"(?i)(?:call to |WARN.{0,20})ibv_\w+.{0,120}(?:failed|error)|\bibv_\w+ failed with \w"),
                ("got completion with error", r"\bmlx\d: \S+: got completion with error"),  # the driver's library
                ("transport retry", r"(?i)transport retry (?:counter|count) exceeded"),
                ("modify qp", r"(?i)failed to modify QP"),
                ("ibv_wc_", r"IBV_WC_(?!SUCCESS)\w+"),
                confidence=0.85,
                unless=r"No device found|Using \[0\]",
            ),
            *worded(
                ("ncclremoteerror", ""),
                confidence=0.65,
            ),
        ),
        weigh=nccl_ib_error,
        explains=frozenset({"nccl_timeout", "nccl_system_error"}),
        remedies=(
            Remedy(
                id="exclude-peer",
                summary="Find the node of the peer's address, run nccl-tests between the two, and exclude it.",
                commands=("sbatch --exclude=<node> …",),
                safe="confirm",
            ),
            Remedy(
                id="ib-timeout",
                summary="As a mitigation raise NCCL_IB_TIMEOUT by two.",
                commands=("export NCCL_IB_TIMEOUT=22",),
                safe="confirm",
            ),
        ),
        wrong=("Blaming the rank that prints it: it is the one that still lives.",),
        collect=("the first of these lines by time: later ones are flushes", *_RANKS),
        sources=(_NCCL_DOC, "NVIDIA/nccl#1664"),
    ),
    Cause(
        id="nccl_duplicate_gpu",
        tier="root",
        title="Two ranks share one GPU",
        detail="ranks {one} and {other}",
        tell="NCCL refuses and names both ranks.",
        wordings=worded(
            ("duplicate gpu detected", r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+)"),
            ("gpu", r"(?i)\bduplicated? gpu\b", "duplicate duplicated"),
            ("using the same gpu", r"(?i)multiple ranks are using the same gpu"),
            confidence=0.95,
        )
        # vLLM's own wrapper of NCCL keeps its words short; what it refuses at the start is the trainer on its card
        + worded(("nccl error: invalid usage", ""), confidence=0.65),
        explains=frozenset({"nccl_system_error", "nccl_timeout", "gloo_timeout", "ray_actor_died"}),
        remedies=(
            Remedy(
                id="bind-devices",
                summary="Bind each rank to its own device and check the layout; older Ray (before 2.40) could put "
                "two workers on one GPU.",
                safe="never",
            ),
        ),
        wrong=("A patched NCCL with an ignore flag: the layout error stays, and bandwidth goes.",),
        sources=("verl-project/verl#161", "huggingface/trl#3158"),
    ),
    Cause(
        id="rank_numbers",
        tier="root",
        title="The launcher's rank numbers do not fit together",
        detail="rank {rank} of {world}",
        tell="Two processes have one rank, a rank is not below the world size, or RANK and the like are not set. "
        "torchrun, srun and the script each count in their own way, or no launcher started the script. Or processes "
        "of an earlier attempt are left.",
        wordings=worded(
            ("invalid rank requested", r"Invalid rank requested ?: (?P<rank>\d+)/(?P<world>\d+)"),
            ("has already checked in", r"Bootstrap Root : rank (?P<rank>\d+) of (?P<world>\d+) ranks has already"),
            ("nccl warn", r"NCCL WARN .{0,60}(?:(?:[Ii]nvalid|mismatch)\b.{0,20}\brank|\branks? .{0,40}\balready)"),
            ("rank", r"(?i)Error: .{0,80}\brank (?P<rank>\d+)\b.{0,60}world[_ ]size (?:of )?\(?(?P<world>\d+)"),
            confidence=0.9,
        ),
        explains=frozenset({"nccl_system_error", "nccl_timeout", "gloo_timeout"}),
        remedies=(
            Remedy(
                id="one-launcher",
                summary="Let one launcher count: srun starts one torchrun a node (--ntasks-per-node=1), or srun starts "
                "every rank and the script takes SLURM_PROCID and SLURM_NTASKS.",
                safe="never",
            ),
        ),
        wrong=("Another port: the processes find each other, that is how they know.",),
        sources=("Lightning-AI/pytorch-lightning#3029", "Lightning-AI/pytorch-lightning#14986"),
    ),
    Cause(
        id="nccl_lib_mismatch",
        tier="root",
        title="Another NCCL than torch's was loaded",
        tell="An undefined nccl symbol, or two different versions in one job.",
        wordings=worded(
            ("", r"undefined(?: |%20)symbol:(?: |%20)p?nccl\w+", "undefined"),
            (
                "nccl version",
                r"(?i)mismatch(?:ed)? nccl version|nccl version mismatch|"
                r"compiled with nccl version \S+ but is running with nccl",
            ),
            (
                "libnccl.so",
                r"(?i)(?:ImportError|OSError|error while loading).{0,80}libnccl\.so\S*: cannot open shared object",
            ),
            ("libnccl", r"libnccl\S*: version `?\S+'? not found"),
            confidence=0.9,
        ),
        weigh=nccl_lib_mismatch,
        remedies=(
            Remedy(
                id="clean-library-path",
                summary="Take foreign NCCLs out of LD_LIBRARY_PATH and LD_PRELOAD; use the nvidia-nccl package "
                "torch came with.",
                commands=("python -c 'import torch; print(torch.cuda.nccl.version())'", "echo $LD_LIBRARY_PATH"),
                safe="never",
            ),
        ),
        wrong=("Preloading the system's NCCL.",),
        sources=("NVIDIA/nccl#1180",),
    ),
)

STATES = {
    "nccl_package": (Wording(anchor="nvidia-nccl-cu", pattern=r"nvidia-nccl-cu(?P<cuda>\d+)(?:==| +)\d"),),
    "nccl_loaded": (Wording(anchor="nccl.version", check=read_loaded_version),),
    "nccl_system": (Wording(anchor="nccl_version=", pattern=r"NCCL_VERSION=\"?2\.(?P<minor>\d+)\."),),
}
