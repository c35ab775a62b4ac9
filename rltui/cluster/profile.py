"""A cluster's profile: everything rltui has to know of a place before it can run something there."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from rltui.errors import RltuiError
from rltui.layout.scalars import Name
from rltui.layout.secret_words import SECRET_VALUE, is_secret_name
from rltui.layout.settings import Container, Slurm
from rltui.onnode.rundir import TOLD_BY_DEFAULT

TransportName = Literal["auto", "local", "paramiko", "openssh"]
SchedulerName = Literal["slurm", "ray", "hosts", "local"]
EventKind = Literal["started", "ended", "stalled", "warned", "fixed", "needs you"]
TerminalSignal = Literal["bell", "osc9", "osc777", "none"]

LOCAL = "local"
"""Name of the embedded cluster: this machine, always there."""


class BadNode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that runs keep away from, with the reason, since such lists outlive the memory of why."""

    node: Name
    reason: str = ""
    since: str = ""
    """The day it was entered, ``2026-11-20``."""
    until: str = ""
    """The first day on which it may be used again; empty: until somebody removes it."""

    def is_avoided(self, today: str) -> bool:
        """Whether runs keep away from it on that day, ``2026-11-20``; somebody may have written ``2026-9-5``."""
        return not self.until or "-".join(part.strip().zfill(2) for part in self.until.split("-")) > today


class PartitionProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is different in one partition; what is empty or 0 is as in the rest of the profile."""

    account: str = ""
    qos: str = ""
    constraint: str = ""
    max_time: str = ""
    max_nodes: Annotated[int, Meta(ge=0)] = 0
    gpu: str = ""
    gres: str = ""
    gpus_per_node: Annotated[int, Meta(ge=0)] = 0
    cpus_per_node: Annotated[int, Meta(ge=0)] = 0
    memory_gib: Annotated[float, Meta(ge=0)] = 0.0


class Notify(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told of the cluster's runs, of what, and how; see ``rltui.onnode.notify``."""

    events: Annotated[
        list[EventKind], Meta(min_length=1, description="What is told; started is for those who ask for it.")
    ] = field(default_factory=lambda: list(TOLD_BY_DEFAULT))  # type: ignore[arg-type]
    terminal: Annotated[
        TerminalSignal, Meta(description="What an open cockpit sends its terminal: a bell, and with osc… words too.")
    ] = "bell"
    desktop: Annotated[bool, Meta(description="Show it on the desktop (notify-send) where there is one.")] = False
    webhook: Annotated[
        str, Meta(description="The variable of env_file that holds the address; it gets Slack's JSON.")
    ] = ""
    mail: Annotated[
        list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._%+-]*(@[A-Za-z0-9.-]+)?$", max_length=254)]],
        Meta(description="Addresses, for the site's sendmail."),
    ] = field(default_factory=list)
    command: Annotated[
        list[str], Meta(description="Any program and its arguments; the message is on its standard input.")
    ] = field(default_factory=list)

    def for_nodes(self) -> dict[str, Any]:
        """What others than an open cockpit need to tell anybody, as plain JSON; empty: there is nobody to tell."""
        channels = {"desktop": self.desktop, "webhook": self.webhook, "mail": self.mail, "command": self.command}
        chosen = {name: value for name, value in channels.items() if value}
        return {"events": list(self.events), **chosen} if chosen else {}


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cluster. No secret is ever in it: it is shown on screens and committed to repositories."""

    name: Name
    summary: str = ""

    # how to get there
    transport: TransportName = "auto"
    host: Annotated[str, Meta(description="SSH host or alias of ~/.ssh/config; empty: this machine.")] = ""
    other_hosts: Annotated[
        list[str], Meta(description="Further login nodes, used while host is away; host: [A, B] says the same.")
    ] = field(default_factory=list)
    user: str = ""
    port: Annotated[int, Meta(ge=0, le=65535)] = 0
    identity_file: str = ""
    proxy_jump: list[str] = field(default_factory=list)
    """Hosts to go through, as ``[user@]host[:port]``, first one first."""

    # what runs jobs there
    scheduler: SchedulerName = "slurm"
    hosts: Annotated[
        list[str],
        Meta(description="SSH hosts without a scheduler that see the same run_root; a run takes one of them."),
    ] = field(default_factory=list)
    slurm_cluster: Annotated[
        str,
        Meta(
            pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$",
            description="Of several Slurm clusters that the host's tools reach (sbatch -M), this one; empty: its own.",
        ),
    ] = ""
    ray_address: Annotated[str, Meta(description="Dashboard of a standing Ray cluster as its host sees it.")] = ""
    ray_headers_file: Annotated[
        str, Meta(description="File of Name: value lines there (mode 0600): headers that the dashboard wants to see.")
    ] = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    max_time: Annotated[str, Meta(description="Longest time limit that is accepted, D-HH:MM:SS; empty: unknown.")] = ""
    max_nodes: Annotated[int, Meta(ge=0, description="Most nodes of one job; 0: unknown.")] = 0
    partitions: Annotated[
        dict[Name, PartitionProfile], Meta(description="Partitions besides that one, each with what differs there.")
    ] = field(default_factory=dict)

    # the nodes
    gpu: Annotated[str, Meta(description="GPU type as layouts name it, such as H100-SXM-80GB.")] = ""
    gres: Annotated[str, Meta(description="What --gres asks for before the count, such as gpu:h100.")] = "gpu"
    gpus_per_node: Annotated[int, Meta(ge=0)] = 0
    cpus_per_node: Annotated[int, Meta(ge=0)] = 0
    memory_gib: Annotated[float, Meta(ge=0)] = 0.0
    bad_nodes: list[BadNode] = field(default_factory=list)

    # what a job finds there
    run_root: Annotated[str, Meta(description="Folder of the runs on the cluster; a leading ~ is its home there.")] = ""
    run_root_group: Annotated[
        str, Meta(pattern=r"^([^\s:/-][^:/\n]*)?$", description="Group that may read your runs; empty: nobody may.")
    ] = ""
    team_run_roots: Annotated[
        list[Annotated[str, Meta(pattern=r"^/[A-Za-z0-9._*?/@+-]+$", max_length=400)]],
        Meta(description="Run roots of colleagues, whose runs are listed too; * is any name: /shared/*/rltui."),
    ] = field(default_factory=list)
    python: Annotated[str, Meta(description="Python on the nodes that has the trainers' packages.")] = "python3"
    setup_lines: Annotated[
        list[str], Meta(description="Shell lines before anything else in a job: module load, source activate.")
    ] = field(default_factory=list)
    env: Annotated[dict[str, str], Meta(description="Plain variables of a job; secrets belong in env_file.")] = field(
        default_factory=dict
    )
    env_file: Annotated[str, Meta(description="File of NAME=value lines on the cluster (mode 0600), for secrets.")] = ""
    container: Annotated[
        Container, Meta(description="What jobs run in; python is then the one inside. A layout's slurm.container wins.")
    ] = field(default_factory=Container)
    network_interface: Annotated[str, Meta(description="NIC for Ray, gloo and NCCL sockets; empty: routed.")] = ""
    nccl_ib_hca: str = ""
    offline: Annotated[bool, Meta(description="Nodes have no internet: Hugging Face and W&B go offline.")] = False

    # who is told of the runs
    notify: Notify = field(default_factory=Notify)


def job_variables(profile: Profile) -> dict[str, str]:
    """Environment variables that a job of the cluster is started with, by name.

    Raises:
        RltuiError: One of the profile's variables is a secret by its name or its looks.
    """
    for name, value in profile.env.items():
        if is_secret_name(name) or SECRET_VALUE.search(value):
            raise RltuiError(
                f"{name} of cluster {profile.name} is a secret: others could see it, in Slurm's job or in the profile.",
                "Put it into a file on the cluster, chmod 600, and set env_file to its path.",
            )
    found = dict(profile.env)
    if profile.env_file:
        found["RLTUI_ENV_FILE"] = profile.env_file
    if profile.network_interface:
        found["RLTUI_NETWORK_INTERFACE"] = profile.network_interface
    if profile.nccl_ib_hca:
        found["NCCL_IB_HCA"] = profile.nccl_ib_hca
    if profile.offline:
        found |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "RLTUI_OFFLINE": "1"}
    return found


def in_partition(profile: Profile, name: str) -> Profile:
    """``profile`` as it is in the partition ``name``, where it says anything of that one."""
    if name not in profile.partitions:
        return profile
    own = profile.partitions[name]
    told = {key: value for key in own.__struct_fields__ if (value := getattr(own, key))}
    return replace(profile, partition=name, **told)


def merged_container(slurm: Slurm, profile: Profile) -> Container:
    """The cluster's container, with what the layout's ``slurm.container`` says over it, key by key."""
    own, known = slurm.container, profile.container
    if own.runtime not in ("", known.runtime):  # whose options these are not
        known = replace(known, options=[])
    return replace(known, **{key: value for key in own.__struct_fields__ if (value := getattr(own, key))})


def container_of(slurm: Slurm, profile: Profile) -> Container | None:
    """The container that a job runs in; None where no runtime is named, or ``none``."""
    found = merged_container(slurm, profile)
    return found if found.runtime not in ("", "none") else None


def outer_python(slurm: Slurm, profile: Profile) -> str:
    """The interpreter of a job's nodes for what stays outside a container; the profile's where there is none."""
    container = container_of(slurm, profile)
    return profile.python if container is None else container.outer_python or "python3"
