"""What the user's SSH configuration says of a host, as the user's own ssh reads it, and of those on the way to it."""

from __future__ import annotations

import getpass
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from rltui.cluster.plain_text import printable
from rltui.cluster.profile import Profile
from rltui.errors import ClusterError, UsageError
from rltui.paths import home_dir, with_home

CONFIG_VARIABLE = "RLTUI_SSH_CONFIG"
"""Names a file that is read instead of ``~/.ssh/config`` and ``/etc/ssh/ssh_config``."""

READ_TIMEOUT_S = 10.0
MOST_HOPS = 8

Settings = dict[str, list[str]]
"""Keywords of ssh_config in small letters, each with its values in order."""


class SshHost(Struct, frozen=True, kw_only=True):
    """One machine with all that is needed to log in to it."""

    hop: Hop
    """As the user wrote it."""
    hostname: str
    user: str
    port: int
    identity_files: tuple[str, ...] = ()
    certificate_files: tuple[str, ...] = ()
    identities_only: bool = False
    known_hosts_files: tuple[str, ...] = ()
    """The user's; new keys go to the first one."""
    global_known_hosts_files: tuple[str, ...] = ()
    host_key_alias: str = ""
    hash_known_hosts: bool = False
    proxy_jump: tuple[str, ...] = ()
    control_path: str = ""
    needs_openssh: str = ""
    """What of its configuration only OpenSSH can do, in words; empty: nothing."""

    @property
    def title(self) -> str:
        """``alice@login.example.org``, with the port where it is not 22."""
        return f"{self.user}@{self.hostname}" + ("" if self.port == 22 else f":{self.port}")


def config_file() -> Path | None:
    """The file that ``$RLTUI_SSH_CONFIG`` names, or None: the usual ones."""
    chosen = os.environ.get(CONFIG_VARIABLE)
    return with_home(chosen) if chosen else None


def ssh_binary() -> str | None:
    """The user's ssh, or None."""
    return shutil.which("ssh")


def resolve_profile(profile: Profile) -> tuple[SshHost, ...]:
    """Every machine on the way to a profile's host, the host itself last.

    Raises:
        UsageError: A name is none, or the jumps go in circles.
        ClusterError: The SSH configuration cannot be read.
    """
    check_profile(profile)
    identity_file = os.path.expanduser(profile.identity_file)  # noqa: PTH111 (a Path would drop "./")
    target = resolve_host(Hop(profile.host, profile.user, profile.port), identity_file)
    jumps = tuple(profile.proxy_jump) or target.proxy_jump
    return (*resolve_jumps(jumps, identity_file), target)


def check_profile(profile: Profile) -> None:
    """Refuse names of machines and users that could be something else to a program, and a key that is not there.

    Raises:
        UsageError: With the key of the profile that is wrong.
    """
    try:
        check_hop(Hop(profile.host, profile.user, profile.port))
    except ValueError as error:
        raise UsageError(f"The host {error}.", f"Look at host: and user: of cluster {profile.name}.") from error
    for jump in profile.proxy_jump:
        _parsed(jump)
    key = os.path.expanduser(profile.identity_file)  # noqa: PTH111
    # the public half is enough where an agent holds the key
    if key and not any(Path(name).is_file() for name in (key, f"{key}.pub")):
        raise UsageError(f"There is no key {key}.", f"Look at identity_file: of cluster {profile.name}.")


def resolve_jumps(jumps: Sequence[str], identity_file: str = "", depth: int = 0) -> tuple[SshHost, ...]:
    """The hosts to go through; like ssh, only the first one's own ProxyJump counts.

    Raises:
        UsageError: As ``resolve_profile``.
    """
    hosts = [resolve_host(_parsed(jump), identity_file) for jump in jumps]
    if not hosts or not hosts[0].proxy_jump:
        return tuple(hosts)
    if depth + len(hosts) >= MOST_HOPS:
        raise UsageError("The ProxyJump hosts go in circles.", "Look at ProxyJump in ~/.ssh/config.")
    return (*resolve_jumps(hosts[0].proxy_jump, identity_file, depth + len(hosts)), *hosts)


def _parsed(text: str) -> Hop:
    try:
        return parse_hop(text)
    except ValueError as error:
        raise UsageError(f"A jump host {error}.", "Look at ProxyJump in ~/.ssh/config and in the profile.") from error


def resolve_host(hop: Hop, identity_file: str = "") -> SshHost:
    """What the configuration says of one host.

    Raises:
        UsageError: The host or user cannot be one.
        ClusterError: The configuration cannot be read.
    """
    try:
        check_hop(hop)
    except ValueError as error:
        raise UsageError(f"The host {error}.", "Look at host: and user: of the profile.") from error
    settings = read_settings(hop, identity_file)
    hostname = _one(settings, "hostname") or hop.host
    user, port = _one(settings, "user") or getpass.getuser(), int(_one(settings, "port") or 22)
    try:
        check_hop(Hop(hostname, user, port))
    except ValueError as error:
        raise UsageError(f"The host {error}.", f"Look at HostName of {hop.host} in ~/.ssh/config.") from error
    names = {"h": hostname, "n": hop.host, "p": str(port), "r": user}
    jump = _one(settings, "proxyjump")
    return SshHost(
        hop=hop,
        hostname=hostname,
        user=user,
        port=port,
        identity_files=tuple(dict.fromkeys(_paths([identity_file, *settings.get("identityfile", [])], names))),
        certificate_files=_paths(settings.get("certificatefile", []), names),
        identities_only=_one(settings, "identitiesonly") == "yes",
        known_hosts_files=_paths(_words(settings, "userknownhostsfile"), names),
        global_known_hosts_files=_paths(_words(settings, "globalknownhostsfile"), names),
        host_key_alias=_one(settings, "hostkeyalias"),
        hash_known_hosts=_one(settings, "hashknownhosts") == "yes",
        proxy_jump=tuple(jump.split(",")) if jump and jump != "none" else (),
        control_path=_one(settings, "controlpath") if _one(settings, "controlpath") != "none" else "",
        needs_openssh=_needs_openssh(settings),
    )


def read_settings(hop: Hop, identity_file: str = "") -> Settings:
    """The configuration of one host: ``ssh -G`` where there is an ssh, else what paramiko's parser makes of it.

    ``ssh -G`` runs the commands of ``Match exec`` lines, as every ssh to the host does.

    Raises:
        ClusterError: It cannot be read.
    """
    binary = ssh_binary()
    if binary is None:
        return _settings_without_ssh(hop, identity_file)
    # with a key of its own ssh leaves out those that it tries by default
    argv = [binary, *config_words(), *hop_words(hop), *(("-i", identity_file) if identity_file else ())]
    try:
        done = subprocess.run(
            # to canonicalize would ask name servers, and this only reads what is configured
            [*argv, "-o", "CanonicalizeHostname=no", "-G", "--", hop.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=READ_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ClusterError(f"`ssh -G {hop.host}` did not answer.", "Try it by hand.") from error
    if done.returncode:
        said = printable(done.stderr.decode("utf-8", "replace"))
        raise ClusterError(f"The SSH configuration cannot be read: {said}", f"Try `ssh -G {hop.host}` by hand.")
    settings: Settings = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        key, _, value = line.partition(" ")
        settings.setdefault(key.lower(), []).append(value.strip())
    return settings


def config_words() -> tuple[str, ...]:
    """The words that make ssh read the chosen configuration."""
    file = config_file()
    return ("-F", str(file)) if file else ()


def hop_words(hop: Hop) -> tuple[str, ...]:
    """The words that give ssh a hop's user and port."""
    return (*(("-l", hop.user) if hop.user else ()), *(("-p", str(hop.port)) if hop.port else ()))


def _settings_without_ssh(hop: Hop, identity_file: str) -> Settings:
    import paramiko

    file = config_file() or home_dir() / ".ssh" / "config"
    try:
        config = paramiko.SSHConfig.from_path(str(file)) if file.is_file() else paramiko.SSHConfig()
        found = dict(config.lookup(hop.host))
    except (OSError, paramiko.SSHException, ImportError) as error:
        raise ClusterError(f"{file} cannot be read without an ssh: {error}.", "Install OpenSSH's client.") from error
    settings: Settings = {key: [value] if isinstance(value, str) else list(value) for key, value in found.items()}
    home = "~/.ssh/"
    defaults = [home + name for name in ("id_ed25519", "id_ecdsa", "id_rsa")]
    settings.setdefault("identityfile", [] if identity_file else defaults)
    settings.setdefault("userknownhostsfile", [home + "known_hosts"])
    settings.setdefault("globalknownhostsfile", ["/etc/ssh/ssh_known_hosts"])
    settings.update({"user": [hop.user]} if hop.user else {}, **({"port": [str(hop.port)]} if hop.port else {}))
    return settings


def _one(settings: Mapping[str, Sequence[str]], key: str) -> str:
    values = settings.get(key)
    return values[0] if values else ""


def _words(settings: Settings, key: str) -> list[str]:
    return [word for value in settings.get(key, []) for word in value.split()]


_TOKEN = re.compile(r"%(.)")


def _paths(values: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Paths with ``~`` and ssh's ``%`` tokens written out; "none" means none."""
    local = {"d": str(home_dir()), "u": getpass.getuser(), "i": str(os.getuid()), "l": socket.gethostname(), "%": "%"}
    known = {**local, **names}
    expanded = (_TOKEN.sub(lambda found: known.get(found[1], found[0]), value.strip('"')) for value in values)
    return tuple(os.path.expanduser(path) for path in expanded if path and path.lower() != "none")  # noqa: PTH111


BEYOND_PARAMIKO = {
    "proxycommand": "ProxyCommand",
    "knownhostscommand": "KnownHostsCommand",
    "pkcs11provider": "PKCS11Provider",
    "revokedhostkeys": "RevokedHostKeys",
    "identityagent": "IdentityAgent",
    "bindaddress": "BindAddress",
    "bindinterface": "BindInterface",
}


def _needs_openssh(settings: Settings) -> str:
    for key, name in BEYOND_PARAMIKO.items():
        if _one(settings, key).lower() not in ("", "none", "false", "no"):
            return f"{name} in the SSH configuration"
    if _one(settings, "hostbasedauthentication") == "yes":
        return "HostbasedAuthentication in the SSH configuration"
    # Debian's ssh_config turns GSSAPI on for everybody; only a ticket shows that it is used
    if _one(settings, "gssapiauthentication") == "yes" and _has_kerberos_ticket():
        return "a Kerberos ticket is there and GSSAPIAuthentication is on"
    for file in _paths(settings.get("identityfile", []), {}):
        if _is_hardware_key(file):
            return f"{file} is kept on a security key"
    return ""


def _has_kerberos_ticket() -> bool:
    kind, _, path = os.environ.get("KRB5CCNAME", f"FILE:/tmp/krb5cc_{os.getuid()}").rpartition(":")
    there = Path(path).exists() if kind in ("", "FILE", "DIR") else True
    # where no variable says so, /etc/krb5.conf may keep tickets in a daemon or the kernel's keyring
    return there or ("KRB5CCNAME" not in os.environ and _klist_finds_a_ticket())


def _klist_finds_a_ticket() -> bool:
    program = shutil.which("klist")
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, "-s"], stdin=subprocess.DEVNULL, capture_output=True, timeout=READ_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _is_hardware_key(file: str) -> bool:
    try:
        return Path(f"{file}.pub").read_text("utf-8", "replace").startswith(("sk-ssh-", "sk-ecdsa-"))
    except OSError:
        return False


_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}\Z|[0-9a-fA-F:]{2,39}(?:%[A-Za-z0-9]{1,15})?\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+@\\-]{0,63}\Z")
_HOP = re.compile(
    r"(?:(?P<user>.*)@)?(?:\[(?P<six>[^\]]*)\]|(?P<host>[^:\[\]]*|[^:]*(?::[^:]*){2,}))(?::(?P<port>\d{1,5}))?\Z"
)


class Hop(Struct, frozen=True):
    """One machine on the way: an address or an alias of ``~/.ssh/config``."""

    host: str
    user: str = ""
    port: int = 0
    """0: what the SSH configuration says, else 22."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{self.user}@{host}"[0 if self.user else 1 :] + (f":{self.port}" if self.port else "")


def parse_hop(text: str) -> Hop:
    """Read ``[user@]host[:port]``; an IPv6 address with a port stands in brackets.

    Raises:
        ValueError: It is none; the message continues "HOST: …".
    """
    match = _HOP.match(text.removeprefix("ssh://"))
    if match is None:
        raise ValueError("is not of the form [user@]host[:port]")
    hop = Hop(match["six"] or match["host"] or "", match["user"] or "", int(match["port"] or 0))
    check_hop(hop)
    return hop


def check_hop(hop: Hop) -> None:
    """Refuse names that no machine or user has.

    Raises:
        ValueError: The host, user or port cannot be one.
    """
    if not _HOST.match(hop.host):
        raise ValueError(f"{hop.host[:60]!r} is not the name of a machine")
    if hop.user and not _USER.match(hop.user):
        raise ValueError(f"{hop.user[:60]!r} is not the name of a user")
    if not 0 <= hop.port <= 65535:
        raise ValueError(f"{hop.port} is not a port")
