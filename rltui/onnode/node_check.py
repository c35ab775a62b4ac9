"""Looks at this node before any GPU is used, and prints what it found as one line of JSON.

One copy runs on every node of a job, in one step; ``node_report`` puts the lines together.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Optional, Sequence

from rltui.onnode import card_kernels, container, node_network, preflight, processes, rundir
from rltui.onnode.node_network import host
from rltui.onnode.ray_process import SOCKET_BASE_LIMIT

GIB = float(1 << 30)
MARK = "rltui_node_check"
"""Key that tells our line from whatever else a node prints."""

VERSIONED = ("torch", "ray", "vllm", "deepspeed", "transformers", "nvidia-nccl-cu12", "nvidia-nccl-cu13")
"""Packages that must be the same on all nodes: they talk to each other, or pickle for each other."""

FREE_TMP_GIB = 20.0
FREE_SHARED_MEMORY_GIB = 4.0
OPEN_FILES = 16384
"""Ray opens a few files for each worker and each other node."""
LEFT_ON_GPU_GIB = 2.0
"""Memory of a GPU in use before the job began that is more than any driver's own."""

NVIDIA_SMI_TIMEOUT_S = 30


def look(options: argparse.Namespace) -> Dict[str, Any]:
    """Everything about this node: facts, ``problems`` that end the attempt, ``warnings`` that do not."""
    job = rundir.read_json(os.path.join(options.attempt, rundir.JOB)) or {}
    found: Dict[str, Any] = {MARK: 1, "node": host(), "time": time.time(), "problems": [], "warnings": []}
    problems, warnings = found["problems"], found["warnings"]
    _look_at_gpus(found, int(job.get("gpus_per_node", rundir.ray_share(job, options.part).get("gpus", 0))))
    _look_at_disk(found, options.attempt)
    _look_at_network(found, options)
    inside = container.read()
    python = look_at_python(job) if inside is None else _look_inside(inside, options.attempt, job)
    problems.extend(python.pop("problems"))
    found.update(python)
    soft = raise_open_files()
    if soft < OPEN_FILES:
        warnings.append("only %d open files are allowed (ulimit -Hn)" % soft)
    return found


def look_at_python(job: Dict[str, Any]) -> Dict[str, Any]:
    """What this python has of what the attempt needs: ``versions``, ``environment`` and ``problems``."""
    problems, found = [], versions()
    if preflight.trains_on_cards(job):
        problems.extend(card_kernels.problems(preflight.compute_capabilities(), sys.executable))
    missing = preflight.missing_modules(sys.executable, job.get("modules", []), job.get("code", ""))
    if missing:
        problems.append("%s cannot import %s" % (sys.executable, ", ".join(missing)))
    return {"versions": found, "environment": environment_hash(found), "problems": problems}


def _look_inside(inside: container.Container, attempt: str, job: Dict[str, Any]) -> Dict[str, Any]:
    """The same of the python in the container; of a script that brings no modules, only that something runs there."""
    found: Dict[str, Any] = {"versions": {}, "environment": environment_hash({}), "problems": []}
    found["problems"].extend(container.problems(inside))
    if found["problems"]:
        return found
    words = [inside.python, "-m", "rltui.onnode.node_check", "--inside", "--attempt", attempt, "--job", "0"]
    marked = {
        **os.environ,
        rundir.ATTEMPT_VARIABLE: job.get("uuid", ""),
    }  # a daemon's container would outlive this step
    try:
        argv, environment = container.enter(words if job.get("modules") else ["true"], marked, attempt, attempt)
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        )
    except OSError as error:
        found["problems"].append("the container cannot be started: %s" % error)
        return found
    said = [line for line in done.stdout.decode("utf-8", "replace").splitlines() if line.startswith('{"versions"')]
    if said:
        found.update(json.loads(said[-1]))
    elif done.returncode or job.get("modules"):
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["exit code %d" % done.returncode]
        found["problems"].append("nothing runs in the container %s: %s" % (inside.image, words[0][:300]))
    return found


def _look_at_gpus(found: Dict[str, Any], wanted: int) -> None:
    if not wanted:
        return
    listed, complaint = preflight.list_gpus()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    # nvidia-smi also lists cards that CUDA_VISIBLE_DEVICES hides from programs, and a cgroup may hide more than that
    given = listed if visible is None else len([one for one in visible.split(",") if one])
    found["gpus"] = min(listed, given)
    if found["gpus"] < wanted:
        why = complaint or ("the job was given %d" % given if given < listed else "nvidia-smi lists no more")
        found["problems"].append("%d of %d GPUs: %s" % (found["gpus"], wanted, why))
    found["problems"].extend(gpu_problems())
    found["warnings"].extend(gpu_warnings())


def gpu_problems() -> List[str]:
    """GPUs that are listed but must not be used."""
    pending = _query("--query-remapped-rows=gpu_bus_id,remapped_rows.pending")
    return ["GPU %s waits for a reset (row remapping is pending)" % row[0] for row in pending if row[1:] == ["1"]]


def gpu_warnings() -> List[str]:
    """What somebody else has left on the GPUs."""
    used = _query("--query-gpu=index,memory.used", "nounits")
    gib = {row[0]: float(row[1]) / 1024 for row in used if len(row) == 2 and row[1].replace(".", "", 1).isdigit()}
    return ["GPU %s has %.1f GiB in use already" % item for item in gib.items() if item[1] > LEFT_ON_GPU_GIB]


def _query(query: str, *form: str) -> List[List[str]]:
    """Rows of one question to nvidia-smi; none where it cannot answer it."""
    argv = ["nvidia-smi", query, "--format=" + ",".join(("csv", "noheader", *form))]
    said = processes.said_by(argv, NVIDIA_SMI_TIMEOUT_S) or ""
    return [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]


def _look_at_disk(found: Dict[str, Any], attempt: str) -> None:
    for what, path, least, wanted in (
        ("the run directory", attempt, preflight.LEAST_FREE_GIB, preflight.LEAST_FREE_GIB),
        ("the temporary directory", tempfile.gettempdir(), preflight.LEAST_FREE_GIB, FREE_TMP_GIB),
        ("/dev/shm", "/dev/shm", 0.0, FREE_SHARED_MEMORY_GIB),
    ):
        try:
            free = shutil.disk_usage(path).free / GIB
        except OSError as error:
            found["problems" if least else "warnings"].append("%s (%s): %s" % (what, path, error.strerror))
            continue
        found.setdefault("free_gib", {})[what] = round(free, 1)
        if free < wanted:
            text = "%s (%s) has %.1f GiB free" % (what, path, free)
            if free < least:
                found["problems"].append("%s, %.0f are needed" % (text, least))
            else:
                found["warnings"].append(text)
    if len(os.fsencode(tempfile.gettempdir())) > SOCKET_BASE_LIMIT and not os.access("/tmp", os.W_OK):
        found["problems"].append("no temporary directory has a short enough name for Ray's sockets; set TMPDIR=/tmp")
    found["problems"].extend(_exchange(attempt))


def _exchange(attempt: str) -> List[str]:
    """Read what the head wrote into the run directory, and write what it can read: is that the same disk?"""
    folder = os.path.join(attempt, "preflight")
    seen = rundir.read_json(os.path.join(folder, "question.json"))
    if seen is None:
        return ["the run directory does not show what the head node wrote into it: %s" % attempt]
    try:
        rundir.write_json(os.path.join(folder, "answer-%s.json" % host()), seen)
    except OSError as error:
        return ["the run directory cannot be written: %s" % error.strerror]
    return []


def _look_at_network(found: Dict[str, Any], options: argparse.Namespace) -> None:
    address, trouble = own_address(options.interface, options.peers.split(",") if options.peers else [])
    if trouble:
        found["problems"].append(trouble)
        return
    found["address"], found["interface"] = address, node_network.interface_of(address)
    try:
        node_network.reserve_block(options.job)
    except node_network.NoPortsError as error:
        found["problems"].append(str(error))


def own_address(interface: str, peers: Sequence[str]) -> "tuple[str, str]":
    """This node's address for Ray and collectives, or nothing and the reason why there is none.

    Args:
        interface: The one to use; empty: the one on the way to the other nodes.
        peers: Names of the other nodes.
    """
    if interface:
        address = node_network.interface_address(interface)
        if address is None:
            there = ", ".join("%s %s" % pair for pair in node_network.interfaces()) or "none"
            return "", "there is no interface %s with an IPv4 address (there are: %s)" % (interface, there)
        return address, ""
    routed: Optional[str] = None
    for peer in peers:
        routed = routed or node_network.routed_address(peer)
    if routed is None and peers:
        return "", "no other node can be reached by its name (%s)" % ", ".join(peers[:3])
    return routed or "127.0.0.1", ""


def versions() -> Dict[str, str]:
    """Versions of Python and of what the nodes must have alike; read from metadata, since importing takes seconds."""
    from importlib import metadata

    found = {"python": "%d.%d.%d" % sys.version_info[:3]}
    for name in VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def environment_hash(found: Dict[str, str]) -> str:
    """One short word for ``found``; equal for equal environments."""
    text = json.dumps(found, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def raise_open_files() -> int:
    """Allow this process and its children as many open files as may be; returns how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # the soft limit is 1024 nearly everywhere, and each process may raise its own up to the hard one
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def main() -> int:
    """Entry point: one line of JSON on stdout, whatever happens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    parser.add_argument("--job", type=int, required=True, help="number from which the ports follow")
    parser.add_argument("--interface", default="", help="network interface; empty: the one on the way to the peers")
    parser.add_argument("--peers", default="", help="names of the other nodes, with commas")
    parser.add_argument("--part", type=int, default=0, help="number of the job's component that the node is in")
    parser.add_argument("--inside", action="store_true", help="say only what this python, in a container, has")
    options = parser.parse_args()
    if options.inside:
        job = rundir.read_json(os.path.join(options.attempt, rundir.JOB)) or {}
        sys.stdout.write(json.dumps(look_at_python(job)) + "\n")
        return 0
    options.peers = ",".join(peer for peer in options.peers.split(",") if peer and peer != host())
    try:
        found = look(options)
    except Exception as error:  # noqa: BLE001 (whatever is wrong with this node is what the check is for)
        found = {MARK: 1, "node": host(), "time": time.time(), "warnings": []}
        found["problems"] = ["the check itself failed: %s: %s" % (type(error).__name__, error)]
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
