"""One user and one sshd that lets them in, for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from ssh_lab import Client, Sshd

if TYPE_CHECKING:
    from pathlib import Path

    from rltui.cluster.relay_client import RelayClient


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A user with a key, whose SSH configuration is empty."""
    client = Client(tmp_path / "client")
    monkeypatch.setenv("RLTUI_SSH_CONFIG", str(client.config))
    return client


@pytest.fixture
def server(tmp_path: Path, client: Client) -> Iterator[Sshd]:
    """A server that is called ``login`` and known to ``client``."""
    server = Sshd(tmp_path / "server", "PasswordAuthentication no", "KbdInteractiveAuthentication no")
    server.let_in(client.key)
    client.host("login", server.port)
    client.trust(server)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def relays() -> Iterator[list[RelayClient]]:
    """What a test opens and does not close itself."""
    opened: list[RelayClient] = []
    yield opened
    for relay in opened:
        relay.close()
