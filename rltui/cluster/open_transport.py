"""Which way leads to a cluster, why that one, and taking it; of several login nodes the next where one is away."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from rltui.cluster.openssh_transport import OpenSshTransport, master_is_live
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import Prompter
from rltui.cluster.ssh_host import Hop, SshHost, check_profile, config_file, resolve_profile, ssh_binary
from rltui.cluster.transport import ByteStream, NeedsAttentionError, Transport
from rltui.errors import ClusterError
from rltui.paths import home_dir, with_home

WayName = Literal["local", "paramiko", "openssh"]


class Way(Struct, frozen=True):
    """How a cluster is reached."""

    name: WayName
    reason: str
    """Why this one, in words."""
    hosts: tuple[SshHost, ...] = ()
    """Every machine on the way, the cluster's last; empty where ssh itself finds it."""


def open_transport(profile: Profile, prompter: Prompter) -> Transport:
    """The way to a cluster; nothing is connected before its ``open`` is called.

    Args:
        profile: The cluster.
        prompter: Who is asked for passwords, codes and unknown host keys: ``TerminalPrompter`` for verbs,
            ``SwitchedPrompter`` for screens, ``UnattendedPrompter`` for what runs by itself.

    Raises:
        UsageError: The profile or the SSH configuration names what cannot be a machine.
        ClusterError: The SSH configuration cannot be read.
    """
    if profile.host and profile.other_hosts:
        alone = [replace(profile, host=host, other_hosts=[]) for host in (profile.host, *profile.other_hosts)]
        return GroupTransport([open_transport(one, prompter) for one in alone])
    way = choose_way(profile)
    if way.name == "local":
        from rltui.cluster.local_transport import LocalTransport

        return LocalTransport()
    if way.name == "openssh":
        hop = Hop(profile.host, profile.user, profile.port)
        return OpenSshTransport(hop, prompter, profile.identity_file, profile.proxy_jump)
    from rltui.cluster.paramiko_transport import ParamikoTransport

    return ParamikoTransport(way.hosts or resolve_profile(profile), prompter)


def choose_way(profile: Profile) -> Way:
    """Which way ``transport: auto`` takes, or the one that the profile names; the network is not touched.

    Raises:
        UsageError: As ``open_transport``.
        ClusterError: As ``open_transport``.
    """
    if profile.transport == "local":
        return Way("local", "the profile says so")
    if not profile.host:
        return Way("local", "the profile names no host")
    check_profile(profile)
    if profile.transport != "auto":
        return Way(profile.transport, "the profile says so")
    if ssh_binary() is None:
        return Way("paramiko", "there is no ssh on this machine")
    hop = Hop(profile.host, profile.user, profile.port)
    if reason := _only_ssh_can_tell():
        return Way("openssh", reason)
    hosts = resolve_profile(profile)
    if hosts[-1].control_path and master_is_live(hop):
        return Way("openssh", "your ssh has a master connection to it")
    for host in hosts:
        if host.needs_openssh:
            return Way("openssh", host.needs_openssh)
    return Way("paramiko", "nothing in the SSH configuration needs OpenSSH", hosts)


UNTOLD = (
    (re.compile(r"\s*match\b.*\bexec\b", re.IGNORECASE), "Match exec"),
    (re.compile(r"\s*canonicalizehostname[\s=]+\"?(?:yes|always)", re.IGNORECASE), "CanonicalizeHostname"),
)


def _only_ssh_can_tell() -> str:
    """What makes the SSH configuration depend on commands or on name servers, neither of which is asked here."""
    chosen = config_file()
    roots = [chosen] if chosen else [home_dir() / ".ssh" / "config", Path("/etc/ssh/ssh_config")]
    for root in roots:
        for file, line in _config_lines(root, 0):
            for pattern, name in UNTOLD:
                if pattern.match(line):
                    return f"{name} in {file}"
    return ""


def _config_lines(file: Path, depth: int) -> Iterator[tuple[Path, str]]:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        yield file, line
        include = re.match(r"\s*include[\s=]+(.+)", line, re.IGNORECASE)
        if include and depth < 8:
            for name in _words(include[1]):
                pattern = with_home(name)
                # ssh_config(5): a relative Include is below ~/.ssh in a user's file, and below /etc/ssh in the system's
                base = file.parent if str(file).startswith("/etc/") else home_dir() / ".ssh"
                pattern = pattern if pattern.is_absolute() else base / pattern
                for found in sorted(Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))):
                    yield from _config_lines(found, depth + 1)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class GroupTransport:
    """Opens a relay on the first of several machines that can be reached; the one that answered last is tried first.

    Each has its own host key. One that needs a person (an unknown or changed key, a refused login) is not passed over:
    the others would be asked the same, and a changed key is to be seen.

    Attributes:
        passed_over: What was wrong with each machine that was tried in vain before the one that answered last.
    """

    def __init__(self, transports: Sequence[Transport]) -> None:
        self.passed_over: list[str] = []
        self._transports = list(transports)

    @property
    def place(self) -> str:
        """The machine that answered last."""
        return self._transports[0].place

    @property
    def opened(self) -> Any:
        """How the last connection came about, where that is known."""
        return getattr(self._transports[0], "opened", None)

    def open(self) -> ByteStream:
        """Connect to the first that can be reached; see ``Transport``.

        Raises:
            NeedsAttentionError: A person has to act first.
            ClusterError: None of them can be reached.
        """
        said: list[str] = []
        for transport in tuple(self._transports):
            try:
                stream = transport.open()
            except NeedsAttentionError:
                raise
            except ClusterError as error:
                said.append(f"{transport.place}: {error.message}")
                continue
            self._transports.remove(transport)
            self._transports.insert(0, transport)
            self.passed_over = said
            return stream
        places = ", ".join(transport.place for transport in self._transports)
        raise ClusterError(f"None of {places} can be reached. {' '.join(said)}"[:1000])
