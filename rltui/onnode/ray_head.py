"""Starting and stopping one Ray of our own on this machine: own ports, own folder, own token, loopback only."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from rltui.onnode import rundir

SOCKET_BASE_LIMIT = 40
"""Longest Ray folder in bytes: Ray adds up to 62 for its sockets, and the kernel allows 107."""

LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"
"""Ray replaces 127.0.0.1 by the machine's outer address and would then serve the network, and die when a laptop changes
its network. Any other address of 127.0.0.0/8 is kept, and is loopback too on Linux."""

MIB = 1 << 20
OBJECT_STORE_BYTES = 128 * MIB


class RayFailedError(Exception):
    """Ray did not come up; the text says why."""


class RaySpec(NamedTuple):
    """What Ray is to be started with."""

    python: str
    attempt: str
    uuid: str
    cpus: int
    gpus: int


class RayHead:
    """A running Ray head.

    Attributes:
        address: Where drivers connect, ``127.0.0.2:PORT``.
        folder: Ray's own folder, removed by ``stop``.
        process: The ``ray start --block`` process.
    """

    def __init__(self, spec: RaySpec, environment: Dict[str, str]) -> None:
        self.spec = spec
        self.folder = _folder(spec.uuid)
        self.token_path = os.path.join(spec.attempt, "ray.token")
        self.environment = {**environment, **self.client_environment()}
        self.process: "Optional[subprocess.Popen[bytes]]" = None
        self.address = ""

    def client_environment(self) -> Dict[str, str]:
        """Variables with which a driver, and Ray itself, find this Ray's token and no other's."""
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": self.token_path,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DISABLE_IMPORT_WARNING": "1",
            "RAY_TMPDIR": self.folder,
        }

    def start(self, deadline_s: float, should_stop: Callable[[], bool], tries: int = 3) -> None:
        """Start Ray and wait until it answers.

        A port can be taken between our test and Ray's bind, so a Ray that dies at once is tried again on other ports.

        ``should_stop`` is asked all the while; where it says yes, the start is given up quietly.

        Raises:
            RayFailedError: It did not come up within ``deadline_s`` seconds.
        """
        token = self._write_token()
        deadline = time.monotonic() + deadline_s
        for attempt in range(tries):
            ports = free_ports(5)
            self._launch(ports)
            if self._await_port(ports[0], deadline, should_stop):
                self._write_endpoint(ports, token)
                return
            if should_stop():
                return
            self.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
            if time.monotonic() >= deadline or attempt == tries - 1:
                break
        raise RayFailedError("Ray did not come up on %s: %s" % (socket.gethostname(), self._last_words()))

    def stop(self, grace_s: float = 5.0) -> None:
        """End Ray and remove its folder; its logs are kept beside the attempt's."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def remove_folder(self) -> None:
        """Remove Ray's folder, keeping the logs that tell why it died."""
        keep_logs(self.folder, os.path.join(self.spec.attempt, "ray-logs"))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _write_token(self) -> str:
        token = secrets.token_hex(32)
        descriptor = os.open(self.token_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(token)
        return token

    def _launch(self, ports: List[int]) -> None:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        main = "import sys; from ray.scripts.scripts import main; sys.exit(main())"
        argv = [self.spec.python, "-c", main, "start", *_options(self.spec, self.folder, ports)]
        with open(os.path.join(self.spec.attempt, "ray.log"), "ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                start_new_session=True,
            )

    def _await_port(self, port: int, deadline: float, should_stop: Callable[[], bool]) -> bool:
        while time.monotonic() < deadline and not should_stop():
            if self.process is None or self.process.poll() is not None or self._lost_its_port():
                return False
            if self._says_it_runs_on(port):
                self.address = "%s:%d" % (LOOPBACK, port)
                return True
            time.sleep(0.05)
        return False

    def _says_it_runs_on(self, port: int) -> bool:
        # an open port proves nothing: it may be a stranger's; Ray writes this file in its own folder when it is up
        try:
            with open(os.path.join(self.folder, "ray_current_cluster")) as stream:
                return stream.read().strip().endswith(":%d" % port)
        except OSError:
            return False

    def _lost_its_port(self) -> bool:
        # `ray start` waits a minute for a GCS that died at once because its port was taken
        try:
            with open(
                os.path.join(self.folder, "session_latest", "logs", "gcs_server.err"), errors="replace"
            ) as stream:
                return "ddress already in use" in stream.read(65536)
        except OSError:
            return False

    def _write_endpoint(self, ports: List[int], token: str) -> None:
        endpoint = {
            "schema": rundir.SCHEMA,
            "address": self.address,
            "dashboard": "http://127.0.0.1:%d" % ports[1],
            "token": token,
            "pid": self.process.pid if self.process else 0,
        }
        rundir.write_json(os.path.join(self.spec.attempt, rundir.RAY_ENDPOINT), endpoint)

    def _last_words(self) -> str:
        try:
            with open(os.path.join(self.spec.attempt, "ray.log"), errors="replace") as stream:
                lines = [line.strip() for line in stream.readlines()[-40:] if line.strip()]
        except OSError:
            lines = []
        errors = [line for line in lines if "rror" in line or "annot" in line]
        return (errors or lines or ["it said nothing; see ray.log"])[-1][:300]


def free_ports(count: int) -> List[int]:
    """``count`` different TCP ports that are free on loopback at this moment."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def keep_logs(folder: str, target: str, limit_bytes: int = 4 * MIB) -> None:
    """Copy the ends of Ray's own logs out of ``folder``, newest session, at most ``limit_bytes`` in all."""
    logs = os.path.join(folder, "session_latest", "logs")
    if not os.path.isdir(logs):
        return
    os.makedirs(target, mode=0o700, exist_ok=True)
    names = [name for name in os.listdir(logs) if name.endswith((".out", ".err", ".log"))]
    for name in sorted(names, key=lambda name: "worker" not in name):
        path = os.path.join(logs, name)
        size = os.path.getsize(path) if os.path.isfile(path) else 0
        if not size or limit_bytes <= 0:
            continue
        with open(path, "rb") as source, open(os.path.join(target, name), "wb") as copy:
            source.seek(max(0, size - 256 * 1024))
            limit_bytes -= copy.write(source.read())


def _folder(uuid: str) -> str:
    name = "rltui-%d-%s" % (os.getuid(), uuid[:8])
    for base in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = os.path.join(base, name)
        if len(os.fsencode(path)) <= SOCKET_BASE_LIMIT and os.access(base, os.W_OK):
            return path
    raise RayFailedError("no temporary directory has a short enough name for Ray's sockets; set TMPDIR=/tmp")


def _options(spec: RaySpec, folder: str, ports: List[int]) -> List[str]:
    options = ["--head", "--block", "--node-ip-address=%s" % LOOPBACK, "--dashboard-host=127.0.0.1"]
    options += ["--port=%d" % ports[0], "--dashboard-port=%d" % ports[1], "--include-dashboard=true"]
    options += ["--ray-client-server-port=%d" % ports[2], "--dashboard-agent-listen-port=%d" % ports[3]]
    options += ["--metrics-export-port=%d" % ports[4], "--min-worker-port=0", "--max-worker-port=0"]
    options += ["--num-cpus=%d" % spec.cpus, "--num-gpus=%d" % spec.gpus]
    options += ["--temp-dir=%s" % folder, "--object-store-memory=%d" % OBJECT_STORE_BYTES, "--disable-usage-stats"]
    if not shared_memory_works():
        options.append("--plasma-directory=%s" % folder)
    return options


def shared_memory_works(path: str = "/dev/shm") -> bool:
    """Whether ``path`` can hold Ray's object store; containers often have none, or 64 MiB."""
    try:
        found = os.statvfs(path)
    except OSError:
        return False
    return os.access(path, os.W_OK) and found.f_bavail * found.f_frsize > 2 * OBJECT_STORE_BYTES
