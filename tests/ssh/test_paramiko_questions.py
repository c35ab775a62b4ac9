from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from paramiko_support import accepted, connect, refused
from ssh_lab import PASSWORD, Client, Scripted, Sshd, says_hello, wait_until

from rltui.cluster.prompts import SwitchedPrompter, UnattendedPrompter
from rltui.cluster.transport import AuthFailedError, NeedsAttentionError

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.cluster.relay_client import RelayClient


NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="PAM's configuration can be another one for root only")


@pytest.fixture
def asking(tmp_path: Path, client: Client) -> Iterator[Sshd]:
    """A server that asks a question through PAM."""
    server = Sshd(tmp_path / "asking", "PasswordAuthentication no", "KbdInteractiveAuthentication yes", with_pam=True)
    client.host("login", server.port, key=tmp_path / "none")
    client.trust(server)
    server.start()
    yield server
    server.stop()


@NEEDS_ROOT
def test_questions_of_the_server_are_passed_on(asking: Sshd) -> None:
    me = Scripted(interactive=PASSWORD)
    assert says_hello(connect(me))
    assert accepted(asking) == ["keyboard-interactive/pam"]
    [question] = me.asked
    assert question.fields[0].text == "Password:"
    assert not question.fields[0].echo


@NEEDS_ROOT
def test_a_wrong_answer_is_one_failed_try_and_then_nothing_is_asked_again(asking: Sshd) -> None:
    me = Scripted(interactive="wrong", password="wrong")
    relay = connect(me)
    for _ in range(3):
        with pytest.raises(AuthFailedError, match="refused the login"):
            relay.hello()
    assert len(me.asked) == 1
    wait_until(lambda: refused(asking) == 1, "the server to note the failure")
    assert asking.log.count("Connection from") == 2  # ours, and the fixture's probe


@NEEDS_ROOT
def test_the_background_does_not_even_begin_what_would_ask(asking: Sshd) -> None:
    relay = connect(UnattendedPrompter())
    for _ in range(3):
        with pytest.raises(NeedsAttentionError, match="asks questions at login"):
            relay.hello()
    assert relay.needs_attention
    assert "keyboard-interactive" not in asking.log
    assert asking.log.count("Connection from") == 2  # ours, and the fixture's probe


@NEEDS_ROOT
def test_once_the_user_acts_the_connection_is_made_and_kept(asking: Sshd, relays: list[RelayClient]) -> None:
    prompter = SwitchedPrompter()
    relay = connect(prompter)
    relays.append(relay)
    with pytest.raises(NeedsAttentionError):
        relay.hello()
    with prompter.attend(Scripted(interactive=PASSWORD)):
        relay.close()
        relay.hello()
    assert not relay.needs_attention
    assert relay.hello().version
    assert not prompter.attended


@NEEDS_ROOT
def test_a_user_who_does_not_answer_is_no_failed_login(asking: Sshd) -> None:
    with pytest.raises(NeedsAttentionError, match="did not answer") as caught:
        connect(Scripted()).hello()
    assert not isinstance(caught.value, AuthFailedError)


@NEEDS_ROOT
@pytest.mark.parametrize("transport", ["paramiko", "openssh"])
def test_an_interrupt_at_a_password_leaves_the_terminal_as_it_was(
    transport: str, tmp_path: Path, asking: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLTUI_CONFIG_DIR", str(tmp_path))
    (tmp_path / "clusters.yaml").write_text(f"c: {{host: login, transport: {transport}}}\n")
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", ON_ITS_TERMINAL],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    said = b""
    while b"assword:" not in said:
        assert select.select([master], [], [], 30)[0], said
        said += os.read(master, 4096)
    wait_until(lambda: not echoes(terminal), "the prompt to hide what is typed")
    os.write(master, b"\x03")
    assert process.wait(60) != 0
    assert echoes(terminal)
    os.close(master)
    os.close(terminal)


ON_ITS_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from rltui.cli.main import main
sys.exit(main(["doctor", "c"]))
"""


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


@NEEDS_ROOT
def test_a_key_and_a_code(tmp_path: Path, client: Client) -> None:
    lines = ["AuthenticationMethods publickey,keyboard-interactive", "PasswordAuthentication no"]
    server = Sshd(tmp_path / "two", *lines, "KbdInteractiveAuthentication yes", with_pam=True)
    server.let_in(client.key)
    client.host("two", server.port)
    client.trust(server)
    server.start()
    try:
        relay = connect(Scripted(interactive=PASSWORD), "two")
        assert says_hello(relay)
        assert relay._transport.opened.auth.endswith("id_ed25519 + keyboard-interactive")
        with pytest.raises(NeedsAttentionError, match="asks questions"):
            connect(UnattendedPrompter(), "two").hello()
    finally:
        server.stop()


@NEEDS_ROOT
def test_a_password(tmp_path: Path, client: Client) -> None:
    lines = ["PasswordAuthentication yes", "KbdInteractiveAuthentication no"]
    server = Sshd(tmp_path / "password", *lines, with_pam=True)
    client.host("login", server.port, key=tmp_path / "none")
    client.trust(server)
    server.start()
    try:
        assert says_hello(connect(Scripted(password=PASSWORD)))
        with pytest.raises(NeedsAttentionError, match="wants a password"):
            connect(UnattendedPrompter()).hello()
        with pytest.raises(AuthFailedError, match="tried: password"):
            connect(Scripted(password="wrong")).hello()
    finally:
        server.stop()
