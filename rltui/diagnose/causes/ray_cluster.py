"""Ray coming up: its head, its ports, its versions, its sockets."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rltui.diagnose.cause import Cause
from rltui.diagnose.matches import Match, Matches, Verdict, surest, unless_followed_by
from rltui.diagnose.verdicts import Remedy
from rltui.diagnose.wording import Hit, Reading, Wording, worded

_SOON_LINES = 200
_NEXT_LINES = 12


def read_nested_srun(hit: Hit) -> Reading | None:
    """Inside a batch job, srun makes steps; one that queues has lost its job's environment and asks for a new job."""
    before = hit.context.above(6)
    return Reading(0.65) if re.search(r"(?i)\bray start\b|\bIP head\b|starting (?:head|worker)", before) else None


def read_node_info(hit: Hit) -> Reading | None:
    """A node that starts asks the head for itself again and again, until the head knows it or time is up."""
    after = "\n".join(line.text for line in hit.context.after(12))
    return None if "Ray runtime started" in after else Reading(0.7)


_SET_UP = 0.65
"""Confidence of wordings that only say that the runtime environment was not set up."""


def ray_runtime_env(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """That it was not set up is news only where nothing says why: a missing module, a full disk."""
    verdict = surest(matches)
    if verdict is None or verdict.confidence > _SET_UP:
        return verdict
    return None if all_matches.causes - {"ray_runtime_env", "ray_actor_died", "engine_core_died"} else verdict


def read_large_upload(hit: Hit) -> Reading | None:
    """Any web server may refuse a large body; here it is Ray's dashboard, which takes the working folder."""
    around = hit.context.above(40)
    return Reading(0.85) if re.search(r"/ray/|ray\.|upload_package|working_dir", around) else None


def read_head_reached(hit: Hit) -> Reading:
    """Ray says that it is connected; to which address stands in the line before."""
    for line in hit.context.before(3):
        match = re.search(r"cluster at address: ([\w.:-]+?)\.*$", line.text)
        if match is not None:
            return Reading(1.0, fields={"address": match[1]})
    return Reading(1.0)


# who raises an error or ends itself does not reach the head later; who only logs it tries again
_FINAL = re.compile(r"Check failed|^\s*[\w.]*(?:Error|Exception)\b|will terminate")

# the raylet of the own node is gone: where no thread could be started, that is why
_REGISTERS = re.compile(r"register worker", re.IGNORECASE)


def ray_head_unreachable(matches: Sequence[Match], all_matches: Matches) -> Verdict | None:
    """Failed tries before Ray was reached, or says that it runs, are how every bring-up looks."""
    reached = all_matches.of("ray_head_reached")
    # where the log has no line with the address that was reached, it is the one that was tried just before
    nameless = [one for one in reached if "address" not in one.fields]
    final = [one for one in matches if _FINAL.search(one.evidence.text)]
    tries = [
        one
        for one in unless_followed_by(matches, all_matches.of("ray_up"))
        if one not in final and not any(_soon_after(other, one, _NEXT_LINES) for other in nameless)
    ]
    left = unless_followed_by([*final, *tries], reached, same="address")
    if all_matches.of("thread_limit"):
        left = tuple(one for one in left if not _REGISTERS.search(one.evidence.text))
    return surest(sorted(left, key=lambda one: one.order))


def _soon_after(one: Match, other: Match, lines: int = _SOON_LINES) -> bool:
    return one.source == other.source and 0 <= one.order - other.order <= lines


CAUSES = (
    Cause(
        id="ray_head_unreachable",
        tier="root",
        recovery="restart",
        title="Ray's head did not answer",
        detail="at {address}",
        tell="Connections to the GCS fail. An address that begins with a colon was put together from an empty "
        "variable. 'srun: job queued' inside a job means that a new job was asked for instead of a step.",
        wordings=(
            *worded(
                (
                    "failed to connect to gcs",
                    r"(?i)failed to connect to GCS(?:.{0,40}address "
                    r"(?P<address>[\w.:-]*\w))?",
                ),
                ("failed to connect to ray", r"(?i)failed to connect to Ray at address: (?P<address>\S*\w)"),
                ("unable to connect to gcs", r"(?i)unable to connect to GCS(?: at (?P<address>[\w.:-]*\w))?"),
                ("gcs", r"(?i)could not read .{0,60} from GCS|did GCS start successfully"),
                ("reconnect to gcs", ""),
                ("connect to ray cluster at", r"(?i)failed to connect to ray cluster at (?P<address>[\w.:-]*\w)"),
                (
                    "gcs",
                    r"(?i)GCS (?:server )?(?:may have been killed|is (?:down|dead|unreachable)|has (?:failed|died))|"
                    r"GCS "
                    r"failed to (?:check|respond|start)",
                ),
                ("running ray instance", r"Could not find any running Ray instance"),
                ("ray client connection timeout", ""),
                ("connect to redis", r"(?i)(?:unable to|failed to|could not) connect to redis", "redis"),
                ("current node timed out during startup", ""),
                ("ray expects this ip", r"(?i)ray expects this IP to be either the GCS address or one of the Raylet"),
                ("cluster id from gcs", r"(?i)failed to get cluster id from gcs"),
                ("node_ip_address.json", r"(?i)timed out.{0,80}node_ip_address\.json"),
                (
                    "register worker",
                    r"(?i)failed to register worker .{0,80}raylet|unable to register worker with "
                    r"raylet",
                ),
                ("system config", r"(?i)failed to get (?:the )?system config"),
                "failed to start gcs",
                ("waiting for gcs", r"(?i)timed out (?:while )?waiting for GCS"),
                ("global state", r"Timed out (?:while )?waiting for global state"),
                ("nodes to start", r"(?i)timed out waiting for (?:the )?other nodes to start"),
                ("head node to start", r"(?i)timed out waiting for (?:the )?head node to start"),
                ("background srun", r"(?i)background srun '?ray-?_?head"),
                ("node info", r"(?i)(?:no|failed to get|timed out waiting for) node info (?:found|for)"),
                ("waiting for node to startup", r"Timed out after \d+ seconds while waiting for node to startup"),
                ("proxy failed to connect to backend", ""),
                ("node_ip_address", r"(?i)can(?:'|no)t find a `?node_ip_address"),
                confidence=0.85,
            ),
            Wording(
                anchor="gcs cannot find the node",
                check=read_node_info,
            ),
            Wording(
                anchor="queued and waiting for resources",
                pattern=r"srun: job \d+ queued and waiting for resources",
                check=read_nested_srun,
            ),
            *worded(("ray did not come up on", r"Ray did not come up on (?P<address>[\w.-]+): ")),
        ),
        weigh=ray_head_unreachable,
        explains=frozenset({"ray_actor_died", "env_import_broken"}),
        remedies=(
            Remedy(
                id="check-address",
                summary="Print the head's address; take it from the interface that the nodes share, with a new port.",
                commands=("ip -o -4 addr show", "ray start --head --node-ip-address=<address> --port=<port>"),
                safe="auto",
            ),
        ),
        wrong=("Longer sleeps between head and workers: wait for the port instead, with a deadline.",),
        sources=("ModalMinds/MM-EUREKA#54", "ray-project/ray#43778"),
    ),
    Cause(
        id="ray_port_in_use",
        tier="root",
        recovery="restart",
        title="Another Ray on this node holds the port, so two clusters got mixed up",
        tell="Session names that do not match, or a GCS that cannot bind its port.",
        wordings=worded(
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
            ("wider port range", r"No available ports\. Please specify a wider port range"),
            ("active ray instances", r"Found multiple active Ray instances"),
            ("check failed: server_", ""),
            ("already occupied", r"(?i)failed to bind to \S+ because it's already occupied"),
            ("failed to bind", r"(?i)(?:ray|gcs|raylet|redis).{0,80}failed to bind"),
            confidence=0.9,
        ),
        explains=frozenset({"port_in_use", "ray_head_unreachable", "ray_version_mismatch", "ray_actor_died"}),
        remedies=(
            Remedy(
                id="own-ports",
                summary="Derive all of Ray's ports from the job's id, and test the bind first.",
                safe="auto",
            ),
        ),
        wrong=("ray stop --force on a shared node: it ends your other runs too.",),
        sources=("https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations",),
    ),
    Cause(
        id="ray_runtime_env",
        tier="root",
        title="Ray could not pack, upload or set up the runtime environment",
        tell="Ray names the runtime environment or its package. Where it says 'Request Entity Too Large', the head "
        "refuses a working folder with data or checkpoints in it.",
        wordings=(
            *worded(
                "runtimeenvsetuperror",
                ("exceeds the maximum size", r"(?i)package.{0,40} size .{0,40}exceeds the maximum size"),
                # whichever of Ray's processes says it: the agent, the raylet, the GCS, the one that submits
                (
                    "env",
                    r"(?i)\b(?:fail\w*|couldn't|could not|unable to|cannot|gone wrong|timed out)\b"
                    r".{0,80}\bruntime[_ ]?env(?:ironment)?s?(?![a-z])|"
                    r"runtime[_ ]?env(?:ironment)?s?(?![a-z]).{0,60}\b(?:failed|timed out)\b|"
                    r"(?-i:RUNTIME_ENV_\w*FAILED)|"
                    r"\b(?:GetOrCreate)?RuntimeEnv (?:request )?failed",
                    "runtime runtimeenv runtimeenvs runtimeenvironment runtimeenvironments getorcreateruntimeenv",
                ),
                confidence=_SET_UP,
                unless=r"^\s*(?:except|raise) ",
            ),
            *worded(
                ("package size", r"Package size \(\S+\) exceeds the maximum size of"),
                ("to the ray cluster", r"Failed to upload .{1,400} to the Ray cluster"),
                "failed to download runtime_env file package",
                confidence=0.85,
            ),
            Wording(anchor="request entity too large", pattern=r"HTTPRequestEntityTooLarge", check=read_large_upload),
        ),
        weigh=ray_runtime_env,
        explains=frozenset({"ray_actor_died"}),
        remedies=(
            Remedy(
                id="exclude-large-files",
                summary="Leave data, checkpoints and .git out of the working folder (excludes in runtime_env, or "
                ".gitignore), or start in a folder that all nodes share and give none.",
                commands=("du -ah --max-depth=2 . | sort -h | tail",),
                safe="confirm",
            ),
            Remedy(
                id="read-runtime-env-log",
                summary="Where packages are installed: the reason is in runtime_env_setup-*.log on the node.",
                commands=("tail -n 50 /tmp/ray/session_latest/logs/runtime_env_setup-*.log",),
                safe="never",
            ),
        ),
        wrong=("Submitting again: the same folder is sent again.",),
        sources=("verl-project/verl#696", "TideDra/lmm-r1#81", "komikndr/raylight#23"),
    ),
    Cause(
        id="ray_version_mismatch",
        tier="root",
        title="The Ray cluster was started with another Ray or Python",
        tell="Ray prints both versions.",
        wordings=worded(
            ("version mismatch: the cluster was started with", ""),
            ("versions differ between client and server", ""),
            ("incompatible with server", r"(?i)client ray installation incompatible with server"),
            ("version mismatch", r"(?i)(?:ray|python).{0,20}version mismatch"),
            ("does not match", r"(?i)\bray\b.{0,40}version.{0,40}does not match"),
            confidence=0.95,
            unless=r"(?i)\bpatch version mismatch",  # a warning
        ),
        explains=frozenset({"ray_head_unreachable", "ray_actor_died"}),
        remedies=(
            Remedy(
                id="same-environment",
                summary="Activate the same environment in every step, and keep away from stale clusters with own "
                "port and folder.",
                safe="auto",
            ),
        ),
        wrong=("RAY_IGNORE_VERSION_MISMATCH: workers then fail to register.",),
        sources=("Unakar/Logic-RL#30",),
    ),
    Cause(
        id="ray_socket_path",
        tier="root",
        title="The path of a Unix socket is too long",
        tell="Linux allows 107 bytes, and Ray adds about 62 to its folder.",
        wordings=worded(
            ("af_unix path", r"(?i)AF_UNIX path (?:length cannot exceed|too long)"),
            ("too long", r"(?i)(?:unix|socket).{0,60}path (?:name )?(?:is )?too long"),
            (
                "file name too long",
                r"(?i)(?:\bsockets?\b|\b(?:bind|connect)\b|raylet|plasma|boost::system).{0,160}\bFile name too long",
            ),
            confidence=0.95,
        ),
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
)

STATES = {
    "ray_up": worded(
        "ray runtime started",
        ("autoscaler status", r"(?i)^=+ autoscaler status"),
        ("started a local ray instance", ""),
        ("ray", r"(?i)\bray (?:head|cluster|runtime)(?: node)? is (?:now )?(?:up|ready|running|healthy)\b"),
        (
            "",
            r"(?i)\ball \d* ?(?:ray )?(?:nodes|workers|worker nodes) (?:have |are )?(?:joined|connected|ready|up|"
            r"active)",
            "nodes workers",
        ),
        ("submitted successfully", r"(?i)job .{1,80} submitted successfully"),
    ),
    "ray_head_reached": (Wording(anchor="connected to ray cluster", check=read_head_reached),),
}
