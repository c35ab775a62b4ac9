"""The queue of one cluster as somebody looks at it: asked only then, and no more often than Slurm may be."""

from __future__ import annotations

import math
import os
import random
import threading
import time
from collections.abc import Callable, Sequence

from msgspec import Struct, structs

from rltui.cluster.cluster import Cluster
from rltui.cluster.facts import ClusterFacts, NodeFacts
from rltui.cluster.host_facts import HostCard, HostState, HostTicket, facts_of, host_states
from rltui.cluster.hosts import HostsCluster
from rltui.cluster.jobs import JobSnapshot
from rltui.cluster.plain_text import plain
from rltui.cluster.profile import LOCAL
from rltui.cluster.profiles import Profiles
from rltui.cluster.queue_facts import QueuedJob
from rltui.cluster.ray_cluster import RayCluster
from rltui.cluster.slurm.poller import AFTER_CHANGE_S, Needs, next_look_s
from rltui.cluster.slurm_cluster import SlurmCluster
from rltui.errors import ClusterError, UsageError
from rltui.onnode.host_tickets import FOLDER_VARIABLE
from rltui.service.nodes import ClusterNodes, NodeGroup, grouped

FILES_S = 2.0
"""Between two looks at a queue that costs no controller anything."""

OWN_WORDS = (FOLDER_VARIABLE, "RLTUI_LOCAL_CPUS", "RLTUI_LOCAL_GPUS")
"""Variables of this process that say what this machine has for runs."""

HIDDEN = "the site hides other users' jobs: these are yours, and places in the queue are not known"
OF_RAY = "Ray has no queue and tells no job's GPUs: these are the submitted jobs that it remembers"


class ClusterQueue(Struct, frozen=True, kw_only=True):
    """A cluster's queue; where it could not be asked now, the picture from before with the reason."""

    cluster: str
    scheduler: str = "slurm"
    jobs: tuple[QueuedJob, ...] = ()
    """Those that wait, the next one first, then those that hold something, the one with the least time left first."""
    groups: tuple[NodeGroup, ...] = ()
    """Nodes that are alike, those with free GPUs first."""
    note: str = ""
    """What this scheduler does not tell, or hides."""
    taken_at: float = 0.0
    """When the scheduler answered, by this machine's clock; 0: never."""
    problem: str = ""

    @property
    def waiting(self) -> tuple[QueuedJob, ...]:
        """Jobs that hold nothing yet."""
        return tuple(job for job in self.jobs if job.waits)

    @property
    def holding(self) -> tuple[QueuedJob, ...]:
        """Jobs that hold nodes, anybody's."""
        return tuple(job for job in self.jobs if not job.waits)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes that the cluster has, free or not."""
        return sum(group.gpus * len(group.nodes) for group in self.groups)

    @property
    def gpus_free(self) -> int:
        """GPUs that nobody has, on nodes in service."""
        return sum((group.gpus_free or 0) * len(group.nodes) for group in self.groups if group.is_usable)

    @property
    def free_by_type(self) -> dict[str, tuple[int, int]]:
        """Type of GPU → how many are free, and how many there are."""
        found: dict[str, tuple[int, int]] = {}
        for group in self.groups:
            free, total = found.get(group.gpu, (0, 0))
            more = (group.gpus_free or 0) * len(group.nodes) if group.is_usable else 0
            found[group.gpu] = (free + more, total + group.gpus * len(group.nodes))
        return {kind: numbers for kind, numbers in found.items() if numbers[1]}

    @property
    def partitions(self) -> tuple[str, ...]:
        """All partitions there are, by name."""
        named = {name for group in self.groups for name in group.partitions}
        named.update(name for job in self.jobs for name in job.partition.split(","))
        return tuple(sorted(named - {""}))

    def of_partition(self, name: str) -> ClusterQueue:
        """The same, of one partition only; empty: all."""
        if not name:
            return self
        jobs = tuple(job for job in self.jobs if name in job.partition.split(","))
        groups = tuple(group for group in self.groups if name in group.partitions)
        return structs.replace(self, jobs=jobs, groups=groups)


def usual_cluster(profiles: Profiles) -> str:
    """The cluster that is meant where none is named: the only one with Slurm, else of hosts, else this machine.

    Raises:
        UsageError: There are several with Slurm.
    """
    slurm = [name for name, profile in profiles.by_name.items() if profile.scheduler == "slurm"]
    if len(slurm) > 1:
        raise UsageError("There are several Slurm clusters.", f"Name one of {', '.join(sorted(slurm))}.")
    hosts = [name for name, profile in profiles.by_name.items() if profile.scheduler == "hosts"]
    return slurm[0] if slurm else hosts[0] if len(hosts) == 1 else LOCAL


class QueueReader:
    """Looks at one cluster's queue, for any number of threads.

    Args:
        cluster: Whose.
        clock: Epoch seconds.
        chance: Random numbers in [0, 1).
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._chance = chance
        self._looking = threading.Lock()
        self._failures = 0
        self._asked_at = -math.inf
        self._due = -math.inf
        self._last = ClusterQueue(cluster=cluster.name, scheduler=cluster.profile.scheduler)

    def look(self, *, again: bool = False) -> ClusterQueue:
        """The queue: as it is now where a look is due, else as it was; where it cannot be asked, with the reason.

        Args:
            again: Somebody does not want to wait for the next look; it still comes no sooner than a few seconds after
                the last.
        """
        with self._looking:
            now = self._clock()
            is_due = now >= self._due or now < self._asked_at or (again and now - self._asked_at >= AFTER_CHANGE_S)
            if is_due:
                self._asked_at = now
                self._last = self._looked(now)
                self._due = self._clock() + self._pause_s()
            return self._last

    def _looked(self, now: float) -> ClusterQueue:
        try:
            found = structs.replace(queue_of(self._cluster), taken_at=now)
        except ClusterError as error:
            self._failures += 1
            return structs.replace(self._last, problem=error.message)
        self._failures = 0
        return found

    def _pause_s(self) -> float:
        if isinstance(self._cluster, SlurmCluster) or self._failures:
            return next_look_s(Needs(failures=self._failures), self._chance())
        return FILES_S


def queue_of(cluster: Cluster) -> ClusterQueue:
    """The queue of a cluster now: of Slurm by one squeue and one scontrol, of the others what they know.

    Raises:
        ClusterError: It cannot be asked.
    """
    if isinstance(cluster, SlurmCluster):
        # with PrivateData=jobs squeue lists one's own jobs and is silent on there being others
        note = HIDDEN if cluster.slurm.hides_jobs() else ""
        jobs = cluster.slurm.everybody()
        if note:  # a place among one's own jobs is none
            jobs = tuple(structs.replace(job, position=None, waiting=None) for job in jobs)
        groups = _groups(cluster, cluster.slurm.nodes())
        return ClusterQueue(cluster=cluster.name, jobs=jobs, groups=groups, note=note)
    if isinstance(cluster, RayCluster):
        open_jobs = [_of_ray(job) for job in cluster.ray.list().values() if not job.has_ended]
        ordered = sorted(open_jobs, key=lambda job: (not job.waits, job.submitted_at))
        return ClusterQueue(cluster=cluster.name, scheduler="ray", jobs=tuple(ordered), note=OF_RAY)
    assert isinstance(cluster, HostsCluster)
    return _of_host(cluster)


def _groups(cluster: Cluster, nodes: tuple[NodeFacts, ...]) -> tuple[NodeGroup, ...]:
    return grouped(ClusterNodes(profile=cluster.profile, facts=ClusterFacts(nodes=nodes)))


def _of_ray(job: JobSnapshot) -> QueuedJob:
    return QueuedJob(
        job_id=job.job_id,
        state=job.state,
        is_mine=job.comment.startswith("rltui:"),
        name=job.name,
        reason=job.reason,
        submitted_at=job.submitted_at,
    )


def _of_host(cluster: HostsCluster) -> ClusterQueue:
    """The queue of a machine: everybody's tickets, and who uses cards without one."""
    here = {} if cluster.profile.host else {name: os.environ[name] for name in OWN_WORDS if name in os.environ}
    states = host_states(cluster.client, cluster.profile, here)
    known = {name: state for name, state in states.items() if isinstance(state, HostState)}
    jobs = [job for name, state in known.items() for job in _jobs_on(state, (name,) if len(states) > 1 else ())]
    cpus = sum(ticket.cpus for state in known.values() for ticket in state.tickets if ticket.runs and ticket.is_mine)
    slots = f"you hold {cpus} CPU slots; there are {sum(state.cpus for state in known.values())} CPUs"
    order = "cards: fewest held first, then first come" if any(state.gpus for state in known.values()) else ""
    problem = next((state.problem for state in known.values() if state.problem), "")
    return ClusterQueue(
        cluster=cluster.name,
        scheduler=cluster.profile.scheduler,
        jobs=tuple(sorted(jobs, key=lambda job: not job.waits)),
        groups=_groups(cluster, facts_of(states).nodes),
        note=problem or "; ".join(filter(None, (slots, order))),
    )


def _jobs_on(state: HostState, nodes: tuple[str, ...]) -> list[QueuedJob]:
    waiting = [ticket for ticket in state.tickets if not ticket.runs]
    held = [ticket for ticket in state.tickets if ticket.runs]
    jobs = [_of_ticket(ticket, waiting) for ticket in (*waiting, *held)]
    jobs += [_without_ticket(card) for card in state.foreign]
    return [structs.replace(job, nodes=nodes) for job in jobs]


def _of_ticket(ticket: HostTicket, waiting: Sequence[HostTicket]) -> QueuedJob:
    rivals = [one for one in waiting if one.is_mine == ticket.is_mine or (one.gpus and ticket.gpus)]
    return QueuedJob(
        job_id=str(ticket.pid),
        state="running" if ticket.runs else "pending",
        user=plain(ticket.user),
        is_mine=ticket.is_mine,
        name=plain(ticket.label),
        reason="" if ticket.runs or ticket.gpus else f"waits for {ticket.cpus} CPU slot{'s' * (ticket.cpus != 1)}",
        gpus=ticket.gpus,
        cards=ticket.gpu_indices,
        node_count=1,
        submitted_at=0.0 if ticket.runs else ticket.since,
        since=ticket.since if ticket.runs else 0.0,
        position=None if ticket.runs else rivals.index(ticket) + 1,
        waiting=None if ticket.runs else len(rivals),
    )


def _without_ticket(card: HostCard) -> QueuedJob:
    """A card in use by what has no ticket, as a job of its own."""
    pid, user, program = card.processes[0] if card.processes else (0, "", "")
    more = f" and {len(card.processes) - 1} more" if len(card.processes) > 1 else ""
    what = f"{program or 'a process'}{more}" if pid else f"{card.memory_used_mib} MiB in use"
    return QueuedJob(
        job_id=str(pid or "?"),
        state="running",
        user=plain(user) or "?",
        name=f"{plain(what)} (without a ticket)",
        gpus=1,
        cards=(card.index,),
        node_count=1,
    )
