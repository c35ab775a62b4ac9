"""A relay on this machine, for all that reads through one, and a user whose folders are the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient


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
