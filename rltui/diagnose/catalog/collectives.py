"""NCCL and gloo: most of what they report is that somebody else is gone."""

from __future__ import annotations

from rltui.diagnose import collective_judges as judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Remedy

_RANKS = (
    "the log of the rank that is missing from the watchdog's lines, and dmesg of its node",
    "a flight recorder dump (TORCH_NCCL_TRACE_BUFFER_SIZE=2000) or py-spy dump of every rank",
)
_NCCL_DOC = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

CAUSES = (
    Cause(
        id="nccl_timeout",
        tier="effect",
        title="A collective operation waited in vain for a rank",
        detail="{op} number {seq}{missing}",
        tell="All ranks that complain name the same operation and number: somebody did not come. The rank that is "
        "missing from the complaints is the one to look at.",
        remedies=(
            Remedy(
                id="find-missing-rank",
                summary="Find the rank that did not come and its node; if the node has an Xid or failed, exclude it "
                "and resubmit.",
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
        judge=judges.nccl_timeout,
        sources=("https://docs.pytorch.org/tutorials/unstable/flight_recorder_tutorial.html", _NCCL_DOC),
    ),
    Cause(
        id="nccl_desync",
        tier="root",
        title="Ranks called different collectives: the program took different ways on them",
        detail="{difference}",
        tell="At one number, or in one group, ranks name different operations or sizes; or NCCL or torch say mismatch.",
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
        judge=judges.nccl_desync,
        explains=frozenset({"nccl_timeout"}),
        sources=("NVIDIA/nccl#1409", "pytorch/pytorch#118369"),
    ),
    Cause(
        id="nccl_system_error",
        tier="effect",
        title="NCCL could not connect: interface, firewall, or a node that is gone",
        tell="A failed system call with its reason (no route, refused, timed out), or bridges such as br-… and veth… "
        "among "
        "the interfaces NCCL uses.",
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
        explains=frozenset({"nccl_timeout"}),
        sources=(_NCCL_DOC, "NVIDIA/nccl#697"),
    ),
    Cause(
        id="nccl_ib_error",
        tier="effect",
        title="InfiniBand gave up on a peer",
        detail="peer {peer}, status {status}",
        tell="Status 12 (vendor error 129) means that retries ran out: link or peer. Status 5 (249) are requests "
        "flushed "
        "after an earlier error.",
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
        judge=judges.nccl_ib_error,
        collect=("the first of these lines by time: later ones are flushes", *_RANKS),
        explains=frozenset({"nccl_timeout", "nccl_system_error"}),
        sources=(_NCCL_DOC, "NVIDIA/nccl#1664"),
    ),
    Cause(
        id="nccl_duplicate_gpu",
        tier="root",
        title="Two ranks share one GPU",
        detail="ranks {one} and {other}",
        tell="NCCL refuses and names both ranks.",
        remedies=(
            Remedy(
                id="bind-devices",
                summary="Bind each rank to its own device and check the layout; older Ray (before 2.40) could put "
                "two workers on one GPU.",
                safe="never",
            ),
        ),
        wrong=("A patched NCCL with an ignore flag: the layout error stays, and bandwidth goes.",),
        explains=frozenset({"nccl_system_error", "nccl_timeout", "gloo_timeout", "ray_actor_died"}),
        sources=("verl-project/verl#161", "huggingface/trl#3158"),
    ),
    Cause(
        id="nccl_lib_mismatch",
        tier="root",
        title="Another NCCL than torch's was loaded",
        tell="An undefined nccl symbol, or two different versions in one job.",
        remedies=(
            Remedy(
                id="clean-library-path",
                summary="Take foreign NCCLs out of LD_LIBRARY_PATH and LD_PRELOAD; use the nvidia-nccl package torch "
                "came with.",
                commands=("python -c 'import torch; print(torch.cuda.nccl.version())'", "echo $LD_LIBRARY_PATH"),
                safe="never",
            ),
        ),
        wrong=("Preloading the system's NCCL.",),
        judge=judges.nccl_lib_mismatch,
        sources=("NVIDIA/nccl#1180",),
    ),
    Cause(
        id="gloo_timeout",
        tier="effect",
        title="Processes lost each other over TCP (gloo or torch's store)",
        tell="A peer closed or reset the connection, or did not come to the rendezvous in time.",
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
