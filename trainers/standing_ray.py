"""Beside a run on a Ray cluster that somebody else runs: a sampler on each further node that the run's actors are on.

Nothing of ours is started on the nodes of such a cluster, and no ssh leads there; only Ray reaches them. So this is a
driver of its own, started by ``rltui/onnode/standing_job.py``: it looks which Ray jobs are the attempt's, notes them in
``ray.json``, so that others' actors are told apart, and keeps one task without CPUs on each node, which is the sampler.
Ray ends these tasks when this driver ends, and it ends with the attempt.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rltui.onnode import processes, rundir

LOOK_EVERY_S = 2.0
MOST_STARTS = 3
"""Samplers that a host gets one after the other."""


def jobs_of(table: Iterable[Mapping[str, Any]], pids: Iterable[int], here: str) -> list[str]:
    """Ids of the Ray jobs whose drivers are among ``pids`` of the node with the address ``here``.

    Args:
        table: Ray's jobs (``ray._private.state.jobs``).
        pids: The attempt's processes on this node.
        here: This node's address, as Ray has it.
    """
    mine = set(pids)
    return sorted(
        str(job["JobID"])
        for job in table
        if not job["IsDead"] and job["DriverIPAddress"] == here and int(job["DriverPid"]) in mine
    )


def nodes_without_sampler(
    actors: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]], sampled: Iterable[str]
) -> dict[str, str]:
    """Node id by host name of the nodes that live actors are on and that have no sampler: one a host.

    Args:
        actors: The attempt's actors (``ray._private.state.actors``).
        nodes: Ray's nodes (``ray.nodes``).
        sampled: Short names of hosts that have one.
    """
    used = {actor["Address"]["NodeID"] for actor in actors if actor["State"] == "ALIVE"}
    hosts = {
        short_name(node["NodeManagerHostname"]): str(node["NodeID"])
        for node in nodes
        if node["Alive"] and node["NodeID"] in used
    }
    return {host: node for host, node in hosts.items() if host not in set(sampled)}


def short_name(host: str) -> str:
    """A host's name without its domain."""
    return host.split(".")[0]


class Samplers:
    """The samplers of one attempt on nodes other than this one.

    Args:
        attempt: The attempt's directory.
        mark: The attempt's uuid.
    """

    def __init__(self, attempt: str, mark: str) -> None:
        self._attempt = attempt
        self._mark = mark
        self._known: list[str] = []
        self._scanner = processes.AttemptScanner(mark)
        self._tasks: dict[str, Any] = {}
        self._starts: Counter[str] = Counter()

    def look(self) -> None:
        """Note new drivers of the attempt, and start samplers where its actors have come to."""
        import ray
        from ray._private import state  # Ray's public calls ask the dashboard, and name one driver a submission

        own = ray.get_runtime_context().get_job_id()
        pids = [pid for pid, _ in self._scanner.scan()]
        here = ray.util.get_node_ip_address()
        self._note([job for job in jobs_of(state.jobs(), pids, here) if job != own])
        ended, _ = ray.wait([*self._tasks.values()], num_returns=max(1, len(self._tasks)), timeout=0)
        self._tasks = {host: task for host, task in self._tasks.items() if task not in ended}
        actors = [actor for job in self._known for actor in state.actors(job_id=ray.JobID.from_hex(job)).values()]
        sampled = {short_name(os.uname().nodename), *self._tasks}
        for host, node in nodes_without_sampler(actors, ray.nodes(), sampled).items():
            self._starts[host] += 1
            if self._starts[host] <= MOST_STARTS:  # where the run's folder is not there, each ends at once
                self._tasks[host] = self._start(node)

    def _note(self, jobs: list[str]) -> None:
        fresh = [job for job in jobs if job not in self._known]
        path = f"{self._attempt}/{rundir.RAY_ENDPOINT}"
        endpoint = rundir.read_json(path) if fresh else None
        if endpoint is not None:
            self._known += fresh  # those that ended stay: the dead actors of a driver that failed tell why
            rundir.write_json(path, {**endpoint, "jobs": self._known})

    def _start(self, node: str) -> Any:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        pinned = NodeAffinitySchedulingStrategy(node, soft=False)
        # no CPU: a cluster that is full would never start it; pinned hard, as elsewhere it would sample the wrong
        # node
        task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=pinned)(sample)
        return task.remote(self._attempt, self._mark)


def sample(attempt: str, mark: str) -> None:
    """Runs on another node, as a task of Ray: write the node's samples until the task or the attempt is ended."""
    from rltui.onnode import sampler

    sampler.sample_until_end(attempt, mark, 1.0, None)


def main() -> int:
    """Entry point: ``python -m trainers.standing_ray --attempt DIR --mark UUID --parent PID``, in a job of Ray."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempt", required=True, help="directory of the attempt")
    parser.add_argument("--mark", required=True, help="the attempt's uuid")
    parser.add_argument("--parent", type=int, required=True, help="pid of the process to end with")
    options = parser.parse_args()
    started = processes.start_time(options.parent)
    if started is None:
        return 0
    try:
        sample_until_end(options.attempt, options.mark, (options.parent, started))
    except Exception as error:  # noqa: BLE001 (the outermost edge: the run goes on, and says what is not shown)
        rundir.log_event(options.attempt, "warning", f"other nodes of this Ray have no samplers: {error}")
        return 1
    return 0


def sample_until_end(attempt: str, mark: str, parent: tuple[int, str]) -> None:
    """Look again and again until the parent (pid and start time) or the attempt's directory is gone."""
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], logging_level=logging.WARNING, log_to_driver=False)
    samplers = Samplers(attempt, mark)
    while processes.alive(*parent) and Path(attempt).is_dir():
        samplers.look()
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
