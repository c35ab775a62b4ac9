from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from paramiko_support import accepted, connect, refused
from ssh_lab import Client, Scripted, Sshd, make_key, says_hello, script, wait_until

from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.transport import AuthFailedError, NeedsAttentionError


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_a_key_file_and_a_known_host_are_all_it_takes(kind: str, tmp_path: Path, client: Client, server: Sshd) -> None:
    key = make_key(tmp_path / "own", kind=kind)
    server.let_in(key)
    client.host("other", server.port, key=key)
    assert says_hello(connect(host="other"))
    assert accepted(server) == ["publickey"]


def test_the_key_of_the_profile_comes_before_those_of_the_configuration(
    tmp_path: Path, client: Client, server: Sshd
) -> None:
    stranger, own = make_key(tmp_path / "stranger"), make_key(tmp_path / "own")
    server.let_in(own)
    client.host("other", server.port, key=stranger)
    assert says_hello(connect(host="other", identity_file=str(own)))
    assert refused(server) == 0


def test_an_encrypted_key_asks_for_its_passphrase(tmp_path: Path, client: Client, server: Sshd) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret words")
    server.let_in(key)
    client.host("other", server.port, key=key)
    me = Scripted(passphrase="secret words")
    assert says_hello(connect(me, "other"))
    assert [question.title for question in me.asked] == [str(key)]


def test_a_wrong_passphrase_is_asked_for_three_times_and_never_reaches_the_server(
    tmp_path: Path, client: Client, server: Sshd
) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret words")
    client.host("other", server.port, key=key)
    me = Scripted(passphrase="wrong")
    with pytest.raises(AuthFailedError, match="refused the login") as caught:
        connect(me, "other").hello()
    assert str(key) in str(caught.value)
    assert len(me.asked) == 3
    assert "publickey" not in server.log


def test_a_key_in_a_cipher_that_paramiko_lacks_is_passed_over(tmp_path: Path, client: Client, server: Sshd) -> None:
    locked, own = make_key(tmp_path / "locked"), make_key(tmp_path / "own")
    words = ["ssh-keygen", "-q", "-p", "-N", "secret words", "-Z", "aes128-gcm@openssh.com", "-f", str(locked)]
    subprocess.run(words, check=True, capture_output=True)
    server.let_in(own)
    client.host("other", server.port, key=own)
    me = Scripted(passphrase="secret words")
    assert says_hello(connect(me, "other", identity_file=str(locked)))
    assert len(me.asked) == 1, "no other passphrase would help"


def test_an_encrypted_key_asks_nothing_from_the_background(tmp_path: Path, client: Client, server: Sshd) -> None:
    key = make_key(tmp_path / "locked", passphrase="secret words")
    client.host("other", server.port, key=key)
    with pytest.raises(NeedsAttentionError, match="passphrase") as caught:
        connect(UnattendedPrompter(), "other").hello()
    assert "rltui doctor" in caught.value.hint


def test_keys_of_the_agent(tmp_path: Path, client: Client, server: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = make_key(tmp_path / "agent key", passphrase="x", comment="alice@laptop")
    server.let_in(locked)
    client.host("other", server.port, "IdentitiesOnly no", key=tmp_path / "missing")
    with agent(tmp_path / "agent", monkeypatch):
        add = {**os.environ, "SSH_ASKPASS": str(script(tmp_path / "ask", "echo x")), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", str(locked)], check=True, env=add, stdin=subprocess.DEVNULL)
        relay = connect(host="other")
        assert says_hello(relay)
        assert relay._transport.opened.auth == "agent key alice@laptop"
        client.host("strict", server.port, key=tmp_path / "missing")
        with pytest.raises(AuthFailedError, match="there is no key"):
            connect(host="strict").hello()


class agent:  # noqa: N801 (reads as a word of the test)
    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._process = subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
        wait_until(path.exists, "the agent")

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(60)


def test_an_agent_that_never_answers_is_passed_over(
    tmp_path: Path, client: Client, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rltui.cluster.paramiko_keys.AGENT_TIMEOUT_S", 0.3)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "agent"))
        silent.listen(1)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        assert says_hello(connect())


def test_a_certificate(tmp_path: Path, client: Client, server: Sshd) -> None:
    authority = certified_server(tmp_path, server)
    key = make_key(tmp_path / "own")
    sign(authority, key, "+1h")
    client.host("other", server.port, key=key)
    assert says_hello(connect(host="other"))
    assert "ED25519-CERT" in server.log


def test_a_certificate_elsewhere_belongs_to_the_key_it_was_made_for(
    tmp_path: Path, client: Client, server: Sshd
) -> None:
    authority = certified_server(tmp_path, server)
    key = make_key(tmp_path / "own")
    sign(authority, key, "+1h")
    certificate = tmp_path / "site.pub"
    Path(f"{key}-cert.pub").rename(certificate)
    client.host("other", server.port, f"IdentityFile {client.key}", f"CertificateFile {certificate}", key=key)
    assert says_hello(connect(host="other"))
    assert accepted(server) == ["publickey"]


def test_a_certificate_that_ended_is_named(tmp_path: Path, client: Client, server: Sshd) -> None:
    authority = certified_server(tmp_path, server)
    key = make_key(tmp_path / "own")
    sign(authority, key, "20200101:20200102")
    client.host("other", server.port, key=key)
    with pytest.raises(AuthFailedError) as caught:
        connect(host="other").hello()
    assert "own-cert.pub ended on 2020-01-02" in str(caught.value)


def certified_server(tmp_path: Path, server: Sshd) -> Path:
    authority = make_key(tmp_path / "authority")
    with server.authorized.open("a") as stream:
        stream.write(f"cert-authority {Path(f'{authority}.pub').read_text()}")
    return authority


def sign(authority: Path, key: Path, validity: str) -> None:
    import getpass

    words = ["ssh-keygen", "-q", "-s", str(authority), "-I", "test", "-n", getpass.getuser(), "-V", validity]
    subprocess.run([*words, f"{key}.pub"], check=True)


def test_a_key_that_others_can_read_is_not_used(tmp_path: Path, client: Client, server: Sshd) -> None:
    client.key.chmod(0o644)
    with pytest.raises(AuthFailedError, match="chmod 600"):
        connect().hello()


def test_no_more_keys_than_a_server_bears(tmp_path: Path, client: Client, server: Sshd) -> None:
    keys = [make_key(tmp_path / f"key{number}") for number in range(8)]
    client.host("other", server.port, *(f"IdentityFile {key}" for key in keys), key=keys[0])
    with pytest.raises(AuthFailedError, match="no more than 5 keys"):
        connect(host="other").hello()
    assert "maximum authentication attempts" not in server.log


def test_a_server_that_bears_fewer_keys_is_no_broken_link(tmp_path: Path, client: Client) -> None:
    server = Sshd(tmp_path / "strict", "MaxAuthTries 2", "PasswordAuthentication no")
    keys = [make_key(tmp_path / f"key{number}") for number in range(4)]
    client.host("strict", server.port, *(f"IdentityFile {key}" for key in keys), key=keys[0])
    client.trust(server)
    server.start()
    try:
        with pytest.raises(AuthFailedError, match="Too many authentication failures"):
            connect(host="strict").hello()
    finally:
        server.stop()


def test_an_agent_that_will_not_sign_is_a_refusal(
    tmp_path: Path, client: Client, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.let_in(client.key)
    client.host("other", server.port, "IdentitiesOnly no", key=tmp_path / "missing")
    with agent(tmp_path / "agent", monkeypatch):
        # -c: each use has to be confirmed, by a program that says no
        no = {**os.environ, "SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", "-c", str(client.key)], check=True, env=no, stdin=subprocess.DEVNULL)
        with pytest.raises(AuthFailedError, match="agent key alice@laptop"):
            connect(host="other").hello()
