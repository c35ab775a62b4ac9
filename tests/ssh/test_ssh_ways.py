from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import paramiko
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ssh_lab import Client, make_key

from rltui.cluster.known_hosts import KnownHosts, read_known_hosts, remember
from rltui.cluster.open_transport import choose_way, open_transport
from rltui.cluster.paramiko_auth import HostKeys
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.ssh_host import Hop, SshHost, parse_hop, resolve_host, resolve_profile
from rltui.cluster.transport import HostKeyError
from rltui.errors import UsageError

HOSTILE = [
    "-oProxyCommand=touch /tmp/owned",
    "--",
    "a b",
    "a;touch x",
    "$(touch x)",
    "`x`",
    "a\nb",
    "a\0b",
    "a'b",
    "%h",
    "a" * 100_000,
    "ｈ",
    "",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_reach_no_ssh(name: str) -> None:
    with pytest.raises(ValueError, match=r"not the name|not of the form"):
        parse_hop(name)
    with pytest.raises(UsageError):
        resolve_host(Hop(name))
    with pytest.raises(UsageError):
        resolve_host(Hop("host", name or "-x"))
    for transport in ("paramiko", "auto"):
        profile = Profile(name="c", host=name or "-x", transport=transport)
        with pytest.raises(UsageError):
            open_transport(profile, UnattendedPrompter())


def test_openssh_refuses_hostile_names_too() -> None:
    for name in filter(None, HOSTILE):
        with pytest.raises(UsageError):
            open_transport(Profile(name="c", host=name, transport="openssh"), UnattendedPrompter())
        with pytest.raises(UsageError):
            open_transport(Profile(name="c", host="h", proxy_jump=[name], transport="openssh"), UnattendedPrompter())


@pytest.mark.parametrize(
    ("text", "hop"),
    [
        ("login", Hop("login")),
        ("alice@login.example.org", Hop("login.example.org", "alice")),
        ("alice@login:2222", Hop("login", "alice", 2222)),
        ("DOMAIN\\alice@login", Hop("login", "DOMAIN\\alice")),
        ("a@b@login", Hop("login", "a@b")),
        ("10.0.0.1:22", Hop("10.0.0.1", "", 22)),
        ("fe80::1", Hop("fe80::1")),
        ("alice@[fe80::1]:22", Hop("fe80::1", "alice", 22)),
        ("ssh://alice@login:22", Hop("login", "alice", 22)),
    ],
)
def test_hops(text: str, hop: Hop) -> None:
    assert parse_hop(text) == hop
    assert parse_hop(str(hop)) == hop


@given(st.text(max_size=40))
def test_what_is_taken_for_a_hop_is_no_option(text: str) -> None:
    try:
        hop = parse_hop(text)
    except ValueError:
        return
    assert not hop.host.startswith("-")
    assert not hop.user.startswith("-")
    assert (hop.host + hop.user).isprintable()
    assert " " not in hop.host + hop.user


# --- the SSH configuration ----------------------------------------------------------------------------------------


def test_the_users_configuration_counts(client: Client) -> None:
    more = client.folder / "more"
    more.write_text("Host inner\n  User bob\n")
    client.config.write_text(
        f"""
Include {more}
Host inner
  HostName inner.example.org
  Port 2222
  IdentityFile ~/.ssh/%r-key
  CertificateFile "{client.folder}/cert.pub"
  UserKnownHostsFile {client.folder}/a {client.folder}/b
  HostKeyAlias cluster
  ProxyJump gate,alice@second:99
Host gate
  HostName gate.example.org
  ProxyJump outer
Host outer
  HostName outer.example.org
Host second
  ProxyJump never-asked
"""
    )
    hosts = resolve_profile(Profile(name="c", host="inner"))
    assert [host.hostname for host in hosts] == ["outer.example.org", "gate.example.org", "second", "inner.example.org"]
    assert hosts[2].user == "alice"
    assert hosts[2].port == 99
    inner = hosts[-1]
    assert (inner.user, inner.port, inner.host_key_alias) == ("bob", 2222, "cluster")
    assert inner.identity_files == (str(Path.home() / ".ssh/bob-key"),)
    assert inner.certificate_files == (f"{client.folder}/cert.pub",)
    assert inner.known_hosts_files == (f"{client.folder}/a", f"{client.folder}/b")


def test_the_profile_wins_over_the_configuration(client: Client) -> None:
    client.config.write_text("Host h\n  User bob\n  Port 1\n  IdentityFile /x\n  ProxyJump gate\n")
    key = make_key(client.folder / "own")
    profile = Profile(name="c", host="h", user="alice", port=2, identity_file=str(key), proxy_jump=["other"])
    jump, host = resolve_profile(profile)
    assert (jump.hostname, host.user, host.port) == ("other", "alice", 2)
    assert host.identity_files == (str(key), "/x")
    with pytest.raises(UsageError, match="identity_file"):
        resolve_profile(Profile(name="c", host="h", identity_file="/missing"))


def test_without_an_ssh_the_same_is_read(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.config.write_text("Host h\n  HostName h.example.org\n  User bob\n  ProxyJump gate\n  IdentityFile /x\n")
    key = str(client.key)
    profile = Profile(name="c", host="h", identity_file=key)
    with_ssh = resolve_profile(profile)
    monkeypatch.setenv("PATH", "")
    way = choose_way(profile)
    assert (way.name, way.reason) == ("paramiko", "there is no ssh on this machine")
    without = resolve_profile(profile)
    for one, other in zip(with_ssh, without, strict=True):
        assert (one.hostname, one.user, one.port, one.proxy_jump) == (
            other.hostname,
            other.user,
            other.port,
            other.proxy_jump,
        )
    assert without[-1].identity_files == with_ssh[-1].identity_files == (key, "/x")


def test_jumps_in_a_circle_are_refused(client: Client) -> None:
    client.config.write_text("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(UsageError, match="circles"):
        resolve_profile(Profile(name="c", host="a"))


def test_a_configuration_that_cannot_be_read_says_so(client: Client) -> None:
    client.config.write_text("Host a\n  Nonsense yes\n")
    with pytest.raises(Exception, match="Bad configuration option"):
        resolve_profile(Profile(name="c", host="a"))


# --- which way ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ProxyCommand nc %h %p", "ProxyCommand in the SSH configuration"),
        ("KnownHostsCommand /bin/true", "KnownHostsCommand in the SSH configuration"),
        ("IdentityAgent /run/other", "IdentityAgent in the SSH configuration"),
        ("HostbasedAuthentication yes", "HostbasedAuthentication in the SSH configuration"),
    ],
)
def test_what_only_ssh_can_do_is_left_to_ssh(client: Client, line: str, reason: str) -> None:
    client.config.write_text(f"Host h\n  {line}\n")
    way = choose_way(Profile(name="c", host="h"))
    assert (way.name, way.reason) == ("openssh", reason)


def test_a_jump_host_that_only_ssh_can_reach(client: Client) -> None:
    client.config.write_text("Host h\n  ProxyJump gate\nHost gate\n  ProxyCommand nc %h %p\n")
    assert choose_way(Profile(name="c", host="h")).name == "openssh"


def test_kerberos_counts_with_a_ticket_only(tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.config.write_text("Host *\n  GSSAPIAuthentication yes\n")
    ticket = tmp_path / "krb5cc"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{ticket}")
    assert choose_way(Profile(name="c", host="h")).name == "paramiko"
    ticket.touch()
    assert "Kerberos" in choose_way(Profile(name="c", host="h")).reason


@pytest.mark.parametrize(("code", "way"), [(0, "openssh"), (1, "paramiko")])
def test_a_ticket_that_is_kept_in_no_file_counts(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch, code: int, way: str
) -> None:
    client.config.write_text("Host *\n  GSSAPIAuthentication yes\n")
    monkeypatch.delenv("KRB5CCNAME", raising=False)
    if Path(f"/tmp/krb5cc_{os.getuid()}").exists():
        pytest.skip("whoever runs this has a file of tickets")
    klist = tmp_path / "klist"
    klist.write_text(f'#!/bin/sh\n[ "$1" = -s ] && exit {code}\n')
    klist.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert choose_way(Profile(name="c", host="h")).name == way


def test_a_security_key_needs_ssh(tmp_path: Path, client: Client) -> None:
    (tmp_path / "id.pub").write_text("sk-ssh-ed25519@openssh.com AAAA alice\n")
    client.config.write_text(f"Host h\n  IdentityFile {tmp_path}/id\n")
    assert choose_way(Profile(name="c", host="h")).reason == f"{tmp_path}/id is kept on a security key"


def test_match_exec_runs_nothing_to_be_seen(tmp_path: Path, client: Client) -> None:
    trace, inner = tmp_path / "trace", tmp_path / "inner"
    inner.write_text(f'Match host h exec "touch {trace}"\n  User x\n')
    client.config.write_text(f"Host a\nInclude {inner}\n")
    way = choose_way(Profile(name="c", host="h"))
    assert (way.name, way.reason) == ("openssh", f"Match exec in {inner}")
    assert not trace.exists()


def test_no_host_is_this_machine() -> None:
    assert choose_way(Profile(name="c")).name == "local"
    assert choose_way(Profile(name="local", transport="local")).reason == "the profile says so"


# --- known hosts --------------------------------------------------------------------------------------------------


def blob_of(key: Path) -> bytes:
    import base64

    return base64.b64decode(Path(f"{key}.pub").read_text().split()[1])


@pytest.mark.parametrize(
    ("names", "name", "port"),
    [
        ("login.example.org", "login.example.org", 22),
        ("login.example.org", "LOGIN.example.org", 22),
        ("login.example.org,10.0.0.1", "10.0.0.1", 22),
        ("*.example.org", "login.example.org", 22),
        ("*.example.org,!login.example.org", "login.example.org", 22),
        ("login?.example.org", "login1.example.org", 22),
        ("[login.example.org]:2222", "login.example.org", 2222),
        ("[login.example.org]:2222", "login.example.org", 22),
        ("other", "login.example.org", 22),
        ("login.example", "login.example.org", 22),
    ],
)
@pytest.mark.parametrize("hashed", [False, True])
def test_names_match_as_they_do_for_ssh_keygen(tmp_path: Path, names: str, name: str, port: int, hashed: bool) -> None:
    file = tmp_path / "known_hosts"
    key = make_key(tmp_path / "key")
    file.write_text(f"# a comment\n{names} {Path(f'{key}.pub').read_text()}\n" + ("" if hashed else "nonsense\n"))
    if hashed:
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    shown = name.lower() if port == 22 else f"[{name.lower()}]:{port}"
    found = subprocess.run(["ssh-keygen", "-F", shown, "-f", str(file)], capture_output=True).returncode == 0
    known = KnownHosts(read_known_hosts([file]), name, port)
    assert (known.judge(blob_of(key)) == "known") == found


def test_a_key_of_the_default_port_is_taken_on_others_but_proves_no_change(tmp_path: Path) -> None:
    one, other = make_key(tmp_path / "one"), make_key(tmp_path / "other")
    file = tmp_path / "known_hosts"
    remember(file, "h", 22, "ssh-ed25519", blob_of(one))
    known = KnownHosts(read_known_hosts([file]), "h", 2222)
    assert known.judge(blob_of(one)) == "known"
    assert known.judge(blob_of(other)) == "unknown"
    assert KnownHosts(read_known_hosts([file]), "h", 22).judge(blob_of(other)) == "changed"


@pytest.mark.parametrize("hashed", [False, True])
def test_what_is_remembered_ssh_finds(tmp_path: Path, hashed: bool) -> None:
    file = tmp_path / "new" / "known_hosts"
    key = make_key(tmp_path / "key")
    remember(file, "h.example.org", 2222, "ssh-ed25519", blob_of(key), hashed)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_text(file.read_text().rstrip("\n"))
    remember(file, "other", 22, "ssh-ed25519", blob_of(key), hashed)
    for name in ("[h.example.org]:2222", "other"):
        assert subprocess.run(["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True).returncode == 0
    assert ("h.example.org" in file.read_text()) != hashed


def test_an_authority_is_no_key_of_the_host(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key")
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority *.example.org {Path(f'{key}.pub').read_text()}")
    known = KnownHosts(read_known_hosts([file]), "login.example.org", 22)
    assert known.judge(blob_of(key)) == "unknown"
    assert known.has_authority


def test_the_user_is_who_runs_this(client: Client) -> None:
    assert resolve_host(Hop("h")).user == getpass.getuser()


def test_a_changed_key_is_taken_out_of_the_file_that_has_the_known_one(tmp_path: Path) -> None:
    known, shown = (paramiko.ECDSAKey.generate() for _ in range(2))
    site = tmp_path / "ssh_known_hosts"
    remember(site, "login", 22, known.get_name(), known.asbytes())
    for own in ((), (str(tmp_path / "known_hosts"),)):
        host = SshHost(
            hop=Hop("login"), hostname="login", user="alice", port=22, known_hosts_files=own,
            global_known_hosts_files=(str(site),),
        )  # fmt: skip
        with pytest.raises(HostKeyError) as caught:
            HostKeys(host).check(shown, UnattendedPrompter())
        assert caught.value.hint.endswith(f"ssh-keygen -R 'login' -f {site}")
