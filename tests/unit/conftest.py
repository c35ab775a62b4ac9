"""A relay on this machine, for all that reads through one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rltui.cluster.local_transport import LocalTransport
from rltui.cluster.relay_client import RelayClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def client() -> Iterator[RelayClient]:
    client = RelayClient(LocalTransport())
    yield client
    client.close()
