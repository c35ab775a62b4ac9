"""One Ray of our own on one node: own ports, own folder, own token. Head and workers are started alike."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from rltui.onnode import container, processes, rundir
from rltui.onnode.node_network import NoPortsError, Ports, host, reserve_block
from rltui.onnode.ray_start import START, START_OWN
from rltui.onnode.script_exports import ScriptPlace

SOCKET_BASE_LIMIT = 40
"""Longest Ray folder in bytes: Ray adds up to 62 for its sockets, and the kernel allows 107."""

MOST_CPUS = 128
"""CPU cores that Ray hands out on a node where nobody says how many: for a script it starts a process for each at
once, and a node's Ray has no more than 240 ports here for these and the actors."""

LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Ray replaces 127.0.0.1 by the machine's outer address and would then serve the network, and die when a laptop changes
its network. Any other address of 127.0.0.0/8 is kept, and is loopback too on Linux."""

MIB = 1 << 20
OBJECT_STORE_BYTES = 128 * MIB
LARGEST_OBJECT_STORE_BYTES = 2048 * MIB

TRIES = 3

STALE_S = 3600.0
REMOVE_S = 10.0

TOKEN = "ray.token"

INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Where torch keeps what it has compiled: by default in TMPDIR."""

ON_DEMAND = {"RAY_prestart_worker_first_driver": "0"}
"""Ray would start an idle Python for each core with the first driver, and keep that waiting until all of them are up.
A run of ours needs one a role."""

TEMPORARY = "t"
"""Folder in Ray's own for what trainers leave in TMPDIR (W&B, torch); it goes with it. Sockets lie there too: short."""


class RayFailedError(Exception):
    """Ray did not come up; the text says why."""


class RaySpec(NamedTuple):
    """What Ray is to be started with on one node.

    Attributes:
        python: The interpreter that has Ray; in a container, that one's own counts.
        attempt: The attempt's directory.
        uuid: The attempt's mark.
        cpus: CPU cores that Ray is told of.
        gpus: GPUs that Ray is told of.
        address: The node's address; loopback where there is no other node.
        folder: Ray's folder, the same on all nodes; empty: one that follows from the uuid.
        job: Number from which the ports follow; 0: any free ones (loopback only).
        log: Name of the file for Ray's words, in the attempt's directory.
        script: Where the script of another system runs, which counts on what ``ray start`` by hand gives.
        part: Number of the job's component that the node is in, by which the trainer tells kinds of node apart.
    """

    python: str
    attempt: str
    uuid: str
    cpus: int
    gpus: int
    address: str = LOOPBACK
    folder: str = ""
    job: int = 0
    log: str = "ray.log"
    script: Optional[ScriptPlace] = None
    part: int = 0


class RayProcess:
    """A ``ray start --block`` on this node.

    Attributes:
        spec: What it was started with.
        folder: Ray's own folder.
        given: The environment that it was made with.
        process: The process.
    """

    def __init__(self, spec: RaySpec, environment: Dict[str, str]) -> None:
        self.spec = spec
        self.folder = spec.folder or ray_folder(spec.uuid)
        self.token_path = os.path.join(spec.attempt, TOKEN)
        self.given = environment
        told = {**environment, **spec.script.exports} if spec.script else {**ON_DEMAND, **environment}
        self.environment = {**told, **self.client_environment()}
        self.process: "Optional[subprocess.Popen[bytes]]" = None

    def client_environment(self) -> Dict[str, str]:
        """Variables with which a driver, and Ray itself, find this Ray's token and no other's."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": self.token_path,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "RAY_TMPDIR": self.folder,
            "TMPDIR": os.path.join(self.folder, TEMPORARY),
            # what one attempt has compiled the next one finds
            INDUCTOR_CACHE: self.given.get(INDUCTOR_CACHE)
            or os.path.join(tempfile.gettempdir(), "torchinductor_%d" % os.getuid()),
        }

    def death(self) -> str:
        """Why it runs no more, in one sentence; empty while it runs, or before it was started."""
        if self.process is None or self.process.poll() is None:
            return ""
        return "Ray died on %s (exit code %s); see %s" % (host(), self.process.returncode, self.spec.log)

    def stop(self, grace_s: float = 5.0) -> None:
        """End Ray; harmless where it does not run."""
        if self.process is not None and self.process.poll() is None:
            # SIGTERM first: as `ray start` is killed, so are GCS and raylet, by the kernel (PR_SET_PDEATHSIG)
            self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def remove_folder(self) -> None:
        """Remove Ray's folder, keeping the logs that tell why it died."""
        name = "ray-logs" if self.spec.log == "ray.log" else "ray-logs-" + host()
        with contextlib.suppress(OSError):  # a full disk: the attempt's end is still to be told, and told right
            keep_logs(self.folder, os.path.join(self.spec.attempt, name))
        remove(self.folder)

    def launch(self, options: List[str]) -> None:
        """Start ``ray start`` with ``options`` and what every node gets."""
        remove_stale_folders(self.folder)
        os.makedirs(os.path.join(self.folder, TEMPORARY), mode=0o700, exist_ok=True)
        inside = container.read(self.environment)
        python = inside.python if inside else self.spec.python
        start = START if self.spec.script else START_OWN
        argv = [python, "-c", start, "start", *node_options(self.spec, self.folder), *options]
        script = self.spec.script
        folder, exports = (script.folder, tuple(script.exports)) if script else (self.folder, ())
        argv, environment = container.enter(argv, self.environment, folder, self.spec.attempt, exports)
        with open(os.path.join(self.spec.attempt, self.spec.log), "ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                # so that ctrl+c in a terminal, and a signal to the supervisor's group, do not reach Ray before the
                # trainer has saved
                start_new_session=True,
            )

    def joined(self, address: str, deadline: float, should_stop: Callable[[], bool]) -> bool:
        """Wait until this node belongs to the Ray at ``address``; False where it died, lost its port, or time is up."""
        while time.monotonic() < deadline and not should_stop():
            if self.process is None or self.process.poll() is not None or self._lost_its_port():
                return False
            if self._says_it_belongs_to(address):
                return True
            time.sleep(0.05)
        return False

    def _says_it_belongs_to(self, address: str) -> bool:
        # an open port proves nothing: it may be a stranger's; Ray writes this file in its own folder when it is up
        return rundir.read_tail(os.path.join(self.folder, "ray_current_cluster")).strip() == address

    def _lost_its_port(self) -> bool:
        # `ray start` waits a minute for a GCS that died at once because its port was taken
        errors = os.path.join(self.folder, "session_latest", "logs", "gcs_server.err")
        return "ddress already in use" in rundir.read_tail(errors)

    def last_words(self) -> str:
        """The line of Ray's log that tells most about why it did not come up."""
        told = rundir.read_tail(os.path.join(self.spec.attempt, self.spec.log)).splitlines()[-40:]
        lines = [line.strip() for line in told if line.strip()]
        errors = [line for line in lines if "rror" in line or "annot" in line]
        return (errors or lines or ["it said nothing; see %s" % self.spec.log])[-1][:300]


def node_options(spec: RaySpec, folder: str) -> List[str]:
    """What ``ray start`` is told of this node, be it head or worker."""
    # without --block `ray start` returns: nobody sees Ray's processes die then, and they die with nobody
    options = ["--block", "--disable-usage-stats", "--node-ip-address=%s" % spec.address]
    options += ["--num-cpus=%d" % spec.cpus, "--num-gpus=%d" % spec.gpus]
    options += ["--labels=%s=%d" % (rundir.PART_LABEL, spec.part)] if spec.part else []
    if spec.script is None:
        # Ray itself would take 30 % of the node's memory for it, which a job's cgroup may not have
        options.append("--object-store-memory=%d" % object_store_bytes(spec.address))
    if not shared_memory_works():
        options.append("--plasma-directory=%s" % folder)
    return options


def pinned(ports: Ports) -> List[str]:
    """Options that keep everything Ray opens on a node within its block of ports."""
    options = ["--node-manager-port=%d" % ports.node_manager, "--object-manager-port=%d" % ports.object_manager]
    options += ["--runtime-env-agent-port=%d" % ports.runtime_env_agent]
    options += ["--dashboard-agent-grpc-port=%d" % ports.agent_grpc]
    options += ["--dashboard-agent-listen-port=%d" % ports.agent_listen, "--metrics-export-port=%d" % ports.metrics]
    return [*options, "--min-worker-port=%d" % ports.first_worker, "--max-worker-port=%d" % ports.last_worker]


def block_of(spec: RaySpec, turn: int) -> Ports:
    """The block of ports for the ``turn``-th start.

    Raises:
        RayFailedError: None is free.
    """
    try:
        return reserve_block(spec.job, skip=turn)
    except NoPortsError as error:
        raise RayFailedError(str(error)) from error


def object_store_bytes(address: str) -> int:
    """Size of a node's object store; on a machine of its own an eighth of the free shared memory, within bounds.

    Only prompts and samples go through it; a larger one would take memory from offloaded optimizer states.
    """
    if address == LOOPBACK:
        return OBJECT_STORE_BYTES
    with contextlib.suppress(OSError):
        found = os.statvfs("/dev/shm")
        eighth = found.f_bavail * found.f_frsize // 8
        return max(OBJECT_STORE_BYTES, min(LARGEST_OBJECT_STORE_BYTES, eighth))
    return OBJECT_STORE_BYTES


def keep_logs(folder: str, target: str) -> None:
    """Copy the ends of Ray's own logs out of ``folder``, newest session, at most 4 MiB in all."""
    left_bytes = 4 * MIB
    logs = os.path.join(folder, "session_latest", "logs")
    if not os.path.isdir(logs):
        return
    os.makedirs(target, mode=rundir.folder_mode(os.path.dirname(target)), exist_ok=True)
    names = [name for name in os.listdir(logs) if name.endswith((".out", ".err", ".log"))]
    # workers' own output first: it has the traceback; raylet's and GCS's logs are long and seldom tell
    for name in sorted(names, key=lambda name: "worker" not in name):
        path = os.path.join(logs, name)
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        if not size or left_bytes <= 0:
            continue
        with open(path, "rb") as source, open(os.path.join(target, name), "wb") as copy:
            source.seek(max(0, size - 256 * 1024))
            left_bytes -= copy.write(source.read())


def ray_folder(uuid: str) -> str:
    """Ray's folder for the attempt ``uuid``: in a temporary directory, and short.

    Raises:
        RayFailedError: Every temporary directory has too long a name, or cannot be written.
    """
    # the user's number tells whose it is: /tmp has the folders of all users
    name = "rltui-%d-%s" % (os.getuid(), uuid[:8])
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = os.path.join(base, name)
        if len(os.fsencode(path)) <= SOCKET_BASE_LIMIT and os.access(base, os.W_OK):
            return path
    raise RayFailedError("no temporary directory has a short enough name for Ray's sockets; set TMPDIR=/tmp")


def remove(folder: str, within_s: float = REMOVE_S) -> None:
    """Remove a Ray folder, also while the last of Ray's processes still write into it: it is not empty yet then."""
    deadline = time.monotonic() + within_s
    shutil.rmtree(folder, ignore_errors=True)
    while os.path.isdir(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def remove_stale_folders(folder: str) -> None:
    """Remove Ray folders beside ``folder`` that attempts of this user left when they were killed with all they had.

    One stays while a process of its attempt runs, and for an hour in any case: there is a folder before a process.
    """
    prefix = "rltui-%d-" % os.getuid()
    base, live = os.path.dirname(folder), processes.attempts_here()
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            path = os.path.join(base, name)
            if not name.startswith(prefix) or any(uuid.startswith(name[len(prefix) :]) for uuid in live):
                continue
            with contextlib.suppress(OSError):
                # lstat: in /tmp somebody else may have put a link of that name
                if time.time() - os.lstat(path).st_mtime > STALE_S and os.lstat(path).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)


def shared_memory_works(path: str = "/dev/shm") -> bool:
    """Whether ``path`` can hold Ray's object store; containers often have none, or 64 MiB."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return os.access(path, os.W_OK) and found.f_bavail * found.f_frsize > 2 * OBJECT_STORE_BYTES
