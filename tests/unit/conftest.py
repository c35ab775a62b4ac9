"""A relay on this machine, for all that reads through one, a user whose folders are the test's own, and a webhook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from webhook import Hook

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient
from rltui.onnode import notify


@pytest.fixture(scope="module")
def client() -> Iterator[RelayClient]:
    client = RelayClient(LocalTransport())
    yield client
    client.close()


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test's own user keeps runs, state, cache and settings: each in a folder of its name."""
    for name in ("RUN_ROOT", "STATE_DIR", "CACHE_DIR", "CONFIG_DIR"):
        monkeypatch.setenv(f"RLTUI_{name}", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """One that is waited for, however late this machine lets it answer."""
    monkeypatch.setattr(notify, "SOCKET_S", 300.0)
    monkeypatch.setattr(notify, "DEADLINE_S", 300.0)
    hook = Hook()
    yield hook
    hook.server.shutdown()
    hook.server.server_close()
