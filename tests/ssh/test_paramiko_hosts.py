from __future__ import annotations

import itertools
import re
import socket
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from paramiko_support import accepted, connect
from ssh_lab import Client, Scripted, Sshd, make_key, says_hello, script

from rltui.cluster.known_hosts import fingerprint
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.transport import HostKeyError, NeedsAttentionError
from rltui.errors import ClusterError
from rltui.service.doctor import examine

if TYPE_CHECKING:
    from rltui.cluster.relay_client import RelayClient


def test_an_unknown_host_is_refused_until_its_fingerprint_is_confirmed(client: Client, server: Sshd) -> None:
    client.known_hosts.unlink()
    shown = subprocess.run(
        ["ssh-keygen", "-lf", str(server.host_key)], check=True, capture_output=True, text=True
    ).stdout.split()[1]
    with pytest.raises(NeedsAttentionError, match=re.escape(shown)):
        connect(UnattendedPrompter()).hello()
    with pytest.raises(NeedsAttentionError, match="did not confirm"):
        connect(Scripted(host_key="no")).hello()
    assert not client.known_hosts.exists()
    me = Scripted(host_key=shown)
    assert says_hello(connect(me))
    assert any(shown in line for line in me.asked[0].instructions)
    assert says_hello(connect(UnattendedPrompter()))
    found = subprocess.run(
        ["ssh-keygen", "-F", f"[127.0.0.1]:{server.port}", "-f", str(client.known_hosts)], capture_output=True
    )
    assert found.returncode == 0


def test_a_changed_key_is_refused_whatever_anybody_says(tmp_path: Path, client: Client, server: Sshd) -> None:
    other = Path(f"{make_key(tmp_path / 'other')}.pub").read_text()
    client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    before = client.known_hosts.read_bytes()
    me = Scripted(host_key="yes")
    with pytest.raises(HostKeyError, match="another key than the one that is known") as caught:
        connect(me).hello()
    assert "ssh-keygen -R" in caught.value.hint
    assert not me.asked
    assert client.known_hosts.read_bytes() == before
    assert "Accepted" not in server.log


def test_a_key_of_another_type_than_the_known_one_is_no_new_host(tmp_path: Path, client: Client, server: Sshd) -> None:
    other = Path(f"{make_key(tmp_path / 'other', kind='ecdsa')}.pub").read_text()
    client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    with pytest.raises(HostKeyError):
        connect(Scripted(host_key="yes")).hello()


def test_of_several_keys_the_server_is_asked_for_the_known_one(tmp_path: Path, client: Client) -> None:
    rsa = make_key(tmp_path / "rsa", kind="rsa")
    server = Sshd(tmp_path / "two", f"HostKey {rsa}")
    server.let_in(client.key)
    client.host("two", server.port)
    client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {Path(f'{rsa}.pub').read_text()}")
    server.start()
    try:
        assert says_hello(connect(host="two"))
    finally:
        server.stop()


def test_a_revoked_key_is_refused(client: Client, server: Sshd) -> None:
    with client.known_hosts.open("a") as stream:
        stream.write(f"@revoked * {Path(f'{server.host_key}.pub').read_text()}")
    with pytest.raises(HostKeyError, match="revoked"):
        connect(Scripted(host_key="yes")).hello()


def test_what_start_up_files_print_is_passed_over_and_kept(
    tmp_path: Path, client: Client, relays: list[RelayClient]
) -> None:
    wrapper = script(
        tmp_path / "noisy",
        'printf "Welcome\\033]0;owned\\007 to alps\\n{\\"id\\": 1}\\n"; eval "$SSH_ORIGINAL_COMMAND"',
    )
    server = Sshd(tmp_path / "noisy-server", f"ForceCommand {wrapper}")
    server.let_in(client.key)
    client.host("noisy", server.port)
    client.trust(server)
    server.start()
    try:
        relay = connect(host="noisy")
        relays.append(relay)
        assert relay.hello().version
        assert relay._transport.opened.greeting == ("Welcome to alps", '{"id": 1}')
    finally:
        relay.close()
        server.stop()


def test_a_login_shell_that_ends_says_why(tmp_path: Path, client: Client) -> None:
    wrapper = script(tmp_path / "closed", 'echo "Maintenance until Monday" >&2; exit 1')
    server = Sshd(tmp_path / "closed-server", f"ForceCommand {wrapper}")
    server.let_in(client.key)
    client.host("closed", server.port)
    client.trust(server)
    server.start()
    try:
        with pytest.raises(ClusterError, match="ended: Maintenance until Monday"):
            connect(host="closed").hello()
    finally:
        server.stop()


def test_the_agent_is_not_forwarded_and_the_socket_does_not_wait(server: Sshd, relays: list[RelayClient]) -> None:
    relay = connect()
    relays.append(relay)
    assert relay.run(["sh", "-c", "echo ${SSH_AUTH_SOCK:-none}"]).out == "none\n"
    sock = relay._connection._stream._transports[0].sock
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_fingerprints_are_those_of_ssh_keygen(client: Client) -> None:
    import base64

    _kind, blob, _ = Path(f"{client.key}.pub").read_text().split()
    shown = subprocess.run(["ssh-keygen", "-lf", str(client.key)], check=True, capture_output=True, text=True).stdout
    assert fingerprint(base64.b64decode(blob)) == shown.split()[1]


def test_of_several_login_nodes_the_next_one_is_taken_where_one_is_away(client: Client, server: Sshd) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        client.host("away", probe.getsockname()[1])  # nobody listens
    relay = connect(host="away", other_hosts=["login"])
    assert says_hello(relay)
    assert relay.place == "login"
    assert says_hello(relay)  # and is kept
    assert len(accepted(server)) == 2
    with pytest.raises(ClusterError, match="None of away, away can be reached"):
        connect(host="away", other_hosts=["away"]).hello()
    profile = Profile(name="c", host="away", other_hosts=["login"], transport="paramiko")
    told = list(itertools.takewhile(lambda one: one.name != "relay", examine(profile, UnattendedPrompter())))
    [one] = [check for check in told if check.name == "login node"]
    assert (one.state, "away" in one.found) == ("warning", True)
    assert one.next_step == "login answered instead; without that node nothing would."


def test_a_login_node_with_another_key_is_not_passed_over(tmp_path: Path, client: Client, server: Sshd) -> None:
    other = Path(f"{make_key(tmp_path / 'other')}.pub").read_text()
    client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    client.host("second", server.port, "HostKeyAlias second")
    with pytest.raises(HostKeyError):
        connect(Scripted(host_key="yes"), other_hosts=["second"]).hello()
    assert "Accepted" not in server.log
