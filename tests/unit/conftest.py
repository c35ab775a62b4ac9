"""A relay on this machine, for all that reads through one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient


@pytest.fixture(scope="module")
def client() -> Iterator[RelayClient]:
    client = RelayClient(LocalTransport())
    yield client
    client.close()
