"""Ray on the nodes beside the head: one agent on each starts a worker and a sampler, and cleans up when told to.

An agent's standard input comes from the driver on the head node. Its end is the word to stop, be it because the
training is over or because the driver is gone. SIGTERM is not: Slurm sends it to every node at once when a job is
cancelled, and the trainer on the head still has to save what these nodes hold.
"""

import argparse
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

from rltui.onnode import guard, processes, rundir
from rltui.onnode.ask_http import ask
from rltui.onnode.environment import attempt_environment
from rltui.onnode.node_check import own_address, raise_open_files
from rltui.onnode.node_network import host, interface_of
from rltui.onnode.ray_head import RayHead
from rltui.onnode.ray_process import RayFailedError, RayProcess, RaySpec, block_of, pinned
from rltui.onnode.script_exports import script_place

POLL_S = 0.5
JOIN_S = 240.0
"""Ray gives up by itself where the head does not answer; ending one that is only slow would make it slower."""
TRIES = 4
NODES_API = "/api/v0/nodes?detail=1&limit=10000"
FOLDER = "nodes"
"""Folder of the attempt's directory in which each agent says how it fares."""


class RayWorker(RayProcess):
    """A Ray worker node that belongs to a head elsewhere."""

    def join(self, head: str, should_stop: Callable[[], bool]) -> None:
        """Start Ray and wait until it has joined ``head``.

        Raises:
            RayFailedError: It did not join.
        """
        for turn in range(TRIES):
            self.launch(["--address=%s" % head, *pinned(block_of(self.spec, turn))])
            if self.joined(head, time.monotonic() + JOIN_S, should_stop) or should_stop():
                return
            self.stop()
            shutil.rmtree(self.folder, ignore_errors=True)
            # all nodes knock at the head's door at the same moment; those that were turned away spread out
            time.sleep(random.uniform(1.0, 4.0))
        raise RayFailedError("Ray on %s did not join %s: %s" % (host(), head, self.last_words()))


class Agent:
    """One node's part of the attempt."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.attempt: str = options.attempt
        self.job = rundir.read_json(os.path.join(self.attempt, rundir.JOB)) or {}
        self.uuid: str = self.job["uuid"]
        self.told_to_stop = False
        self.environment: Dict[str, str] = {}

    def run(self) -> int:
        """Join Ray, stay until the driver says stop, clean up; 0 unless Ray failed, or cannot be started here."""
        try:
            self.environment = attempt_environment(self.attempt, self.job)
            return self._run()
        except OSError as error:  # an env_file that this node does not have, no room for a process
            return self._failed(str(error))

    def _run(self) -> int:
        address, trouble = own_address(self.options.interface, [self.options.head.rsplit(":", 1)[0]])
        if trouble:
            return self._failed(trouble)
        use_interface(self.environment, address)
        spec = RaySpec(
            self.job["argv"][0],
            self.attempt,
            self.uuid,
            self.options.cpus,
            rundir.ray_share(self.job, self.options.part)["gpus"],
            address=address,
            folder=self.options.folder,
            job=self.options.job,
            log="ray-%s.log" % host(),
            script=script_place(self.attempt, self.environment),
            part=self.options.part,
        )
        worker = RayWorker(spec, self.environment)
        watcher = guard.start(self.attempt, self.uuid, worker.folder, "--node")
        try:
            return self._serve(worker)
        finally:
            worker.stop()
            processes.end_all(self.uuid, grace_s=3.0, exclude=(os.getpid(),))
            worker.remove_folder()
            guard.dismiss(watcher)

    def _serve(self, worker: RayWorker) -> int:
        self._say("starting", "")
        try:
            worker.join(self.options.head, self._should_stop)
        except (RayFailedError, OSError) as error:
            return self._failed(str(error))
        self._say("up", "")
        self._start_sampler()
        while not self._should_stop(POLL_S):
            problem = worker.death()
            if problem:
                return self._failed(problem)
        self._say("ended", "")
        return 0

    def _should_stop(self, wait_s: float = 0.0) -> bool:
        """Whether the driver's end of the pipe is closed; waits at most ``wait_s`` for it."""
        while not self.told_to_stop and select.select([0], [], [], wait_s)[0]:
            wait_s = 0.0
            # select(2) calls the end of a pipe readable too; only an empty read is it
            self.told_to_stop = not os.read(0, 4096)
        return self.told_to_stop

    def _start_sampler(self) -> None:
        argv = [sys.executable, "-m", "rltui.onnode.sampler", "--attempt", self.attempt, "--mark", self.uuid]
        argv += ["--parent", str(os.getpid())]
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, env=self.environment, start_new_session=True)

    def _say(self, state: str, reason: str) -> None:
        record = {"schema": rundir.SCHEMA, "node": host(), "state": state, "reason": reason, "at": time.time()}
        rundir.write_json(os.path.join(self.attempt, FOLDER, "%s.json" % host()), record)

    def _failed(self, reason: str) -> int:
        self._say("failed", reason)
        sys.stderr.write("rltui: %s: %s\n" % (host(), reason))
        return 1


def use_interface(environment: Dict[str, str], address: str) -> None:
    """Point collectives at the interface that Ray uses, unless the user has chosen one.

    gloo takes the host name's address otherwise, which many nodes resolve to loopback; NCCL takes the first interface,
    and without the equals sign all whose names begin so: with bond0 the networks of bond0.100 too.
    """
    interface = interface_of(address)
    if interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", "=" + interface)
    environment.setdefault("VLLM_HOST_IP", address)


def missing_nodes(head: RayHead, addresses: Dict[str, str], wanted: Dict[str, Dict[str, float]]) -> List[str]:
    """Nodes that Ray does not count yet, or not with everything.

    Args:
        head: Whose dashboard is asked; while that does not answer, all are missing.
        addresses: Address of each node by its name.
        wanted: What Ray must have of ``CPU`` and ``GPU`` on each, by its name.
    """
    there = _joined(head)
    return [
        node
        for node, address in addresses.items()
        if any(there.get(address, {}).get(name, 0.0) < amount for name, amount in wanted[node].items())
    ]


def _joined(head: RayHead) -> Dict[str, Dict[str, float]]:
    """Resources of each live Ray node, by address; empty while the dashboard does not answer."""
    return parse_nodes(ask(head.dashboard + NODES_API, head.token, 5.0).value)


def parse_nodes(value: Any) -> Dict[str, Dict[str, float]]:
    """Resources by address of the live nodes in an answer of Ray's State API (2.60)."""
    try:
        rows = value["data"]["result"]["result"]
    except (TypeError, KeyError):
        return {}
    return {
        str(row.get("node_ip")): dict(row.get("resources_total") or {})
        for row in rows
        if isinstance(row, dict) and row.get("state") == "ALIVE"
    }


def failed_agents(attempt: str, nodes: Sequence[str]) -> Dict[str, str]:
    """Agents that gave up, by node, with their reasons."""
    return {node: str(record["reason"]) for node, record in _said(attempt, nodes) if record.get("state") == "failed"}


def silent_agents(attempt: str, nodes: Sequence[str]) -> List[str]:
    """Nodes whose agents were up and have not said since that they end."""
    return [node for node, record in _said(attempt, nodes) if record.get("state") == "up"]


def _said(attempt: str, nodes: Sequence[str]) -> List[Tuple[str, Dict[str, Any]]]:
    paths = [(node, os.path.join(attempt, FOLDER, "%s.json" % node)) for node in nodes]
    return [(node, rundir.read_json(path) or {}) for node, path in paths]


def main() -> int:
    """Entry point of an agent; 0 unless Ray failed on this node."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    parser.add_argument("--head", required=True, help="where Ray's head listens, IP:PORT")
    parser.add_argument("--folder", required=True, help="Ray's folder, the same on all nodes")
    parser.add_argument("--job", type=int, required=True, help="number from which the ports follow")
    parser.add_argument("--cpus", type=int, required=True, help="CPU cores that Ray is told of")
    parser.add_argument("--part", type=int, default=0, help="number of the job's component that the node is in")
    parser.add_argument("--interface", default="", help="network interface; empty: the one on the way to the head")
    options = parser.parse_args()
    rundir.keep_private(options.attempt)
    # a handler, not SIG_IGN: what is ignored stays so through exec, in Ray and in all that Ray starts
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):
        signal.signal(number, lambda *_: None)
    raise_open_files()
    return Agent(options).run()


if __name__ == "__main__":
    sys.exit(main())
