"""The step that holds Ray on the nodes beside the head, as the driver sees it."""

import os
import subprocess
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from rltui.onnode import ray_nodes, rundir
from rltui.onnode.allocation import Allocation, end_step, nodes_not_answering, start_step_on
from rltui.onnode.lost_nodes import LOG, named_by_srun
from rltui.onnode.ray_head import RayHead
from rltui.onnode.ray_process import MOST_CPUS, RayFailedError

POLL_S = 0.5

RENDEZVOUS_S = 300.0
RENDEZVOUS_PER_NODE_S = 2.0

LOOK_S, LOOK_PER_NODE_S = 1.0, 0.02
"""How often the agents' files are read while the run trains: each is a request to the shared file system."""

CLEAN_UP_S = 20.0
"""How long the agents may take to end what is on their nodes."""


def rendezvous_s(nodes: int, alone_s: float) -> float:
    """How long to wait for all of ``nodes`` to join Ray, where the job does not say; one alone may take ``alone_s``."""
    return max(RENDEZVOUS_S, alone_s) + RENDEZVOUS_PER_NODE_S * nodes


def ray_shares(job: Dict[str, Any], allocation: Allocation) -> List[Dict[str, int]]:
    """What Ray is told that each node has, by the component of the job: ``cpus`` and ``gpus``."""
    cpus = [part.cpus for part in allocation.parts] or [allocation.cpus]
    shares = [(rundir.ray_share(job, number), there) for number, there in enumerate(cpus)]
    return [{**share, "cpus": share["cpus"] or min(there, MOST_CPUS)} for share, there in shares]


class Agents:
    """One agent on each node but this one.

    Args:
        attempt: The attempt's directory.
        allocation: The job.
        head: The running head.
        cpus: CPU cores that Ray is told of on the nodes of each component.

    Attributes:
        failed: Nodes that gave up or never came, with the reason.
        lost: Those of them that Slurm lost: it ends the job, or starts it again.
    """

    def __init__(self, attempt: str, allocation: Allocation, head: RayHead, cpus: List[int]) -> None:
        self._attempt, self._nodes, self._head = attempt, allocation.nodes[1:], head
        self.failed: Dict[str, str] = {}
        self.lost: List[str] = []
        self._look_at = 0.0
        os.makedirs(os.path.join(attempt, ray_nodes.FOLDER), mode=0o700, exist_ok=True)
        argv = [sys.executable, "-m", "rltui.onnode.ray_nodes", "--attempt", attempt]
        argv += ["--head", head.address, "--folder", head.folder, "--job", str(allocation.job_id)]
        argv += ["--interface", os.environ.get("RLTUI_NETWORK_INTERFACE", "")]

        def of_part(part: int) -> List[str]:
            return [*argv, "--part", str(part), "--cpus", str(cpus[part])]

        with open(os.path.join(attempt, LOG), "ab") as log:
            # srun hands the end of its standard input on to all tasks, also where the driver is killed
            self._step = start_step_on(allocation, self._nodes, of_part, subprocess.PIPE, log, log)

    def await_all(
        self,
        addresses: Dict[str, str],
        wanted: Dict[str, Dict[str, float]],
        deadline_s: float,
        requested: Callable[[], bool],
    ) -> None:
        """Wait until Ray counts every slot of every node, or the attempt is to end.

        Args:
            addresses: Of all nodes, by name.
            wanted: What Ray must have of ``CPU`` and ``GPU`` on each node, by its name.
            deadline_s: For all of them together.
            requested: Whether the attempt is to end.

        Raises:
            RayFailedError: The deadline passed or a node gave up; the text names who is missing.
        """
        deadline, shown = time.monotonic() + deadline_s, ""
        while not requested():
            missing = ray_nodes.missing_nodes(self._head, addresses, wanted)
            if not missing:
                return
            words = progress(missing, len(addresses))
            if words != shown:
                shown = words
                rundir.write_stage(self._attempt, "ray-up", words)
            self._judge(missing, deadline_s if time.monotonic() > deadline else None)
            if self.failed:
                raise RayFailedError("%s: %s" % (words, "; ".join(sorted(set(self.failed.values())))))
            time.sleep(POLL_S)

    def _judge(self, missing: List[str], waited_s: Optional[float]) -> None:
        """Note who will never come: agents that say so, all of them where their step is gone or the time is up."""
        self.failed = ray_nodes.failed_agents(self._attempt, missing)
        lost = self._lost_step()
        self._note_lost(lost)
        if not self.failed and (lost or waited_s is not None):
            self.failed = dict.fromkeys(missing, lost or "did not join Ray within %.0f s" % (waited_s or 0.0))

    def problem(self) -> str:
        """Why the other nodes are no longer of use, in one sentence; empty while they are."""
        lost = self._lost_step()
        if lost or time.monotonic() >= self._look_at:
            self.failed = ray_nodes.failed_agents(self._attempt, self._nodes)
            self._look_at = time.monotonic() + max(LOOK_S, LOOK_PER_NODE_S * len(self._nodes))
        self._note_lost(lost)
        return "; ".join(sorted(set(self.failed.values()))) or lost

    def _note_lost(self, lost: str) -> None:
        """Note nodes that Slurm lost, where the step has ended: it kills the others then, and srun names those last."""
        if not lost:
            return
        if not self.lost:
            self.lost = named_by_srun(self._log_lines(), self._nodes) or nodes_not_answering(self._nodes)
        self.failed.update(dict.fromkeys(self.lost, "node failure on %s" % ", ".join(self.lost)))

    def tell_to_stop(self) -> None:
        """Tell the agents that it is over; they clean their nodes up at the same time as the head does its own."""
        if self._step.stdin is not None:
            self._step.stdin.close()

    def wait(self) -> None:
        """Wait until the agents have cleaned up; those that take too long are ended."""
        end_step(self._step, CLEAN_UP_S)

    def silent(self) -> List[str]:
        """Nodes that have not heeded the word to stop: they are gone, or hang."""
        return ray_nodes.silent_agents(self._attempt, self._nodes)

    def _lost_step(self) -> str:
        if self._step.poll() is None:
            return ""
        words = self._log_lines() or ["exit code %d" % self._step.returncode]
        return "the step of the other nodes ended: %s" % words[-1][:300]

    def _log_lines(self) -> List[str]:
        lines = rundir.read_tail(os.path.join(self._attempt, LOG)).splitlines()
        return [line.strip() for line in lines if line.strip()]


def progress(missing: List[str], total: int) -> str:
    """How far Ray has come up: ``7/8 nodes, missing nid010869``."""
    names = ", ".join(missing[:4]) + (" and %d more" % (len(missing) - 4) if len(missing) > 4 else "")
    return "%d/%d nodes%s" % (total - len(missing), total, ", missing " + names if missing else "")
