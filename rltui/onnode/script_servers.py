"""The servers that an attempt's own processes run on this node: inference engines, and a Ray that a script started.

vLLM and SGLang tell their counters at ``/metrics``, in the text form of Prometheus. Only processes that are such
servers by their command line or title are asked, and only at ports on which they listen: a line of HTTP that reached
another one, such as the rendezvous of torch or NCCL, could break the run.
"""

import contextlib
import os
import re
import threading
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from rltui.onnode import processes, rundir
from rltui.onnode.ray_states import own_token

EVERY_S = 5.0
TIMEOUT_S = 2.0
LONGEST_ANSWER = 8 << 20
MOST_PORTS = 8
MOST_SERVERS = 64
TRIES = 3
"""Answers without a counter after which a port is not asked again."""

_ENGINE = re.compile(
    r"(?:^|[ /])vllm serve\b|\bvllm\.entrypoints\.|^VLLM::APIServer|^PRIME-RL::Inference"
    r"|\bsglang(?:\.launch_server|\.srt\.entrypoints| serve)\b|^ray::(?:vLLM|SGLang)\w*(?:Server|Engine)\b"
)
_SPAWNS = re.compile(r"^ray::SGLang\w*Engine\b")
"""An actor whose server is a process of its own, which it spawns and which does not say what it is."""
_SPAWNED = re.compile(r"multiprocessing\.spawn")
_PORT = re.compile(r"(?:^| )--port[= ](\d+)\b")
_DASHBOARD = re.compile(r"/ray/dashboard/dashboard\.py ")

COUNTERS = {
    "num_requests_running": "running",
    "num_running_reqs": "running",
    "num_requests_waiting": "waiting",
    "num_queue_reqs": "waiting",
    "kv_cache_usage_perc": "kv_cache_usage",
    "gpu_cache_usage_perc": "kv_cache_usage",
    "token_usage": "kv_cache_usage",
    "num_preemptions_total": "preemptions_total",
    "generation_tokens_total": "tokens",
}
"""Names of vLLM and SGLang, without what is before their colon (https://docs.vllm.ai/en/latest/usage/metrics.html,
https://docs.sglang.io/references/production_metrics.html), and ours."""

SHARES = frozenset({"kv_cache_usage"})
"""These are shares of one engine: of several lines about it the largest counts; of others the sum does."""

_COUNTER = re.compile(r"^(?:vllm|sglang)[:_](\w+?)(?:\{([^}]*)\})? ([-+.\deE]+)", re.M)
_OF_ENGINE = re.compile(r'\b(?:engine|dp_rank)="(\w+)"')


class Server(NamedTuple):
    """A place where one process listens."""

    pid: int
    start_time: str
    host: str
    port: int


class Ports:
    """Where processes of this node listen for TCP connections, as of one look."""

    def __init__(self) -> None:
        self._by_inode: Dict[str, Tuple[str, int]] = {}
        for name in ("tcp", "tcp6"):
            self._by_inode.update(_listening("/proc/net/" + name))

    def of(self, pid: int) -> List[Tuple[str, int]]:
        """Address, as one to connect to, and port of each socket on which ``pid`` listens."""
        folder = "/proc/%d/fd" % pid
        try:
            links = [processes.link(os.path.join(folder, name)) for name in os.listdir(folder)]
        except OSError:
            return []
        # /proc/PID/fd knows whose a socket is, /proc/net/tcp where it listens; both know its inode
        inodes = (link[len("socket:[") : -1] for link in links if link.startswith("socket:["))
        return sorted({self._by_inode[inode] for inode in inodes if inode in self._by_inode}, key=lambda one: one[1])


def _listening(path: str) -> Dict[str, Tuple[str, int]]:
    """By inode, from a table of the kernel (proc(5)); 0A is the state of a socket that listens."""
    found = {}
    for row in map(str.split, processes.contents(path).decode().splitlines()[1:]):
        if len(row) > 9 and row[3] == "0A":
            address, _, port = row[1].rpartition(":")
            found[row[9]] = (_reachable(address), int(port, 16))
    return found


def _reachable(address: str) -> str:
    """An address of the kernel's table (hexadecimal, words in the machine's order) as one to connect to."""
    if not address.strip("0"):
        return "127.0.0.1"  # a socket of all addresses takes IPv4 too, as Linux has it
    if len(address) == 8:
        return ".".join(str(int(address[at : at + 2], 16)) for at in (6, 4, 2, 0))
    if address.startswith("0000000000000000FFFF0000"):
        return _reachable(address[24:])
    words = ("".join(address[at + step : at + step + 2] for step in (6, 4, 2, 0)) for at in (0, 8, 16, 24))
    text = "".join(words).lower()
    return ":".join(text[at : at + 4] for at in range(0, 32, 4))


class Listing(NamedTuple):
    """One process of an attempt, with its command line or title."""

    pid: int
    stat: processes.Stat
    words: str


def listing(found: Sequence[Tuple[int, processes.Stat]]) -> List[Listing]:
    """Processes of an attempt with what they call themselves."""
    return [Listing(pid, stat, " ".join(processes.words_of(pid))) for pid, stat in found]


def engines_among(found: Sequence[Listing]) -> List[Server]:
    """The places where inference servers among an attempt's processes may tell their counters."""
    spawning = {one.pid for one in found if _SPAWNS.search(one.words)}
    chosen = [
        one
        for one in found
        if _ENGINE.search(one.words) or (one.stat.parent in spawning and _SPAWNED.search(one.words))
    ]
    ports = Ports() if chosen else None
    servers: Dict[int, Server] = {}
    for one in chosen:
        assert ports is not None
        told = _PORT.search(one.words)
        places = [place for place in ports.of(one.pid) if told is None or place[1] == int(told.group(1))]
        for host, port in places[:MOST_PORTS]:  # several processes of one server share its port
            servers.setdefault(port, Server(one.pid, one.stat.start_time, host, port))
    return list(servers.values())[:MOST_SERVERS]


def ray_dashboard(found: Sequence[Listing]) -> Optional[Dict[str, Any]]:
    """Where the dashboard of a Ray among an attempt's processes listens, in the form of ``ray.json``; None: no Ray."""
    for one in found:
        if not _DASHBOARD.search(one.words) or not (told := _PORT.search(one.words)):
            continue
        # where the port that it was given is taken, it tries the next ones; its metrics are on a port of their own
        first = int(told.group(1))
        places = [place for place in Ports().of(one.pid) if first <= place[1] < first + 100]
        if places:
            url, token = "http://%s:%d" % places[0], own_token(processes.environment_of(one.pid))
            return {"schema": rundir.SCHEMA, "address": "", "dashboard": url, "token": token, "pid": one.pid}
    return None


def counters(text: str) -> Dict[str, Dict[str, float]]:
    """What engines say of themselves in an answer of ``/metrics``, by their number there; empty: it says nothing."""
    engines: Dict[str, Dict[str, float]] = {}
    for name, labels, number in _COUNTER.findall(text):
        ours = COUNTERS.get(name)
        if ours is None:
            continue
        label = _OF_ENGINE.search(labels)
        said = engines.setdefault(label.group(1) if label else "", {})
        try:
            value = float(number)
        except ValueError:
            continue
        said[ours] = max(said.get(ours, 0.0), value) if ours in SHARES else said.get(ours, 0.0) + value
    return engines


def ask(server: Server) -> Optional[str]:
    """The answer of a server at ``/metrics``; empty where it is none, None where nobody answers."""
    import http.client  # only a script has such servers, and every sampler this module

    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        return answer.read(LONGEST_ANSWER).decode("utf-8", "replace") if answer.status == 200 else ""
    except http.client.HTTPException:
        return ""
    except OSError:
        return None
    finally:
        connection.close()


class Engines:
    """What is known of the engines behind one port.

    Attributes:
        rows: What each of them last said, as a line of the sampler has it.
    """

    def __init__(self, server: Server) -> None:
        self.rows: List[Dict[str, Any]] = []
        self._server = server
        self._answers_without_counters = 0
        self._spoke_at = 0.0
        self._tokens: Dict[str, float] = {}

    def ask(self) -> None:
        """Ask once; one that has told nothing but other things is not asked any more."""
        if self._answers_without_counters >= TRIES:
            return
        text, before = ask(self._server), self._spoke_at
        found = counters(text) if text else {}
        if found:
            self._spoke_at = time.monotonic()
            self.rows = [self._row(label, said, self._spoke_at - before) for label, said in found.items()]
        elif self.rows:
            silent_s = round(time.monotonic() - self._spoke_at, 1)
            self.rows = [{"name": row["name"], "pid": self._server.pid, "silent_s": silent_s} for row in self.rows]
        elif text is not None:
            self._answers_without_counters += 1

    def _row(self, label: str, said: Dict[str, float], since_s: float) -> Dict[str, Any]:
        port = str(self._server.port)
        row: Dict[str, Any] = {"name": "%s/%s" % (port, label) if label not in ("", "0") else port}
        row["pid"] = self._server.pid
        row.update((key, round(value, 4)) for key, value in said.items() if key != "tokens")
        if "tokens" in said:
            made = said["tokens"] - self._tokens.get(label, float("inf"))
            self._tokens[label] = said["tokens"]
            if made >= 0:
                row["tokens_per_second"] = round(made / max(since_s, 1e-3), 1)
        return row


class ScriptServers:
    """Finds the servers of an attempt on this node, and asks its engines again and again in a thread of its own.

    Args:
        attempt: The attempt's directory.
        host: This node's name.

    Attributes:
        engines: What each engine last said, as a line of the sampler has it; None before the first answer of any.
    """

    def __init__(self, attempt: str, host: str) -> None:
        self.engines: Optional[List[Dict[str, Any]]] = None
        self._endpoint = os.path.join(attempt, rundir.RAY_ENDPOINT)
        self._host = host
        self._ray: Optional[Dict[str, Any]] = None
        self._servers: List[Server] = []
        self._asked: Dict[Server, Engines] = {}
        self._thread: Optional[threading.Thread] = None

    def look(self, found: Sequence[Tuple[int, processes.Stat]]) -> None:
        """Take over which processes there are now; the first engine that is found begins the asking."""
        listed = listing(found)
        self._note_ray(listed)
        self._servers = engines_among(listed)
        if self._servers and self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _note_ray(self, listed: Sequence[Listing]) -> None:
        """Write down where the script's own Ray is asked; one that rltui started has said so itself."""
        if self._ray is None and os.path.exists(self._endpoint):
            return
        ray = ray_dashboard(listed)
        if ray is not None and ray != self._ray:
            with contextlib.suppress(OSError):
                rundir.write_json(self._endpoint, {**ray, "host": self._host})
                self._ray = ray

    def _run(self) -> None:
        while True:
            self.ask_all()
            time.sleep(EVERY_S)

    def ask_all(self) -> None:
        """Ask each server for its counters once, all in turn."""
        self._asked = {server: self._asked.get(server) or Engines(server) for server in self._servers}
        for engines in self._asked.values():
            engines.ask()
        rows = [row for engines in self._asked.values() for row in engines.rows]
        if rows or self.engines is not None:
            self.engines = rows
