from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from msgspec import structs
from paramiko_support import accepted, connect
from ssh_lab import Client, Link, Sshd, says_hello, wait_until

from rltui.cluster.open_transport import open_transport
from rltui.cluster.profile import Profile
from rltui.cluster.prompts import UnattendedPrompter
from rltui.cluster.relay_client import RelayClient
from rltui.cluster.relay_types import RelayError
from rltui.cluster.transport import NeedsAttentionError
from rltui.errors import ClusterError

if TYPE_CHECKING:
    from pathlib import Path


def test_through_a_jump_host(tmp_path: Path, client: Client, server: Sshd) -> None:
    gate = Sshd(tmp_path / "gate")
    gate.let_in(client.key)
    client.host("gate", gate.port)
    client.host("inner", server.port, "ProxyJump gate")
    client.trust(gate)
    gate.start()
    try:
        assert says_hello(connect(host="inner"))
        assert accepted(gate) == accepted(server) == ["publickey"]
        assert says_hello(connect(host="login", proxy_jump=["gate"]))
        assert accepted(gate) == ["publickey"] * 2
    finally:
        gate.stop()


def test_each_machine_on_the_way_has_to_be_known(tmp_path: Path, client: Client, server: Sshd) -> None:
    gate = Sshd(tmp_path / "gate")
    gate.let_in(client.key)
    client.host("gate", gate.port)
    gate.start()
    try:
        with pytest.raises(NeedsAttentionError, match="not known yet"):
            connect(host="login", proxy_jump=["gate"]).hello()
        assert "Accepted" not in gate.log
    finally:
        gate.stop()


def test_a_jump_host_that_does_not_reach_the_next_one(tmp_path: Path, client: Client, server: Sshd) -> None:
    client.host("closed", 1)
    with pytest.raises(ClusterError, match=r"port 1 from the jump host cannot be reached: Connect failed\."):
        connect(host="closed", proxy_jump=["login"]).hello()


def test_nobody_there(client: Client) -> None:
    client.host("closed", 1)
    began = time.monotonic()
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1 port 1 cannot be reached: Connection refused") as caught:
        connect(host="closed").hello()
    assert not isinstance(caught.value, NeedsAttentionError)
    assert time.monotonic() - began < 15


def test_a_machine_that_never_greets(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltui.cluster.paramiko_transport.CONNECT_TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client.host("silent", silent.getsockname()[1])
        with pytest.raises(ClusterError, match=r"does not answer|does not speak SSH"):
            connect(host="silent").hello()


@pytest.fixture
def link(client: Client, server: Sshd) -> Iterator[Link]:
    link = Link(server.port)
    client.host("far", link.port)
    client.trust(server, link.port)
    yield link
    link.close()


def test_a_link_that_was_cut_is_opened_again(link: Link, relays: list[RelayClient]) -> None:
    relay = connect(host="far")
    relays.append(relay)
    first = relay.hello().pid
    link.cut()
    wait_until(lambda: relay._connection.lost, "the loss to be seen")
    assert relay.hello().pid != first
    assert link.connections == 2


def test_a_request_over_a_cut_link_is_lost_and_not_repeated(
    tmp_path: Path, link: Link, relays: list[RelayClient]
) -> None:
    relay = connect(host="far")
    relays.append(relay)
    relay.hello()
    import threading

    trace, gate = tmp_path / "trace", tmp_path / "gate"
    os.mkfifo(gate)
    failures: list[RelayError] = []

    def ask() -> None:
        try:
            relay.run(["sh", "-c", f"echo x >> {trace}; read a < {gate}"])
        except RelayError as error:
            failures.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: trace.exists() and trace.read_text() == "x\n", "the command to run")
    link.cut()
    asking.join(60)
    assert [error.kind for error in failures] == ["lost"]
    relay.hello()
    assert trace.read_text() == "x\n"


def test_a_frozen_link_costs_its_time_out_and_no_more(
    link: Link, relays: list[RelayClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = Profile(name="c", host="far", transport="paramiko")
    relay = RelayClient(open_transport(profile, UnattendedPrompter()))
    relays.append(relay)
    relay.hello()
    link.freeze()
    began = time.monotonic()
    with monkeypatch.context() as hurried:
        hurried.setattr(relay, "_timeout_s", 2.0)
        with pytest.raises(RelayError, match="did not answer"):
            relay.hello()
    assert time.monotonic() - began < 15
    link.thaw()
    assert relay.hello().version


def test_sending_into_a_frozen_link_ends_in_time(link: Link, relays: list[RelayClient]) -> None:
    relay = connect(host="far")
    relays.append(relay)
    relay.hello()
    stream = relay._connection._stream
    link.freeze()
    began = time.monotonic()
    with pytest.raises(OSError, match=r"does not take|gone|closed"):
        stream.send(b" " * (1 << 26), 1.0)  # more than the buffers on the way hold
    assert time.monotonic() - began < 15


def test_a_frozen_login(client: Client, server: Sshd, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rltui.cluster.paramiko_transport.CONNECT_TIMEOUT_S", 1.0)
    link.freeze()
    with pytest.raises(ClusterError, match=r"does not speak SSH|does not answer"):
        connect(host="far").hello()


@pytest.mark.parametrize("fault", ["freeze", "cut"])
def test_a_fault_at_any_byte_of_the_opening_is_an_error_in_time(
    fault: str, client: Client, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Link(server.port)
    client.host("whole", whole.port)
    client.trust(server, whole.port)
    says_hello(connect(host="whole"))
    whole.close()
    for name in ("transport.CONNECT_TIMEOUT_S", "transport.SHELL_TIMEOUT_S", "auth.AUTH_TIMEOUT_S"):
        monkeypatch.setattr(f"rltui.cluster.paramiko_{name}", 0.5)
    # the relay itself, some 40 kB at the end, is the relay client's to time
    opening = min(whole.passed, 8000)
    for limit in range(0, opening, opening // 8):
        link = Link(server.port, limit, fault)
        client.host(f"at{limit}", link.port)
        client.trust(server, link.port)
        began = time.monotonic()
        relay = RelayClient(
            open_transport(Profile(name="c", host=f"at{limit}", transport="paramiko"), UnattendedPrompter()),
            open_timeout_s=0.5,
        )
        with pytest.raises(ClusterError) as caught:
            relay.hello()
        assert time.monotonic() - began < 15, (limit, caught.value)
        assert str(caught.value).isprintable() or "\n" in str(caught.value)
        # a link that breaks is tried again by itself, so it must not look like a login that was refused
        assert not isinstance(caught.value, NeedsAttentionError), (limit, caught.value)
        link.close()
        relay.close()


@pytest.mark.parametrize("way", ["paramiko", "openssh"])
def test_a_link_cut_before_the_relay_spoke_is_no_lack_of_python(
    way: Literal["paramiko", "openssh"], client: Client, server: Sshd
) -> None:
    whole = Link(server.port)
    client.host("whole", whole.port)
    client.trust(server, whole.port)
    profile = Profile(name="c", host="whole", transport=way)
    says_hello(RelayClient(open_transport(profile, UnattendedPrompter())))
    whole.close()
    # the relay's program is tens of kB, and nothing is answered before all of it is there
    link = Link(server.port, whole.passed - 12_000, "cut")
    client.host("breaks", link.port)
    client.trust(server, link.port)
    relay = RelayClient(open_transport(structs.replace(profile, host="breaks"), UnattendedPrompter()))
    with pytest.raises(ClusterError, match="The connection to breaks ended before its relay had started") as caught:
        relay.hello()
    assert "python" not in caught.value.hint
    link.close()
    relay.close()


def test_closing_over_a_frozen_link_takes_no_longer_than_its_grace(link: Link) -> None:
    relay = connect(host="far")
    relay.hello()
    link.freeze()
    began = time.monotonic()
    relay.close()
    assert time.monotonic() - began < 15
