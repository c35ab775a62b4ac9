"""What each process of an attempt is doing on this node: asked for by a file, answered by a file, nothing is ended.

A request is ``evidence/request.json`` of the attempt; the sampler of each node sees it and starts this program, which
writes ``evidence/<id>-<host>.json``. So it works on nodes that nobody can log in to. Stacks come from py-spy, which
reads them from outside without holding the process up; where it is not installed or may not look, from our own roles'
faulthandler; of any process the kernel tells its state and what it waits in. Our learners also give torch's own record
of their collectives, into a file a rank beside the answer.
"""

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from rltui.onnode import flight_recorder, lost_nodes, processes, ray_states, rundir

MOST_PROCESSES = 200
MOST_STACKS = 48
STACK_S = 10.0
"""Longest that one process's stack may take."""
AT_ONCE = 4
STACK_CHARACTERS = 20000
ANSWER_S = 60.0
"""How long whoever asks waits for the nodes; a process that hangs in the kernel may never tell."""
SPEAKING_S = 60.0
"""A sampler that has not written for longer will not answer either."""
POLL_S = 0.2
HELPERS = (
    "/ray/dashboard/",
    "/ray/autoscaler/",
    "/ray/_private/",
    "ray-dashboard-",
    "ray.util.",
    "ray.scripts",
    "multiprocessing.",
    "rltui.onnode.",
    "ray::IDLE",
)
"""In the command lines of processes whose stacks say nothing of the training."""
PACKAGES = ("torch", "ray", "vllm", "deepspeed", "transformers", "trl", "verl", "numpy", "nvidia-nccl-cu12")


def folder(attempt: str) -> str:
    """Where requests and answers are."""
    return os.path.join(attempt, rundir.EVIDENCE)


def ask(attempt: str, reason: str) -> str:
    """Ask every node for evidence; returns the id of the request."""
    os.makedirs(folder(attempt), mode=0o700, exist_ok=True)
    wanted = request(reason)
    rundir.write_json(os.path.join(folder(attempt), rundir.EVIDENCE_REQUEST), wanted)
    return str(wanted["id"])


def request(reason: str, host: str = "", pid: int = 0) -> Dict[str, Any]:
    """The content of a new request: of every process on every node, or only of ``pid`` on ``host``."""
    now = time.time()
    whom = {"host": host, "pid": pid} if pid else {}
    return {"schema": rundir.SCHEMA, "id": "%d" % (now * 1000), "at": now, "reason": reason, **whom}


def answer_name(name: str, host: str, pid: int = 0) -> str:
    """The file of a node's answer to the request ``name``; one of a single process is no evidence of the attempt."""
    return "%s%s-%s.json" % ("process-" if pid else "", name, host)


def is_answered(attempt: str, name: str) -> bool:
    """Whether all nodes that still speak have answered the request ``name``."""
    return all(os.path.exists(_answer(attempt, name, host)) for host in speaking(attempt))


def speaking(attempt: str) -> List[str]:
    """Nodes whose samplers wrote just now."""
    found, now = [], time.time()
    for entry in os.scandir(attempt):
        if lost_nodes.is_sampler_file(entry.name):
            with contextlib.suppress(OSError):
                if now - entry.stat().st_mtime < SPEAKING_S:
                    found.append(lost_nodes.host_of(entry.name))
    return found


def _answer(attempt: str, name: str, host: str) -> str:
    return os.path.join(folder(attempt), answer_name(name, host))


class Watch:
    """Sees requests, and has each of them answered once by a process beside this one.

    Args:
        attempt: The attempt's directory.
        mark: What its processes are known by.
        host: This node's name in the names of files.
    """

    def __init__(self, attempt: str, mark: str, host: str) -> None:
        self._words = ["--attempt", attempt, "--mark", mark, "--host", host]
        self._host = host
        self._path = os.path.join(folder(attempt), rundir.EVIDENCE_REQUEST)
        self._seen = self._stamp()
        self._child: "Optional[subprocess.Popen[bytes]]" = None

    def look(self) -> None:
        """Start the answer to a request that is new."""
        if self._child is not None and self._child.poll() is None:
            return
        stamp = self._stamp()
        if stamp is None or stamp == self._seen:
            return
        self._seen = stamp
        wanted = rundir.read_json(self._path) or {}
        name, pid = str(wanted.get("id") or ""), wanted.get("pid") or 0
        if not name.isdigit() or not isinstance(pid, int) or (pid and wanted.get("host") != self._host):
            return
        argv = [sys.executable, "-m", "rltui.onnode.evidence", *self._words, "--id", name, "--pid", str(pid)]
        self._child = subprocess.Popen(argv, stdin=subprocess.DEVNULL)

    def _stamp(self) -> Optional[Tuple[int, int]]:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino


def take(attempt: str, mark: str, host: str, name: str) -> None:
    """Write what the processes of the attempt on this node are doing."""
    from concurrent.futures import ThreadPoolExecutor  # guard, sampler and supervisor have this module and take nothing

    spared = {os.getpid(), os.getppid()}
    found = [(pid, stat) for pid, stat in processes.scanner(mark).scan() if pid not in spared]
    # roles before Ray's own helpers, should there be more than anybody waits for
    told = sorted((_told(pid, stat) for pid, stat in found[:MOST_PROCESSES]), key=lambda one: -one["weight"])
    wanted = [one for one in told if one["weight"]][:MOST_STACKS]
    with ThreadPoolExecutor(AT_ONCE + 1) as pool:
        asked = pool.submit(ray_states.states, attempt, host)
        records = [pool.submit(_leave_flight_record, attempt, one["pid"], host, name) for one in wanted]
        stacks = list(pool.map(_stack, [one["pid"] for one in wanted]))
    for number, one in enumerate(wanted):
        one["stack_by"], one["stack"] = stacks[number]
    answer = {"schema": rundir.SCHEMA, "id": name, "host": host, "at": time.time(), "versions": _versions()}
    if asked.result():
        answer["ray"] = asked.result()
    answer["flight_records"] = sorted(one.result() for one in records if one.result())
    rundir.write_json(_answer(attempt, name, host), {**answer, "processes": told})


def take_one(attempt: str, mark: str, host: str, name: str, pid: int) -> None:
    """Write what one process of the attempt is doing; none where it is not the attempt's, or not there any more."""
    told = [_told(number, stat) for number, stat in processes.scanner(mark).scan() if number == pid]
    for one in told:
        one["stack_by"], one["stack"] = _stack(pid)
    answer = {"schema": rundir.SCHEMA, "id": name, "host": host, "at": time.time(), "processes": told}
    rundir.write_json(os.path.join(folder(attempt), answer_name(name, host, pid)), answer)


def _told(pid: int, stat: processes.Stat) -> Dict[str, Any]:
    """What the kernel says of a process, and its own record of collectives."""
    title = processes.title(pid)
    collectives = read_collectives(pid)
    is_python = os.path.basename(processes.link("/proc/%d/exe" % pid)).startswith("python") and stat.state not in "ZX"
    is_helper = any(mark in word for word in processes.words_of(pid) for mark in HELPERS)
    return {
        "pid": pid,
        "title": title,
        "state": stat.state,
        "wchan": _text("/proc/%d/wchan" % pid),
        # for root alone, and empty for others
        "kernel_stack": _text("/proc/%d/stack" % pid),
        "threads": _threads(pid),
        "collectives": collectives,
        "rank": _rank(pid) if is_python else "",
        "weight": (2 if collectives else 1) if is_python and not is_helper else 0,
    }


def _rank(pid: int) -> str:
    """The number of a process among all of its launcher (torchrun, accelerate, mpirun); empty where it has none."""
    told = processes.environment_of(pid)
    rank = next((told[name] for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if name in told), "")
    return rank if rank.isdigit() else ""


def _threads(pid: int) -> Dict[str, int]:
    """How many threads wait where, by state and kernel function."""
    found: Dict[str, int] = {}
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/%d/task" % pid)[:1000]:
            stat = _text("/proc/%d/task/%s/stat" % (pid, thread))
            state = stat[stat.rfind(")") + 2 :][:1]
            key = "%s %s" % (state or "?", _text("/proc/%d/task/%s/wchan" % (pid, thread)))
            found[key] = found.get(key, 0) + 1
    return found


def read_collectives(pid: int) -> List[Dict[str, Any]]:
    """The newest collectives of one of our roles, oldest first; read from its memory, so a stopped one tells too."""
    path = _memory_file(pid, rundir.COLLECTIVES_MEMORY)
    if not path:
        return []
    records = []
    for line in _text(path, 1 << 20).splitlines():
        with contextlib.suppress(ValueError):  # empty, or being written
            record = json.loads(line)
            if isinstance(record, dict) and "n" in record:
                records.append(record)
    return sorted(records, key=lambda record: int(record["n"]))


def _memory_file(pid: int, name: str) -> str:
    """The path of the memory file ``name`` (memfd_create(2)) that the process holds open; empty: it has none."""
    base = "/proc/%d/fd" % pid
    with contextlib.suppress(OSError):
        for number in os.listdir(base):
            if processes.link("%s/%s" % (base, number)).startswith("/memfd:%s" % name):
                return "%s/%s" % (base, number)
    return ""


def _stack(pid: int) -> Tuple[str, str]:
    """Who told the Python stacks of all threads of ``pid``, and what they are."""
    spy = py_spy()
    said = "py-spy is not installed"
    for _ in range(2 if spy else 0):  # without holding it up, a look at a busy process may fail
        code, said = _run([spy, "dump", "--nonblocking", "--pid", str(pid)])
        if code == 0:
            return "py-spy", said
    stack = _own_stack(pid)
    return ("faulthandler", stack) if stack else ("", "no stack: %s" % said.strip()[-300:])


def _run(argv: List[str]) -> Tuple[int, str]:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=STACK_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return 1, str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace")[:STACK_CHARACTERS]


def py_spy() -> str:
    """The py-spy beside this Python, or on the path; empty where there is none."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    return beside if os.access(beside, os.X_OK) else shutil.which("py-spy") or ""


def _own_stack(pid: int) -> str:
    """What the role's own faulthandler writes when it is asked to; empty where it has none, or is stopped."""
    path = _memory_file(pid, rundir.STACKS_MEMORY)
    stat = processes.read_stat(pid)
    if not path or stat is None or stat.state in "TtZX" or not processes.catches(pid, rundir.STACKS_SIGNAL):
        return ""
    before, never = _size(path), processes.handling(pid, rundir.STACKS_SIGNAL)
    processes.send(pid, stat.start_time, rundir.STACKS_SIGNAL)
    deadline = time.monotonic() + STACK_S
    while time.monotonic() < deadline:
        # a thread takes no second signal while its handler runs: what began to write has ended where none is such
        if _size(path) > before and processes.handling(pid, rundir.STACKS_SIGNAL) <= never:
            break
        time.sleep(POLL_S)
    return rundir.read_tail(path, before).strip()[:STACK_CHARACTERS]


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _leave_flight_record(attempt: str, pid: int, host: str, name: str) -> str:
    """Have a learner give torch's record of its collectives, of CPU and card alike; returns its file, or nothing."""
    path = _memory_file(pid, rundir.FLIGHT_MEMORY)
    stat = processes.read_stat(pid)
    if not path or stat is None or stat.state in "TtZX":
        return ""
    before = _flight_head(path)
    try:  # the pipe is of this process as long as its memory file is
        with open("/proc/%d/fd/%d" % (pid, before["pipe"]), "wb", buffering=0, opener=_at_once) as pipe:
            pipe.write(b".")
    except (OSError, KeyError):
        return ""
    deadline = time.monotonic() + STACK_S
    while _flight_head(path).get("count") == before["count"]:
        if time.monotonic() > deadline:
            return ""
        time.sleep(POLL_S)
    return _keep_flight_record(attempt, path, name, {"pid": pid, "host": host, "at": time.time()})


def _at_once(path: str, flags: int) -> int:
    # a pipe that nobody reads refuses at once; without O_NONBLOCK open(2) would wait for its reader
    return os.open(path, flags & ~os.O_CREAT & ~os.O_TRUNC | os.O_NONBLOCK)


def _flight_head(path: str) -> Dict[str, int]:
    with contextlib.suppress(ValueError):
        return dict(json.loads(_text(path, rundir.FLIGHT_HEAD_BYTES)))
    return {}


def _keep_flight_record(attempt: str, path: str, name: str, taken: Dict[str, Any]) -> str:
    size = rundir.FLIGHT_HEAD_BYTES + _flight_head(path).get("bytes", 0)
    with contextlib.suppress(ValueError):
        record = json.loads(_text(path, size)[rundir.FLIGHT_HEAD_BYTES :])
        if isinstance(record.get("rank"), int) and record.get("entries"):
            file = flight_recorder.live_name(name, record["rank"])
            rundir.write_json(os.path.join(folder(attempt), file), {**record, **taken})
            return file
    return ""


def _versions() -> Dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version(), "kernel": platform.release(), "py-spy": py_spy() or "none"}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    driver = _text("/proc/driver/nvidia/version").splitlines()
    return {**found, "nvidia": driver[0]} if driver else found


def _text(path: str, limit: int = 1 << 16) -> str:
    return processes.contents(path, limit).decode("utf-8", "replace").replace("\0", "").strip(" \n")


def main() -> int:
    """Entry point: ``python -m rltui.onnode.evidence --attempt DIR --mark MARK --id N``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    parser.add_argument("--mark", required=True, help="what its processes are known by, as the sampler takes it")
    parser.add_argument("--host", required=True, help="this node's name in the names of files")
    parser.add_argument("--id", required=True, help="of the request")
    parser.add_argument("--pid", type=int, default=0, help="only of this process")
    options = parser.parse_args()
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.makedirs(folder(options.attempt), mode=0o700, exist_ok=True)
    whose = (options.attempt, options.mark, options.host, options.id)
    if options.pid:
        take_one(*whose, options.pid)
    else:
        take(*whose)
    return 0


if __name__ == "__main__":
    sys.exit(main())
