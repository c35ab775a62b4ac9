from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from ssh_lab import PASSWORD, Client, Link, Scripted, Sshd, make_key, says_hello, wait_until

from rltui.cluster.open_transport import choose_way, open_transport
from rltui.cluster.openssh_transport import OpenSshTransport, master_is_live, why_ssh_failed
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import Prompter, UnattendedPrompter
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.ssh_host import Hop
from rltui.cluster.transport import AuthFailedError, HostKeyError, NeedsAttentionError
from rltui.errors import ClusterError

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="PAM's configuration can be another one for root only")


def connect(prompter: Prompter | None = None, host: str = "login", **keys: object) -> RelayClient:
    profile = Profile(name="c", host=host, transport="openssh", **keys)  # type: ignore[arg-type]
    return RelayClient(open_transport(profile, prompter or UnattendedPrompter()))


def test_a_key_and_a_known_host(server: Sshd) -> None:
    assert says_hello(connect())
    assert says_hello(connect(Scripted()))


def test_closing_ends_ssh_and_the_relay(server: Sshd) -> None:
    relay = connect()
    pid = relay.hello().pid
    process = relay._connection._stream._process
    relay.close()
    assert process.returncode is not None
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the relay to end")


def test_the_key_and_the_jumps_of_the_profile(tmp_path: Path, client: Client, server: Sshd) -> None:
    own = make_key(tmp_path / "own")
    server.let_in(own)
    client.host("other", server.port, key=tmp_path / "none")
    assert says_hello(connect(host="other", identity_file=str(own)))
    gate = Sshd(tmp_path / "gate")
    gate.let_in(client.key)
    client.host("gate", gate.port)
    client.trust(gate)
    gate.start()
    try:
        assert says_hello(connect(proxy_jump=["gate"]))
        assert "Accepted publickey" in gate.log
    finally:
        gate.stop()


def test_an_unknown_host_is_refused_in_the_background_and_confirmed_by_a_person(client: Client, server: Sshd) -> None:
    client.known_hosts.unlink()
    with pytest.raises(NeedsAttentionError, match="host key is known"):
        connect().hello()
    me = Scripted(host_key="yes")
    assert says_hello(connect(me))
    assert any("SHA256:" in line for question in me.asked for line in question.instructions)
    assert says_hello(connect())


def test_a_changed_key_is_refused_whatever_anybody_says(tmp_path: Path, client: Client, server: Sshd) -> None:
    other = Path(f"{make_key(tmp_path / 'other')}.pub").read_text()
    client.known_hosts.write_text(f"[127.0.0.1]:{server.port} {other}")
    for prompter in (UnattendedPrompter(), Scripted(host_key="yes", interactive="yes")):
        with pytest.raises(HostKeyError, match=r"CHANGED|Offending"):
            connect(prompter).hello()
    assert "Accepted" not in server.log


def test_a_passphrase_is_asked_for_by_ssh_itself(tmp_path: Path, client: Client, server: Sshd) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret words")
    server.let_in(key)
    client.host("other", server.port, key=key)
    me = Scripted(passphrase="secret words")
    assert says_hello(connect(me, "other"))
    assert len(me.asked) == 1
    with pytest.raises(AuthFailedError, match="Permission denied"):
        connect(UnattendedPrompter(), "other").hello()


@NEEDS_ROOT
def test_questions_are_asked_of_a_person_only(tmp_path: Path, client: Client) -> None:
    server = Sshd(tmp_path / "asking", "PasswordAuthentication no", "KbdInteractiveAuthentication yes", with_pam=True)
    client.host("login", server.port, "NumberOfPasswordPrompts 1", key=tmp_path / "none")
    client.trust(server)
    server.start()
    try:
        relay = connect(UnattendedPrompter())
        for _ in range(2):
            with pytest.raises(NeedsAttentionError, match="keyboard-interactive"):
                relay.hello()
        assert server.log.count("Connection from") == 2  # ours, and the fixture's probe
        assert says_hello(connect(Scripted(interactive=PASSWORD)))
        with pytest.raises(AuthFailedError):
            connect(Scripted(interactive="wrong")).hello()
    finally:
        server.stop()


@pytest.fixture
def master(client: Client, server: Sshd) -> Iterator[Hop]:
    """A master connection of the user's to ``mastered``, which has no key of its own that would let it in."""
    socket = client.folder / "m"
    client.host("mastered", server.port, f"ControlPath {socket}", key=client.folder / "none")
    words = ["ssh", "-F", str(client.config), "-M", "-N", "-i", str(client.key), "mastered"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    wait_until(socket.exists, "the master")
    yield Hop("mastered")
    process.terminate()
    process.wait(60)


def test_the_users_master_is_used_without_a_login(server: Sshd, master: Hop) -> None:
    assert master_is_live(master)
    way = choose_way(Profile(name="c", host="mastered"))
    assert (way.name, way.reason) == ("openssh", "your ssh has a master connection to it")
    relay = RelayClient(open_transport(Profile(name="c", host="mastered"), UnattendedPrompter()))
    assert says_hello(relay)
    assert server.log.count("Accepted publickey") == 1
    assert master_is_live(master)


def test_without_a_master_ssh_is_not_needed(client: Client, server: Sshd) -> None:
    client.host("mastered", server.port, f"ControlPath {client.folder}/m")
    assert choose_way(Profile(name="c", host="mastered")).name == "paramiko"


def test_a_frozen_login_ends_in_time(client: Client, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltui.cluster.openssh_transport.SHELL_TIMEOUT_S", 1.0)
    link = Link(server.port)
    link.freeze()
    client.host("far", link.port)
    client.trust(server, link.port)
    began = time.monotonic()
    with pytest.raises(ClusterError, match="took too long"):
        connect(host="far").hello()
    assert time.monotonic() - began < 15
    link.close()


def test_nothing_a_profile_says_is_an_option_or_a_command(tmp_path: Path) -> None:
    transport = OpenSshTransport(Hop("host", "user", 22), UnattendedPrompter(), "-oProxyCommand=x", ["gate"])
    argv = transport.argv("true", attended=False)
    assert argv[-3:] == ["--", "host", "true"]
    assert argv[argv.index("-i") + 1] == "-oProxyCommand=x"  # the value of -i, whatever it looks like
    assert "BatchMode=yes" in argv
    assert "BatchMode=yes" not in transport.argv("true", attended=True)
    assert "ForwardAgent=no" in argv


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("alice@h: Permission denied (publickey).", AuthFailedError),
        ("alice@h: Permission denied (publickey,keyboard-interactive).", NeedsAttentionError),
        ("Host key verification failed.", NeedsAttentionError),
        ("@@@@@@\nREMOTE HOST IDENTIFICATION HAS CHANGED!\nHost key verification failed.", HostKeyError),
        ("ssh: Could not resolve hostname nowhere: Name or service not known", ClusterError),
        ("ssh: connect to host h port 22: Connection refused", ClusterError),
        ("", ClusterError),
    ],
)
def test_what_ssh_says_is_understood(said: str, kind: type[ClusterError]) -> None:
    assert type(why_ssh_failed(said, "h", attended=False)) is kind
