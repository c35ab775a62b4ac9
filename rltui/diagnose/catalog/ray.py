"""Ray: its processes, its scheduling, its ports, its store, its memory monitor."""

from __future__ import annotations

from rltui.diagnose import ray_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.verdicts import Remedy

_LOGS = (
    "worker-<id>.err and raylet.out of the named pid on the named node, in Ray's session_latest/logs",
    "dmesg of that node: kernel kills and Xid events",
    "ulimit -u and ulimit -n as the job sees them",
)

CAUSES = (
    Cause(
        id="ray_oom_kill",
        tier="site",
        title="Ray's memory monitor killed workers because the node ran out of host memory",
        tell="Ray names its threshold (0.95 of the node's memory) or counts workers killed due to memory pressure.",
        remedies=(
            Remedy(
                id="more-host-memory",
                summary="Ask for all memory of the node, run fewer rollout and data-loader workers, and offload less.",
                commands=("sbatch --mem=0 …",),
                safe="confirm",
            ),
            Remedy(
                id="threshold-last",
                summary="As a last resort raise Ray's threshold to 0.98; the kernel's own killer is next.",
                commands=("export RAY_memory_usage_threshold=0.98",),
                safe="confirm",
            ),
        ),
        wrong=(
            "A smaller GPU batch: this is host memory.",
            "Switching the monitor off: the kernel then kills something at random.",
        ),
        explains=frozenset(
            {"ray_actor_died", "engine_core_died", "dataloader_killed", "nccl_timeout", "host_oom_slurm"}
        ),
        sources=("https://docs.ray.io/en/latest/ray-core/scheduling/ray-oom-prevention.html",),
    ),
    Cause(
        id="ray_actor_died",
        tier="wrapper",
        title="A Ray worker died; Ray only knows that its connection ended",
        tell="SYSTEM_ERROR with 'End of file' says no more than that. Ray's list of possible reasons, the OOM killer "
        "first, is the same for every death. A thread limit shows as 'Resource temporarily unavailable'.",
        remedies=ray_judges.actor_remedies,
        wrong=("Believing the OOM hint without a line of the kernel or of Ray's monitor.",),
        collect=_LOGS,
        judge=ray_judges.ray_actor_died,
        sources=("https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html", "verl-project/verl#472"),
    ),
    Cause(
        id="ray_pg_infeasible",
        tier="root",
        title="Ray has not got the resources that were asked for",
        detail="{demand} cannot be placed",
        tell="Ray names a demand that no node, or not enough nodes, can hold. A demand of a few hundredths of a node's "
        "own resource is noise of the autoscaler.",
        remedies=(
            Remedy(
                id="compare-resources",
                summary="Compare the GPUs Ray has with those the layout asks for; wait for late nodes, then fix the "
                "layout.",
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
    Cause(
        id="ray_head_unreachable",
        tier="root",
        title="Ray's head did not answer",
        detail="at {address}",
        tell="Connections to the GCS fail. An address that begins with a colon was put together from an empty "
        "variable; "
        "'srun: job queued' inside a job means that a new job was asked for instead of a step.",
        remedies=(
            Remedy(
                id="check-address",
                summary="Print the head's address; take it from the interface that the nodes share, with a new port.",
                commands=("ip -o -4 addr show", "ray start --head --node-ip-address=<address> --port=<port>"),
                safe="auto",
            ),
        ),
        wrong=("Longer sleeps between head and workers: wait for the port instead, with a deadline.",),
        explains=frozenset({"ray_actor_died"}),
        judge=ray_judges.ray_head_unreachable,
        sources=("ModalMinds/MM-EUREKA#54", "ray-project/ray#43778"),
    ),
    Cause(
        id="ray_port_in_use",
        tier="root",
        title="Another Ray on this node holds the port, so two clusters got mixed up",
        tell="Session names that do not match, or a GCS that cannot bind its port.",
        remedies=(
            Remedy(
                id="own-ports",
                summary="Derive all of Ray's ports from the job's id, and test the bind first.",
                safe="auto",
            ),
        ),
        wrong=("ray stop --force on a shared node: it ends your other runs too.",),
        explains=frozenset({"port_in_use", "ray_head_unreachable", "ray_version_mismatch", "ray_actor_died"}),
        sources=("https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations",),
    ),
    Cause(
        id="ray_version_mismatch",
        tier="root",
        title="The Ray cluster was started with another Ray or Python",
        tell="Ray prints both versions.",
        remedies=(
            Remedy(
                id="same-environment",
                summary="Activate the same environment in every step, and keep away from stale clusters with own "
                "port and folder.",
                safe="auto",
            ),
        ),
        wrong=("RAY_IGNORE_VERSION_MISMATCH: workers then fail to register.",),
        explains=frozenset({"ray_head_unreachable", "ray_actor_died"}),
        sources=("Unakar/Logic-RL#30",),
    ),
    Cause(
        id="ray_socket_path",
        tier="root",
        title="The path of a Unix socket is too long",
        tell="Linux allows 107 bytes, and Ray adds about 62 to its folder.",
        remedies=(
            Remedy(
                id="short-tmpdir",
                summary="Use a temporary folder of at most 40 bytes.",
                commands=("export RAY_TMPDIR=/tmp/r$SLURM_JOB_ID TMPDIR=/tmp/r$SLURM_JOB_ID",),
                safe="auto",
            ),
        ),
        wrong=("A symbolic link to a long path: the kernel counts the path as written by Ray, which resolves it.",),
        sources=("ray-project/ray#7945",),
    ),
    Cause(
        id="ray_disk_full",
        tier="aside",
        title="The disk under Ray's folder is nearly full",
        detail="{available} free",
        tell="Ray warns at 95 %, which on a large disk may still be plenty: the free bytes decide.",
        remedies=(
            Remedy(
                id="clean-own-sessions",
                summary="Remove your own old Ray sessions and put Ray's folder on the node's local scratch.",
                commands=("find /tmp/ray -maxdepth 1 -name 'session_*' -user $USER -mtime +1",),
                safe="confirm",
            ),
        ),
        wrong=("Switching the monitor off.",),
        sources=("https://docs.ray.io/en/latest/ray-core/objects/object-spilling.html",),
    ),
    Cause(
        id="ray_shm_too_small",
        tier="root",
        title="/dev/shm is too small for Ray's object store",
        tell="Ray compares the configured store with /dev/shm, or falls back to /tmp.",
        remedies=(
            Remedy(
                id="larger-shm",
                summary="Give the container more shared memory, or Ray a smaller store.",
                commands=("docker run --shm-size=64g …", "ray start --object-store-memory=<bytes> …"),
                safe="auto",
            ),
        ),
        wrong=("RAY_OBJECT_STORE_ALLOW_SLOW_STORAGE=1: it works, and crawls.",),
        sources=("https://docs.ray.io/en/latest/ray-core/scheduling/memory-management.html",),
    ),
)
