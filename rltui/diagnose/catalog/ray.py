"""Ray: its processes, its scheduling, its ports, its store, its memory monitor."""

from __future__ import annotations

from rltui.diagnose import ray_judges
from rltui.diagnose.causes import Cause
from rltui.diagnose.signs import Sign, signs
from rltui.diagnose.verdicts import Remedy

_RETRIED = r"(?i)\bretry(?:ing)?\b|will retry|reconnect(?:ed|ing)"

SIGNS = (
    *signs(
        "ray_oom_kill",
        ("killed due to memory pressure", r"(?<!\d)[1-9]\d* Workers.{0,40}killed due to memory pressure"),
        ("memory usage threshold", r"exceeds the memory usage threshold of (?P<threshold>[\d.]+)"),
        "node running low on memory",
        (
            "outofmemoryerror",
            r"ray\.exceptions\.OutOfMemoryError|RayOutOfMemoryError|RayTaskError\(OutOfMemoryError\).*node",
            "outofmemoryerror rayoutofmemoryerror",
        ),
        ("of the memory on node", r"More than \d+% of the memory on node"),
        confidence=0.95,
    ),
    *signs(
        "ray_actor_died",
        ("actordiederror", ""),
        ("rayactorerror", ""),
        ("actorunavailableerror", ""),
        ("workercrashederror", ""),
        ("nodediederror", ""),
        ("actor died unexpectedly", ""),
        ("its worker process has died", ""),
        (
            "worker exit type",
            r"Worker exit type: (?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY|WORKER_DIED)|exit_type[ =]+SYSTEM_ERROR",
        ),
        ("exit_type", r"(?i)exit_type ?[=:] ?SYSTEM_ERROR"),
        ("unexpected system error", r"worker died or was killed while executing a task by an unexpected system error"),
        ("crashed due to other reasons", r"(?<!\d)[1-9]\d* Workers crashed due to other reasons"),
        ("its node has died", r"(?i)actor.{0,60}because its node has died"),
        (
            "raylet",
            r"(?i)raylet (?:process )?(?:died|exited|crashed|has died|terminated) unexpectedly|local raylet died",
        ),
        confidence=0.7,
        unless=r"killed by `?ray\.kill|INTENDED_(?:USER_|SYSTEM_)?EXIT|all references to the actor were removed|"
        r"^\s*except |owner has exited",
    ),
    Sign(
        cause="thread_limit",
        anchor="resource temporarily unavailable",
        pattern=r"(?i)thread: Resource temporarily unavailable|can't start new thread|pthread_create.{0,60}Resource temporarily",
    ),
    Sign(cause="thread_limit", anchor="can't start new thread"),
    Sign(
        cause="ray_pg_infeasible",
        anchor="available node types can",
        pattern=r"No available node types can fulfill resource requests? (?P<demand>\{[^}]*\}|.*)",
        check=ray_judges.read_demand,
        confidence=0.9,
    ),
    Sign(
        cause="ray_pg_infeasible",
        anchor="could not find a node type to satisfy",
        pattern=r"could not find a node type to satisfy the request: \[(?P<demand>\{[^}]*\})",
        check=ray_judges.read_demand,
        confidence=0.8,
    ),
    Sign(
        cause="ray_pg_infeasible",
        anchor="cannot be scheduled right now",
        pattern=r"(?P<demand>\{[^}]*\})?.*cannot be scheduled right now.*?(?P<demand2>\{[^}]*\})?",
        check=ray_judges.read_demand,
        confidence=0.7,
    ),
    Sign(
        cause="ray_pg_infeasible",
        anchor="pending",
        pattern=r"^\s*>?\s*(?P<demand>\{[^}]*\}.{0,40}): \d+\+? pending (?:tasks|placement groups)",
        check=ray_judges.read_demand,
        confidence=0.7,
    ),
    *signs(
        "ray_pg_infeasible",
        ("scheduling_state", r"scheduling_state: (?:NO_RESOURCES|INFEASIBLE)"),
        ("placement group", r"(?i)cannot provide a placement group"),
        (
            "placement group",
            r"(?i)placement group.{0,120}(?:infeasible|not ready|timed out|could not be (?:created|scheduled)|cannot be (?:created|scheduled))",
        ),
        (
            "placement group",
            r"(?i)(?:timed? ?out|failed).{0,60}(?:waiting for|creating|to create).{0,40}placement group",
        ),
        ("unschedulableerror", r"(?:Task|Actor)UnschedulableError", "taskunschedulableerror actorunschedulableerror"),
        (
            "less than total desired gpus",
            r"Total available GPUs (?P<offered>[\d.]+) is less than total desired GPUs (?P<asked>[\d.]+)",
        ),
        ("exceeds the total number of available gpus", ""),
        ("is infeasible", r"(?i)(?:task|actor|bundle|resource request).{0,160}is infeasible"),
        confidence=0.85,
    ),
    Sign(
        cause="ray_pg_infeasible",
        anchor="waiting for creating a placement group",
        pattern=r"placement group of specs for (?P<seconds>\d+) seconds",
        check=ray_judges.read_placement_wait,
    ),
    *signs(
        "ray_head_unreachable",
        ("failed to connect to gcs", r"(?i)failed to connect to GCS(?:.{0,40}address (?P<address>\S+))?"),
        ("unable to connect to gcs", r"(?i)unable to connect to GCS(?: at (?P<address>[\w.:-]+))?"),
        ("from gcs", r"(?i)could not read .{0,60} from GCS|did GCS start successfully"),
        (
            "gcs",
            r"(?i)GCS (?:server )?(?:may have been killed|is (?:down|dead|unreachable)|has (?:failed|died))|GCS failed to (?:check|respond|start)",
        ),
        ("running ray instance", r"Could not find any running Ray instance"),
        ("ray client connection timeout", ""),
        ("connect to redis", r"(?i)(?:unable to|failed to|could not) connect to redis", "redis"),
        ("current node timed out during startup", ""),
        ("register worker", r"(?i)failed to register worker .{0,80}raylet|unable to register worker with raylet"),
        ("system config from raylet", r"(?i)failed to get the system config"),
        ("node_ip_address", r"(?i)can(?:'|no)t find a `?node_ip_address"),
        confidence=0.85,
    ),
    Sign(cause="ray_head_reached", anchor="connected to ray cluster", pattern=r"Connected to Ray cluster"),
    Sign(
        cause="ray_head_unreachable",
        anchor="queued and waiting for resources",
        pattern=r"srun: job \d+ queued and waiting for resources",
        check=ray_judges.read_nested_srun,
    ),
    *signs(
        "ray_port_in_use",
        ("does not match persisted value", r"(?i)session name .{0,120}does not match persisted value"),
        "failed to add any wildcard listeners",
        ("no address added out of total", ""),
        ("already running", r"(?i)ray is trying to start at .{0,80}but is already running"),
        (
            "port",
            r"(?i)(?:ray|gcs|raylet|dashboard|redis|object.?manager|node.?manager).{0,120}(?:port \d+.{0,40}(?:in use|already used|occupied)|trying to use a port number)",
        ),
        ("grpc server", r"(?i)failed to start the grpc server|Check failed: server_"),
        ("failed to bind", r"(?i)(?:ray|gcs|raylet|redis).{0,80}failed to bind"),
        confidence=0.9,
    ),
    *signs(
        "ray_version_mismatch",
        ("version mismatch: the cluster was started with", ""),
        ("version mismatch", r"(?i)(?:ray|python).{0,20}version mismatch|ray.{0,40}version.{0,40}does not match"),
        confidence=0.95,
    ),
    *signs(
        "ray_socket_path",
        ("af_unix path", r"(?i)AF_UNIX path (?:length cannot exceed|too long)"),
        ("path too long", r"(?i)(?:unix|socket).{0,60}path (?:name )?(?:is )?too long"),
        confidence=0.95,
    ),
    *signs(
        "ray_disk_full",
        ("object creation will fail", r"(?i)object creation will fail"),
        ("% full", r"is over [\d.]+% full, ?(?:available space: (?P<available>\d+|[\d.]+ ?GB))?"),
        ("outofdiskerror", r"OutOfDiskError"),
        ("local disk", r"(?i)ray.{0,80}local disk .{0,40}full"),
        confidence=0.85,
    ),
    *signs(
        "ray_shm_too_small",
        ("exceeds /dev/shm size", ""),
        ("/dev/shm has only", r"(?i)/dev/shm has only (?P<held>\d+) bytes"),
        ("plasma", r"(?i)plasma.{0,80}(?:no space left|failed to (?:allocate|create|mmap|extend))"),
        confidence=0.75,
    ),
)

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
                summary="Compare the GPUs Ray has with those the layout asks for; wait for late nodes, then fix the layout.",
                commands=("ray status",),
                safe="auto",
            ),
            Remedy(
                id="count-gpus",
                summary="If Ray counts no GPU, start it with --num-gpus and look at CUDA_VISIBLE_DEVICES and the job's gres.",
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
        tell="Connections to the GCS fail. An address that begins with a colon was put together from an empty variable; "
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
                summary="Activate the same environment in every step, and keep away from stale clusters with own port and folder.",
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
