"""Limits of the profile, partitions, accounts and qualities of service."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rltui.check.live_subject import LiveSubject, duration, live_rule, some
from rltui.check.rule import Trouble, settled_by
from rltui.cluster.profile import Profile, container_of
from rltui.layout.time_limit import time_limit_s


@live_rule("S611", "error")
def longer_than_the_profile(subject: LiveSubject) -> Iterator[Trouble]:
    """The time limit is longer than the cluster's profile says that it accepts."""
    message = time_over_profile(subject.profile, subject.layout.slurm.time) if subject.on_slurm else ""
    if message:
        most = duration(time_limit_s(subject.profile.max_time) or 0.0)
        yield settled_by(message, "slurm.time", most)


@live_rule("S612", "error")
def more_nodes_than_the_profile(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout asks for more nodes than the cluster's profile says one job may have; without Slurm or Ray, one."""
    nodes = subject.layout.hardware.all_nodes
    if problem := more_than_one_machine(subject.profile, nodes) or nodes_over_profile(subject.profile, nodes):
        yield Trouble(problem, "hardware.nodes")


def time_over_profile(profile: Profile, time: str) -> str:
    """Why a job of this time limit is none for the cluster, by its profile; empty where it may be."""
    asked_s, most_s = time_limit_s(time), time_limit_s(profile.max_time)
    is_over = asked_s is not None and most_s is not None and asked_s > most_s
    return f"{time} is asked for; {profile.name} accepts at most {profile.max_time}" if is_over else ""


def nodes_over_profile(profile: Profile, nodes: int) -> str:
    """The same for its number of nodes."""
    most = profile.max_nodes
    return f"{nodes} nodes; a job on {profile.name} may have {most}" if most and nodes > most else ""


def more_than_one_machine(profile: Profile, nodes: int) -> str:
    """Why a run of so many nodes has no place where there is neither Slurm nor Ray; empty where it has one."""
    if profile.scheduler not in ("local", "hosts") or nodes <= 1:
        return ""
    what = "runs each on one of its machines" if len(profile.hosts) > 1 else "is one machine"
    return f"{nodes} nodes; {profile.name} {what}"


@live_rule("S613", "error")
def no_such_partition(subject: LiveSubject) -> Iterator[Trouble]:
    """The partition does not exist on the cluster; Slurm would refuse the job."""
    name = subject.setting("partition")
    if not subject.on_slurm or not subject.facts or not subject.facts.partitions or subject.partition:
        return
    names = [partition.name for partition in subject.facts.partitions]
    if not name:
        message = f"no partition is named, and {subject.profile.name} has no default; it has {some(names)}"
        yield Trouble(message, "slurm.partition", (f"slurm.partition={names[0]}",) if len(names) == 1 else ())
        return
    wanted = [one.strip() for one in name.split(",")]
    strange = next(one for one in wanted if one not in names)
    near = difflib.get_close_matches(strange, names, n=1)
    yield Trouble(
        f"{subject.profile.name} has no partition {strange!r}; it has {some(names)}",
        "slurm.partition",
        (f"slurm.partition={','.join(near[0] if one == strange else one for one in wanted)}",) if near else (),
    )


@live_rule("S614", "error")
def partition_is_down(subject: LiveSubject) -> Iterator[Trouble]:
    """The partition is down or closed: jobs would wait until an administrator opens it again."""
    partition = subject.partition
    if partition and not partition.is_up:
        up = [other.name for other in subject.facts.partitions if other.is_up] if subject.facts else []
        yield Trouble(f"partition {partition.name} is down; up are {some(up) or 'none'}", "slurm.partition")


@live_rule("S615", "error")
def longer_than_the_partition(subject: LiveSubject) -> Iterator[Trouble]:
    """The time limit is longer than the partition's: Slurm refuses such a job, or never starts it."""
    partition, asked = subject.partition, time_limit_s(subject.layout.slurm.time)
    if partition and partition.max_time_s is not None and asked is not None and asked > partition.max_time_s:
        most = duration(partition.max_time_s)
        yield settled_by(
            f"{subject.layout.slurm.time} is asked for; partition {partition.name} allows {most}", "slurm.time", most
        )


@live_rule("S616", "error")
def more_nodes_than_the_partition(subject: LiveSubject) -> Iterator[Trouble]:
    """The job asks for more nodes than the partition gives to one job."""
    partition, nodes = subject.partition, subject.layout.hardware.nodes
    if partition and partition.max_nodes is not None and nodes > partition.max_nodes:
        yield Trouble(f"{nodes} nodes; partition {partition.name} gives a job {partition.max_nodes}", "hardware.nodes")


@live_rule("S617", "error")
def account_is_not_let_in(subject: LiveSubject) -> Iterator[Trouble]:
    """The account is not one of the user's, or the partition does not let it in."""
    account = subject.setting("account")
    if not subject.on_slurm or not subject.facts or not account:
        return
    own, partition = subject.facts.accounts, subject.partition
    if own and account not in own:
        fix = (f"slurm.account={own[0]}",) if len(own) == 1 else ()
        yield Trouble(f"{account!r} is none of your accounts: {some(own)}", "slurm.account", fix)
    elif partition and partition.accounts and account not in partition.accounts:
        # newer Slurm lets in what is below a listed account too, which cannot be seen here
        let_in = [name for name in partition.accounts if name in own]
        if let_in:
            message = f"partition {partition.name} does not let account {account!r} in; it lets in {some(let_in)}"
            yield settled_by(message, "slurm.account", let_in[0])


@live_rule("S618", "error")
def qos_is_not_let_in(subject: LiveSubject) -> Iterator[Trouble]:
    """The partition does not let this quality of service in."""
    qos, partition = subject.setting("qos"), subject.partition
    if partition and qos and partition.qos and qos not in partition.qos:
        yield Trouble(
            f"partition {partition.name} does not let qos {qos!r} in; it lets in {some(partition.qos)}",
            "slurm.qos",
            (f"slurm.qos={partition.qos[0]}",) if len(partition.qos) == 1 else (),
        )


@live_rule("S619", "error")
def not_enough_usable_nodes(subject: LiveSubject) -> Iterator[Trouble]:
    """Too few nodes could ever run the job.

    Drained, down and excluded nodes do not count, nor do those with fewer GPUs than the layout wants of each.
    """
    nodes, hardware = subject.nodes, subject.layout.hardware
    fitting = [node for node in nodes if hardware.on_cpu or node.gpus >= hardware.gpus_per_node]
    if not fitting or not subject.on_slurm:
        return  # H411 says that no node is large enough
    excluded = subject.excluded
    usable = [node for node in fitting if node.is_usable and node.name not in excluded]
    if len(usable) >= hardware.nodes:
        return
    left_out = [f"{node.name} (excluded)" for node in fitting if node.name in excluded]
    left_out += [
        f"{node.name} ({node.reason or ' '.join((node.state, *node.flags))})"
        for node in fitting
        if not node.is_usable and node.name not in excluded
    ]
    because = f"; not usable: {some(left_out)}" if left_out else ""
    yield Trouble(f"{hardware.nodes} nodes are asked for, {len(usable)} are usable{because}", "hardware.nodes")


@live_rule("S620", "note")
def has_to_wait(subject: LiveSubject) -> Iterator[Trouble]:
    """Fewer nodes are free right now than the job needs, so it will wait in the queue."""
    nodes, hardware = subject.nodes, subject.layout.hardware
    excluded = subject.excluded if nodes else frozenset()
    usable = [node for node in nodes if node.is_usable and node.name not in excluded]
    usable = [node for node in usable if hardware.on_cpu or node.gpus >= hardware.gpus_per_node]
    if len(usable) < hardware.nodes or subject.profile.scheduler not in ("slurm", "hosts"):
        return
    wanted = 0 if hardware.on_cpu else hardware.gpus_per_node
    free = [
        node
        for node in usable
        if node.state in ("idle", "mixed") and (node.gpus_used is None or node.gpus - node.gpus_used >= wanted)
    ]
    if len(free) < hardware.nodes:
        yield Trouble(f"{len(free)} of {hardware.nodes} nodes are free right now; the job will wait", "hardware.nodes")


@live_rule("S622", "error")
def not_a_het_job(subject: LiveSubject) -> Iterator[Trouble]:
    """The layout has nodes of several kinds, and the cluster cannot give them in one job.

    Slurm can: a het job has a component for each kind. A Ray that stands already, and machines without a scheduler,
    know no kinds. In a container of pyxis, srun would have to start Ray on another component than its own.
    """
    if not subject.layout.hardware.more:
        return
    container = container_of(subject.layout.slurm, subject.profile)
    if not subject.on_slurm:
        yield Trouble(f"{subject.profile.name} has no Slurm: all nodes are of one kind there", "hardware.more")
    elif container and container.runtime == "pyxis":
        yield Trouble("pyxis does not go together with nodes of several kinds; apptainer does", "hardware.more")


@live_rule("S621", "warning")
def excludes_what_is_not_there(subject: LiveSubject) -> Iterator[Trouble]:
    """An excluded node does not exist on the cluster: a slip of the pen, or a list from another one.

    Slurm refuses jobs that exclude a node it does not know.
    """
    if not subject.facts or not subject.facts.nodes or not subject.on_slurm:
        return
    known = {node.name for node in subject.facts.nodes}
    exclude = subject.layout.slurm.exclude
    strange = [name for name in exclude if name not in known and "[" not in name]
    if strange:
        kept = ", ".join(name for name in exclude if name not in strange)
        yield settled_by(f"{subject.profile.name} has no node {some(strange)}", "slurm.exclude", f"[{kept}]")
