"""How they say it: Ray."""

from rltui.diagnose import ray_judges
from rltui.diagnose.signs import Sign, signs

_RETRIED = r"(?i)\bretry(?:ing)?\b|will retry|reconnect(?:ed|ing)"

SIGNS = (
    *signs(
        "ray_oom_kill",
        (
            "killed due to memory pressure",
            r"^(?!.*(?<!\d)0 Workers[^,]{0,40}killed due to memory).*killed due to memory pressure",
        ),
        ("memory usage threshold", r"exceeds the memory usage threshold of (?P<threshold>[\d.]+)"),
        "node running low on memory",
        (
            "outofmemoryerror",
            r"ray\.exceptions\.OutOfMemoryError|RayOutOfMemoryError|RayTaskError\(OutOfMemoryError\).*node",
            "outofmemoryerror rayoutofmemoryerror",
        ),
        ("ray-oom-prevention", ""),
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
        ("ownerdiederror", ""),
        ("objectlosterror", ""),
        ("node it was running on is dead", ""),
        ("node is dead because", r"(?i)node is dead because the health check failed"),
        ("worker exits unexpectedly", ""),
        ("actor died unexpectedly", ""),
        ("ray processes died unexpectedly", ""),
        ("processes that were started by ray exited", ""),
        ("exited unexpectedly", r"(?i)ray (?:sub)?processes (?:have )?exited unexpectedly"),
        ("marked dead", r"(?i)node .{0,300}has been marked dead"),
        ("its worker process has died", ""),
        (
            "worker exit type",
            r"Worker exit type: (?:SYSTEM_ERROR|NODE_OUT_OF_MEMORY|WORKER_DIED)",
        ),
        ("exit_type", r"(?i)exit_type ?[=:] ?SYSTEM_ERROR"),
        ("worker died or was killed", r"worker died or was killed while executing (?:a )?task"),
        ("crashed due to other reasons", r"(?<!\d)[1-9]\d* Workers crashed due to other reasons"),
        ("its node has died", r"(?i)actor.{0,60}because its node has died"),
        (
            "raylet",
            r"(?i)raylet (?:process )?(?:died|exited|crashed|has died|terminated) (?:unexpectedly|with exit code)|"
            r"local raylet died|raylet is terminated",
        ),
        confidence=0.7,
        unless=r"killed by `?ray\.kill|INTENDED_(?:USER_|SYSTEM_)?EXIT|all references to the actor were removed|"
        r"^\s*except |owner has exited",
    ),
    Sign(
        cause="thread_limit",
        anchor="resource temporarily unavailable",
        pattern=r"(?i)(?:thread: |Thread creation failed: |pthread_create.{0,60}|fork.{0,40}|"
        r"BlockingIOError.{0,40})Resource temporarily unavailable",
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
        check=ray_judges.read_demand,
        confidence=0.7,
    ),
    Sign(
        cause="ray_pg_infeasible",
        anchor="pending",
        pattern=r"^\s{0,20}>?\s{0,20}(?P<demand>\{[^{}]{0,300}\}.{0,40}): \d+\+? pending (?:tasks|placement groups)",
        check=ray_judges.read_demand,
        confidence=0.7,
    ),
    *signs(
        "ray_pg_infeasible",
        ("scheduling_state", r"scheduling_state: (?:NO_RESOURCES|INFEASIBLE)"),
        ("placement group", r"(?i)cannot provide a placement group"),
        (
            "placement group",
            r"(?i)placement group.{0,120}(?:infeasible|not ready|timed out|could not be (?:created|scheduled)|cannot "
            r"be (?:created|scheduled))",
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
        ("tasks with infeasible resource requests", ""),
        (
            "parallel size",
            r"(?i)tensor[ _]parallel[ _]size.{0,30}(?:(?:exceeds|larger than)[^.]{0,40}available gpus|"
            r"less than max local gpu count)",
        ),
        ("parallel_size", r"(?i)tensor_parallel_size.{0,30}less than max local gpu count"),
        ("no gpu available", r"(?i)node has no GPU available"),
        ("cannot fit into any bundles", ""),
        ("placement group", r"(?i)placement group was not ready within"),
        ("is infeasible", r"(?i)(?:task|actor|bundle|resource request).{0,160}is infeasible"),
        confidence=0.85,
    ),
    Sign(cause="ray_pg_infeasible", anchor="gettimeouterror", check=ray_judges.read_get_timeout),
    Sign(
        cause="ray_pg_infeasible",
        anchor="waiting for creating a placement group",
        pattern=r"Waiting for creating a placement group of specs for (?P<seconds>\d+) seconds",
        check=ray_judges.read_placement_wait,
    ),
    *signs(
        "ray_head_unreachable",
        ("failed to connect to gcs", r"(?i)failed to connect to GCS(?:.{0,40}address (?P<address>[\w.:-]*\w))?"),
        ("unable to connect to gcs", r"(?i)unable to connect to GCS(?: at (?P<address>[\w.:-]*\w))?"),
        ("gcs", r"(?i)could not read .{0,60} from GCS|did GCS start successfully"),
        ("reconnect to gcs", ""),
        ("connect to ray cluster at", r"(?i)failed to connect to ray cluster at (?P<address>[\w.:-]*\w)"),
        (
            "gcs",
            r"(?i)GCS (?:server )?(?:may have been killed|is (?:down|dead|unreachable)|has (?:failed|died))|GCS "
            r"failed to (?:check|respond|start)",
        ),
        ("running ray instance", r"Could not find any running Ray instance"),
        ("ray client connection timeout", ""),
        ("connect to redis", r"(?i)(?:unable to|failed to|could not) connect to redis", "redis"),
        ("current node timed out during startup", ""),
        ("ray expects this ip", r"(?i)ray expects this IP to be either the GCS address or one of the Raylet"),
        ("cluster id from gcs", r"(?i)failed to get cluster id from gcs"),
        ("node_ip_address.json", r"(?i)timed out.{0,80}node_ip_address\.json"),
        ("register worker", r"(?i)failed to register worker .{0,80}raylet|unable to register worker with raylet"),
        ("system config", r"(?i)failed to get (?:the )?system config"),
        "failed to start gcs",
        ("waiting for gcs", r"(?i)timed out (?:while )?waiting for GCS"),
        ("global state", r"Timed out (?:while )?waiting for global state"),
        ("nodes to start", r"(?i)timed out waiting for (?:the )?other nodes to start"),
        ("head node to start", r"(?i)timed out waiting for (?:the )?head node to start"),
        ("node info", r"(?i)(?:no|failed to get|timed out waiting for) node info (?:found|for)"),
        ("node_ip_address", r"(?i)can(?:'|no)t find a `?node_ip_address"),
        confidence=0.85,
    ),
    Sign(
        cause="ray_head_unreachable",
        anchor="gcs cannot find the node",
        check=ray_judges.read_node_info,
    ),
    Sign(cause="ray_head_reached", anchor="connected to ray cluster", check=ray_judges.read_head_reached),
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
            r"(?i)(?:ray|gcs|raylet|dashboard|redis|object.?manager|node.?manager).{0,120}(?:port \d+.{0,40}(?:in "
            r"use|already used|occupied)|trying to use a port number)",
        ),
        ("failed to start the grpc server", ""),
        ("check failed: server_", ""),
        ("already occupied", r"(?i)failed to bind to \S+ because it's already occupied"),
        ("failed to bind", r"(?i)(?:ray|gcs|raylet|redis).{0,80}failed to bind"),
        confidence=0.9,
    ),
    *signs(
        "ray_version_mismatch",
        ("version mismatch: the cluster was started with", ""),
        ("versions differ between client and server", ""),
        ("incompatible with server", r"(?i)client ray installation incompatible with server"),
        ("version mismatch", r"(?i)(?:ray|python).{0,20}version mismatch"),
        ("does not match", r"(?i)\bray\b.{0,40}version.{0,40}does not match"),
        confidence=0.95,
        unless=r"(?i)\bpatch version mismatch",  # a warning
    ),
    *signs(
        "ray_socket_path",
        ("af_unix path", r"(?i)AF_UNIX path (?:length cannot exceed|too long)"),
        ("too long", r"(?i)(?:unix|socket).{0,60}path (?:name )?(?:is )?too long"),
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
